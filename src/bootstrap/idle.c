/* Unique ids to which no rank has come yet: one thread waits for the ranks of all, and an id costs
 * its listener. The thread becomes the root of the first id to which a rank comes, and another one
 * waits for the rest. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_epoll.h"
#include "base/private_fd.h"
#include "base/process_lock.h"
#include "base/thread.h"
#include "bootstrap/root_internal.h"
#include "net/scarce.h"

enum {
    LOOK_MS = 5000,      /* most between two looks for ids whose deadline has come */
    AGAIN_NS = 20000000, /* after a want of descriptors or memory */
};

struct idle {
    struct idle *next;
    int listener; /* owned */
    struct tt_unique_id id;
    int64_t deadline_ns;
    struct tt_scarce scarce; /* a rank has come, and waits for descriptors */
    struct tt_report report; /* what the root is told when it begins; status 0: nothing */
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
/* guarded by lock */
static struct idle *ids;
/* Of their listeners, with the ids as marks; fd -1: no thread waits */
static struct tt_epoll epoll = {.fd = -1};
static pid_t waiting; /* the process whose thread waits: not one made by fork */

static void destroy(struct idle *idle)
{
    sodium_memzero(&idle->id, sizeof idle->id);
    free(idle);
}

static void remove_locked(const struct idle *idle)
{
    struct idle **at = &ids;
    while (*at && *at != idle) at = &(*at)->next;
    if (*at) *at = idle->next;
    tt_epoll_set(&epoll, EPOLL_CTL_DEL, idle->listener, 0, 0);
}

static tt_status add_locked(struct idle *idle)
{
    if (tt_epoll_set(&epoll, EPOLL_CTL_ADD, idle->listener, EPOLLIN, tt_epoll_mark_of(idle)))
        return tt_socket_fail(errno, "bootstrap: cannot watch a listener");
    idle->next = ids;
    ids = idle;
    return TT_OK;
}

static void stop_waiting_locked(void)
{
    tt_epoll_close(&epoll);
}

/* Closes the listeners of ids to which nobody has come before their deadlines. Returns the earliest
 * deadline of the others. */
static int64_t expire_locked(void)
{
    int64_t earliest_ns = tt_deadline_ns(LOOK_MS);
    for (struct idle *idle = ids, *next; idle; idle = next) {
        next = idle->next;
        if (tt_expired(idle->deadline_ns)) {
            remove_locked(idle);
            tt_private_fd_close(idle->listener);
            destroy(idle);
        } else if (idle->deadline_ns < earliest_ns) {
            earliest_ns = idle->deadline_ns;
        }
    }
    return earliest_ns;
}

static void *wait_for_ranks(void *unused);

/* A rank has waited for descriptors, in the kernel's queue. Logs that once. Too long: the id ends
 * with the next expire_locked, and the ranks of this process have the cause. */
static void put_off_locked(struct idle *idle, int error)
{
    if (tt_scarce_is_news(&idle->scarce)) {
        errno = error;
        TT_WARN("bootstrap: a rank has to wait until its root can begin: %m (limit of open files: "
                "ulimit -n); will not be logged again");
    }
    if (tt_scarce_for_long(&idle->scarce)) {
        const tt_status status =
            tt_socket_fail(error, "bootstrap: the root could not begin for 10 s");
        tt_roots_keep_cause(&idle->id, status, tt_last_error());
        idle->deadline_ns = 1;
    }
}

/* The descriptor that a root takes, for a moment: a root that cannot have it would log that. */
static int try_descriptor(void)
{
    tt_private_fd_begin();
    const int fd = tt_private_fd_end(epoll_create1(EPOLL_CLOEXEC));
    if (fd < 0) return errno;
    tt_private_fd_close(fd);
    return 0;
}

/* NULL: not now. */
static struct tt_root *make_root_locked(struct idle *idle)
{
    struct tt_root *root;
    const int error = try_descriptor();
    if (!error && tt_root_make(&root, idle->listener, &idle->id, NULL, idle->deadline_ns) == TT_OK)
        return root;
    put_off_locked(idle, error ? error : ENOMEM);
    return NULL;
}

/* A rank has come to the id, or it was dropped: serves it. False: this thread is to go on waiting
 * for the others. */
static bool serve(struct idle *idle)
{
    tt_process_lock(&lock);
    if (tt_expired(idle->deadline_ns)) { /* dropped: expire_locked frees it */
        tt_process_unlock(&lock);
        return false;
    }
    struct tt_root *root = make_root_locked(idle);
    if (!root) {
        tt_process_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
        return false;
    }
    remove_locked(idle);
    if (idle->report.status) (void)tt_roots_tell(&idle->id, &idle->report);
    if (!ids) stop_waiting_locked();
    const bool others = ids && tt_root_start_thread(wait_for_ranks, NULL) != 0;
    tt_process_unlock(&lock);
    destroy(idle);
    tt_root_serve(root);
    return !others;
}

/* The id to which a rank has come until then; NULL: none. */
static struct idle *await_rank(int at, int64_t until_ns)
{
    struct epoll_event event;
    int n = epoll_wait(at, &event, 1, tt_left_ms(until_ns));
    tt_process_lock(&lock);
    n = tt_epoll_take(&epoll, &event, n);
    tt_process_unlock(&lock);
    if (n < 0) /* the program has closed the descriptor: the ids end at their deadlines */
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    return n == 1 ? event.data.ptr : NULL;
}

static void *wait_for_ranks(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "tutti-ids");
    for (;;) {
        tt_process_lock(&lock);
        const int64_t until_ns = expire_locked();
        const int at = epoll.fd;
        if (!ids) stop_waiting_locked();
        const bool none = !ids;
        tt_process_unlock(&lock);
        if (none) return NULL;
        struct idle *idle = await_rank(at, until_ns);
        if (idle && serve(idle)) return NULL;
    }
}

