/* Averages of floats are finite wherever the average of the ranks' values is. */
#include <stdatomic.h>
#include <stdio.h>

#include "averages.h"
#include "ranks.h"
#include "shim.h"

static void run_calls(int rank, tuttiComm_t comm, void *arg)
{
    (void)rank;
    _Atomic int *nwrong = arg;
    *nwrong += average_calls(comm, SANITIZED ? 12 : 2);
}

TEST(averages, of_threads_are_finite_with_every_algorithm_and_type)
{
    static const int numbers[] = {1, 2, 3, 7};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 60000;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        _Atomic int nwrong = 0;
        as_threads(numbers[i], &config, run_calls, (void *)&nwrong);
        CHECK_MESSAGE(nwrong == 0, "%d ranks: %d calls went wrong", numbers[i], nwrong);
    }
}

TEST(averages, of_processes_are_finite_wherever_the_ranks_are)
{
    static const struct {
        const char *hosts, *way, *share; /* of algorithms; several hosts have hundreds */
    } cases[] = {{"aa", "TUTTI_COPIES=1", "2"},
                 {"aaa", "TUTTI_TRANSPORT=shm", "4"},
                 {"ab", "TUTTI_SOCKETS=2", "50"},
                 {"aba", "TUTTI_SLOT_BYTES=1K", "100"},
                 {"aabb", "TUTTI_DETERMINISTIC=on", "10"},
                 {"aabb", "TUTTI_COPIES=2", "100"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !tt_test_failed(); i++) {
        static struct job job;
        const char *const extra[] = {"TUTTI_TIMEOUT_MS=60000", cases[i].way, NULL};
        REQUIRE(job_start_on(&job, cases[i].hosts,
                             (const char *const[]){"averages", cases[i].share, NULL}, extra));
        CHECK_MESSAGE(job_wait(&job, 240000), "%s: some rank did not end", cases[i].hosts);
        job_check_exit(&job, 0);
    }
}

/* Who sends its input, as in a reduction to one rank, does not copy it to divide it. */
static void send_input(int rank, tuttiComm_t comm, void *arg)
{
    enum { COUNT = 30000 };
    static const tuttiDataType_t types[] = {tuttiFloat32, tuttiBfloat16, tuttiFloat64};
    static double in[3][COUNT], out[COUNT];
    (void)arg;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollReduce, "direct"), tuttiSuccess);
    for (int t = 0; t < 3; t++) {
        const size_t nbytes = (size_t[]){4, 2, 8}[t] * COUNT;
        tuttiCounters_t before, after;
        CHECK_EQ(tuttiCommCounters(comm, &before), tuttiSuccess);
        CHECK_EQ(tuttiReduce(in[rank], out, COUNT, types[t], tuttiAvg, 0, comm, NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiCommCounters(comm, &after), tuttiSuccess);
        CHECK_EQ(after.bytesDirect - before.bytesDirect, rank ? nbytes : 0);
        CHECK_EQ(after.bytesCopied - before.bytesCopied, 0);
    }
}

TEST(averages, of_threads_are_made_of_input_where_it_lies)
{
    as_threads(3, NULL, send_input, NULL);
}
