/* Modules: PTX loaded into a context. A module's PTX, as it was read, lives as long as the process,
 * for reports name its lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory_internal.h"
#include "objects.h"
#include "run.h"

static uint64_t place(void *arg, uint64_t nbytes, uint32_t align)
{
    (void)arg;
    return vd_address_take(nbytes, align);
}

static bool is_managed(const struct CUmod_st *module, uint32_t v)
{
    return module->module->variables[v].managed;
}

/* Pages of the host's at the addresses of a managed variable, or none. */
static bool map_pages(const struct vg_region *region, bool there)
{
    return mmap((void *)(uintptr_t)region->address, vd_round_up(region->nbytes, VD_PAGE),
                there ? PROT_READ | PROT_WRITE : PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Moves the variable to where the host and all devices can address it. */
static void manage(struct vg_region *region, const struct vd_device *own)
{
    if (!map_pages(region, true)) {
        vd_say("no memory for %s, which is managed: the host cannot address it", region->what);
        return;
    }
    unsigned char *bytes = (unsigned char *)(uintptr_t)region->address;
    memcpy(bytes, region->bytes, region->nbytes);
    free(region->bytes);
    region->bytes = bytes;
    region->reachable = true;
    for (int d = 0; d < vd.ndevices; d++)
        if (&vd.devices[d] != own && vg_regions_add(&vd.devices[d].regions, region) != 0)
            vd_say("no memory to show %s to GPU %d", region->what, d);
}

/* The image's variables lie on the context's device; each is counted as an allocation. */
static void own_variables(struct CUmod_st *module)
{
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        struct vg_region *region = module->image->variables[v];
        if (region == NULL) continue;
        region->device = module->context->device->gpu.number;
        region->number = ++vd.allocations;
        if (is_managed(module, v)) manage(region, module->context->device);
    }
}

/* The device can, or can no longer, address the module's variables. */
static void show_variables(const struct CUmod_st *module, int device, bool sees)
{
    struct vg_regions *regions = &vd.devices[device].regions;
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        struct vg_region *region = module->image->variables[v];
        if (region == NULL || region->reachable) continue;
        if (!sees)
            vg_regions_remove(regions, region);
        else if (vg_regions_add(regions, region) !=
                 0) /* a kernel that uses it fails, and says so */
            vd_say("no memory to show variables to GPU %d", device);
    }
}

void vd_modules_peer(int device, int other, bool sees)
{
    for (const struct CUctx_st *context = vd_contexts(); context != NULL; context = context->next)
        for (const struct CUmod_st *m = context->modules; m != NULL; m = m->next)
            if (context->device->gpu.number == other) show_variables(m, device, sees);
    vd_executor_changed();
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
    made->next = context->modules;
    context->modules = made;
    own_variables(made);
    for (int d = 0; d < vd.ndevices; d++)
        if (vd_peer_sees(d, context->device->gpu.number)) show_variables(made, d, true);
    make_functions(made);
    vd_object_add(made, VD_MODULE);
    *module = made;
    return CUDA_SUCCESS;
}

static struct CUmod_st *ended; /* modules that were unloaded: kept for reports */

/* The variables' bytes go; the structures stay, for races of the past name the kernels, and a
 * kernel of another context may still look at a variable. */
static void free_variables(struct CUmod_st *module)
{
    for (uint32_t v = 0; v < module->module->nvariables; v++) {
        struct vg_region *region = module->image->variables[v];
        if (region == NULL) continue;
        for (int d = 0; d < vd.ndevices; d++) vg_regions_remove(&vd.devices[d].regions, region);
        vg_model_forget(vg_machine_model(vd.machine), region); /* its stores that wait go through */
        if (region->reachable)
            (void)map_pages(region, false);
        else
            free(region->bytes);
        vd_address_give(region->address, region->nbytes);
        region->bytes = NULL;
        region->freed = true;
    }
}

/* Of an unloaded module none of whose launches is left: only kernels read the constants, which are
 * most of the memory of a module. */
static void free_constants(const struct CUmod_st *module)
{
    free(module->image->constants);
    module->image->constants = NULL;
}

void vd_module_destroy(struct CUmod_st *module)
{
    struct CUmod_st **at = &module->context->modules;
    while (*at != NULL && *at != module) at = &(*at)->next;
    if (*at != NULL) *at = module->next;
    for (uint32_t f = 0; f < module->nfunctions; f++) {
        vd_item_put(module->functions[f].after);
        module->functions[f].after = NULL;
        vd_object_remove(&module->functions[f]);
    }
    vd_item_put(module->first);
    module->first = NULL;
    vd_object_remove(module);
    free_variables(module);
    module->unloaded = true;
    if (module->nlaunches == 0) free_constants(module);
    module->next = ended;
    ended = module;
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
    if (result != CUDA_SUCCESS) return result;
    result = vd_context_wait(context);
    return result == CUDA_SUCCESS ? vd_module_create(context, code, module) : result;
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

/* ---- lazy loading ---- */

static bool is_lazy(void)
{
    const char *text = getenv("CUDA_MODULE_LOADING");
    return text == NULL || strcmp(text, "EAGER") != 0;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    VD_ENTER();
    if (mode == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *mode = is_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return vd_leave(CUDA_SUCCESS);
}

/* As seen on an H100: a function that is first asked for while the first kernel of another module
 * runs is loaded, and its launch begins, when that kernel has ended. */
struct CUfunc_st *vd_function_asked(struct CUfunc_st *function)
{
    const struct CUmod_st *module = function->module->context->modules;
    const bool first = !function->asked;
    function->asked = true;
    for (; first && is_lazy() && module != NULL; module = module->next) {
        if (module == function->module || module->first == NULL || module->first->state == VD_ENDED)
            continue;
        fprintf(stderr,
                "vgpu: WARN: kernel %s was first asked for while %s, the first kernel of another "
                "module, runs: as on a GPU it is launched when that one has ended. Ask for all "
                "functions before the first launch, or set CUDA_MODULE_LOADING=EAGER\n",
                function->kernel->name, module->first->op.launch.function->kernel->name);
        function->after = vd_item_get(module->first);
        break;
    }
    return function;
}

void vd_function_submit(struct vd_item *launch)
{
    struct CUfunc_st *function = launch->op.launch.function;
    struct CUmod_st *module = function->module;
    if (function->after != NULL && vd_item_after(launch, function->after) == 0 &&
        function->after->state == VD_ENDED) {
        vd_item_put(function->after);
        function->after = NULL;
    }
    if (!module->launched) module->first = vd_item_get(launch);
    module->launched = true;
    if (module->first != NULL && module->first->state == VD_ENDED) {
        vd_item_put(module->first);
        module->first = NULL;
    }
    module->nlaunches++;
}

void vd_function_ended(const struct vd_item *launch)
{
    struct CUmod_st *module = launch->op.launch.function->module;
    if (--module->nlaunches == 0 && module->unloaded) free_constants(module);
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
    *function = vd_function_asked(found);
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
        functions[f] = vd_function_asked(&module->functions[f]);
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
