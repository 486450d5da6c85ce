/* Collectives in the records of the ranks: what this rank has entered, and whether the others have
 * entered the same. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

enum {
    EXPLAIN_MS = 500, /* how long the record of a call may come after its message */
    /* A rank that waits is seen every millisecond on its host, and every second elsewhere; but it
     * may get no core for long. */
    SILENT_MS = 2000,
};

/* How long a call waits, in which nothing moves, before it seeks ranks that are gone. */
#define SEEK_AFTER_NS INT64_C(3000000000)
/* The most that counts between two looks at a wait: for longer the process was stopped. */
#define MOST_PAUSE_NS INT64_C(100000000)

/* A call as its rank entered it. */
struct entered {
    uint64_t seq;
    struct tt_call_entry call;
};

struct tt_call_entry tt_call_entry_make(const struct tt_program *program, size_t count,
                                        const struct tt_reduction *reduction)
{
    return (struct tt_call_entry){.count = count,
                                  .algorithm = program->algorithm,
                                  .collective = program->collective,
                                  .type = reduction->type,
                                  .op = reduction->op,
                                  .root = program->root};
}

void tt_record_entry(const struct tt_engine *engine, const struct tt_call *call, uint64_t turn)
{
    const struct tt_call_entry *from = &call->entry;
    const struct tt_fabric *fabric = engine->fabric;
    struct tt_entry *entry = tt_segment_entry(fabric->segment, fabric->local, turn);
    atomic_store_explicit(&entry->seq, 0, memory_order_relaxed);
    /* read_entry, when it sees a new field, also sees that the entry is invalid. */
    atomic_store_explicit(&entry->collective, from->collective, memory_order_release);
    atomic_store_explicit(&entry->type, from->type, memory_order_release);
    atomic_store_explicit(&entry->op, from->op, memory_order_release);
    atomic_store_explicit(&entry->root, from->root, memory_order_release);
    atomic_store_explicit(&entry->count, from->count, memory_order_release);
    atomic_store_explicit(&entry->algorithm, from->algorithm, memory_order_release);
    /* acquire: read_entry */
    atomic_store_explicit(&entry->seq, turn, memory_order_release);
    /* acquire: latest_of */
    atomic_store_explicit(&fabric->record->entered, turn, memory_order_release);
}

/* The call in an entry; seq 0: the entry is invalid or being written. */
static struct entered read_entry(const struct tt_entry *entry)
{
    /* release: tt_record_entry */
    const uint64_t seq = atomic_load_explicit(&entry->seq, memory_order_acquire);
    const struct tt_call_entry call = {
        /* release: tt_record_entry */
        .count = atomic_load_explicit(&entry->count, memory_order_acquire),
        .algorithm = atomic_load_explicit(&entry->algorithm, memory_order_acquire),
        .collective = atomic_load_explicit(&entry->collective, memory_order_acquire),
        .type = atomic_load_explicit(&entry->type, memory_order_acquire),
        .op = atomic_load_explicit(&entry->op, memory_order_acquire),
        .root = atomic_load_explicit(&entry->root, memory_order_acquire),
    };
    const bool whole = atomic_load_explicit(&entry->seq, memory_order_relaxed) == seq;
    return whole && call.collective < TT_NCOLLECTIVES ? (struct entered){seq, call}
                                                      : (struct entered){0};
}

/* The rank's call with this number; seq 0: not entered yet, or too long ago. */
static struct entered numbered(const struct tt_fabric *fabric, int rank, uint64_t seq)
{
    const struct entered call = read_entry(tt_fabric_entry(fabric, rank, seq));
    return call.seq == seq ? call : (struct entered){0};
}

/* The latest call that the rank has entered; seq 0: none. */
static struct entered latest_of(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    return numbered(fabric, rank, atomic_load_explicit(&record->entered, memory_order_acquire));
}

static struct entered entered_of(const struct tt_work *work)
{
    return (struct entered){work->turn, work->collective.call->entry};
}

