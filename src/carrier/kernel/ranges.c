/* Offers memory of the rank's GPU to its peers, opens theirs, and makes the rows of calls. */
#include "carrier/kernel/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"
#include "driver/device_memory.h"
#include "driver/driver.h"
#include "program/resolve.h"

static_assert(TT_RANGE_HANDLE * sizeof(uint64_t) == TT_CONTEXT_HANDLE, "an offer holds a handle");

/* Of this rank. */
struct range {
    struct range *next;
    char *base;
    size_t nbytes;
    uint64_t allocation; /* struct tt_pointer's */
    uint64_t seq;
    int place;         /* on the board */
    int nregistered;   /* 0: of tuttiDeviceMemAlloc only */
    uint64_t seen;     /* changes of the board when the row was made */
    uint64_t *rows;    /* [most_rows][nranks], device memory: each answer makes a new one */
    int nrows;         /* that are made: the last one holds */
    uint64_t gone;     /* of one that is not offered any more: kernels up to this number may read
                        * its rows */
    uint64_t opened[]; /* [nranks]: the last row */
};

/* Of a peer. */
struct opened {
    uint64_t seq; /* of its offer; 0: none */
    void *memory; /* to be closed; NULL: not of another process, or it cannot be opened */
};

struct tt_ranges {
    struct range *own, *gone;
    uint64_t nmade;       /* of this rank, also those that are gone */
    uint64_t seen;        /* changes of the board when it was looked at */
    uint64_t memory_seen; /* tt_driver_memory_changes() when ranges were looked at */
    uint64_t refused_at;  /* 1 + the same when memory of a call could not be offered; 0: it could */
    bool has_warned;
    bool has_closed; /* memory of peers that the driver may still have */
    size_t nopened;
    struct opened opened[]; /* [nlocal][TT_MOST_RANGES] */
};

static struct tt_ranges *ranges_of(const struct tt_comm_core *comm)
{
    return comm->kernel->ranges;
}

static struct tt_segment_header *board_of(const struct tt_comm_core *comm)
{
    return comm->fabric->segment->header;
}

/* Whether the rank may read this one's memory, and this one its: it has a GPU here. */
static bool is_peer(const struct tt_comm_core *comm, int rank)
{
    return rank != comm->rank && tt_fabric_is_local(comm->fabric, rank) &&
           !tt_fabric_is_relayed(comm->fabric, rank);
}

/* Looked at after what has changed. Pairs with the acquire of whoever looks at the board. */
static void tell_change(const struct tt_comm_core *comm)
{
    atomic_fetch_add_explicit(&board_of(comm)->nranges, 1, memory_order_release);
}

static uint64_t changes_of(const struct tt_comm_core *comm)
{
    return atomic_load_explicit(&board_of(comm)->nranges, memory_order_acquire);
}

/* ---- Ranges of this rank -------------------------------------------------------------------- */

static int most_rows(const struct tt_comm_core *comm)
{
    return comm->fabric->nlocal;
}

static struct tt_range_offer *offer_of(const struct tt_comm_core *comm, int place)
{
    return tt_segment_offer(comm->fabric->segment, comm->fabric->local, place);
}

static int free_place(const struct tt_comm_core *comm)
{
    for (int i = 0; i < TT_MOST_RANGES; i++)
        if (!atomic_load_explicit(&offer_of(comm, i)->seq, memory_order_relaxed)) return i;
    return -1;
}

static void put_offer(const struct tt_comm_core *comm, const struct range *range,
                      const uint8_t handle[TT_CONTEXT_HANDLE])
{
    struct tt_range_offer *offer = offer_of(comm, range->place);
    uint64_t words[TT_RANGE_HANDLE];
    memcpy(words, handle, sizeof words);
    /* Release: who reads one of these words sees that the offer before is none any more (look_at).
     */
    atomic_store_explicit(&offer->base, (uint64_t)(uintptr_t)range->base, memory_order_release);
    atomic_store_explicit(&offer->nbytes, range->nbytes, memory_order_release);
    for (int i = 0; i < TT_RANGE_HANDLE; i++)
        atomic_store_explicit(&offer->handle[i], words[i], memory_order_release);
    atomic_store_explicit(&offer->seq, range->seq, memory_order_release); /* acquire: look_at */
    tell_change(comm);
}

/* Frees the rows of ranges that no kernel reads any more. */
static void free_gone(const struct tt_comm_core *comm)
{
    const struct tt_kernel_part *on = comm->kernel;
    const uint64_t ended = __atomic_load_n(&on->life.report->ended, __ATOMIC_ACQUIRE);
    for (struct range **at = &on->ranges->gone; *at;) {
        struct range *range = *at;
        if (range->gone > ended) {
            at = &range->next;
            continue;
        }
        *at = range->next;
        tt_context_free(comm->context, range->rows);
        free(range);
    }
}

