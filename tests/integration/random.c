/* A thousand random collectives on five ranks against a serial reference. */
#include <stdio.h>

#include "random_calls.h"
#include "ranks.h"
#include "shim.h"

enum { NRANKS = 5, NCALLS = SANITIZED ? 300 : 1000 };

static void run_random(int rank, tuttiComm_t comm, void *arg)
{
    const int nwrong = random_calls(comm, *(const uint64_t *)arg, NCALLS);
    CHECK_MESSAGE(nwrong == 0, "rank %d: %d calls went wrong", rank, nwrong);
}

TEST(random, a_thousand_collectives_of_five_threads_match_the_reference)
{
    uint64_t seed = test_seed();
    const tuttiConfig_t config = CONFIG_WITHIN(60000, 20000, .commName = "random");
    as_threads(NRANKS, &config, run_random, &seed);
}

TEST(random, a_thousand_collectives_of_five_processes_match_the_reference)
{
    static struct job job;
    char seed[24], ncalls[16];
    static const char *const ways[] = {"TUTTI_TRANSPORT=", "TUTTI_TRANSPORT=shm",
                                       "TUTTI_TRANSPORT=cma", "TUTTI_SLOT_BYTES=1K",
                                       "TUTTI_COPIES=2"};
    const uint64_t number = test_seed();
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)number);
    snprintf(ncalls, sizeof ncalls, "%d", NCALLS);
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=60000", ways[number % 5], NULL};
    printf("with %s\n", ways[number % 5]);
    REQUIRE(
        job_start(&job, NRANKS, (const char *const[]){"random", seed, ncalls, NULL}, extra, NULL));
    CHECK_MESSAGE(job_wait(&job, 240000), "some rank did not end");
    job_check_exit(&job, 0);
}
