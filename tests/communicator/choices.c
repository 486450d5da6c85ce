/* The choice of algorithms in a communicator whose ranks share cores. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "communicator/communicator.h"
#include "shim.h"

enum { NRANKS = 4, NSIZES = 6 };
static const size_t sizes[NSIZES] = {8, 2048, 16384, 65536, 262144, 1 << 20};

struct chooser {
    tuttiUniqueId id;
    int rank, cpu;
    double per_core;
    const char *names[tuttiNumCollectives][NSIZES];
};

/* A rank that may use one core only. */
static void *choose(void *arg)
{
    struct chooser *chooser = arg;
    tuttiComm_t comm;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)chooser->cpu, &one);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    const tuttiResult_t result = tuttiCommInitRank(&comm, NRANKS, chooser->id, chooser->rank);
    CHECK_EQ(result, tuttiSuccess);
    if (result != tuttiSuccess) return NULL;
    chooser->per_core = comm->setting.ranks_per_core;
    for (int c = 0; c < tuttiNumCollectives; c++)
        for (int i = 0; i < NSIZES; i++)
            CHECK_EQ(
                tuttiCommGetAlgorithm(comm, (tuttiCollective_t)c, sizes[i], &chooser->names[c][i]),
                tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    return NULL;
}

/* Of four ranks three may use one core and the last another one. */
TEST(choices, are_the_same_on_all_ranks_whatever_core_each_may_use)
{
    static struct chooser choosers[NRANKS];
    pthread_t threads[NRANKS];
    tuttiUniqueId id;
    cpu_set_t allowed;
    int cpus[2], ncpus = 0;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && ncpus < 2; cpu++)
        if (CPU_ISSET((size_t)cpu, &allowed)) cpus[ncpus++] = cpu;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        choosers[r] =
            (struct chooser){.id = id, .rank = r, .cpu = cpus[r == NRANKS - 1 ? ncpus - 1 : 0]};
        REQUIRE(pthread_create(&threads[r], NULL, choose, &choosers[r]) == 0);
    }
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < NRANKS && !tt_test_failed(); r++) {
        CHECK(choosers[r].per_core == (double)NRANKS / ncpus);
        for (int c = 0; c < tuttiNumCollectives; c++)
            for (int i = 0; i < NSIZES; i++)
                CHECK_MESSAGE(!strcmp(choosers[r].names[c][i], choosers[0].names[c][i]),
                              "%s of %zu bytes: %s on rank %d, %s on rank 0",
                              tt_collective_name((enum tt_collective)c), sizes[i],
                              choosers[r].names[c][i], r, choosers[0].names[c][i]);
    }
}
