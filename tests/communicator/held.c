/* What a group's calls use is not destroyed before the group has ended. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "communicator/communicator.h"
#include "communicator/group.h"
#include "shim.h"

/* InvalidUsage, and a text that names the function and the group. */
static void check_refused(tuttiResult_t result, const char *function)
{
    const char *text = tuttiGetLastError(NULL);
    CHECK_MESSAGE(result == tuttiInvalidUsage && strstr(text, function) && strstr(text, "group"),
                  "%s: %s: \"%s\"", function, tuttiGetErrorString(result), text);
}

TEST(held, a_stream_with_a_call_of_the_group_is_not_destroyed_before_its_end)
{
    tuttiComm_t comm;
    tuttiStream_t stream, other;
    float x = 3, y = 0, z = 0;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    REQUIRE(!tuttiStreamCreate(&stream) && !tuttiStreamCreate(&other));
    for (int n = 1; n <= 9; n += 8) { /* more calls than have a place in the group itself */
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int i = 0; i < n; i++)
            CHECK_EQ(
                tuttiAllReduce(&x, i ? &z : &y, 1, tuttiFloat32, tuttiSum, comm, i ? NULL : stream),
                tuttiSuccess);
        check_refused(tuttiStreamDestroy(stream), "tuttiStreamDestroy");
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        CHECK(y == 3);
        y = 0;
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(other), tuttiSuccess); /* the group has no call on it */
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Leaves a group with more calls than have a place in the group itself, an init and an end. */
static void *leave_group(void *argument)
{
    tuttiComm_t *comms = argument, made;
    tuttiUniqueId id;
    float x = 3, y = 5;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(tuttiAllReduce(&x, &y, 1, tuttiFloat32, tuttiSum, comms[0], NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommInitRank(&made, 1, id, 0), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiDropUniqueId(&id), tuttiSuccess);
    return NULL;
}

TEST(held, a_group_ends_with_its_thread)
{
    tuttiComm_t comms[2];
    pthread_t thread;
    float x = 3, y = 0;
    int count;
    for (int i = 0; i < 2; i++) REQUIRE(tuttiCommInitAll(&comms[i], 1, NULL) == tuttiSuccess);
    REQUIRE(pthread_create(&thread, NULL, leave_group, comms) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiCommCount(comms[1], &count), tuttiInvalidArgument); /* destroyed */
    REQUIRE(comms[0]->cache);
    CHECK_EQ(comms[0]->cache->nheld, 0);
    CHECK_EQ(tuttiAllReduce(&x, &y, 1, tuttiFloat32, tuttiSum, comms[0], NULL), tuttiSuccess);
    CHECK(y == 3);
    CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
}

TEST(held, memory_of_a_call_of_the_group_is_not_freed_before_its_end)
{
    enum { NBYTES = 1 << 16, COUNT = NBYTES / 4 };
    static float heap[4 * COUNT] __attribute__((aligned(4096)));
    tuttiComm_t comm;
    void *in, *out, *other, *handle;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    REQUIRE(!tuttiMemAlloc(&in, NBYTES) && !tuttiMemAlloc(&out, NBYTES) &&
            !tuttiMemAlloc(&other, NBYTES));
    REQUIRE(!tuttiCommRegister(comm, heap, sizeof heap, &handle));
    memset(in, 0, NBYTES);
    heap[COUNT] = ((float *)in)[7] = 5;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce((float *)in + 7, out, 1, tuttiFloat32, tuttiSum, comm, NULL),
             tuttiSuccess);
    check_refused(tuttiMemFree(in), "tuttiMemFree");
    check_refused(tuttiMemFree(out), "tuttiMemFree");
    CHECK_EQ(tuttiMemFree(other), tuttiSuccess);
    CHECK_EQ(tuttiSend(heap + COUNT, 1, tuttiFloat32, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv((float *)out + 1, 1, tuttiFloat32, 0, comm, NULL), tuttiSuccess);
    check_refused(tuttiCommDeregister(comm, handle), "tuttiCommDeregister");
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK(((float *)out)[0] == 5 && ((float *)out)[1] == 5);
    CHECK_EQ(tuttiMemFree(in), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(out), tuttiSuccess);
    CHECK_EQ(tuttiCommDeregister(comm, handle), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Ranks 0 and 1 of three, whose splits wait for rank 2; a call of rank 0 makes the group hold it.
 */
static void *split_in_group(void *argument)
{
    tuttiComm_t *comms = argument, parts[2];
    int x = 1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, comms[0], NULL), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(tuttiCommSplit(comms[i], 0, 0, &parts[i], NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "is being destroyed by another thread"), "%s",
                  tuttiGetLastError(NULL));
    return NULL;
}

static void *destroy(void *argument)
{
    CHECK_EQ(tuttiCommDestroy(argument), tuttiSuccess);
    return NULL;
}

/* Its end waits for the group, and the splits of the other ranks would wait for its own. */
TEST(held, a_parent_that_ends_during_the_splits_of_a_group_fails_them)
{
    enum { DEADLINE_MS = 20000 };
    tuttiComm_t comms[3], part;
    pthread_t group, end;
    REQUIRE(tuttiCommInitAll(comms, 3, NULL) == tuttiSuccess);
    for (int i = 0; i < 3; i++) CHECK_EQ(tuttiCommSetTimeout(comms[i], DEADLINE_MS), tuttiSuccess);
    REQUIRE(pthread_create(&group, NULL, split_in_group, comms) == 0);
    while (tt_engine_idle(&comms[1]->core.engine)) usleep(100);
    REQUIRE(pthread_create(&end, NULL, destroy, comms[0]) == 0);
    while (!atomic_load(&comms[0]->ends)) usleep(100);
    CHECK_EQ(tuttiCommSplit(comms[2], 0, 0, &part, NULL), tuttiRemoteError);
    const char *text = tuttiGetLastError(comms[2]);
    CHECK_MESSAGE(strstr(text, "rank 0 (") && strstr(text, ") cannot split: communicator "), "%s",
                  text);
    pthread_join(group, NULL);
    pthread_join(end, NULL);
    for (int i = 1; i < 3; i++) CHECK_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
}

static void *split_refused_in_group(void *argument)
{
    tuttiComm_t *comms = argument, part;
    int x = 1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, comms[0], NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(comms[0], 0, 0, &part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiTimeout);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "over: too late"), "%s", tuttiGetLastError(NULL));
    return NULL;
}

