/* The public face of schedules, and the tool that uses it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "shim.h"
#include "tutti.h"

TEST(plan, names_end_with_null)
{
    CHECK_STR(tuttiCollectiveName(tuttiCollAllReduce), "all_reduce");
    CHECK_STR(tuttiCollectiveName(tuttiCollBarrier), "barrier");
    CHECK(tuttiCollectiveName(tuttiNumCollectives) == NULL);
    CHECK(tuttiAlgorithmName(tuttiCollAllReduce, 0) != NULL);
    CHECK(tuttiAlgorithmName(tuttiCollAllReduce, 1000) == NULL);
    CHECK(tuttiAlgorithmName(tuttiCollAllReduce, -1) == NULL);
    CHECK(tuttiAlgorithmName((tuttiCollective_t)77, 0) == NULL);
}

TEST(plan, the_cost_of_a_ring_of_131072_needs_no_memory_that_grows)
{
    tuttiPlan_t small, large;
    tuttiPlanCost_t a, b;
    REQUIRE(tuttiPlanCreate(&small, tuttiCollAllReduce, "ring", 4, 0) == tuttiSuccess);
    REQUIRE(tuttiPlanCreate(&large, tuttiCollAllReduce, "ring", 131072, 0) == tuttiSuccess);
    REQUIRE(tuttiPlanCost(small, 1 << 20, 4, 0, &a) == tuttiSuccess);
    REQUIRE(tuttiPlanCost(large, 1 << 20, 4, 0, &b) == tuttiSuccess);
    CHECK_EQ(a.steps, 7);
    CHECK_EQ(a.depth, 6);
    CHECK_EQ(a.bytesSent, 6 << 20);
    CHECK_EQ(b.steps, 2 * 131072 - 1);
    CHECK_EQ(b.bytesSent, 2 * 131071 * 8 * 4); /* blocks of 8 elements */
    CHECK_EQ(a.planBytes, b.planBytes);
    CHECK(tuttiPlanDestroy(small) == tuttiSuccess);
    CHECK(tuttiPlanDestroy(large) == tuttiSuccess);
}

TEST(plan, counted_and_formula_agree)
{
    tuttiPlan_t plan;
    tuttiPlanCost_t formula, counted;
    REQUIRE(tuttiPlanCreate(&plan, tuttiCollAllGather, "bruck", 7, 0) == tuttiSuccess);
    REQUIRE(tuttiPlanCost(plan, 1000, 4, 0, &formula) == tuttiSuccess);
    REQUIRE(tuttiPlanCost(plan, 1000, 4, 1, &counted) == tuttiSuccess);
    CHECK(memcmp(&formula, &counted, sizeof formula) == 0);
    CHECK(tuttiPlanVerify(plan, 1000) == tuttiSuccess);
    CHECK(tuttiPlanVerify(plan, 0) == tuttiSuccess);
    tuttiPlanDestroy(plan);
}

TEST(plan, deterministic_are_algorithms_that_fold_in_rank_order_or_not_at_all)
{
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollAllReduce, "two_shot"), 1);
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollAllReduce, "ring"), 0);
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollReduce, "meet/direct"), 0);
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollAllGather, "ring"), 1);
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollBroadcast, "ring"), 0);
    CHECK_EQ(tuttiAlgorithmIsDeterministic(tuttiCollBroadcast, NULL), 0);
    CHECK_EQ(tuttiAlgorithmIsDeterministic((tuttiCollective_t)77, "ring"), 0);
}

