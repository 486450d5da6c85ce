/* Failures: the communicator's first one, and peers that are gone. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/log.h"
#include "transport/fabric.h"

/* After a rank has left that is awaited: for other ranks to say why. */
#define EXPLAIN_NS INT64_C(1000000000)

/* This rank has heard of the communicator's failure: its process may end because of that. */
static void note_heard(struct tt_fabric *fabric)
{
    if (!atomic_exchange(&fabric->heard, true)) tt_reason_tell();
}

void tt_fabric_log_failure(struct tt_fabric *fabric)
{
    const char *text;
    if (!tt_fabric_failure(fabric, &text)) return;
    note_heard(fabric);
    if (!atomic_exchange(&fabric->logged, true)) TT_WARN("rank %d: %s", fabric->rank, text);
}

tt_status tt_fabric_fail(struct tt_fabric *fabric, int code, const char *format, ...)
{
    struct tt_failure *failure = &fabric->segment->header->failure;
    uint32_t none = 0;
    if (atomic_load_explicit(&fabric->seen, memory_order_relaxed) != failure)
        return tt_fabric_check(fabric); /* this rank has aborted: what its calls find concerns it */
    if (atomic_compare_exchange_strong_explicit(&failure->state, &none, 1, memory_order_acquire,
                                                memory_order_acquire)) {
        char text[TT_ERROR_TEXT];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        tt_escape(failure->text, sizeof failure->text, text);
        failure->code = code;

        /* acquire: tt_fabric_check */
        atomic_store_explicit(&failure->state, 2, memory_order_release);
        tt_fabric_log_failure(fabric);
        tt_reason_note(failure->text);
    }
    const int64_t deadline =
        tt_deadline_ns(100); /* a rank that died while writing must not hang the others */
    tt_status status;
    while ((status = tt_fabric_check(fabric)) == TT_OK && !tt_expired(deadline)) tt_cpu_relax();
    tt_fabric_pass_on(fabric);
    return status ? status
                  : tt_fail(TT_ERR_REMOTE, "the communicator failed; the rank that knew why died");
}

tt_status tt_fabric_fail_here(struct tt_fabric *fabric, tt_status status)
{
    char text[TT_ERROR_TEXT], name[128] = "";
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (status != TT_ERR_REMOTE) tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    return tt_fabric_fail(fabric, status, "%s%s%s", name, *name ? ": " : "", text);
}

tt_status tt_fabric_check(struct tt_fabric *fabric)
{
    if (!tt_fabric_has_failed(fabric)) return TT_OK;
    tt_set_last_error(tt_fabric_failure_text(fabric));
    /* release: tt_fabric_abort */
    return atomic_load_explicit(&fabric->seen, memory_order_acquire)->code;
}

tt_status tt_fabric_failure(const struct tt_fabric *fabric, const char **text)
{
    const struct tt_failure *failure = &fabric->segment->header->failure;
    if (atomic_load_explicit(&failure->state, memory_order_acquire) != 2) return TT_OK;
    if (text) *text = failure->text;
    return failure->code;
}

/* A reader of memory first says that it reads, then looks for aborts; who aborts says so, then
 * looks for readers (tt_fabric_reader): the fences order these, so one of the two sees the other.
 */
void tt_fabric_abort(struct tt_fabric *fabric, const char *text)
{
    struct tt_failure *abort = fabric->own_abort;
    atomic_store(&fabric->aborted, true);
    if (tt_fabric_check(fabric)) return;
    snprintf(abort->text, sizeof abort->text, "%s", text);
    abort->code = TT_ERR_REMOTE;
    atomic_store_explicit(&abort->state, 2, memory_order_relaxed);
    /* acquire: tt_fabric_check */
    atomic_store_explicit(&fabric->seen, abort, memory_order_release);
    /* acquire: end_of, aborted_in */
    atomic_store_explicit(&fabric->record->state, TT_RANK_ABORTED, memory_order_release);
    /* acquire: aborted_in */
    atomic_fetch_add_explicit(&fabric->segment->header->naborted, 1, memory_order_seq_cst);
    if (fabric->wires) tt_wires_announce(fabric->wires);
}

void tt_fabric_tell_abort(struct tt_fabric *fabric)
{
    if (tt_fabric_failure(fabric, NULL)) return;
    tt_ignore(tt_wires_progress(fabric->wires));
    tt_wires_announce(fabric->wires);
}

