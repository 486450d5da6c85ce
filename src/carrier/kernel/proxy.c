/* The thread that moves messages over bridges and relays, and what binds their ends. */
#include "carrier/kernel/proxy.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/pause.h"
#include "base/thread.h"
#include "carrier/kernel/kernel.h"
#include "carrier/kernel/relay.h"
#include "device/call.h"
#include "driver/context.h"
#include "program/program.h"

/* How long it sleeps while it awaits nothing and nobody wakes it. A replay of a CUDA graph wakes
 * nobody: while there is a graph, the thread looks in between whether a kernel has begun, so often
 * in the first SOON_MS without work, and then less often. */
enum { IDLE_MS = 10, SOON_MS = 100, LOOK_US = 50, LOOK_LATER_US = 1000 };

/* Owned by struct tt_kernel_part. */
struct tt_proxy {
    /* immutable after creation */
    struct tt_comm_core *comm;
    struct tt_device_room *room;
    struct tt_ends *ends;
    bool *takes_slots; /* [nranks]: the rank's devices use memory of its GPU */
    enum tt_bridge_way way;
    struct tt_bridge_shape shape;
    pid_t process;
    /* owner: the issuing thread */
    bool is_started, has_ends;
    pthread_t thread;
    /* owner: who has entered the engine */
    struct tt_bridges *bridges;
    struct tt_relays *relays; /* NULL: all ranks have GPUs */
    bool has_ended;
    bool marks_replays; /* TT_BRIDGE_REPLAYS is set: */
    uint64_t nmarked;   /* collectives of replays that had ended then */
    /* owner: its thread */
    uint64_t nbegun;  /* kernels that had begun when it last looked at the bridges */
    int64_t moved_ns; /* when it last had something to do */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the thread waits for it: `stop` and `woken` */
    bool stop, woken;
};

/* ---- The thread ----------------------------------------------------------------------------- */

/* Kernels that have begun, also those of replays. */
static uint64_t count_begun(const struct tt_proxy *proxy)
{
    return tt_read_word(&proxy->comm->kernel->life.report->nbegun);
}

/* Whether messages of other ranks are awaited: for a kernel, or at the end. Also without that they
 * are taken, now and then: a rank that leaves waits until all that it has sent is. */
static bool awaits(const struct tt_proxy *proxy)
{
    const struct tt_kernel_part *on = proxy->comm->kernel;
    const struct tt_device_report *report = on->life.report;
    return proxy->has_ended || tt_read_word(&report->nended) < count_begun(proxy) ||
           tt_read_word(&report->ended) < atomic_load_explicit(&on->issued, memory_order_relaxed);
}

/* Whether nothing may be moved any more. */
static bool has_stopped(const struct tt_fabric *fabric)
{
    return tt_fabric_failure(fabric, NULL) || atomic_load(&fabric->aborted) ||
           (fabric->wires && tt_wires_have_left(fabric->wires));
}

/* A rank of another host. By who has entered the engine. */
static bool is_gone(const void *arg, int rank)
{
    const struct tt_fabric *fabric = arg;
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    /* release: on_left of transport/record.c */
    const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
    return state == TT_RANK_LEFT || state == TT_RANK_ABORTED ||
           tt_wires_lost_peer(fabric->wires, rank);
}

static tt_status copy_gpu(void *arg, bool to_gpu, void *gpu, void *host, size_t nbytes)
{
    const struct tt_fabric *fabric = arg;
    return tt_wires_copy_gpu(fabric->wires, to_gpu, gpu, host, nbytes);
}

static const struct tt_bridge_calls calls = {.is_gone = is_gone, .copy_gpu = copy_gpu};

static tt_status move_all(struct tt_proxy *proxy)
{
    const tt_status bridged = tt_bridges_move(proxy->bridges);
    const tt_status relayed = proxy->relays && bridged >= 0 ? tt_relays_move(proxy->relays) : TT_OK;
    return !proxy->relays || bridged < 0 || relayed > 0 ? bridged : relayed;
}

/* A connection that the program has closed is a failure at once: what kernels send over it is lost,
 * and no check may say so. */
static void drive_wires(struct tt_fabric *fabric)
{
    tt_ignore(tt_wires_progress(fabric->wires));
    const char *closed = tt_wires_closed_here(fabric->wires);
    if (closed) tt_ignore(tt_fabric_fail(fabric, TT_ERR_USAGE, "%s", closed));
}

