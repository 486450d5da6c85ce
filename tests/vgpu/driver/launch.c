/* Kernels: launches with all forms of arguments, and their run on the machine. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

VD_PER_THREAD(cuLaunchKernel_ptsz, cuLaunchKernel);

static struct vg_launch launch_of(const struct vd_launch *l, const struct CUctx_st *context)
{
    return (struct vg_launch){.gpu = &context->device->gpu,
                              .image = l->function->module->image,
                              .kernel = l->function->kernel,
                              .grid = {l->grid[0], l->grid[1], l->grid[2]},
                              .block = {l->block[0], l->block[1], l->block[2]},
                              .dynamic_shared = l->dynamic_shared,
                              .params = l->params,
                              .cooperative = l->cooperative};
}

static CUresult begin(struct vd_item *item, char error[512])
{
    struct vg_launch launch = launch_of(&item->op.launch, item->context);
    launch.number = item->number;
    launch.before = item->past;
    return vg_run_begin(vd.machine, &launch, &item->run, error) == 0 ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_LAUNCH_FAILED;
}

static CUresult result_of(enum vg_fault fault)
{
    switch (fault) {
    case VG_FAULT_ADDRESS:
    case VG_FAULT_UNDEFINED:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case VG_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case VG_FAULT_INSTRUCTION:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case VG_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case VG_FAULT_DEADLOCK:
    case VG_FAULT_BARRIER:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case VG_FAULT_RESOURCES:
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    default:
        return CUDA_ERROR_LAUNCH_FAILED;
    }
}

static enum vg_progress step(struct vd_item *item, CUresult *fault, const char **text)
{
    const enum vg_progress progress = vg_run_step(item->run);
    if (progress == VG_FAULTED) *fault = result_of(vg_run_fault(item->run, text));
    item->outside = progress == VG_WAITING && vg_run_waits_for_host(item->run);
    return progress;
}

static void end(struct vd_item *item)
{
    vg_run_end(item->run, item->past);
    item->run = NULL;
}

const struct vd_runner vd_launch_runner = {begin, step, end};

void vd_launch_describe(const struct vd_item *item, char *text, size_t nbytes)
{
    if (item->run != NULL)
        vg_run_describe(item->run, text, nbytes);
    else
        snprintf(text, nbytes, "kernel %s has not begun\n", item->op.launch.function->kernel->name);
}

static CUresult pack(const struct vg_function *kernel, void **params, void **extra, void **packed)
{
    unsigned char *bytes = calloc(1, kernel->param_bytes + 1u);
    if (bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    (void)extra;
    for (uint32_t i = 0; params != NULL && i < kernel->nparams; i++)
        memcpy(bytes + kernel->params[i].offset, params[i], kernel->params[i].size);
    *packed = bytes;
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const uint32_t grid[3], const uint32_t block[3],
                       unsigned dynamic_shared, CUstream handle, bool per_thread, void **params,
                       void **extra)
{
    struct CUstream_st *stream;
    struct vd_op op = {.what = VD_LAUNCH};
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!vd_object_is(function, VD_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
    op.launch.function = function;
    op.launch.dynamic_shared = dynamic_shared;
    memcpy(op.launch.grid, grid, sizeof op.launch.grid);
    memcpy(op.launch.block, block, sizeof op.launch.block);
    result = pack(function->kernel, params, extra, &op.launch.params);
    if (result != CUDA_SUCCESS) return result;
    return vd_stream_enqueue(stream, &op, NULL);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned dynamic_shared, CUstream stream, void **params, void **extra)
{
    VD_ENTER();
    return vd_leave(launch(function, (uint32_t[]){grid_x, grid_y, grid_z},
                           (uint32_t[]){block_x, block_y, block_z}, dynamic_shared, stream, false,
                           params, extra));
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned dynamic_shared, CUstream stream, void **params, void **extra)
{
    VD_ENTER();
    return vd_leave(launch(function, (uint32_t[]){grid_x, grid_y, grid_z},
                           (uint32_t[]){block_x, block_y, block_z}, dynamic_shared, stream, true,
                           params, extra));
}
