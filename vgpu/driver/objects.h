/* What the files about devices, contexts, modules and libraries share. */
#ifndef VGPU_DRIVER_OBJECTS_H
#define VGPU_DRIVER_OBJECTS_H

#include "driver.h"

/* ---- device.c ---- */

enum { VD_PCI_DOMAIN = 0x7f00 }; /* no real device is in it */
enum { VD_SHARED = 48 << 10 };   /* of a block, before cuFuncSetAttribute */

/* NULL: no device has the number. */
struct vd_device *vd_device_of(CUdevice number);
/* A value that depends on the device's settings, or the H100's; false: no such attribute. */
bool vd_device_attribute(const struct vd_device *device, CUdevice_attribute which, int *value);

/* ---- context.c ---- */

/* All there were. */
struct CUctx_st *vd_contexts(void);
/* The current context, whatever state it is in; NULL: none. */
struct CUctx_st *vd_context_top(void);
/* The context of a handle that may be NULL for the current one. */
CUresult vd_context_of(CUcontext handle, struct CUctx_st **context);

/* ---- load.c: the bytes of a module ---- */

/* The options of a call that loads PTX. */
struct vd_jit {
    unsigned noptions;
    CUjit_option *options;
    void **values;
};

/* Finds the PTX in text, a fat binary, or the wrapper of one that nvcc puts into programs, and
 * reads it. What went wrong is also written into the log buffers that the options name. The module
 * lives as long as the process: all images of the same text share it. */
CUresult vd_image_read(const void *image, const struct vd_jit *jit, struct vg_module **module);
/* The bytes of a file with a zero behind them; free() frees them. */
CUresult vd_file_read(const char *path, char **bytes);

/* ---- module.c ---- */

/* Loads the module into the context: variables get memory, functions handles. The module belongs to
 * nobody: it lives as long as the process. */
CUresult vd_module_create(struct CUctx_st *context, struct vg_module *code,
                          struct CUmod_st **module);
/* Takes it from its context and frees its variables; no launch of it is unfinished. */
void vd_module_destroy(struct CUmod_st *module);
/* A handle of the function is given to the program: what lazy loading makes of that. */
struct CUfunc_st *vd_function_asked(struct CUfunc_st *function);
CUresult vd_module_global(const struct CUmod_st *module, const char *name, CUdeviceptr *address,
                          size_t *nbytes);
/* The kernel of this name, or NULL. */
struct CUfunc_st *vd_module_function(const struct CUmod_st *module, const char *name);

/* ---- library.c ---- */

struct CUlib_st {
    struct vd_object object;
    struct vg_module *code;
    struct CUkern_st *kernels;
    uint32_t nkernels;
    struct vd_loaded { /* the modules that contexts have of it */
        struct CUctx_st *context;
        uint64_t module_number; /* object.number: tells a module that was freed with its context */
        struct CUmod_st *module;
    } * loaded;
    uint32_t nloaded;
};

struct CUkern_st {
    struct vd_object object;
    struct CUlib_st *library;
    const struct vg_function *kernel;
};

/* The kernel in the context, loaded if need be. */
CUresult vd_kernel_function(struct CUkern_st *kernel, struct CUctx_st *context,
                            struct CUfunc_st **function);

/* ---- function.c ---- */

CUresult vd_function_attribute(const struct vd_device *device, const struct vg_module *code,
                               const struct vg_function *kernel, const struct CUfunc_st *function,
                               CUfunction_attribute which, int *value);
CUresult vd_function_set(const struct vd_device *device, struct CUfunc_st *function,
                         CUfunction_attribute which, int value);
CUresult vd_param_info(const struct vg_function *kernel, size_t index, size_t *offset,
                       size_t *nbytes);

#endif
