/* What a communicator has on a GPU: made when it is made, freed with it. */
#include "communicator/graphs.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "device/tables.h"
#include "driver/driver.h"
#include "driver/mps.h"
#include "executor/kernel_run.h"

/* How long a rank that leaves waits for kernels of calls in which it has no part, or that have
 * failed. */
enum { LEAVE_MS = 10000 };
/* How long a rank that leaves waits for kernels of its own, which may wait for the user. */
enum { OWN_MS = 1000 };

int tt_current_gpu(void)
{
    return tt_driver_is_in_use() ? tt_driver_current() : -1;
}

/* ---- What kernels may use longer than their communicator lives ------------------------------ */

/* What a replay after the communicator's end does not use. */
static void free_memory(struct tt_comm_device *on)
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
    if (on->stream) tt_context_stream_destroy(context, on->stream);
    on->stream = NULL;
    tt_device_room_destroy(on->room);
    on->room = NULL;
}

static void free_all(struct tt_comm_device *on)
{
    if (on->device) {
        free_memory(on);
        tt_graphs_destroy(on->graphs);
        tt_share_close(tt_device_shares(on->device), &on->place);
        tt_context_free(tt_device_context(on->device), on->state);
        tt_context_free_host(tt_device_context(on->device), on->report);
    }
    tt_device_close(on->device);
    free(on);
}

/* What kernels may still use. */
static struct tt_process_lock left_lock = TT_PROCESS_LOCK;
static struct tt_comm_device *left;
static pid_t left_by; /* this process, or its parent */

static void leave_to_kernels(struct tt_comm_device *on)
{
    tt_process_lock(&left_lock);
    on->next_left = left;
    left = on;
    tt_process_unlock(&left_lock);
}

/* Whether no kernel of the rank or of its peers can use what is left. */
static bool is_unused(const struct tt_comm_device *on)
{
    if (!on->peers_ended || !tt_graphs_have_ended(on) || !tt_graphs_are_gone(on)) return false;
    return !on->stream ||
           tt_context_stream_query(tt_device_context(on->device), on->stream) != TT_IN_PROGRESS;
}

/* In a child made by fork they are the parent's: their memory is not there, and a thread that the
 * child does not have may hold their locks. */
static void forget_inherited_locked(void)
{
    if (left_by != getpid()) left = NULL;
    left_by = getpid();
}

/* Frees what kernels of the rank itself used, where they have ended since. */
static void free_left(void)
{
    tt_process_lock(&left_lock);
    forget_inherited_locked();
    for (struct tt_comm_device **at = &left; *at;) {
        struct tt_comm_device *on = *at;
        if (!is_unused(on)) {
            at = &on->next_left;
            continue;
        }
        *at = on->next_left;
        free_all(on);
    }
    tt_process_unlock(&left_lock);
}

/* ---- Creation ------------------------------------------------------------------------------- */

static tt_status open_gpu(tuttiComm_t comm, struct tt_comm_device *on)
{
    TT_TRY(tt_device_open(comm->gpu, &on->device));
    struct tt_context *context = tt_device_context(on->device);
    void *memory;
    TT_TRY(tt_context_allocate(context, sizeof *on->state, &memory));
    on->state = memory;
    TT_TRY(tt_context_allocate_host(context, sizeof *on->report, &memory));
    on->report = memory;
    TT_TRY(tt_context_stream_create(context, &on->stream));
    return tt_attended_open(&on->queue);
}

static bool is_one_process(const struct tt_fabric *fabric)
{
    for (int r = 1; r < fabric->nranks; r++)
        if (fabric->peers[r].process_id != fabric->peers[0].process_id) return false;
    return true;
}

