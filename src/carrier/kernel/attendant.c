/* The thread that looks after GPUs: a list of what to look at, each with the time when. */
#include "carrier/kernel/attendant.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/process_lock.h"
#include "base/thread.h"

enum {
    BRIEF_NS = 50000,    /* so long after something has moved, works are looked at all the time, */
    PAUSE_NS = 50000,    /* then in this interval */
    EXAMINE_NS = 1000000 /* system calls and the deadline */
};

/* Owned by its users together. */
struct tt_attendant {
    /* immutable after creation */
    pid_t process;
    pthread_t thread;
    /* guarded by the lock of the process: users_lock */
    int nusers;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* the attendant waits for it: the list, `stop` or a time */
    pthread_cond_t looked;     /* others do: `looking` and queues */
    struct tt_attended *first; /* the list */
    const struct tt_attended *looking;
    bool stop;
};

static struct tt_process_lock users_lock = TT_PROCESS_LOCK;
static struct tt_attendant *present; /* guarded by users_lock */

/* ---- The thread ----------------------------------------------------------------------------- */

static void look_locked(struct tt_attendant *attendant, struct tt_attended *attended)
{
    attended->next_ns = INT64_MAX; /* who tells in the meantime sets it */
    attendant->looking = attended;
    pthread_mutex_unlock(&attendant->lock);
    const int64_t pause_ns = attended->look(attended);
    const int64_t next_ns = pause_ns == INT64_MAX ? INT64_MAX : tt_now_ns() + pause_ns;
    pthread_mutex_lock(&attendant->lock);
    if (next_ns < attended->next_ns) attended->next_ns = next_ns;
    attendant->looking = NULL;
    pthread_cond_broadcast(&attendant->looked);
}

/* Looks at all for which it is time. Returns when the next one is due. */
static int64_t look_at_all_locked(struct tt_attendant *attendant)
{
    const int64_t now_ns = tt_now_ns();
    int64_t next_ns = INT64_MAX;
    for (struct tt_attended *attended = attendant->first; attended; attended = attended->next)
        if (attended->next_ns <= now_ns) look_locked(attendant, attended);
    for (const struct tt_attended *attended = attendant->first; attended; attended = attended->next)
        if (attended->next_ns < next_ns) next_ns = attended->next_ns;
    return next_ns;
}

static void wait_locked(struct tt_attendant *attendant, int64_t until_ns)
{
    if (until_ns > tt_now_ns()) {
        tt_condition_wait(&attendant->changed, &attendant->lock, until_ns);
    } else {
        pthread_mutex_unlock(&attendant->lock);
        sched_yield();
        pthread_mutex_lock(&attendant->lock);
    }
}

static void *attend(void *argument)
{
    struct tt_attendant *attendant = argument;
    pthread_mutex_lock(&attendant->lock);
    while (!attendant->stop) {
        const int64_t next_ns = look_at_all_locked(attendant);
        if (!attendant->stop) wait_locked(attendant, next_ns);
    }
    pthread_mutex_unlock(&attendant->lock);
    return NULL;
}

/* ---- Users ---------------------------------------------------------------------------------- */

static void destroy(struct tt_attendant *attendant)
{
    pthread_cond_destroy(&attendant->looked);
    pthread_cond_destroy(&attendant->changed);
    pthread_mutex_destroy(&attendant->lock);
    free(attendant);
}

static tt_status create(struct tt_attendant **out)
{
    struct tt_attendant *attendant = calloc(1, sizeof *attendant);
    if (!attendant) return tt_fail(TT_ERR_SYSTEM, "out of memory for the attendant of GPUs");
    attendant->process = getpid();
    pthread_mutex_init(&attendant->lock, NULL);
    pthread_cond_init(&attendant->looked, NULL);
    tt_condition_init(&attendant->changed);
    const int error = tt_thread_start(&attendant->thread, attend, attendant);
    if (error) {
        destroy(attendant);
        return tt_fail_errno(error, "cannot start the thread that looks after GPUs%s",
                             tt_thread_hint(error));
    }
    *out = attendant;
    return TT_OK;
}

tt_status tt_attendant_get(struct tt_attendant **attendant)
{
    tt_status status = TT_OK;
    tt_process_lock(&users_lock);
    if (!present || present->process != getpid()) status = create(&present);
    if (!status) {
        present->nusers++;
        *attendant = present;
    }
    tt_process_unlock(&users_lock);
    return status;
}

void tt_attendant_put(struct tt_attendant *attendant)
{
    if (!attendant || attendant->process != getpid()) return;
    tt_process_lock(&users_lock);
    const bool last = --attendant->nusers == 0;
    if (last) present = NULL;
    tt_process_unlock(&users_lock);
    if (!last) return;
    pthread_mutex_lock(&attendant->lock);
    attendant->stop = true;
    pthread_cond_signal(&attendant->changed);
    pthread_mutex_unlock(&attendant->lock);
    pthread_join(attendant->thread, NULL);
    destroy(attendant);
}