/* All ranks know the refusal, also where rank 0's communicator ends; rank 0's call is dropped. */
TEST(held, a_split_that_another_rank_refuses_fails_only_the_call_beside_it)
{
    tuttiComm_t comms[2];
    pthread_t group, end;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(pthread_create(&group, NULL, split_refused_in_group, comms) == 0);
    while (tt_engine_idle(&comms[0]->core.engine)) usleep(100);
    REQUIRE(pthread_create(&end, NULL, destroy, comms[0]) == 0);
    while (!atomic_load(&comms[0]->ends)) usleep(100);
    CHECK_EQ(tuttiCommSplitRefuse(comms[1], tuttiTimeout, "over: too late"), tuttiTimeout);
    pthread_join(group, NULL);
    CHECK_EQ(tuttiBarrier(comms[1], NULL), tuttiRemoteError);
    const char *text = tuttiGetLastError(comms[1]);
    CHECK_MESSAGE(strstr(text, "issues no calls of a group") && strstr(text, "over: too late") &&
                      !strstr(text, "cannot split"),
                  "%s", text);
    pthread_join(end, NULL);
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
}

/* Another communicator may have had the address. */
TEST(held, a_call_holds_only_the_parent_that_has_its_number)
{
    tuttiComm_t comm, made = NULL;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    struct tt_pending_init inits[2] = {{.comm = &made, .parent = comm, .number = comm->number - 1},
                                       {.comm = &made, .parent = comm, .number = comm->number}};
    const struct tt_pending_call call = {.comm = &comm->core};
    tt_init_hold_parents(inits, 2, &call, 1);
    CHECK(!inits[0].holds_parent && inits[1].holds_parent);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* As NCCL's: a call keeps what it needs of them. */
TEST(held, operations_and_events_may_be_destroyed_in_a_group)
{
    tuttiComm_t comm;
    tuttiStream_t stream;
    tuttiEvent_t event;
    tuttiRedOp_t op, next;
    float x = 3, y = 0, scalar = 0.5f;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    REQUIRE(!tuttiStreamCreate(&stream) && !tuttiEventCreate(&event));
    REQUIRE(!tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat32, tuttiScalarHostImmediate, comm));
    CHECK_EQ(tuttiEventRecord(event, stream), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiStreamWaitEvent(stream, event), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&x, &y, 1, tuttiFloat32, op, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiRedOpDestroy(op, comm), tuttiSuccess);
    scalar = 4; /* the next operation takes the number of the one that is gone */
    CHECK_EQ(
        tuttiRedOpCreatePreMulSum(&next, &scalar, tuttiFloat32, tuttiScalarHostImmediate, comm),
        tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK(y == 1.5f);
    CHECK_EQ(tuttiRedOpDestroy(next, comm), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
