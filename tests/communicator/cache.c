/* Programs that a communicator keeps: a bounded number, and never fewer than calls under way use.
 */
#include "communicator/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "integration/ranks.h"
#include "shim.h"

enum { NRANKS = 4, NALGORITHMS = 5, NCALLS = 2 * NALGORITHMS * NRANKS };

/* Calls with NCALLS different schedules, two of which use each root and algorithm. */
struct calls {
    int in[NCALLS], out[NCALLS];
};

static tuttiResult_t issue(tuttiComm_t comm, tuttiStream_t stream, int rank, struct calls *calls,
                           int i)
{
    static const char *const broadcasts[NALGORITHMS] = {"direct", "binomial", "chain",
                                                        "scatter_allgather", "meet"};
    static const char *const reduces[NALGORITHMS] = {"direct", "binomial", "chain",
                                                     "reduce_scatter_gather", "meet"};
    const int root = i / 2 % NRANKS, algorithm = i / 2 / NRANKS;
    calls->in[i] = 100 * i + rank;
    calls->out[i] = -1;
    if (i % 2) {
        CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollReduce, reduces[algorithm]), tuttiSuccess);
        return tuttiReduce(&calls->in[i], &calls->out[i], 1, tuttiInt32, tuttiSum, root, comm,
                           stream);
    }
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollBroadcast, broadcasts[algorithm]), tuttiSuccess);
    return tuttiBroadcast(&calls->in[i], &calls->out[i], 1, tuttiInt32, root, comm, stream);
}

static void check_results(int rank, const struct calls *calls)
{
    for (int i = 0; i < NCALLS; i++) {
        const int root = i / 2 % NRANKS, sum = NRANKS * 100 * i + NRANKS * (NRANKS - 1) / 2;
        if (i % 2 == 0)
            CHECK_EQ(calls->out[i], 100 * i + root);
        else if (rank == root)
            CHECK_EQ(calls->out[i], sum);
    }
}

static int count_cached(tuttiComm_t comm)
{
    int n = 0;
    for (const struct tt_cached *c = comm->cache; c; c = c->next) n++;
    CHECK_EQ(n, comm->ncached);
    return n;
}

static void call_one_by_one(int rank, tuttiComm_t comm, void *arg)
{
    struct calls calls;
    (void)arg;
    for (int i = 0; i < NCALLS; i++) {
        CHECK_EQ(issue(comm, NULL, rank, &calls, i), tuttiSuccess);
        CHECK(count_cached(comm) <= TT_MOST_CACHED);
    }
    CHECK_EQ(count_cached(comm), TT_MOST_CACHED);
    check_results(rank, &calls);
}

TEST(cache, never_holds_more_than_its_bound_between_calls)
{
    CHECK((int)NCALLS > (int)TT_MOST_CACHED);
    as_threads(NRANKS, NULL, call_one_by_one, NULL);
}

static void call_in_a_group(int rank, tuttiComm_t comm, void *arg)
{
    struct calls calls;
    (void)arg;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) CHECK_EQ(issue(comm, NULL, rank, &calls, i), tuttiSuccess);
    CHECK_EQ(count_cached(comm), NCALLS);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    check_results(rank, &calls);
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    CHECK_EQ(count_cached(comm), TT_MOST_CACHED);
}

TEST(cache, holds_all_schedules_of_a_group_until_its_end)
{
    as_threads(NRANKS, NULL, call_in_a_group, NULL);
}

