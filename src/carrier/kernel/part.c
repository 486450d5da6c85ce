/* What a communicator has on a GPU: made when it is made, freed with it. */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/pause.h"
#include "carrier/gpu_watch.h"
#include "carrier/kernel/graphs.h"
#include "device/device.h"
#include "driver/capture.h"
#include "driver/mps.h"
#include "executor/late.h"

/* How long a rank that leaves waits for kernels of calls in which it has no part, or that have
 * failed; and, without a deadline, for calls of ranks of its own process. */
enum { LEAVE_MS = 10000 };
/* How long a rank that leaves waits for kernels of its own, which may wait for the user. */
enum { OWN_MS = 1000 };
/* How long a rank that aborts waits for calls of other ranks that it has done its part of; and for
 * kernels, of which those end meanwhile that need the rank (GONE_MS, GRACE_MS). */
enum { ABORT_MS = 1000, ABORT_KERNELS_MS = 4000 };
/* How long a rank that aborts waits until the attendant has seen that its kernels have ended. */
enum { SETTLE_MS = 1000 };
/* How long a kernel has to end after a rank of its collective has died: that rank's part may be
 * done, although its attendant had no time to say so. */
enum { DEATH_MS = 500 };

/* ---- What kernels may use longer than their communicator lives ------------------------------ */

/* What a replay after the communicator's end does not use. */
static void free_memory(struct tt_kernel_part *on)
{
    struct tt_context *context = tt_device_context(on->device);
    tt_context_free(context, on->scratch);
    on->scratch = NULL;
    while (on->old) {
        struct tt_old_memory *old = on->old;
        on->old = old->next;
        tt_context_free(context, old->memory);
        free(old);
    }
    tt_device_ring_free(&on->ring, context);
    tt_proxy_destroy(on->proxy);
    on->proxy = on->life.proxy = NULL;
    tt_ends_destroy(on->ends, context);
    on->ends = NULL;
    tt_ranges_destroy(on->ranges, context);
    on->ranges = NULL;
    tt_device_room_destroy(on->room);
    on->room = NULL;
}

static void free_all(void *part)
{
    struct tt_kernel_part *on = part;
    if (on->device) {
        struct tt_context *context = tt_device_context(on->device);
        free_memory(on);
        tt_context_unlist_user(context, &on->user);
        tt_context_let_go(context);
        tt_graphs_destroy(on->graphs);
        tt_share_close(tt_device_shares(on->device), &on->place);
        if (on->last) tt_context_event_destroy(context, on->last);
        if (on->stream) tt_context_stream_destroy(context, on->stream);
        /* The last word of it is written after the report that the call has ended. */
        if (!atomic_load_explicit(&on->life.unrecorded, memory_order_relaxed))
            tt_context_free(context, on->state);
        tt_context_free_host(context, on->life.report);
        tt_gpu_watch_put(on->life.watch);
    }
    tt_hosts_destroy(on->hosts);
    tt_device_close(on->device);
    tt_kernel_free_batches(on);
    free(on->message_turns);
    pthread_mutex_destroy(&on->batches_lock);
    free(on);
}

static bool is_reset(const struct tt_kernel_part *on)
{
    return on->device && tt_context_is_reset(tt_device_context(on->device));
}

/* Whether a kernel of the rank has not ended. A reset of the GPU ends them all, and takes the event
 * away. */
static bool has_kernels(const struct tt_kernel_part *on)
{
    if (is_reset(on)) return false;
    return tt_kernel_has_unrecorded(&on->life) ||
           tt_context_event_query(tt_device_context(on->device), on->last) == TT_IN_PROGRESS;
}

/* Whether no kernel of the rank or of its peers can use what is left. After a reset of the GPU the
 * driver has freed it, also what graphs need that are kept. */
static bool is_unused(const void *part)
{
    const struct tt_kernel_part *on = part;
    if (is_reset(on)) return true;
    if (!on->peers_ended || !tt_graphs_have_ended(on) || !tt_graphs_are_gone(on)) return false;
    return !on->last || !has_kernels(on);
}