tt_status tt_comm_device_offer(tuttiComm_t comm, const struct tt_comm_links *links, uint64_t opener,
                               struct tt_device_offer *mine)
{
    free_left();
    comm->on_gpu = calloc(1, sizeof *comm->on_gpu);
    if (!comm->on_gpu) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator on a GPU");
    TT_TRY(open_gpu(comm, comm->on_gpu));
    comm->on_gpu->nthreads = (uint32_t)links->device_threads;
    const struct tt_device_room_config config = {
        .gpu = comm->gpu,
        .rank = comm->rank,
        .nranks = comm->nranks,
        .nchannels = links->device_channels,
        .nslots = (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOTS),
        .slot_bytes = (size_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
        .line_bytes = (size_t)tt_config_int(TT_CONFIG_DEVICE_LINE_BYTES),
        .process_id = comm->fabric->peers[comm->rank].process_id,
        .one_process = is_one_process(comm->fabric)};
    TT_TRY(tt_device_room_offer(&comm->on_gpu->room, &config, mine));
    mine->capacity = tt_device_capacity(comm->on_gpu->device);
    mine->uses_mps = tt_driver_uses_mps();
    mine->opener = opener;
    return TT_OK;
}

/* ---- Shares of the GPUs --------------------------------------------------------------------- */

static bool are_on_one_gpu(const struct tt_device_offer *a, const struct tt_device_offer *b)
{
    return !memcmp(a->uuid, b->uuid, sizeof a->uuid);
}

static bool are_in_one_process(const struct tt_device_offer *a, const struct tt_device_offer *b)
{
    return a->process_id == b->process_id;
}

/* The GPU of a rank. */
struct use {
    int nranks, nmine; /* that have it; of them in the rank's process */
    int capacity;      /* the least that any of their processes may use */
    bool has_mps;      /* clients of MPS: several processes run kernels there at the same time */
};

/* Limits of clients of MPS may leave them the same multiprocessors: so the least one counts. */
static struct use use_of(const struct tt_device_offer *offers, int nranks, int rank)
{
    struct use use = {.capacity = INT_MAX};
    for (int r = 0; r < nranks; r++) {
        if (!are_on_one_gpu(&offers[r], &offers[rank])) continue;
        const bool mine = are_in_one_process(&offers[r], &offers[rank]);
        use.nranks++;
        use.nmine += mine;
        use.has_mps = use.has_mps || (!mine && offers[r].uses_mps);
        if (offers[r].capacity < use.capacity) use.capacity = offers[r].capacity;
    }
    return use;
}

static tt_status fail_use(const struct use *use, int rank, int gpu)
{
    const char *mend = use->has_mps
                           ? ", give MPS clients more of it (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), "
                             "or set TUTTI_DEVICE_KERNELS=0 (through memory of the host)"
                           : "";
    const int most = use->capacity / TT_DEVICE_MOST_CHANNELS;
    return tt_fail(TT_ERR_USAGE,
                   "%d ranks share GPU %d of rank %d%s, which runs %d blocks of threads%s and %d "
                   "kernels at the same time; each rank needs %d blocks, all need %d: put at most "
                   "%d ranks on the GPU%s",
                   use->nranks, gpu, rank, use->has_mps ? " as clients of MPS" : "", use->capacity,
                   use->has_mps ? " of the client with the lowest limit" : "", TT_MOST_KERNELS,
                   TT_DEVICE_MOST_CHANNELS, use->nranks * TT_DEVICE_MOST_CHANNELS,
                   most < TT_MOST_KERNELS ? most : TT_MOST_KERNELS, mend);
}

/* The blocks of a rank: its part of the GPU, but no more than a call can have. The same for all
 * ranks, which run the same copies of a program. */
static tt_status find_blocks(const struct tuttiComm *comm, const struct tt_device_offer *offers,
                             int *nblocks, bool *must_fail)
{
    const int nchannels = (int)tt_device_room_links(comm->on_gpu->room)->nchannels - 1;
    const int flows = 2 * comm->nranks; /* of a group of sends and receives with all ranks */
    *nblocks = (flows + TT_DEVICE_MOST_FLOWS - 1) / TT_DEVICE_MOST_FLOWS;
    if (*nblocks < nchannels) *nblocks = nchannels;
    for (int r = 0; r < comm->nranks; r++) {
        const struct use use = use_of(offers, comm->nranks, r);
        const int part = use.capacity / use.nranks;
        if (part < TT_DEVICE_MOST_CHANNELS || use.nranks > TT_MOST_KERNELS) {
            *must_fail = use.has_mps; /* without, the host does it */
            return fail_use(&use, r, offers[r].gpu);
        }
        if (part < *nblocks) *nblocks = part;
    }
    return TT_OK;
}

static tt_status take_share(tuttiComm_t comm, const struct tt_comm_config *config,
                            const struct tt_device_offer *offers, int nblocks)
{
    struct tt_comm_device *on = comm->on_gpu;
    const struct tt_device_offer *mine = &offers[comm->rank];
    const struct use use = use_of(offers, comm->nranks, comm->rank);
    struct tt_share_request request = {.context = tt_device_context(on->device),
                                       .stream = on->stream,
                                       .team = comm->fabric->segment->id,
                                       .rank = comm->rank,
                                       .least = TT_DEVICE_MOST_CHANNELS,
                                       .wanted = nblocks,
                                       .nranks = use.has_mps ? use.nranks : use.nmine,
                                       .nteam = use.nmine,
                                       .capacity = use.capacity,
                                       .opener = mine->opener,
                                       .parent = config->parent_share};
    for (int r = 0; r < comm->nranks; r++) {
        if (!are_on_one_gpu(&offers[r], mine) || !are_in_one_process(&offers[r], mine) ||
            offers[r].opener != mine->opener)
            continue;
        request.nopened++;
        request.place += r < comm->rank;
    }
    TT_TRY(tt_share_open(tt_device_shares(on->device), &request, &on->place));
    const int has = on->place.share->nblocks;
    on->most_blocks = has < nblocks ? has : nblocks;
    return TT_OK;
}

/* By the first of the ranks whose GPUs are used in this way, so that a job says it once. Of ranks
 * that were split off the parent's has said it. */
static void warn_of_time_slices(const struct tuttiComm *comm, const struct tt_comm_config *config,
                                const struct tt_device_offer *offers)
{
    struct use use;
    int rank = -1;
    do {
        if (++rank > comm->rank) return;
        use = use_of(offers, comm->nranks, rank);
    } while (use.nmine == use.nranks || use.has_mps);
    if (rank == comm->rank && !config->parent_share)
        TT_WARN_ONCE(
            "communicator %s: %d ranks of several processes share GPU %d without NVIDIA's MPS, "
            "which is slow: the driver lets the processes take turns, some milliseconds for each "
            "step of a call. Start MPS (nvidia-cuda-mps-control -d) before the job, run the ranks "
            "as threads of one process, or set TUTTI_DEVICE_KERNELS=0: calls then go through "
            "memory of the host (if MPS is there and was not found: TUTTI_MPS=1)",
            comm->name, use.nranks, comm->gpu);
}

tt_status tt_comm_device_connect(tuttiComm_t comm, const struct tt_comm_config *config,
                                 const struct tt_device_offer *offers, bool *must_fail)
{
    struct tt_comm_device *on = comm->on_gpu;
    int nblocks;
    *must_fail = false;
    TT_TRY(tt_device_room_connect(on->room, offers));
    TT_TRY(find_blocks(comm, offers, &nblocks, must_fail));
    TT_TRY(take_share(comm, config, offers, nblocks));
    warn_of_time_slices(comm, config, offers);
    TT_INFO(
        "communicator %s: rank %d is on GPU %d with %d other ranks; at most %d blocks a call%s",
        comm->name, comm->rank, comm->gpu, tt_device_room_sharers(on->room) - 1, on->most_blocks,
        on->place.takes_turns ? ", in turn with other communicators, which have all blocks" : "");
    return TT_OK;
}

/* ---- The end -------------------------------------------------------------------------------- */

/* Whether a rank has ended all calls that this rank has, has left or died. */
static bool has_done(const struct tuttiComm *comm, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->fabric, rank);
    const uint64_t last = atomic_load_explicit(&comm->fabric->record->done, memory_order_relaxed);
    return (atomic_load_explicit(&record->done, memory_order_acquire) >= last &&
            tt_graphs_has_replayed(comm, rank)) ||
           atomic_load_explicit(&record->state, memory_order_acquire) != TT_RANK_HERE ||
           tt_fabric_is_dead(comm->fabric, rank);
}

