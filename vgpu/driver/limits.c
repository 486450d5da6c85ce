/* What a context can be asked and told: flags, limits, preferences, priorities of streams. Limits
 * but that of the stack, and preferences, are only given back. */
#include "objects.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5, API_VERSION = 3020 };

CUresult cuCtxGetFlags(unsigned *flags)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (flags == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetFlags(unsigned flags)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    context->flags = flags;
    return vd_leave(CUDA_SUCCESS);
}

/* Dynamic parallelism does not exist from compute capability 9.0 on as it was; CIG is for graphics.
 */
static bool has_limit(CUlimit limit)
{
    return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
           limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
           limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT ||
           limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY || limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (value == NULL || (unsigned)limit >= CU_LIMIT_MAX) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!has_limit(limit)) return vd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return vd_leave(CUDA_SUCCESS);
}

/* What a client of MPS may use of its GPU. */
CUresult cuCtxGetExecAffinity(CUexecAffinityParam *value, CUexecAffinityType type)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return vd_leave(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    *value = (CUexecAffinityParam){.type = type, .param.smCount.val = context->device->gpu.nsms};
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    enum { MOST_STACK = 512 << 10 };
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if ((unsigned)limit >= CU_LIMIT_MAX || (limit == CU_LIMIT_STACK_SIZE && value > MOST_STACK))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!has_limit(limit)) return vd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = limit == CU_LIMIT_STACK_SIZE ? (value + 15) / 16 * 16 : value;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *cache)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (cache == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *cache = (CUfunc_cache)context->cache;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache cache)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) context->cache = (int)cache;
    return vd_leave(result);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (config == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *config = (CUsharedconfig)context->shared_config;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) context->shared_config = (int)config;
    return vd_leave(result);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (least != NULL) *least = LEAST_PRIORITY;
    if (greatest != NULL) *greatest = GREATEST_PRIORITY;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context_of(handle, &context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (version == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *version = API_VERSION;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    VD_ENTER();
    struct CUctx_st *context;
    const CUresult result = vd_context_of(handle, &context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (id == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *id = context->id;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    VD_ENTER();
    struct CUctx_st *context;
    return vd_leave(vd_context(&context));
}
