/* Busy loops beside the ranks: what other programs do on a machine that several use. */
#ifndef TT_PERF_HOGS_H
#define TT_PERF_HOGS_H

#include <stdbool.h>
#include <sys/types.h>

#define PERF_MOST_HOGS 1024

/* The processes that perf_hogs_start started. Owned by the caller, who ends them. */
struct perf_hogs {
    pid_t leader; /* of their session; 0: none were started */
};

/* Starts `count` processes, 0 to PERF_MOST_HOGS, that do nothing but count. They have a session of
 * their own, as the program of another user has: Linux shares out processors among sessions
 * (sched_autogroup), and some launchers give their ranks a session, others do not. They may use the
 * processors that the parent of this process may use: a launcher binds its ranks to cores, but not
 * itself. The kernel ends them when the calling thread ends, in whatever way. False, with errno,
 * when not all could be started; none is left then. */
bool perf_hogs_start(struct perf_hogs *hogs, int count);

/* Ends the processes and waits for their end. */
void perf_hogs_end(struct perf_hogs *hogs);

#endif
