/* Which memory of the rank's GPU its peers are offered, and the rows of calls. The watch's thread
 * of the GPU (carrier/gpu_watch.h) closes what peers have taken back, and ends ranges that all
 * peers have closed: in the driver it may wait for kernels, and nobody who issues a call waits for
 * it. */
#include "carrier/kernel/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/pause.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/graphs.h"
#include "carrier/kernel/ranges_internal.h"
#include "device/device.h"
#include "driver/driver.h"
#include "program/resolve.h"

/* How long a rank waits until the others have closed memory: one that deregisters it, and one that
 * leaves. When the task looks again: while something is closing, so many times, and while there is
 * memory that may be freed or taken back. */
enum { CLOSE_MS = 5000, LEAVE_MS = 1000, BUSY_NS = 1000000, MOST_BUSY = 1000, IDLE_NS = 10000000 };

static struct tt_ranges *ranges_of(const struct tt_comm_core *comm)
{
    return comm->kernel->ranges;
}

/* ---- Ranges of this rank -------------------------------------------------------------------- */

/* That holds the memory; NULL: none. */
static struct tt_own_range *find_locked(const struct tt_ranges *ranges, const void *memory,
                                        size_t nbytes)
{
    for (struct tt_own_range *range = ranges->own; range; range = range->next) {
        const uintptr_t at = (uintptr_t)memory - (uintptr_t)range->base;
        if (at < range->nbytes && nbytes <= range->nbytes - at) return range;
    }
    return NULL;
}

static bool is_allocated_here(const struct tt_own_range *range)
{
    size_t nbytes;
    struct tt_pointer found;
    if (range->lent) return !tt_driver_is_freed(range->lent);
    return tt_driver_find_memory(range->base, &nbytes) && !tt_driver_pointer(range->base, &found) &&
           found.allocation == range->allocation;
}

/* Drops what tuttiMemFree has freed. */
static void drop_freed_locked(struct tt_ranges *ranges)
{
    for (struct tt_own_range *range = ranges->own, *next; range; range = next) {
        next = range->next;
        if (!range->nregistered && !is_allocated_here(range)) tt_offered_drop_locked(ranges, range);
    }
}

/* ---- Registrations -------------------------------------------------------------------------- */

static const char *why_refused(const struct tt_ranges *ranges, const struct tt_pointer *found)
{
    if (!found->has_handle)
        return "the driver has no IPC handle of it, as of memory of pools and virtual memory";
    return !tt_offered_has_room_locked(ranges) ? "the rank offers as much memory as it can"
                                               : tt_last_error();
}

static struct tt_own_range *register_locked(struct tt_ranges *ranges,
                                            const struct tt_pointer *found)
{
    struct tt_own_range *range = find_locked(ranges, found->base, 1);
    if (!range || range->allocation != found->allocation)
        range = tt_offered_add_locked(ranges, found);
    if (range) range->nregistered++;
    return range;
}

void tt_ranges_register(struct tt_comm_core *comm, void *memory, size_t nbytes, void **handle)
{
    struct tt_ranges *ranges = ranges_of(comm);
    struct tt_pointer found;
    *handle = NULL;
    if (!ranges) return;
    if (tt_driver_pointer(memory, &found) || found.kind != TT_POINTER_DEVICE) return;
    pthread_mutex_lock(&ranges->lock);
    struct tt_own_range *range = register_locked(ranges, &found);
    if (!range && !ranges->has_warned)
        TT_INFO("communicator %s: the %zu bytes at %p, which rank %d has registered, are not read "
                "in place by its peers: %s",
                comm->name, nbytes, memory, comm->rank, why_refused(ranges, &found));
    ranges->has_warned = ranges->has_warned || !range;
    pthread_mutex_unlock(&ranges->lock);
    *handle = range;
}

/* As tt_offered_reader_locked has it; -1: the range has ended. *is_offered: calls still send from
 * it. */
static int end_if_closed(struct tt_ranges *ranges, struct tt_own_range *range, bool *is_offered)
{
    pthread_mutex_lock(&ranges->lock);
    const int rank = tt_offered_reader_locked(ranges, range);
    *is_offered = range->is_offered;
    if (rank < 0) tt_offered_end_locked(ranges, range);
    pthread_mutex_unlock(&ranges->lock);
    return rank;
}

