/* Runs the threads of a scenario in all orders (machine.h): executions are repeated, each with the
 * next sequence of choices. Threads are coroutines: one thread of the system. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "inside.h"

enum { STACK = 1 << 17, CHOICES = 4096, NOTES = 1024, STEPS = 700 };

struct note {
    int thread;
    const struct tt_site *site;
    const char *text;
    uint64_t value;
};

struct memory tt_memory;
struct thread tt_threads[TT_MACHINE_THREADS];
int tt_nthreads, tt_current = NOBODY, tt_nmet;
const struct tt_scenario *tt_scenario;
static int nbegun;
static jmp_buf explorer;

static struct {
    int taken, of;
} choices[CHOICES];
static int nchoices, nfixed;

static struct note notes[NOTES];
static int nnotes;
static char error[1024];

static uint64_t *seen; /* a hash table of states; 0: free */
static size_t seen_size, nseen;

int tt_machine_rank;

/* ---- Choices and states --------------------------------------------------------------------- */

void tt_leave(enum outcome outcome)
{
    _longjmp(explorer, (int)outcome);
}

void tt_machine_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, sizeof error, format, arguments);
    va_end(arguments);
    tt_leave(FAILED);
}

int tt_machine_choose(int n)
{
    if (n == 1) return 0;
    if (nchoices == nfixed) {
        if (nchoices == CHOICES) tt_machine_fail("more than %d choices", CHOICES);
        choices[nfixed].taken = 0;
        choices[nfixed++].of = n;
    } else if (choices[nchoices].of != n) {
        tt_machine_fail("the execution is not repeated: %d in place of %d choices", n,
                        choices[nchoices].of);
    }
    return choices[nchoices++].taken;
}

/* The next execution; false: that was the last. */
static bool next_choices(void)
{
    while (nfixed && choices[nfixed - 1].taken + 1 == choices[nfixed - 1].of) nfixed--;
    if (!nfixed) return false;
    choices[nfixed - 1].taken++;
    return true;
}

static void enter_seen(uint64_t hash)
{
    size_t i = hash & (seen_size - 1);
    while (seen[i]) i = (i + 1) & (seen_size - 1);
    seen[i] = hash;
}

/* Whether the state is new. */
static bool note_state(uint64_t hash)
{
    if (!hash) hash = 1;
    if (2 * nseen >= seen_size) {
        uint64_t *old = seen;
        const size_t old_size = seen_size;
        seen_size = old_size ? 4 * old_size : 1 << 14;
        seen = calloc(seen_size, sizeof *seen);
        if (!seen) abort();
        for (size_t i = 0; i < old_size; i++)
            if (old[i]) enter_seen(old[i]);
        free(old);
    }
    for (size_t i = hash & (seen_size - 1); seen[i]; i = (i + 1) & (seen_size - 1))
        if (seen[i] == hash) return false;
    enter_seen(hash);
    nseen++;
    return true;
}

static uint64_t hash_of_state(void)
{
    unsigned ended = 0;
    for (int t = 0; t < tt_nthreads; t++) ended |= (unsigned)(tt_threads[t].status == DONE) << t;
    uint64_t hash = tt_mix(tt_memory_hash(&tt_memory, tt_nthreads, ended), (uint64_t)tt_nmet);
    for (int t = 0; t < tt_nthreads; t++) {
        const struct thread *thread = &tt_threads[t];
        hash = tt_mix(hash, thread->told);
        hash = tt_mix(hash, (uint64_t)thread->waits << 32 | thread->nbarriers);
        hash = tt_mix(hash, (uint64_t)thread->arms << 32 | thread->wakes);
        hash = tt_mix(hash, (uint64_t)thread->status | (uint64_t)thread->armed << 8 |
                                (uint64_t)thread->barriers << 16 |
                                (uint64_t)(thread->late.site != NULL) << 32);
    }
    return hash;
}

/* ---- Threads -------------------------------------------------------------------------------- */

static void switch_to(int t)
{
    if (tt_current != NOBODY && _setjmp(tt_threads[tt_current].here)) return;
    tt_current = t;
    _longjmp(tt_threads[t].here, 1);
}

static bool is_free(const volatile void *lock)
{
    for (int l = 0; l < tt_memory.nlocations; l++)
        if (tt_memory.locations[l].object == lock) return tt_memory.locations[l].holder == NOBODY;
    return true;
}

