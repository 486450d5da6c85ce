/* Makes the communicators of one thread's group, or of one function, together, or none of them. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "communicator/group.h"

struct over_bootstrap {
    struct tt_bootstrap *bootstrap;
    int64_t deadline_ns;
};

static tt_status bootstrap_allgather(void *context, const void *mine, void *all, size_t nbytes)
{
    struct over_bootstrap *over = context;
    return tt_bootstrap_allgather(over->bootstrap, mine, all, nbytes, over->deadline_ns);
}

static tt_status init_rank(const struct tt_pending_init *init)
{
    struct over_bootstrap over;
    if (init->make) return init->make(init);
    const int64_t start_ns = tt_now_ns();
    TT_TRY(tt_bootstrap_create(&over.bootstrap, &init->id, init->rank, init->nranks,
                               tt_deadline_ns(init->config.init_timeout_ms)));
    over.deadline_ns = tt_bootstrap_deadline(over.bootstrap);
    const struct tt_participants participants = {.allgather = bootstrap_allgather,
                                                 .context = &over,
                                                 .deadline_ns = over.deadline_ns,
                                                 .nparticipants = init->nranks,
                                                 .key = tt_bootstrap_key(over.bootstrap)};
    const int64_t joined_ns = tt_now_ns();
    tuttiComm_t comm;
    const tt_status status =
        tt_comm_assemble(&comm, &participants, init->rank, init->nranks, &init->config);
    const struct tt_bootstrap_counts counts = tt_bootstrap_counts(over.bootstrap);
    tt_bootstrap_destroy(over.bootstrap);
    if (status) return status;
    comm->init.bootstrap = counts;
    comm->init.join_ns = (uint64_t)(joined_ns - start_ns);
    comm->init.total_ns = (uint64_t)(tt_now_ns() - start_ns);
    *init->comm = comm;
    return TT_OK;
}

/* All threads of a group begin, or none: one that cannot be started would be waited for. */
struct init_gate {
    pthread_mutex_t lock; /* held by the starter until all threads are there */
    /* guarded by lock */
    tt_status status;
    char error[TT_ERROR_TEXT];
};

/* Whether the two are split from one parent. Another communicator may have its address. */
static bool have_one_parent(const struct tt_pending_init *a, const struct tt_pending_init *b)
{
    return a->parent && a->parent == b->parent && a->number == b->number;
}

static void note_parents(struct tt_pending_init *inits, int ninits)
{
    for (int i = 0; i < ninits; i++) {
        int first = inits[i].parent ? 0 : i; /* inits that have none may be very many */
        while (first < i && !have_one_parent(&inits[first], &inits[i])) first++;
        inits[i].repeats_parent = first < i;
    }
}

/* Whether the inits have splits of all ranks of this one's parent: these fail together, so that
 * none waits. Another thread may have freed the parents. */
static bool has_all_ranks(const struct tt_pending_init *inits, int ninits, int split)
{
    int nranks = 0;
    for (int i = 0; i < ninits; i++)
        nranks += inits[i].make && !inits[i].repeats_parent &&
                  !sodium_memcmp(inits[i].parent_key, inits[split].parent_key, TT_KEY_BYTES);
    return nranks == inits[split].nranks;
}

static void give_up_split(const struct tt_pending_init *inits, int ninits, int split,
                          tt_status status)
{
    if (!has_all_ranks(inits, ninits, split)) inits[split].give_up(&inits[split], status);
}

/* One init in a thread of its own, or the splits of one parent. */
struct init_thread {
    const struct tt_pending_init *inits; /* all that are made together */
    int ninits, first;                   /* the first one of this thread */
    struct init_gate *gate;
    pthread_t thread;
    bool started;
    tt_status status;
    char error[TT_ERROR_TEXT];
};

/* Other ranks may wait in the split behind one that has failed. */
static tt_status make_in_turn(const struct init_thread *self)
{
    const struct tt_pending_init *inits = self->inits;
    tt_status status = init_rank(&inits[self->first]);
    for (int i = self->first + 1; i < self->ninits; i++) {
        if (!have_one_parent(&inits[i], &inits[self->first])) continue;
        if (status) {
            give_up_split(inits, self->ninits, i, status);
            break;
        }
        status = init_rank(&inits[i]);
    }
    return status;
}

static void *run_init(void *argument)
{
    struct init_thread *self = argument;
    pthread_mutex_lock(&self->gate->lock);
    self->status = self->gate->status;
    if (self->status) tt_set_last_error(self->gate->error);
    pthread_mutex_unlock(&self->gate->lock);
    if (!self->status) self->status = make_in_turn(self);
    if (self->status) snprintf(self->error, sizeof self->error, "%s", tt_last_error());
    return NULL;
}

/* The first failure. */
static tt_status collect(struct init_thread *threads, int nthreads)
{
    const struct init_thread *failed = NULL;
    for (int i = 0; i < nthreads; i++) {
        if (threads[i].started) pthread_join(threads[i].thread, NULL);
        if (threads[i].status && !failed) failed = &threads[i];
    }
    if (!failed) return TT_OK;
    tt_set_last_error(failed->error);
    return failed->status;
}

static void forget_all(const struct tt_pending_init *inits, int ninits)
{
    for (int i = 0; i < ninits; i++) {
        tt_comm_free(*inits[i].comm);
        *inits[i].comm = NULL;
    }
}

