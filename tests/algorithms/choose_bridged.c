/* The choice for GPUs of several hosts, whose kernels reach one another over bridges. */
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "device/tables.h"
#include "placed.h"
#include "program/lower.h"
#include "shim.h"

static bool may_be_uneven(enum tt_collective collective)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)) != NULL; i++)
        if (algorithm->uneven) return true;
    return false;
}

/* Whether kernels of all ranks run the algorithm, from every root there is. */
static void check_runs(const struct tt_algorithm *algorithm, const struct tt_shape *given)
{
    struct tt_shape shape = *given;
    const int nroots = tt_collective_has_root(shape.collective) ? shape.nranks : 1;
    for (shape.root = 0; shape.root < nroots; shape.root++)
        for (int rank = 0; rank < shape.nranks; rank++) {
            struct tt_program *program;
            REQUIRE(!tt_program_create(algorithm, &shape, rank, &program));
            const char *refusal = tt_device_refusal(program);
            CHECK_MESSAGE(!refusal, "%s:%s, rank %d of %d, root %d: %s",
                          tt_collective_name(shape.collective), algorithm->name, rank, shape.nranks,
                          shape.root, refusal);
            free(program);
        }
}

/* What kernels are given of many ranks: the first, the last, and ranks of other hosts, from the
 * first root. */
static void check_runs_somewhere(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    const int n = shape->nranks, ranks[] = {0, 1, n / 2, n - 1};
    for (int i = 0; i < 4; i++) {
        struct tt_program *program;
        REQUIRE(!tt_program_create(algorithm, shape, ranks[i], &program));
        const char *refusal = tt_device_refusal(program);
        CHECK_MESSAGE(!refusal, "%s:%s, rank %d of %d: %s", tt_collective_name(shape->collective),
                      algorithm->name, ranks[i], n, refusal);
        free(program);
    }
}

/* Up to as many ranks as communicator/gpus.c lets have bridges, where the order of folds is free.
 */
TEST(choose, on_gpus_of_many_hosts_there_is_something_that_kernels_run)
{
    static const int nranks[] = {66, 128}, of_a_host[] = {1, 8, 128};
    enum { WAYS = 10 };
    for (size_t n = 0; n < 2 * 3 * TT_NCOLLECTIVES * WAYS; n++) {
        const size_t way = n % WAYS, placement = n / WAYS / TT_NCOLLECTIVES;
        uint64_t ids[TT_DEVICE_MOST_ENDS / 2];
        struct tt_hosts *hosts;
        for (int r = 0; r < TT_DEVICE_MOST_ENDS / 2; r++)
            ids[r] = (uint64_t)(1 + r / of_a_host[placement % 3]);
        REQUIRE(!tt_hosts_create(ids, nranks[placement / 3], &hosts));
        const enum tt_collective collective = (enum tt_collective)(n / WAYS % TT_NCOLLECTIVES);
        const struct tt_shape shape = {collective, hosts->nranks, 0, hosts};
        struct tt_setting setting = {.on_device = true, .nparts = 32, .slot_bytes = 128 << 10};
        setting.uneven = way % 2 && may_be_uneven(collective);
        setting.no_meetings = hosts->one_host; /* some ranks have no GPU */
        const struct tt_algorithm *algorithm =
            tt_choose(&shape, &setting, (size_t)8 << way / 2 * 6);
        check_runs_somewhere(algorithm, &shape);
        tt_hosts_destroy(hosts);
    }
}

/* Over bridges (TUTTI_DEVICE_BRIDGES). */
TEST(choose, on_gpus_of_several_hosts_there_is_something_that_kernels_run)
{
    const char *const placements[] = {"ab",       "aab",   "abab",     "abcd",
                                      "aaaabbbb", "aaabb", "abbbcccc", "aaaabbbbccccdddd"};
    enum { NPLACEMENTS = 8, WAYS = 20 };
    for (size_t n = 0; n < NPLACEMENTS * TT_NCOLLECTIVES * WAYS; n++) {
        struct tt_hosts *placed = hosts_of(placements[n / WAYS / TT_NCOLLECTIVES]);
        const enum tt_collective collective = (enum tt_collective)(n / WAYS % TT_NCOLLECTIVES);
        const struct tt_shape shape = {collective, placed->nranks, 0, placed};
        struct tt_setting setting = {.on_device = true, .nparts = 32, .slot_bytes = 128 << 10};
        setting.uneven = n % 2 && may_be_uneven(collective);
        setting.in_rank_order = n / 2 % 2;
        const struct tt_algorithm *algorithm =
            tt_choose(&shape, &setting, (size_t)8 << n / 4 % 5 * 6);
        REQUIRE(algorithm && !tt_meets(algorithm));
        check_runs(algorithm, &shape);
        tt_hosts_destroy(placed);
    }
}

/* The part of the call's data that the busiest host sends to others, or receives from them. */
static double off_host(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    const struct tt_steps steps = {.algorithm = algorithm, .shape = *shape};
    struct tt_traffic traffic = {.sent = 0};
    CHECK(!tt_count_traffic(&steps, &traffic));
    return (double)(traffic.sent > traffic.received ? traffic.sent : traffic.received) /
           ((double)tt_nblocks(algorithm, shape) * tt_nchannels(algorithm, shape));
}

/* An all-reduce crosses the network twice less a host's own share, and what is gathered or
 * scattered once less that share: as if a host were one rank. */