static bool is_of_kernels(const struct tt_call_entry *call)
{
    return call->type & TT_ENTRY_ON_DEVICE;
}

/* b: the peer's. Whether kernels carry a call is not asked of ranks of which one has no GPU. */
static bool agree(const struct tt_fabric *fabric, int peer, const struct tt_call_entry *a,
                  const struct tt_call_entry *b)
{
    const uint32_t ignored = tt_fabric_is_relayed(fabric, peer) ? TT_ENTRY_ON_DEVICE : 0;
    return a->collective == b->collective && !((a->type ^ b->type) & ~ignored) && a->op == b->op &&
           a->root == b->root && a->count == b->count && a->algorithm == b->algorithm;
}

/* " (count 5, float, sum, root 0)". Returns its length. */
static int describe_data(const struct tt_call_entry *call, char *text, size_t size)
{
    const enum tt_collective collective = (enum tt_collective)call->collective;
    const enum tt_type type = (enum tt_type)(call->type & ~(uint32_t)TT_ENTRY_ON_DEVICE);
    int used = snprintf(text, size, " (count %llu, %s", (unsigned long long)call->count,
                        tt_type_name(type));
    if (tt_collective_reduces(collective))
        used +=
            snprintf(text + used, size - (size_t)used, ", %s", tt_op_name((enum tt_op)call->op));
    if (tt_collective_has_root(collective))
        used += snprintf(text + used, size - (size_t)used, ", root %d", call->root);
    return used + snprintf(text + used, size - (size_t)used, ")");
}

/* Without a number where that is 0. */
static void describe(const struct entered *entered, char *text, size_t size)
{
    const struct tt_call_entry *call = &entered->call;
    const enum tt_collective collective = (enum tt_collective)call->collective;
    int used = snprintf(text, size, "%s", tt_collective_name(collective));
    if (entered->seq)
        used += snprintf(text + used, size - (size_t)used, " number %llu",
                         (unsigned long long)entered->seq);
    if (tt_collective_has_data(collective))
        used += describe_data(call, text + used, size - (size_t)used);
    if (is_of_kernels(call)) snprintf(text + used, size - (size_t)used, " on a GPU");
}

void tt_call_describe(const struct tt_call_entry *call, char *text, size_t size)
{
    describe(&(struct entered){0, *call}, text, size);
}

void tt_collective_describe(const struct tt_work *work, char *text, size_t size)
{
    const struct entered mine = entered_of(work);
    describe(&mine, text, size);
}

static void append_algorithm(const struct tt_engine *engine, const struct tt_call_entry *call,
                             char *text, size_t size)
{
    const enum tt_collective collective = (enum tt_collective)call->collective;
    const char *name =
        engine->algorithm_name ? engine->algorithm_name(collective, call->algorithm) : NULL;
    const size_t used = strlen(text);
    if (name)
        snprintf(text + used, size - used, " with algorithm %s", name);
    else
        snprintf(text + used, size - used, " with an algorithm unknown here (id %#llx)",
                 (unsigned long long)call->algorithm);
}

/* The record of a rank of another host may come later than its message, and so may that of a rank
 * on a GPU, whose kernel runs before a thread of the host enters the call. This rank waits a little
 * for the peer's record; one of another host gets this rank's. */
static bool may_explain_itself(struct tt_work *work, int peer)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const bool local = tt_fabric_is_local(fabric, peer);
    const bool begins_late =
        is_of_kernels(&work->collective.call->entry) || tt_fabric_is_relayed(fabric, peer);
    if ((local && !begins_late) || numbered(fabric, peer, work->turn).seq) return false;
    if (!work->collective.mismatch_ns) {
        work->collective.mismatch_ns = tt_deadline_ns(EXPLAIN_MS);
        if (!local) tt_wires_send_record(fabric->wires);
    }
    return !tt_expired(work->collective.mismatch_ns);
}

/* Ranks that agree on the latest call of both may have disagreed on an earlier one in which neither
 * took a message of the other: finds the last call of the same number that differs. */
