/* What kernels moved, and other counts: the one function of the virtual GPU's libcuda.so.1 that
 * NVIDIA's has not.
 *
 * A program finds it by dlsym(library, "vgpu_traffic"), so that it runs on both. */
#ifndef VGPU_TRAFFIC_H
#define VGPU_TRAFFIC_H

#include <stdint.h>

/* Bytes that threads accessed in global memory, whosever it is, one access after the other: there
 * are no caches. Strong accesses are those with an order or a scope, and atomics, which count as
 * stores. */
struct vgpu_traffic {
    uint64_t instructions; /* of threads */
    uint64_t weak_loaded, weak_stored;
    uint64_t strong_loaded, strong_stored;
    uint64_t waited;   /* of strong_loaded: from one of the last 8 addresses from which the thread
                        * made strong loads, as in a wait */
    uint64_t barriers; /* that blocks passed: bar and barrier */
    uint64_t fences;   /* of threads: fences, and stores and atomics that release */
    uint64_t launches;
    uint64_t flushes; /* calls of cuFlushGPUDirectRDMAWrites */
};

/* Of all kernels that ran on the GPU, and all calls for it, since cuInit. 0, or a CUresult. Any
 * thread. */
int vgpu_traffic(int gpu, struct vgpu_traffic *traffic);

#endif