static void start_locked(struct init_thread *self)
{
    struct init_gate *gate = self->gate;
    const int error = tt_thread_start(&self->thread, run_init, self);
    self->started = !error;
    if (!error) return;
    gate->status = self->status =
        tt_fail_errno(error, "cannot start a thread for the init of rank %d%s",
                      self->inits[self->first].rank, tt_thread_hint(error));
    snprintf(gate->error, sizeof gate->error, "%s", tt_last_error());
    snprintf(self->error, sizeof self->error, "%s", tt_last_error());
}

tt_status tt_init_check_number(int ninits)
{
    const char *limit;
    const long most = tt_thread_limit(&limit);
    if (ninits <= most) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%d ranks are to be made in this process, each by a thread, and it can have at "
                   "most %ld threads (%s): raise that, or use more processes",
                   ninits, most, limit);
}

/* *have_begun: all that are made have begun to join, where the failure of one reaches the others'
 * ranks by itself. */
static tt_status init_all(struct tt_pending_init *inits, int ninits, bool *have_begun)
{
    *have_begun = ninits == 1;
    if (ninits == 1) return init_rank(inits);
    TT_TRY(tt_init_check_number(ninits));
    struct init_thread *threads = calloc((size_t)ninits, sizeof *threads);
    if (!threads) return tt_fail(TT_ERR_SYSTEM, "out of memory for the init of %d ranks", ninits);
    struct init_gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    note_parents(inits, ninits);
    pthread_mutex_lock(&gate.lock);
    for (int i = 0; i < ninits; i++) *inits[i].comm = NULL;
    for (int i = 0; i < ninits && !gate.status; i++) {
        if (inits[i].repeats_parent) continue;
        threads[i] =
            (struct init_thread){.inits = inits, .ninits = ninits, .first = i, .gate = &gate};
        start_locked(&threads[i]);
    }
    *have_begun = !gate.status;
    pthread_mutex_unlock(&gate.lock);
    const tt_status status = collect(threads, ninits);
    if (status) forget_all(inits, ninits);
    free(threads);
    return status;
}

/* Before any of them begins: one whose address cannot be used would be waited for. */
static tt_status settle_all(struct tt_pending_init *inits, int ninits)
{
    for (int i = 0; i < ninits; i++)
        if (!inits[i].make)
            TT_TRY(tt_unique_id_settle(&inits[i].id, inits[i].rank, inits[i].nranks,
                                       tt_deadline_ns(inits[i].config.init_timeout_ms)));
    return TT_OK;
}

static void drop_ids(const struct tt_pending_init *inits, int ninits)
{
    for (int i = 0; i < ninits; i++)
        if (!inits[i].make && inits[i].drops_id) tt_unique_id_drop(&inits[i].id);
}

/* Whether the init before it is of the same communicator. */
static bool has_id_of_last(const struct tt_pending_init *inits, int i)
{
    return i > 0 && !inits[i - 1].make &&
           !sodium_memcmp(&inits[i].id, &inits[i - 1].id, sizeof inits[i].id);
}

/* Only splits that were refused themselves, or only the others. A communicator keeps the reason
 * that it gets first. */
static void give_up_splits(const struct tt_pending_init *inits, int ninits, bool are_refused,
                           tt_status status)
{
    for (int i = 0; i < ninits; i++)
        if (inits[i].make && (inits[i].status != TT_OK) == are_refused)
            give_up_split(inits, ninits, i, status);
}

void tt_init_refuse(struct tt_pending_init *inits, int ninits, tt_status status)
{
    char text[TT_ERROR_TEXT];
    note_parents(inits, ninits);
    give_up_splits(inits, ninits, true, status);
    give_up_splits(inits, ninits, false, status);
    snprintf(text, sizeof text, "%s", tt_last_error());
    for (int i = 0; i < ninits; i++) {
        tt_set_last_error(text);
        if (!inits[i].make && !has_id_of_last(inits, i))
            tt_unique_id_fail(&inits[i].id, inits[i].rank, inits[i].nranks, status);
    }
    tt_set_last_error(text);
    drop_ids(inits, ninits);
}

/* Some have begun. Rank 0 has begun to listen at an address that is known without an id: the other
 * ranks would wait there for rank 0, which may have failed before it joined. */
static void fail_begun(const struct tt_pending_init *inits, int ninits, tt_status status)
{
    for (int i = 0; i < ninits; i++)
        if (!inits[i].make && inits[i].id.flags & TT_ID_AWAIT && inits[i].rank == 0)
            tt_unique_id_fail(&inits[i].id, 0, inits[i].nranks, status);
    drop_ids(inits, ninits);
}

void tt_init_hold_parents(struct tt_pending_init *inits, int ninits,
                          const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ninits; i++)
        for (int k = 0; k < ncalls && inits[i].parent && !inits[i].holds_parent; k++)
            inits[i].holds_parent = calls[k].comm == &inits[i].parent->core &&
                                    inits[i].parent->number == inits[i].number;
}

tt_status tt_init_together(struct tt_pending_init *inits, int ninits)
{
    TT_CANCELS_WAIT;
    bool have_begun = false;
    tt_status status = settle_all(inits, ninits);
    if (!status) status = init_all(inits, ninits, &have_begun);
    if (status && have_begun)
        fail_begun(inits, ninits, status);
    else if (status)
        tt_init_refuse(inits, ninits, status);
    return status;
}