/* Whether a rank that is gone is missed the checks of calls say. */
static tt_status move_entered(struct tt_proxy *proxy)
{
    struct tt_fabric *fabric = proxy->comm->fabric;
    if (fabric->wires) tt_wires_spare(fabric->wires, true);
    const tt_status moved = move_all(proxy);
    if (fabric->wires) tt_wires_spare(fabric->wires, false);
    if (moved < 0 && !tt_fabric_failure(fabric, NULL))
        tt_ignore(tt_fabric_fail(fabric, moved, "%s", tt_last_error()));
    if (fabric->wires) drive_wires(fabric);
    if (tt_fabric_failure(fabric, NULL)) tt_fabric_pass_on(fabric);
    return moved;
}

static bool have_work(const struct tt_proxy *proxy)
{
    return tt_bridges_have_work(proxy->bridges) ||
           (proxy->relays && tt_relays_have_work(proxy->relays));
}

/* TT_OK: something was moved. *idle: nothing is awaited. */
static tt_status move(struct tt_proxy *proxy, bool *idle)
{
    struct tt_engine *engine = &proxy->comm->engine;
    tt_status moved = TT_IN_PROGRESS;
    *idle = false;
    proxy->nbegun = count_begun(proxy);
    if (!tt_engine_try_enter(engine)) return moved;
    if (has_stopped(engine->fabric)) {
        *idle = true;
    } else {
        moved = move_entered(proxy);
        (void)tt_proxy_has_sent_replays(proxy);
    }
    if (!*idle && moved) *idle = !awaits(proxy) && !have_work(proxy);
    tt_engine_leave(engine);
    return moved;
}

/* How long it sleeps at once while it is idle. */
static int64_t pause_ns(const struct tt_proxy *proxy)
{
    const struct tt_kernel_life *life = &proxy->comm->kernel->life;
    if (!atomic_load_explicit(&life->may_replay, memory_order_relaxed))
        return IDLE_MS * INT64_C(1000000);
    const bool soon = tt_now_ns() - proxy->moved_ns < SOON_MS * INT64_C(1000000);
    return (soon ? LOOK_US : LOOK_LATER_US) * INT64_C(1000);
}

/* False: it is to stop. */
static bool rest(struct tt_proxy *proxy, bool idle)
{
    const int64_t end_ns = tt_deadline_ns(IDLE_MS), each_ns = idle ? pause_ns(proxy) : 0;
    pthread_mutex_lock(&proxy->lock);
    while (idle && !proxy->stop && !proxy->woken && !tt_expired(end_ns) &&
           count_begun(proxy) == proxy->nbegun)
        tt_condition_wait(&proxy->changed, &proxy->lock, tt_now_ns() + each_ns);
    proxy->woken = false;
    const bool stop = proxy->stop;
    pthread_mutex_unlock(&proxy->lock);
    return !stop;
}

static void *run(void *argument)
{
    struct tt_proxy *proxy = argument;
    struct tt_pause pause = {0};
    bool idle = false;
    while (rest(proxy, idle)) {
        const tt_status moved = move(proxy, &idle);
        if (!moved)
            pause = (struct tt_pause){0};
        else if (!idle)
            tt_pause(&pause);
        if (!idle) proxy->moved_ns = tt_now_ns();
    }
    return NULL;
}

static tt_status start(struct tt_proxy *proxy)
{
    if (proxy->is_started) return TT_OK;
    const int error = tt_thread_start(&proxy->thread, run, proxy);
    if (error)
        return tt_fail_errno(error, "cannot start the thread for messages of GPUs to other hosts%s",
                             tt_thread_hint(error));
    proxy->is_started = true;
    atomic_store_explicit(&proxy->comm->engine.is_driven, true, memory_order_relaxed);
    return TT_OK;
}

/* ---- Creation and end ----------------------------------------------------------------------- */

static enum tt_bridge_way find_way(const struct tt_comm_core *comm, const bool *takes_slots)
{
    const struct tt_wires *wires = comm->fabric->wires;
    bool all_take = true;
    if (!wires) return TT_NO_BRIDGES; /* of one host: there are relays only */
    for (int r = 0; r < comm->nranks; r++) all_take &= takes_slots[r];
    if (!tt_wires_all_have_devices(wires)) return TT_BRIDGES_BY_TCP;
    return all_take ? TT_BRIDGES_OF_GPUS : TT_BRIDGES_BY_RDMA;
}