static void find_difference(const struct tt_fabric *fabric, int peer, struct entered *own,
                            struct entered *other)
{
    for (uint64_t seq = own->seq < other->seq ? own->seq : other->seq; seq > 0; seq--) {
        const struct entered mine = numbered(fabric, fabric->rank, seq);
        const struct entered theirs = numbered(fabric, peer, seq);
        if (!mine.seq || !theirs.seq) return;
        if (agree(fabric, peer, &mine.call, &theirs.call)) continue;
        *own = mine;
        *other = theirs;
        return;
    }
}

static bool has_aborted(const struct tt_fabric *fabric, int rank)
{
    /* release: tt_fabric_abort, on_left of transport/record.c */
    return atomic_load_explicit(&tt_fabric_record(fabric, rank)->state, memory_order_acquire) ==
           TT_RANK_ABORTED;
}

/* What a rank that has aborted called is not to blame. */
tt_status tt_collective_mismatch(struct tt_work *work, int peer)
{
    struct tt_fabric *fabric = work->engine->fabric;
    char name[128], own_name[128], theirs[240], mine[240];
    if (has_aborted(fabric, peer)) TT_TRY(tt_fabric_check_peers(fabric, work->turn, -1, false));
    if (may_explain_itself(work, peer)) return TT_IN_PROGRESS;
    const struct entered same = numbered(fabric, peer, work->turn);
    struct entered own = entered_of(work), other = same.seq ? same : latest_of(fabric, peer);
    find_difference(fabric, peer, &own, &other);
    tt_fabric_name_rank(fabric, peer, name, sizeof name);
    tt_fabric_name_rank(fabric, fabric->rank, own_name, sizeof own_name);
    if (other.seq)
        describe(&other, theirs, sizeof theirs);
    else
        snprintf(theirs, sizeof theirs, "something else (it has not said what)");
    describe(&own, mine, sizeof mine);
    const char *hint = "";
    if (other.seq && own.call.collective == other.call.collective &&
        own.call.count == other.call.count && own.call.algorithm != other.call.algorithm) {
        append_algorithm(work->engine, &own.call, mine, sizeof mine);
        append_algorithm(work->engine, &other.call, theirs, sizeof theirs);
        hint = "; the ranks chose different algorithms: force the same one on all";
    } else if (other.seq && agree(fabric, peer, &own.call, &other.call) &&
               work->collective.binding->table_at) {
        hint = "; the counts that they pass for each rank differ";
    }
    return tt_fabric_fail(fabric, TT_ERR_USAGE,
                          "ranks disagree in communicator %s: %s called %s, %s called %s%s",
                          work->engine->name, own_name, mine, name, theirs, hint);
}

bool tt_is_unheard(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    return !tt_fabric_is_local(fabric, rank) &&
           !atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
}

bool tt_is_silent(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    const int64_t seen_ns = atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
    return !tt_is_unheard(fabric, rank) && tt_now_ns() - seen_ns >= INT64_C(1000000) * SILENT_MS;
}

/* Whether a call waits for this rank, which is silent. Ranks that wait themselves are not to blame.
 */
static bool is_to_blame(const struct tt_work *work, int rank)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    if (rank == fabric->rank || !tt_is_silent(fabric, rank)) return false;
    return atomic_load_explicit(&record->done, memory_order_acquire) < work->turn;
}

bool tt_collective_knows(const struct tt_work *work)
{
    bool known = false;
    for (int r = 0; !known && r < work->engine->fabric->nranks; r++) known = is_to_blame(work, r);
    return known;
}

static bool has_entered(const struct tt_work *work, int rank)
{
    return latest_of(work->engine->fabric, rank).seq >= work->turn;
}

