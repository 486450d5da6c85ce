/* Which carrier a call has: looks at the call's stream and at whose memory its buffers are. */
#include <stdio.h>

#include "carrier/carried.h"
#include "carrier/gpu_stream.h"
#include "driver/context.h"
#include "driver/driver.h"

const struct tt_carried *tt_carried_of(const struct tt_comm_core *core)
{
    return core->kernel ? &tt_carried_kernel : core->staged ? &tt_carried_staged : NULL;
}

const struct tt_carrier *tt_carrier_of_gpu(const struct tt_comm_core *core)
{
    return core->kernel ? &tt_carrier_kernel : core->staged ? &tt_carrier_staged : &tt_carrier_host;
}

int tt_current_gpu(void)
{
    return tt_driver_is_in_use() ? tt_driver_current() : -1;
}

/* The driver has failed: its text, for a call. */
static tt_status pass_on(const struct tt_where *where, tt_status status)
{
    char cause[TT_ERROR_TEXT];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    return tt_fail(status, "%s: %s", where->function, cause);
}

/* Finds whose memory the buffer is; fails where this rank cannot use that memory. */
static tt_status look_at(const struct tt_comm_core *core, const struct tt_where *where,
                         const char *name, const struct tt_extent *buffer, struct tt_pointer *found)
{
    *found = (struct tt_pointer){.kind = TT_POINTER_HOST, .gpu = -1};
    if (!buffer->nbytes) return TT_OK;
    const tt_status status = tt_driver_pointer((const void *)buffer->first, found);
    if (status) return pass_on(where, status);
    if (found->kind != TT_POINTER_DEVICE) return TT_OK;
    if (!tt_carried_of(core))
        return tt_fail(
            TT_ERR_USAGE, "%s: %s %p is memory of GPU %d, but communicator %s has no GPU: %s",
            where->function, name, (void *)buffer->first, found->gpu, core->name, core->no_kernels);
    if (found->gpu == core->gpu) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "%s: %s %p is memory of GPU %d, but rank %d of communicator %s is on GPU %d",
                   where->function, name, (void *)buffer->first, found->gpu, core->rank, core->name,
                   core->gpu);
}

static tt_status refuse_host_memory(const struct tt_comm_core *core, const struct tt_where *where,
                                    const char *name, const struct tt_extent *buffer)
{
    struct tt_gpu gpu;
    /* The GPU would use pages that the kernel may move, and copies of them hold up the caller. */
    if (!tt_driver_gpu(core->gpu, &gpu) && gpu.pageable)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s: %s %p is pageable memory of the host, or has been freed. GPU %d could "
                       "use pageable memory (GH200, HMM), but calls on a GPU do not: allocate it "
                       "there (cuMemAlloc), or pin it (cuMemHostRegister)",
                       where->function, name, (void *)buffer->first, core->gpu);
    return tt_fail(TT_ERR_ARGUMENT,
                   "%s: %s %p is memory of the host that GPU %d cannot use, or has been freed, but "
                   "the call runs on the GPU: allocate it there, or pin it (cuMemHostRegister)",
                   where->function, name, (void *)buffer->first, core->gpu);
}

/* Of a pre-multiplied sum; NULL: the call has none, or its value is known. */
static tt_status check_scalar(const struct tt_where *where, bool on_gpu)
{
    struct tt_pointer found;
    if (!where->scalar) return TT_OK;
    TT_TRY(tt_driver_pointer(where->scalar, &found));
    if (found.kind != (on_gpu ? TT_POINTER_HOST : TT_POINTER_DEVICE)) return TT_OK;
    return tt_fail(
        TT_ERR_ARGUMENT,
        "%s: the scalar %p of the pre-multiplied sum is memory of %s, which a call on %s "
        "cannot read: make the operation with a scalar there, or with its value "
        "(tuttiScalarHostImmediate)",
        where->function, where->scalar, on_gpu ? "the host" : "a GPU",
        on_gpu ? "a GPU" : "the host");
}

/* Whether no capture forbids the legacy stream, if the call is on that or without a stream. */
static tt_status check_legacy(const struct tt_comm_core *core, const struct tt_where *where)
{
    uint64_t none;
    if (!tt_context_is_legacy(tt_gpu_stream_handle(where->stream))) return TT_OK;
    const tt_status status = tt_gpu_stream_find_capture(core->context, where->stream, &none);
    return status ? pass_on(where, status) : TT_OK;
}

static tt_status check_stream(const struct tt_comm_core *core, const struct tt_where *where)
{
    const struct tt_gpu_stream *stream = tt_gpu_stream_of(where->stream);
    if (!tt_carried_of(core))
        return tt_fail(TT_ERR_USAGE,
                       "%s: the stream is a GPU's, but communicator %s has no GPU: %s",
                       where->function, core->name, core->no_kernels);
    if (where->stream && !stream)
        return tt_fail(TT_ERR_USAGE,
                       "%s: a stream of the host cannot run a call on device memory: make one by "
                       "tuttiStreamFromDevice, or pass NULL",
                       where->function);
    if (stream && tt_context_gpu(stream->context) != core->gpu)
        return tt_fail(
            TT_ERR_USAGE,
            "%s: the stream is of GPU %d, but rank %d of communicator %s is on GPU %d: make a "
            "stream of that GPU",
            where->function, tt_context_gpu(stream->context), core->rank, core->name, core->gpu);
    return TT_OK;
}

