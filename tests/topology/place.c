/* Where ranks are bound. */
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"

enum { MOST = 300 };

/* What must hold for any machine and number of ranks. */
static void check_placement(const struct tt_topology *t, int nlocal)
{
    int pus[MOST], load[MOST] = {0}, cores_used = 0;
    char core_used[MOST] = {0};
    tt_topology_place(t, nlocal, pus);
    for (int rank = 0; rank < nlocal; rank++) {
        CHECK_MESSAGE(pus[rank] >= 0 && pus[rank] < t->npus, "%d ranks: rank %d on PU %d", nlocal,
                      rank, pus[rank]);
        load[pus[rank]]++;
        cores_used += !core_used[t->pus[pus[rank]].core];
        core_used[t->pus[pus[rank]].core] = 1;
        if (rank > 0 && rank < t->npus && rank < nlocal)
            CHECK_MESSAGE(pus[rank] > pus[rank - 1], "%d ranks: rank %d comes before %d", nlocal,
                          rank, rank - 1);
    }
    const int fair = (nlocal + t->npus - 1) / t->npus;
    for (int pu = 0; pu < t->npus; pu++)
        CHECK_MESSAGE(load[pu] <= fair, "%d ranks: %d on PU %d", nlocal, load[pu], pu);
    CHECK_EQ(cores_used, nlocal < t->ncores ? nlocal : t->ncores);
}

TEST(place, every_core_gets_one_rank_before_any_gets_two)
{
    REQUIRE_HWLOC;
    static const char *const machines[] = {"dual_socket", "dgx", "cluster_host"};
    for (int m = 0; m < 3; m++) {
        struct tt_topology *t = load_machine(machines[m]);
        REQUIRE(t);
        for (int nlocal = 0; nlocal <= MOST; nlocal++) check_placement(t, nlocal);
        tt_topology_destroy(t);
    }
}

TEST(place, few_ranks_spread_over_packages_and_numa_nodes)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    int pus[8];
    tt_topology_place(t, 2, pus);
    CHECK(t->pus[pus[0]].package != t->pus[pus[1]].package);
    tt_topology_destroy(t);
    t = load_machine("dgx");
    REQUIRE(t);
    tt_topology_place(t, 8, pus);
    for (int rank = 0; rank < 8; rank++) CHECK_EQ(t->pus[pus[rank]].numa, rank);
    tt_topology_destroy(t);
}

TEST(place, the_threads_of_a_core_hold_neighbouring_ranks)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    int pus[64];
    tt_topology_place(t, 64, pus);
    for (int rank = 0; rank < 64; rank += 2)
        CHECK_EQ(tt_topology_distance(t, pus[rank], pus[rank + 1]), TT_SAME_CORE);
    tt_topology_destroy(t);
}

TEST(place, cores_with_unequal_threads_are_filled_evenly)
{
    struct tt_topology *t = tt_topology_new(6); /* two cores of two threads, two of one */
    REQUIRE(t);
    static const int cores[] = {0, 0, 1, 1, 2, 3};
    for (int i = 0; i < 6; i++)
        t->pus[i] = (struct tt_pu){.os_index = i, .core = cores[i], .l2 = -1, .l3 = -1};
    tt_topology_finish(t);
    for (int nlocal = 0; nlocal <= 20; nlocal++) check_placement(t, nlocal);
    int pus[5];
    tt_topology_place(t, 4, pus);
    CHECK(pus[0] == 0 && pus[1] == 2 && pus[2] == 4 && pus[3] == 5);
    tt_topology_destroy(t);
}

TEST(place, more_ranks_than_cpus_wrap_around)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("cluster_host");
    REQUIRE(t);
    int pus[20];
    tt_topology_place(t, 20, pus);
    for (int rank = 0; rank < 20; rank++) CHECK_EQ(pus[rank], rank % 8);
    tt_topology_destroy(t);
}
