/* Allocates the buffers of the ranks, on the host or on GPUs, and carries what is checked between
 * them and the host. */
#include "common/buffers.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096
#define FILLER 0x3c /* bytes that make an ordinary number in every type */

static bool on_gpus(const struct perf_worker *worker)
{
    return worker->run->options->on_gpus;
}

static size_t memory_bytes(const struct perf_run *run)
{
    size_t unalign = 8 * (size_t)run->options->unalign;
    return (run->buffer_bytes + 2 * PERF_GUARD + unalign + PAGE - 1) / PAGE * PAGE;
}

static tuttiResult_t allocate(const struct perf_worker *worker, const struct perf_rank *rank,
                              size_t nbytes, void **memory)
{
    if (on_gpus(worker)) return perf_gpu_allocate(&rank->gpu, nbytes, memory);
    if (worker->run->options->tutti_memory) return tuttiMemAlloc(memory, nbytes);
    *memory = aligned_alloc(PAGE, nbytes);
    return *memory == NULL ? tuttiSystemError : tuttiSuccess;
}

tuttiResult_t perf_buffers_open(struct perf_worker *worker, struct perf_rank *rank)
{
    size_t nbytes = memory_bytes(worker->run);
    for (int i = 0; i < 2; i++) {
        tuttiResult_t result = allocate(worker, rank, nbytes, &rank->memory[i]);
        if (result != tuttiSuccess) {
            snprintf(worker->error, sizeof(worker->error),
                     "no memory for a buffer of %zu bytes: lower -e or --rotate%s%s", nbytes,
                     on_gpus(worker) ? ": " : "", on_gpus(worker) ? perf_gpu_error() : "");
            return result;
        }
        PERF_TRY(perf_buffers_fill(worker, rank, rank->memory[i], FILLER, nbytes));
        if (worker->run->options->registration > 0) {
            PERF_TRY(worker->run->options->library->register_memory(rank->comm, rank->memory[i],
                                                                    nbytes, &rank->handle[i]));
        }
    }
    rank->send = (unsigned char *)rank->memory[0] + PERF_GUARD;
    rank->recv = (unsigned char *)rank->memory[1] + PERF_GUARD;
    return tuttiSuccess;
}

void perf_buffers_close(struct perf_worker *worker, struct perf_rank *rank)
{
    for (int i = 0; i < 2; i++) {
        if (rank->memory[i] == NULL) continue;
        if (on_gpus(worker)) {
            perf_gpu_free(&rank->gpu, rank->memory[i]);
        } else if (worker->run->options->tutti_memory) {
            (void)tuttiMemFree(rank->memory[i]);
        } else {
            free(rank->memory[i]);
        }
    }
}

tuttiResult_t perf_buffers_fill(const struct perf_worker *worker, const struct perf_rank *rank,
                                void *to, int byte, size_t nbytes)
{
    if (on_gpus(worker)) return perf_gpu_fill(&rank->gpu, to, byte, nbytes);
    memset(to, byte, nbytes);
    return tuttiSuccess;
}

void *perf_buffers_staging(const struct perf_worker *worker, void *to)
{
    return on_gpus(worker) ? worker->staging : to;
}

tuttiResult_t perf_buffers_write(const struct perf_worker *worker, const struct perf_rank *rank,
                                 void *to, size_t nbytes)
{
    if (!on_gpus(worker)) return tuttiSuccess;
    return perf_gpu_write(&rank->gpu, to, worker->staging, nbytes);
}

tuttiResult_t perf_buffers_read(const struct perf_worker *worker, const struct perf_rank *rank,
                                const void *from, size_t nbytes, const void **copy)
{
    *copy = on_gpus(worker) ? worker->staging : from;
    if (!on_gpus(worker)) return tuttiSuccess;
    return perf_gpu_read(&rank->gpu, worker->staging, from, nbytes);
}
