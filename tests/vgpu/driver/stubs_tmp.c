/* Temporary. */
#include "objects.h"
__attribute__((weak)) void vd_context_memory_free(struct CUctx_st *context) { (void)context; }
__attribute__((weak)) CUresult vd_launch_make(struct vd_op *op, struct CUctx_st *context, CUfunction function, const struct vd_shape *shape, void **params, void **extra)
{
    (void)op; (void)context; (void)function; (void)shape; (void)params; (void)extra;
    return CUDA_ERROR_NOT_SUPPORTED;
}
