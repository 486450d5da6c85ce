/* Checks during a long wait: the deadline, dead peers, and ranks that called another collective. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "executor/exchange.h"
#include "executor/internal.h"
#include "executor/kernel_run.h"
#include "executor/staged_run.h"

enum {
    EXPLAIN_MS = 500, /* how long the record of a call may come after its message */
    FIRST_REPORT_MS = 100,
    REPORT_MS = 1000,
    /* A rank that waits is seen every millisecond on its host, and every REPORT_MS elsewhere; but
     * it may get no core for long. */
    SILENT_MS = 2000,
    BEYOND_DEADLINE_MS = 3000, /* for other ranks to name the one that is missing */
};

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
    return (struct entered){work->turn, work->collective.call.entry};
}

static bool agree(const struct tt_call_entry *a, const struct tt_call_entry *b)
{
    return a->collective == b->collective && a->type == b->type && a->op == b->op &&
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
    if (call->type & TT_ENTRY_ON_DEVICE) snprintf(text + used, size - (size_t)used, " on a GPU");
}

void tt_call_describe(const struct tt_call_entry *call, char *text, size_t size)
{
    describe(&(struct entered){0, *call}, text, size);
}

void tt_work_describe(const struct tt_work *work, char *text, size_t size)
{
    if (work->kind == TT_WORK_COLLECTIVE) {
        const struct entered mine = entered_of(work);
        describe(&mine, text, size);
        return;
    }
    if (work->kind == TT_WORK_EXCHANGE) {
        tt_exchange_describe(work, text, size);
        return;
    }
    snprintf(text, size, "%s %d number %llu (%zu bytes)",
             work->kind == TT_WORK_SEND ? "send to" : "receive from", work->p2p.peer,
             (unsigned long long)work->turn, work->p2p.nbytes);
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
    const bool on_device = work->collective.call.entry.type & TT_ENTRY_ON_DEVICE;
    if ((local && !on_device) || numbered(fabric, peer, work->turn).seq) return false;
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
        if (agree(&mine.call, &theirs.call)) continue;
        *own = mine;
        *other = theirs;
        return;
    }
}

tt_status tt_work_mismatch(struct tt_work *work, int peer)
{
    struct tt_fabric *fabric = work->engine->fabric;
    char name[128], own_name[128], theirs[240], mine[240];
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
    } else if (other.seq && agree(&own.call, &other.call) && work->collective.binding.table_at) {
        hint = "; the counts that they pass for each rank differ";
    }
    return tt_fabric_fail(fabric, TT_ERR_USAGE,
                          "ranks disagree in communicator %s: %s called %s, %s called %s%s",
                          work->engine->name, own_name, mine, name, theirs, hint);
}

/* A rank of another host whose record has not come yet. */
static bool is_unheard(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    return !tt_fabric_is_local(fabric, rank) &&
           !atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
}

/* Whether a rank gives no sign of waiting: it is stopped, or does something else. Nothing is known
 * of one that is unheard. */
static bool is_silent(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    const int64_t seen_ns = atomic_load_explicit(&record->seen_ns, memory_order_relaxed);
    return !is_unheard(fabric, rank) && tt_now_ns() - seen_ns >= INT64_C(1000000) * SILENT_MS;
}

/* Whether a call waits for this rank, which is silent. Ranks that wait themselves are not to blame.
 */
static bool is_to_blame(const struct tt_work *work, int rank)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    if (rank == fabric->rank || !is_silent(fabric, rank)) return false;
    if (work->kind != TT_WORK_COLLECTIVE) return rank == work->p2p.peer;
    return atomic_load_explicit(&record->done, memory_order_acquire) < work->turn;
}

