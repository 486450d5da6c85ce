/* Modules of PTX text. (Minimal: its owner replaces it.) */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t place(void *arg, uint64_t nbytes, uint32_t align)
{
    (void)arg;
    return vd_address_take(nbytes, align);
}

static CUresult load(CUmodule *module, const char *text)
{
    char error[512] = "";
    struct CUctx_st *context;
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct CUmod_st *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    if (vg_ptx_read(text, strlen(text), &made->module, error) != 0 ||
        vg_image_create(made->module, place, NULL, &context->device->regions, &made->image,
                        error) != 0) {
        fprintf(stderr, "vgpu: %s\n", error);
        return CUDA_ERROR_INVALID_PTX;
    }
    made->functions = calloc(made->module->nfunctions + 1, sizeof *made->functions);
    for (uint32_t i = 0; i < made->module->nfunctions; i++) {
        if (!made->module->functions[i].kernel) continue;
        struct CUfunc_st *function = &made->functions[made->nfunctions++];
        function->module = made;
        function->kernel = &made->module->functions[i];
        vd_object_add(function, VD_FUNCTION);
    }
    vd_object_add(made, VD_MODULE);
    *module = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    VD_ENTER();
    return vd_leave(load(module, image));
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    VD_ENTER();
    for (uint32_t i = 0; i < module->nfunctions; i++) {
        if (strcmp(module->functions[i].kernel->name, name) != 0) continue;
        *function = &module->functions[i];
        return vd_leave(CUDA_SUCCESS);
    }
    return vd_leave(CUDA_ERROR_NOT_FOUND);
}

struct CUfunc_st *vd_function(CUfunction handle, struct CUctx_st *context, CUresult *result)
{
    *result = CUDA_ERROR_INVALID_HANDLE;
    return vd_object_is(handle, VD_FUNCTION) && handle->module->context == context ? handle : NULL;
}