enum tt_bridge_way tt_proxy_way(const struct tt_proxy *proxy)
{
    return proxy ? proxy->way : TT_NO_BRIDGES;
}

tt_status tt_proxy_create(struct tt_proxy **out, struct tt_comm_core *comm,
                          struct tt_device_room *room, struct tt_ends *ends,
                          const struct tt_device_offer *offers)
{
    const struct tt_device_links *links = tt_device_room_links(room);
    struct tt_proxy *proxy = calloc(1, sizeof *proxy);
    bool *takes_slots = calloc((size_t)comm->nranks, sizeof *takes_slots);
    if (!proxy || !takes_slots) {
        free(takes_slots);
        free(proxy);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges between GPUs");
    }
    for (int r = 0; r < comm->nranks; r++) takes_slots[r] = offers[r].takes_slots;
    *proxy = (struct tt_proxy){.comm = comm,
                               .room = room,
                               .ends = ends,
                               .takes_slots = takes_slots,
                               .way = find_way(comm, takes_slots),
                               .shape = {.nranks = comm->nranks,
                                         .nchannels = links->nchannels,
                                         .nslots = links->nslots,
                                         .slot_bytes = links->slot_bytes},
                               .process = getpid()};
    tt_status status = tt_bridges_create(&proxy->bridges, &proxy->shape, &calls, comm->fabric);
    if (!status && comm->fabric->mixed.is_mixed)
        status = tt_relays_create(&proxy->relays, &proxy->shape);
    if (status) {
        tt_bridges_destroy(proxy->bridges);
        free(takes_slots);
        free(proxy);
        return status;
    }
    pthread_mutex_init(&proxy->lock, NULL);
    tt_condition_init(&proxy->changed);
    *out = proxy;
    return TT_OK;
}

void tt_proxy_wake(struct tt_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->woken = true;
    pthread_cond_signal(&proxy->changed);
    pthread_mutex_unlock(&proxy->lock);
}

void tt_proxy_end(struct tt_proxy *proxy)
{
    struct tt_wires *wires = proxy->comm->fabric->wires;
    tt_engine_enter(&proxy->comm->engine);
    tt_bridges_end(proxy->bridges);
    proxy->has_ended = true;
    (void)tt_proxy_has_sent_replays(proxy);
    if (wires) (void)tt_wires_send_record(wires);
    tt_engine_leave(&proxy->comm->engine);
    tt_proxy_wake(proxy);
}

/* Calls end when a relay has moved all of theirs, and nothing is moved without a call. */
bool tt_proxy_has_ended(struct tt_proxy *proxy, int rank)
{
    if (tt_fabric_is_relayed(proxy->comm->fabric, rank)) return true;
    tt_engine_enter(&proxy->comm->engine);
    const bool ended = tt_bridges_has_ended(proxy->bridges, rank);
    if (ended) (void)tt_proxy_has_sent_replays(proxy); /* for this rank's last record */
    tt_engine_leave(&proxy->comm->engine);
    return ended;
}

bool tt_proxy_has_sent(struct tt_proxy *proxy, enum tt_bridge_mark mark, bool *has_marked)
{
    const struct tt_wires *wires = proxy->comm->fabric->wires;
    if (!*has_marked) tt_bridges_mark(proxy->bridges, mark);
    *has_marked = true;
    if (wires && tt_wires_closed_here(wires)) return false;
    return tt_bridges_have_sent(proxy->bridges, mark) &&
           (!proxy->relays || tt_relays_have_sent(proxy->relays, mark == TT_BRIDGE_EXCHANGES));
}

/* After tt_proxy_end: whether no rank needs anything more of this one. */
static bool all_have_ended(const struct tt_proxy *proxy)
{
    const struct tt_fabric *fabric = proxy->comm->fabric;
    for (int r = 0; proxy->has_ended && r < fabric->nranks; r++)
        if (!tt_fabric_is_local(fabric, r) && !tt_bridges_has_ended(proxy->bridges, r))
            return false;
    return proxy->has_ended;
}

/* The count is read before the mark is set: the messages of these calls are published. At the end
 * peers are told at once, so that nobody misses this rank if it dies while it waits to leave. */
