/* Calls with count 0 take part like any other: they are matched and compared, and move nothing. */
#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { GUARD = 0x5a };

static const tuttiConfig_t config = CONFIG_WITHIN(10000, 20000);

static tuttiResult_t call(tuttiCollective_t collective, const int *in, int *out, size_t count,
                          tuttiComm_t comm, tuttiStream_t stream)
{
    int nranks = 0;
    CHECK_EQ(tuttiCommCount(comm, &nranks), tuttiSuccess);
    const int root = nranks - 1;
    switch (collective) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, comm, stream);
    case tuttiCollBroadcast:
        return tuttiBroadcast(in, out, count, tuttiInt32, root, comm, stream);
    case tuttiCollReduce:
        return tuttiReduce(in, out, count, tuttiInt32, tuttiSum, root, comm, stream);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, count, tuttiInt32, comm, stream);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, count, tuttiInt32, tuttiAvg, comm, stream);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, count, tuttiInt32, comm, stream);
    case tuttiCollScatter:
        return tuttiScatter(in, out, count, tuttiInt32, root, comm, stream);
    case tuttiCollGather:
        return tuttiGather(in, out, count, tuttiInt32, root, comm, stream);
    default:
        return tuttiBarrier(comm, stream);
    }
}

/* Forces each algorithm that can be on one host in turn; index -1: the default choice. */
static bool force(tuttiComm_t comm, int collective, int index)
{
    const char *name = index < 0 ? NULL : tuttiAlgorithmName((tuttiCollective_t)collective, index);
    int nranks = 0;
    CHECK_EQ(tuttiCommCount(comm, &nranks), tuttiSuccess);
    if (index >= 0 &&
        (!name || !tuttiAlgorithmFits((tuttiCollective_t)collective, name, nranks, NULL)))
        return false;
    return tuttiCommSetAlgorithm(comm, (tuttiCollective_t)collective, name) == tuttiSuccess;
}

static void call_every_way(int collective, tuttiComm_t comm, tuttiStream_t stream)
{
    int in[8], out[8];
    memset(in, GUARD, sizeof in);
    memset(out, GUARD, sizeof out);
    const tuttiCollective_t kind = (tuttiCollective_t)collective;
    CHECK_EQ(call(kind, in, out, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(call(kind, NULL, NULL, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(call(kind, in, out, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(call(kind, in, out, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(call(kind, NULL, NULL, 0, comm, stream), tuttiSuccess);
    CHECK_EQ(call(kind, in, out, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    for (int i = 0; i < 8; i++) CHECK_EQ(out[i], GUARD * 0x01010101);
}

static void call_all(int rank, tuttiComm_t comm, void *arg)
{
    tuttiStream_t stream;
    (void)rank, (void)arg;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    for (int c = 0; c < tuttiNumCollectives; c++)
        for (int a = -1; a < 0 || tuttiAlgorithmName((tuttiCollective_t)c, a); a++)
            if (force(comm, c, a)) call_every_way(c, comm, stream);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(empty, calls_succeed_and_touch_nothing)
{
    for (int nranks = 1; nranks <= 3; nranks++) as_threads(nranks, &config, call_all, NULL);
}

/* One rank calls with count 0, the others with count 5. */
static void disagree(int rank, tuttiComm_t comm, void *arg)
{
    const int *way = arg; /* collective, algorithm, whether on a stream, the odd rank */
    int in[5 * 3] = {0}, out[5 * 3];
    tuttiStream_t stream = NULL;
    if (!force(comm, way[0], way[1])) return;
    if (way[2]) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    tuttiResult_t result =
        call((tuttiCollective_t)way[0], in, out, rank == way[3] ? 0 : 5, comm, stream);
    if (stream && !result) result = tuttiStreamSynchronize(stream);
    if (result == tuttiSuccess && way[0] != tuttiCollAllReduce)
        result = tuttiBarrier(comm, NULL); /* which only sent learns of it later */
    const char *text = tuttiGetLastError(comm);
    const char *name = way[1] < 0 ? "" : tuttiAlgorithmName((tuttiCollective_t)way[0], way[1]);
    CHECK_MESSAGE(result == tuttiInvalidUsage, "%s:%s: rank %d got %s: %s",
                  tuttiCollectiveName((tuttiCollective_t)way[0]), name, rank,
                  tuttiGetErrorString(result), text);
    CHECK_MESSAGE(strstr(text, "count 0,") && strstr(text, "count 5,"),
                  "%s:%s: rank %d's error shows not both calls: %s",
                  tuttiCollectiveName((tuttiCollective_t)way[0]), name, rank, text);
    if (stream) CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(empty, calls_are_compared_with_those_of_other_ranks)
{
    for (int on_stream = 0; on_stream < 2; on_stream++)
        for (int c = 0; c < tuttiNumCollectives; c++)
            for (int a = -1; a < 0 || tuttiAlgorithmName((tuttiCollective_t)c, a); a++) {
                if (c == tuttiCollBarrier) continue;
                as_threads(2, &config, disagree, (int[]){c, a, on_stream, 0});
                as_threads(3, &config, disagree, (int[]){c, a, on_stream, 1});
            }
}

static void send_nothing(int rank, tuttiComm_t comm, void *arg)
{
    int data[2] = {rank, rank};
    (void)arg;
    if (rank == 0) { /* the empty message is one: the next receive must not get it */
        CHECK_EQ(tuttiSend(NULL, 0, tuttiInt32, 1, comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiSend(data, 2, tuttiInt32, 1, comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiSend(data, 0, tuttiInt32, 1, comm, NULL), tuttiSuccess);
    } else if (rank == 1) {
        CHECK_EQ(tuttiRecv(data, 0, tuttiInt32, 0, comm, NULL), tuttiSuccess);
        CHECK_EQ(data[0], 1);
        CHECK_EQ(tuttiRecv(data, 2, tuttiInt32, 0, comm, NULL), tuttiSuccess);
        CHECK_EQ(data[0], 0);
        CHECK_EQ(tuttiRecv(NULL, 0, tuttiInt32, 0, comm, NULL), tuttiSuccess);
    }
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
}

TEST(empty, messages_match_empty_receives)
{
    as_threads(2, &config, send_nothing, NULL);
}

static void receive_more(int rank, tuttiComm_t comm, void *arg)
{
    int data[5] = {0};
    (void)arg;
    tuttiResult_t result = rank == 0   ? tuttiSend(NULL, 0, tuttiInt32, 1, comm, NULL)
                           : rank == 1 ? tuttiRecv(data, 5, tuttiInt32, 0, comm, NULL)
                                       : tuttiSuccess;
    if (result == tuttiSuccess) result = tuttiBarrier(comm, NULL);
    CHECK_EQ(result, tuttiInvalidUsage);
    CHECK_MESSAGE(strstr(tuttiGetLastError(comm), "sends 0 bytes") &&
                      strstr(tuttiGetLastError(comm), "receives 20 bytes"),
                  "the error names not both: %s", tuttiGetLastError(comm));
}

TEST(empty, messages_match_no_other_receive)
{
    as_threads(3, &config, receive_more, NULL);
}