static bool all_have_done(const struct tuttiComm *comm)
{
    if (tt_fabric_failure_text(comm->fabric)[0]) return true;
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !has_done(comm, r)) return false;
    return true;
}

static uint32_t count_left(const struct tuttiComm *comm)
{
    uint32_t n = 0;
    for (int r = 0; r < comm->nranks; r++)
        n += atomic_load_explicit(&tt_fabric_record(comm->fabric, r)->state,
                                  memory_order_acquire) != TT_RANK_HERE;
    return n;
}

/* Whether the rank has kernels which may use memory of this rank, which has left. First `reading`,
 * which covers the time until `captured` is set (graphs.c). The ranks that a rank has counted as
 * left are among those that are counted here later: if they are as many, this one is among them. */
static bool uses_peers(const struct tuttiComm *comm, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->fabric, rank);
    if (atomic_load_explicit(&record->reading, memory_order_acquire)) return true;
    const uint32_t captured = atomic_load_explicit(&record->captured, memory_order_acquire);
    return captured && captured - 1 < count_left(comm);
}

static bool any_uses_peers(const struct tuttiComm *comm)
{
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && uses_peers(comm, r) && !tt_fabric_is_dead(comm->fabric, r))
            return true;
    return false;
}

static void pause_briefly(void)
{
    sched_yield();
    usleep(50);
}

