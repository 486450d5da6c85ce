/* The threads that share an operation. A thread that trains opens a pool; the operations that it
 * calls are cut into pieces, and the pieces are computed by that thread and the pool's workers,
 * each by whoever is free. Where an operation is cut depends on sizes only, never on the number of
 * threads, and pieces write to different memory: so the bits do not depend on that number either.
 */
#ifndef TR_POOL_H
#define TR_POOL_H

#include <stddef.h>

#include "../status.h"

/* Computes piece `index` of an operation. */
typedef void tr_piece(const void *arg, long index);

/* Gives this thread a pool of `nthreads` threads, itself included: nthreads - 1 workers are
 * started, each with `room` floats of its own. They take no signals but those of their own faults.
 * The thread must not have a pool. tr_pool_close, by the same thread, ends and frees the pool; it
 * does nothing where there is none. A child of fork has no pool. */
TR_NODISCARD tr_status tr_pool_open(int nthreads, size_t room);
void tr_pool_close(void);

/* How many threads compute the operations that this thread calls; 1 without a pool, and in a
 * piece. */
int tr_pool_threads(void);

/* Calls piece(arg, 0), piece(arg, 1), ..., piece(arg, npieces - 1), each once, and returns when all
 * have returned. They begin in this order, on any threads of this thread's pool. Without a pool,
 * and in a piece of another call, they run on this thread. */
void tr_pool_run(tr_piece *piece, const void *arg, long npieces);

/* On a worker the floats of its own, elsewhere `own`. */
float *tr_pool_room(float *own);

/* What a piece of most operations takes: floats, where elements or rows do not depend on each
 * other; columns, where rows are added up. */
enum { TR_PIECE_FLOATS = 16384, TR_PIECE_COLUMNS = 128 };

/* Part of a range that is cut into parts of `most` items: items first .. first + n - 1. */
struct tr_range {
    long first, n;
};

static inline long tr_ranges(long n, long most)
{
    return (n + most - 1) / most;
}

static inline struct tr_range tr_range_at(long n, long most, long index)
{
    const long first = index * most;
    return (struct tr_range){first, n - first < most ? n - first : most};
}

/* The rows of `width` floats that a piece takes. */
static inline long tr_piece_rows(long width)
{
    return width < TR_PIECE_FLOATS ? TR_PIECE_FLOATS / (width ? width : 1) : 1;
}

#endif
