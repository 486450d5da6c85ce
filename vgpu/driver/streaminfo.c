/* What streams say about themselves, and their attributes. */
#include "run.h"

#include <string.h>

VD_PER_THREAD(cuStreamGetPriority_ptsz, cuStreamGetPriority);
VD_PER_THREAD(cuStreamGetFlags_ptsz, cuStreamGetFlags);
VD_PER_THREAD(cuStreamGetId_ptsz, cuStreamGetId);
VD_PER_THREAD(cuStreamGetCtx_ptsz, cuStreamGetCtx);
VD_PER_THREAD(cuStreamGetDevice_ptsz, cuStreamGetDevice);
VD_PER_THREAD(cuStreamGetAttribute_ptsz, cuStreamGetAttribute);
VD_PER_THREAD(cuStreamSetAttribute_ptsz, cuStreamSetAttribute);
VD_PER_THREAD(cuStreamCopyAttributes_ptsz, cuStreamCopyAttributes);

/* Defines cuStreamGet...(stream, value): `body` says what *value becomes. */
#define GETTER(name, type, expression)                                                             \
    static CUresult get_##name(CUstream handle, type *value, bool per_thread)                      \
    {                                                                                              \
        struct CUstream_st *stream;                                                                \
        const CUresult result = vd_stream_resolve(handle, per_thread, &stream);                    \
        if (result != CUDA_SUCCESS) return result;                                                 \
        if (value == NULL) return CUDA_ERROR_INVALID_VALUE;                                        \
        *value = (expression);                                                                     \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    CUresult name(CUstream stream, type *value)                                                    \
    {                                                                                              \
        VD_ENTER();                                                                                \
        return vd_leave(get_##name(stream, value, false));                                         \
    }                                                                                              \
    CUresult name##_ptsz(CUstream stream, type *value)                                             \
    {                                                                                              \
        VD_ENTER();                                                                                \
        return vd_leave(get_##name(stream, value, true));                                          \
    }

GETTER(cuStreamGetPriority, int, stream->priority)
GETTER(cuStreamGetFlags, unsigned, stream->flags)
GETTER(cuStreamGetId, unsigned long long, stream->object.number)
GETTER(cuStreamGetCtx, CUcontext, stream->context)
GETTER(cuStreamGetDevice, CUdevice, stream->context->device->gpu.number)

/* Green contexts cannot be made here: no stream has one. */
CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
    struct CUstream_st *stream;
    VD_ENTER();
    const CUresult result = vd_stream_resolve(handle, false, &stream);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (green == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *green = NULL;
    return vd_leave(CUDA_SUCCESS);
}

static bool of_streams(CUstreamAttrID id)
{
    switch ((int)id) {
    case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_STREAM_ATTRIBUTE_PRIORITY:
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return true;
    default:
        return false;
    }
}

static CUresult find(CUstream handle, CUstreamAttrID id, const void *value, bool per_thread,
                     struct CUstream_st **stream)
{
    const CUresult result = vd_stream_resolve(handle, per_thread, stream);
    if (result != CUDA_SUCCESS) return result;
    return value != NULL && of_streams(id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value, bool per_thread)
{
    struct CUstream_st *stream;
    const CUresult result = find(handle, id, value, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    *value = stream->attributes[id];
    if (id == CU_STREAM_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
    return CUDA_SUCCESS;
}

static CUresult set(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value,
                    bool per_thread)
{
    struct CUstream_st *stream;
    const CUresult result = find(handle, id, value, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    stream->attributes[id] = *value;
    if (id == CU_STREAM_ATTRIBUTE_PRIORITY) stream->priority = value->priority;
    return CUDA_SUCCESS;
}

static CUresult copy(CUstream to_handle, CUstream from_handle, bool per_thread)
{
    struct CUstream_st *to, *from;
    CUresult result = vd_stream_resolve(to_handle, per_thread, &to);
    if (result == CUDA_SUCCESS) result = vd_stream_resolve(from_handle, per_thread, &from);
    if (result != CUDA_SUCCESS) return result;
    memcpy(to->attributes, from->attributes, sizeof to->attributes);
    to->priority = from->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value)
{
    VD_ENTER();
    return vd_leave(get(stream, id, value, false));
}

CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value)
{
    VD_ENTER();
    return vd_leave(get(stream, id, value, true));
}

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
    VD_ENTER();
    return vd_leave(set(stream, id, value, false));
}

CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id,
                                   const CUstreamAttrValue *value)
{
    VD_ENTER();
    return vd_leave(set(stream, id, value, true));
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    VD_ENTER();
    return vd_leave(copy(to, from, false));
}

CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from)
{
    VD_ENTER();
    return vd_leave(copy(to, from, true));
}