void tt_fabric_pass_on(struct tt_fabric *fabric)
{
    const struct tt_failure *failure = &fabric->segment->header->failure;
    if (atomic_load_explicit(&failure->state, memory_order_acquire) != 2) return;
    note_heard(fabric);
    if (!fabric->wires || fabric->told) return;
    fabric->told = true;
    tt_wires_send_failure(fabric->wires, failure->code, failure->text);
}

static bool is_awaited(const struct tt_rank_record *record, int r, uint64_t seq, int peer)
{
    return peer == r || (seq && atomic_load_explicit(&record->done, memory_order_acquire) < seq);
}

static tt_status fail_aborted(struct tt_fabric *fabric, int rank)
{
    char name[128];
    tt_fabric_name_rank(fabric, rank, name, sizeof name);
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s aborted the communicator", name);
}

/* A rank of this host that has aborted before it had done its part of the call; -1: none. */
static int aborted_in(const struct tt_fabric *fabric, struct tt_lenders source)
{
    /* release: tt_fabric_abort */
    if (!atomic_load_explicit(&fabric->segment->header->naborted, memory_order_acquire)) return -1;
    for (int place = 0; place < fabric->nlocal; place++) {
        const int rank = tt_fabric_rank_at(fabric, place);
        const struct tt_rank_record *record = &fabric->segment->header->records[place];
        /* release: tt_fabric_abort */
        if (atomic_load_explicit(&record->state, memory_order_acquire) == TT_RANK_ABORTED &&
            is_awaited(record, rank, source.seq, source.peer))
            return rank;
    }
    return -1;
}

/* The bytes were read before the fence: by an aborted rank they may have been changed. */
tt_status tt_fabric_check_source(struct tt_fabric *fabric, struct tt_lenders source)
{
    atomic_thread_fence(memory_order_acquire);
    const int aborted = aborted_in(fabric, source);
    return aborted < 0 ? TT_OK : fail_aborted(fabric, aborted);
}

/* A reader first says that it reads, then looks for a failure; who has seen the failure then looks
 * for readers: the fences order these, so one of the two sees the other. */