/* Forgets the ids of the parent process: its threads wait for their ranks. */
static void forget_inherited_locked(void)
{
    if (waiting == getpid()) return;
    while (ids) {
        struct idle *idle = ids;
        ids = idle->next;
        destroy(idle);
    }
    epoll.fd = -1;
    waiting = getpid();
}

static tt_status start_locked(struct idle *idle)
{
    const bool is_first = epoll.fd < 0;
    if (is_first && tt_epoll_open(&epoll))
        return tt_socket_fail(errno, "bootstrap: cannot wait for ranks");
    tt_status status = add_locked(idle);
    const int error = status == TT_OK && is_first ? tt_root_start_thread(wait_for_ranks, NULL) : 0;
    if (error) {
        remove_locked(idle);
        status = tt_fail_errno(error, "bootstrap: cannot start the root's thread%s",
                               tt_thread_hint(error));
    }
    if (status != TT_OK && is_first) stop_waiting_locked();
    return status;
}

tt_status tt_root_start_idle(int listener, const struct tt_unique_id *id, int64_t deadline_ns)
{
    struct idle *idle = calloc(1, sizeof *idle);
    tt_status status = idle ? TT_OK : tt_fail_errno(ENOMEM, "bootstrap: no memory for the root");
    if (idle) {
        *idle = (struct idle){.listener = listener, .deadline_ns = deadline_ns};
        memcpy(&idle->id, id, sizeof *id); /* leaves no copy of the key on the stack */
        tt_process_lock(&lock);
        forget_inherited_locked();
        status = start_locked(idle);
        tt_process_unlock(&lock);
    }
    if (status == TT_OK) return TT_OK;
    tt_private_fd_close(listener);
    if (idle) destroy(idle);
    return status;
}

/* The report waits here where no rank has come to the id yet. */
bool tt_root_tell(const struct tt_unique_id *id, const struct tt_report *report)
{
    bool found = false;
    tt_process_lock(&lock);
    forget_inherited_locked();
    for (struct idle *idle = ids; idle; idle = idle->next) {
        if (sodium_memcmp(idle->id.key, id->key, sizeof id->key) != 0) continue;
        if (!idle->report.status) idle->report = *report;
        found = true;
    }
    tt_process_unlock(&lock);
    return found || tt_roots_tell(id, report);
}

void tt_root_withdraw(const struct tt_unique_id *id, int rank, int nranks)
{
    tt_process_lock(&lock);
    forget_inherited_locked();
    for (struct idle *idle = ids; idle; idle = idle->next)
        if (idle->report.status && (idle->report.rank == rank || nranks == 1) &&
            !sodium_memcmp(idle->id.key, id->key, sizeof id->key))
            idle->report.status = TT_OK;
    tt_process_unlock(&lock);
}

/* Only the thread that waits may free an id: the end of the listener wakes it. */
void tt_unique_id_drop(const struct tt_unique_id *id)
{
    tt_process_lock(&lock);
    forget_inherited_locked();
    for (struct idle *idle = ids; idle; idle = idle->next) {
        if (sodium_memcmp(&idle->id, id, sizeof *id) != 0) continue;
        idle->deadline_ns = 1;
        if (!tt_private_fd_is_lost(idle->listener)) shutdown(idle->listener, SHUT_RDWR);
    }
    tt_process_unlock(&lock);
    tt_roots_drop(id);
}