static const char *why_refused(const struct tt_comm_core *comm, const struct tt_pointer *found)
{
    if (!found->has_handle)
        return "the driver has no IPC handle of it, as of memory of pools and virtual memory";
    return free_place(comm) < 0 ? "the rank offers as much memory as it can" : tt_last_error();
}

/* NULL: it cannot be offered. */
static struct range *add(const struct tt_comm_core *comm, const struct tt_pointer *found)
{
    struct tt_ranges *ranges = ranges_of(comm);
    const size_t nranks = (size_t)comm->nranks;
    const int place = free_place(comm);
    uint8_t handle[TT_CONTEXT_HANDLE];
    void *rows;
    free_gone(comm);
    if (place < 0 || !found->has_handle) return NULL;
    struct range *range = calloc(1, sizeof *range + nranks * sizeof range->opened[0]);
    if (!range) {
        tt_ignore(tt_fail(TT_ERR_SYSTEM, "out of memory for a range"));
        return NULL;
    }
    if (tt_context_share(comm->context, found->base, handle) ||
        tt_context_allocate(comm->context,
                            (size_t)most_rows(comm) * nranks * sizeof range->opened[0], &rows)) {
        free(range);
        return NULL;
    }
    *range = (struct range){.next = ranges->own,
                            .base = found->base,
                            .nbytes = found->nbytes,
                            .allocation = found->allocation,
                            .seq = ++ranges->nmade,
                            .place = place,
                            .rows = rows};
    for (size_t r = 0; r < nranks; r++) range->opened[r] = TT_NOT_OPENED;
    ranges->own = range;
    put_offer(comm, range, handle);
    return range;
}

/* Its peers close the memory when they look at the board. */
static void drop(const struct tt_comm_core *comm, struct range *range)
{
    struct tt_ranges *ranges = ranges_of(comm);
    struct range **at = &ranges->own;
    while (*at != range) at = &(*at)->next;
    *at = range->next;
    range->gone = atomic_load_explicit(&comm->kernel->issued, memory_order_relaxed);
    range->next = ranges->gone;
    ranges->gone = range;
    ranges->refused_at = 0;
    atomic_store_explicit(&offer_of(comm, range->place)->seq, 0, memory_order_release);
    tell_change(comm);
}

/* That holds the memory; NULL: none. */
static struct range *find(const struct tt_comm_core *comm, const void *memory, size_t nbytes)
{
    struct range *range = ranges_of(comm) ? ranges_of(comm)->own : NULL;
    for (; range; range = range->next) {
        const uintptr_t at = (uintptr_t)memory - (uintptr_t)range->base;
        if (at < range->nbytes && nbytes <= range->nbytes - at) return range;
    }
    return NULL;
}

void tt_ranges_register(struct tt_comm_core *comm, void *memory, size_t nbytes, void **handle)
{
    struct tt_pointer found;
    *handle = NULL;
    if (!ranges_of(comm)) return;
    if (tt_driver_pointer(memory, &found) || found.kind != TT_POINTER_DEVICE) return;
    struct range *range = find(comm, memory, 1);
    if (!range || range->allocation != found.allocation) range = add(comm, &found);
    if (range)
        range->nregistered++;
    else if (!ranges_of(comm)->has_warned)
        TT_INFO("communicator %s: the %zu bytes at %p, which rank %d has registered, are not read "
                "in place by its peers: %s",
                comm->name, nbytes, memory, comm->rank, why_refused(comm, &found));
    ranges_of(comm)->has_warned = ranges_of(comm)->has_warned || !range;
    *handle = range;
}

static bool is_allocated_here(const struct range *range)
{
    size_t nbytes;
    struct tt_pointer found;
    return tt_driver_find_memory(range->base, &nbytes) && !tt_driver_pointer(range->base, &found) &&
           found.allocation == range->allocation;
}

void tt_ranges_deregister(struct tt_comm_core *comm, void *handle)
{
    struct range *range = handle;
    if (!--range->nregistered && !is_allocated_here(range)) drop(comm, range);
}

/* ---- Ranges of peers ------------------------------------------------------------------------ */