static bool may_run(int t)
{
    const struct thread *thread = &tt_threads[t];
    switch (thread->status) {
    case READY:
        return true;
    case LOCKS:
        return is_free(thread->on);
    case AWAITS_BARRIER:
        for (int u = 0; u < tt_nthreads; u++)
            if (tt_threads[u].barriers & 1u << t) return false;
        return true;
    case AWAITS_MEETING:
        return tt_nmet == tt_nthreads;
    default:
        return false;
    }
}

static void stuck(void) __attribute__((noreturn));
static void stuck(void)
{
    for (int t = 0; t < tt_nthreads; t++)
        if (tt_threads[t].status == BLOCKED)
            tt_machine_fail("lost wake: thread %d, of rank %d, stays in FUTEX_WAIT", t,
                            tt_threads[t].what->rank);
    for (int t = 0; t < tt_nthreads; t++)
        if (tt_threads[t].status != DONE)
            tt_machine_fail("thread %d, of rank %d, waits for ever", t, tt_threads[t].what->rank);
    tt_leave(ENDED);
}

/* What may happen next: t: thread t goes on; more: thread u gets the fence for which t waits. */
static int list_next(int *next)
{
    int n = 0;
    if (tt_current != NOBODY && may_run(tt_current)) next[n++] = tt_current;
    for (int t = 0; t < tt_nthreads; t++)
        if (t != tt_current && may_run(t)) next[n++] = t;
    for (int u = 0; u < tt_nthreads; u++)
        for (int t = 0; t < tt_nthreads; t++)
            if (tt_threads[u].barriers & 1u << t) next[n++] = TT_MACHINE_THREADS * (u + 1) + t;
    return n;
}

/* Where nothing else can happen the pauses end, of all threads. */
static int end_pauses(int *next)
{
    for (int t = 0; t < tt_nthreads; t++)
        if (tt_threads[t].status == PAUSED) {
            tt_threads[t].status = READY;
            tt_memory_catch_up(&tt_memory, t);
        }
    return list_next(next);
}

void tt_take_note(int thread, const struct tt_site *site, const char *text, uint64_t value)
{
    if (nnotes == NOTES) return;
    notes[nnotes++] = (struct note){.thread = thread, .site = site, .text = text, .value = value};
}

static void go_on_with(int next)
{
    struct thread *thread = &tt_threads[next];
    thread->status = READY;
    tt_machine_rank = thread->what->rank;
    if (next != tt_current) switch_to(next);
}

void tt_schedule(void)
{
    int next[TT_MACHINE_THREADS * (TT_MACHINE_THREADS + 2)];
    static int nsteps;
    const int self = tt_current;
    if (nbegun < tt_nthreads) { /* all threads go to their first operation that others may see */
        nsteps = 0;
        go_on_with(nbegun++);
        if (self == NOBODY || tt_current == self) return;
    }
    if (++nsteps > STEPS) tt_machine_fail("no end after %d steps", STEPS);
    for (;;) {
        if (nchoices == nfixed && !note_state(hash_of_state())) tt_leave(SEEN);
        int n = list_next(next);
        if (!n) n = end_pauses(next);
        if (!n) stuck();
        const int chosen = next[tt_machine_choose(n)];
        if (chosen < TT_MACHINE_THREADS) {
            go_on_with(chosen);
            return;
        }
        const int target = chosen / TT_MACHINE_THREADS - 1;
        tt_threads[target].barriers &= ~(1u << chosen % TT_MACHINE_THREADS);
        tt_memory_fence(&tt_memory, target, memory_order_seq_cst);
        tt_take_note(target, NULL, "membarrier puts a fence", 0);
    }
}

void tt_tell(uint64_t value)
{
    tt_threads[tt_current].told = tt_mix(tt_threads[tt_current].told, value + 1);
}

static void run_thread(void)
{
    const int self = tt_current;
    for (;;) {
        if (!_setjmp(tt_threads[self].begin)) _longjmp(explorer, (int)BEGUN);
        tt_threads[self].what->body();
        if (tt_threads[self].late.site) tt_store_late();
        tt_threads[self].status = DONE; /* in the model; barriers still reach it */
        tt_threads[self].told = tt_scenario->left ? tt_scenario->left() : 0;
        tt_threads[self].armed = false;
        tt_schedule();
    }
}

