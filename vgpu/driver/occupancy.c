/* Occupancy: how many blocks of a kernel an SM holds at the same time. */
#include "objects.h"

enum { MAX_THREADS = 1024 };

/* The function of a handle and the GPU that it runs on. */
static CUresult find(CUfunction handle, struct CUfunc_st **function, const struct vg_gpu **gpu)
{
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) *function = vd_function(handle, context, &result);
    if (result == CUDA_SUCCESS) *gpu = &(*function)->module->context->device->gpu;
    return result;
}

static int most_threads(const struct vg_function *kernel)
{
    return kernel->max_threads != 0 && kernel->max_threads < MAX_THREADS ? (int)kernel->max_threads
                                                                         : MAX_THREADS;
}

/* 0: a block of this shape cannot be launched. */
static uint32_t blocks_of(const struct vg_gpu *gpu, const struct CUfunc_st *function, int nthreads,
                          size_t dynamic)
{
    if (nthreads > most_threads(function->kernel)) return 0;
    if (function->kernel->shared_bytes + dynamic > gpu->shared_per_block) return 0;
    return vg_occupancy(gpu, function->kernel, (uint32_t)nthreads, (uint32_t)dynamic);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *nblocks, CUfunction handle,
                                                              int nthreads, size_t dynamic,
                                                              unsigned flags)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const struct vg_gpu *gpu;
    const CUresult result = find(handle, &function, &gpu);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (nblocks == NULL || nthreads <= 0 ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *nblocks = (int)blocks_of(gpu, function, nthreads, dynamic);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *nblocks, CUfunction handle, int nthreads,
                                                     size_t dynamic)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nblocks, handle, nthreads, dynamic,
                                                                0);
}

/* The largest block, in steps of a warp, with which an SM holds the most threads. dynamic_of is the
 * program's: it is called without the lock. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *ngrid, int *nblock, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_of, size_t dynamic,
                                                   int limit, unsigned flags)
{
    const struct vg_gpu *gpu;
    struct CUfunc_st *function;
    VD_ENTER();
    const CUresult result = find(handle, &function, &gpu);
    vd_leave(result);
    if (result != CUDA_SUCCESS) return result;
    if (ngrid == NULL || nblock == NULL ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    int most = most_threads(function->kernel);
    if (limit > 0 && limit < most) most = limit;
    uint32_t best = 0;
    for (int n = (most + VG_LANES - 1) / VG_LANES * VG_LANES; n > 0; n -= VG_LANES) {
        const int nthreads = n < most ? n : most;
        const size_t bytes = dynamic_of != NULL ? dynamic_of(nthreads) : dynamic;
        const uint32_t blocks = blocks_of(gpu, function, nthreads, bytes);
        if (blocks * (uint32_t)nthreads <= best) continue;
        best = blocks * (uint32_t)nthreads;
        *nblock = nthreads;
        *ngrid = (int)(blocks * gpu->nsms);
    }
    return best != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *ngrid, int *nblock, CUfunction handle,
                                          CUoccupancyB2DSize dynamic_of, size_t dynamic, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(ngrid, nblock, handle, dynamic_of, dynamic,
                                                     limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic, CUfunction handle, int nblocks,
                                                 int nthreads)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const struct vg_gpu *gpu;
    const CUresult result = find(handle, &function, &gpu);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (dynamic == NULL || nblocks <= 0 || nthreads <= 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const uint32_t kept = gpu->capability >= 80 ? 1024 : 0, fixed = function->kernel->shared_bytes;
    uint32_t share = gpu->shared_per_sm / (uint32_t)nblocks;
    share = share > kept ? share - kept : 0;
    if (share > gpu->shared_per_block) share = gpu->shared_per_block;
    share = share > fixed ? (share - fixed) / 16 * 16 : 0;
    if (blocks_of(gpu, function, nthreads, share) < (uint32_t)nblocks)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *dynamic = share;
    return vd_leave(CUDA_SUCCESS);
}
