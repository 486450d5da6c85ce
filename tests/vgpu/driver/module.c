/* Modules: PTX loaded into a context. A module's PTX, as it was read, lives as long as the process,
 * for reports name its lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

static uint64_t place(void *arg, uint64_t nbytes, uint32_t align)
{
    (void)arg;
    return vd_address_take(nbytes, align);
}

/* The image's variables lie on the context's device; each is counted as an allocation. */
static void own_variables(struct CUmod_st *module)
{
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        struct vg_region *region = module->image->variables[v];
        if (region == NULL) continue;
        region->device = module->context->device->gpu.number;
        region->number = ++vd.allocations;
    }
}

static void make_functions(struct CUmod_st *module)
{
    for (uint32_t f = 0; f < module->module->nfunctions; f++) {
        if (!module->module->functions[f].kernel) continue;
        struct CUfunc_st *function = &module->functions[module->nfunctions++];
        const int fixed = (int)module->module->functions[f].shared_bytes;
        function->module = module;
        function->kernel = &module->module->functions[f];
        function->max_dynamic_shared = fixed < VD_SHARED ? VD_SHARED - fixed : 0;
        function->carveout = -1;
        vd_object_add(function, VD_FUNCTION);
    }
}

CUresult vd_module_create(struct CUctx_st *context, struct vg_module *code,
                          struct CUmod_st **module)
{
    char error[256];
    struct CUmod_st *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->functions = calloc(code->nfunctions + 1, sizeof *made->functions);
    if (made->functions == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (vg_image_create(code, place, NULL, &context->device->regions, &made->image, error) != 0) {
        fprintf(stderr, "vgpu: ERROR: a module was not loaded: %s\n", error);
        free(made->functions);
        free(made);
        return CUDA_ERROR_INVALID_PTX;
    }
    made->context = context;
    made->module = code;
    made->refs = 1;
    made->next = context->modules;
    context->modules = made;
    own_variables(made);
    make_functions(made);
    vd_object_add(made, VD_MODULE);
    *module = made;
    return CUDA_SUCCESS;
}

static struct CUmod_st *unloaded; /* modules that nobody uses: kept, and no leak */

/* The image's regions go; the structure stays, for races of the past name its kernels. */
void vd_module_put(struct CUmod_st *module)
{
    if (--module->refs != 0) return;
    module->next = unloaded;
    unloaded = module;
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        struct vg_region *region = module->image->variables[v];
        if (region == NULL) continue;
        vd_address_give(region->address, region->nbytes);
        vg_regions_remove(&module->context->device->regions, region);
        vg_model_forget(vg_machine_model(vd.machine), region);
        free(region->bytes);
        free(region);
        module->image->variables[v] = NULL;
    }
}

void vd_module_destroy(struct CUmod_st *module)
{
    for (struct CUmod_st **at = &module->context->modules; *at != NULL; at = &(*at)->next)
        if (*at == module) {
            *at = module->next;
            break;
        }
    for (uint32_t f = 0; f < module->nfunctions; f++) vd_object_remove(&module->functions[f]);
    vd_object_remove(module);
    vd_module_put(module);
}

static const struct vd_jit no_options;

/* As on an H100 loading waits for the kernels that run. */
static CUresult load(CUmodule *module, const void *image, const struct vd_jit *jit)
{
    struct CUctx_st *context;
    struct vg_module *code;
    CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = vd_image_read(image, jit, &code);
    if (result == CUDA_SUCCESS) result = vd_context_wait(context);
    return result != CUDA_SUCCESS ? result : vd_module_create(context, code, module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    VD_ENTER();
    return vd_leave(load(module, image, &no_options));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned noptions,
                            CUjit_option *options, void **values)
{
    VD_ENTER();
    const struct vd_jit jit = {.noptions = noptions, .options = options, .values = values};
    return vd_leave(load(module, image, &jit));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    VD_ENTER();
    return vd_leave(load(module, image, &no_options));
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    char *bytes;
    VD_ENTER();
    CUresult result = vd_file_read(path, &bytes);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    result = load(module, bytes, &no_options);
    free(bytes);
    return vd_leave(result);
}

CUresult cuModuleUnload(CUmodule module)
{
    VD_ENTER();
    if (!vd_object_is(module, VD_MODULE)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    struct CUctx_st *context;
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS) result = vd_context_wait(module->context);
    /* another thread may have unloaded it meanwhile */
    if (result == CUDA_SUCCESS && !vd_object_is(module, VD_MODULE))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) vd_module_destroy(module);
    return vd_leave(result);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    VD_ENTER();
    const char *text = getenv("CUDA_MODULE_LOADING");
    if (mode == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *mode =
        text != NULL && !strcmp(text, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return vd_leave(CUDA_SUCCESS);
}

struct CUfunc_st *vd_module_function(const struct CUmod_st *module, const char *name)
{
    for (uint32_t f = 0; f < module->nfunctions; f++)
        if (!strcmp(module->functions[f].kernel->name, name)) return &module->functions[f];
    return NULL;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    VD_ENTER();
    if (function == NULL || name == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vd_object_is(module, VD_MODULE)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *found = vd_module_function(module, name);
    if (found == NULL) return vd_leave(CUDA_ERROR_NOT_FOUND);
    *function = found;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module)
{
    VD_ENTER();
    if (!vd_object_is(module, VD_MODULE)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (count == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *count = module->nfunctions;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned room, CUmodule module)
{
    VD_ENTER();
    if (!vd_object_is(module, VD_MODULE)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (functions == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t f = 0; f < module->nfunctions && f < room; f++)
        functions[f] = &module->functions[f];
    return vd_leave(CUDA_SUCCESS);
}

CUresult vd_module_global(const struct CUmod_st *module, const char *name, CUdeviceptr *address,
                          size_t *nbytes)
{
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        const struct vg_variable *variable = &module->module->variables[v];
        const struct vg_region *region = module->image->variables[v];
        if (region == NULL || strcmp(variable->name, name) != 0) continue;
        if (address != NULL) *address = region->address;
        if (nbytes != NULL) *nbytes = variable->size;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *nbytes, CUmodule module,
                              const char *name)
{
    VD_ENTER();
    if (!vd_object_is(module, VD_MODULE)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    return vd_leave(vd_module_global(module, name, address, nbytes));
}