static void call_in_a_stream(int rank, tuttiComm_t comm, void *arg)
{
    struct calls calls;
    tuttiStream_t stream;
    (void)arg;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    for (int again = 0; again < 20; again++) {
        for (int i = 0; i < NCALLS; i++)
            CHECK_EQ(issue(comm, stream, rank, &calls, i), tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        check_results(rank, &calls);
    }
    tuttiStreamDestroy(stream);
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    CHECK(count_cached(comm) <= TT_MOST_CACHED);
}

TEST(cache, evicts_no_schedule_that_a_call_in_a_stream_still_uses)
{
    as_threads(NRANKS, NULL, call_in_a_stream, NULL);
}

/* What is asked for again and again stays, though others come and go. */
static void call_one_often(int rank, tuttiComm_t comm, void *arg)
{
    struct calls calls;
    int one = 1, sum = 0;
    (void)arg;
    CHECK_EQ(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    const struct tt_cached *kept = comm->memos[TT_PROGRAMS_OF_HOST][TT_ALL_REDUCE].cached;
    for (int i = 0; i < NCALLS; i++) {
        CHECK_EQ(issue(comm, NULL, rank, &calls, i), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
        CHECK(comm->memos[TT_PROGRAMS_OF_HOST][TT_ALL_REDUCE].cached == kept);
    }
}

TEST(cache, keeps_what_is_used_again_and_again)
{
    as_threads(NRANKS, NULL, call_one_often, NULL);
}

/* ---- Tables of resolved steps ---------------------------------------------------------------- */

enum { NCOUNTS = 3 * TT_BINDINGS_KEPT, MOST = 600 * NCOUNTS };

/* Calls of more counts than bindings are kept for, all issued before the first is done: none may
 * lose what it reads. */
static void call_with_many_counts(int rank, tuttiComm_t comm, void *arg)
{
    int *in = calloc(MOST, sizeof *in), *out = calloc((size_t)NCOUNTS * MOST, sizeof *out);
    tuttiStream_t stream;
    (void)arg;
    REQUIRE(in && out && tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    for (int i = 0; i < MOST; i++) in[i] = i + rank;
    for (int again = 0; again < 10; again++) {
        memset(out, 0, (size_t)NCOUNTS * MOST * sizeof *out);
        for (int c = 0; c < NCOUNTS; c++)
            CHECK_EQ(tuttiAllReduce(in, out + c * MOST, 600 * (size_t)(c + 1), tuttiInt32, tuttiSum,
                                    comm, stream),
                     tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        for (int c = 0; c < NCOUNTS; c++)
            for (int i = 0; i < 600 * (c + 1); i++)
                REQUIRE(out[c * MOST + i] == NRANKS * i + NRANKS * (NRANKS - 1) / 2);
    }
    tuttiStreamDestroy(stream);
    free(in);
    free(out);
}

TEST(cache, keeps_the_resolved_steps_that_a_call_in_a_stream_still_reads)
{
    as_threads(NRANKS, NULL, call_with_many_counts, NULL);
}

/* Of the binding that the last all-reduce used. */
static const struct tt_bound *bound_of(tuttiComm_t comm, size_t count)
{
    const struct tt_cached *cached = comm->memos[TT_PROGRAMS_OF_HOST][TT_ALL_REDUCE].cached;
    for (int i = 0; i < TT_BINDINGS_KEPT; i++)
        if (cached->bound[i].binding.count == count) return &cached->bound[i];
    return NULL;
}

static void call_in_a_group_with_many_counts(int rank, tuttiComm_t comm, void *arg)
{
    int in[NCOUNTS], out[NCOUNTS];
    (void)arg;
    for (int i = 0; i < NCOUNTS; i++) in[i] = i + rank;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (size_t c = 1; c <= TT_BINDINGS_KEPT + 1; c++)
        CHECK_EQ(tuttiAllReduce(in, out, c, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    /* The calls before are held by the group, but nobody reads the tables of other counts. */
    for (size_t c = 2; c <= TT_BINDINGS_KEPT; c++) CHECK(bound_of(comm, c)->is_resolved);
    /* The last takes the place of the first, whose table the group still reads. */
    const struct tt_bound *bound = bound_of(comm, TT_BINDINGS_KEPT + 1);
    CHECK(bound && !bound->is_resolved);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    /* Made when the program is asked for again. */
    CHECK_EQ(tuttiAllReduce(in, out, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(in, out, TT_BINDINGS_KEPT + 1, tuttiInt32, tuttiSum, comm, NULL),
             tuttiSuccess);
    bound = bound_of(comm, TT_BINDINGS_KEPT + 1);
    CHECK(bound && bound->is_resolved && bound->resolved_bytes > 0);
}

TEST(cache, resolves_steps_later_where_a_held_call_reads_those_of_another_count)
{
    as_threads(NRANKS, NULL, call_in_a_group_with_many_counts, NULL);
}
