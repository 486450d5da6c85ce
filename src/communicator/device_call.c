/* Calls on device memory: which they are, what they are bound to, and their launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "communicator/graphs.h"
#include "communicator/staged.h"
#include "device/tables.h"
#include "driver/capture.h"
#include "driver/driver.h"
#include "executor/exchange.h"

/* A kernel has room for all ends of a channel, the binding and this. */
enum {
    MOST_TABLE_BYTES = TT_DEVICE_MOST_COPIED -
                       TT_DEVICE_MOST_ENDS * (int)sizeof(struct tt_device_end) -
                       (int)sizeof(struct tt_binding) - 64
};

/* ---- Routing -------------------------------------------------------------------------------- */

/* Finds whose memory the buffer is; fails where this rank cannot use that memory. */
static tt_status look_at(const struct tt_request *request, const char *name, const void *buffer,
                         size_t nbytes, struct tt_pointer *found)
{
    *found = (struct tt_pointer){.kind = TT_POINTER_HOST, .gpu = -1};
    if (!nbytes) return TT_OK;
    TT_TRY(tt_driver_pointer(buffer, found));
    if (found->kind != TT_POINTER_DEVICE) return TT_OK;
    if (!tt_comm_takes_gpus(request->comm))
        return tt_fail(TT_ERR_USAGE,
                       "%s: %s %p is memory of GPU %d, but communicator %s has no GPU: %s",
                       request->function, name, buffer, found->gpu, request->comm->name,
                       request->comm->no_gpu);
    if (found->gpu == request->comm->gpu) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "%s: %s %p is memory of GPU %d, but rank %d of communicator %s is on GPU %d",
                   request->function, name, buffer, found->gpu, request->comm->rank,
                   request->comm->name, request->comm->gpu);
}

static tt_status refuse_host_memory(const struct tt_request *request, const char *name,
                                    const void *buffer)
{
    return tt_fail(TT_ERR_ARGUMENT,
                   "%s: %s %p is memory of the host that GPU %d cannot use, but the call runs on "
                   "the GPU: allocate it there, or pin it (cuMemHostRegister)",
                   request->function, name, buffer, request->comm->gpu);
}

/* Of a pre-multiplied sum; NULL: the call has none, or its value is known. */
static tt_status check_scalar(const struct tt_request *request, const void *scalar, bool on_device)
{
    struct tt_pointer found;
    if (!scalar) return TT_OK;
    TT_TRY(tt_driver_pointer(scalar, &found));
    if (found.kind != (on_device ? TT_POINTER_HOST : TT_POINTER_DEVICE)) return TT_OK;
    return tt_fail(
        TT_ERR_ARGUMENT,
        "%s: the scalar %p of the pre-multiplied sum is memory of %s, which a call on %s "
        "cannot read: make the operation with a scalar there, or with its value "
        "(tuttiScalarHostImmediate)",
        request->function, scalar, on_device ? "the host" : "a GPU",
        on_device ? "a GPU" : "the host");
}

static tt_status check_legacy(const struct tt_request *request)
{
    const struct tuttiComm *comm = request->comm;
    struct tt_context *context =
        comm->staged ? comm->staged->context : tt_device_context(comm->on_gpu->device);
    bool forbidden = false;
    void *stream = tt_users_stream(request->stream);
    if (tt_context_is_legacy(stream))
        TT_TRY(tt_context_stream_capturing(context, stream, &forbidden));
    if (!forbidden) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%s: a blocking CUDA stream is being captured into a graph, which forbids the "
                   "legacy default stream, and with it calls whose stream is NULL: pass a stream "
                   "that does not block (tuttiStreamFromDevice)",
                   request->function);
}

