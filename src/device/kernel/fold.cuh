/* Folds of a pass: fp32 sums and copies, until all types are there. */
#ifndef TT_DEVICE_KERNEL_FOLD_CUH
#define TT_DEVICE_KERNEL_FOLD_CUH

#include "datatype/datatype.h"
#include "device/call.h"

/* What a call's folds have in common. */
struct tt_fold {
    uint32_t type, op;
    uint32_t element; /* bytes */
    uint32_t nranks;
    uint64_t scalar;
};

/* One piece of a step. In shared memory. */
struct tt_pass {
    const char *sources[TT_DEVICE_MOST_PEERS + 1];
    char *targets[TT_DEVICE_MOST_PEERS + 1];
    uint32_t nsources, ntargets;
    int32_t scaled;  /* which source is multiplied by the scalar first; -1: none */
    uint32_t finish; /* the result is complete */
    size_t count;    /* elements */
};

/* All threads of the block. */
static __device__ void tt_fold_pass(const struct tt_fold *fold, const struct tt_pass *pass)
{
    if (pass->nsources == 1) {
        const size_t nbytes = pass->count * fold->element;
        for (size_t i = threadIdx.x; i < nbytes; i += blockDim.x)
            for (uint32_t t = 0; t < pass->ntargets; t++)
                pass->targets[t][i] = pass->sources[0][i];
        return;
    }
    for (size_t i = threadIdx.x; i < pass->count; i += blockDim.x) {
        float sum = ((const float *)pass->sources[0])[i];
        for (uint32_t s = 1; s < pass->nsources; s++) sum += ((const float *)pass->sources[s])[i];
        for (uint32_t t = 0; t < pass->ntargets; t++) ((float *)pass->targets[t])[i] = sum;
    }
}

/* The sum of the 8 bytes of elements that a line carries. */
struct tt_line_sum {
    uint64_t word;
};

static __device__ void tt_line_begin(const struct tt_fold *fold, struct tt_line_sum *sum,
                                     uint64_t word, bool scaled)
{
    (void)fold, (void)scaled;
    sum->word = word;
}

static __device__ void tt_line_add(const struct tt_fold *fold, struct tt_line_sum *sum,
                                   uint64_t word, bool scaled)
{
    (void)fold, (void)scaled;
    const float low = __uint_as_float((uint32_t)sum->word) + __uint_as_float((uint32_t)word);
    const float high =
        __uint_as_float((uint32_t)(sum->word >> 32)) + __uint_as_float((uint32_t)(word >> 32));
    sum->word = (uint64_t)__float_as_uint(high) << 32 | __float_as_uint(low);
}

static __device__ uint64_t tt_line_end(const struct tt_fold *fold, const struct tt_line_sum *sum,
                                       bool finish)
{
    (void)fold, (void)finish;
    return sum->word;
}

#endif
