/* The GPU of a rank: memory, a stream and events, by CUDA's driver (libcuda.so.1), which is loaded
 * at run time. Needs neither CUDA nor its headers to build.
 *
 * Functions that can fail return tuttiUnhandledDeviceError, and perf_gpu_error says why. Any thread
 * may call them. */
#ifndef TT_PERF_GPU_H
#define TT_PERF_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti.h"

/* Owned by the rank; zero until it is opened. */
struct perf_gpu {
    int number;    /* as CUDA numbers them */
    void *context; /* its primary context; NULL: not opened */
    void *stream;  /* does not wait for the legacy default stream */
};

/* Why the last function failed in this thread; "" before. */
const char *perf_gpu_error(void);

/* Loads the driver. Fails where there is no driver or no GPU. */
tuttiResult_t perf_gpu_load(int *ngpus);
/* The name, and the place on the PCI bus as "0000:1b:00.0"; "?" where the driver does not say. */
void perf_gpu_describe(int number, char *name, size_t name_bytes, char *pci, size_t pci_bytes);
/* Whether that is the name of a virtual GPU, whose times say nothing about GPUs (vgpu). */
bool perf_gpu_is_virtual(const char *name);

/* After perf_gpu_load. Makes the primary context of a GPU current in this thread, and keeps it
 * until the process ends. */
tuttiResult_t perf_gpu_enter(int number);

/* After perf_gpu_load. Retains the context and makes the stream. */
tuttiResult_t perf_gpu_open(struct perf_gpu *gpu, int number);
void perf_gpu_close(struct perf_gpu *gpu);

tuttiResult_t perf_gpu_allocate(const struct perf_gpu *gpu, size_t nbytes, void **memory);
/* May wait for all kernels of the GPU. */
void perf_gpu_free(const struct perf_gpu *gpu, void *memory);

/* Each is complete when it returns, and waits for nothing but the GPU's stream. */
tuttiResult_t perf_gpu_fill(const struct perf_gpu *gpu, void *to, int byte, size_t nbytes);
tuttiResult_t perf_gpu_write(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes);
tuttiResult_t perf_gpu_read(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes);

/* Copies inside the GPU's memory; returns at once. */
tuttiResult_t perf_gpu_copy(const struct perf_gpu *gpu, void *to, const void *from, size_t nbytes);
tuttiResult_t perf_gpu_wait(const struct perf_gpu *gpu);

/* Events take the time at which the stream gets to them. */
tuttiResult_t perf_gpu_event_create(const struct perf_gpu *gpu, void **event);
void perf_gpu_event_destroy(const struct perf_gpu *gpu, void *event); /* NULL is allowed */
tuttiResult_t perf_gpu_event_record(const struct perf_gpu *gpu, void *event);
/* Both are complete. */
tuttiResult_t perf_gpu_event_seconds(const struct perf_gpu *gpu, void *start, void *end,
                                     double *seconds);

/* Work of the GPU's stream is captured by this thread from begin to end. *captured: what came to
 * the stream, owned by the caller. */
tuttiResult_t perf_gpu_capture_begin(const struct perf_gpu *gpu);
tuttiResult_t perf_gpu_capture_end(const struct perf_gpu *gpu, void **captured);
void perf_gpu_captured_free(const struct perf_gpu *gpu, void *captured); /* NULL is allowed */
/* *graph: what can be launched. CUDA refuses this while the thread captures any stream. */
tuttiResult_t perf_gpu_graph_make(const struct perf_gpu *gpu, void *captured, void **graph);
tuttiResult_t perf_gpu_graph_launch(const struct perf_gpu *gpu, void *graph);
void perf_gpu_graph_destroy(const struct perf_gpu *gpu, void *graph); /* NULL is allowed */

#endif
