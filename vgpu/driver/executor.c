/* The executor: picks the item whose next step runs, by the seed.
 *
 * While one host thread calls and never lets work wait for long, steps run in that thread: some at
 * each call, as many as needed where a call waits. Their order then depends on the seed alone. Once
 * two threads have called, or work has waited for settings.idle_ms without a call, the executor's
 * own thread runs steps all the time, for the rest of the process. */
#include "run.h"

#include <dirent.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vgpu/random.h>

enum {
    STEPS_A_CALL = 4,        /* a call that does not wait runs 0 to 3 */
    LOOKS = 4,               /* rounds without a change before a deadlock is reported, at least */
    MOST_LOOKS = 64,         /* at most */
    IDLE_STEPS = 16,         /* of kernels that run and change nothing, until all look again */
    FIRST_PAUSE_US = 20,     /* between two such rounds; twice as long each time */
    LONGEST_PAUSE_US = 4000, /* a round runs the loops of all kernels that wait */
    HOST_PAUSE_US = 1000,    /* of a thread that waits for the host */
    TEXT = 4096
};

/* What steps may depend on. */
static struct {
    struct vd_item **at; /* items that wait for no other item */
    uint32_t n, room;
    uint64_t random;
    uint64_t round;    /* grows with each change: an item that waits is stepped once a round */
    uint64_t moved_ns; /* when the last change was */
    uint32_t pause_us; /* the next pause between two rounds without a change */
    uint32_t nidle;    /* steps of kernels that changed nothing */
    uint32_t looks;    /* rounds since the last change in which all items waited */
    uint64_t loads;    /* of all kernels, at the first of these rounds */
    bool warned;       /* a stall was reported since the last change */
    bool free;         /* the executor's thread runs steps */
    bool ending;       /* the process ends: no host function begins */
    uint64_t caller;   /* the thread that called first; 0: none yet */
    uint64_t calls;    /* by host threads */
    unsigned inside;   /* threads that wait in vd_executor_wait */
} ex;

/* A thread that waits for an item while the executor's thread runs steps. */
struct waiter {
    const struct vd_item *item;
    sem_t ended;
    struct waiter *next;
};
static struct waiter *waiters;

static const struct vd_runner *runner_of(const struct vd_item *item)
{
    static const struct vd_runner *const runners[] = {
        [VD_LAUNCH] = &vd_launch_runner, [VD_COPY] = &vd_copy_runner,
        [VD_FILL] = &vd_fill_runner,     [VD_HOST] = &vd_host_runner,
        [VD_WRITE] = &vd_write_runner,   [VD_AWAIT] = &vd_await_runner,
        [VD_ALLOC] = &vd_alloc_runner,   [VD_FREE] = &vd_free_runner};
    return runners[item->op.what];
}

static void go_free(void)
{
    if (ex.free) return;
    ex.free = true;
    pthread_cond_broadcast(&vd.work);
}

static void moved(void)
{
    ex.round++;
    ex.moved_ns = vd_now_ns();
    ex.pause_us = FIRST_PAUSE_US;
    ex.looks = 0;
    ex.warned = false;
}

void vd_executor_changed(void)
{
    moved();
    pthread_cond_broadcast(&vd.work);
}

uint32_t vd_executor_launches_before(const struct vd_item *item)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ex.n; i++)
        n += ex.at[i]->op.what == VD_LAUNCH && ex.at[i]->number < item->number &&
             ex.at[i]->context->device == item->context->device;
    return n;
}

bool vd_executor_idle(void)
{
    return ex.n == 0;
}

bool vd_executor_replays(void)
{
    return !ex.free;
}

void vd_executor_add(struct vd_item *item)
{
    if (ex.n == ex.room) {
        ex.room = ex.room == 0 ? 64 : 2 * ex.room;
        ex.at = realloc(ex.at, ex.room * sizeof(struct vd_item *));
        if (ex.at == NULL) abort();
    }
    ex.at[ex.n++] = item;
    vd_executor_changed();
}

/* The item has ended, or is given up. */
static void end(struct vd_item *item, CUresult result)
{
    for (uint32_t i = 0; i < ex.n; i++)
        if (ex.at[i] == item) {
            ex.at[i] = ex.at[--ex.n];
            break;
        }
    if (item->state == VD_RUNNING) runner_of(item)->end(item);
    moved();
    vd_item_end(item, result);
}

/* Contexts of which a kernel failed in the steps of the call that is running. That call goes on as
 * if nothing had happened unless it waits, as with the real driver; the next one sees the error. */
static struct CUctx_st *failing[VD_DEVICES];
static CUresult failures[VD_DEVICES];

void vd_executor_left(void)
{
    for (int i = 0; i < VD_DEVICES; i++) {
        if (failing[i] != NULL && vd_object_is(failing[i], VD_CONTEXT) &&
            failing[i]->sticky == CUDA_SUCCESS)
            failing[i]->sticky = failures[i];
        failing[i] = NULL;
    }
}