/* Where the rank's GPU has the offered memory; 0: it cannot be opened. */
static uint64_t open_offer(const struct tt_comm_core *comm, int rank, uint64_t base,
                           uint64_t nbytes, const uint64_t handle[TT_RANGE_HANDLE],
                           struct opened *opened)
{
    const struct tt_peer_info *peers = comm->fabric->peers;
    uint8_t bytes[TT_CONTEXT_HANDLE];
    /* Within a process the links' memory has made the access. */
    if (peers[rank].process_id == peers[comm->rank].process_id) return base;
    /* The driver opens whole pieces of memory, of which a smaller allocation may be a part. */
    if (nbytes < TT_CONTEXT_SHARED) return 0;
    memcpy(bytes, handle, sizeof bytes);
    const tt_status status = tt_context_open_shared(comm->context, bytes, &opened->memory);
    if (!status) return (uint64_t)(uintptr_t)opened->memory;
    opened->memory = NULL;
    TT_INFO("communicator %s: rank %d does not read memory of rank %d in place: %s", comm->name,
            comm->rank, rank, tt_last_error());
    return 0;
}

static void close_opened(const struct tt_comm_core *comm, struct opened *opened)
{
    if (opened->memory) {
        tt_context_close_shared(comm->context, opened->memory);
        ranges_of(comm)->has_closed = true;
    }
    *opened = (struct opened){.seq = 0};
}

/* At the i-th offer of a peer. */
static void look_at(const struct tt_comm_core *comm, int rank, int i)
{
    struct tt_segment *segment = comm->fabric->segment;
    const int owner = comm->fabric->hosts->local_of[rank];
    struct opened *opened = &ranges_of(comm)->opened[owner * TT_MOST_RANGES + i];
    struct tt_range_offer *offer = tt_segment_offer(segment, owner, i);
    struct tt_range_answer *answer = tt_segment_answer(segment, comm->fabric->local, owner, i);
    uint64_t handle[TT_RANGE_HANDLE];
    const uint64_t seq = atomic_load_explicit(&offer->seq, memory_order_acquire);
    if (opened->seq == seq) return;
    close_opened(comm, opened);
    if (!seq) return;
    const uint64_t base = atomic_load_explicit(&offer->base, memory_order_acquire);
    const uint64_t nbytes = atomic_load_explicit(&offer->nbytes, memory_order_acquire);
    for (int k = 0; k < TT_RANGE_HANDLE; k++)
        handle[k] = atomic_load_explicit(&offer->handle[k], memory_order_acquire);
    /* It is another one by now, whose change comes. */
    if (atomic_load_explicit(&offer->seq, memory_order_relaxed) != seq) return;
    opened->seq = seq;
    const uint64_t address = open_offer(comm, rank, base, nbytes, handle, opened);
    atomic_store_explicit(&answer->address, address, memory_order_relaxed);
    atomic_store_explicit(&answer->seq, seq, memory_order_release); /* acquire: address_at */
    tell_change(comm);
}