tt_status tt_fabric_borrow(struct tt_fabric *fabric, struct tt_lenders source)
{
    atomic_fetch_add_explicit(&fabric->record->reading, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    tt_status status = tt_fabric_check(fabric);
    if (!status) status = tt_fabric_check_source(fabric, source);
    if (status) tt_fabric_give_back(fabric);
    return status;
}

void tt_fabric_give_back(struct tt_fabric *fabric)
{
    /* acquire: reads */
    atomic_fetch_sub_explicit(&fabric->record->reading, 1, memory_order_release);
}

int tt_fabric_find_beside(const struct tt_fabric *fabric,
                          bool (*holds)(const struct tt_fabric *fabric, int rank))
{
    const uint64_t process_id = fabric->peers[fabric->rank].process_id;
    for (int place = 0; place < fabric->nlocal; place++) {
        const int rank = tt_fabric_rank_at(fabric, place);
        if (rank != fabric->rank && fabric->peers[rank].process_id == process_id &&
            holds(fabric, rank))
            return rank;
    }
    return -1;
}

static bool reads(const struct tt_fabric *fabric, int rank)
{
    /* release: tt_fabric_give_back */
    return atomic_load_explicit(&tt_fabric_record(fabric, rank)->reading, memory_order_acquire);
}

int tt_fabric_reader(const struct tt_fabric *fabric)
{
    atomic_thread_fence(memory_order_seq_cst);
    return tt_fabric_find_beside(fabric, reads);
}

void tt_fabric_add_to_failure(struct tt_fabric *fabric, const char *text)
{
    if (atomic_load_explicit(&fabric->has_own_failure, memory_order_relaxed)) return;
    const size_t room = sizeof fabric->own_failure - strlen(text);
    snprintf(fabric->own_failure, sizeof fabric->own_failure, "%.*s%s", (int)room - 1,
             tt_fabric_failure_text(fabric), text);
    /* acquire: tt_fabric_failure_text */
    atomic_store_explicit(&fabric->has_own_failure, true, memory_order_release);
    tt_set_last_error(fabric->own_failure);
}

const char *tt_fabric_failure_text(const struct tt_fabric *fabric)
{
    /* release: tt_fabric_abort */
    const struct tt_failure *failure = atomic_load_explicit(&fabric->seen, memory_order_acquire);
    /* release: tt_fabric_add_to_failure */
    if (atomic_load_explicit(&fabric->has_own_failure, memory_order_acquire))
        return fabric->own_failure;
    return atomic_load_explicit(&failure->state, memory_order_acquire) == 2 ? failure->text : "";
}

void tt_fabric_watch(struct tt_fabric *fabric)
{
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    for (int place = 0; place < fabric->nlocal; place++) {
        const struct tt_peer_info *peer = &fabric->peers[tt_fabric_rank_at(fabric, place)];
        if (peer->process_id != mine->process_id)
            fabric->watches[place] = tt_pid_watch_get(peer->pid, peer->process_id);
    }
}

/* Of a rank of another host the wires learn it. */
bool tt_fabric_is_dead(const struct tt_fabric *fabric, int rank)
{
    if (!tt_fabric_is_local(fabric, rank)) return false;
    struct tt_pid_watch *watch = fabric->watches[fabric->hosts->local_of[rank]];
    return watch && tt_pid_watch_is_dead(watch);
}

const char *tt_fabric_how_dead(const struct tt_fabric *fabric, int rank)
{
    struct tt_pid_watch *watch =
        tt_fabric_is_local(fabric, rank) ? fabric->watches[fabric->hosts->local_of[rank]] : NULL;
    return watch && tt_pid_watch_is_another(watch) ? "has become another program (exec)"
                                                   : "has died";
}

const char *tt_fabric_lost(const struct tt_fabric *fabric, int rank)
{
    const bool looks = fabric->bridged && fabric->wires && !tt_fabric_is_local(fabric, rank);
    return looks ? tt_wires_missed_peer(fabric->wires, rank) : NULL;
}

tt_status tt_fabric_check_rank(const struct tt_fabric *fabric, int rank)
{
    char name[128];
    if (rank == fabric->rank) return TT_OK;
    const bool dead = tt_fabric_is_dead(fabric, rank);
    /* After that: a process may have left, and then ended. */
    const uint32_t state =
        atomic_load_explicit(&tt_fabric_record(fabric, rank)->state, memory_order_acquire);
    tt_fabric_name_rank(fabric, rank, name, sizeof name);
    if (state == TT_RANK_ABORTED)
        return tt_fail(TT_ERR_REMOTE, "%s aborted the communicator", name);
    if (state == TT_RANK_LEFT)
        return tt_fail(TT_ERR_REMOTE, "%s %s", name, tt_fabric_how_left(fabric, rank));
    return dead ? tt_fail(TT_ERR_REMOTE, "%s %s", name, tt_fabric_how_dead(fabric, rank)) : TT_OK;
}

static bool can_go_on(struct tt_fabric *fabric, int peer, bool sending)
{
    struct tt_message message;
    struct tt_link *link = sending ? tt_fabric_tx(fabric, peer, tt_fabric_p2p_channel(fabric))
                                   : tt_fabric_rx(fabric, peer, tt_fabric_p2p_channel(fabric));
    return sending ? link->ops->drained(link) : link->ops->peek(link, &message) != TT_IN_PROGRESS;
}

/* ---- Ranks that are gone --------------------------------------------------------------------- */

const char *tt_fabric_reason(struct tt_fabric *fabric)
{
    const bool failed = tt_fabric_failure_text(fabric)[0];
    if (failed || (!fabric->reason[0] && !tt_reason_recent(fabric->begun_ns, fabric->reason)))
        fabric->reason[0] = '\0';
    if (!fabric->exits || failed || fabric->reason[0] == TT_REASON_EXITS) return fabric->reason;
    memmove(fabric->reason + 1, fabric->reason, sizeof fabric->reason - 1);
    fabric->reason[sizeof fabric->reason - 1] = '\0';
    fabric->reason[0] = TT_REASON_EXITS;
    return fabric->reason;
}

void tt_fabric_give_reason(struct tt_fabric *fabric)
{
    struct tt_failure *told = &fabric->segment->header->reason;
    const char *reason = tt_fabric_reason(fabric), *failure = NULL;
    uint32_t none = 0;
    if (tt_fabric_failure(fabric, &failure)) tt_reason_note(failure);
    if (!reason[0] || !atomic_compare_exchange_strong(&told->state, &none, 1)) return;
    snprintf(told->text, sizeof told->text, "%s", reason);
    /* acquire: reason_of */
    atomic_store_explicit(&told->state, 2, memory_order_release);
}

/* The reason that a rank which has left gave; "": none. */
static const char *reason_of(const struct tt_fabric *fabric, int rank)
{
    const struct tt_failure *told = &fabric->segment->header->reason;
    if (!tt_fabric_is_local(fabric, rank))
        return fabric->wires ? tt_wires_reason(fabric->wires, rank) : "";
    /* release: tt_fabric_give_reason */
    return atomic_load_explicit(&told->state, memory_order_acquire) == 2 ? told->text : "";
}

const char *tt_fabric_how_left(const struct tt_fabric *fabric, int rank)
{
    return tt_reason_how_left(reason_of(fabric, rank));
}

void tt_fabric_exit(struct tt_fabric *fabric)
{
    fabric->exits = true;
    tt_wires_leave(fabric->wires);
    /* A function that runs later at the exit may yet destroy the communicator. */
    fabric->exits = false;
    if (fabric->reason[0] == TT_REASON_EXITS)
        memmove(fabric->reason, fabric->reason + 1, sizeof fabric->reason - 1);
}

/* Whether a rank of this host has died without leaving. */
static bool has_died_here(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    return tt_fabric_is_dead(fabric, rank) &&
           atomic_load_explicit(&record->state, memory_order_acquire) == TT_RANK_HERE;
}

/* The one of the dead ranks of this host that is likely to have died first; -1: none has. A process
 * that knew of a failure, of another communicator too, may have ended because of it: a process that
 * knew of none comes first, then the one whose latest failure is the oldest. */
static int find_dead(const struct tt_fabric *fabric)
{
    int first = -1;
    int64_t first_ns = 0;
    for (int place = 0; place < fabric->nlocal; place++) {
        const int rank = tt_fabric_rank_at(fabric, place);
        if (!has_died_here(fabric, rank)) continue;
        const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
        const int64_t failed_ns = atomic_load_explicit(&record->failed_ns, memory_order_relaxed);
        if (first >= 0 && failed_ns >= first_ns) continue;
        first = rank;
        first_ns = failed_ns;
    }
    return first;
}

static void add_dead(const struct tt_fabric *fabric, int except, char *text, size_t size)
{
    enum { MOST = 3 };
    char name[128];
    int ndead = 0;
    for (int place = 0; place < fabric->nlocal; place++) {
        const int rank = tt_fabric_rank_at(fabric, place);
        const size_t used = strlen(text);
        if (rank == except || !has_died_here(fabric, rank) || ndead++ >= MOST) continue;
        tt_fabric_name_rank(fabric, rank, name, sizeof name);
        snprintf(text + used, size - used, "; %s %s, too", name, tt_fabric_how_dead(fabric, rank));
    }
    const size_t used = strlen(text);
    if (ndead > MOST)
        snprintf(text + used, size - used, "; and %d more ranks of host %s", ndead - MOST,
                 fabric->peers[fabric->rank].host);
}

void tt_fabric_add_dead(const struct tt_fabric *fabric, char *text, size_t size)
{
    add_dead(fabric, -1, text, size);
}

/* "rank 2 (host h, pid 78) has died; rank 1 (host h, pid 77) has died, too". first: find_dead. */
static void describe_dead(const struct tt_fabric *fabric, int first, char *text, size_t size)
{
    char name[128];
    tt_fabric_name_rank(fabric, first, name, sizeof name);
    snprintf(text, size, "%s %s", name, tt_fabric_how_dead(fabric, first));
    add_dead(fabric, first, text, size);
    if (fabric->wires) tt_wires_add_lost(fabric->wires, text, size);
}

/* What other hosts have sent meanwhile may say why the rank has gone. */
static tt_status fail_dead(struct tt_fabric *fabric, int rank)
{
    char text[TT_ERROR_TEXT];
    if (fabric->wires) tt_ignore(tt_wires_progress(fabric->wires));
    TT_TRY(tt_fabric_check(fabric));
    const char *lost = tt_fabric_lost(fabric, rank);
    if (lost) return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s", lost);
    const int first = find_dead(fabric);
    describe_dead(fabric, first < 0 ? rank : first, text, sizeof text);
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s", text);
}

/* A rank mostly leaves too early because of another one that has died: that one comes first. */
tt_status tt_fabric_miss_left(struct tt_fabric *fabric, int rank)
{
    char name[128], others[TT_ERROR_TEXT], left[TT_REASON_TEXT + 128];
    const int dead = find_dead(fabric);
    const char *lost = fabric->wires ? tt_wires_lost(fabric->wires) : NULL;
    const char *reason = reason_of(fabric, rank);
    tt_fabric_name_rank(fabric, rank, name, sizeof name);
    tt_reason_describe(reason, left, sizeof left);
    if (dead >= 0) {
        describe_dead(fabric, dead, others, sizeof others);
        return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s, and %s %s", others, name, left);
    }
    if (lost) return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s, and %s %s", lost, name, left);
    if (!fabric->missed_ns) fabric->missed_ns = tt_now_ns();
    if (!tt_reason_failure(reason)[0] && fabric->wires && tt_wires_may_explain(fabric->wires) &&
        tt_now_ns() - fabric->missed_ns < EXPLAIN_NS)
        return TT_IN_PROGRESS;
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s %s", name, left);
}

/* How a rank is gone that has not done what is awaited of it; HERE: it is not, or does not matter.
 */
static enum tt_rank_state end_of(struct tt_fabric *fabric, int r, uint64_t seq, int peer,
                                 bool sending)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, r);
    const bool dead = is_awaited(record, r, seq, peer) &&
                      (tt_fabric_is_dead(fabric, r) || tt_fabric_lost(fabric, r));
    /* Messages that it sent before its end are read after that. */
    const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
    const bool awaited = is_awaited(record, r, seq, peer);
    const bool left = state == TT_RANK_ABORTED || state == TT_RANK_LEFT;
    if ((!dead && !left) || !awaited || r == fabric->rank) return TT_RANK_HERE;
    if (peer == r && can_go_on(fabric, r, sending)) return TT_RANK_HERE;
    if (left) return (enum tt_rank_state)state;
    return state == TT_RANK_HERE || !tt_fabric_is_local(fabric, r) ? TT_RANK_ABSENT : TT_RANK_HERE;
}

