/* Collectives with a count for each rank: what travels, what is copied before the call returns, and
 * what is refused. The results themselves random.c compares with a reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 4, TOTAL = 100 };

static const tuttiConfig_t config = CONFIG_WITHIN(10000, 20000);

static const size_t counts[NRANKS] = {0, 57, 1, 42};

/* ---- What travels --------------------------------------------------------------------------- */

/* One call by one algorithm, and how many elements all ranks together send for it. */
struct traffic {
    tuttiCollective_t collective;
    const char *algorithm;
    size_t elements;
};

enum { ROOT = 1, OTHERS = TOTAL - 57 }; /* what does not lie at root anyway */

static const struct traffic traffics[] = {
    {tuttiCollAllGather, "ring", (NRANKS - 1) * TOTAL},
    {tuttiCollAllGather, "parallel", (NRANKS - 1) * TOTAL},
    {tuttiCollAllGather, "recursive", (NRANKS - 1) * TOTAL},
    {tuttiCollAllGather, "bruck", (NRANKS - 1) * TOTAL},
    {tuttiCollAllGather, "pat", (NRANKS - 1) * TOTAL},
    {tuttiCollAllGather, "meet", TOTAL},
    {tuttiCollReduceScatter, "ring", (NRANKS - 1) * TOTAL},
    {tuttiCollReduceScatter, "parallel", (NRANKS - 1) * TOTAL},
    {tuttiCollReduceScatter, "recursive", (NRANKS - 1) * TOTAL},
    {tuttiCollReduceScatter, "meet", NRANKS *TOTAL},
    {tuttiCollGather, "direct", OTHERS},
    {tuttiCollScatter, "direct", OTHERS},
};

static uint64_t sent_bytes(tuttiComm_t comm)
{
    tuttiCounters_t counters;
    CHECK_EQ(tuttiCommCounters(comm, &counters), tuttiSuccess);
    return counters.bytesCopied + counters.bytesDirect;
}

static tuttiResult_t call(tuttiCollective_t collective, const int *in, int *out, tuttiComm_t comm)
{
    switch (collective) {
    case tuttiCollAllGather:
        return tuttiAllGatherV(in, out, counts, NULL, tuttiInt32, comm, NULL);
    case tuttiCollReduceScatter:
        return tuttiReduceScatterV(in, out, counts, tuttiInt32, tuttiSum, comm, NULL);
    case tuttiCollGather:
        return tuttiGatherV(in, out, counts, NULL, tuttiInt32, ROOT, comm, NULL);
    default:
        return tuttiScatterV(in, out, counts, NULL, tuttiInt32, ROOT, comm, NULL);
    }
}

static void count_traffic(int rank, tuttiComm_t comm, void *arg)
{
    (void)rank;
    (void)arg;
    int in[TOTAL] = {0}, out[TOTAL];
    for (size_t i = 0; i < sizeof traffics / sizeof *traffics; i++) {
        const struct traffic *t = &traffics[i];
        CHECK_EQ(tuttiCommSetAlgorithm(comm, t->collective, t->algorithm), tuttiSuccess);
        const uint64_t before = sent_bytes(comm);
        CHECK_EQ(call(t->collective, in, out, comm), tuttiSuccess);
        uint64_t sent = sent_bytes(comm) - before, all = 0;
        CHECK_EQ(tuttiAllReduce(&sent, &all, 1, tuttiUint64, tuttiSum, comm, NULL), tuttiSuccess);
        CHECK_MESSAGE(all == t->elements * sizeof(int),
                      "%s:%s sends %llu bytes on all ranks, expected %zu",
                      tuttiCollectiveName(t->collective), t->algorithm, (unsigned long long)all,
                      t->elements * sizeof(int));
    }
}

TEST(uneven, links_carry_what_the_formula_says_of_the_actual_counts)
{
    as_threads(NRANKS, &config, count_traffic, NULL);
}

/* ---- Forced algorithms, rounds -------------------------------------------------------------- */

enum { MANY = 30011 };

/* More than a slot holds in the largest block, and nothing in the smallest. */
static size_t many(int rank)
{
    return rank == 0 ? 0 : rank == 1 ? 1 : (size_t)(MANY * rank);
}

