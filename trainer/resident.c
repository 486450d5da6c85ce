/* Plans and reads the resident set of a rank's process.
 *
 * A rank reads messages of its peers in place: it maps whole arenas of the peers (those that come
 * from tuttiMemAlloc), and the kernel counts their pages for both processes. A rank that shards
 * units maps the weights, gradients and gathered units of the others; replicas, ranks of tp and the
 * two holders of a tied table map each other's gradients. */
#include "resident.h"

#include <stdio.h>

#include "ops/backend.h"

enum { HUGE_PAGE = 2 << 20 };

/* A process of tutti-train without a model: measured, 17 to 20 MiB on Debian 12 with oneDNN 2.6. */
static const double process_bytes = 18 << 20;

/* The stack of a worker and oneDNN's buffers of its products: measured, 2 to 6 MiB in models of 10
 * million parameters and below, up to 20 MiB where width and context are 1024. */
static const uint64_t worker_bytes = 6 << 20;

uint64_t tr_resident_threads(int nthreads)
{
    if (nthreads < 2) return 0;
    return (uint64_t)(nthreads - 1) * (TR_ATTENTION_ROOM * sizeof(float) + worker_bytes);
}

static double in_pages(uint64_t nbytes)
{
    return (double)((nbytes + HUGE_PAGE - 1) / HUGE_PAGE) * HUGE_PAGE;
}

void tr_resident_of(const int size[TR_NUM_AXES], enum tr_sharding sharding,
                    const struct tr_memory *m, const struct tr_memory *tied,
                    struct tr_resident *resident)
{
    /* Ranks that hold the shards of this rank's units, and those that hold equal shards. */
    const int shards = tr_mesh_extent(size, tr_engine_shard_axes(sharding)),
              replicas = tr_mesh_extent(size, TR_AXES_DATA) / shards;
    const double weights = in_pages(m->weights), gradients = in_pages(m->gradients),
                 gathered = in_pages(m->gathered);
    *resident =
        (struct tr_resident){.own = weights + gradients + gathered + in_pages(m->optimizer) +
                                    in_pages(m->activations) + in_pages(m->snapshot),
                             .peers = (double)(shards - 1) * (weights + gradients + gathered) +
                                      (double)(replicas - 1 + size[TR_TP] - 1) * gradients,
                             .process = process_bytes};
    if (tied) resident->peers += in_pages(tied->gradients);
}

double tr_resident_sum(const struct tr_resident *resident)
{
    return resident->own + resident->peers + resident->process;
}

uint64_t tr_resident_peak(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
    fclose(file);
    return (uint64_t)kib * 1024;
}