static tt_status fail_open(struct tt_ranges *ranges, struct tt_own_range *range, int rank,
                           bool is_offered)
{
    const struct tt_comm_core *comm = ranges->comm;
    char name[128];
    tt_fabric_name_rank(comm->fabric, rank, name, sizeof name);
    range->nregistered++;
    return tt_fail(
        TT_ERR_TIMEOUT,
        "communicator %s: %s still has the %zu bytes at %p open%s, and call tuttiCommDeregister "
        "once more before you free it",
        comm->name, name, range->nbytes, (void *)range->base,
        is_offered ? ", because calls of this rank that send from them have not ended: they may "
                     "wait for calls that other ranks have yet to make. The memory stays "
                     "registered: wait for your calls"
                   : ", and can close them when no kernel of the library is on its GPU: its "
                     "kernels may wait for calls that this rank has yet to make. The memory stays "
                     "registered: make these calls");
}

/* Other processes close the memory when the calls that send from it have ended, and their GPUs have
 * no kernels of the library. */
static tt_status await_closed(struct tt_ranges *ranges, struct tt_own_range *range)
{
    const int64_t timeout_ms = tt_engine_timeout(&ranges->comm->engine);
    const bool is_short = timeout_ms > 0 && timeout_ms < CLOSE_MS;
    const int64_t deadline_ns = tt_deadline_ns(is_short ? timeout_ms : CLOSE_MS);
    struct tt_pause pause = {0};
    bool is_offered;
    int rank;
    while ((rank = end_if_closed(ranges, range, &is_offered)) >= 0) {
        if (tt_expired(deadline_ns) || atomic_load(&ranges->comm->fabric->aborted))
            return fail_open(ranges, range, rank, is_offered);
        tt_pause(&pause);
    }
    return TT_OK;
}

tt_status tt_ranges_deregister(struct tt_comm_core *comm, void *handle, bool waits)
{
    struct tt_ranges *ranges = ranges_of(comm);
    struct tt_own_range *range = handle;
    pthread_mutex_lock(&ranges->lock);
    const bool is_last = !--range->nregistered;
    if (is_last && !range->is_gone && !is_allocated_here(range))
        tt_offered_drop_locked(ranges, range);
    /* Lent memory stays until it is closed, whether or not it is freed. */
    const bool is_awaited = is_last && range->is_gone && !range->lent && waits;
    range->is_awaited = is_awaited;
    pthread_mutex_unlock(&ranges->lock);
    return is_awaited ? await_closed(ranges, range) : TT_OK;
}

/* ---- The task ------------------------------------------------------------------------------- */

