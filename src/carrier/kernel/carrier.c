/* Kernels as a carrier of calls. */
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "carrier/gpu_stream.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"

static void limits(const struct tt_comm_core *comm, struct tt_carrier_limits *limits)
{
    const struct tt_device_links *links = tt_device_room_links(comm->kernel->room);
    if (tt_carrier_limits_of_mixed(comm, limits)) return;
    *limits = (struct tt_carrier_limits){.slot_bytes = links->slot_bytes,
                                         .meet_bytes = links->slot_bytes,
                                         .line_bytes = comm->kernel->proxy ? 0 : links->line_bytes,
                                         .slot_setting =
                                             (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
                                         .nparts = tt_kernel_most_parts(comm->kernel),
                                         .bridges = tt_proxy_way(comm->kernel->proxy),
                                         .of_gpus = true,
                                         .groups = comm->groups};
}

/* As many copies as may run side by side on the GPU. */
static tt_status load(const struct tt_comm_core *comm, struct tt_program *program,
                      struct tt_loaded **loaded)
{
    const int most = tt_kernel_most_parts(comm->kernel), nchannels = program->nchannels;
    const int copies = nchannels > 0 && most > nchannels ? most / nchannels : 1;
    return tt_loaded_create_for_device(program, copies, loaded);
}

static tt_status prepare(struct tt_pending_call *call, const struct tt_where *where,
                         const struct tt_call_blocks *blocks)
{
    (void)where;
    if (!blocks) return TT_OK; /* messages need nothing */
    call->call.entry.type |= TT_ENTRY_ON_DEVICE;
    return tt_kernel_load(call->comm, call->cached, call->call.binding);
}

/* ---- Before a group begins ------------------------------------------------------------------ */

/* Finds which streams of the calls are being captured. USAGE: a capture that has failed, or that
 * forbids the legacy stream, which calls without a stream follow. */
static tt_status find_captures(struct tt_calls *calls)
{
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        TT_TRY(tt_gpu_stream_find_capture(call->comm->context, call->stream, &call->capture));
    return TT_OK;
}

/* The turn that the call gets if it begins now. */
static uint64_t next_turn(const struct tt_pending_call *call)
{
    return call->exchange ? TT_NO_TURN : call->comm->engine.collectives_issued + 1;
}

static tt_status gather(struct tt_calls *calls)
{
    TT_TRY(find_captures(calls));
    TT_TRY(tt_kernel_gather(calls));
    return tt_launches_check(calls);
}

/* ---- Batches: the calls of a communicator on streams, in a group ------------------------------
 */

/* Owned by the communicator's part: while it is used, by the attendant's queue. */
struct tt_kernel_batch {
    struct tt_attended_works attended; /* first: its address is the batch's */
    struct tt_kernel_part *part;
    int room, nworks;
    struct tt_kernel_work *works; /* [room] */
    struct tt_kernel_batch *next;
};

static void keep_batch(struct tt_kernel_batch *batch)
{
    struct tt_kernel_part *on = batch->part;
    pthread_mutex_lock(&on->batches_lock);
    batch->next = on->batches;
    on->batches = batch;
    pthread_mutex_unlock(&on->batches_lock);
}

static void end_attended(struct tt_attended_works *works)
{
    keep_batch((struct tt_kernel_batch *)works);
}

static struct tt_kernel_batch *take_batch(struct tt_kernel_part *on)
{
    pthread_mutex_lock(&on->batches_lock);
    struct tt_kernel_batch *batch = on->batches;
    if (batch) on->batches = batch->next;
    pthread_mutex_unlock(&on->batches_lock);
    return batch ? batch : calloc(1, sizeof *batch);
}

void tt_kernel_free_batches(struct tt_kernel_part *on)
{
    while (on->batches) {
        struct tt_kernel_batch *batch = on->batches;
        on->batches = batch->next;
        free(batch->works);
        free(batch);
    }
}

/* For so many calls. */
static tt_status make_batch(struct tt_kernel_part *on, int nworks)
{
    struct tt_kernel_batch *batch = take_batch(on);
    if (batch && batch->room < nworks) {
        free(batch->works);
        batch->works = malloc((size_t)nworks * sizeof *batch->works);
        batch->room = batch->works ? nworks : 0;
    }
    if (!batch || !batch->room) {
        free(batch);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", nworks);
    }
    batch->attended = (struct tt_attended_works){.done = end_attended};
    batch->part = on;
    batch->nworks = 0;
    on->batch = batch;
    return TT_OK;
}

static int count_on_streams(const struct tt_calls *calls, const struct tt_comm_core *comm)
{
    int n = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        n += call->stream && call->comm == comm;
    return n;
}

/* The rank's own stream follows the legacy one once, for those of its calls that have no stream.
 * Another thread may have begun a capture that forbids the legacy stream: here that is an error of
 * these calls only. */
static tt_status follow_legacy(const struct tt_calls *calls)
{
    const struct tt_comm_core *last = NULL;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->stream || call->comm == last) continue;
        last = call->comm;
        TT_TRY(tt_context_stream_follow_now(last->context, last->kernel->stream,
                                            tt_gpu_stream_handle(NULL)));
    }
    return TT_OK;
}