/* A kernel has failed: its context returns `result` from now on, and its other work is dropped. */
static void fail_context(struct CUctx_st *context, CUresult result)
{
    const int device = context->device->gpu.number;
    if (context->failed == CUDA_SUCCESS) context->failed = result;
    if (ex.free || (failing[device] != NULL && failing[device] != context)) {
        context->sticky = context->failed;
    } else {
        failing[device] = context;
        failures[device] = context->failed;
    }
    for (uint32_t i = 0; i < ex.n;) {
        if (ex.at[i]->context == context && ex.at[i]->op.what != VD_HOST) {
            end(ex.at[i], context->failed);
            i = 0;
        } else {
            i++;
        }
    }
}

static bool asleep(const struct vd_item *item)
{
    if (ex.ending && item->op.what == VD_HOST && item->state == VD_READY) return true;
    return item->waiting && item->round == ex.round;
}

/* The next item to look at, or NULL: all have looked since something moved. */
static struct vd_item *pick(void)
{
    uint32_t awake = 0;
    for (uint32_t i = 0; i < ex.n; i++) awake += !asleep(ex.at[i]);
    if (awake == 0) return NULL;
    uint32_t k = (uint32_t)(vg_random(&ex.random) % awake);
    for (uint32_t i = 0; i < ex.n; i++)
        if (!asleep(ex.at[i]) && k-- == 0) return ex.at[i];
    return NULL;
}

static void fail(struct vd_item *item, CUresult result, const char *text)
{
    struct CUctx_st *context = item->context;
    vd_report("fault", text);
    if (context->failed == CUDA_SUCCESS) context->failed = result; /* before what waits begins */
    end(item, result);
    fail_context(context, result);
}

/* One step of one item. false: nothing can move. */
static bool step(void)
{
    struct vd_item *item = pick();
    if (item == NULL) return false;
    const struct vd_runner *runner = runner_of(item);
    CUresult result = CUDA_ERROR_LAUNCH_FAILED;
    const char *text = "";
    if (item->state == VD_READY) {
        char error[512] = "";
        item->begun_ns = vd_now_ns();
        result = runner->begin(item, error);
        if (result != CUDA_SUCCESS) {
            fail(item, result, error);
            return true;
        }
        item->state = VD_RUNNING;
    }
    item->waiting = item->idle = false;
    switch (runner->step(item, &result, &text)) {
    case VG_DONE:
        end(item, CUDA_SUCCESS);
        break;
    case VG_FAULTED:
        fail(item, result, text);
        break;
    case VG_WAITING:
        if (!item->idle && item->op.what == VD_LAUNCH) moved(); /* before it waits */
        item->waiting = true;
        item->round = ex.round;
        break;
    case VG_MOVED:
        if (!item->idle)
            moved();
        else if (++ex.nidle % IDLE_STEPS == 0)
            ex.round++; /* the host may have written what others wait for */
        break;
    }
    return true;
}

/* Gives the lock back until something may have changed, for at most so many microseconds. */
static void pause_for(uint32_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)us * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&vd.work, &vd.lock, &until);
}

static bool from_outside(void)
{
    if (vd_hostfunc_running()) return true;
    for (uint32_t i = 0; i < ex.n; i++)
        if (ex.at[i]->outside) return true;
    return false;
}

static void describe(char text[TEXT], const char *first)
{
    size_t n = (size_t)snprintf(text, TEXT, "%s\n", first);
    for (uint32_t i = 0; i < ex.n && n + 1 < TEXT; i++) {
        if (ex.at[i]->op.what == VD_LAUNCH)
            vd_launch_describe(ex.at[i], text + n, TEXT - n);
        else
            snprintf(text + n, TEXT - n, "operation %llu of kind %d waits\n",
                     (unsigned long long)ex.at[i]->number, (int)ex.at[i]->op.what);
        n += strlen(text + n);
    }
}

static void deadlock(bool stalled)
{
    char text[TEXT];
    describe(text, stalled ? "all work waits for values that nobody has written for VGPU_STALL_MS"
                           : "all work waits for values that nobody can write any more");
    vd_report("deadlock", text);
    while (ex.n > 0) {
        struct CUctx_st *context = ex.at[0]->context;
        end(ex.at[0], CUDA_ERROR_LAUNCH_TIMEOUT);
        fail_context(context, CUDA_ERROR_LAUNCH_TIMEOUT);
    }
}

/* Whether the process has threads besides the calling one and those of the driver: they may be
 * about to make their first call. */
static bool others_may_call(void)
{
    enum { OWN = 3 };
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return true;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) n += task->d_name[0] != '.';
    closedir(tasks);
    return n > OWN;
}

/* A look may have read older values, for as many accesses as settings.late says. */
static void look_again_or_give_up(bool stalled)
{
    struct vg_model_counts counts;
    const uint64_t late = vd.settings.model ? vd.settings.late : 0;
    vg_model_count(vg_machine_model(vd.machine), &counts);
    if (ex.looks == 0) ex.loads = counts.loads;
    ex.round++;
    ex.looks++;
    if (ex.looks <= MOST_LOOKS && (ex.looks <= LOOKS || counts.loads - ex.loads < late)) return;
    if (!others_may_call())
        deadlock(false);
    else if (stalled)
        deadlock(true);
    else
        go_free(); /* from here on the time decides */
}