bool tt_proxy_has_sent_replays(struct tt_proxy *proxy)
{
    struct tt_fabric *fabric = proxy->comm->fabric;
    const uint64_t nended = tt_read_word(&proxy->comm->kernel->life.report->replays) / 2;
    if (nended == atomic_load_explicit(&fabric->replays_sent, memory_order_relaxed)) return true;
    const bool are_taken = all_have_ended(proxy);
    if (are_taken || !proxy->marks_replays) proxy->nmarked = nended;
    if (!are_taken && !tt_proxy_has_sent(proxy, TT_BRIDGE_REPLAYS, &proxy->marks_replays))
        return false;
    proxy->marks_replays = false;
    atomic_store_explicit(&fabric->replays_sent, proxy->nmarked, memory_order_relaxed);
    if (proxy->has_ended && fabric->wires) (void)tt_wires_send_record(fabric->wires);
    return proxy->nmarked == nended;
}

void tt_proxy_stop(struct tt_proxy *proxy)
{
    if (!proxy || !proxy->is_started || proxy->process != getpid()) return;
    pthread_mutex_lock(&proxy->lock);
    proxy->stop = true;
    pthread_cond_signal(&proxy->changed);
    pthread_mutex_unlock(&proxy->lock);
    pthread_join(proxy->thread, NULL);
    proxy->is_started = false;
}

void tt_proxy_destroy(struct tt_proxy *proxy)
{
    if (!proxy) return;
    tt_proxy_stop(proxy);
    free(proxy->takes_slots);
    tt_bridges_destroy(proxy->bridges);
    tt_relays_destroy(proxy->relays);
    pthread_cond_destroy(&proxy->changed);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

/* ---- Binding -------------------------------------------------------------------------------- */

static bool is_new(const struct tt_proxy *proxy, const struct tt_relay_place *use)
{
    const struct tt_fabric *fabric = proxy->comm->fabric;
    if (tt_fabric_is_relayed(fabric, use->peer)) return !tt_relays_has(proxy->relays, use);
    return !tt_fabric_is_local(fabric, use->peer) &&
           !tt_bridges_has(proxy->bridges, use->peer, use->channel, use->outgoing);
}

/* With the engine entered. */
static tt_status bind_bridge(struct tt_proxy *proxy, const struct tt_relay_place *use,
                             const struct tt_device_end *end, bool in_gpu)
{
    struct tt_fabric *fabric = proxy->comm->fabric;
    const int channel = tt_fabric_bridge_channel(fabric);
    const struct tt_bridge_pair pair = {tt_fabric_tx(fabric, use->peer, channel),
                                        tt_fabric_rx(fabric, use->peer, channel)};
    return tt_bridges_bind(proxy->bridges, use->peer, use->channel, &pair, end, in_gpu);
}

/* With the engine entered. Kernels have as many channels of collectives as the host, and the last
 * one too is of sends and receives. */
static tt_status bind_relay(struct tt_proxy *proxy, const struct tt_relay_place *use,
                            const struct tt_device_end *end)
{
    struct tt_fabric *fabric = proxy->comm->fabric;
    const bool of_exchanges = (uint32_t)use->channel == proxy->shape.nchannels - 1;
    const int channel = of_exchanges ? tt_fabric_p2p_channel(fabric) : use->channel;
    struct tt_link *link = use->outgoing ? tt_fabric_tx(fabric, use->peer, channel)
                                         : tt_fabric_rx(fabric, use->peer, channel);
    return tt_relays_bind(proxy->relays, use, link, end);
}

/* In the first spare memory, where it stays spare if the end is not bound. What peers send may come
 * before kernels can find the end. */
static tt_status bind_end(struct tt_proxy *proxy, const struct tt_relay_place *use)
{
    const bool is_relayed = tt_fabric_is_relayed(proxy->comm->fabric, use->peer);
    const bool in_gpu = tt_ends_may_be_in_gpu(proxy->ends) && proxy->takes_slots[use->peer];
    const struct tt_end_memory memory = tt_ends_next(proxy->ends, in_gpu);
    struct tt_device_end end;
    if (is_relayed)
        tt_relays_lay(&proxy->shape, use->outgoing, memory.words, &end);
    else
        tt_bridges_lay(&proxy->shape, use->outgoing, memory.words, memory.slots, &end);
    const uint32_t at = tt_device_end_at(proxy->shape.nchannels, (uint32_t)use->peer,
                                         (uint32_t)use->channel, end.outgoing);
    TT_TRY(tt_ends_bind(proxy->ends,
                        &(struct tt_bound_end){&tt_device_room_links(proxy->room)->ends[at], end}));
    tt_engine_enter(&proxy->comm->engine);
    const tt_status status =
        is_relayed ? bind_relay(proxy, use, &end) : bind_bridge(proxy, use, &end, in_gpu);
    tt_engine_leave(&proxy->comm->engine);
    if (status) return status;
    tt_ends_take(proxy->ends, in_gpu);
    return TT_OK;
}

tt_status tt_proxy_bind(struct tt_proxy *proxy, const struct tt_relay_place *uses, int nuses)
{
    size_t nnew = 0, n_in_gpu = 0;
    for (int i = 0; i < nuses; i++) {
        if (!is_new(proxy, &uses[i])) continue;
        nnew++;
        n_in_gpu += proxy->takes_slots[uses[i].peer];
    }
    if (!nnew) return proxy->has_ends ? start(proxy) : TT_OK; /* it may have failed to start */
    TT_TRY(tt_ends_reserve(proxy->ends, &proxy->shape, nnew, n_in_gpu));
    proxy->has_ends = true;
    for (int i = 0; i < nuses; i++)
        if (is_new(proxy, &uses[i])) TT_TRY(bind_end(proxy, &uses[i]));
    return start(proxy);
}

static bool has_use(const struct tt_relay_place *uses, int nuses, const struct tt_relay_place *use)
{
    for (int i = 0; i < nuses; i++)
        if (uses[i].peer == use->peer && uses[i].channel == use->channel &&
            uses[i].outgoing == use->outgoing)
            return true;
    return false;
}

/* A program that kernels can run has so many ends at most. */
tt_status tt_proxy_bind_program(struct tt_proxy *proxy, const struct tt_program *program,
                                int copies)
{
    const struct tt_program_link *links = tt_program_links(program);
    struct tt_relay_place uses[TT_DEVICE_MOST_CHANNELS * TT_DEVICE_MOST_ENDS];
    int nuses = 0;
    for (uint32_t i = 0; i < program->nlinks; i++) {
        const struct tt_relay_place use = {links[i].peer, links[i].channel, links[i].outgoing};
        if (!has_use(uses, nuses, &use)) uses[nuses++] = use;
    }
    for (int copy = 0; copy < copies; copy++) {
        TT_TRY(tt_proxy_bind(proxy, uses, nuses));
        for (int i = 0; i < nuses; i++) uses[i].channel += program->nchannels;
    }
    return TT_OK;
}

/* ---- Calls that begin ----------------------------------------------------------------------- */

/* The messages of one side of a step, in all rounds. */
static void grant_links(struct tt_proxy *proxy, const struct tt_program_link *links, uint32_t n,
                        int channel, uint64_t nrounds)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct tt_relay_place place = {links[i].peer, channel, links[i].outgoing};
        if (tt_fabric_is_relayed(proxy->comm->fabric, place.peer))
            tt_relays_grant(proxy->relays, &place, nrounds);
    }
}

