/* tuttiCommCallCounters: calls and payload of every collective, of sends, receives and groups. */
#include <string.h>

#include "integration/ranks.h"
#include "shim.h"

enum { NRANKS = 3, COUNT = 10, MOST = 64 };

static tuttiCallCounters_t counters_of(tuttiComm_t comm)
{
    tuttiCallCounters_t counters = TUTTI_CALL_COUNTERS_INITIALIZER;
    CHECK_EQ(tuttiCommCallCounters(comm, &counters), tuttiSuccess);
    return counters;
}

/* The counters are `expected` but for `size` and the like. */
static void check_counts(tuttiComm_t comm, const tuttiCallCounters_t *expected, const char *what)
{
    const tuttiCallCounters_t now = counters_of(comm);
    for (int i = 0; i < TUTTI_CALL_COUNTERS_COLLECTIVES; i++)
        CHECK_MESSAGE(
            !memcmp(&now.collectives[i], &expected->collectives[i], sizeof *now.collectives),
            "%s: %s has %llu calls of %llu bytes, expected %llu of %llu", what,
            i < tuttiNumCollectives ? tuttiCollectiveName((tuttiCollective_t)i) : "none",
            (unsigned long long)now.collectives[i].calls,
            (unsigned long long)now.collectives[i].bytes,
            (unsigned long long)expected->collectives[i].calls,
            (unsigned long long)expected->collectives[i].bytes);
    CHECK_EQ(now.send.calls, expected->send.calls);
    CHECK_EQ(now.send.bytes, expected->send.bytes);
    CHECK_EQ(now.recv.calls, expected->recv.calls);
    CHECK_EQ(now.recv.bytes, expected->recv.bytes);
    CHECK_EQ(now.groups, expected->groups);
}

static tuttiResult_t call(tuttiCollective_t collective, const float *in, float *out,
                          tuttiComm_t comm)
{
    switch (collective) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
    case tuttiCollBroadcast:
        return tuttiBroadcast(in, out, COUNT, tuttiFloat32, 1, comm, NULL);
    case tuttiCollReduce:
        return tuttiReduce(in, out, COUNT, tuttiFloat32, tuttiSum, 2, comm, NULL);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, COUNT, tuttiFloat32, comm, NULL);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, COUNT, tuttiFloat32, comm, NULL);
    case tuttiCollScatter:
        return tuttiScatter(in, out, COUNT, tuttiFloat32, 0, comm, NULL);
    case tuttiCollGather:
        return tuttiGather(in, out, COUNT, tuttiFloat32, 1, comm, NULL);
    case tuttiCollBarrier:
        return tuttiBarrier(comm, NULL);
    default:
        return tuttiInternalError;
    }
}

static void make_every_call(int rank, tuttiComm_t comm, void *arg)
{
    static const size_t payloads[tuttiNumCollectives] = {40, 40, 40, 120, 120, 120, 120, 120, 0};
    const float in[MOST] = {0};
    float out[MOST];
    (void)rank, (void)arg;
    tuttiCallCounters_t expected = counters_of(comm);
    CHECK_EQ(expected.groups + expected.send.calls + expected.collectives[0].calls, 0);
    for (int i = 0; i < tuttiNumCollectives; i++) {
        const char *name = tuttiCollectiveName((tuttiCollective_t)i);
        for (int again = 0; again < 3; again++) {
            CHECK_EQ(call((tuttiCollective_t)i, in, out, comm), tuttiSuccess);
            expected.collectives[i].calls++;
            expected.collectives[i].bytes += payloads[i];
        }
        check_counts(comm, &expected, name);
    }
}

TEST(counters, every_collective_counts_its_calls_and_its_larger_buffer)
{
    as_threads(NRANKS, NULL, make_every_call, NULL);
}