static tt_status reserve(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->stream && !call->comm->kernel->batch)
            TT_TRY(make_batch(call->comm->kernel, count_on_streams(calls, call->comm)));
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (call->exchange) TT_TRY(tt_kernel_bind_exchange(call));
        TT_TRY(tt_ranges_prepare(call));
    }
    return follow_legacy(calls);
}

static void drop(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_kernel_part *on = call->comm->kernel;
        if (call->exchange) tt_exchange_release(call->exchange);
        if (on->batch) keep_batch(on->batch);
        on->batch = NULL;
    }
}

/* ---- Begin ---------------------------------------------------------------------------------- */

static struct tt_kernel_work *place_of_work(struct tt_pending_call *call)
{
    struct tt_kernel_batch *batch = call->comm->kernel->batch;
    if (call->stream) call->work = &batch->works[batch->nworks++].work;
    return (struct tt_kernel_work *)call->work;
}

/* A stream learns of the end of each of its calls, but for one that is refused and those behind it
 * in the group, whose issuing fails; the batch has all in order. */
static void join_stream(struct tt_pending_call *call)
{
    struct tt_work *work = call->work;
    const struct tt_kernel_part *on = call->comm->kernel;
    if (!call->stream) return;
    if (!on->refusal.text[0]) {
        work->stream = call->stream;
        tt_stream_begin(call->stream);
    }
    if (on->batch->nworks > 1)
        on->batch->works[on->batch->nworks - 2].work.next = work;
    else
        on->batch->attended.works = work;
}

/* A call that needs a rank which is gone is refused: a stream of CUDA does not tell its user. */
static void refuse(const struct tt_pending_call *call)
{
    struct tt_kernel_part *on = call->comm->kernel;
    struct tt_kernel_refusal *refusal = &on->refusal;
    if (tt_fabric_check(call->comm->fabric)) return;
    tt_ignore(tt_kernel_fail_alone(call->comm, call->exchange, next_turn(call)));
    snprintf(refusal->text, sizeof refusal->text, "%s", tt_last_error());
    refusal->collectives = call->comm->engine.collectives_issued;
    refusal->exchanges = on->exchanges;
    atomic_store(&refusal->is_there, true);
}

static bool use_peers(struct tt_pending_call *call)
{
    struct tt_kernel_part *on = call->comm->kernel;
    call->uses_peers = !on->refusal.text[0] &&
                       tt_kernel_may_use_peers(call->comm, call->exchange, next_turn(call));
    if (!call->uses_peers && !on->refusal.text[0]) refuse(call);
    atomic_fetch_add_explicit(&on->life.nborrowed, call->uses_peers, memory_order_relaxed);
    return call->uses_peers;
}