static void look(const struct tt_comm_core *comm)
{
    struct tt_ranges *ranges = ranges_of(comm);
    const uint64_t changes = changes_of(comm);
    if (ranges->seen == changes) return;
    ranges->seen = changes;
    for (int r = 0; r < comm->nranks; r++)
        for (int i = 0; i < TT_MOST_RANGES && is_peer(comm, r); i++) look_at(comm, r, i);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Offers the memory where the library has given it; drops a range whose memory is gone. */
static tt_status prepare(const struct tt_comm_core *comm, const void *memory)
{
    struct tt_pointer found;
    size_t nbytes;
    if (!memory || (!ranges_of(comm)->own && !tt_driver_memory_changes())) return TT_OK;
    if (tt_driver_pointer(memory, &found) || found.kind != TT_POINTER_DEVICE) return TT_OK;
    for (struct range *range; (range = find(comm, memory, 1)); drop(comm, range)) {
        if (range->allocation == found.allocation) return TT_OK;
        if (range->nregistered)
            return tt_fail(TT_ERR_ARGUMENT,
                           "the %zu bytes at %p were freed while they were registered with "
                           "communicator %s, and %p is memory that was allocated since: call "
                           "tuttiCommDeregister before you free memory",
                           range->nbytes, (void *)range->base, comm->name, memory);
    }
    const uint64_t now = tt_driver_memory_changes() + 1;
    if (ranges_of(comm)->refused_at == now || !tt_driver_find_memory(found.base, &nbytes))
        return TT_OK;
    ranges_of(comm)->refused_at = add(comm, &found) ? 0 : now;
    return TT_OK;
}

/* Drops what tuttiMemFree has freed: else peers would keep it. */
static void drop_freed(const struct tt_comm_core *comm)
{
    const uint64_t changes = tt_driver_memory_changes();
    if (ranges_of(comm)->memory_seen == changes) return;
    ranges_of(comm)->memory_seen = changes;
    for (struct range *range = ranges_of(comm)->own, *next; range; range = next) {
        next = range->next;
        if (!range->nregistered && !is_allocated_here(range)) drop(comm, range);
    }
}

tt_status tt_ranges_prepare(const struct tt_pending_call *call)
{
    const struct tt_comm_core *comm = call->comm;
    if (!ranges_of(comm)) return TT_OK;
    struct tt_ranges *ranges = ranges_of(comm);
    drop_freed(comm);
    look(comm);
    /* Else the driver would keep what peers have freed. */
    if (ranges->has_closed) ranges->has_closed = !tt_context_let_go(comm->context);
    if (!call->exchange) {
        TT_TRY(prepare(comm, call->call.input));
        return prepare(comm, call->call.output);
    }
    for (int i = 0; i < call->exchange->ncalls; i++)
        if (call->exchange->calls[i].sends && is_peer(comm, call->exchange->calls[i].peer))
            TT_TRY(prepare(comm, call->exchange->calls[i].data));
    return TT_OK;
}

/* Where the peer has the range; 0: it has not. */
static uint64_t address_at(const struct tt_comm_core *comm, const struct range *range, int rank)
{
    const struct tt_fabric *fabric = comm->fabric;
    struct tt_range_answer *answer = tt_segment_answer(
        fabric->segment, fabric->hosts->local_of[rank], fabric->local, range->place);
    if (atomic_load_explicit(&answer->seq, memory_order_acquire) != range->seq) return 0;
    return atomic_load_explicit(&answer->address, memory_order_relaxed);
}

/* What the answers say now. A peer answers an offer once. */
static void update(const struct tt_comm_core *comm, struct range *range)
{
    const uint64_t changes = changes_of(comm);
    bool is_new = false;
    if (range->seen == changes) return;
    for (int r = 0; r < comm->nranks; r++) {
        if (!is_peer(comm, r) || range->opened[r] != TT_NOT_OPENED) continue;
        const uint64_t address = address_at(comm, range, r);
        if (!address) continue;
        range->opened[r] = address - (uint64_t)(uintptr_t)range->base;
        is_new = true;
    }
    range->seen = changes;
    if (!is_new) return;
    uint64_t *row = range->rows + (size_t)range->nrows * (size_t)comm->nranks;
    const size_t nbytes = (size_t)comm->nranks * sizeof *row;
    /* A call that follows fails with the driver's error, if this does. */
    if (!tt_context_upload(comm->context, row, range->opened, nbytes)) range->nrows++;
}

const uint64_t *tt_ranges_row(const struct tt_comm_core *comm, const void *memory, size_t nbytes)
{
    struct range *range = find(comm, memory, nbytes);
    if (!range) return NULL;
    update(comm, range);
    return range->nrows ? range->rows + (size_t)(range->nrows - 1) * (size_t)comm->nranks : NULL;
}

uint64_t tt_ranges_opened(const struct tt_comm_core *comm, const void *memory, size_t nbytes,
                          int peer)
{
    struct range *range = find(comm, memory, nbytes);
    if (!range || !is_peer(comm, peer)) return TT_NOT_OPENED;
    update(comm, range);
    return range->opened[peer];
}

/* ---- Creation and end ----------------------------------------------------------------------- */

tt_status tt_ranges_create(const struct tt_comm_core *comm, struct tt_ranges **out)
{
    const size_t n = (size_t)comm->fabric->nlocal * TT_MOST_RANGES;
    *out = NULL;
    if (comm->fabric->nlocal < 2 || !tt_config_int(TT_CONFIG_DEVICE_IN_PLACE)) return TT_OK;
    struct tt_ranges *ranges = calloc(1, sizeof *ranges + n * sizeof ranges->opened[0]);
    if (!ranges) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranges of GPUs", n);
    ranges->nopened = n;
    *out = ranges;
    return TT_OK;
}

static void free_list(struct tt_context *context, struct range *range)
{
    while (range) {
        struct range *next = range->next;
        tt_context_free(context, range->rows);
        free(range);
        range = next;
    }
}

void tt_ranges_destroy(struct tt_ranges *ranges, struct tt_context *context)
{
    if (!ranges) return;
    for (size_t i = 0; i < ranges->nopened; i++)
        if (ranges->opened[i].memory) tt_context_close_shared(context, ranges->opened[i].memory);
    free_list(context, ranges->own);
    free_list(context, ranges->gone);
    free(ranges);
}
