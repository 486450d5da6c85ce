/* A pool: one operation at a time, whose pieces are handed out by a counter.
 *
 *     the thread that calls        a worker
 *     writes the call
 *     left = npieces
 *                                  take: left - 1, from n to n - 1: piece npieces - n is its own
 *     take, compute, ...           compute, unfinished - 1, take, ...
 *     waits for unfinished == 0
 *
 * A worker reads the call only while it has a piece of it, and the caller waits for every piece: so
 * a worker that comes late finds no piece, or one of the next call, and never a call that is being
 * written. Nobody waits for a worker that has no piece: where another program takes a core, the
 * other threads take the pieces.
 *
 * Who finds nothing to do looks again for some tens of microseconds, which is longer than the time
 * between most operations, and then sleeps. A thread that the system has put aside in the middle of
 * its piece gets the core of the one that sleeps. */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64, LOOKS = 1000 };

struct worker {
    /* immutable after init */
    struct tr_pool *pool;
    float *room;
    pthread_t thread;
};

/* Owned by the thread that opened it. */
struct tr_pool {
    /* immutable after init */
    int nworkers;
    struct worker *workers;
    /* the call; owner: the caller, until `left` gives its pieces to all */
    tr_piece *piece;
    const void *arg;
    long npieces;
    /* atomic */
    alignas(CACHE_LINE) atomic_long left;       /* pieces that nobody has taken */
    alignas(CACHE_LINE) atomic_long unfinished; /* pieces that have not returned */
    alignas(CACHE_LINE) atomic_int sleeping;    /* workers that sleep, or are about to */
    atomic_bool waiting;                        /* the caller sleeps, or is about to */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool stop;
};

static _Thread_local struct tr_pool *own_pool; /* that this thread's calls use */
static _Thread_local float *own_room;          /* of a worker */