/* Replays begin without the library. */
static bool has_work(const struct tt_context_user *user)
{
    const struct tt_kernel_part *on =
        (const struct tt_kernel_part *)((const char *)user - offsetof(struct tt_kernel_part, user));
    return tt_graphs_are_there(on) || has_kernels(on);
}

/* ---- Creation ------------------------------------------------------------------------------- */

static tt_status open_gpu(struct tt_comm_core *comm, struct tt_kernel_part *on)
{
    TT_TRY(tt_device_open(comm->gpu, &on->device));
    struct tt_context *context = comm->context = tt_device_context(on->device);
    void *memory;
    on->life.gpu = comm->gpu;
    TT_TRY(tt_context_allocate(context, sizeof *on->state, &memory));
    on->state = memory;
    TT_TRY(tt_context_allocate_lasting(context, sizeof *on->life.report, &memory));
    on->life.report = memory;
    TT_TRY(tt_context_stream_create(context, &on->stream));
    TT_TRY(tt_context_event_create(context, &on->last));
    on->user.has_work = has_work;
    tt_context_list_user(context, &on->user);
    tt_context_let_go(context);
    TT_TRY(tt_gpu_watch_get(context, &on->life.watch));
    TT_TRY(tt_attended_open(&on->queue));
    tt_launching_open(&on->launching, comm, on->queue.attendant);
    return TT_OK;
}

static bool is_one_process(const struct tt_fabric *fabric)
{
    for (int r = 1; r < fabric->nranks; r++)
        if (fabric->peers[r].process_id != fabric->peers[0].process_id) return false;
    return true;
}