/* Nothing can move. Reports, or waits a little until all look again. */
static void stuck(void)
{
    const bool stalled = vd_now_ns() - ex.moved_ns > vd.settings.stall_ms * UINT64_C(1000000);
    if (ex.n > 0 && !from_outside() && ex.inside > 0 && (!ex.free || stalled)) {
        look_again_or_give_up(stalled);
        return;
    }
    if (ex.n > 0 && stalled && !ex.warned) {
        char text[TEXT];
        describe(text,
                 "nothing has moved for long; the work waits for the host or another process");
        ex.warned = true;
        vd_report("stall", text);
    }
    pause_for(ex.pause_us);
    if (ex.pause_us < LONGEST_PAUSE_US) ex.pause_us *= 2;
    ex.round++;
}

/* While the seed decides, a host function is waited for: what runs beside it would depend on how
 * fast it is. One that takes long may wait for a kernel. */
static void wait_for_host_function(void)
{
    const uint64_t until = vd_now_ns() + vd.settings.idle_ms * UINT64_C(1000000);
    while (!ex.free && vd_hostfunc_running()) {
        if (vd_now_ns() > until)
            go_free();
        else
            pause_for(HOST_PAUSE_US);
    }
}

void vd_executor_called(void)
{
    ex.calls++;
    if (ex.caller == 0) ex.caller = vd_this_thread();
    if (ex.caller != vd_this_thread()) go_free();
    if (ex.free || ex.n == 0) return;
    for (uint64_t k = vg_random(&ex.random) % STEPS_A_CALL; k > 0 && !ex.free; k--) {
        wait_for_host_function();
        if (step()) continue;
        if (!from_outside()) break;
        ex.round++; /* the host may have written what work waits for, and ask until it has ended */
    }
}

void vd_executor_ended(const struct vd_item *item)
{
    for (struct waiter **at = &waiters; *at != NULL;) {
        struct waiter *waiter = *at;
        if (waiter->item != item) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        sem_post(&waiter->ended);
    }
}

static void sleep_until_ended(const struct vd_item *item)
{
    struct waiter self_waits = {.item = item, .next = waiters};
    sem_init(&self_waits.ended, 0, 0);
    waiters = &self_waits;
    pthread_mutex_unlock(&vd.lock);
    while (sem_wait(&self_waits.ended) != 0) {
    }
    vd_lock();
    sem_destroy(&self_waits.ended);
}

void vd_executor_wait(struct vd_item *item)
{
    ex.inside++;
    while (item->state != VD_ENDED) {
        if (ex.free) {
            sleep_until_ended(item);
            continue;
        }
        wait_for_host_function();
        if (item->state == VD_ENDED || ex.free) continue;
        if (!step()) stuck();
        vd_give_way();
    }
    ex.inside--;
}

/* At the end of the process: whether work is left, and whether some of it does not wait. */
static bool work_is_left(bool *moves)
{
    bool left = false;
    *moves = false;
    for (uint32_t i = 0; i < ex.n; i++) {
        if (ex.at[i]->op.what == VD_HOST) continue;
        left = true;
        if (!ex.at[i]->waiting) *moves = true;
    }
    return left;
}

bool vd_executor_finish(uint32_t ms)
{
    const uint64_t begun = vd_now_ns(), most = ms * UINT64_C(1000000);
    uint64_t moved_ns = begun;
    bool moves;
    ex.ending = true;
    ex.inside++;
    while (work_is_left(&moves)) {
        const uint64_t now = vd_now_ns();
        if (moves) moved_ns = now;
        if (now - begun >= most || now - moved_ns >= most / 10) break;
        if (ex.free)
            pause_for(HOST_PAUSE_US);
        else if (!step())
            stuck();
        vd_give_way();
    }
    ex.inside--;
    return !work_is_left(&moves);
}

/* Work waits and no call comes: whether that has lasted too long. */
static void watch_for_idleness(void)
{
    const uint64_t calls = ex.calls, since = vd_now_ns();
    while (!ex.free && ex.calls == calls && ex.n > 0) {
        const uint64_t waited = vd_now_ns() - since, most = vd.settings.idle_ms * UINT64_C(1000000);
        if (ex.inside == 0 && waited >= most) go_free();
        if (!ex.free)
            pause_for(waited < most ? (uint32_t)((most - waited) / 1000 + 1) : HOST_PAUSE_US);
    }
}

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&vd.lock);
    for (;;) {
        if (ex.n == 0) {
            pthread_cond_wait(&vd.work, &vd.lock);
        } else if (!ex.free) {
            watch_for_idleness();
        } else {
            if (!step()) stuck();
            vd_give_way();
        }
    }
    return NULL;
}

CUresult vd_executor_start(void)
{
    pthread_t thread;
    ex.random = vd.settings.seed * UINT64_C(0x2545f4914f6cdd1d) + 7;
    moved();
    if (pthread_create(&thread, NULL, run, NULL) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_detach(thread);
    return CUDA_SUCCESS;
}