tt_status tt_comm_route(const struct tt_request *request, const struct tt_memo *memo,
                        bool *on_device)
{
    const struct tuttiComm *comm = request->comm;
    struct tt_stream *stream = (struct tt_stream *)request->stream;
    struct tt_context *context = tt_stream_context(stream);
    struct tt_pointer in, out;
    TT_TRY(look_at(request, "sendbuff", request->input, memo->in, &in));
    TT_TRY(look_at(request, "recvbuff", request->output, memo->out, &out));
    const bool any = in.kind == TT_POINTER_DEVICE || out.kind == TT_POINTER_DEVICE;
    *on_device = any || context;
    TT_TRY(check_scalar(request, memo->call.scalar, *on_device));
    if (!*on_device) return TT_OK;
    if (!tt_comm_takes_gpus(comm))
        return tt_fail(TT_ERR_USAGE,
                       "%s: the stream is a GPU's, but communicator %s has no GPU: %s",
                       request->function, comm->name, comm->no_gpu);
    if (stream && !context)
        return tt_fail(TT_ERR_USAGE,
                       "%s: a stream of the host cannot run a call on device memory: make one by "
                       "tuttiStreamFromDevice, or pass NULL",
                       request->function);
    if (context && tt_context_gpu(context) != comm->gpu)
        return tt_fail(
            TT_ERR_USAGE,
            "%s: the stream is of GPU %d, but rank %d of communicator %s is on GPU %d: make a "
            "stream of that GPU",
            request->function, tt_context_gpu(context), comm->rank, comm->name, comm->gpu);
    if (memo->in && in.kind == TT_POINTER_HOST)
        return refuse_host_memory(request, "sendbuff", request->input);
    if (memo->out && out.kind == TT_POINTER_HOST)
        return refuse_host_memory(request, "recvbuff", request->output);
    return check_legacy(request);
}

/* Whether a pointer, of which the call uses nothing, is memory of this rank's GPU. */
static bool is_own_memory(const struct tuttiComm *comm, const void *pointer)
{
    struct tt_pointer found;
    if (!pointer || tt_driver_pointer(pointer, &found)) return false;
    return found.kind == TT_POINTER_DEVICE && found.gpu == comm->gpu;
}

tt_status tt_comm_route_extents(const struct tt_request *request, struct tt_extent in,
                                struct tt_extent out, const void *scalar, bool *on_device)
{
    const struct tuttiComm *comm = request->comm;
    struct tt_request used = *request;
    used.input = (const void *)in.first;
    used.output = (void *)out.first;
    const struct tt_memo memo = {.in = in.nbytes, .out = out.nbytes, .call = {.scalar = scalar}};
    TT_TRY(tt_comm_route(&used, &memo, on_device));
    if (*on_device || request->stream || in.nbytes || out.nbytes || !comm->on_gpu) return TT_OK;
    if (!is_own_memory(comm, request->input) && !is_own_memory(comm, request->output)) return TT_OK;
    *on_device = true;
    TT_TRY(check_scalar(request, scalar, true));
    return check_legacy(request);
}

/* ---- Binding -------------------------------------------------------------------------------- */

/* Blocks of threads of one call. */
static int most_parts(const struct tt_comm_device *on)
{
    const int channels = (int)tt_device_room_links(on->room)->nchannels - 1;
    return on->most_blocks < channels ? on->most_blocks : channels;
}

void tt_comm_device_setting(const struct tuttiComm *comm, struct tt_setting *setting)
{
    const struct tt_device_links *links = tt_device_room_links(comm->on_gpu->room);
    setting->on_device = true;
    setting->oversubscribed = false;
    setting->ranks_per_core = 0;
    setting->slot_bytes = setting->meet_bytes = links->slot_bytes;
    setting->line_bytes = links->line_bytes;
    setting->nparts = most_parts(comm->on_gpu);
}

int tt_comm_device_copies(const struct tuttiComm *comm, const struct tt_program *program)
{
    const int most = most_parts(comm->on_gpu);
    return program->nchannels > 0 && most > program->nchannels ? most / program->nchannels : 1;
}

