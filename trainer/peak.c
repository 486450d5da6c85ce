/* Measures how fast the ranks multiply matrices when they do nothing else. */
#include "peak.h"

#include <math.h>

#include "ops/pool.h"
#include "watch/clock.h"

/* What one thread computes of a product has ROWS rows. Its matrices fit a core's cache of the
 * second level together. The first products are slow: oneDNN makes their code. */
enum { ROWS = 512, COLUMNS = 384, DEPTH = 256, NPRODUCTS = 3, NWARM = 1, NTIMED = 16 };

struct tr_peak_product tr_peak_product(int nthreads)
{
    /* A large product has four tiles at least, which three threads do not share evenly. */
    const int shares = nthreads == 3 ? 6 : nthreads;
    return (struct tr_peak_product){(long)ROWS * shares, COLUMNS, DEPTH};
}

static size_t operands_count(const struct tr_peak_product *p)
{
    return (size_t)(p->rows * p->depth + p->columns * p->depth + p->rows * p->columns);
}

size_t tr_peak_bytes(int nthreads)
{
    const struct tr_peak_product product = tr_peak_product(nthreads);
    const size_t nbytes = operands_count(&product) * sizeof(float);
    return (nbytes + TR_MEMORY_UNIT - 1) / TR_MEMORY_UNIT * TR_MEMORY_UNIT;
}

bool tr_peak_is_wanted(const struct tr_config *config)
{
    return config->log[0] || config->plot[0];
}

/* The operands and the result of this rank's product. */
struct operands {
    struct tr_peak_product product;
    struct tr_data *x, *w, *y; /* NULL: there is no memory for them */
};

static struct operands take(const struct tr_backend *backend)
{
    const int nthreads = tr_pool_threads();
    const struct tr_peak_product p = tr_peak_product(nthreads);
    const size_t x = (size_t)(p.rows * p.depth), w = (size_t)(p.columns * p.depth);
    const struct tr_first_values normal = {.deviation = 1};
    struct operands o = {.product = p};
    float *memory = backend->take(tr_peak_bytes(nthreads), false);
    if (!memory) return o;
    /* Bits of floats are finite numbers of the shorter types, too. */
    if (backend->initialize) backend->initialize(memory, x + w, &normal, 0);
    o.x = (struct tr_data *)memory;
    o.w = (struct tr_data *)(memory + x);
    o.y = (struct tr_data *)(memory + x + w);
    return o;
}

/* Seconds of each round: from when this rank left the meeting before it to when it left the one
 * behind it. The rank that leaves the first one first sees all of the products of all ranks, also
 * of those that wait for its core. */
static tr_status time_rounds(const struct tr_backend *backend, const struct tr_mesh *mesh,
                             const struct operands *o, double seconds[NTIMED])
{
    double left = 0;
    for (int i = 0; i <= NWARM + NTIMED; ++i) {
        TR_TRY(tr_mesh_check(mesh, tuttiBarrier(mesh->world, NULL),
                             "meeting before products that are timed"));
        const double now = tr_clock_seconds();
        if (i > NWARM) seconds[i - NWARM - 1] = now - left;
        left = now;
        if (!o->x || i == NWARM + NTIMED) continue;
        for (int k = 0; k < NPRODUCTS; ++k)
            backend->linear_forward(o->y, o->x, o->w, NULL, NULL, o->product.rows, o->product.depth,
                                    o->product.columns);
        backend->wait();
    }
    return TR_OK;
}

tr_status tr_peak_measure(const struct tr_backend *backend, const struct tr_mesh *mesh, bool wanted,
                          double *flops)
{
    uint8_t asked = wanted;
    *flops = 0;
    TR_TRY(tr_mesh_check(mesh, tuttiBroadcast(&asked, &asked, 1, tuttiUint8, 0, mesh->world, NULL),
                         "asking rank 0 whether the peak of products is to be measured"));
    if (!asked) return TR_OK;
    const struct operands o = take(backend);
    const struct tr_peak_product p = o.product;
    double seconds[NTIMED], best = INFINITY;
    /* the operations of a round, and how many ranks compute them */
    double sums[2] = {2.0 * NPRODUCTS * (double)p.rows * (double)p.columns * (double)p.depth,
                      o.x != NULL};
    tr_status status = time_rounds(backend, mesh, &o, seconds);
    if (o.x) backend->give(o.x, false);
    if (status == TR_OK)
        status = tr_mesh_check(
            mesh,
            tuttiAllReduce(seconds, seconds, NTIMED, tuttiFloat64, tuttiMax, mesh->world, NULL),
            "comparing how long the ranks' products take");
    if (status == TR_OK)
        status = tr_mesh_check(
            mesh, tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, mesh->world, NULL),
            "adding up the operations of the ranks' products");
    TR_TRY(status);
    for (int i = 0; i < NTIMED; ++i)
        if (seconds[i] > 0 && seconds[i] < best) best = seconds[i];
    if (sums[1] == mesh->nranks && isfinite(best)) *flops = sums[0] / best;
    return TR_OK;
}