static tt_status offer(struct tt_comm_core *comm, const struct tt_carried_config *given,
                       void *written)
{
    struct tt_device_offer *mine = written;
    *mine = (struct tt_device_offer){.gpu = -1};
    if (comm->gpu < 0) return TT_OK; /* the others may have kernels */
    tt_left_free(comm->gpu);
    comm->kernel = calloc(1, sizeof *comm->kernel);
    if (!comm->kernel) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator on a GPU");
    pthread_mutex_init(&comm->kernel->batches_lock, NULL);
    comm->kernel->held_ms = LEAVE_MS;
    comm->kernel->abort_ms = ABORT_MS;
    comm->fabric->death_grace_ns = DEATH_MS * INT64_C(1000000);
    TT_TRY(open_gpu(comm, comm->kernel));
    TT_TRY(tt_kernel_find_hosts(comm->fabric, &comm->kernel->hosts));
    if (comm->kernel->hosts) TT_TRY(tt_ends_create(&comm->kernel->ends, comm));
    comm->kernel->nthreads = (uint32_t)given->threads;
    comm->kernel->most_line_bytes = given->most_line_bytes;
    const struct tt_device_room_config config = {
        .gpu = comm->gpu,
        .rank = comm->rank,
        .nranks = comm->nranks,
        .nchannels = given->channels,
        .nslots = (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOTS),
        .slot_bytes = (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
        .line_bytes = (size_t)tt_config_int(TT_CONFIG_DEVICE_LINE_BYTES),
        .process_id = comm->fabric->peers[comm->rank].process_id,
        .id = comm->fabric->segment->id,
        .hosts = comm->kernel->hosts,
        .one_process = is_one_process(comm->fabric)};
    TT_TRY(tt_device_room_offer(&comm->kernel->room, &config, mine));
    mine->capacity = tt_device_capacity(comm->kernel->device);
    mine->uses_mps = tt_driver_uses_mps();
    mine->opener = given->opener;
    mine->takes_slots = comm->kernel->ends && tt_ends_may_be_in_gpu(comm->kernel->ends);
    return TT_OK;
}

static tt_status connect_part(struct tt_comm_core *comm, const struct tt_carried_config *config,
                              const void *given, int32_t *amount, bool *must_fail)
{
    const struct tt_device_offer *offers = given;
    struct tt_kernel_part *on = comm->kernel;
    *must_fail = false;
    if (!on) {
        *amount = tt_kernel_mix_without_gpu(comm, offers);
        return TT_OK;
    }
    TT_TRY(tt_device_room_connect(on->room, offers));
    TT_TRY(tt_kernel_mix(comm, tt_device_room_links(on->room)->slot_bytes));
    TT_TRY(tt_ranges_create(comm, &on->ranges));
    if (on->hosts) TT_TRY(tt_proxy_create(&on->proxy, comm, on->room, on->ends, offers));
    on->life.proxy = on->proxy;
    comm->fabric->bridged = on->proxy;
    TT_TRY(tt_kernel_take_place(comm, config, offers, must_fail));
    TT_INFO(
        "communicator %s: rank %d is on GPU %d with %d other ranks; at most %d blocks a call%s%s",
        comm->name, comm->rank, comm->gpu, tt_device_room_sharers(on->room) - 1, on->most_blocks,
        on->place.takes_turns ? ", in turn with other communicators, which have all blocks" : "",
        !on->proxy                     ? ""
        : comm->fabric->mixed.is_mixed ? "; to each rank without a GPU by a relay, to each rank "
                                         "with one of another host by a bridge"
                                       : "; to each rank of another host by a bridge, over what "
                                         "reaches that rank");
    TT_TRY(tt_kernel_probe(comm, false));
    *amount = on->most_blocks;
    return TT_OK;
}

/* ---- The end -------------------------------------------------------------------------------- */

/* The last collective of kernels that this rank has ended. Of those of the host, which have turns
 * among them, its part is done when they end. */
static uint64_t last_done(const struct tt_comm_core *comm)
{
    const uint64_t last = atomic_load_explicit(&comm->kernel->last_turn, memory_order_relaxed);
    const uint64_t done = atomic_load_explicit(&comm->fabric->record->done, memory_order_relaxed);
    return done < last ? done : last;
}

/* Whether a rank has ended all calls of kernels that this rank has, has left or died; one of
 * another host, or without a GPU, which uses no memory of this rank: whether it has taken all
 * messages of this rank, has left or died, or gets nothing because this rank has aborted. */
static bool has_done(const struct tt_comm_core *comm, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->fabric, rank);
    const uint64_t last = last_done(comm);
    if (!tt_fabric_is_local(comm->fabric, rank) || tt_fabric_is_relayed(comm->fabric, rank))
        return atomic_load(&comm->fabric->aborted) || tt_proxy_has_ended(comm->kernel->proxy, rank);
    return (atomic_load_explicit(&record->done, memory_order_acquire) >= last &&
            tt_graphs_has_replayed(comm, rank)) ||
           atomic_load_explicit(&record->state, memory_order_acquire) != TT_RANK_HERE ||
           tt_fabric_is_dead(comm->fabric, rank);
}

/* Whether the rank may make its calls only after this thread has gone on, or none any more although
 * its process lives: this process has the rank, too. */
static bool may_be_held(const struct tt_comm_core *comm, int rank)
{
    const struct tt_fabric *fabric = comm->fabric;
    return fabric->peers[rank].process_id == fabric->peers[comm->rank].process_id;
}

/* A rank that this one waits for, but for held ones; -1: none. */
static int find_late(const struct tt_comm_core *comm, bool but_held)
{
    if (tt_fabric_failure(comm->fabric, NULL)) return -1;
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !has_done(comm, r) && !(but_held && may_be_held(comm, r))) return r;
    return -1;
}

static bool any_uses_peers(const struct tt_comm_core *comm)
{
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && tt_fabric_is_used_by(comm->fabric, r) &&
            !tt_fabric_is_dead(comm->fabric, r))
            return true;
    return false;
}

/* Whether a kernel of this rank still runs whose call has failed. */
static bool outlives_call(struct tt_comm_core *comm)
{
    struct tt_kernel_life *life = &comm->kernel->life;
    if (!atomic_load_explicit(&life->nborrowed, memory_order_relaxed)) return false;
    if (!tt_kernel_has_stopped(life)) return true;
    tt_kernel_leave_all_peers(life, comm->fabric);
    return false;
}

/* How long a rank that leaves waits: from now on, and from when it is seen to have aborted. */
struct patience {
    int64_t deadline_ns, abort_ms;
    bool has_aborted;
};