static int64_t run(struct tt_gpu_task *task)
{
    struct tt_ranges *ranges = (struct tt_ranges *)task;
    pthread_mutex_lock(&ranges->lock);
    drop_freed_locked(ranges);
    tt_offered_end_gone_locked(ranges);
    const bool gives = ranges->gives, closes = tt_opened_close_locked(ranges, false);
    ranges->gives = false;
    pthread_mutex_unlock(&ranges->lock);
    const bool done = (!gives && !closes) || tt_context_let_go_aside(ranges->comm->context);
    pthread_mutex_lock(&ranges->lock);
    if (closes && done) tt_opened_closed_locked(ranges);
    ranges->gives = ranges->gives || (gives && !done);
    const bool is_busy = !done || ranges->gives || ranges->gone;
    const bool is_idle = ranges->own || tt_opened_any_locked(ranges);
    pthread_mutex_unlock(&ranges->lock);
    ranges->nbusy = is_busy ? ranges->nbusy + 1 : 0;
    if (is_busy) return ranges->nbusy < MOST_BUSY ? BUSY_NS : IDLE_NS;
    return is_idle ? IDLE_NS : INT64_MAX;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Offers the memory where the library has given it; drops a range whose memory is gone. */
static tt_status prepare_locked(struct tt_ranges *ranges, const void *memory)
{
    struct tt_pointer found;
    size_t nbytes;
    if (!memory || (!ranges->own && !tt_driver_memory_changes())) return TT_OK;
    if (tt_driver_pointer(memory, &found) || found.kind != TT_POINTER_DEVICE) return TT_OK;
    for (struct tt_own_range *range; (range = find_locked(ranges, memory, 1));
         tt_offered_drop_locked(ranges, range)) {
        if (range->allocation == found.allocation) return TT_OK;
        if (range->nregistered)
            return tt_fail(TT_ERR_ARGUMENT,
                           "the %zu bytes at %p were freed while they were registered with "
                           "communicator %s, and %p is memory that was allocated since: call "
                           "tuttiCommDeregister before you free memory",
                           range->nbytes, (void *)range->base, ranges->comm->name, memory);
    }
    const uint64_t now = tt_driver_memory_changes() + 1;
    if (ranges->refused_at == now || !tt_driver_find_memory(found.base, &nbytes)) return TT_OK;
    ranges->refused_at = tt_offered_add_locked(ranges, &found) ? 0 : now;
    return TT_OK;
}

static tt_status prepare_all_locked(const struct tt_pending_call *call)
{
    struct tt_ranges *ranges = ranges_of(call->comm);
    const uint64_t changes = tt_driver_memory_changes();
    if (ranges->memory_seen != changes) drop_freed_locked(ranges);
    ranges->memory_seen = changes;
    if (!ranges->has_others) tt_offered_end_gone_locked(ranges);
    tt_opened_look_locked(ranges);
    if (!call->exchange) {
        TT_TRY(prepare_locked(ranges, call->call.input));
        return prepare_locked(ranges, call->call.output);
    }
    for (int i = 0; i < call->exchange->ncalls; i++)
        if (call->exchange->calls[i].sends &&
            tt_ranges_is_peer(ranges, call->exchange->calls[i].peer))
            TT_TRY(prepare_locked(ranges, call->exchange->calls[i].data));
    return TT_OK;
}

tt_status tt_ranges_prepare(const struct tt_pending_call *call)
{
    struct tt_ranges *ranges = ranges_of(call->comm);
    if (!ranges) return TT_OK;
    if (!atomic_load_explicit(&ranges->nown, memory_order_relaxed) && !ranges->looks_again &&
        ranges->seen == tt_ranges_changes(ranges) && !tt_driver_memory_changes())
        return TT_OK;
    pthread_mutex_lock(&ranges->lock);
    const tt_status status = prepare_all_locked(call);
    pthread_mutex_unlock(&ranges->lock);
    return status;
}

/* Where the peer has the range; 0: it has not. */
static uint64_t address_at(const struct tt_ranges *ranges, const struct tt_own_range *range,
                           int rank)
{
    struct tt_range_answer *answer = tt_range_answer_at(ranges, range, rank);
    if (atomic_load_explicit(&answer->seq, memory_order_acquire) != range->seq) return 0;
    return atomic_load_explicit(&answer->address, memory_order_acquire);
}

/* What the answers say now. A peer opens an offer once, and closes it when it is taken back. */
static void update_locked(const struct tt_ranges *ranges, struct tt_own_range *range)
{
    const uint64_t changes = tt_ranges_changes(ranges);
    if (range->seen == changes) return;
    for (int r = 0; r < ranges->comm->nranks; r++) {
        if (!tt_ranges_is_peer(ranges, r) || range->opened[r] != TT_NOT_OPENED) continue;
        const uint64_t address = address_at(ranges, range, r);
        if (!address) continue;
        range->opened[r] = address - (uint64_t)(uintptr_t)range->base;
        range->nopened++;
    }
    range->seen = changes;
}

/* A table of the call's, so that no copy to the GPU stands behind work of streams. */
static tt_status row_locked(struct tt_ranges *ranges, struct tt_own_range *range, uint64_t number,
                            const uint64_t **row)
{
    struct tt_kernel_part *on = ranges->comm->kernel;
    const size_t nbytes = (size_t)ranges->comm->nranks * sizeof **row;
    void *table;
    update_locked(ranges, range);
    if (!range->nopened) return TT_OK;
    TT_TRY(tt_device_ring_take(&on->ring, ranges->comm->context, on->life.report, nbytes, number,
                               &table));
    memcpy(table, range->opened, nbytes);
    range->last = number;
    *row = table;
    return TT_OK;
}

tt_status tt_ranges_row(const struct tt_comm_core *comm, const void *memory, size_t nbytes,
                        uint64_t number, const uint64_t **row)
{
    struct tt_ranges *ranges = ranges_of(comm);
    *row = NULL;
    if (!ranges || !atomic_load_explicit(&ranges->nown, memory_order_relaxed)) return TT_OK;
    pthread_mutex_lock(&ranges->lock);
    struct tt_own_range *range = find_locked(ranges, memory, nbytes);
    const tt_status status = range ? row_locked(ranges, range, number, row) : TT_OK;
    pthread_mutex_unlock(&ranges->lock);
    return status;
}

uint64_t tt_ranges_opened(const struct tt_comm_core *comm, const void *memory, size_t nbytes,
                          uint64_t number, int peer)
{
    struct tt_ranges *ranges = ranges_of(comm);
    uint64_t opened = TT_NOT_OPENED;
    if (!ranges || !atomic_load_explicit(&ranges->nown, memory_order_relaxed)) return opened;
    pthread_mutex_lock(&ranges->lock);
    struct tt_own_range *range = find_locked(ranges, memory, nbytes);
    if (range && tt_ranges_is_peer(ranges, peer)) {
        update_locked(ranges, range);
        opened = range->opened[peer];
        if (opened != TT_NOT_OPENED) range->last = number;
    }
    pthread_mutex_unlock(&ranges->lock);
    return opened;
}

/* ---- Creation and end ----------------------------------------------------------------------- */

tt_status tt_ranges_create(const struct tt_comm_core *comm, struct tt_ranges **out)
{
    const size_t n = (size_t)comm->fabric->nlocal * TT_MOST_RANGES;
    *out = NULL;
    if (comm->fabric->nlocal < 2 || !tt_config_int(TT_CONFIG_DEVICE_IN_PLACE)) return TT_OK;
    struct tt_ranges *ranges = calloc(1, sizeof *ranges + n * sizeof ranges->opened[0]);
    if (!ranges) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranges of GPUs", n);
    ranges->task.run = run;
    ranges->comm = comm;
    ranges->nplaces = n;
    ranges->opens_all = tt_config_int(TT_CONFIG_DEVICE_IN_PLACE) > 0;
    pthread_mutex_init(&ranges->lock, NULL);
    for (int r = 0; r < comm->nranks; r++)
        ranges->has_others = ranges->has_others || tt_ranges_is_other(ranges, r);
    *out = ranges;
    return TT_OK;
}

static void end_task(struct tt_ranges *ranges)
{
    if (ranges->is_watched) tt_gpu_watch_end_task(ranges->comm->kernel->life.watch, &ranges->task);
    ranges->is_watched = false;
}

/* Whether no other process has memory of this rank open any more. Where a kernel of this rank may
 * still send from it, the offers stand, and the others close it when they leave. */
static bool are_closed(struct tt_ranges *ranges, bool has_ended)
{
    while (ranges->own) tt_offered_drop_locked(ranges, ranges->own);
    for (struct tt_own_range *range = ranges->gone; range && has_ended; range = range->next)
        tt_offered_take_back_locked(ranges, range);
    tt_offered_end_gone_locked(ranges);
    return !ranges->gone;
}

void tt_ranges_leave(const struct tt_comm_core *comm, bool has_ended)
{
    struct tt_ranges *ranges = ranges_of(comm);
    struct tt_pause pause = {0};
    if (!ranges) return;
    end_task(ranges);
    pthread_mutex_lock(&ranges->lock);
    if (has_ended && tt_opened_close_locked(ranges, true) && tt_context_let_go(comm->context))
        tt_opened_closed_locked(ranges);
    for (struct tt_own_range *range = ranges->gone; range; range = range->next)
        range->is_awaited = false;
    const int64_t deadline_ns = tt_deadline_ns(LEAVE_MS);
    while (!are_closed(ranges, has_ended) && !tt_expired(deadline_ns)) tt_pause(&pause);
    if (ranges->gone)
        TT_WARN("communicator %s: rank %d leaves memory of its GPU that rank %d has open: free it "
                "when that rank has left, too",
                comm->name, comm->rank, tt_range_reader(ranges, ranges->gone));
    pthread_mutex_unlock(&ranges->lock);
}

static void free_list(struct tt_own_range *range)
{
    while (range) {
        struct tt_own_range *next = range->next;
        tt_driver_take_back(range->lent);
        free(range);
        range = next;
    }
}

void tt_ranges_destroy(struct tt_ranges *ranges, struct tt_context *context)
{
    if (!ranges) return;
    end_task(ranges);
    for (size_t i = 0; i < ranges->nplaces; i++)
        if (ranges->opened[i].memory && !ranges->opened[i].is_closing)
            tt_context_close_shared(context, ranges->opened[i].memory);
    free_list(ranges->own);
    free_list(ranges->gone);
    pthread_mutex_destroy(&ranges->lock);
    free(ranges);
}
