/* Arguments that can never be right: InvalidArgument, a message that names the value, and nothing
 * changed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

/* Whether the text begins with the name of the function that the call's source calls, and a colon.
 */
static bool names_function(const char *text, const char *call)
{
    const size_t length = strcspn(call, "(");
    return !strncmp(text, call, length) && text[length] == ':';
}

/* Checks a call's result, and that the error mentions `word` (NULL: any text). */
static void check_refused(int line, const char *call, tuttiResult_t result, tuttiResult_t expected,
                          const char *word)
{
    const char *text = tuttiGetLastError(NULL);
    if (result == tuttiInvalidArgument && !names_function(text, call))
        tt_test_fail(__FILE__, line, "%s: the error does not begin with the function's name: %s",
                     call, text);
    if (result != expected)
        tt_test_fail(__FILE__, line, "%s gave %s, expected %s: %s", call,
                     tuttiGetErrorString(result), tuttiGetErrorString(expected), text);
    else if (!text[0] || (word && !strstr(text, word)))
        tt_test_fail(__FILE__, line, "%s: the error names not \"%s\": %s", call, word ? word : "",
                     text);
}
#define REFUSED(call, expected, word) check_refused(__LINE__, #call, call, expected, word)
#define WRONG_ARGUMENT(call, word) REFUSED(call, tuttiInvalidArgument, word)

enum { COUNT = 64 };
static float in[4 * COUNT], out[4 * COUNT];

/* One communicator of one rank: what is refused is refused before anybody else is involved. */
static tuttiComm_t alone(void)
{
    tuttiComm_t comm = NULL;
    if (tuttiCommInitAll(&comm, 1, NULL) != tuttiSuccess)
        tt_test_fail(__FILE__, __LINE__, "%s", tuttiGetLastError(NULL));
    return comm;
}