/* Whether a pointer, of which the call uses nothing, is memory of this rank's GPU. */
static bool is_own_memory(const struct tt_comm_core *core, const void *pointer)
{
    struct tt_pointer found;
    if (!pointer || tt_driver_pointer(pointer, &found)) return false;
    return found.kind == TT_POINTER_DEVICE && found.gpu == core->gpu;
}

/* A rank without any data and without a stream is on the GPU where one of the pointers is memory of
 * the GPU; only kernels ask: staged calls are the host's for all other ranks. */
static bool is_empty_on_gpu(const struct tt_comm_core *core, const struct tt_where *where)
{
    if (!where->may_be_empty || where->stream || where->in.nbytes || where->out.nbytes ||
        !core->kernel)
        return false;
    return is_own_memory(core, where->input) || is_own_memory(core, where->output);
}

/* The default stream as tuttiStreamOfDevice(NULL) gives it: it stands for no stream where a call is
 * the host's. */
static bool may_be_none(const struct tt_where *where)
{
    const struct tt_gpu_stream *stream = tt_gpu_stream_of(where->stream);
    return stream && stream->is_kept && !stream->handle;
}

/* Whether a pointer, of which the call uses nothing, is NULL or pageable memory of the host. */
static bool is_of_host(const void *pointer)
{
    struct tt_pointer found;
    if (!pointer) return true;
    return !tt_driver_pointer(pointer, &found) && found.kind == TT_POINTER_HOST;
}

/* Whether all memory of the call is pageable memory of the host, or, where calls on a GPU cannot be
 * carried out, any that the host can use; in, out: where there are such bytes. */
static bool is_for_host(const struct tt_comm_core *core, const struct tt_where *where,
                        const struct tt_pointer *in, const struct tt_pointer *out)
{
    if (!tt_carried_of(core)) return true;
    if (where->in.nbytes && in->kind != TT_POINTER_HOST) return false;
    if (where->out.nbytes && out->kind != TT_POINTER_HOST) return false;
    if (where->in.nbytes || where->out.nbytes) return true;
    return (where->input || where->output) && is_of_host(where->input) && is_of_host(where->output);
}

/* Memory of a GPU that was reset looks like pageable memory of the host. */
static tt_status check_reset(const struct tt_comm_core *core, const struct tt_where *where)
{
    if (!core->context || !tt_context_is_reset(core->context)) return TT_OK;
    return pass_on(where, tt_context_enter(core->context)); /* which fails */
}

/* A call is on the GPU when its stream is a GPU's, or its buffers are and it has no stream. Fails
 * for buffers and streams that do not fit one another or this rank's GPU. */
static tt_status is_on_gpu(const struct tt_comm_core *core, const struct tt_where *where,
                           bool *on_gpu)
{
    struct tt_pointer in, out;
    TT_TRY(look_at(core, where, "sendbuff", &where->in, &in));
    if (where->in.nbytes && where->out.nbytes && where->out.first == where->in.first)
        out = in; /* in place: the driver is asked once */
    else
        TT_TRY(look_at(core, where, "recvbuff", &where->out, &out));
    if ((where->in.nbytes && in.kind == TT_POINTER_HOST) ||
        (where->out.nbytes && out.kind == TT_POINTER_HOST))
        TT_TRY(check_reset(core, where));
    *on_gpu =
        in.kind == TT_POINTER_DEVICE || out.kind == TT_POINTER_DEVICE ||
        (may_be_none(where) ? !is_for_host(core, where, &in, &out)
                            : tt_gpu_stream_of(where->stream) || is_empty_on_gpu(core, where));
    TT_TRY(check_scalar(where, *on_gpu));
    if (!*on_gpu) return TT_OK;
    TT_TRY(check_stream(core, where));
    if (where->in.nbytes && in.kind == TT_POINTER_HOST)
        return refuse_host_memory(core, where, "sendbuff", &where->in);
    if (where->out.nbytes && out.kind == TT_POINTER_HOST)
        return refuse_host_memory(core, where, "recvbuff", &where->out);
    return check_legacy(core, where);
}

tt_status tt_carrier_select(const struct tt_comm_core *core, struct tt_where *where,
                            const struct tt_carrier **carrier)
{
    bool on_gpu;
    *carrier = &tt_carrier_host;
    TT_TRY(is_on_gpu(core, where, &on_gpu));
    if (on_gpu)
        *carrier = tt_carrier_of_gpu(core);
    else if (may_be_none(where))
        where->stream = NULL;
    return TT_OK;
}