static void look_again(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Computes a piece of the call; false when there is none left. */
static bool compute_piece(struct tr_pool *pool)
{
    long left = atomic_load_explicit(&pool->left, memory_order_relaxed);
    do {
        if (left == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->left, &left, left - 1,
                                                    memory_order_acquire, /* acquire: give_out */
                                                    memory_order_relaxed));
    pool->piece(pool->arg, pool->npieces - left);
    /* release: wait_for_all; and in the order of all threads before `waiting`, see there */
    if (atomic_fetch_sub_explicit(&pool->unfinished, 1, memory_order_seq_cst) > 1) return true;
    if (atomic_load_explicit(&pool->waiting, memory_order_seq_cst)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
    return true;
}

/* Sleeps until there is a piece; false when the pool ends. A worker says that it sleeps and then
 * looks for pieces, the caller gives out pieces and then looks for sleepers: so one of them sees
 * the other. */
static bool sleep_for_work(struct tr_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->sleeping, 1, memory_order_seq_cst);
    while (!pool->stop && atomic_load_explicit(&pool->left, memory_order_seq_cst) == 0)
        pthread_cond_wait(&pool->work, &pool->lock);
    atomic_fetch_sub_explicit(&pool->sleeping, 1, memory_order_relaxed);
    const bool more = !pool->stop;
    pthread_mutex_unlock(&pool->lock);
    return more;
}

static bool wait_for_work(struct tr_pool *pool)
{
    for (int i = 0; i < LOOKS; ++i) {
        if (atomic_load_explicit(&pool->left, memory_order_relaxed)) return true;
        look_again();
    }
    return sleep_for_work(pool);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    own_room = worker->room;
    do {
        while (compute_piece(worker->pool)) continue;
    } while (wait_for_work(worker->pool));
    return NULL;
}

/* Gives the pieces of the call to all threads. */
static void give_out(struct tr_pool *pool, long npieces)
{
    atomic_store_explicit(&pool->unfinished, npieces, memory_order_relaxed);
    atomic_store_explicit(&pool->left, npieces, memory_order_seq_cst); /* release: compute_piece */
    const int sleeping = atomic_load_explicit(&pool->sleeping, memory_order_seq_cst);
    if (!sleeping) return;
    pthread_mutex_lock(&pool->lock);
    for (long i = 0; i < sleeping && i + 1 < npieces; ++i) pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

/* As with the workers, the caller says that it waits and then looks at the count, and who finishes
 * the last piece counts it and then looks whether the caller waits. */
static void wait_for_all(struct tr_pool *pool)
{
    for (int i = 0; i < LOOKS; ++i) {
        /* acquire: compute_piece */
        if (atomic_load_explicit(&pool->unfinished, memory_order_acquire) == 0) return;
        look_again();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store_explicit(&pool->waiting, true, memory_order_seq_cst);
    /* acquire: compute_piece */
    while (atomic_load_explicit(&pool->unfinished, memory_order_seq_cst))
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store_explicit(&pool->waiting, false, memory_order_relaxed);
    pthread_mutex_unlock(&pool->lock);
}

void tr_pool_run(tr_piece *piece, const void *arg, long npieces)
{
    struct tr_pool *pool = own_pool;
    if (!pool || npieces < 2) {
        for (long index = 0; index < npieces; ++index) piece(arg, index);
        return;
    }
    own_pool = NULL; /* what a piece calls runs on the thread that has the piece */
    pool->piece = piece;
    pool->arg = arg;
    pool->npieces = npieces;
    give_out(pool, npieces);
    while (compute_piece(pool)) continue;
    wait_for_all(pool);
    own_pool = pool;
}

int tr_pool_threads(void)
{
    return own_pool ? own_pool->nworkers + 1 : 1;
}

float *tr_pool_room(float *own)
{
    return own_room ? own_room : own;
}

/* ---- Open, close ------------------------------------------------------------------------------
 */

/* In a child of fork: it has no workers, and the lock may be held by one that it does not have. */
static void forget(void)
{
    own_pool = NULL;
}

static void forget_in_children(void)
{
    pthread_atfork(NULL, NULL, forget);
}

/* pthread_create with all signals blocked but those that a thread's own instructions raise. */
static int start(struct worker *worker)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; ++i)
        sigdelset(&others, of_faults[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    const int error = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static tr_status start_worker(struct tr_pool *pool, size_t room)
{
    struct worker *worker = &pool->workers[pool->nworkers];
    const size_t nbytes = (room * sizeof(float) / CACHE_LINE + 1) * CACHE_LINE;
    worker->pool = pool;
    worker->room = aligned_alloc(CACHE_LINE, nbytes);
    const int error = worker->room ? start(worker) : ENOMEM;
    if (!error) {
        ++pool->nworkers;
        return TR_OK;
    }
    free(worker->room);
    return tr_fail("starting a rank's thread number %d: %s; a smaller --threads needs fewer",
                   pool->nworkers + 2, strerror(error));
}

tr_status tr_pool_open(int nthreads, size_t room)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (nthreads < 2) return TR_OK;
    pthread_once(&once, forget_in_children);
    struct tr_pool *pool = aligned_alloc(alignof(struct tr_pool), sizeof *pool);
    if (!pool) return tr_fail("out of memory for %d threads", nthreads);
    *pool = (struct tr_pool){.workers = calloc((size_t)nthreads, sizeof *pool->workers)};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    own_pool = pool;
    tr_status status = pool->workers ? TR_OK : tr_fail("out of memory for %d threads", nthreads);
    for (int i = 1; status == TR_OK && i < nthreads; ++i) status = start_worker(pool, room);
    if (status < 0) tr_pool_close();
    return status;
}

void tr_pool_close(void)
{
    struct tr_pool *pool = own_pool;
    if (!pool) return;
    own_pool = NULL;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->nworkers; ++i) {
        pthread_join(pool->workers[i].thread, NULL);
        free(pool->workers[i].room);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}