TEST(plan, bad_arguments_are_named)
{
    tuttiPlan_t plan = NULL;
    tuttiPlanCost_t cost;
    CHECK(tuttiPlanCreate(NULL, tuttiCollReduce, "direct", 3, 0) == tuttiInvalidArgument);
    CHECK(tuttiPlanCreate(&plan, (tuttiCollective_t)9, "ring", 3, 0) == tuttiInvalidArgument);
    CHECK(tuttiPlanCreate(&plan, tuttiCollReduce, NULL, 3, 0) == tuttiInvalidArgument);
    CHECK(tuttiPlanCreate(&plan, tuttiCollReduce, "rind", 3, 0) == tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "reduce has no algorithm \"rind\"; there are: direct"));
    CHECK(tuttiPlanCreate(&plan, tuttiCollReduce, "direct", 0, 0) == tuttiInvalidArgument);
    CHECK(tuttiPlanCreate(&plan, tuttiCollReduce, "direct", 3, 3) == tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "root 3 is not one of 3 ranks"));
    CHECK(plan == NULL);
    CHECK(tuttiPlanVerify(NULL, 1) == tuttiInvalidArgument);
    const int host_of[] = {0, 0, 1};
    CHECK(tuttiPlanCreateOnHosts(&plan, tuttiCollReduce, "direct", 3, 0, NULL) ==
          tuttiInvalidArgument);
    CHECK(tuttiPlanCreateOnHosts(&plan, tuttiCollAllReduce, "ring/ring", 3, 0, host_of) ==
          tuttiInvalidUsage);
    CHECK(tuttiPlanCreate(&plan, tuttiCollAllReduce, "meet/ring", 3, 0) == tuttiInvalidUsage);
    CHECK(!tuttiAlgorithmFits(tuttiCollAllReduce, "ring/ring", 3, host_of));
    CHECK(tuttiAlgorithmFits(tuttiCollAllReduce, "meet/ring", 3, host_of));
    CHECK(!tuttiAlgorithmFits(tuttiCollAllReduce, "meet/ring", 3, NULL));
    CHECK(!tuttiAlgorithmFits(tuttiCollAllReduce, "none", 3, NULL));
    CHECK(!tuttiAlgorithmFits((tuttiCollective_t)77, "ring", 3, NULL));
    CHECK(plan == NULL);
    CHECK(tuttiPlanDestroy(NULL) == tuttiSuccess);
    REQUIRE(tuttiPlanCreate(&plan, tuttiCollAllReduce, "ring", 3, 99) == tuttiSuccess);
    CHECK(tuttiPlanCost(plan, 1, 4, 2, &cost) == tuttiInvalidArgument);
    CHECK(tuttiPlanCost(plan, SIZE_MAX, 8, 0, &cost) == tuttiInvalidArgument);
    CHECK(tuttiPlanCost(plan, 1, 4, 0, NULL) == tuttiInvalidArgument);
    CHECK(tuttiPlanPrint(plan, 3, NULL, NULL) == tuttiInvalidArgument);
    tuttiPlanDestroy(plan);
}

TEST(plan, a_hierarchy_sends_less_off_host_than_a_ring)
{
    enum { N = 4, HOSTS = 2, BYTES = 1 << 20 };
    const int host_of[N] = {7, 7, -1, -1};
    tuttiPlan_t flat, composed;
    uint64_t bytes = 1;
    REQUIRE(tuttiPlanCreateOnHosts(&flat, tuttiCollAllReduce, "ring", N, 0, host_of) ==
            tuttiSuccess);
    REQUIRE(tuttiPlanCreateOnHosts(&composed, tuttiCollAllReduce, "ring/ring", N, 0, host_of) ==
            tuttiSuccess);
    CHECK(tuttiPlanOffHost(flat, BYTES, 1, &bytes) == tuttiSuccess);
    CHECK_EQ(bytes, 2 * (N - 1) * BYTES / N);
    CHECK(tuttiPlanOffHost(composed, BYTES, 1, &bytes) == tuttiSuccess);
    CHECK_EQ(bytes, 2 * (HOSTS - 1) * BYTES / HOSTS);
    CHECK(tuttiPlanOffHost(composed, BYTES, 1, NULL) == tuttiInvalidArgument);
    CHECK(tuttiPlanOffHost(composed, SIZE_MAX, 8, &bytes) == tuttiInvalidArgument);
    tuttiPlanDestroy(flat);
    tuttiPlanDestroy(composed);
}

/* ---- tutti-plan ----------------------------------------------------------------------------- */