/* The number of the next call. */
static uint64_t next_number(struct tt_kernel_part *on)
{
    return atomic_fetch_add_explicit(&on->issued, 1, memory_order_relaxed) + 1;
}

static void begin(struct tt_pending_call *call)
{
    struct tt_kernel_part *on = call->comm->kernel;
    struct tt_kernel_work *work = place_of_work(call);
    const bool uses_peers = use_peers(call);
    tt_kernel_begin_collective(work, &on->life, &call->comm->engine, &call->call);
    work->number = next_number(on);
    work->uses_peers = uses_peers;
    atomic_store_explicit(&on->last_turn, work->work.turn, memory_order_relaxed);
    call->cached->last_turn = work->work.turn;
    join_stream(call);
}

/* After the collectives: none of the messages of a group waits for a collective of it. */
static void begin_exchange(struct tt_pending_call *call)
{
    struct tt_kernel_part *on = call->comm->kernel;
    struct tt_kernel_work *work = place_of_work(call);
    const bool uses_peers = call->is_first && use_peers(call);
    if (call->is_first) call->exchange->number = next_number(on);
    tt_kernel_begin_exchange(work, &on->life, &call->comm->engine, call->exchange, ++on->exchanges);
    work->uses_peers = uses_peers;
    join_stream(call);
}

static void begin_gathered(struct tt_pending_call *call)
{
    if (call->exchange && call->comm->fabric->mixed.is_mixed)
        tt_exchange_take_turn(call->exchange, call->comm);
}

/* Until `follow`, or until the calling thread runs the calls. Refused calls need nobody. */
static void begin_launching(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_kernel_part *on = call->comm->kernel;
        tt_launching_begin(&on->launching,
                           call->kind == TT_CALL_COLLECTIVE && !on->refusal.text[0]);
    }
}

/* After all calls have begun: the proxies look at whether kernels may run. */
static void wake_proxies(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->comm->kernel->proxy) tt_proxy_wake(call->comm->kernel->proxy);
}

static void launch(struct tt_calls *calls)
{
    begin_launching(calls);
    for (struct tt_pending_call *call = calls->first; call; call = call->next)
        if (call->exchange) begin_exchange(call);
    wake_proxies(calls);
    tt_kernel_launch(calls);
}

static void follow(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        struct tt_kernel_part *on = call->comm->kernel;
        if (call->stream) tt_launching_end(&on->launching);
        if (on->batch) tt_attended_push(&on->queue, &on->batch->attended);
        on->batch = NULL;
    }
}

static tt_status find_refused(const struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next) {
        const char *text = call->comm->kernel->refusal.text;
        if (!text[0]) continue;
        tt_set_last_error(text);
        return TT_ERR_REMOTE;
    }
    return TT_OK;
}

/* ---- Calls without a stream ----------------------------------------------------------------- */

/* The thread has left the driver. The communicator of a work that is done may be gone. */
static void look(struct tt_calls *calls)
{
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!call->stream && !tt_work_is_done(call->work))
            tt_launching_end(&call->comm->kernel->launching);
}

const struct tt_carrier tt_carrier_kernel = {.name = "kernel",
                                             .programs = TT_PROGRAMS_OF_KERNELS,
                                             .orders_messages = true,
                                             .work_bytes = sizeof(struct tt_kernel_work),
                                             .limits = limits,
                                             .load = load,
                                             .prepare = prepare,
                                             .unload = tt_kernel_unload,
                                             .enter = tt_carrier_enter,
                                             .leave = tt_carrier_leave,
                                             .gather = gather,
                                             .capture = tt_kernel_capture,
                                             .captured = tt_kernel_captured,
                                             .reserve = reserve,
                                             .drop = drop,
                                             .begin = begin,
                                             .begin_gathered = begin_gathered,
                                             .is_held_here = tt_kernel_is_held_here,
                                             .launch = launch,
                                             .follow = follow,
                                             .find_refused = find_refused,
                                             .look = look};