static void gather_many(int rank, tuttiComm_t comm, const char *algorithm)
{
    size_t lengths[NRANKS], begins[NRANKS], end = 0;
    for (int r = NRANKS - 1; r >= 0; r--) {
        lengths[r] = many(r);
        begins[r] = end + 5;
        end = begins[r] + lengths[r];
    }
    int *out = malloc(end * sizeof *out);
    if (!out) abort();
    memset(out, 0xff, end * sizeof *out);
    for (size_t i = 0; i < lengths[rank]; i++) out[begins[rank] + i] = rank;
    CHECK_EQ(tuttiAllGatherV(out + begins[rank], out, lengths, begins, tuttiInt32, comm, NULL),
             tuttiSuccess);
    size_t nwrong = 0, at = 0;
    for (int r = NRANKS - 1; r >= 0; r--) {
        for (; at < begins[r]; at++) nwrong += out[at] != -1;
        for (; at < begins[r] + lengths[r]; at++) nwrong += out[at] != r;
    }
    CHECK_MESSAGE(nwrong == 0, "%s: rank %d has %zu wrong elements", algorithm, rank, nwrong);
    free(out);
}

static void scatter_many(int rank, tuttiComm_t comm, const char *algorithm)
{
    size_t lengths[NRANKS], total = 0, nwrong = 0;
    for (int r = 0; r < NRANKS; r++) total += lengths[r] = many(r);
    int *in = malloc(total * sizeof *in), *out = malloc((lengths[rank] + 1) * sizeof *out);
    if (!in || !out) abort();
    int *block = in;
    for (int r = 0; r < NRANKS; block += lengths[r++])
        for (size_t i = 0; i < lengths[r]; i++) block[i] = r + (int)i;
    out[lengths[rank]] = -1;
    CHECK_EQ(tuttiReduceScatterV(in, out, lengths, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    for (size_t i = 0; i < lengths[rank]; i++) nwrong += out[i] != NRANKS * (rank + (int)i);
    CHECK_MESSAGE(nwrong == 0 && out[lengths[rank]] == -1, "%s: rank %d has %zu wrong elements",
                  algorithm, rank, nwrong);
    free(in);
    free(out);
}

static void force_each(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    const tuttiCollective_t collectives[] = {tuttiCollAllGather, tuttiCollReduceScatter};
    for (int c = 0; c < 2; c++) {
        const char *name;
        for (int i = 0; (name = tuttiAlgorithmName(collectives[c], i)) != NULL; i++) {
            if (!tuttiAlgorithmFits(collectives[c], name, NRANKS, NULL)) continue;
            CHECK_EQ(tuttiCommSetAlgorithm(comm, collectives[c], name), tuttiSuccess);
            if (c == 0)
                gather_many(rank, comm, name);
            else
                scatter_many(rank, comm, name);
        }
    }
}

TEST(uneven, every_algorithm_moves_blocks_of_many_rounds_and_empty_ones)
{
    as_threads(NRANKS, &config, force_each, NULL);
}

static void force_binomial(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    int out[TOTAL], own[TOTAL];
    for (int i = 0; i < TOTAL; i++) own[i] = rank;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollGather, "binomial"), tuttiSuccess);
    CHECK_EQ(tuttiGatherV(own, out, counts, NULL, tuttiInt32, ROOT, comm, NULL), tuttiSuccess);
    if (rank == ROOT) CHECK(out[0] == 1 && out[56] == 1 && out[57] == 2 && out[58] == 3);
}

TEST(uneven, a_forced_algorithm_that_is_not_for_it_leaves_the_call_to_the_choice)
{
    as_threads(NRANKS, &config, force_binomial, NULL);
}

/* ---- Arrays are copied; groups and streams -------------------------------------------------- */

enum { NCALLS = 3 };

/* Three calls whose arrays are overwritten at once. */
static void issue_and_overwrite(int rank, tuttiComm_t comm, tuttiStream_t stream,
                                int out[NCALLS][TOTAL])
{
    static const int own[TOTAL] = {7, 7, 7};
    size_t lengths[NRANKS], begins[NRANKS];
    for (int i = 0; i < NCALLS; i++) {
        for (size_t r = 0; r < NRANKS; r++) {
            lengths[r] = 1 + (r + (size_t)i) % 3;
            begins[r] = 10 * r;
        }
        CHECK_EQ(tuttiAllGatherV(own, out[i], lengths, begins, tuttiInt32, comm, stream),
                 tuttiSuccess);
        memset(lengths, 0xff, sizeof lengths);
        memset(begins, 0xff, sizeof begins);
    }
    (void)rank;
}

static void check_overwritten(int rank, int out[NCALLS][TOTAL])
{
    for (int i = 0; i < NCALLS; i++)
        for (int r = 0; r < NRANKS; r++) {
            const int length = 1 + (r + i) % 3;
            for (int k = 0; k < 10; k++)
                CHECK_MESSAGE(out[i][10 * r + k] == (k < length ? 7 : 0),
                              "rank %d, call %d, block %d, element %d is %d", rank, i, r, k,
                              out[i][10 * r + k]);
        }
}