struct tt_limits tt_comm_device_limits(const struct tuttiComm *comm, const struct tt_cached *cached)
{
    const struct tt_device_links *links = tt_device_room_links(comm->on_gpu->room);
    return (struct tt_limits){.slot_bytes = links->slot_bytes,
                              .meet_bytes = links->slot_bytes,
                              .copies = cached->any_count ? cached->loaded->copies : 1,
                              .slot_setting = (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
                              .of_gpus = true};
}

static tt_status upload(struct tt_context *context, const void *program, size_t nbytes,
                        void **memory)
{
    void *made;
    TT_TRY(tt_context_allocate(context, nbytes, &made));
    const tt_status status = tt_context_upload(context, made, program, nbytes);
    if (status)
        tt_context_free(context, made);
    else
        *memory = made;
    return status;
}

/* Keeps the memory until the communicator is freed; NULL: there is none. False: out of memory. */
static bool keep_old(struct tt_comm_device *on, const struct tt_old_memory *memory)
{
    if (!memory->memory) return true;
    struct tt_old_memory *old = malloc(sizeof *old);
    if (!old) return false;
    *old = *memory;
    old->next = on->old;
    on->old = old;
    return true;
}

/* The same program, where captured calls had it and the cache has forgotten it: else its memory
 * would be kept once more whenever calls are captured again. NULL: there is none. */
static void *take_captured(struct tt_comm_device *on, const struct tt_cached *cached)
{
    struct tt_old_memory **at = &on->old;
    while (*at &&
           ((*at)->algorithm != cached->algorithm || (*at)->root != cached->loaded->program->root))
        at = &(*at)->next;
    if (!*at) return NULL;
    struct tt_old_memory *old = *at;
    void *memory = old->memory;
    *at = old->next;
    free(old);
    return memory;
}

static tt_status load_program(tuttiComm_t comm, struct tt_cached *cached)
{
    struct tt_comm_device *on = comm->on_gpu;
    struct tt_device_program *device = &cached->device_program;
    void *program;
    tt_status status = TT_OK;
    TT_TRY(tt_device_tables_create(cached->loaded->program,
                                   tt_device_room_links(on->room)->nchannels, device, &program));
    cached->device_memory = take_captured(on, cached);
    cached->is_captured = cached->device_memory;
    if (!cached->device_memory)
        status =
            upload(tt_device_context(on->device), program, device->nbytes, &cached->device_memory);
    device->memory = cached->device_memory;
    free(program);
    return status;
}

static tt_status ensure_scratch(struct tt_comm_device *on, const struct tt_program *program,
                                const struct tt_binding *binding)
{
    size_t need =
        (size_t)program->nscratch * binding->parts[0].nparts * binding->piece * binding->element;
    if (need <= on->scratch_bytes) return TT_OK;
    /* Calls that were issued keep the one before. So all of them together are at most twice the
     * last one, however slowly the calls grow. */
    if (need < 2 * on->scratch_bytes) need = 2 * on->scratch_bytes;
    void *memory;
    TT_TRY(tt_context_allocate(tt_device_context(on->device), need, &memory));
    if (!keep_old(on, &(struct tt_old_memory){.memory = on->scratch})) {
        tt_context_free(tt_device_context(on->device), memory);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an entry of the scratch list");
    }
    on->scratch = memory;
    on->scratch_bytes = need;
    return TT_OK;
}

tt_status tt_comm_fail_call(tuttiComm_t comm, tt_status status)
{
    char text[TT_ERROR_TEXT], name[128] = "";
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (status != TT_ERR_REMOTE) tt_fabric_name_rank(comm->fabric, comm->rank, name, sizeof name);
    tt_engine_enter(&comm->engine);
    const tt_status failed =
        tt_fabric_fail(comm->fabric, status, "%s%s%s", name, *name ? ": " : "", text);
    tt_engine_leave(&comm->engine);
    return failed;
}

tt_status tt_comm_device_load(tuttiComm_t comm, struct tt_cached *cached,
                              const struct tt_binding *binding)
{
    tt_status status = cached->device_memory ? TT_OK : load_program(comm, cached);
    if (!status) status = ensure_scratch(comm->on_gpu, cached->loaded->program, binding);
    return status ? tt_comm_fail_call(comm, status) : TT_OK;
}

void tt_comm_device_unload(tuttiComm_t comm, struct tt_cached *cached)
{
    struct tt_comm_device *on = comm->on_gpu;
    struct tt_old_memory memory = {.memory = cached->device_memory};
    if (cached->is_captured) memory.algorithm = cached->algorithm;
    memory.root = cached->loaded->program->root;
    const bool keeps = cached->is_captured || tt_fabric_failure_text(comm->fabric)[0];
    if (!keeps || (!keep_old(on, &memory) && !cached->is_captured))
        tt_context_free(tt_device_context(on->device), cached->device_memory);
    cached->device_memory = NULL;
}

/* ---- Launch --------------------------------------------------------------------------------- */

int tt_comm_absent_rank(const struct tuttiComm *comm, const struct tt_group_exchange *exchange)
{
    const int n = exchange ? exchange->ncalls : comm->nranks;
    for (int i = 0; i < n; i++) {
        const int rank = exchange ? exchange->calls[i].peer : i;
        if (atomic_load_explicit(&tt_fabric_record(comm->fabric, rank)->state,
                                 memory_order_acquire) != TT_RANK_HERE)
            return rank;
    }
    return -1;
}

/* A rank that leaves first says so, then looks for ranks that use its memory (await_peers); here
 * the other way round, with fences in between: one of the two sees the other. */
bool tt_comm_may_use_peers(const struct tuttiComm *comm, const struct tt_group_exchange *exchange)
{
    if (tt_fabric_borrow(comm->fabric)) return false;
    if (tt_comm_absent_rank(comm, exchange) < 0) return true;
    tt_fabric_give_back(comm->fabric);
    return false;
}

struct tt_kernel_run tt_comm_next_kernel(tuttiComm_t comm, const struct tt_group_exchange *exchange,
                                         bool *uses_peers)
{
    struct tt_comm_device *on = comm->on_gpu;
    *uses_peers = tt_comm_may_use_peers(comm, exchange);
    atomic_fetch_add_explicit(&comm->engine.nborrowed, *uses_peers, memory_order_relaxed);
    return (struct tt_kernel_run){.report = on->report,
                                  .context = tt_device_context(on->device),
                                  .stream = on->stream,
                                  .number = ++on->issued};
}

/* Lines where every message of a round fits a link's lines, and is short enough that they are
 * faster: the blocks of a message are a piece each, rounded up to whole lines. Lines order nothing
 * but themselves: a barrier, which orders all memory, takes slots. */
static enum tt_device_protocol protocol_of(const struct tt_device_links *links,
                                           const struct tt_program *program,
                                           const struct tt_binding *binding)
{
    const size_t lines = (binding->piece * binding->element + TT_LINE_DATA - 1) / TT_LINE_DATA;
    const size_t nbytes = (size_t)program->message * lines * TT_LINE_BYTES;
    const bool fits = binding->nrounds == 1 && nbytes <= links->line_bytes;
    const size_t nparts = (size_t)binding->copies * (size_t)program->nchannels;
    return program->nblocks && fits && tt_gpu_takes_lines(nbytes / 2 * nparts) ? TT_PROTOCOL_LINES
                                                                               : TT_PROTOCOL_SLOTS;
}

/* The blocks of a count for each rank, for the kernel to read. */
static tt_status place_blocks(struct tt_comm_device *on, const struct tt_call *from,
                              const struct tt_own_block **blocks)
{
    const struct tt_binding *binding = from->binding;
    void *table;
    *blocks = NULL;
    if (!binding->table_at) return TT_OK;
    const size_t nbytes = binding->nbytes - binding->table_at;
    if (nbytes > MOST_TABLE_BYTES)
        return tt_fail(TT_ERR_USAGE,
                       "a kernel takes a count for each of at most %zu ranks, the call has %d",
                       (size_t)MOST_TABLE_BYTES / sizeof **blocks, from->loaded->program->nblocks);
    TT_TRY(tt_device_ring_take(&on->ring, tt_device_context(on->device), on->report, nbytes,
                               from->kernel.number, &table));
    memcpy(table, tt_binding_own_block(binding, 0), nbytes);
    *blocks = table;
    return TT_OK;
}

tt_status tt_comm_device_fill(const struct tt_pending_call *pending, struct tt_device_call *call)
{
    struct tt_comm_device *on = pending->comm->on_gpu;
    const struct tt_call *from = &pending->call;
    const struct tt_program *program = from->loaded->program;
    const struct tt_device_links *links = tt_device_room_links(on->room);
    const struct tt_own_block *blocks;
    TT_TRY(place_blocks(on, from, &blocks));
    *call = (struct tt_device_call){
        .program = pending->cached->device_program,
        .binding = *from->binding,
        .blocks = blocks,
        .table_bytes = blocks ? from->binding->nbytes - from->binding->table_at : 0,
        .origin = {(char *)((uintptr_t)from->input - from->binding->skipped[TT_INPUT]),
                   (char *)((uintptr_t)from->output - from->binding->skipped[TT_OUTPUT]),
                   on->scratch},
        .links = *links,
        .state = on->state,
        .report = on->report,
        .scalar = from->scalar,
        .reference_bytes = TT_REFERENCE_BYTES,
        .fold = {.type = from->reduction.type,
                 .op = from->reduction.op,
                 .element = (uint32_t)from->binding->element,
                 .nranks = (uint32_t)program->nranks},
        .protocol = protocol_of(links, program, from->binding),
        .signature = (uint32_t)(from->signature ^ from->signature >> 32) & ~TT_DEVICE_EXCHANGE_BIT,
        .nblocks = (uint32_t)(from->binding->copies * program->nchannels),
        .number = from->kernel.number};
    call->binding.table_at = blocks ? sizeof call->binding : 0;
    memcpy(&call->fold.scalar, from->reduction.scalar, sizeof call->fold.scalar);
    return TT_OK;
}

tt_status tt_comm_fail_alone(const struct tuttiComm *comm, const struct tt_group_exchange *exchange)
{
    char name[128];
    TT_TRY(tt_fabric_check(comm->fabric));
    tt_fabric_name_rank(comm->fabric, tt_comm_absent_rank(comm, exchange), name, sizeof name);
    return tt_fail(TT_ERR_REMOTE, "%s has left: it destroyed its communicator", name);
}