/* Whether the kernel of this collective may still end, because it has all it needs of a rank that
 * has died. Each rank has its own time, and in each collective, from the first look at the death
 * on: that may be one before the collective runs. */
static bool has_grace(struct tt_fabric *fabric, int rank, uint64_t seq)
{
    const int64_t now_ns = tt_now_ns();
    const bool is_over =
        atomic_load_explicit(&fabric->record->done, memory_order_relaxed) >= fabric->died_in;
    if (!fabric->died_ns || fabric->died != rank || (seq > fabric->died_in && is_over)) {
        fabric->died_ns = now_ns;
        fabric->died = rank;
        fabric->died_in = seq;
    }
    return now_ns - fabric->died_ns < fabric->death_grace_ns;
}

/* Names a rank that has died or aborted before one that has left because of it. */
tt_status tt_fabric_check_peers(struct tt_fabric *fabric, uint64_t seq, int peer, bool sending)
{
    int left = -1, dead = -1;
    for (int r = 0; r < fabric->nranks; r++) {
        const enum tt_rank_state end = end_of(fabric, r, seq, peer, sending);
        const bool is_absent = end == TT_RANK_ABSENT;
        if (is_absent && (peer >= 0 || !fabric->death_grace_ns)) return fail_dead(fabric, r);
        if (is_absent && (dead < 0 || (fabric->died_ns && r == fabric->died))) dead = r;
        if (end == TT_RANK_ABORTED && dead < 0) return fail_aborted(fabric, r);
        if (end == TT_RANK_LEFT && left < 0) left = r;
    }
    if (dead >= 0) return has_grace(fabric, dead, seq) ? TT_OK : fail_dead(fabric, dead);
    const tt_status status = left < 0 ? TT_OK : tt_fabric_miss_left(fabric, left);
    return status == TT_IN_PROGRESS ? TT_OK : status;
}
