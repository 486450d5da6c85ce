/* Kernels: launches with all forms of arguments, and their run on the machine. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"

VD_PER_THREAD(cuLaunchKernel_ptsz, cuLaunchKernel);
VD_PER_THREAD(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel);

enum { MOST_RUNNING = 128, TEXT = 512 }; /* measured on an H100 */

static struct vg_launch launch_of(const struct vd_launch *l, const struct CUctx_st *context)
{
    return (struct vg_launch){.gpu = &context->device->gpu,
                              .image = l->function->module->image,
                              .kernel = l->function->kernel,
                              .grid = {l->grid[0], l->grid[1], l->grid[2]},
                              .block = {l->block[0], l->block[1], l->block[2]},
                              .dynamic_shared = l->dynamic_shared,
                              .params = l->params,
                              .cooperative = l->cooperative,
                              .local_limit = (uint32_t)context->limits[CU_LIMIT_STACK_SIZE]};
}

/* A kernel that returns at once need not run: grids of 2^31 blocks of one are launched. */
static bool empty(const struct vg_function *kernel)
{
    const struct vg_instr *first = kernel->code;
    return kernel->ninstrs > 0 && first->guard == VG_NONE &&
           (first->op == VG_RET || first->op == VG_EXIT);
}

static CUresult begin(struct vd_item *item, char error[512])
{
    (void)item;
    (void)error;
    return CUDA_SUCCESS;
}

/* Puts the kernel on its GPU once it is one of the first of those that may run there together. */
static enum vg_progress start(struct vd_item *item, CUresult *fault, const char **text)
{
    static char error[TEXT];
    if (empty(item->op.launch.function->kernel)) {
        vd_counts_kernel();
        return VG_DONE;
    }
    if (vd_executor_launches_before(item) >= MOST_RUNNING) return VG_WAITING;
    struct vg_launch launch = launch_of(&item->op.launch, item->context);
    launch.number = item->number;
    launch.before = item->past;
    if (vg_run_begin(vd.machine, &launch, &item->run, error) != 0) {
        item->run = NULL;
        *fault = CUDA_ERROR_LAUNCH_FAILED;
        *text = error;
        return VG_FAULTED;
    }
    vd_counts_kernel();
    return VG_MOVED;
}

