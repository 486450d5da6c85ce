/* A communicator of one rank. */
#include <string.h>
#include <unistd.h>

#include "shim.h"
#include "tutti.h"

enum { HUGE_COUNT_BITS = 50, PATIENCE_S = 60 };

/* In place a rank alone has its result already, however much it is. */
static void call_alone(tuttiComm_t comm, tuttiStream_t stream)
{
    static float x[4] = {1, 2, 3, 4};
    const size_t huge = (size_t)1 << HUGE_COUNT_BITS;
    const size_t counts[] = {huge};
    static const tuttiRedOp_t ops[] = {tuttiSum, tuttiProd, tuttiMin, tuttiMax, tuttiAvg};
    for (int i = 0; i < 5; i++) {
        const tuttiDataType_t type = i % 2 ? tuttiInt32 : tuttiFloat32;
        CHECK_EQ(tuttiAllReduce(x, x, huge, type, ops[i], comm, stream), tuttiSuccess);
        CHECK_EQ(tuttiReduce(x, x, huge, type, ops[i], 0, comm, stream), tuttiSuccess);
        CHECK_EQ(tuttiReduceScatter(x, x, huge, type, ops[i], comm, stream), tuttiSuccess);
        CHECK_EQ(tuttiReduceScatterV(x, x, counts, type, ops[i], comm, stream), tuttiSuccess);
    }
    CHECK_EQ(tuttiAllReduce(x, x, huge, tuttiInt32, tuttiAvg, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(x, x, huge, tuttiBfloat16, tuttiAvg, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiBroadcast(x, x, huge, tuttiFloat32, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiAllGather(x, x, huge, tuttiFloat32, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiGather(x, x, huge, tuttiFloat32, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiScatter(x, x, huge, tuttiFloat32, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiAllGatherV(x, x, counts, NULL, tuttiFloat32, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiGatherV(x, x, counts, NULL, tuttiFloat32, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiScatterV(x, x, counts, NULL, tuttiFloat32, 0, comm, stream), tuttiSuccess);
}

/* Out of place it copies, whatever the number of rounds would be. */
static void copy_alone(tuttiComm_t comm, tuttiStream_t stream)
{
    enum { COUNT = 3000001 };
    static int32_t x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = i * 7;
    for (int i = 0; i < 4; i++) {
        const size_t counts[] = {COUNT};
        memset(y, 0, sizeof y);
        const tuttiResult_t result =
            i == 0   ? tuttiAllReduce(x, y, COUNT, tuttiInt32, tuttiAvg, comm, stream)
            : i == 1 ? tuttiAllGather(x, y, COUNT, tuttiInt32, comm, stream)
            : i == 2 ? tuttiReduceScatterV(x, y, counts, tuttiInt32, tuttiSum, comm, stream)
                     : tuttiAlltoAll(x, y, COUNT, tuttiInt32, comm, stream);
        CHECK_EQ(result, tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        CHECK(memcmp(x, y, sizeof x) == 0);
    }
}

static tuttiComm_t alone(void)
{
    tuttiComm_t comm = NULL;
    CHECK_EQ(tuttiCommInitAll(&comm, 1, NULL), tuttiSuccess);
    return comm;
}

TEST(alone, calls_in_place_do_nothing_however_much_there_is)
{
    tuttiComm_t comm = alone();
    tuttiStream_t stream;
    REQUIRE(comm && tuttiStreamCreate(&stream) == tuttiSuccess);
    alarm(PATIENCE_S);
    call_alone(comm, NULL);
    call_alone(comm, stream);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    call_alone(comm, NULL);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    alarm(0);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(alone, calls_in_place_do_nothing_with_any_algorithm)
{
    static float x[4] = {1, 2, 3, 4};
    const size_t huge = (size_t)1 << HUGE_COUNT_BITS;
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    alarm(PATIENCE_S);
    for (int i = 0;; i++) {
        const char *name = tuttiAlgorithmName(tuttiCollAllReduce, i);
        if (!name) break;
        if (!tuttiAlgorithmFits(tuttiCollAllReduce, name, 1, NULL)) continue;
        CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, name), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(x, x, huge, tuttiFloat32, tuttiAvg, comm, NULL), tuttiSuccess);
        CHECK(x[0] == 1 && x[3] == 4);
    }
    alarm(0);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Logical operations make 0 or 1 of what there is. */
TEST(alone, a_logical_operation_in_place_is_carried_out)
{
    int32_t x[3] = {7, 0, -1};
    tuttiComm_t comm = alone();
    REQUIRE(comm);
    CHECK_EQ(tuttiAllReduce(x, x, 3, tuttiInt32, tuttiLogicalAnd, comm, NULL), tuttiSuccess);
    CHECK(x[0] == 1 && x[1] == 0 && x[2] == 1);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(alone, calls_out_of_place_copy)
{
    tuttiComm_t comm = alone();
    tuttiStream_t stream;
    REQUIRE(comm && tuttiStreamCreate(&stream) == tuttiSuccess);
    copy_alone(comm, NULL);
    copy_alone(comm, stream);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
