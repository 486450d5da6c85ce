/* Libraries: modules that belong to no context. A context gets its module when one of its kernels
 * or variables is first asked for. */
#include <stdlib.h>
#include <string.h>

#include "objects.h"

static CUresult make(struct vg_module *code, CUlibrary *library)
{
    struct CUlib_st *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->code = code;
    made->kernels = calloc(code->nfunctions + 1, sizeof *made->kernels);
    if (made->kernels == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t f = 0; f < code->nfunctions; f++) {
        if (!code->functions[f].kernel) continue;
        struct CUkern_st *kernel = &made->kernels[made->nkernels++];
        kernel->library = made;
        kernel->kernel = &code->functions[f];
        vd_object_add(kernel, VD_KERNEL);
    }
    vd_object_add(made, VD_LIBRARY);
    *library = made;
    return CUDA_SUCCESS;
}

/* The library's module in the context. */
static CUresult load(struct CUlib_st *library, struct CUctx_st *context, struct CUmod_st **module)
{
    for (uint32_t i = 0; i < library->nloaded; i++) {
        struct vd_loaded *loaded = &library->loaded[i];
        if (loaded->context != context || !vd_object_is(loaded->module, VD_MODULE) ||
            loaded->module->object.number != loaded->module_number)
            continue;
        *module = loaded->module;
        return CUDA_SUCCESS;
    }
    struct vd_loaded *more =
        realloc(library->loaded, (library->nloaded + 1) * sizeof *library->loaded);
    if (more == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    library->loaded = more;
    const CUresult result = vd_module_create(context, library->code, module);
    if (result != CUDA_SUCCESS) return result;
    library->loaded[library->nloaded++] = (struct vd_loaded){
        .context = context, .module = *module, .module_number = (*module)->object.number};
    return CUDA_SUCCESS;
}

static CUresult load_current(CUlibrary handle, struct CUmod_st **module)
{
    struct CUctx_st *context;
    if (!vd_object_is(handle, VD_LIBRARY)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = vd_context(&context);
    return result != CUDA_SUCCESS ? result : load(handle, context, module);
}

/* ---- libraries ---- */

static CUresult read_library(CUlibrary *library, const void *code, const struct vd_jit *jit)
{
    struct vg_module *module;
    if (library == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = vd_image_read(code, jit, &module);
    return result == CUDA_SUCCESS ? make(module, library) : result;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                           void **values, unsigned noptions, CUlibraryOption *library_options,
                           void **library_values, unsigned nlibrary_options)
{
    VD_ENTER();
    const struct vd_jit jit = {.noptions = noptions, .options = options, .values = values};
    (void)library_values;
    for (unsigned i = 0; i < nlibrary_options; i++)
        if (library_options == NULL || (unsigned)library_options[i] >= CU_LIBRARY_NUM_OPTIONS)
            return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(read_library(library, code, &jit));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
                               void **values, unsigned noptions, CUlibraryOption *library_options,
                               void **library_values, unsigned nlibrary_options)
{
    VD_ENTER();
    const struct vd_jit jit = {.noptions = noptions, .options = options, .values = values};
    char *bytes;
    (void)library_options;
    (void)library_values;
    (void)nlibrary_options;
    CUresult result = vd_file_read(path, &bytes);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    result = read_library(library, bytes, &jit);
    free(bytes);
    return vd_leave(result);
}

/* The object is the one that had this number, not another one made in its place. */
static bool is_same(const void *handle, enum vd_kind kind, uint64_t number)
{
    return vd_object_is(handle, kind) && ((const struct vd_object *)handle)->number == number;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    VD_ENTER();
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    const uint64_t number = library->object.number;
    for (uint32_t i = 0; i < library->nloaded; i++) {
        struct CUmod_st *module = library->loaded[i].module;
        const uint64_t module_number = library->loaded[i].module_number;
        if (!is_same(module, VD_MODULE, module_number)) continue;
        const CUresult result = vd_context_wait(module->context);
        /* Another thread may have unloaded the library, or ended the context, meanwhile. */
        if (!is_same(library, VD_LIBRARY, number)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
        if (result != CUDA_SUCCESS) return vd_leave(result);
        if (is_same(module, VD_MODULE, module_number)) vd_module_destroy(module);
    }
    for (uint32_t k = 0; k < library->nkernels; k++) vd_object_remove(&library->kernels[k]);
    vd_object_remove(library);
    free(library->loaded);
    free(library->kernels);
    free(library);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    VD_ENTER();
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (kernel == NULL || name == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t k = 0; k < library->nkernels; k++) {
        if (strcmp(library->kernels[k].kernel->name, name) != 0) continue;
        *kernel = &library->kernels[k];
        return vd_leave(CUDA_SUCCESS);
    }
    return vd_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    VD_ENTER();
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (count == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *count = library->nkernels;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned room, CUlibrary library)
{
    VD_ENTER();
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (kernels == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t k = 0; k < library->nkernels && k < room; k++) kernels[k] = &library->kernels[k];
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    VD_ENTER();
    struct CUmod_st *found;
    if (module == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result = load_current(library, &found);
    if (result == CUDA_SUCCESS) *module = found;
    return vd_leave(result);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *nbytes, CUlibrary library,
                            const char *name)
{
    VD_ENTER();
    struct CUmod_st *module;
    const CUresult result = load_current(library, &module);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    return vd_leave(vd_module_global(module, name, address, nbytes));
}

/* Managed variables are pinned, as all managed memory here, but module's variables are not: PTX
 * with such variables is rare. */
CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *nbytes, CUlibrary library,
                             const char *name)
{
    VD_ENTER();
    (void)address;
    (void)nbytes;
    (void)name;
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    return vd_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name)
{
    VD_ENTER();
    (void)function;
    (void)name;
    if (!vd_object_is(library, VD_LIBRARY)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    return vd_leave(CUDA_ERROR_NOT_FOUND);
}

/* ---- kernels ---- */

CUresult vd_kernel_function(struct CUkern_st *kernel, struct CUctx_st *context,
                            struct CUfunc_st **function)
{
    struct CUmod_st *module;
    const CUresult result = load(kernel->library, context, &module);
    if (result == CUDA_SUCCESS)
        *function = vd_function_asked(vd_module_function(module, kernel->kernel->name));
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    VD_ENTER();
    struct CUctx_st *context;
    if (!vd_object_is(kernel, VD_KERNEL)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (function == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result = vd_context(&context);
    return vd_leave(result != CUDA_SUCCESS ? result
                                           : vd_kernel_function(kernel, context, function));
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    VD_ENTER();
    if (!vd_object_is(kernel, VD_KERNEL)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (library == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *library = kernel->library;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    VD_ENTER();
    if (!vd_object_is(kernel, VD_KERNEL)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (name == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *name = kernel->kernel->name;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *nbytes)
{
    VD_ENTER();
    if (!vd_object_is(kernel, VD_KERNEL)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    return vd_leave(vd_param_info(kernel->kernel, index, offset, nbytes));
}

/* The kernel's function in the device's primary context or the current one: where attributes that
 * were set are kept. */
static CUresult function_on(CUkernel kernel, CUdevice number, struct CUfunc_st **function)
{
    const struct vd_device *device = vd_device_of(number);
    struct CUctx_st *context = vd_context_top();
    if (!vd_object_is(kernel, VD_KERNEL)) return CUDA_ERROR_INVALID_HANDLE;
    if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if (context == NULL || context->device != device) context = device->primary;
    if (context == NULL || context->destroyed) return CUDA_ERROR_INVALID_CONTEXT;
    return vd_kernel_function(kernel, context, function);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel,
                              CUdevice number)
{
    VD_ENTER();
    struct CUfunc_st *function = NULL;
    const CUresult result = function_on(kernel, number, &function);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CONTEXT) return vd_leave(result);
    if (value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_function_attribute(vd_device_of(number), kernel->library->code,
                                          kernel->kernel, function, which, value));
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel,
                              CUdevice number)
{
    VD_ENTER();
    struct CUfunc_st *function;
    const CUresult result = function_on(kernel, number, &function);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    return vd_leave(vd_function_set(vd_device_of(number), function, which, value));
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache cache, CUdevice number)
{
    VD_ENTER();
    (void)cache;
    if (!vd_object_is(kernel, VD_KERNEL)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    return vd_leave(vd_device_of(number) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}
