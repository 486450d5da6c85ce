/* Ranks as threads, each on a virtual GPU, and memory on it. */
#ifndef TT_TESTS_DEVICE_RANKS_ON_GPUS_H
#define TT_TESTS_DEVICE_RANKS_ON_GPUS_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti.h"

enum { MOST_RANKS = 8 };

/* One rank, for the body of a test. */
struct gpu_rank {
    int rank, nranks;
    int gpu; /* -1: none; the memory below is then the host's */
    tuttiComm_t comm;
    void *arg;
};

/* Runs body in nranks threads, rank r on GPU r % ngpus; init and destroy are checked. config may be
 * NULL. */
void on_gpus(int nranks, int ngpus, const tuttiConfig_t *config,
             void (*body)(struct gpu_rank *rank), void *arg);

/* on_gpus, where arg is a barrier of all ranks. */
void on_gpus_together(int nranks, int ngpus, const tuttiConfig_t *config,
                      void (*body)(struct gpu_rank *rank));

/* As on_gpus, with the GPU of each rank; -1: none. */
void on_devices(int nranks, const int *gpus, const tuttiConfig_t *config,
                void (*body)(struct gpu_rank *rank), void *arg);

/* Memory of a GPU; filled with 0xa5. Copies wait for nothing but themselves. */
char *gpu_memory(int gpu, size_t nbytes);
/* Frees it with the next gpu_free_all, which on_gpus calls at its end: freeing waits for all
 * kernels, also for those of ranks that wait for this one. */
void gpu_free(void *memory);
void gpu_free_all(void);
/* Of memory of a GPU: fills it on the stream, in order with its other work. */
void gpu_fill(int gpu, void *stream, void *memory, unsigned word, size_t nwords);
void gpu_write(int gpu, void *to, const void *from, size_t nbytes);
void gpu_read(int gpu, void *to, const void *from, size_t nbytes);
/* A CUDA stream that does not wait for the legacy one; NULL where there is no GPU. */
void *gpu_stream(int gpu);
void gpu_stream_destroy(int gpu, void *stream);
void gpu_capture(int gpu, void *stream);
void gpu_end_capture(int gpu, void *stream);
/* The stream does nothing more until gpu_unblock. One stream at a time. */
void gpu_block(int gpu, void *stream);
void gpu_unblock(void);
void gpu_pin(int gpu, void *memory, size_t nbytes);
void gpu_unpin(int gpu, void *memory);
/* Makes the GPU's context the thread's current one. */
void gpu_use(int gpu);
/* A communicator of one rank, on GPU 0. */
tuttiResult_t make_alone(tuttiComm_t *comm);

#endif