/* Another thread may abort while this one waits. */
static bool may_wait(const struct tt_comm_core *comm, struct patience *patience)
{
    if (!patience->has_aborted && atomic_load(&comm->fabric->aborted)) {
        const int64_t deadline_ns = tt_deadline_ns(patience->abort_ms);
        if (deadline_ns < patience->deadline_ns) patience->deadline_ns = deadline_ns;
        patience->has_aborted = true;
    }
    return !tt_expired(patience->deadline_ns);
}

static void say_if_late(const struct tt_comm_core *comm, struct tt_late *late, int rank)
{
    char mine[128], other[128];
    int64_t waited_ms;
    if (!tt_late_is_due(late, comm->engine.late_ms, (uint64_t)rank, &waited_ms)) return;
    tt_fabric_name_rank(comm->fabric, comm->rank, mine, sizeof mine);
    tt_fabric_name_rank(comm->fabric, rank, other, sizeof other);
    TT_WARN("%s has waited %lld ms to leave communicator %s (TUTTI_LATE_MS); %s has not done all "
            "calls that this rank has done its part of",
            mine, (long long)waited_ms, comm->name, other);
}

/* Other ranks write to this rank's memory when they take its messages, perhaps long after this
 * rank's part of a call has ended: so it waits for those calls, until the deadline if there is one.
 */
static void await_calls(const struct tt_comm_core *comm)
{
    const int64_t timeout_ms = tt_engine_timeout(&comm->engine);
    const int64_t held_ns = tt_deadline_ns(timeout_ms > 0 ? timeout_ms : comm->kernel->held_ms);
    struct patience patience = {.deadline_ns = tt_deadline_ns(timeout_ms),
                                .abort_ms = comm->kernel->abort_ms};
    struct tt_pause pause = {0};
    struct tt_late late = {0};
    if (comm->kernel->proxy) tt_proxy_end(comm->kernel->proxy);
    for (;;) {
        const int rank = find_late(comm, tt_expired(held_ns));
        if (rank < 0 || !may_wait(comm, &patience)) return;
        say_if_late(comm, &late, rank);
        tt_pause(&pause);
    }
}

/* A rank that makes another call afterwards gets an error (may_use_peers); until its kernels have
 * ended they may use the memory. False: a kernel may still use this rank's memory. */
static bool await_peers(struct tt_comm_core *comm)
{
    struct tt_pause pause = {0};
    if (atomic_load_explicit(&comm->kernel->issued, memory_order_relaxed) || comm->kernel->graphs)
        await_calls(comm);
    tt_proxy_stop(comm->kernel->proxy); /* it uses the wires, as this thread does from now on */
    tt_fabric_leave(comm->fabric);
    struct patience patience = {.deadline_ns = tt_deadline_ns(LEAVE_MS),
                                .abort_ms = ABORT_KERNELS_MS};
    while ((outlives_call(comm) || any_uses_peers(comm)) && may_wait(comm, &patience))
        tt_pause(&pause);
    return !any_uses_peers(comm);
}

/* Waits for this rank's own kernels: one that waits in a stream of the user begins later, and looks
 * at the report before it ends at once. False: one has not begun yet. */
static bool await_own(const struct tt_kernel_part *on)
{
    const int64_t deadline_ns = tt_deadline_ns(OWN_MS);
    struct tt_pause pause = {0};
    while (has_kernels(on)) {
        if (tt_expired(deadline_ns)) return false;
        tt_pause(&pause);
    }
    return true;
}

static void close_part(struct tt_comm_core *comm)
{
    struct tt_kernel_part *on = comm->kernel;
    if (on) {
        tt_launching_close(&on->launching);
        tt_attended_close(&on->queue);
        free_all(on);
        comm->kernel = NULL;
        comm->context = NULL;
        comm->fabric->death_grace_ns = 0;
        comm->fabric->bridged = false;
    }
    comm->fabric->mixed = (struct tt_mixed_ranks){.is_mixed = false};
}

