/* Streams: calls and functions in order, as CUDA has them. Every stream counts its calls and keeps
 * their first error; a stream of the host is a FIFO of tasks, which its own thread runs, and the
 * threads that wait for them. Streams of GPUs are in src/carrier. */
#ifndef TT_EXECUTOR_STREAM_H
#define TT_EXECUTOR_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct tt_stream;
struct tt_work;

/* What the kinds of streams do, each in its way. */
struct tt_stream_ops {
    /* Returns when the stream's first `ticket` calls are done; called with the stream's lock held.
     * may_run: the calling thread may run what it waits for. */
    void (*await)(struct tt_stream *stream, uint64_t ticket, bool may_run);
    /* Everything that the stream has beside its calls: waits for it, or looks at it. */
    tt_status (*synchronize)(struct tt_stream *stream);
    tt_status (*query)(struct tt_stream *stream);
    /* Ends the stream, whose calls have ended, and frees it; `inherited`: in a child made by fork,
     * of a stream of the parent. */
    void (*destroy)(struct tt_stream *stream, bool inherited);
    /* Fails for what streams of this kind cannot do: `function` of tutti.h, `instead` of CUDA. */
    tt_status (*need_tasks)(const struct tt_stream *stream, const char *function,
                            const char *instead);
};

/* The first member of every kind of stream. */
struct tt_stream {
    /* immutable after create */
    const struct tt_stream_ops *ops;
    pid_t process; /* that made it */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for threads that wait: a call has ended; uses CLOCK_MONOTONIC */
    /* guarded by lock */
    uint64_t queued, done;
    tt_status error; /* the first since the last synchronize */
    char error_text[TT_ERROR_TEXT];
};

/* ---- All streams ---------------------------------------------------------------------------- */

/* For who makes a kind of stream. */
void tt_stream_init(struct tt_stream *stream, const struct tt_stream_ops *ops);
void tt_stream_fini(struct tt_stream *stream);
/* One more call; a call has ended (its text is this thread's last error). */
void tt_stream_begin(struct tt_stream *stream);
void tt_stream_end(struct tt_stream *stream, tt_status status);
void tt_stream_end_locked(struct tt_stream *stream, tt_status status);
/* A call has failed (the text is this thread's last error), perhaps after it has ended well. */
void tt_stream_fail(struct tt_stream *stream, tt_status status);
/* tt_stream_ops.await where other threads run the calls. */
void tt_stream_await_end(struct tt_stream *stream, uint64_t ticket, bool may_run);
/* USAGE: this process is a child made by fork, and its parent made the stream: nothing runs it
 * here. */
TT_NODISCARD tt_status tt_stream_check(const struct tt_stream *stream);
/* Waits until everything queued before is done; the first error since the last synchronize, with
 * its text. Not from one of its own tasks. may_run: as in tt_stream_ops.await. */
TT_NODISCARD tt_status tt_stream_synchronize(struct tt_stream *stream, bool may_run);
/* TT_OK idle, TT_IN_PROGRESS, or the first error. */
TT_NODISCARD tt_status tt_stream_query(struct tt_stream *stream);
/* Runs what is queued, then frees. Not from one of its own tasks. NULL is allowed. */
void tt_stream_destroy(struct tt_stream *stream);

/* ---- Streams of the host -------------------------------------------------------------------- */

/* What a stream of the host runs in order. The first member of a struct of its creator, in memory
 * of tt_task_take. */
struct tt_task {
    /* awaited: the calling thread waits for the task and has nothing else to do */
    tt_status (*run)(struct tt_task *task, bool awaited);
    const struct tt_work *works; /* the calls that it runs, linked by `next`; NULL: none */
    /* owner: the stream */
    struct tt_task *next;
    int64_t due_ns; /* when the stream's thread runs the task, unless a thread that waits did */
    uint8_t class;  /* of its memory */
};

TT_NODISCARD tt_status tt_stream_create(struct tt_stream **stream);
bool tt_stream_is_hosts(const struct tt_stream *stream);
/* Memory for a task of the stream, which the task keeps until it has run. No memory of the heap is
 * taken once the stream has held as many tasks of that size at once. NULL: out of memory. */
struct tt_task *tt_task_take(struct tt_stream *stream, size_t nbytes);
/* Gives back the memory of a task that will not run. */
void tt_task_drop(struct tt_stream *stream, struct tt_task *task);
/* Queues task->run(task). Any thread. The task's ticket: how many have been queued, with it. */
uint64_t tt_stream_push(struct tt_stream *stream, struct tt_task *task);
/* From now on the stream's thread begins with a task at once (the default), or, `lazy`, when
 * TT_LAZY_NS have passed and no thread that waits has begun: where there is no core for the
 * stream's thread beside the one that computes. */
void tt_stream_set_lazy(struct tt_stream *stream, bool lazy);
enum { TT_LAZY_NS = 200000 };
/* One more communicator of this process has no such core, or (-1) one less. While there is one,
 * streams that run functions of the user's are lazy too (tt_stream_push_function). */
void tt_streams_count_lacking(int change);
/* tt_stream_push of a function of the user's, which may make calls of any communicator. */
void tt_stream_push_function(struct tt_stream *stream, struct tt_task *task);
/* Lazy streams begin with their tasks now, those of all streams of this process: a call waits for
 * another one, which may lie in such a stream. */
void tt_streams_hurry(void);
/* Waits for the task with this ticket, which is not done yet. The caller holds a lock without which
 * the task cannot end, so that the stream is not freed before this thread is known to wait: unlocks
 * it. */
void tt_stream_await_task(struct tt_stream *stream, uint64_t ticket, bool may_run,
                          pthread_mutex_t *held);
/* As tt_stream_await_task, at most until then, and runs no task: the stream's thread begins with
 * its tasks now. Whether the task is done. */
bool tt_stream_await_task_until(struct tt_stream *stream, uint64_t ticket, int64_t until_ns,
                                pthread_mutex_t *held);
/* While nothing is queued, the stream's thread calls idle(arg) again after so many ns as idle
 * returned; 0: at once. idle NULL: no longer, but a call that has begun goes on. */
void tt_stream_watch(struct tt_stream *stream, int64_t (*idle)(void *arg), void *arg);
/* Whether the calling thread runs a task of the stream, of any stream. stream: only to be compared;
 * may be gone. */
bool tt_stream_is_here(const struct tt_stream *stream);
bool tt_stream_is_served_here(void);
/* Whether a call with these turns (struct tt_work), and one before `turn`, is queued in a stream of
 * which the calling thread runs a task: that call begins when the task has ended, and calls after
 * it later. */
bool tt_stream_holds_turn(const _Atomic uint64_t *turns, uint64_t turn);
/* USAGE: the calling thread runs a task of the stream: it would wait for itself in `function`. */
TT_NODISCARD tt_status tt_stream_check_outside(const struct tt_stream *stream,
                                               const char *function);

#endif
