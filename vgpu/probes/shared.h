/* Two processes on one GPU: what the probe's parts share. */
#ifndef GPU_PROBES_SHARED_H
#define GPU_PROBES_SHARED_H

#include "driver.h"

/* Runs both functions in processes of their own, joined by a socket; each ends within 40 s. */
void run_pair(const char *name, void (*first)(int socket, const char *name),
              void (*second)(int socket, const char *name));

void send_bytes(int socket, const void *data, size_t nbytes);
void receive_bytes(int socket, void *data, size_t nbytes);
void meet(int socket); /* returns when the peer is there too */

enum manner { BY_IPC, BY_VMM };
extern const char *const manner_names[2];
/* Memory of the one process, and the other's view of it. */
CUdeviceptr share(int socket, enum manner manner, size_t nbytes);
CUdeviceptr take(int socket, enum manner manner, size_t nbytes);

/* Launches one_side of speed.cu. */
void launch_side(CUstream stream, CUdeviceptr mine, CUdeviceptr theirs, unsigned side,
                 unsigned nturns, unsigned long long stay, unsigned *done,
                 unsigned long long *times);
void shared_result(const char *name, const char *call, CUresult result);

/* shared_faults.c */
void shared_faults(void);

#endif
