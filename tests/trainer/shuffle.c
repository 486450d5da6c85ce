/* Renumbers the pieces of a call before the pool gets them. */
#include "shuffle.h"

#include "ops/pool.h"

/* The linker's names: --wrap sends the callers of tr_pool_run to the first, and gives the pool's
 * own function the second. */
void __wrap_tr_pool_run(tr_piece *piece, const void *arg, long npieces);
void __real_tr_pool_run(tr_piece *piece, const void *arg, long npieces);

static uint64_t order;
static _Thread_local uint64_t ncalls;
static _Thread_local long given;

long pieces_given(void)
{
    return given;
}

void shuffle_pieces(uint64_t seed)
{
    order = seed;
}

/* Piece number `index` of the pool's is number `first + index * step` of the call's; step and
 * npieces have no common divisor. */
struct shuffled {
    tr_piece *piece;
    const void *arg;
    long npieces, first, step;
};

static void shuffled_piece(const void *arg, long index)
{
    const struct shuffled *s = arg;
    s->piece(s->arg, (s->first + index * s->step) % s->npieces);
}

static long common_divisor(long a, long b)
{
    while (b) {
        const long rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void __wrap_tr_pool_run(tr_piece *piece, const void *arg, long npieces)
{
    if (npieces > 1) given += npieces;
    if (!order || npieces < 2) {
        __real_tr_pool_run(piece, arg, npieces);
        return;
    }
    const uint64_t number = (order + ++ncalls) * 0x9e3779b97f4a7c15u;
    struct shuffled s = {.piece = piece, .arg = arg, .npieces = npieces};
    s.first = (long)(number >> 40) % npieces;
    s.step = 1 + (long)(number >> 20 & 0xfffff) % (npieces - 1);
    while (common_divisor(s.step, npieces) > 1) ++s.step;
    __real_tr_pool_run(shuffled_piece, &s, npieces);
}
