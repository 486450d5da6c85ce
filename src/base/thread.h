/* Starting the library's own threads, and what the application may do to its threads meanwhile. */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread; NULL: detached. The thread takes no signal that is sent to the process: those
 * are for the application's threads. The signals of a fault in the thread itself (SIGSEGV and the
 * other synchronous ones) are left as they are in the caller: were they blocked, the kernel would
 * end the process without running the application's handler. 0, or an errno. */
int tt_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* For messages, behind "cannot start a thread": what is most likely to mend the error of
 * tt_thread_start, in parentheses, or "". */
const char *tt_thread_hint(int error);

/* Until tt_cancel_allow with the result, pthread_cancel of this thread waits: a thread that ended
 * in a wait of the library would keep its locks, and its communicator's call, for good. May be
 * nested.
 */
static inline int tt_cancel_put_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void tt_cancel_allow(int before)
{
    (void)pthread_setcancelstate(before, &before);
}
static inline void tt_cancel_allow_at_end(const int *before)
{
    tt_cancel_allow(*before);
}
/* A statement: tt_cancel_put_off until the end of the block. Each public function begins so, but
 * for those that only compute, and calls and groups: these put cancels off before they wait, or
 * come to a lock of the process or a descriptor. */
#define TT_CANCELS_WAIT                                                                            \
    __attribute__((cleanup(tt_cancel_allow_at_end), unused)) const int tt_cancels_before =         \
        tt_cancel_put_off()

/* How many threads this process can have at most, by the limits of the system and the user. *limit:
 * the name of the least of these. */
long tt_thread_limit(const char **limit);

#endif