static CUresult result_of(enum vg_fault fault)
{
    switch (fault) {
    case VG_FAULT_ADDRESS:
    case VG_FAULT_UNDEFINED:
    case VG_FAULT_STACK:
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
    if (item->run == NULL) return start(item, fault, text);
    const uint64_t moves = vg_run_moves(item->run);
    const enum vg_progress progress = vg_run_step(item->run);
    if (progress == VG_FAULTED) *fault = result_of(vg_run_fault(item->run, text));
    if (item->started != NULL && vg_run_started(item->run)) vd_item_begun(item);
    item->outside = progress == VG_WAITING && vg_run_waits_for_host(item->run);
    item->idle = vg_run_moves(item->run) == moves;
    return progress;
}

static void end(struct vd_item *item)
{
    vd_item_begun(item);
    if (item->run == NULL) return;
    vg_run_end(item->run, item->past);
    item->run = NULL;
}

const struct vd_runner vd_launch_runner = {begin, step, end};

void vd_launch_describe(const struct vd_item *item, char *text, size_t nbytes)
{
    if (item->run != NULL)
        vg_run_describe(item->run, text, nbytes);
    else
        snprintf(text, nbytes, "kernel %s has not begun: %d others run on its GPU\n",
                 item->op.launch.function->kernel->name, MOST_RUNNING);
}

/* The arguments' bytes in the form of `extra`: a buffer and its size. */
static CUresult pack_extra(void **extra, size_t needed, unsigned char *bytes)
{
    const void *buffer = NULL;
    const size_t *size = NULL;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (buffer == NULL || size == NULL || *size < needed)
        return needed == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    memcpy(bytes, buffer, needed);
    return CUDA_SUCCESS;
}

static CUresult pack(const struct vg_function *kernel, void **params, void **extra, void **packed)
{
    const struct vg_param *last = kernel->nparams > 0 ? &kernel->params[kernel->nparams - 1] : NULL;
    CUresult result = CUDA_SUCCESS;
    if (params != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
    if (last == NULL) return CUDA_SUCCESS;
    if (params == NULL && extra == NULL) return CUDA_ERROR_INVALID_VALUE;
    unsigned char *bytes = calloc(1, kernel->param_bytes + 1u);
    if (bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    if (extra != NULL) result = pack_extra(extra, last->offset + last->size, bytes);
    for (uint32_t i = 0; params != NULL && i < kernel->nparams; i++)
        memcpy(bytes + kernel->params[i].offset, params[i], kernel->params[i].size);
    if (result != CUDA_SUCCESS) {
        free(bytes);
        return result;
    }
    *packed = bytes;
    return CUDA_SUCCESS;
}

static CUresult refused(enum vg_refusal refusal, const char *why)
{
    switch (refusal) {
    case VG_ACCEPTED:
        return CUDA_SUCCESS;
    case VG_REFUSED_THREADS:
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case VG_REFUSED_COOPERATIVE:
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    case VG_REFUSED_INSTRUCTION:
        fprintf(stderr, "vgpu: WARN: %s\n", why);
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult vd_launch_make(struct vd_op *op, struct CUctx_st *context, CUfunction handle,
                        const struct vd_shape *shape, void **params, void **extra)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    char why[TEXT];
    struct CUfunc_st *function = vd_function(handle, context, &result);
    if (function == NULL) return result;
    *op = (struct vd_op){.what = VD_LAUNCH,
                         .launch = {.function = function,
                                    .dynamic_shared = shape->dynamic_shared,
                                    .cooperative = shape->cooperative}};
    memcpy(op->launch.grid, shape->grid, sizeof op->launch.grid);
    memcpy(op->launch.block, shape->block, sizeof op->launch.block);
    if (shape->dynamic_shared > (uint32_t)function->max_dynamic_shared)
        return CUDA_ERROR_INVALID_VALUE;
    const struct vg_launch launch = launch_of(&op->launch, context);
    result = refused(vg_launch_check(&launch, why), why);
    if (result != CUDA_SUCCESS) return result;
    return pack(function->kernel, params, extra, &op->launch.params);
}

CUresult vd_launch_submit(const struct vd_shape *shape, CUfunction function, CUstream handle,
                          bool per_thread, void **params, void **extra, struct vd_item *started)
{
    struct CUstream_st *stream;
    struct vd_op op;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = vd_launch_make(&op, stream->context, function, shape, params, extra);
    if (result != CUDA_SUCCESS) return result;
    if (started == NULL) return vd_stream_enqueue(stream, &op, NULL);
    struct vd_item *item = vd_item_new(stream->context, &op);
    if (item == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    item->started = vd_item_get(started);
    result = vd_stream_append(stream, item, item);
    vd_item_put(item);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned dynamic_shared, CUstream stream, void **params, void **extra)
{
    VD_ENTER();
    const struct vd_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared, false};
    return vd_leave(vd_launch_submit(&shape, function, stream, false, params, extra, NULL));
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned dynamic_shared, CUstream stream, void **params, void **extra)
{
    VD_ENTER();
    const struct vd_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared, false};
    return vd_leave(vd_launch_submit(&shape, function, stream, true, params, extra, NULL));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned dynamic_shared, CUstream stream,
                                   void **params)
{
    VD_ENTER();
    const struct vd_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared, true};
    return vd_leave(vd_launch_submit(&shape, function, stream, false, params, NULL, NULL));
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned dynamic_shared, CUstream stream,
                                        void **params)
{
    VD_ENTER();
    const struct vd_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared, true};
    return vd_leave(vd_launch_submit(&shape, function, stream, true, params, NULL, NULL));
}