/* Makes the coroutine of a thread, once; it then waits at its begin. */
static void make_thread(int t)
{
    static ucontext_t context;
    struct thread *thread = &tt_threads[t];
    if (thread->exists) return;
    thread->exists = true;
    thread->stack = malloc(STACK);
    if (!thread->stack || getcontext(&context)) abort();
    context.uc_stack.ss_sp = thread->stack;
    context.uc_stack.ss_size = STACK;
    makecontext(&context, run_thread, 0);
    tt_current = t;
    if (!_setjmp(explorer)) setcontext(&context);
    tt_current = NOBODY;
}

/* ---- Exploration ---------------------------------------------------------------------------- */

static void begin_execution(void)
{
    tt_current = NOBODY;
    nchoices = nnotes = nbegun = tt_nmet = 0;
    for (int t = 0; t < tt_nthreads; t++) {
        struct thread *thread = &tt_threads[t];
        thread->status = READY;
        thread->barriers = 0;
        thread->told = 0;
        thread->armed = false;
        thread->system_calls = thread->fences = 0;
        thread->late.site = NULL;
        thread->waits = thread->nbarriers = thread->arms = thread->wakes = 0;
        memcpy(thread->here, thread->begin, sizeof thread->here);
    }
    tt_scenario->set_up();
    memset(tt_memory.threads, 0, sizeof tt_memory.threads);
    memset(&tt_memory.fences, 0, sizeof tt_memory.fences);
    memset(&tt_memory.met, 0, sizeof tt_memory.met);
    for (int l = 0; l < tt_memory.nlocations; l++) {
        struct location *at = &tt_memory.locations[l];
        at->nstores = 1;
        at->holder = NOBODY;
        at->stores[0] = (struct store){.value = tt_memory_plain(at->object, at->size)};
    }
}

static enum outcome execute(void)
{
    begin_execution();
    enum outcome outcome = (enum outcome)_setjmp(explorer);
    if (!outcome) tt_schedule();
    tt_current = NOBODY;
    if (outcome == ENDED && tt_scenario->end && (outcome = (enum outcome)_setjmp(explorer)) == 0) {
        tt_scenario->end();
        outcome = ENDED;
    }
    tt_current = NOBODY;
    return outcome;
}

static void forget(void)
{
    nchoices = nfixed = 0;
    nseen = 0;
    if (seen) memset(seen, 0, seen_size * sizeof *seen);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void tell_error(struct tt_exploration *exploration)
{
    char *to = exploration->error;
    char *const limit = exploration->error + sizeof exploration->error;
    to += snprintf(to, (size_t)(limit - to), "%s\n", error);
    for (int i = 0; i < nnotes && limit - to > 256; i++) {
        const struct note *note = &notes[i];
        to += snprintf(to, (size_t)(limit - to), "  thread %d (rank %d): ", note->thread,
                       tt_threads[note->thread].what->rank);
        if (note->site)
            to += snprintf(to, (size_t)(limit - to), "%.60s: %.40s %.60s: ", note->site->function,
                           base_name(note->site->file), note->site->object);
        to += snprintf(to, (size_t)(limit - to), "%s %llu\n", note->text,
                       (unsigned long long)note->value);
    }
}

void tt_machine_explore(const struct tt_scenario *what, uint64_t most,
                        struct tt_exploration *exploration)
{
    *exploration = (struct tt_exploration){.executions = 0};
    tt_scenario = what;
    tt_memory.nlocations = 0;
    tt_forget_objects(what->number);
    for (tt_nthreads = 0; tt_nthreads < TT_MACHINE_THREADS && what->threads[tt_nthreads].body;
         tt_nthreads++) {
        tt_threads[tt_nthreads].what = &what->threads[tt_nthreads];
        make_thread(tt_nthreads);
    }
    forget();
    for (;;) {
        const enum outcome outcome = execute();
        if (outcome == MORE_SHARED) {
            forget();
            exploration->executions = 0;
            continue;
        }
        exploration->executions++;
        if (exploration->executions == most) break;
        if (nnotes > exploration->longest) exploration->longest = nnotes;
        if (outcome == FAILED) {
            exploration->failed = true;
            tell_error(exploration);
            break;
        }
        if (!next_choices()) {
            exploration->ended = true;
            break;
        }
    }
    exploration->states = nseen;
}
