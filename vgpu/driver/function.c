/* What a kernel is and needs: attributes of functions and their parameters. */
#include <limits.h>

#include "objects.h"

enum { FEWEST_REGISTERS = 16, MOST_REGISTERS = 255, MAX_THREADS = 1024 };

/* A unit of the frame is a register of 4 bytes in each lane; the reader shares units as a compiler
 * shares registers. */
static int registers_of(const struct vg_function *kernel)
{
    if (kernel->nunits < FEWEST_REGISTERS) return FEWEST_REGISTERS;
    return kernel->nunits < MOST_REGISTERS ? (int)kernel->nunits : MOST_REGISTERS;
}

static int constant_bytes(const struct vg_module *code)
{
    uint64_t sum = 0;
    for (uint32_t v = 0; v < code->nvariables; v++)
        if (code->variables[v].space == VG_CONST) sum += code->variables[v].size;
    return sum < INT_MAX ? (int)sum : INT_MAX;
}

CUresult vd_function_attribute(const struct vd_device *device, const struct vg_module *code,
                               const struct vg_function *kernel, const struct CUfunc_st *function,
                               CUfunction_attribute which, int *value)
{
    const int fixed = (int)kernel->shared_bytes;
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = kernel->max_threads != 0 && kernel->max_threads < MAX_THREADS
                     ? (int)kernel->max_threads
                     : MAX_THREADS;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = fixed;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = constant_bytes(code);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = registers_of(kernel);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)code->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)device->gpu.capability;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function != NULL ? function->max_dynamic_shared : VD_SHARED - fixed;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function != NULL ? function->carveout : -1;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult vd_function_set(const struct vd_device *device, struct CUfunc_st *function,
                         CUfunction_attribute which, int value)
{
    const int most = (int)device->gpu.shared_per_block - (int)function->kernel->shared_bytes;
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
        function->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    }
    if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
        function->carveout = value;
        return CUDA_SUCCESS;
    }
    if (which == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
        return vd_unsupported("cuFuncSetAttribute", "a cluster");
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_param_info(const struct vg_function *kernel, size_t index, size_t *offset,
                       size_t *nbytes)
{
    if (offset == NULL || index >= kernel->nparams) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel->params[index].offset;
    if (nbytes != NULL) *nbytes = kernel->params[index].size;
    return CUDA_SUCCESS;
}

struct CUfunc_st *vd_function(CUfunction handle, struct CUctx_st *context, CUresult *result)
{
    struct CUfunc_st *function = NULL;
    *result = CUDA_ERROR_INVALID_HANDLE;
    if (vd_object_is(handle, VD_FUNCTION)) {
        function = handle;
        *result = CUDA_SUCCESS;
    } else if (vd_object_is(handle, VD_KERNEL)) {
        *result = vd_kernel_function((struct CUkern_st *)handle, context, &function);
    }
    return *result == CUDA_SUCCESS ? function : NULL;
}

/* The function of a handle in its own context, or a kernel's in the current one. */
static CUresult find(CUfunction handle, struct CUfunc_st **function)
{
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) *function = vd_function(handle, context, &result);
    return result;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction handle)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_function_attribute(function->module->context->device,
                                          function->module->module, function->kernel, function,
                                          which, value));
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    return vd_leave(vd_function_set(function->module->context->device, function, which, value));
}

/* Preferences change nothing here. */
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache cache)
{
    VD_ENTER();
    struct CUfunc_st *function;
    (void)cache;
    return vd_leave(find(handle, &function));
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
    VD_ENTER();
    struct CUfunc_st *function;
    (void)config;
    return vd_leave(find(handle, &function));
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (module == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (name == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *name = function->kernel->name;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *nbytes)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    return vd_leave(vd_param_info(function->kernel, index, offset, nbytes));
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = find(handle, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (state == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction handle)
{
    VD_ENTER();
    struct CUfunc_st *function;
    return vd_leave(find(handle, &function));
}
