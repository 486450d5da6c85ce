/* What ranks of several hosts tell each other of themselves: the fabric's side of the wires. */
#include "base/clock.h"
#include "transport/fabric.h"

static tt_status check(void *fabric)
{
    return tt_fabric_check(fabric);
}

static tt_status failure(const void *fabric, const char **text)
{
    return tt_fabric_failure(fabric, text);
}

static uint64_t entered(const void *owner)
{
    const struct tt_fabric *fabric = owner;
    return atomic_load_explicit(&fabric->record->entered, memory_order_relaxed);
}

uint64_t tt_fabric_told_replays(const struct tt_fabric *fabric)
{
    const uint64_t replays = atomic_load_explicit(&fabric->record->replays, memory_order_acquire);
    const uint64_t sent = atomic_load_explicit(&fabric->replays_sent, memory_order_relaxed);
    return replays / 2 > sent ? 2 * sent + 1 : replays;
}

static void fill_record(const void *owner, struct tt_wire_record *record)
{
    const struct tt_fabric *fabric = owner;
    const struct tt_rank_record *mine = fabric->record;
    record->seq = entered(fabric);
    const struct tt_entry *entry = tt_fabric_entry(fabric, fabric->rank, record->seq);
    record->done = atomic_load_explicit(&mine->done, memory_order_relaxed);
    record->replays = (uint32_t)tt_fabric_told_replays(fabric);
    record->count = atomic_load_explicit(&entry->count, memory_order_relaxed);
    record->algorithm = atomic_load_explicit(&entry->algorithm, memory_order_relaxed);
    record->collective = atomic_load_explicit(&entry->collective, memory_order_relaxed);
    record->type = atomic_load_explicit(&entry->type, memory_order_relaxed);
    record->op = atomic_load_explicit(&entry->op, memory_order_relaxed);
    record->root = atomic_load_explicit(&entry->root, memory_order_relaxed);
}

/* Read by the thread that holds the engine, as this one does. */
static void take_entry(struct tt_entry *entry, const struct tt_wire_record *record)
{
    atomic_store_explicit(&entry->collective, record->collective, memory_order_relaxed);
    atomic_store_explicit(&entry->type, record->type, memory_order_relaxed);
    atomic_store_explicit(&entry->op, record->op, memory_order_relaxed);
    atomic_store_explicit(&entry->root, record->root, memory_order_relaxed);
    atomic_store_explicit(&entry->count, record->count, memory_order_relaxed);
    atomic_store_explicit(&entry->algorithm, record->algorithm, memory_order_relaxed);
    /* acquire: read_entry of executor/record.c */
    atomic_store_explicit(&entry->seq, record->seq, memory_order_release);
}

/* The count only grows; records may come late. */
static void take_replays(struct tt_rank_record *theirs, uint32_t lower_half)
{
    const uint64_t before = atomic_load_explicit(&theirs->replays, memory_order_relaxed);
    const uint32_t more = lower_half - (uint32_t)before;
    if (more < UINT32_MAX / 2) /* acquire: replays_of of carrier/kernel/replays.c */
        atomic_store_explicit(&theirs->replays, before + more, memory_order_release);
}

static void on_record(void *fabric, int peer, const struct tt_wire_record *record)
{
    struct tt_rank_record *theirs = tt_fabric_record(fabric, peer);
    atomic_store_explicit(&theirs->seen_ns, tt_now_ns(), memory_order_relaxed);
    if (record->seq > atomic_load_explicit(&theirs->entered, memory_order_relaxed)) {
        take_entry(tt_fabric_entry(fabric, peer, record->seq), record);
        /* acquire: latest_of of executor/record.c */
        atomic_store_explicit(&theirs->entered, record->seq, memory_order_release);
    }
    if (record->done > atomic_load_explicit(&theirs->done, memory_order_relaxed))
        atomic_store_explicit(&theirs->done, record->done, memory_order_release);
    take_replays(theirs, record->replays);
}

static void on_left(void *fabric, int peer, uint32_t state)
{
    atomic_store_explicit(&tt_fabric_record(fabric, peer)->state, state, memory_order_release);
}

static void add_dead(const void *fabric, char *text, size_t size)
{
    tt_fabric_add_dead(fabric, text, size);
}

static int on_gone(void *fabric, int rank, const char *text)
{
    return tt_fabric_note_gone(fabric, rank, text);
}

static tt_status on_missed_left(void *fabric, int peer)
{
    return tt_fabric_miss_left(fabric, peer);
}

static const char *reason(void *fabric)
{
    return tt_fabric_reason(fabric);
}

tt_status tt_fabric_start_wires(struct tt_fabric *fabric, struct tt_wires *wires,
                                const struct tt_wires_info *infos)
{
    fabric->client = (struct tt_wires_client){.context = &fabric->context,
                                              .hosts = fabric->hosts,
                                              .aborted = &fabric->aborted,
                                              .hurries = &fabric->hurries,
                                              .check = check,
                                              .failure = failure,
                                              .entered = entered,
                                              .record = fill_record,
                                              .on_record = on_record,
                                              .on_left = on_left,
                                              .add_dead = add_dead,
                                              .on_gone = on_gone,
                                              .on_missed_left = on_missed_left,
                                              .reason = reason};
    return tt_wires_start(wires, &fabric->client, infos);
}