/* Runs the tool; its exit status, with both outputs in `text`. */
static int run_tool(const char *arguments, char *text, size_t size)
{
    char command[1024];
    snprintf(command, sizeof command, "TUTTI_LOG=none '%s/bin/tutti-plan' %s 2>&1",
             TUTTI_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    if (!pipe) return -1;
    const size_t used = fread(text, 1, size - 1, pipe);
    text[used] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void check_tool(const char *arguments, int status, const char *contains)
{
    static char text[65536];
    const int got = run_tool(arguments, text, sizeof text);
    CHECK_MESSAGE(got == status, "tutti-plan %s: status %d, expected %d: %s", arguments, got,
                  status, text);
    CHECK_MESSAGE(strstr(text, contains), "tutti-plan %s: \"%s\" does not contain \"%s\"",
                  arguments, text, contains);
}

TEST(tutti_plan, commands_do_what_they_say)
{
    check_tool("list", 0, "all_reduce:ring\n");
    check_tool("print all_reduce:ring --ranks 3 --rank 0", 0, "recv 2 reduce INPUT[");
    check_tool("print broadcast:direct --ranks 3 --root 1", 0,
               "rank 2\n  0: recv 1 -> OUTPUT[0]\n");
    check_tool("verify all_reduce:ring --ranks 1-5,8 --counts 0,N+1", 0,
               "12 cases: 12 proved, 0 refuted");
    check_tool("verify broadcast:direct --ranks 3", 0, "18 cases: 18 proved");
    check_tool("verify broadcast:direct --ranks 3 --root 2", 0, "6 cases: 6 proved");
    check_tool("count all_gather --ranks 5 --bytes 1K --exact", 0, "counted");
    check_tool("count all_reduce:ring --ranks 131072 --bytes 1G", 0, "262143   262142");
    check_tool("verify all_reduce:ring --ranks 1048576", 1, "verify fewer");
    check_tool("print all_reduce:meet/ring --hosts 2x2 --rank 3", 0,
               "0: meet 2,3 reduce INPUT[0..3] -> OUTPUT[2..3]\n");
    check_tool("print all_gather:ring/ring --hosts abba --rank 0", 0, "send 1\n");
    check_tool("verify all_reduce:ring/ring --hosts 2x2 --hosts 3x2:cyclic --counts 0,N", 0,
               "4 cases: 4 proved");
    check_tool("verify all_reduce --hosts 3,1 --counts N", 0, "all_reduce:meet/ring");
    check_tool("count all_reduce:ring/ring --hosts 2x2 --bytes 16M --exact", 0, "16.0 MiB\n");
    check_tool("count all_reduce:ring --hosts 2x2 --bytes 16M", 0, "24.0 MiB\n");
    check_tool("--help", 0, "usage: tutti-plan");
    check_tool("--version", 0, "tutti-plan ");
    check_tool("list --deterministic", 0, "reduce:two_shot");
    check_tool("list --deterministic | grep -q ^reduce:meet/ || echo absent", 0, "absent");
    check_tool("verify reduce_scatter --deterministic --ranks 3", 0, "parallel");
    check_tool("verify all_reduce:ring --deterministic --ranks 3", 2,
               "a deterministic communicator does not use 'ring'");
}

TEST(tutti_plan, wrong_usage_is_named_and_ends_with_2)
{
    check_tool("", 2, "no command");
    check_tool("verify all_reduce:ring/ring --hosts 3,1", 2, "equally many ranks; with binomial");
    check_tool("verify all_reduce:ring/ring --ranks 4", 2, "needs several hosts");
    check_tool("verify all_reduce:meet --hosts 2x2", 2, "needs all ranks on one host");
    check_tool("verify --all --hosts 2y2", 2, "2x2:cyclic or abba, not '2y2'");
    check_tool("verify --all --hosts 0x2", 2, "--hosts takes hosts and their ranks");
    check_tool("verify --all --hosts 2x2:cyclical", 2, "not '2x2:cyclical'");
    check_tool("verify --all --hosts 100000x2", 2, "at most 4096 in all");
    check_tool("verify --all --hosts 4096x4096", 2, "at most 4096 in all");
    check_tool("verify --all --hosts 2x2 --ranks 4", 2, "--ranks or --hosts, not both");
    check_tool("draw", 2, "there is no such command: 'draw'");
    check_tool("verify --all", 2, "--ranks or --hosts is missing");
    check_tool("verify --ranks 3", 2, "which algorithm?");
    check_tool("verify all_reduce:rind --ranks 3", 2, "no such algorithm");
    check_tool("verify sum --ranks 3", 2, "no such collective");
    check_tool("verify --all --ranks 3-1", 2, "1-33 or 2,4,8, not '3-1'");
    check_tool("verify --all --ranks 0", 2, "numbers and ranges from 1 on");
    check_tool("verify --all --ranks 2 --counts M", 2,
               "N is the number of ranks: 0,1,N-1,N+1, not 'M'");
    check_tool("verify all_reduce:ring --ranks 2 --counts N-9", 2, "no count of --counts");
    check_tool("verify broadcast:direct --ranks 3 --root 5", 2, "root 5 is not one of 3 ranks");
    check_tool("print all_reduce --ranks 3", 2, "print takes one COLLECTIVE:ALGORITHM");
    check_tool("print all_reduce:ring --ranks 3 --rank 3", 2, "rank 3 is not one of 3 ranks");
    check_tool("count all_reduce --ranks 3", 2, "--bytes is missing");
    check_tool("count all_reduce --ranks 3 --bytes 5X", 2, "K, M, G or T, not '5X'");
    check_tool("verify --al --ranks 3 --frob", 2, "--help");
}