static bool knows_whom_to_blame(const struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    bool known = work->kind == TT_WORK_EXCHANGE;
    for (int r = 0; !known && r < fabric->nranks; r++) known = is_to_blame(work, r);
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
    if (is_unheard(fabric, rank))
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
        if (r == fabric->rank || seen >= least || is_unheard(fabric, r)) continue;
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
static void list_missing(const struct tt_work *work, char *text, size_t size)
{
    enum { MOST = 4 };
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

/* Of a message that has not been sent or taken. */
static void describe_peer(const struct tt_work *work, char *text, size_t size)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const int peer = work->p2p.peer;
    char name[128];
    tt_fabric_name_rank(fabric, peer, name, sizeof name);
    const char *format = is_unheard(fabric, peer)  ? "; nothing has been heard of %s"
                         : is_silent(fabric, peer) ? "; %s did not answer"
                                                   : "; %s did not answer, but waits itself";
    snprintf(text, size, format, name);
}

/* At the deadline other ranks may know better who is missing: those for which that rank is the
 * peer. Without anybody to blame this rank waits a little for their failure. */
static bool has_timed_out(const struct tt_work *work)
{
    const int64_t beyond_ns = INT64_C(1000000) * BEYOND_DEADLINE_MS;
    if (!tt_expired(work->deadline_ns)) return false;
    return work->engine->fabric->nranks == 2 || knows_whom_to_blame(work) ||
           tt_expired(work->deadline_ns + beyond_ns);
}

static tt_status time_out(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    char name[128], call[160], missing[640] = "";
    tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    tt_work_describe(work, call, sizeof call);
    if (work->kind == TT_WORK_COLLECTIVE) {
        list_missing(work, missing, sizeof missing);
    } else if (work->kind == TT_WORK_EXCHANGE) {
        tt_exchange_list_missing(work, missing, sizeof missing);
    } else {
        describe_peer(work, missing, sizeof missing);
    }
    return tt_fabric_fail(
        fabric, TT_ERR_TIMEOUT, "%s waited %lld ms in %s%s of communicator %s (TUTTI_TIMEOUT_MS)%s",
        name, (long long)work->engine->timeout_ms, call,
        work->staged.replayed ? ", replayed from a CUDA graph," : "", work->engine->name, missing);
}

/* Sends this rank's record to the other hosts when the wait is long. */
static void report(struct tt_engine *engine)
{
    const int64_t now = tt_now_ns();
    atomic_store_explicit(&engine->fabric->record->seen_ns, now, memory_order_relaxed);
    if (!engine->fabric->wires || now < engine->report_ns) return;
    if (engine->report_ns) tt_wires_send_record(engine->fabric->wires);
    engine->report_ns = tt_deadline_ns(engine->report_ns ? REPORT_MS : FIRST_REPORT_MS);
}

/* A receive that has all of its message, and waits only until it has left this rank, does not need
 * the sender any more, which may be gone. Aborts are looked for all the same. */
static tt_status check_peers(const struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const bool collective = work->kind == TT_WORK_COLLECTIVE;
    const bool received = work->kind == TT_WORK_RECV && work->state == TT_WORK_LEAVING;
    return tt_fabric_check_peers(fabric, collective ? work->turn : 0,
                                 collective || received ? -1 : work->p2p.peer,
                                 work->kind == TT_WORK_SEND);
}

tt_status tt_work_check(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const bool collective = work->kind == TT_WORK_COLLECTIVE;
    const bool started = work->state != TT_WORK_ISSUED;
    if (started && !work->deadline_ns) work->deadline_ns = tt_deadline_ns(work->engine->timeout_ms);
    report(work->engine);
    TT_TRY(tt_fabric_check(fabric));
    if (tt_work_on_device(work)) TT_TRY(tt_kernel_check(work));
    if (!started || work->staged.portions) TT_TRY(tt_staged_check(work));
    if (work->kind == TT_WORK_EXCHANGE)
        TT_TRY(tt_exchange_check(work));
    else
        TT_TRY(check_peers(work));
    if (collective && started) {
        const struct entered own = entered_of(work);
        for (int r = 0; r < fabric->nranks; r++) {
            const struct entered other = numbered(fabric, r, own.seq);
            if (other.seq == own.seq && !agree(&own.call, &other.call))
                return tt_work_mismatch(work, r);
        }
    }
    return started && has_timed_out(work) ? time_out(work) : TT_OK;
}

tt_status tt_engine_check(struct tt_engine *engine, enum tt_work_kind kind, int peer)
{
    struct tt_fabric *fabric = engine->fabric;
    const bool collective = kind == TT_WORK_COLLECTIVE;
    if (atomic_exchange_explicit(&engine->busy, true, memory_order_acquire)) return TT_OK;
    const uint64_t next = atomic_load_explicit(&engine->collectives_done, memory_order_relaxed) + 1;
    report(engine);
    tt_status status = tt_fabric_check(fabric);
    if (!status)
        status = tt_fabric_check_peers(fabric, collective ? next : 0, collective ? -1 : peer,
                                       kind == TT_WORK_SEND);
    if (status) tt_fabric_pass_on(fabric);
    tt_engine_leave(engine);
    return status;
}
