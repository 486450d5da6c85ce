/* Groups ranks by the id of their host. */
#include "base/hosts.h"

#include <stdlib.h>

/* One rank's identity, sorted to find who shares it. */
struct claim {
    uint64_t id;
    int32_t rank;
};

static int by_id(const void *left, const void *right)
{
    const struct claim *a = left, *b = right;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return a->rank - b->rank;
}

/* host_of[r] = the first rank of r's host. */
static void find_first_ranks(struct tt_hosts *hosts, struct claim *claims)
{
    qsort(claims, (size_t)hosts->nranks, sizeof *claims, by_id);
    int32_t first = 0;
    for (int i = 0; i < hosts->nranks; i++) {
        if (i == 0 || claims[i].id != claims[i - 1].id) first = claims[i].rank;
        hosts->host_of[claims[i].rank] = first;
    }
}

/* Numbers the hosts; begin[h + 1] counts the ranks of host h. */
static void number_hosts(struct tt_hosts *hosts)
{
    for (int r = 0; r < hosts->nranks; r++) {
        const int first = hosts->host_of[r];
        hosts->host_of[r] = first == r ? hosts->nhosts++ : hosts->host_of[first];
        hosts->local_of[r] = hosts->begin[hosts->host_of[r] + 1]++;
    }
}

static void list_ranks(struct tt_hosts *hosts)
{
    hosts->least = hosts->nranks;
    for (int h = 0; h < hosts->nhosts; h++) {
        const int size = hosts->begin[h + 1];
        if (size < hosts->least) hosts->least = size;
        if (size > hosts->most) hosts->most = size;
        hosts->begin[h + 1] += hosts->begin[h];
    }
    for (int r = 0; r < hosts->nranks; r++) {
        const int host = hosts->host_of[r], local = hosts->local_of[r];
        hosts->ranks[hosts->begin[host] + local] = r;
        if (local < hosts->least) hosts->lanes[(int64_t)local * hosts->nhosts + host] = r;
    }
}

/* In one allocation: host_of, local_of, ranks, lanes, begin. */
static size_t count_numbers(size_t nranks)
{
    return 5 * nranks + 1;
}

tt_status tt_hosts_create(const uint64_t *ids, int nranks, struct tt_hosts **out)
{
    const size_t n = (size_t)nranks;
    struct tt_hosts *hosts = calloc(1, sizeof *hosts);
    struct claim *claims = malloc(n * sizeof *claims);
    int32_t *numbers = calloc(count_numbers(n), sizeof *numbers);
    if (!hosts || !claims || !numbers) {
        free(hosts);
        free(claims);
        free(numbers);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the places of %d ranks", nranks);
    }
    *hosts = (struct tt_hosts){.nranks = nranks,
                               .host_of = numbers,
                               .local_of = numbers + n,
                               .ranks = numbers + 2 * n,
                               .lanes = numbers + 3 * n,
                               .begin = numbers + 4 * n};
    for (int r = 0; r < nranks; r++) claims[r] = (struct claim){ids[r], r};
    find_first_ranks(hosts, claims);
    number_hosts(hosts);
    list_ranks(hosts);
    free(claims);
    *out = hosts;
    return TT_OK;
}

static int distance_of(const uint8_t *distances, int nranks, int a, int b)
{
    const int there = distances[a * nranks + b], back = distances[b * nranks + a];
    return there > back ? there : back;
}

/* ids[r] = the first rank of those that are joined to r by pairs that are nearer than the farthest.
 * Returns how many groups there are: 1 where a pair's distance is not known. */
static int join_near(const uint8_t *distances, int nranks, uint64_t *ids)
{
    int farthest = 0, ngroups = nranks;
    for (int r = 0; r < nranks; r++) ids[r] = (uint64_t)r;
    for (int a = 0; a < nranks; a++)
        for (int b = 0; b < a; b++) {
            const int distance = distance_of(distances, nranks, a, b);
            if (!distance) return 1;
            if (distance > farthest) farthest = distance;
        }
    for (int a = 0; a < nranks; a++)
        for (int b = 0; b < a; b++) {
            if (distance_of(distances, nranks, a, b) == farthest || ids[a] == ids[b]) continue;
            const uint64_t low = ids[a] < ids[b] ? ids[a] : ids[b];
            const uint64_t high = ids[a] < ids[b] ? ids[b] : ids[a];
            for (int r = 0; r < nranks; r++)
                if (ids[r] == high) ids[r] = low;
            ngroups--;
        }
    return ngroups;
}

tt_status tt_hosts_by_distance(const uint8_t *distances, int nranks, struct tt_hosts **groups)
{
    uint64_t *ids = malloc((size_t)nranks * sizeof *ids);
    *groups = NULL;
    if (!ids) return tt_fail(TT_ERR_SYSTEM, "out of memory for the places of %d ranks", nranks);
    const int ngroups = join_near(distances, nranks, ids);
    const tt_status status =
        ngroups > 1 && ngroups < nranks ? tt_hosts_create(ids, nranks, groups) : TT_OK;
    free(ids);
    if (*groups) (*groups)->one_host = true;
    return status;
}

void tt_hosts_destroy(struct tt_hosts *hosts)
{
    if (!hosts) return;
    free(hosts->host_of); /* with all that lies behind it */
    free(hosts);
}

size_t tt_hosts_bytes(const struct tt_hosts *hosts)
{
    return sizeof *hosts + count_numbers((size_t)hosts->nranks) * sizeof *hosts->host_of;
}
