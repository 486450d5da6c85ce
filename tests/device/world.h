/* Ranks on one virtual GPU: their links, placed by hand in device memory, and their calls. */
#ifndef TT_TESTS_DEVICE_WORLD_H
#define TT_TESTS_DEVICE_WORLD_H

#include <cuda.h>
#include <pthread.h>

#include "driver/cuda.h"
#include "job.h"

enum {
    WORLD_CHANNELS = 4,
    WORLD_SLOTS = 8, /* at most */
    WORLD_SLOT_BYTES = 1024,
    WORLD_LINE_BYTES = 1024,
    WORLD_THREADS = 64,
    WORLD_NARROW_BYTES = 1792 /* the ends, the binding and its table of blocks */
};

/* What differs between worlds. */
struct world_config {
    int nranks;
    unsigned nslots;
    bool reaches; /* receivers can read the senders' memory; else only those of even senders */
    bool opens;   /* that memory is opened: by all peers, or by even ones */
    bool system;  /* ordering accesses of scope .sys */
    bool narrow;  /* programs do not fit in shared memory */
    int ngpus;    /* 2: rank r is on GPU r % 2, and `system` must be set; buffers are on GPU 0 */
};
enum { WORLD_GPUS = 2 };

struct world {
    struct world_config config;
    const struct tt_cuda *cu;
    CUcontext contexts[WORLD_GPUS]; /* the first one is the thread's current */
    CUmodule modules[WORLD_GPUS];
    CUfunction runs[WORLD_GPUS];
    CUstream streams[JOB_MOST_RANKS];
    CUdeviceptr links[JOB_MOST_RANKS]; /* what a rank receives, its tails, its table of ends */
    CUdeviceptr states[JOB_MOST_RANKS];
    struct tt_device_report *reports[JOB_MOST_RANKS]; /* pinned */
    uint64_t ncalls;                                  /* of each rank, as far as launched */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool waited; /* guarded by lock: the streams are empty */
};

/* How a collective is run. */
struct world_call {
    struct job *job;
    size_t reference_bytes;
    unsigned misaligned; /* bytes that the buffers lie behind an aligned address */
    bool in_place;
    bool apart; /* each rank is a launch of its own; always so with two GPUs */
    bool scalar_on_device;
    uint32_t signature;
    unsigned ntimes; /* launches of the same calls, one after the other */
    unsigned absent; /* bits: ranks that are not launched */
    unsigned other;  /* bits: ranks whose signature is another */
    bool scrambled;  /* blocks of calls of the launch begin with the last rank's */
};

/* False: there is no GPU, or no kernel (fails the running test). */
bool world_open(struct world *world, const struct world_config *config);
void world_close(struct world *world);
/* As counts_set, of all ranks. */
void world_count_from(struct world *world, uint32_t count, bool fresh);
/* As counts_oldest, of all ranks. */
uint32_t world_oldest(struct world *world, uint32_t count);

/* What a call has on the device. */
struct world_run {
    struct tt_device_batch batch; /* of at most TT_DEVICE_MOST_CALLS ranks */
    struct tt_device_call more[JOB_MOST_RANKS - TT_DEVICE_MOST_CALLS]; /* of those behind them */
    CUdeviceptr inputs[JOB_MOST_RANKS], outputs[JOB_MOST_RANKS];       /* as the calls use them */
    CUdeviceptr owned[JOB_MOST_RANKS * 8];
    int nowned;
};

/* Places the call; inputs: of the ranks, host memory. */
void world_place(struct world *world, const struct world_call *call, char *const *inputs,
                 struct world_run *run);
/* Launches once, does not wait. */
void world_launch(struct world *world, const struct world_call *call, const struct world_run *run);
/* The host says abort to all ranks. */
void world_abort(struct world *world, uint64_t how);
/* Waits for all streams; says abort when that takes very long. */
void world_wait(struct world *world);
/* Waits until the bytes are read. */
void world_read(const struct world *world, void *to, CUdeviceptr from, size_t nbytes);
void world_remove(struct world *world, struct world_run *run);

/* Runs the collective on random input and compares all outputs with the simulation. Whether they
 * are right. */
bool world_try(struct world *world, const struct world_call *call, const char *what, uint64_t seed);

#endif