TEST(choose, on_gpus_of_several_hosts_large_data_crosses_the_network_as_between_single_ranks)
{
    const char *const placements[] = {"aabb", "aaaabbbb", "abababab", "aabbccdd"};
    const enum tt_collective collectives[] = {TT_ALL_REDUCE, TT_REDUCE_SCATTER, TT_ALL_GATHER};
    const double passes[] = {2, 1, 1};
    for (size_t n = 0; n < 4 * 3; n++) {
        struct tt_hosts *placed = hosts_of(placements[n / 3]);
        const struct tt_shape shape = {collectives[n % 3], placed->nranks, 0, placed};
        const struct tt_setting setting = {
            .on_device = true, .nparts = 32, .slot_bytes = 128 << 10, .net_mbit = 25000};
        const struct tt_algorithm *algorithm = tt_choose(&shape, &setting, (size_t)64 << 20);
        const double nhosts = placed->nhosts;
        CHECK_MESSAGE(off_host(algorithm, &shape) <= passes[n % 3] * (nhosts - 1) / nhosts + 1e-9,
                      "%s on %s: %s, %g of the data", tt_collective_name(collectives[n % 3]),
                      placements[n / 3], algorithm->name, off_host(algorithm, &shape));
        tt_hosts_destroy(placed);
    }
}

static struct tt_setting over(enum tt_bridge_way way, int nparts)
{
    return (struct tt_setting){.on_device = true,
                               .nparts = nparts,
                               .slot_bytes = 128 << 10,
                               .net_mbit = 400000,
                               .bridges = way};
}

/* Each copy has messages of its own, which cost the proxies frames. */
static void check_copies(const struct tt_algorithm *algorithm, const struct tt_shape *given,
                         const struct tt_setting *setting)
{
    struct tt_shape shape = *given;
    struct tt_copies copies, of_last_root;
    const int nchannels = tt_nchannels(algorithm, &shape);
    const int most = setting->nparts > nchannels ? setting->nparts / nchannels : 1;
    const char *name = algorithm->name;
    tt_copies_make(&copies, algorithm, &shape, setting);
    for (int i = 0; i < TT_COPIES_SIZES; i++)
        CHECK_MESSAGE(copies.at[i] >= 1 && copies.at[i] <= most, "%s: %d copies of %d for 2^%d",
                      name, copies.at[i], most, i);
    CHECK_MESSAGE(!setting->bridges || tt_copies_at(&copies, 8) == 1, "%s: %d copies", name,
                  tt_copies_at(&copies, 8));
    CHECK_MESSAGE(setting->bridges || tt_copies_at(&copies, 8) == most, "%s: %d copies", name,
                  tt_copies_at(&copies, 8));
    CHECK_MESSAGE(tt_copies_at(&copies, SIZE_MAX) == most, "%s: %d copies of %d of the most bytes",
                  name, tt_copies_at(&copies, SIZE_MAX), most);
    shape.root = shape.nranks - 1;
    tt_copies_make(&of_last_root, algorithm, &shape, setting);
    CHECK(!memcmp(&copies, &of_last_root, sizeof copies));
}

TEST(choose, over_bridges_short_calls_have_few_copies_and_long_ones_all)
{
    static const enum tt_collective collectives[] = {TT_ALL_REDUCE, TT_BROADCAST, TT_ALL_GATHER,
                                                     TT_REDUCE_SCATTER, TT_ALL_TO_ALL};
    static const int nparts[] = {2, 8, 32};
    struct tt_hosts *placed = hosts_of("aaaabbbb");
    for (int n = 0; n < 5 * TT_NBRIDGE_WAYS * 3; n++) {
        const enum tt_collective collective = collectives[n % 5];
        const struct tt_shape shape = {collective, placed->nranks, 0, placed};
        const struct tt_setting setting =
            over((enum tt_bridge_way)(n / 5 % TT_NBRIDGE_WAYS), nparts[n / 5 / TT_NBRIDGE_WAYS]);
        const struct tt_algorithm *algorithm;
        for (int a = 0; (algorithm = tt_algorithm_at(collective, a)) != NULL; a++)
            if (!tt_refusal(algorithm, &shape) && !tt_meets(algorithm))
                check_copies(algorithm, &shape, &setting);
    }
    tt_hosts_destroy(placed);
}

/* Whatever way the bridges have, and whatever number of blocks. */
TEST(choose, over_bridges_there_is_something_that_kernels_run)
{
    const char *const placements[] = {"ab", "aabb", "aaaabbbb", "abbbcccc"};
    struct tt_hosts *placed;
    for (int n = 0; n < 4 * TT_NCOLLECTIVES * TT_NBRIDGE_WAYS; n++) {
        const enum tt_collective collective = (enum tt_collective)(n / 4 % TT_NCOLLECTIVES);
        placed = hosts_of(placements[n % 4]);
        const struct tt_shape shape = {collective, placed->nranks, 0, placed};
        for (int nparts = 2; nparts <= 32; nparts *= 4) {
            const struct tt_setting setting =
                over((enum tt_bridge_way)(n / 4 / TT_NCOLLECTIVES), nparts);
            for (size_t nbytes = 8; nbytes <= (size_t)64 << 20; nbytes *= 64) {
                const struct tt_algorithm *algorithm = tt_choose(&shape, &setting, nbytes);
                REQUIRE(algorithm && !tt_meets(algorithm));
                check_runs(algorithm, &shape);
            }
        }
        tt_hosts_destroy(placed);
    }
}
