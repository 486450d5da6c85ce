/* Runs each case of fold_test by one block: as a pass, and as lines of 8 bytes. */
#include "device/kernel/pass.cuh"
#include "fold_test.h"

/* All threads. */
static __device__ void open_case(const struct fold_case *at, struct tt_fold *fold,
                                 struct tt_pass *pass)
{
    if (threadIdx.x == 0) {
        *fold = at->fold;
        if (at->scalar) fold->scalar = tt_fold_load_scalar((const void *)at->scalar, fold->element);
        for (int i = 0; i < FOLD_SOURCES; i++) pass->sources[i] = (const char *)at->sources[i];
        for (int i = 0; i < FOLD_TARGETS; i++) pass->targets[i] = (char *)at->targets[i];
        pass->nsources = at->nsources;
        pass->ntargets = at->ntargets;
        for (int i = 0; i < FOLD_SOURCES; i++) pass->raw[i] = at->raw >> i & 1;
        pass->changes = {at->raw != 0, at->finish != 0};
        pass->count = at->count;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(512) run_passes(struct fold_params params)
{
    __shared__ struct tt_fold fold;
    __shared__ struct tt_pass pass;
    open_case(&params.cases[blockIdx.x], &fold, &pass);
    tt_fold_pass(&fold, &pass);
}

/* Addresses and lengths are multiples of 8 bytes; one source is raw, or none. */
extern "C" __global__ void __launch_bounds__(512) run_lines(struct fold_params params)
{
    __shared__ struct tt_fold fold;
    __shared__ struct tt_pass pass;
    open_case(&params.cases[blockIdx.x], &fold, &pass);
    int32_t raw = -1;
    for (int i = 0; i < FOLD_SOURCES; i++)
        if (pass.raw[i]) raw = i;
    for (size_t i = threadIdx.x; i < pass.count * fold.element / 8; i += blockDim.x) {
        uint64_t words[FOLD_SOURCES];
        for (uint32_t s = 0; s < pass.nsources; s++)
            words[s] = ((const uint64_t *)pass.sources[s])[i];
        ((uint64_t *)pass.targets[0])[i] =
            tt_fold_line(&fold, words, pass.nsources, raw, pass.changes.finish);
    }
}