/* Adds what is known of a rank that is missing, or silent. */
static void add_rank(const struct tt_work *work, int rank, char *text, size_t size)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    const int64_t seen_ns = atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
    const long long ago_ms = (long long)((tt_now_ns() - seen_ns) / 1000000);
    const struct entered latest = latest_of(fabric, rank);
    const size_t used = strlen(text);
    char name[128], call[160] = "";
    tt_fabric_name_rank(fabric, rank, name, sizeof name);
    if (latest.seq) describe(&latest, call, sizeof call);
    if (tt_is_unheard(fabric, rank))
        snprintf(text + used, size - used, "; nothing has been heard of %s", name);
    else if (latest.seq < work->turn)
        snprintf(text + used, size - used, "; %s has not entered it%s%s", name,
                 latest.seq ? ", its last was " : " nor any", call);
    else if (seen_ns)
        snprintf(text + used, size - used, "; %s has entered it and was seen last %lld ms ago",
                 name, ago_ms);
    else
        snprintf(text + used, size - used, "; %s has entered it and has not been seen to wait",
                 name);
}

/* Every rank has entered the call: the one whose last sign of waiting is the oldest. */
static int longest_unseen(const struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    int64_t least = INT64_MAX;
    int found = -1;
    for (int r = 0; r < fabric->nranks; r++) {
        const struct tt_rank_record *record = tt_fabric_record(fabric, r);
        const int64_t seen = atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
        if (r == fabric->rank || seen >= least || tt_is_unheard(fabric, r)) continue;
        if (atomic_load_explicit(&record->done, memory_order_acquire) >= work->turn) continue;
        least = seen;
        found = r;
    }
    return found;
}

/* Which ranks an error names, the surest kind of which there are any. */
enum named {
    MISSING_AND_SILENT, /* has not entered the call, and does not wait elsewhere */
    SILENT,             /* is stopped in the call */
    MISSING,            /* has not entered the call, as far as this rank knows */
    NOBODY,
};

static bool is_named(const struct tt_work *work, int rank, enum named kind)
{
    if (rank == work->engine->fabric->rank) return false;
    const bool missing = !has_entered(work, rank);
    return (missing || kind == SILENT) && (kind == MISSING || is_to_blame(work, rank));
}

/* Who has not come, or is where, for the message of a timeout. */
void tt_collective_missing(const struct tt_work *work, char *text, size_t size)
{
    enum { MOST = 8 };
    const int nranks = work->engine->fabric->nranks;
    int nnamed = 0;
    text[0] = '\0';
    for (enum named kind = MISSING_AND_SILENT; kind < NOBODY && !nnamed; kind++)
        for (int r = 0; r < nranks; r++)
            if (is_named(work, r, kind) && nnamed++ < MOST) add_rank(work, r, text, size);
    const size_t used = strlen(text);
    if (nnamed > MOST) snprintf(text + used, size - used, "; and %d more", nnamed - MOST);
    if (nnamed) return;
    snprintf(text, size, "; every rank has entered it");
    const int unseen = longest_unseen(work);
    if (unseen >= 0) add_rank(work, unseen, text, size);
}

/* ---- Ranks that are gone -------------------------------------------------------------------- */

/* Whether no rank is done with the call before all ranks have entered it: each rank's result has
 * something of every rank. */
static bool needs_all(const struct tt_call_entry *call)
{
    const enum tt_collective collective = (enum tt_collective)call->collective;
    return !tt_collective_has_root(collective) &&
           (call->count || !tt_collective_has_data(collective));
}

/* The rank of this host that is behind the others. */
static int last_here(const struct tt_fabric *fabric, uint64_t *entered)
{
    int last = fabric->rank;
    *entered = UINT64_MAX;
    for (int place = 0; place < fabric->nlocal; place++) {
        const struct tt_rank_record *record = &fabric->segment->header->records[place];
        /* release: tt_record_entry */
        const uint64_t theirs = atomic_load_explicit(&record->entered, memory_order_acquire);
        if (theirs >= *entered) continue;
        *entered = theirs;
        last = tt_fabric_rank_at(fabric, place);
    }
    return last;
}

