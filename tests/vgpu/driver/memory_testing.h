/* What the tests of memory and the processes that they start share. */
#ifndef VGPU_DRIVER_MEMORY_TESTING_H
#define VGPU_DRIVER_MEMORY_TESTING_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Two GPUs; the first one's primary context is current. Once a process. */
bool mt_open(void);
CUcontext mt_context(int device);
void mt_current(int device);

/* Kernels of one thread, in the current context's own copy of the module:
 * put(address, value) stores 4 bytes; move(to, from) copies 4 bytes;
 * await(address, value, then) waits until the word has the value (acquire, all of the system) and
 * stores 1 to *then (release). */
CUresult mt_put(CUdeviceptr address, uint32_t value, CUstream stream);
CUresult mt_move(CUdeviceptr to, CUdeviceptr from, CUstream stream);
CUresult mt_await(CUdeviceptr address, uint32_t value, CUdeviceptr then, CUstream stream);

/* New VMM memory of the device, mapped, with access for it. */
CUresult mt_map(int device, size_t nbytes, CUmemGenericAllocationHandle *handle,
                CUdeviceptr *address);
CUresult mt_map_handle(int device, size_t nbytes, CUmemGenericAllocationHandle handle,
                       CUdeviceptr *address);

void mt_send_fd(int socket, int fd);
int mt_receive_fd(int socket); /* -1: none came */
bool mt_send(int socket, const void *data, size_t nbytes);
bool mt_receive(int socket, void *data, size_t nbytes);

/* A process that plays a role of memory_peer.c, joined by a socket. */
struct mt_peer {
    pid_t pid;
    int socket;
    int errors; /* a memfd that holds its standard error */
};
bool mt_start(struct mt_peer *peer, const char *role);
/* Waits until it has ended; the text is what it wrote to standard error. Its status as of waitpid.
 */
int mt_finish(struct mt_peer *peer, char *text, size_t room);

#endif