/* Whether a kernel of this rank still runs whose call has failed. */
static bool outlives_call(struct tuttiComm *comm)
{
    const struct tt_comm_device *on = comm->on_gpu;
    if (!atomic_load_explicit(&comm->engine.nborrowed, memory_order_relaxed)) return false;
    if (!tt_kernel_has_stopped(on->report, tt_device_context(on->device), on->stream)) return true;
    tt_kernel_leave_all_peers(&comm->engine);
    return false;
}

/* Other ranks write to this rank's memory when they take its messages, perhaps long after this
 * rank's part of a call has ended: so it waits for those calls. A rank that makes another call
 * afterwards gets an error (may_use_peers); until its kernels have ended they may use the memory.
 * False: a kernel may still use this rank's memory. */
static bool await_peers(struct tuttiComm *comm)
{
    const int64_t calls_ns = tt_deadline_ns(comm->timeout_ms > 0 ? comm->timeout_ms : LEAVE_MS);
    const bool has_called = comm->on_gpu->issued || comm->on_gpu->graphs;
    while (has_called && !all_have_done(comm) && !tt_expired(calls_ns)) pause_briefly();
    const int64_t kernels_ns = tt_deadline_ns(LEAVE_MS);
    tt_fabric_leave(comm->fabric);
    while ((outlives_call(comm) || any_uses_peers(comm)) && !tt_expired(kernels_ns))
        pause_briefly();
    return !any_uses_peers(comm);
}

/* Waits for this rank's own kernels: one that waits in a stream of the user begins later, and looks
 * at the report before it ends at once. False: it has not begun yet. */
static bool await_own(const struct tt_comm_device *on)
{
    const int64_t deadline_ns = tt_deadline_ns(OWN_MS);
    struct tt_context *context = tt_device_context(on->device);
    while (tt_context_stream_query(context, on->stream) == TT_IN_PROGRESS) {
        if (tt_expired(deadline_ns)) return false;
        pause_briefly();
    }
    return true;
}

void tt_comm_device_drop(tuttiComm_t comm)
{
    struct tt_comm_device *on = comm->on_gpu;
    if (!on) return;
    tt_attended_close(&on->queue);
    free_all(on);
    comm->on_gpu = NULL;
}

void tt_comm_device_free(tuttiComm_t comm)
{
    struct tt_comm_device *on = comm->on_gpu;
    if (!on) return;
    const bool complete = on->device && on->stream;
    tt_graphs_end(on);
    on->peers_ended = await_peers(comm);
    const bool own_ended = !complete || (await_own(on) && tt_graphs_have_ended(on));
    tt_attended_close(&on->queue);
    comm->on_gpu = NULL;
    free_left();
    if (on->peers_ended && own_ended && tt_graphs_are_gone(on)) {
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
    leave_to_kernels(on);
}
