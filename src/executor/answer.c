/* Answers other hosts while this rank makes no call. A thread of the process looks once a second at
 * each communicator on several hosts of which no call has begun: it reads what has come, passes a
 * failure on, and fails a communicator whose call cannot end any more, because a rank that is gone
 * and this one have not entered it. Ranks in calls do all that themselves. */
#include <unistd.h>

#include "base/log.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "executor/engine.h"
#include "executor/stream.h"
#include "executor/work.h"

enum {
    PAUSE_NS = 1000000000,     /* between two looks */
    SHORT_PAUSE_NS = 20000000, /* while connections are being made, which take several looks */
    SHORT_PAUSES = 10,         /* then, as what comes over a new connection comes soon */
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
/* guarded by lock, as are the members of engines; of this process, the parent of a child made by
 * fork has its own */
static pid_t process;
static struct tt_engine *engines;  /* each change is one store */
static struct tt_engine *next;     /* where the look under way goes on */
static int nshort;                 /* short pauses that follow */
static struct tt_stream *answerer; /* whose thread looks; NULL: there is none */

/* Whether no call has ended since the last look: another one follows soon, most likely, and is not
 * to wait for this thread. */
static bool is_at_rest_locked(struct tt_engine *engine)
{
    const uint64_t before = engine->answered;
    engine->answered = atomic_load_explicit(&engine->collectives_done, memory_order_relaxed) +
                       atomic_load_explicit(&engine->fabric->nmessages, memory_order_relaxed);
    return engine->answered == before;
}

/* Whether to look again soon. The caller has entered the engine. */
static bool look_at(struct tt_engine *engine)
{
    struct tt_fabric *fabric = engine->fabric;
    if (engine->nbegun || atomic_load(&fabric->aborted)) return false;
    bool soon = tt_wires_listen(fabric->wires) == TT_IN_PROGRESS;
    if (tt_wires_have_left(fabric->wires)) return false;
    if (!tt_fabric_check(fabric)) {
        soon |= tt_fabric_follow_gone(fabric);
        if (tt_engine_check_gone(engine)) tt_engine_tell_failure(engine);
    }
    tt_fabric_pass_on(fabric);
    return soon;
}

/* The next engine that is at rest, which this thread has entered; NULL: all have been looked at. */
static struct tt_engine *begin_next(void)
{
    struct tt_engine *engine;
    tt_process_lock(&lock);
    while ((engine = next)) {
        next = engine->answered_next;
        if (is_at_rest_locked(engine) && tt_engine_try_enter(engine)) break;
    }
    if (engine) engine->is_looked_at = true;
    tt_process_unlock(&lock);
    return engine;
}

static void end(struct tt_engine *engine)
{
    tt_engine_leave(engine);
    tt_process_lock(&lock);
    engine->is_looked_at = false;
    tt_process_unlock(&lock);
}

/* Nobody waits for the look at a communicator but its own threads. */
static int64_t look(void *unused)
{
    struct tt_engine *engine;
    bool soon = false;
    (void)unused;
    tt_process_lock(&lock);
    next = engines;
    tt_process_unlock(&lock);
    while ((engine = begin_next())) {
        soon |= look_at(engine);
        end(engine);
    }
    tt_process_lock(&lock);
    nshort = soon ? SHORT_PAUSES : nshort - (nshort > 0);
    const int64_t pause_ns = nshort ? SHORT_PAUSE_NS : PAUSE_NS;
    tt_process_unlock(&lock);
    return pause_ns;
}

/* In a child made by fork: forgets what its parent answers for. */
static void begin_in_this_process_locked(void)
{
    if (process == getpid()) return;
    tt_stream_destroy(answerer);
    answerer = NULL;
    engines = next = NULL;
    process = getpid();
}

void tt_engine_answer(struct tt_engine *engine)
{
    if (!engine->fabric->wires) return;
    tt_process_lock(&lock);
    begin_in_this_process_locked();
    engine->answered = UINT64_MAX; /* not at rest at the first look */
    engine->answered_next = engines;
    engines = engine;
    const bool looks = answerer;
    if (!looks && tt_stream_create(&answerer))
        TT_INFO("other hosts are answered in calls only: %s", tt_last_error());
    else if (!looks)
        tt_stream_watch(answerer, look, NULL);
    tt_process_unlock(&lock);
}

/* Whether the engine was answered for. The thread that looks at nothing more goes to *unused. */
static bool remove_locked(struct tt_engine *engine, struct tt_stream **unused)
{
    struct tt_engine **at = &engines;
    if (process != getpid()) return false;
    while (*at && *at != engine) at = &(*at)->answered_next;
    if (!*at) return false;
    *at = engine->answered_next;
    if (next == engine) next = engine->answered_next;
    if (engines) return true;
    *unused = answerer;
    answerer = NULL;
    return true;
}

void tt_engine_answer_no_more(struct tt_engine *engine)
{
    struct tt_stream *unused = NULL;
    struct tt_pause pause = {0};
    tt_process_lock(&lock);
    const bool was_answered = remove_locked(engine, &unused);
    while (was_answered && engine->is_looked_at) {
        tt_process_unlock(&lock);
        tt_pause(&pause);
        tt_process_lock(&lock);
    }
    tt_process_unlock(&lock);
    tt_stream_destroy(unused);
}