/* Kernels count messages on the GPU: replays have no turns. */
static void end_turns(struct tt_comm_core *comm)
{
    if (comm->kernel) tt_graphs_await(comm->kernel);
}

static void leave_part(struct tt_comm_core *comm)
{
    struct tt_kernel_part *on = comm->kernel;
    const bool complete = on->device && on->last;
    (void)is_reset(on); /* notes a reset of the GPU before anything enters its context */
    tt_launching_close(&on->launching);
    tt_graphs_end(on);
    on->peers_ended = await_peers(comm);
    const bool own_ended = !complete || (await_own(on) && tt_graphs_have_ended(on));
    tt_attended_close(&on->queue);
    tt_ranges_leave(comm, own_ended);
    comm->kernel = NULL;
    comm->context = NULL;
    tt_left_free(comm->gpu);
    if (is_reset(on) || (on->peers_ended && own_ended && tt_graphs_are_gone(on))) {
        free_all(on);
        return;
    }
    if (on->peers_ended && own_ended)
        free_memory(on);
    else
        TT_WARN("communicator %s: rank %d leaves its device memory to kernels that have not "
                "ended%s",
                comm->name, comm->rank,
                own_ended ? "" : ": its stream waits for work of the user's stream");
    on->left = (struct tt_left_part){
        .part = on, .gpu = comm->gpu, .is_unused = is_unused, .free = free_all};
    tt_left_add(&on->left);
}

/* Asked anew each time: another thread may be issuing a call. */
static bool has_ended_all(const struct tt_kernel_part *on)
{
    return __atomic_load_n(&on->life.report->ended, __ATOMIC_ACQUIRE) >=
           atomic_load_explicit(&on->issued, memory_order_relaxed);
}

/* Whether the messages of replays that have ended are on the network, which no call waits for; a
 * thread that has entered the engine may never leave it. */
static bool has_sent_replays(struct tt_comm_core *comm, bool *has_marked)
{
    struct tt_kernel_part *on = comm->kernel;
    if (!on->proxy || !on->graphs || !tt_kernel_has_ended(&on->life)) return true;
    if (tt_fabric_failure(comm->fabric, NULL) || atomic_load(&comm->fabric->aborted)) return true;
    if (!tt_engine_try_enter(&comm->engine)) return false;
    const bool sent = tt_proxy_has_sent(on->proxy, TT_BRIDGE_ALL_REPLAYS, has_marked) &&
                      tt_proxy_has_sent_replays(on->proxy);
    tt_engine_leave(&comm->engine);
    return sent;
}

/* The attendant may not have looked yet at kernels that have ended. Nothing here waits for a lock
 * for good: a signal whose handler ends the process may have interrupted who has it. */
static void settle(struct tt_comm_core *comm)
{
    struct tt_kernel_part *on = comm->kernel;
    const int64_t deadline_ns = tt_deadline_ns(SETTLE_MS);
    struct tt_pause pause = {0};
    bool has_marked = false;
    tt_graphs_tell(comm);
    tt_kernel_await_refused(&on->refusal, comm->fabric);
    while (has_ended_all(on) &&
           (!tt_attended_is_seen_empty(&on->queue) || !has_sent_replays(comm, &has_marked)) &&
           !tt_expired(deadline_ns))
        tt_pause(&pause);
}

static size_t bytes(const struct tt_comm_core *comm)
{
    /* What a rank has on its GPU is the GPU's memory. */
    return comm->kernel->ends ? tt_ends_bytes(comm->kernel->ends) : 0;
}

const struct tt_carried tt_carried_kernel = {.offer_bytes = sizeof(struct tt_device_offer),
                                             .offer = offer,
                                             .connect = connect_part,
                                             .examine = tt_kernel_examine,
                                             .measure = tt_kernel_measure,
                                             .agree = tt_kernel_agree,
                                             .close = close_part,
                                             .end_turns = end_turns,
                                             .leave = leave_part,
                                             .look = tt_graphs_look,
                                             .settle = settle,
                                             .bytes = bytes,
                                             .describe = tt_kernel_describe,
                                             .register_memory = tt_ranges_register,
                                             .deregister = tt_ranges_deregister};
