/* How products are cut into tiles, each of which one thread computes.
 *
 * oneDNN may add the products of an element up in another order where it is given other sizes, so
 * one thread computes the same tiles as many threads. For each tile oneDNN packs the tile's rows of
 * op(a) and columns of op(b) again. Smaller tiles keep more threads busy, larger ones cost one
 * thread less: most where the result is wide, and less where neither operand is transposed. A wide
 * result of many rows is cut into rows only, as tiles side by side would read and pack the same
 * rows of op(a). */
#include <stdbool.h>

#include "pool.h"
#include "product.h"

enum { WIDE = 512, MANY = 2048, FEWEST = 4, UNIT = 16, THIN = 4, THIN_READS = 1 << 17 };
static const double worth = 1 << 23; /* products of two numbers */

static struct tr_tile largest_of_many(const struct tr_product *p)
{
    const bool plain = p->ta == 'N' && p->tb == 'N';
    if (p->n <= WIDE) return (struct tr_tile){.rows = plain ? 256 : 512, .columns = WIDE};
    if (p->ta == 'T' || p->m <= WIDE) return (struct tr_tile){.rows = 2048, .columns = 768};
    return (struct tr_tile){.rows = p->m < MANY ? 512 : 1024, .columns = 4096};
}

/* The size of parts of n items that are at most `most`, nearly equal, and whole units. */
static long even(long n, long most)
{
    const long parts = n > most ? tr_ranges(n, most) : 1, each = tr_ranges(n, parts);
    return each > UNIT ? tr_ranges(each, UNIT) * UNIT : UNIT;
}

static struct tr_tile parts(const struct tr_product *p, long down, long across)
{
    return (struct tr_tile){.rows = even(p->m, tr_ranges(p->m, down)),
                            .columns = even(p->n, tr_ranges(p->n, across))};
}

static struct tr_tile capped(const struct tr_product *p)
{
    const struct tr_tile most = largest_of_many(p);
    return (struct tr_tile){.rows = even(p->m, most.rows), .columns = even(p->n, most.columns)};
}

static long count(const struct tr_product *p, struct tr_tile tile)
{
    return tr_ranges(p->m, tile.rows) * tr_ranges(p->n, tile.columns);
}

/* A product of few rows reads its columns of op(b) once: how long that takes is the memory's
 * affair, and each thread reads some. */
static bool is_thin(const struct tr_product *p)
{
    return p->m <= THIN && p->k > 0 && p->ta == 'N' && p->tb == 'T';
}

/* A product that is worth the threads' meeting has at least four tiles, also where all of it would
 * go into one or two: by rows, which costs one thread less than 1 % with AVX-512, or two by two
 * where only op(b) is transposed, which then costs less. Tiles have nearly the same size. */
static struct tr_tile four_or_more(const struct tr_product *p)
{
    const struct tr_tile tile = capped(p);
    if (count(p, tile) >= FEWEST) return tile;
    if (p->ta == 'N' && p->tb == 'T') return parts(p, 2, 2);
    return (struct tr_tile){.rows = even(p->m, tr_ranges(p->m, FEWEST)), .columns = tile.columns};
}

/* ---- Without AVX-512 --------------------------------------------------------------------------
 *
 * oneDNN's AVX2 kernels pack their operands where 1 / rows + 1 / columns of the result is below
 * 0.0038, and read the operands of other products where they lie. That takes up to 1.2 times as
 * long where the result is wide, 1.3 to 2.5 times where a is transposed, and no longer elsewhere.
 * So the tiles of such a product are packed if the whole is: four or more, else two. If half of the
 * product is too small for that, it is not cut where a is transposed: that product is the gradient
 * of weights, and the threads have the tiles of another gradient beside it. */

static const double most_thin = 0.0038;

static double thinness(struct tr_tile tile)
{
    return 1.0 / (double)tile.rows + 1.0 / (double)tile.columns;
}

static bool is_packed(struct tr_tile tile)
{
    return thinness(tile) < most_thin;
}

/* The n tiles that are nearest to squares. */
static struct tr_tile squarest(const struct tr_product *p, long n)
{
    struct tr_tile best = parts(p, n, 1);
    for (long down = 1; down < n; ++down) {
        const struct tr_tile tile = parts(p, down, n / down);
        if (n % down == 0 && thinness(tile) < thinness(best)) best = tile;
    }
    return best;
}

static struct tr_tile packed(const struct tr_product *p, struct tr_tile whole)
{
    const struct tr_tile usual = four_or_more(p);
    if (is_packed(usual)) return usual;
    const long most = (long)((double)p->m * (most_thin - 1.0 / (double)p->n)); /* of whole rows */
    if (most > FEWEST) return parts(p, most, 1);
    for (long n = FEWEST; n >= 2; n /= 2) {
        const struct tr_tile tile = squarest(p, n);
        if (is_packed(tile)) return tile;
    }
    return p->ta == 'T' ? whole : usual;
}

struct tr_tile tr_product_largest(const struct tr_product *p, enum tr_kernels kernels)
{
    const struct tr_tile whole = {.rows = p->m, .columns = p->n};
    if (p->m == 0 || p->n == 0) return (struct tr_tile){.rows = UNIT, .columns = UNIT};
    if (is_thin(p))
        return (struct tr_tile){.rows = UNIT, .columns = even(p->n, tr_ranges(THIN_READS, p->k))};
    if ((double)p->m * (double)p->n * (double)p->k < worth) return capped(p);
    if (kernels == TR_KERNELS_AVX2 && is_packed(whole) && (p->ta == 'T' || p->n > WIDE))
        return packed(p, whole);
    return four_or_more(p);
}