static void in_groups_and_streams(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    for (int way = 0; way < 4; way++) {
        int out[NCALLS][TOTAL] = {{0}};
        const bool grouped = way & 1, streamed = way & 2;
        if (grouped) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        issue_and_overwrite(rank, comm, streamed ? stream : NULL, out);
        if (grouped) CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
        CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        check_overwritten(rank, out);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST(uneven, counts_and_displacements_are_copied_before_the_call_returns)
{
    as_threads(NRANKS, &config, in_groups_and_streams, NULL);
}

static void drop_a_group(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    int own[TOTAL] = {0}, out[TOTAL];
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllGatherV(own, out, counts, NULL, tuttiInt32, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiAllGatherV(own, out, NULL, NULL, tuttiInt32, comm, NULL), tuttiInvalidArgument);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "tuttiAllGatherV: recvcounts is NULL"));
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    (void)rank;
}

TEST(uneven, a_group_that_fails_issues_nothing_and_keeps_no_table)
{
    as_threads(NRANKS, &config, drop_a_group, NULL);
}

/* ---- Nothing at all ------------------------------------------------------------------------- */

static void move_nothing(int rank, tuttiComm_t comm, void *arg)
{
    (void)rank;
    (void)arg;
    static const size_t none[NRANKS];
    CHECK_EQ(tuttiAllGatherV(NULL, NULL, none, NULL, tuttiInt32, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiReduceScatterV(NULL, NULL, none, tuttiInt32, tuttiAvg, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGatherV(NULL, NULL, none, none, tuttiInt32, 2, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiScatterV(NULL, NULL, none, NULL, tuttiInt32, 2, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiAlltoAllV(NULL, none, NULL, NULL, none, none, tuttiInt32, comm, NULL),
             tuttiSuccess);
}

TEST(uneven, calls_whose_counts_are_all_zero_move_nothing)
{
    as_threads(NRANKS, &config, move_nothing, NULL);
}

/* ---- Ranks that disagree -------------------------------------------------------------------- */

/* The odd rank's counts have the same sum. */
static void disagree(int rank, tuttiComm_t comm, void *arg)
{
    const tuttiCollective_t collective = *(const tuttiCollective_t *)arg;
    static const size_t others[NRANKS] = {57, 0, 42, 1};
    const size_t *mine = rank == 2 ? others : counts;
    int in[TOTAL] = {0}, out[TOTAL];
    tuttiResult_t result =
        collective == tuttiCollAllGather
            ? tuttiAllGatherV(in, out, mine, NULL, tuttiInt32, comm, NULL)
        : collective == tuttiCollReduceScatter
            ? tuttiReduceScatterV(in, out, mine, tuttiInt32, tuttiSum, comm, NULL)
        : collective == tuttiCollGather
            ? tuttiGatherV(in, out, mine, NULL, tuttiInt32, ROOT, comm, NULL)
            : tuttiScatterV(in, out, mine, NULL, tuttiInt32, ROOT, comm, NULL);
    /* A rank that took part before the difference showed may learn of it at its next call. */
    for (int again = 0; result == tuttiSuccess && again < 3; again++)
        result = tuttiBarrier(comm, NULL);
    const char *text = tuttiGetLastError(comm);
    CHECK_MESSAGE(result == tuttiInvalidUsage, "%s: rank %d got %s: %s",
                  tuttiCollectiveName(collective), rank, tuttiGetErrorString(result), text);
    CHECK_MESSAGE(strstr(text, tuttiCollectiveName(collective)) &&
                      strstr(text, "the counts that they pass for each rank differ"),
                  "rank %d: %s", rank, text);
}

TEST(uneven, ranks_whose_counts_differ_are_told_so)
{
    tuttiCollective_t collectives[] = {tuttiCollAllGather, tuttiCollReduceScatter, tuttiCollGather,
                                       tuttiCollScatter};
    for (int c = 0; c < 4; c++) as_threads(NRANKS, &config, disagree, &collectives[c]);
}

static void disagree_in_pairs(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    size_t send[NRANKS] = {1, 1, 1, 1}, recv[NRANKS] = {1, 1, 1, 1};
    int in[2 * NRANKS] = {0}, out[2 * NRANKS];
    if (rank == 2) recv[3] = 2;
    tuttiResult_t result = tuttiAlltoAllV(in, send, NULL, out, recv, NULL, tuttiInt32, comm, NULL);
    for (int again = 0; result == tuttiSuccess && again < 3; again++)
        result = tuttiBarrier(comm, NULL);
    CHECK_MESSAGE(result == tuttiInvalidUsage, "rank %d got %s: %s", rank,
                  tuttiGetErrorString(result), tuttiGetLastError(comm));
}

TEST(uneven, an_exchange_in_which_a_rank_expects_another_count_fails)
{
    as_threads(NRANKS, &config, disagree_in_pairs, NULL);
}
