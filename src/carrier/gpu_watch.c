/* The thread that asks the driver whether a GPU is lost. */
#include "carrier/gpu_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/process_lock.h"
#include "base/thread.h"
#include "driver/capture.h"
#include "driver/context.h"
#include "executor/work.h"
#include "transport/fabric.h"

enum { LEAST_NS = 1000000 }; /* between two questions */

/* Owned by its users together. */
struct tt_gpu_watch {
    /* immutable after creation */
    struct tt_context *context;
    void
        *event; /* never recorded: to ask about it waits for nothing, and tells of failed kernels */
    pid_t process;
    pthread_t thread;
    /* guarded by the lock of the process: users_lock */
    int nusers;
    struct tt_gpu_watch *next;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the thread waits for it */
    pthread_cond_t ran;     /* others do: `running` */
    struct tt_gpu_task *tasks;
    const struct tt_gpu_task *running;
    bool asked, stop;
    int64_t answered_ns; /* 0: never */
    tt_status lost;
    char text[TT_ERROR_TEXT];
};

static struct tt_process_lock users_lock = TT_PROCESS_LOCK;
static struct tt_gpu_watch *watches; /* guarded by users_lock */

static void destroy(struct tt_gpu_watch *watch)
{
    if (watch->event) tt_context_event_destroy(watch->context, watch->event);
    tt_context_close(watch->context);
    pthread_cond_destroy(&watch->ran);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

static void ask_locked(struct tt_gpu_watch *watch)
{
    pthread_mutex_unlock(&watch->lock);
    (void)tt_context_is_reset(watch->context);
    const tt_status status = tt_context_event_query(watch->context, watch->event);
    const bool is_over = status < 0 && tt_context_is_over(watch->context);
    pthread_mutex_lock(&watch->lock);
    watch->asked = false;
    watch->answered_ns = tt_now_ns();
    if (status >= 0 || is_over || watch->lost) return;
    snprintf(watch->text, sizeof watch->text, "%s", tt_last_error());
    watch->lost = status;
}

/* The task that is due first; NULL: there is none. */
static struct tt_gpu_task *next_task_locked(const struct tt_gpu_watch *watch)
{
    struct tt_gpu_task *first = watch->tasks;
    for (struct tt_gpu_task *task = first; task; task = task->next)
        if (task->next_ns < first->next_ns) first = task;
    return first;
}

static void run_locked(struct tt_gpu_watch *watch, struct tt_gpu_task *task)
{
    task->next_ns = INT64_MAX; /* who tells in the meantime sets it */
    watch->running = task;
    pthread_mutex_unlock(&watch->lock);
    const int64_t pause_ns = task->run(task);
    const int64_t next_ns = pause_ns == INT64_MAX ? INT64_MAX : tt_now_ns() + pause_ns;
    pthread_mutex_lock(&watch->lock);
    if (next_ns < task->next_ns) task->next_ns = next_ns;
    watch->running = NULL;
    pthread_cond_broadcast(&watch->ran);
}

static void *serve(void *argument)
{
    struct tt_gpu_watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stop) {
        struct tt_gpu_task *task = next_task_locked(watch);
        if (watch->asked)
            ask_locked(watch);
        else if (task && task->next_ns <= tt_now_ns())
            run_locked(watch, task);
        else
            tt_condition_wait(&watch->changed, &watch->lock, task ? task->next_ns : INT64_MAX);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static tt_status create(struct tt_context *context, struct tt_gpu_watch **out)
{
    struct tt_gpu_watch *watch = calloc(1, sizeof *watch);
    if (!watch) return tt_fail(TT_ERR_SYSTEM, "out of memory for the watch of a GPU");
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->ran, NULL);
    tt_condition_init(&watch->changed);
    watch->process = getpid();
    tt_status status = tt_context_open(tt_context_gpu(context), &watch->context);
    if (!status) status = tt_context_event_create(watch->context, &watch->event);
    const int error = status ? 0 : tt_thread_start(&watch->thread, serve, watch);
    if (error)
        status =
            tt_fail_errno(error, "cannot start the thread that asks GPUs%s", tt_thread_hint(error));
    if (status) {
        destroy(watch);
        return status;
    }
    *out = watch;
    return TT_OK;
}

static tt_status get_locked(struct tt_context *context, struct tt_gpu_watch **out)
{
    struct tt_gpu_watch *watch = watches;
    if (watch && watch->process != getpid()) watch = watches = NULL; /* the parent's */
    while (watch && watch->context != context) watch = watch->next;
    if (!watch) {
        TT_TRY(create(context, &watch));
        watch->next = watches;
        watches = watch;
    }
    watch->nusers++;
    *out = watch;
    return TT_OK;
}

tt_status tt_gpu_watch_get(struct tt_context *context, struct tt_gpu_watch **watch)
{
    tt_process_lock(&users_lock);
    const tt_status status = get_locked(context, watch);
    tt_process_unlock(&users_lock);
    return status;
}

void tt_gpu_watch_put(struct tt_gpu_watch *watch)
{
    if (!watch || watch->process != getpid()) return;
    tt_process_lock(&users_lock);
    const bool last = --watch->nusers == 0;
    struct tt_gpu_watch **at = &watches;
    while (last && *at != watch) at = &(*at)->next;
    if (last) *at = watch->next;
    tt_process_unlock(&users_lock);
    if (!last) return;
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    destroy(watch);
}

static void tell_locked(struct tt_gpu_watch *watch, struct tt_gpu_task *task)
{
    task->next_ns = 0;
    pthread_cond_signal(&watch->changed);
}

void tt_gpu_watch_begin_task(struct tt_gpu_watch *watch, struct tt_gpu_task *task)
{
    pthread_mutex_lock(&watch->lock);
    task->next = watch->tasks;
    watch->tasks = task;
    tell_locked(watch, task);
    pthread_mutex_unlock(&watch->lock);
}

void tt_gpu_watch_tell(struct tt_gpu_watch *watch, struct tt_gpu_task *task)
{
    pthread_mutex_lock(&watch->lock);
    tell_locked(watch, task);
    pthread_mutex_unlock(&watch->lock);
}

void tt_gpu_watch_end_task(struct tt_gpu_watch *watch, struct tt_gpu_task *task)
{
    if (watch->process != getpid()) return;
    pthread_mutex_lock(&watch->lock);
    while (watch->running == task) pthread_cond_wait(&watch->ran, &watch->lock);
    struct tt_gpu_task **at = &watch->tasks;
    while (*at != task) at = &(*at)->next;
    *at = task->next;
    pthread_mutex_unlock(&watch->lock);
}

tt_status tt_gpu_watch_look(struct tt_gpu_watch *watch)
{
    if (watch->process != getpid()) return TT_OK;
    pthread_mutex_lock(&watch->lock);
    if (!watch->asked && tt_now_ns() - watch->answered_ns >= LEAST_NS) {
        watch->asked = true;
        pthread_cond_signal(&watch->changed);
    }
    const tt_status status = watch->lost;
    if (status) tt_set_last_error(watch->text);
    pthread_mutex_unlock(&watch->lock);
    return status;
}

tt_status tt_gpu_watch_check(struct tt_gpu_watch *watch, struct tt_fabric *fabric,
                             const struct tt_work *work, const char *otherwise)
{
    if (tt_gpu_watch_look(watch) >= 0) return TT_OK;
    char cause[TT_ERROR_TEXT], name[128], call[160];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    tt_fabric_name_rank(fabric, fabric->rank, name, sizeof name);
    snprintf(call, sizeof call, "%s", work ? "" : otherwise);
    if (work) work->ops->describe(work, call, sizeof call);
    return tt_fabric_fail(fabric, TT_ERR_DEVICE, "%s: GPU %d is lost, as found in %s: %s", name,
                          tt_context_gpu(watch->context), call, cause);
}

tt_status tt_gpu_watch_check_outside(struct tt_gpu_watch *watch, struct tt_engine *engine,
                                     const char *otherwise)
{
    if (tt_gpu_watch_look(watch) >= 0) return TT_OK;
    tt_engine_enter(engine);
    const tt_status status = tt_gpu_watch_check(watch, engine->fabric, NULL, otherwise);
    tt_engine_leave(engine);
    return status;
}