/* The ranks' counts are 1, 2 and 3. */
static void make_uneven_calls(int rank, tuttiComm_t comm, void *arg)
{
    static const tuttiCollective_t gathers[] = {tuttiCollAllGather, tuttiCollReduceScatter,
                                                tuttiCollGather, tuttiCollScatter};
    const size_t counts[NRANKS] = {1, 2, 3},
                 own[NRANKS] = {(size_t)rank + 1, (size_t)rank + 1, (size_t)rank + 1};
    const double in[MOST] = {0};
    double out[MOST];
    (void)arg;
    tuttiCallCounters_t expected = counters_of(comm);
    CHECK_EQ(tuttiAllGatherV(in, out, counts, NULL, tuttiFloat64, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiReduceScatterV(in, out, counts, tuttiFloat64, tuttiMax, comm, NULL),
             tuttiSuccess);
    CHECK_EQ(tuttiGatherV(in, out, counts, NULL, tuttiFloat64, 0, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiScatterV(in, out, counts, NULL, tuttiFloat64, 1, comm, NULL), tuttiSuccess);
    for (int i = 0; i < 4; i++) expected.collectives[gathers[i]] = (tuttiCallCount_t){1, 48};
    check_counts(comm, &expected, "uneven");
    /* Rank r gets 1, 2 and 3 elements, and sends r + 1 to each. */
    CHECK_EQ(tuttiAlltoAllV(in, own, NULL, out, counts, NULL, tuttiFloat64, comm, NULL),
             tuttiSuccess);
    expected.collectives[tuttiCollAllToAll] = (tuttiCallCount_t){1, 8 * (rank == 2 ? 9u : 6u)};
    check_counts(comm, &expected, "all_to_all_v");
}

TEST(counters, calls_with_a_count_for_each_rank_count_with_their_collective)
{
    as_threads(NRANKS, NULL, make_uneven_calls, NULL);
}

static void exchange(int rank, tuttiComm_t comm, void *arg)
{
    const int next = (rank + 1) % NRANKS, last = (rank + NRANKS - 1) % NRANKS;
    const size_t none[NRANKS] = {0};
    int in[MOST] = {0}, out[MOST];
    (void)arg;
    tuttiCallCounters_t expected = counters_of(comm);
    for (int i = 1; i <= 4; i++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiSend(in, (size_t)i, tuttiInt32, next, comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
        CHECK_EQ(tuttiRecv(out, (size_t)i, tuttiInt32, last, comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiAlltoAllV(NULL, none, NULL, NULL, none, NULL, tuttiInt32, comm, NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    expected.send = expected.recv = (tuttiCallCount_t){4, 40};
    expected.collectives[tuttiCollAllToAll].calls = 4;
    expected.groups = 4;
    check_counts(comm, &expected, "grouped");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    check_counts(comm, &expected, "an empty group");
}

TEST(counters, sends_receives_and_outermost_groups_count)
{
    as_threads(NRANKS, NULL, exchange, NULL);
}

/* Only what was accepted counts, and not what the library calls itself. */
static void make_other_calls(int rank, tuttiComm_t comm, void *arg)
{
    float data[MOST] = {0};
    tuttiComm_t part = NULL;
    (void)arg;
    tuttiCallCounters_t expected = counters_of(comm);
    CHECK_EQ(tuttiAllReduce(NULL, data, 5, tuttiFloat32, tuttiSum, comm, NULL),
             tuttiInvalidArgument);
    CHECK_EQ(tuttiBroadcast(data, data, 5, tuttiFloat32, 9, comm, NULL), tuttiInvalidArgument);
    CHECK_EQ(tuttiSend(data, 5, tuttiFloat32, 9, comm, NULL), tuttiInvalidArgument);
    check_counts(comm, &expected, "refused calls");
    CHECK_EQ(tuttiCommSplit(comm, 0, rank, &part, NULL), tuttiSuccess);
    check_counts(comm, &expected, "a split");
    if (!part) return;
    CHECK_EQ(tuttiAllReduce(data, data, 0, tuttiFloat32, tuttiSum, part, NULL), tuttiSuccess);
    check_counts(comm, &expected, "a call on another communicator");
    expected.collectives[tuttiCollAllReduce].calls = 1;
    check_counts(part, &expected, "a call without data");
    CHECK_EQ(tuttiCommFinalize(part), tuttiSuccess);
    check_counts(part, &expected, "finalize");
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
}

TEST(counters, refused_calls_and_those_of_the_library_itself_do_not_count)
{
    as_threads(NRANKS, NULL, make_other_calls, NULL);
}

TEST(counters, streams_count_when_the_call_is_made)
{
    tuttiComm_t comm = NULL;
    tuttiStream_t stream = NULL;
    char data[16] = {0};
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    tuttiCallCounters_t expected = counters_of(comm);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(tuttiAllReduce(data, data, 16, tuttiInt8, tuttiSum, comm, stream), tuttiSuccess);
    expected.collectives[tuttiCollAllReduce] = (tuttiCallCount_t){100, 1600};
    check_counts(comm, &expected, "in a stream");
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

static void check_refused(tuttiComm_t comm, tuttiCallCounters_t *counters, const char *word)
{
    CHECK_EQ(tuttiCommCallCounters(comm, counters), tuttiInvalidArgument);
    const char *text = tuttiGetLastError(NULL);
    CHECK_MESSAGE(!strncmp(text, "tuttiCommCallCounters: ", 23) && strstr(text, word), "%s", text);
}

TEST(counters, a_struct_of_another_size_gets_what_fits)
{
    tuttiComm_t comm = NULL;
    char data[16] = {0};
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(data, data, 16, tuttiInt8, tuttiSum, comm, NULL), tuttiSuccess);
    tuttiCallCounters_t counters = TUTTI_CALL_COUNTERS_INITIALIZER;
    counters.size = offsetof(tuttiCallCounters_t, groups);
    counters.groups = 77;
    CHECK_EQ(tuttiCommCallCounters(comm, &counters), tuttiSuccess);
    CHECK_EQ(counters.collectives[tuttiCollAllReduce].bytes, 16);
    CHECK_EQ(counters.groups, 77);
    CHECK_EQ(counters.size, offsetof(tuttiCallCounters_t, groups));
    struct {
        tuttiCallCounters_t counters;
        uint64_t later;
    } newer = {.counters = TUTTI_CALL_COUNTERS_INITIALIZER, .later = 5};
    newer.counters.size = sizeof newer;
    CHECK_EQ(tuttiCommCallCounters(comm, &newer.counters), tuttiSuccess);
    CHECK_EQ(newer.counters.collectives[tuttiCollAllReduce].calls, 1);
    CHECK_EQ(newer.later, 5);
    counters.size = 3;
    check_refused(comm, &counters, "size 3");
    counters = (tuttiCallCounters_t){.size = sizeof counters};
    check_refused(comm, &counters, "TUTTI_CALL_COUNTERS_INITIALIZER");
    check_refused(comm, NULL, "NULL");
    check_refused(NULL, &newer.counters, "NULL");
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}