void tt_proxy_grant_program(struct tt_proxy *proxy, const struct tt_program *program,
                            const struct tt_binding *binding)
{
    const struct tt_program_link *links = tt_program_links(program);
    if (!proxy->relays) return;
    for (int part = 0; part < binding->copies * program->nchannels; part++) {
        const int channel = part % program->nchannels;
        const uint32_t nsteps = tt_program_channel(program, channel)->nsteps;
        for (uint32_t s = 0; s < nsteps; s++) {
            const struct tt_program_step *step = tt_program_step(program, channel, s);
            grant_links(proxy, links + step->recv, step->nrecv, part, binding->nrounds);
            grant_links(proxy, links + step->send, step->nsend, part, binding->nrounds);
        }
    }
    tt_proxy_wake(proxy); /* its kernel may have ended before: nothing else wakes the proxy */
}

void tt_proxy_grant_send(struct tt_proxy *proxy, int peer, bool outgoing, size_t nbytes)
{
    const struct tt_relay_place place = {peer, (int)proxy->shape.nchannels - 1, outgoing};
    tt_relays_grant(proxy->relays, &place, tt_relay_messages(&proxy->shape, nbytes));
}

bool tt_proxy_has_moved(const struct tt_proxy *proxy, int peer, bool outgoing)
{
    return tt_relays_have_moved(
        proxy->relays, &(struct tt_relay_place){peer, (int)proxy->shape.nchannels - 1, outgoing});
}