static void tell_locked(struct tt_attendant *attendant, struct tt_attended *attended)
{
    attended->next_ns = 0;
    pthread_cond_signal(&attendant->changed);
}

void tt_attendant_tell(struct tt_attendant *attendant, struct tt_attended *attended)
{
    pthread_mutex_lock(&attendant->lock);
    tell_locked(attendant, attended);
    pthread_mutex_unlock(&attendant->lock);
}

void tt_attend(struct tt_attendant *attendant, struct tt_attended *attended)
{
    pthread_mutex_lock(&attendant->lock);
    attended->next = attendant->first;
    attendant->first = attended;
    tell_locked(attendant, attended);
    pthread_mutex_unlock(&attendant->lock);
}

static void unattend_locked(struct tt_attendant *attendant, const struct tt_attended *attended)
{
    while (attendant->looking == attended) pthread_cond_wait(&attendant->looked, &attendant->lock);
    struct tt_attended **at = &attendant->first;
    while (*at != attended) at = &(*at)->next;
    *at = attended->next;
}

void tt_unattend(struct tt_attendant *attendant, struct tt_attended *attended)
{
    pthread_mutex_lock(&attendant->lock);
    unattend_locked(attendant, attended);
    pthread_mutex_unlock(&attendant->lock);
}

/* ---- Works ---------------------------------------------------------------------------------- */

/* True: all are done. */
static bool advance(struct tt_attended_queue *queue, const struct tt_attended_works *works)
{
    bool waiting = false;
    uint64_t progress = 0;
    for (struct tt_work *work = works->works; work; work = work->next) {
        waiting |= tt_work_advance(work) == TT_IN_PROGRESS;
        progress += work->progress;
    }
    const int64_t now_ns = tt_now_ns();
    if (!queue->moved_ns) queue->examined_ns = now_ns;
    if (!queue->moved_ns || progress != queue->progress) queue->moved_ns = now_ns;
    queue->progress = progress;
    if (waiting && now_ns - queue->examined_ns >= EXAMINE_NS) {
        queue->examined_ns = now_ns;
        for (struct tt_work *work = works->works; work; work = work->next) tt_work_examine(work);
    }
    return !waiting;
}

static int64_t look_at_queue(struct tt_attended *attended)
{
    struct tt_attended_queue *queue = (struct tt_attended_queue *)attended;
    struct tt_attendant *attendant = queue->attendant;
    pthread_mutex_lock(&attendant->lock);
    struct tt_attended_works *works = queue->first;
    pthread_mutex_unlock(&attendant->lock);
    if (!works) return INT64_MAX;
    if (!advance(queue, works)) return tt_now_ns() - queue->moved_ns < BRIEF_NS ? 0 : PAUSE_NS;
    pthread_mutex_lock(&attendant->lock);
    if (!(queue->first = works->next)) queue->last = &queue->first;
    pthread_mutex_unlock(&attendant->lock);
    queue->moved_ns = 0;
    queue->progress = 0;
    works->done(works);
    return 0;
}

tt_status tt_attended_open(struct tt_attended_queue *queue)
{
    struct tt_attendant *attendant;
    TT_TRY(tt_attendant_get(&attendant));
    *queue = (struct tt_attended_queue){
        .attended.look = look_at_queue, .attendant = attendant, .last = &queue->first};
    tt_attend(attendant, &queue->attended);
    return TT_OK;
}

void tt_attended_close(struct tt_attended_queue *queue)
{
    struct tt_attendant *attendant = queue->attendant;
    if (!attendant) return;
    pthread_mutex_lock(&attendant->lock);
    while (queue->first) pthread_cond_wait(&attendant->looked, &attendant->lock);
    unattend_locked(attendant, &queue->attended);
    pthread_mutex_unlock(&attendant->lock);
    tt_attendant_put(attendant);
    queue->attendant = NULL;
}

bool tt_attended_is_seen_empty(struct tt_attended_queue *queue)
{
    struct tt_attendant *attendant = queue->attendant;
    if (pthread_mutex_trylock(&attendant->lock)) return false;
    const bool is_empty = !queue->first;
    pthread_mutex_unlock(&attendant->lock);
    return is_empty;
}

void tt_attended_push(struct tt_attended_queue *queue, struct tt_attended_works *works)
{
    struct tt_attendant *attendant = queue->attendant;
    pthread_mutex_lock(&attendant->lock);
    works->next = NULL;
    *queue->last = works;
    queue->last = &works->next;
    tell_locked(attendant, &queue->attended);
    pthread_mutex_unlock(&attendant->lock);
}