/* The communicator still does its work. */
static void check_alive(tuttiComm_t comm)
{
    int value = 5;
    CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(value, 5);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(bad_input, null_where_a_result_goes)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    const tuttiUniqueId id = {{0}};
    float ms;
    tuttiRedOp_t op;
    void *memory;
    char text[8];
    tuttiStream_t stream;
    tuttiEvent_t event;
    tuttiPlan_t plan;
    int rank;
    WRONG_ARGUMENT(tuttiGetVersion(NULL), "NULL");
    WRONG_ARGUMENT(tuttiGetUniqueId(NULL), "NULL");
    WRONG_ARGUMENT(tuttiDropUniqueId(NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommInitRank(NULL, 1, id, 0), "NULL");
    WRONG_ARGUMENT(tuttiCommInitAll(NULL, 1, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommInitEnv(NULL, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommInitEnvMulti(NULL, 1, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommSplit(comm, 0, 0, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommGetAsyncError(comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommSetTimeout(comm, -7), "-7");
    WRONG_ARGUMENT(tuttiCommCount(comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommUserRank(comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommDevice(comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiMemAlloc(NULL, 16), "NULL");
    WRONG_ARGUMENT(tuttiCommRegister(comm, in, sizeof in, NULL), "handle");
    WRONG_ARGUMENT(tuttiCommRegister(comm, in, SIZE_MAX, (void **)&in), "ends beyond memory");
    WRONG_ARGUMENT(tuttiCommRegister(comm, NULL, 16, &memory), "memory");
    WRONG_ARGUMENT(tuttiStreamCreate(NULL), "NULL");
    WRONG_ARGUMENT(tuttiStreamFromDevice(NULL, 0, NULL), "NULL");
    WRONG_ARGUMENT(tuttiStreamFromDevice(&stream, -1, NULL), "GPU -1 ");
    WRONG_ARGUMENT(tuttiStreamOfDevice(NULL, 0, NULL), "NULL");
    WRONG_ARGUMENT(tuttiStreamOfDevice(&stream, -3, NULL), "-3");
    WRONG_ARGUMENT(tuttiDeviceMemAlloc(NULL, 1, -1), "NULL");
    WRONG_ARGUMENT(tuttiDeviceMemAlloc(&memory, 1, -3), "-3");
    WRONG_ARGUMENT(tuttiGetNcclSetting("NCCL_NIX", text, sizeof text), "NCCL_NIX");
    WRONG_ARGUMENT(tuttiGetNcclSetting("NCCL_DEBUG", text, 0), "no room");
    WRONG_ARGUMENT(tuttiIsSettingGiven("TUTTI_NIX", &rank), "TUTTI_NIX");
    WRONG_ARGUMENT(tuttiIsSettingGiven("TUTTI_TIMEOUT_MS", NULL), "NULL");
    WRONG_ARGUMENT(tuttiGetDeviceCount(NULL), "NULL");
    WRONG_ARGUMENT(tuttiEventCreate(NULL), "NULL");
    WRONG_ARGUMENT(tuttiStreamLaunch(NULL, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiEventRecord(NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiEventQuery(NULL), "NULL");
    WRONG_ARGUMENT(tuttiEventSynchronize(NULL), "NULL");
    WRONG_ARGUMENT(tuttiEventSynchronizeFor(NULL, 1), "NULL");
    WRONG_ARGUMENT(tuttiEventElapsedTime(&ms, NULL, NULL), "NULL");
    WRONG_ARGUMENT(
        tuttiRedOpCreatePreMulSum(NULL, in, tuttiFloat32, tuttiScalarHostImmediate, comm), "NULL");
    WRONG_ARGUMENT(
        tuttiRedOpCreatePreMulSum(&op, NULL, tuttiFloat32, tuttiScalarHostImmediate, comm), "NULL");
    WRONG_ARGUMENT(tuttiCommGetAlgorithm(comm, tuttiCollAllReduce, 8, NULL), "NULL");
    WRONG_ARGUMENT(tuttiPlanCreate(NULL, tuttiCollAllReduce, "ring", 4, 0), "NULL");
    WRONG_ARGUMENT(tuttiPlanVerify(NULL, 4), "NULL");
    WRONG_ARGUMENT(tuttiDescribe(tuttiDescribeConfig, NULL, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommCounters(comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommCallCounters(comm, NULL), "NULL");
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    WRONG_ARGUMENT(tuttiEventElapsedTime(NULL, event, event), "NULL");
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    REQUIRE(tuttiPlanCreate(&plan, tuttiCollAllReduce, "ring", 4, 0) == tuttiSuccess);
    WRONG_ARGUMENT(tuttiPlanCost(plan, 1, 4, 0, NULL), "NULL");
    WRONG_ARGUMENT(tuttiPlanPrint(plan, 0, NULL, NULL), "NULL");
    CHECK_EQ(tuttiPlanDestroy(plan), tuttiSuccess);
    CHECK_EQ(tuttiGetLauncher(&rank, NULL, NULL) == tuttiSuccess ||
                 tuttiGetLastError(NULL)[0] != '\0',
             true);
    check_alive(comm);
}

TEST(bad_input, null_communicators_are_refused_and_freed_alike)
{
    int number;
    tuttiResult_t state;
    CHECK_EQ(tuttiCommDestroy(NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(NULL), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(NULL), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(NULL), tuttiSuccess);
    CHECK_EQ(tuttiPlanDestroy(NULL), tuttiSuccess);
    WRONG_ARGUMENT(tuttiCommFinalize(NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommFinalizeLocal(NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommCheck(NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommCheckRank(NULL, 0), "NULL");
    WRONG_ARGUMENT(tuttiRefuse(tuttiInvalidUsage, NULL), "NULL");
    WRONG_ARGUMENT(tuttiRefuse(tuttiSuccess, "refused"), "result 0");
    WRONG_ARGUMENT(tuttiRefuse((tuttiResult_t)99, "refused"), "result 99");
    WRONG_ARGUMENT(tuttiCommCount(NULL, &number), "NULL");
    WRONG_ARGUMENT(tuttiCommUserRank(NULL, &number), "NULL");
    WRONG_ARGUMENT(tuttiCommDevice(NULL, &number), "NULL");
    WRONG_ARGUMENT(tuttiCommGetAsyncError(NULL, &state), "NULL");
    WRONG_ARGUMENT(tuttiCommSetTimeout(NULL, 1), "NULL");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, 1, tuttiFloat32, tuttiSum, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiBarrier(NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiSend(in, 1, tuttiFloat32, 0, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiCommSetAlgorithm(NULL, tuttiCollAllReduce, "ring"), "NULL");
    WRONG_ARGUMENT(tuttiDescribe(tuttiDescribeLinks, NULL, NULL, NULL), "NULL");
}

TEST(bad_input, ranks_and_sizes_out_of_range)
{
    tuttiComm_t comm = NULL;
    tuttiUniqueId id = {{0}};
    WRONG_ARGUMENT(tuttiCommInitRank(&comm, 0, id, 0), "0");
    WRONG_ARGUMENT(tuttiCommInitRank(&comm, -4, id, 0), "-4");
    WRONG_ARGUMENT(tuttiCommInitRank(&comm, 2, id, 2), "2");
    WRONG_ARGUMENT(tuttiCommInitRank(&comm, 2, id, -1), "-1");
    WRONG_ARGUMENT(tuttiCommInitAll(&comm, 0, NULL), "0");
    WRONG_ARGUMENT(tuttiCommInitEnvMulti(&comm, -3, NULL, NULL), "-3");
    /* An id that nobody made. */
    const tuttiResult_t result = tuttiCommInitRank(&comm, 2, id, 1);
    CHECK_MESSAGE(result == tuttiInvalidArgument, "a zero id gave %s: %s",
                  tuttiGetErrorString(result), tuttiGetLastError(NULL));
    memset(&id, 0xff, sizeof id);
    CHECK(tuttiCommInitRank(&comm, 2, id, 1) == tuttiInvalidArgument);
    CHECK(comm == NULL);
}

TEST(bad_input, configs_and_init_methods_that_are_none)
{
    tuttiComm_t comm = NULL;
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.magic = 77;
    WRONG_ARGUMENT(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), NULL);
    config = (tuttiConfig_t)TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = -5;
    WRONG_ARGUMENT(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), "-5");
    config = (tuttiConfig_t)TUTTI_CONFIG_INITIALIZER;
    config.algorithm = "fastest";
    WRONG_ARGUMENT(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), "fastest");
    /* The id is still good. */
    CHECK_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    WRONG_ARGUMENT(tuttiCommInitEnv(&comm, "carrier-pigeon://nest", NULL), "carrier-pigeon");
    WRONG_ARGUMENT(tuttiCommInitEnv(&comm, "tcp://127.0.0.1", NULL), "tcp://127.0.0.1");
    WRONG_ARGUMENT(tuttiCommInitEnv(&comm, "tcp://127.0.0.1:99999", NULL), "99999");
}

TEST(bad_input, buffers_types_operations_and_roots)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    const tuttiDataType_t no_type = (tuttiDataType_t)77;
    const tuttiRedOp_t no_op = (tuttiRedOp_t)9,
                       no_handle = (tuttiRedOp_t)(tuttiFirstDynamicRedOp + 3);
    WRONG_ARGUMENT(tuttiAllReduce(NULL, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiAllReduce(in, NULL, COUNT, tuttiFloat32, tuttiSum, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, no_type, tuttiSum, comm, NULL), "77");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, (tuttiDataType_t)-1, tuttiSum, comm, NULL), "-1");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, tuttiFloat32, no_op, comm, NULL), "9");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, tuttiFloat32, no_handle, comm, NULL), "259");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiBitXor, comm, NULL), NULL);
    WRONG_ARGUMENT(tuttiAllReduce(in, in + 1, COUNT, tuttiFloat32, tuttiSum, comm, NULL),
                   "overlap");
    WRONG_ARGUMENT(tuttiAllReduce(in, out, SIZE_MAX / 2, tuttiFloat32, tuttiSum, comm, NULL), NULL);
    WRONG_ARGUMENT(tuttiReduce(in, out, COUNT, tuttiFloat32, tuttiSum, 1, comm, NULL), "1");
    WRONG_ARGUMENT(tuttiReduce(in, NULL, COUNT, tuttiFloat32, tuttiSum, 0, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiBroadcast(in, out, COUNT, tuttiFloat32, -1, comm, NULL), "-1");
    WRONG_ARGUMENT(tuttiBroadcast(NULL, out, COUNT, tuttiFloat32, 0, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiBroadcast(in, in + 3, COUNT, tuttiFloat32, 0, comm, NULL), "overlap");
    WRONG_ARGUMENT(tuttiReduceScatter(in, NULL, COUNT, tuttiFloat32, tuttiSum, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiReduceScatter(in, in + 2, COUNT, tuttiFloat32, tuttiSum, comm, NULL),
                   "overlap");
    WRONG_ARGUMENT(tuttiAllGather(NULL, out, COUNT, tuttiFloat32, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiAllGather(in + 2, in, COUNT, tuttiFloat32, comm, NULL), "overlap");
    WRONG_ARGUMENT(tuttiAlltoAll(in, in, COUNT, tuttiFloat32, comm, NULL), "overlap");
    WRONG_ARGUMENT(tuttiScatter(in, NULL, COUNT, tuttiFloat32, 0, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiScatter(in, out, COUNT, tuttiFloat32, 5, comm, NULL), "5");
    WRONG_ARGUMENT(tuttiGather(in, NULL, COUNT, tuttiFloat32, 0, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiGather(in, out, SIZE_MAX / 4, tuttiFloat64, 0, comm, NULL), NULL);
    WRONG_ARGUMENT(tuttiSend(in, COUNT, tuttiFloat32, 3, comm, NULL), "3");
    WRONG_ARGUMENT(tuttiRecv(out, COUNT, tuttiFloat32, -2, comm, NULL), "-2");
    WRONG_ARGUMENT(tuttiRecv(NULL, COUNT, tuttiFloat32, 0, comm, NULL), "NULL");
    WRONG_ARGUMENT(tuttiRedOpDestroy(no_handle, comm), "259");
    WRONG_ARGUMENT(tuttiRedOpDestroy(tuttiSum, comm), NULL);
    /* A count of 0 needs no buffers. */
    CHECK_EQ(tuttiAllReduce(NULL, NULL, 0, tuttiFloat32, tuttiSum, comm, NULL), tuttiSuccess);
    check_alive(comm);
}

TEST(bad_input, names_that_do_not_exist)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    const char *name;
    tuttiPlan_t plan = NULL;
    WRONG_ARGUMENT(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "fastest"),
                   "ring"); /* lists what there is */
    WRONG_ARGUMENT(tuttiCommSetAlgorithm(comm, (tuttiCollective_t)99, "ring"), "99");
    WRONG_ARGUMENT(tuttiCommGetAlgorithm(comm, (tuttiCollective_t)-1, 8, &name), "-1");
    WRONG_ARGUMENT(tuttiPlanCreate(&plan, tuttiCollAllReduce, "fastest", 4, 0), "fastest");
    WRONG_ARGUMENT(tuttiPlanCreate(&plan, tuttiCollAllReduce, "ring", 0, 0), "0");
    WRONG_ARGUMENT(tuttiPlanCreate(&plan, tuttiCollBroadcast, "binomial", 4, 4), "4");
    WRONG_ARGUMENT(tuttiDescribe((tuttiDescribe_t)55, comm, NULL, NULL), NULL);
    CHECK(plan == NULL);
    CHECK(tuttiCollectiveName((tuttiCollective_t)99) == NULL);
    CHECK(tuttiAlgorithmName(tuttiCollAllReduce, 1000) == NULL);
    CHECK(tuttiAlgorithmName(tuttiCollAllReduce, -1) == NULL);
    CHECK(tuttiGetErrorString((tuttiResult_t)1234) != NULL);
    check_alive(comm);
}

TEST(bad_input, memory_that_is_not_ours)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    void *memory = NULL, *handle;
    int other;
    WRONG_ARGUMENT(tuttiMemFree(&other), NULL);
    CHECK(tuttiMemAlloc(&memory, SIZE_MAX - 100) != tuttiSuccess);
    CHECK_EQ(tuttiMemAlloc(&memory, (size_t)1 << 46), tuttiSystemError); /* 64 TiB */
    CHECK(strstr(tuttiGetLastError(NULL), "are more than this host's"));
    CHECK(memory == NULL);
    REQUIRE(tuttiMemAlloc(&memory, 100) == tuttiSuccess);
    CHECK_EQ((uintptr_t)memory % 4096, 0);
    WRONG_ARGUMENT(tuttiMemFree((char *)memory + 8), NULL);
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    WRONG_ARGUMENT(tuttiMemFree(memory), NULL);
    WRONG_ARGUMENT(tuttiCommDeregister(comm, &other), NULL);
    REQUIRE(tuttiCommRegister(comm, in, sizeof in, &handle) == tuttiSuccess);
    CHECK_EQ(tuttiCommDeregister(comm, handle), tuttiSuccess);
    check_alive(comm);
}

TEST(bad_input, groups_that_do_not_match)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    REFUSED(tuttiGroupEnd(), tuttiInvalidUsage, NULL);
    /* A wrong call inside a group is reported at once, and by the end. */
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, (tuttiDataType_t)77, tuttiSum, comm, NULL), "77");
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    check_alive(comm);
}

TEST(bad_input, a_groups_end_reports_code_and_text_of_its_first_failure)
{
    tuttiComm_t comm = alone(), finalized = alone();
    REQUIRE(comm && finalized);
    CHECK_EQ(tuttiCommFinalize(finalized), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    WRONG_ARGUMENT(tuttiAllReduce(in, out, COUNT, (tuttiDataType_t)77, tuttiSum, comm, NULL), "77");
    REFUSED(tuttiBarrier(finalized, NULL), tuttiInvalidUsage, "finalized");
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "tuttiAllReduce: type 77"), "the error is \"%s\"",
                  tuttiGetLastError(NULL));
    CHECK_EQ(tuttiCommDestroy(finalized), tuttiSuccess);
    check_alive(comm);
}

/* Memory that holds neither a communicator nor a plan. */
static _Alignas(16) char nothing[1 << 16];

static void ignore_line(void *arg, const char *line)
{
    (void)arg, (void)line;
}

TEST(bad_input, handles_of_nothing)
{
    const tuttiComm_t comm = (tuttiComm_t)nothing;
    const tuttiPlan_t plan = (tuttiPlan_t)nothing;
    tuttiComm_t other;
    tuttiCounters_t counters;
    tuttiPlanCost_t cost;
    tuttiRedOp_t op;
    const int hosts[2] = {0, 1};
    tuttiPlan_t made;
    uint64_t nbytes;
    void *handle;
    WRONG_ARGUMENT(tuttiCommFinalize(comm), "no communicator");
    WRONG_ARGUMENT(tuttiCommFinalizeLocal(comm), "no communicator");
    WRONG_ARGUMENT(tuttiCommCheck(comm), "no communicator");
    WRONG_ARGUMENT(tuttiCommCheckRank(comm, 0), "no communicator");
    WRONG_ARGUMENT(tuttiCommDestroy(comm), "no communicator");
    WRONG_ARGUMENT(tuttiCommAbort(comm), "no communicator");
    WRONG_ARGUMENT(tuttiCommSplit(comm, 0, 0, &other, NULL), "no communicator");
    WRONG_ARGUMENT(tuttiCommSplitRefuse(comm, tuttiTimeout, "late"), "no communicator");
    WRONG_ARGUMENT(tuttiCommRegister(comm, in, sizeof in, &handle), "no communicator");
    WRONG_ARGUMENT(tuttiCommDeregister(comm, &handle), "no communicator");
    WRONG_ARGUMENT(tuttiCommCounters(comm, &counters), "no communicator");
    WRONG_ARGUMENT(tuttiRedOpCreatePreMulSum(&op, in, tuttiFloat32, tuttiScalarHostImmediate, comm),
                   "no communicator");
    WRONG_ARGUMENT(tuttiRedOpDestroy(tuttiSum, comm), "no communicator");
    WRONG_ARGUMENT(tuttiReduce(in, out, 1, tuttiFloat32, tuttiSum, 0, comm, NULL), "no comm");
    WRONG_ARGUMENT(tuttiRecv(out, 1, tuttiFloat32, 0, comm, NULL), "no communicator");
    WRONG_ARGUMENT(tuttiDescribe(tuttiDescribeLinks, comm, ignore_line, NULL), "no communicator");
    WRONG_ARGUMENT(tuttiPlanDestroy(plan), "plan");
    WRONG_ARGUMENT(tuttiPlanCost(plan, 1, 4, 0, &cost), "plan");
    WRONG_ARGUMENT(tuttiPlanOffHost(plan, 1, 4, &nbytes), "plan");
    WRONG_ARGUMENT(tuttiPlanVerify(plan, 4), "plan");
    WRONG_ARGUMENT(tuttiPlanPrint(plan, 0, ignore_line, NULL), "plan");
    WRONG_ARGUMENT(tuttiStreamWaitEvent(NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiPlanCreateOnHosts(&made, tuttiCollBroadcast, "binomial", 2, 5, hosts), "5");
}

/* These have no argument that they refuse. */
static const char *const never_refuse[] = {"tuttiStreamDestroy", "tuttiStreamSynchronize",
                                           "tuttiStreamQuery",   "tuttiEventDestroy",
                                           "tuttiGroupStart",    "tuttiGroupEnd",
                                           "tuttiGetLauncher",   "tuttiUseNcclSettings",
                                           "tuttiGroupFail",     NULL};

static bool is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name)) list++;
    return *list != NULL;
}

/* The file as text, to be freed. */
static char *read_source(const char *path)
{
    enum { MOST = 1 << 18 };
    char *text = calloc(1, MOST);
    FILE *file = fopen(path, "r");
    if (text && file) text[fread(text, 1, MOST - 1, file)] = '\0';
    if (file) fclose(file);
    return text;
}

/* Counts the functions of a header that can refuse an argument; each must be tried in `tests`. */
static int check_tried(const char *header, const char *tests)
{
    static const char start[] = "TUTTI_API tuttiResult_t ";
    int nfunctions = 0;
    for (const char *at = header; at && (at = strstr(at, start)); nfunctions++) {
        char name[64], tried[96];
        at += sizeof start - 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "("), at);
        snprintf(tried, sizeof tried, "WRONG_ARGUMENT(%s(", name);
        char *wrapped = strstr(tests, tried);
        snprintf(tried, sizeof tried, "WRONG_ARGUMENT(\n        %s(", name);
        if (!wrapped) wrapped = strstr(tests, tried);
        CHECK_MESSAGE(wrapped || is_in(never_refuse, name), "%s is not tried", name);
    }
    return nfunctions;
}

TEST(bad_input, every_function_that_can_refuse_an_argument_is_tried_here)
{
    char *header = read_source(TUTTI_SOURCE_DIR "/include/tutti.h");
    char *plan = read_source(TUTTI_SOURCE_DIR "/include/tutti_plan.h");
    char *tests = read_source(TUTTI_SOURCE_DIR "/tests/integration/bad_input.c");
    const int nfunctions = check_tried(header, tests), nplan = check_tried(plan, tests);
    CHECK_MESSAGE(nfunctions > 40, "only %d functions found in tutti.h", nfunctions);
    CHECK_MESSAGE(nplan > 7, "only %d functions found in tutti_plan.h", nplan);
    free(header);
    free(plan);
    free(tests);
}

TEST(bad_input, counts_of_each_rank)
{
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    const size_t one[1] = {COUNT}, none[1] = {0}, huge[1] = {SIZE_MAX / 4}, far[1] = {SIZE_MAX - 3};
    const tuttiDataType_t type = tuttiFloat32;
    WRONG_ARGUMENT(tuttiAllGatherV(in, out, one, NULL, type, NULL, NULL), "NULL");
    WRONG_ARGUMENT(tuttiAllGatherV(in, out, NULL, NULL, type, comm, NULL), "recvcounts is NULL");
    WRONG_ARGUMENT(tuttiAllGatherV(in, out, huge, NULL, type, comm, NULL), "recvcounts[0]");
    WRONG_ARGUMENT(tuttiAllGatherV(in, out, one, far, type, comm, NULL), "displs[0]");
    WRONG_ARGUMENT(tuttiAllGatherV(in, in + 1, one, NULL, type, comm, NULL), "overlap");
    WRONG_ARGUMENT(tuttiAllGatherV(NULL, out, one, NULL, type, comm, NULL), "sendbuff is NULL");
    WRONG_ARGUMENT(tuttiAllGatherV(in, out, one, NULL, (tuttiDataType_t)99, comm, NULL), "99");
    WRONG_ARGUMENT(tuttiReduceScatterV(in, NULL, one, type, tuttiSum, comm, NULL),
                   "recvbuff is NULL");
    WRONG_ARGUMENT(tuttiReduceScatterV(in, out, one, type, tuttiBitAnd, comm, NULL), "float");
    WRONG_ARGUMENT(tuttiGatherV(in, out, one, NULL, type, 1, comm, NULL), "root 1");
    WRONG_ARGUMENT(tuttiGatherV(in, out, NULL, NULL, type, 0, comm, NULL), "recvcounts is NULL");
    WRONG_ARGUMENT(tuttiScatterV(in, out, NULL, NULL, type, 0, comm, NULL), "sendcounts is NULL");
    WRONG_ARGUMENT(tuttiScatterV(in, out, one, NULL, type, -1, comm, NULL), "root -1");
    WRONG_ARGUMENT(tuttiAlltoAllV(in, NULL, NULL, out, one, NULL, type, comm, NULL),
                   "sendcounts is NULL");
    WRONG_ARGUMENT(tuttiAlltoAllV(in, one, NULL, out, one, far, type, comm, NULL), "rdispls[0]");
    WRONG_ARGUMENT(tuttiAlltoAllV(in, one, NULL, in, one, NULL, type, comm, NULL),
                   "all_to_all is never in place");
    WRONG_ARGUMENT(tuttiAlltoAllV(NULL, one, NULL, out, one, NULL, type, comm, NULL),
                   "sendbuff is NULL");
    CHECK_EQ(tuttiAlltoAllV(NULL, none, NULL, NULL, none, NULL, type, comm, NULL), tuttiSuccess);
    check_alive(comm);
}

static void overlap_blocks(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    const size_t counts[2] = {4, 4}, over[2] = {3, 0};
    WRONG_ARGUMENT(tuttiAllGatherV(in, out + 32 * rank, counts, over, tuttiFloat32, comm, NULL),
                   "displs puts the block of rank 0");
    if (rank == 0)
        WRONG_ARGUMENT(tuttiGatherV(in, out, counts, over, tuttiFloat32, 0, comm, NULL),
                       "blocks must not overlap");
    WRONG_ARGUMENT(
        tuttiAlltoAllV(in, counts, NULL, out + 32 * rank, counts, over, tuttiFloat32, comm, NULL),
        "rdispls puts the block of rank 0");
}

TEST(bad_input, blocks_that_are_received_over_each_other)
{
    as_threads(2, NULL, overlap_blocks, NULL);
}
