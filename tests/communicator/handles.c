/* Handles that stand for nothing: every function refuses them, whatever address they are. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "communicator/handles.h"
#include "shim.h"
#include "tutti.h"

static void nothing(void *argument, const char *line)
{
    (void)argument, (void)line;
}

static void do_nothing(void *argument)
{
    (void)argument;
}

/* InvalidArgument, and a text that says what the handle is not. */
static void check_refused(tuttiResult_t result, const char *call, const char *what)
{
    CHECK_MESSAGE(result == tuttiInvalidArgument && strstr(tuttiGetLastError(NULL), what),
                  "%s: %s: \"%s\" has not \"%s\"", call, tuttiGetErrorString(result),
                  tuttiGetLastError(NULL), what);
}
#define REFUSED(call) check_refused(call, #call, what)

/* Every function with a communicator. */
static void try_communicator(tuttiComm_t c)
{
    static const char what[] = "is no communicator";
    static const size_t ones[] = {1};
    float x[4] = {1, 2, 3, 4}, y[4];
    int number;
    void *handle = NULL;
    const char *name;
    tuttiComm_t child = NULL;
    tuttiRedOp_t op;
    tuttiResult_t result;
    tuttiCounters_t counters;
    tuttiCallCounters_t calls = TUTTI_CALL_COUNTERS_INITIALIZER;
    REFUSED(tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, c, NULL));
    REFUSED(tuttiReduce(x, y, 4, tuttiFloat32, tuttiSum, 0, c, NULL));
    REFUSED(tuttiBroadcast(x, x, 4, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiReduceScatter(x, y, 1, tuttiFloat32, tuttiSum, c, NULL));
    REFUSED(tuttiAllGather(x, y, 1, tuttiFloat32, c, NULL));
    REFUSED(tuttiAlltoAll(x, y, 1, tuttiFloat32, c, NULL));
    REFUSED(tuttiGather(x, y, 1, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiScatter(x, y, 1, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiAllGatherV(x, y, ones, NULL, tuttiFloat32, c, NULL));
    REFUSED(tuttiReduceScatterV(x, y, ones, tuttiFloat32, tuttiSum, c, NULL));
    REFUSED(tuttiGatherV(x, y, ones, NULL, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiScatterV(x, y, ones, NULL, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiAlltoAllV(x, ones, NULL, y, ones, NULL, tuttiFloat32, c, NULL));
    REFUSED(tuttiBarrier(c, NULL));
    REFUSED(tuttiSend(x, 1, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiRecv(x, 1, tuttiFloat32, 0, c, NULL));
    REFUSED(tuttiCommSplit(c, 0, 0, &child, NULL));
    REFUSED(tuttiCommFinalize(c));
    REFUSED(tuttiCommFinalizeLocal(c));
    REFUSED(tuttiCommDestroy(c));
    REFUSED(tuttiCommAbort(c));
    REFUSED(tuttiCommGetAsyncError(c, &result));
    REFUSED(tuttiCommCount(c, &number));
    REFUSED(tuttiCommUserRank(c, &number));
    REFUSED(tuttiCommDevice(c, &number));
    REFUSED(tuttiCommRegister(c, x, sizeof x, &handle));
    REFUSED(tuttiCommDeregister(c, x));
    REFUSED(tuttiRedOpCreatePreMulSum(&op, x, tuttiFloat32, tuttiScalarHostImmediate, c));
    REFUSED(tuttiRedOpDestroy(tuttiFirstDynamicRedOp, c));
    REFUSED(tuttiCommSetAlgorithm(c, tuttiCollAllReduce, "ring"));
    REFUSED(tuttiCommGetAlgorithm(c, tuttiCollAllReduce, 8, &name));
    REFUSED(tuttiDescribe(tuttiDescribeLinks, c, nothing, NULL));
    REFUSED(tuttiCommCounters(c, &counters));
    REFUSED(tuttiCommCallCounters(c, &calls));
}

/* Every function with a stream; comm is a communicator of one rank. */
static void try_stream(tuttiStream_t s, tuttiComm_t comm, tuttiEvent_t event)
{
    static const char what[] = "is no stream";
    static const size_t ones[] = {1};
    float x[4] = {1, 2, 3, 4}, y[4];
    REFUSED(tuttiStreamSynchronize(s));
    REFUSED(tuttiStreamQuery(s));
    REFUSED(tuttiStreamLaunch(s, do_nothing, NULL));
    REFUSED(tuttiStreamDestroy(s));
    REFUSED(tuttiEventRecord(event, s));
    REFUSED(tuttiStreamWaitEvent(s, event));
    REFUSED(tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, comm, s));
    REFUSED(tuttiAllGatherV(x, y, ones, NULL, tuttiFloat32, comm, s));
    REFUSED(tuttiAlltoAllV(x, ones, NULL, y, ones, NULL, tuttiFloat32, comm, s));
    REFUSED(tuttiBarrier(comm, s));
    REFUSED(tuttiSend(x, 1, tuttiFloat32, 0, comm, s));
    REFUSED(tuttiRecv(x, 1, tuttiFloat32, 0, comm, s));
}

static void try_event(tuttiEvent_t e, tuttiStream_t stream, tuttiEvent_t good)
{
    static const char what[] = "is no event";
    float ms;
    REFUSED(tuttiEventRecord(e, stream));
    REFUSED(tuttiEventSynchronize(e));
    REFUSED(tuttiEventQuery(e));
    REFUSED(tuttiStreamWaitEvent(stream, e));
    REFUSED(tuttiEventElapsedTime(&ms, e, good));
    REFUSED(tuttiEventElapsedTime(&ms, good, e));
    REFUSED(tuttiEventDestroy(e));
}

static void try_plan(tuttiPlan_t p)
{
    static const char what[] = "is no plan";
    tuttiPlanCost_t cost;
    uint64_t nbytes;
    REFUSED(tuttiPlanCost(p, 1, 4, 0, &cost));
    REFUSED(tuttiPlanOffHost(p, 1, 4, &nbytes));
    REFUSED(tuttiPlanVerify(p, 1));
    REFUSED(tuttiPlanPrint(p, 0, nothing, NULL));
    REFUSED(tuttiPlanDestroy(p));
}

/* One of each. */
struct all {
    tuttiComm_t comm;
    tuttiStream_t stream;
    tuttiEvent_t event;
    tuttiPlan_t plan;
};

static bool make(struct all *all)
{
    const bool made = !tuttiCommInitAll(&all->comm, 1, NULL) && !tuttiStreamCreate(&all->stream) &&
                      !tuttiEventCreate(&all->event) &&
                      !tuttiPlanCreate(&all->plan, tuttiCollAllReduce, "ring", 3, 0);
    CHECK(made);
    return made;
}

static void destroy(struct all *all)
{
    CHECK_EQ(tuttiCommDestroy(all->comm), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(all->stream), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(all->event), tuttiSuccess);
    CHECK_EQ(tuttiPlanDestroy(all->plan), tuttiSuccess);
}

static void try_all(void *handle, const struct all *good)
{
    if (handle != good->comm) try_communicator(handle);
    if (handle != good->stream) try_stream(handle, good->comm, good->event);
    if (handle != good->event) try_event(handle, good->stream, good->event);
    if (handle != good->plan) try_plan(handle);
}

TEST(handles, that_are_no_address_are_refused_by_every_function)
{
    struct all good;
    REQUIRE(make(&good));
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *real = (char *)good.comm;
    void *const wild[] = {(void *)0x10,
                          (void *)0x1234560,
                          (void *)0x7fffffffff0,
                          (void *)-16,
                          (void *)1,
                          (void *)0x13,
                          hole,
                          &good,
                          real + 16,
                          real + 1,
                          real + 2,
                          (void *)((uintptr_t)real & 0xffffffff)};
    for (size_t i = 0; i < sizeof wild / sizeof *wild && !tt_test_failed(); i++)
        try_all(wild[i], &good);
    munmap(hole, 4096);
    destroy(&good);
}

TEST(handles, of_another_kind_are_refused)
{
    struct all good;
    REQUIRE(make(&good));
    for (int i = 0; i < 2; i++) { /* the second time they have been looked up */
        try_all(good.comm, &good);
        try_all(good.stream, &good);
        try_all(good.event, &good);
        try_all(good.plan, &good);
        CHECK_EQ(tuttiBarrier(good.comm, good.stream), tuttiSuccess);
        CHECK_EQ(tuttiEventQuery(good.event), tuttiSuccess);
        CHECK_EQ(tuttiPlanVerify(good.plan, 5), tuttiSuccess);
    }
    destroy(&good);
}

TEST(handles, that_were_destroyed_are_refused)
{
    struct all good, gone;
    REQUIRE(make(&good) && make(&gone));
    CHECK_EQ(tuttiBarrier(gone.comm, gone.stream), tuttiSuccess);
    const struct all were = gone;
    destroy(&gone);
    try_communicator(were.comm);
    try_stream(were.stream, good.comm, good.event);
    try_event(were.event, good.stream, good.event);
    try_plan(were.plan);
    destroy(&good);
}

TEST(handles, null_is_allowed_where_the_header_says_so)
{
    int number;
    CHECK_EQ(tt_handle_check(NULL, TT_HANDLE_COMM), TT_ERR_ARGUMENT);
    CHECK_EQ(tuttiCommCount(NULL, &number), tuttiInvalidArgument);
    CHECK_EQ(tuttiEventQuery(NULL), tuttiInvalidArgument);
    CHECK_EQ(tuttiPlanVerify(NULL, 1), tuttiInvalidArgument);
    CHECK_EQ(tuttiCommDestroy(NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(NULL), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(NULL), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(NULL), tuttiSuccess);
    CHECK(tuttiGetLastError(NULL) != NULL);
    CHECK(tuttiGetLastError((tuttiComm_t)0x1230) != NULL);
}

/* ---- The table ------------------------------------------------------------------------------- */

enum { MANY = 2000 };

TEST(handles, thousands_come_and_go)
{
    static char memory[2 * MANY][16] __attribute__((aligned(16)));
    uint64_t state = 5;
    bool is_live[2 * MANY] = {false};
    for (int round = 0; round < 4 * MANY; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int i = (int)(state >> 33) % (round < 2 * MANY ? 2 * MANY : 100);
        CHECK_EQ(tt_handle_check(memory[i], TT_HANDLE_EVENT) == TT_OK, is_live[i]);
        CHECK(tt_handle_check(memory[i], TT_HANDLE_PLAN) < 0);
        if (is_live[i])
            tt_handle_remove(memory[i], TT_HANDLE_EVENT);
        else
            CHECK_EQ(tt_handle_add(memory[i], TT_HANDLE_EVENT), TT_OK);
        is_live[i] = !is_live[i];
        if (tt_test_failed()) return;
    }
    for (int i = 0; i < 2 * MANY; i++)
        if (is_live[i]) tt_handle_remove(memory[i], TT_HANDLE_EVENT);
}

static void *come_and_go(void *argument)
{
    char(*mine)[16] = argument;
    for (int round = 0; round < 5000; round++) {
        char *handle = mine[round % 64];
        CHECK_EQ(tt_handle_add(handle, TT_HANDLE_STREAM), TT_OK);
        CHECK_EQ(tt_handle_check(handle, TT_HANDLE_STREAM), TT_OK);
        tt_handle_remove(handle, TT_HANDLE_STREAM);
        CHECK(tt_handle_check(handle, TT_HANDLE_STREAM) < 0);
    }
    return NULL;
}

TEST(handles, of_several_threads_come_and_go)
{
    enum { NTHREADS = 4 };
    static char memory[NTHREADS][64][16] __attribute__((aligned(16)));
    pthread_t threads[NTHREADS];
    for (int t = 0; t < NTHREADS; t++)
        REQUIRE(pthread_create(&threads[t], NULL, come_and_go, memory[t]) == 0);
    for (int t = 0; t < NTHREADS; t++) pthread_join(threads[t], NULL);
}
