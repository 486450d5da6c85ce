/* Calls of collectives on the memory of a GPU, checked against the serial reference. */
#ifndef TT_TESTS_DEVICE_CALLS_ON_GPU_H
#define TT_TESTS_DEVICE_CALLS_ON_GPU_H

#include "../integration/reference.h"
#include "ranks_on_gpus.h"

/* A call with this rank's buffers on its GPU. */
struct placed {
    struct call call;
    const struct gpu_rank *rank;
    char *memory[2]; /* in which the buffers lie; [1] NULL: both in one */
    char *input, *output;
    size_t input_bytes, output_bytes;
    tuttiRedOp_t op; /* what the call is issued with */
    char *scalar;    /* of a pre-multiplied sum, on the GPU; NULL: there is none */
};

/* skew: bytes by which the buffers miss an alignment of 256. */
void place_call(struct placed *placed, const struct gpu_rank *rank, const struct call *call,
                size_t skew);
/* place_call with both buffers in one memory, for a call that can be in place. */
void place_call_in_place(struct placed *placed, const struct gpu_rank *rank,
                         const struct call *call, size_t skew);
tuttiResult_t issue_call(const struct placed *placed, tuttiStream_t stream);
/* Whether the output and the byte behind it are as they must be; gives the memory back. */
bool check_call(struct placed *placed);

/* The next number of a sequence (splitmix64). */
uint64_t next_number(uint64_t *state);
/* Any collective, exchange, type and operation. */
struct call draw_call(uint64_t *state, int nranks);
/* Runs ncalls calls, alike on every rank, drawn from the seed: every collective, type and
 * operation, with and without a stream. Returns how many failed or came out wrong; they are said on
 * stderr. */
int random_calls_on_gpu(const struct gpu_rank *rank, uint64_t seed, int ncalls);

#endif
