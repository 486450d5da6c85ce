/* Capture. (Minimal: its owner replaces it.) */
#include "driver.h"

CUresult vd_capture_add(struct CUstream_st *stream, struct vd_op *op)
{
    (void)stream;
    vd_op_clear(op);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vd_capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    (void)stream;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vd_capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    (void)stream;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vd_capture_unsafe(void)
{
    return CUDA_SUCCESS;
}

CUresult vd_capture_implicit(struct CUctx_st *context)
{
    (void)context;
    return CUDA_SUCCESS;
}

CUresult vd_capture_waited(struct CUstream_st *stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

CUresult vd_capture_synchronize(struct CUctx_st *context)
{
    (void)context;
    return CUDA_SUCCESS;
}

CUresult vd_capture_event(struct CUevent_st *event)
{
    (void)event;
    return CUDA_SUCCESS;
}

CUresult vd_capture_external(struct CUstream_st *stream, struct CUevent_st *event, bool wait)
{
    (void)stream;
    (void)event;
    (void)wait;
    return CUDA_ERROR_NOT_SUPPORTED;
}

void vd_capture_forget(struct CUevent_st *event)
{
    event->capture = NULL;
}

void vd_capture_leave(struct CUstream_st *stream)
{
    (void)stream;
}
