/* Measures how fast the ranks multiply matrices when they do nothing else. */
#include "peak.h"

#include <assert.h>

#include "watch/clock.h"

/* Three matrices of floats that fit a core's cache of the second level together; each product has
 * 2 SIZE^3 operations. The first products are slow: oneDNN makes their code. */
enum { SIZE = 384, NWARM = 2, NTIMED = 80 };
static_assert(3 * SIZE * SIZE * sizeof(float) <= TR_MEMORY_UNIT, "one unit of memory is enough");

/* 0: there is no memory for it */
static double measure(const struct tr_backend *backend)
{
    const size_t count = (size_t)SIZE * SIZE;
    const struct tr_first_values normal = {.deviation = 1};
    float *x = backend->take(TR_MEMORY_UNIT, false);
    if (!x) return 0;
    /* Bits of floats are finite numbers of the shorter types, too. */
    if (backend->initialize) backend->initialize(x, 2 * count, &normal, 0);
    struct tr_data *y = (struct tr_data *)(x + 2 * count);
    double best = 0;
    for (int i = 0; i < NWARM + NTIMED; ++i) {
        const double began = tr_clock_seconds();
        backend->linear_forward(y, (const struct tr_data *)x, (const struct tr_data *)(x + count),
                                NULL, NULL, SIZE, SIZE, SIZE);
        backend->wait();
        const double seconds = tr_clock_seconds() - began;
        const double flops = 2.0 * SIZE * (double)count / seconds;
        if (i >= NWARM && seconds > 0 && flops > best) best = flops;
    }
    backend->give(x, false);
    return best;
}

tr_status tr_peak_measure(const struct tr_backend *backend, const struct tr_mesh *mesh, bool wanted,
                          double *flops)
{
    uint8_t asked = wanted;
    *flops = 0;
    TR_TRY(tr_mesh_check(mesh, tuttiBroadcast(&asked, &asked, 1, tuttiUint8, 0, mesh->world, NULL),
                         "asking rank 0 whether the peak of products is to be measured"));
    if (!asked) return TR_OK;
    const double mine = measure(backend);
    double sums[2] = {mine, mine > 0}; /* the operations, and how many ranks have measured them */
    TR_TRY(tr_mesh_check(mesh,
                         tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, mesh->world, NULL),
                         "adding up what the ranks' products reach"));
    if (sums[1] == mesh->nranks) *flops = sums[0];
    return TR_OK;
}