/* Whether a kernel may have done the rank's part of a call that the rank has not entered: of this
 * rank, while a call is issued and not done; what another one has issued is not known. */
static bool may_run_kernels(const struct tt_engine *engine, int rank)
{
    if (engine->fabric->peers[rank].gpu < 0) return false;
    return rank != engine->fabric->rank ||
           atomic_load_explicit(&engine->outstanding, memory_order_acquire);
}

tt_status tt_engine_check_gone(struct tt_engine *engine)
{
    struct tt_fabric *fabric = engine->fabric;
    const char *text;
    uint64_t entered;
    const int gone = tt_fabric_gone(fabric, &text);
    if (gone < 0) return TT_OK;
    const int last = last_here(fabric, &entered); /* after it was seen that a rank is gone */
    for (int r = 0; r < fabric->nranks; r++) {
        const struct entered latest = latest_of(fabric, r);
        char name[128], call[160];
        if (r == gone || latest.seq <= entered || !needs_all(&latest.call)) continue;
        const bool is_of_any_kernel = is_of_kernels(&latest.call) || fabric->mixed.is_mixed;
        if (is_of_any_kernel && may_run_kernels(engine, last)) continue;
        tt_fabric_name_rank(fabric, last, name, sizeof name);
        describe(&latest, call, sizeof call);
        return tt_fabric_fail(fabric, TT_ERR_REMOTE,
                              "%s; %s, which needs all ranks, has not been entered by %s", text,
                              call, name);
    }
    return TT_OK;
}

static bool is_missing(const void *arg, int rank)
{
    const struct tt_work *work = arg;
    const struct tt_rank_record *record = tt_fabric_record(work->engine->fabric, rank);
    return atomic_load_explicit(&record->entered, memory_order_relaxed) < work->turn;
}

/* Whether the call has waited for so long that ranks are sought which may be gone. */
static bool has_waited_long(const struct tt_work *work)
{
    struct tt_long_wait *wait = &work->engine->long_wait;
    const int64_t now_ns = tt_now_ns(), since_ns = now_ns - wait->looked_ns;
    const bool is_same = wait->turn == work->turn;
    if (!is_same || wait->progress != work->progress)
        *wait = (struct tt_long_wait){
            .turn = work->turn, .progress = work->progress, .seeks = is_same && wait->seeks};
    else
        wait->waited_ns += since_ns < MOST_PAUSE_NS ? since_ns : MOST_PAUSE_NS;
    wait->looked_ns = now_ns;
    return wait->seeks || wait->waited_ns >= SEEK_AFTER_NS;
}

/* A rank that waits for another one need not notice that a third one is gone. The third one may
 * have ended in the call, after it had sent this rank its part: a connection with it has ended
 * then. */
static void seek_gone(const struct tt_work *work)
{
    struct tt_long_wait *wait = &work->engine->long_wait;
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_missing missing = {.is_missing = is_missing, .arg = work};
    const char *text;
    if (!has_waited_long(work) || !needs_all(&work->collective.call->entry)) return;
    for (int r = 0; r < fabric->nranks && tt_fabric_gone(fabric, &text) < 0; r++)
        if ((text = tt_wires_missed_peer(fabric->wires, r))) tt_fabric_note_gone(fabric, r, text);
    if (tt_fabric_gone(fabric, &text) < 0)
        wait->seeks = tt_wires_seek_gone(fabric->wires, &missing);
}

tt_status tt_collective_check(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    TT_TRY(tt_fabric_check_peers(fabric, work->turn, -1, false));
    if (work->state == TT_WORK_ISSUED) return TT_OK;
    if (fabric->wires) seek_gone(work);
    const struct entered own = entered_of(work);
    for (int r = 0; r < fabric->nranks; r++) {
        const struct entered other = numbered(fabric, r, own.seq);
        if (other.seq == own.seq && !agree(fabric, r, &own.call, &other.call))
            return tt_collective_mismatch(work, r);
    }
    return TT_OK;
}
