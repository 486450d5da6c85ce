/* Calls that a clumsy or hostile user makes and that the other tests do not: algorithms that differ
 * between ranks, counts whose sums overflow, blocks and displacements that make no sense. Each call
 * gets an error that names it, nothing hangs, and where only arguments were wrong the communicator
 * goes on.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 4, COUNT = 64 };

static const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000);

/* ---- Algorithms that differ ----------------------------------------------------------------- */

struct forced {
    tuttiCollective_t collective;
    const char *first, *others; /* of rank 0, of all others */
    size_t count;
};

static tuttiResult_t call(const struct forced *forced, const int *in, int *out, tuttiComm_t comm)
{
    const size_t n = forced->count;
    switch (forced->collective) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, n, tuttiInt32, tuttiSum, comm, NULL);
    case tuttiCollBroadcast:
        return tuttiBroadcast(in, out, n, tuttiInt32, 1, comm, NULL);
    case tuttiCollReduce:
        return tuttiReduce(in, out, n, tuttiInt32, tuttiSum, 1, comm, NULL);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, n, tuttiInt32, comm, NULL);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, n, tuttiInt32, tuttiSum, comm, NULL);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, n, tuttiInt32, comm, NULL);
    case tuttiCollGather:
        return tuttiGather(in, out, n, tuttiInt32, 1, comm, NULL);
    case tuttiCollScatter:
        return tuttiScatter(in, out, n, tuttiInt32, 1, comm, NULL);
    default:
        return tuttiBarrier(comm, NULL);
    }
}

static void call_differently(int rank, tuttiComm_t comm, void *arg)
{
    const struct forced *forced = arg;
    const size_t nbytes = NRANKS * (forced->count + 1) * sizeof(int);
    int *in = calloc(1, nbytes), *out = calloc(1, nbytes);
    if (!in || !out) abort();
    CHECK_EQ(tuttiCommSetAlgorithm(comm, forced->collective, rank ? forced->others : forced->first),
             tuttiSuccess);
    tuttiResult_t result = call(forced, in, out, comm);
    /* A rank that took part before the difference showed may learn of it at its next call. */
    for (int again = 0; result == tuttiSuccess && again < 3; again++)
        result = tuttiBarrier(comm, NULL);
    const char *text = tuttiGetLastError(comm);
    /* Rank 0 may have done its part, and then it disagrees by its next call. */
    const bool both = strstr(text, forced->first) && strstr(text, forced->others);
    CHECK_MESSAGE(result == tuttiInvalidUsage && (both || strstr(text, "called barrier number 2")),
                  "%s of %zu: rank 0 by %s, others by %s: rank %d got %s: %s",
                  tuttiCollectiveName(forced->collective), forced->count, forced->first,
                  forced->others, rank, tuttiGetErrorString(result), text);
    /* Nobody reads or writes for seconds: a rank that says so has waited for its deadline. */
    CHECK_MESSAGE(!strstr(text, "may still do so"), "rank %d waited for nobody: %s", rank, text);
    free(in); /* no rank reads them any more */
    free(out);
}

static void differ(tuttiCollective_t collective, const char *first, const char *others)
{
    const size_t most = collective == tuttiCollBarrier ? 1 : 100000; /* a barrier has no count */
    for (size_t count = 1; count <= most; count *= 300) {
        struct forced forced = {collective, first, others, count};
        as_threads(NRANKS, &config, call_differently, &forced);
    }
}

static bool fits(tuttiCollective_t collective, const char *name)
{
    return tuttiAlgorithmFits(collective, name, NRANKS, NULL) && !strchr(name, '/');
}

TEST(hostile, ranks_with_different_algorithms_are_told_both)
{
    for (int c = 0; c < tuttiNumCollectives; c++) {
        const tuttiCollective_t collective = (tuttiCollective_t)c;
        const char *name, *before = NULL;
        for (int i = 0; (name = tuttiAlgorithmName(collective, i)) != NULL; i++) {
            if (!fits(collective, name)) continue;
            if (before) differ(collective, before, name);
            before = name;
        }
    }
}

/* ---- Arguments that make no sense ----------------------------------------------------------- */

enum { BIG = 1 << 16 };

static void refuse(const char *what, tuttiResult_t result, const char *function)
{
    const char *text = tuttiGetLastError(NULL);
    const size_t length = strlen(function);
    CHECK_MESSAGE(result == tuttiInvalidArgument && !strncmp(text, function, length) &&
                      text[length] == ':',
                  "%s: %s gave %s: %s", what, function, tuttiGetErrorString(result), text);
}

/* Counts and displacements of which one call after the other is refused. */
static const struct nonsense {
    const char *what;
    size_t counts[NRANKS], displs[NRANKS];
} nonsenses[] = {
    {"one huge count", {1, SIZE_MAX, 1, 1}, {0, 1, 2, 3}},
    {"counts that sum to 0 when they overflow", {SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1}, {0, 0, 0, 0}},
    {"a count whose bytes overflow", {0, 0, SIZE_MAX / 4 + 1, 0}, {0, 0, 0, 0}},
    {"a huge displacement", {1, 1, 1, 1}, {0, 1, SIZE_MAX, 3}},
    {"a displacement whose bytes overflow", {1, 1, 1, 1}, {0, 1, SIZE_MAX / 4 + 1, 3}},
};

static void pass_nonsense(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    static int in[NRANKS][BIG], out[NRANKS][BIG];
    static const size_t good[NRANKS] = {1, 1, 1, 1};
    int *const i = in[rank], *const o = out[rank];
    for (size_t k = 0; k < sizeof nonsenses / sizeof *nonsenses; k++) {
        const struct nonsense *n = &nonsenses[k];
        const bool in_counts = memcmp(n->counts, good, sizeof good) != 0;
        refuse(n->what, tuttiAllGatherV(i, o, n->counts, n->displs, tuttiInt32, comm, NULL),
               "tuttiAllGatherV");
        refuse(n->what,
               tuttiAlltoAllV(i, good, NULL, o, n->counts, n->displs, tuttiInt32, comm, NULL),
               "tuttiAlltoAllV");
        refuse(n->what,
               tuttiAlltoAllV(i, n->counts, n->displs, o, good, NULL, tuttiInt32, comm, NULL),
               "tuttiAlltoAllV");
        if (in_counts)
            refuse(n->what, tuttiReduceScatterV(i, o, n->counts, tuttiInt32, tuttiSum, comm, NULL),
                   "tuttiReduceScatterV");
        if (!in_counts && rank != 1) continue; /* displacements are the root's affair */
        refuse(n->what, tuttiGatherV(i, o, n->counts, n->displs, tuttiInt32, 1, comm, NULL),
               "tuttiGatherV");
        refuse(n->what, tuttiScatterV(i, o, n->counts, n->displs, tuttiInt32, 1, comm, NULL),
               "tuttiScatterV");
    }
    refuse("type", tuttiAllGatherV(i, o, good, NULL, (tuttiDataType_t)99, comm, NULL),
           "tuttiAllGatherV");
    refuse("type", tuttiAlltoAllV(i, good, NULL, o, good, NULL, (tuttiDataType_t)-1, comm, NULL),
           "tuttiAlltoAllV");
    refuse("operation", tuttiReduceScatterV(i, o, good, tuttiInt32, (tuttiRedOp_t)9999, comm, NULL),
           "tuttiReduceScatterV");
    const int roots[] = {-1, NRANKS, INT32_MIN, INT32_MAX};
    for (int r = 0; r < 4; r++) {
        refuse("root", tuttiGatherV(i, o, good, NULL, tuttiInt32, roots[r], comm, NULL),
               "tuttiGatherV");
        refuse("root", tuttiScatterV(i, o, good, NULL, tuttiInt32, roots[r], comm, NULL),
               "tuttiScatterV");
    }
    refuse("send", tuttiAlltoAllV(NULL, good, NULL, o, good, NULL, tuttiInt32, comm, NULL),
           "tuttiAlltoAllV");
    refuse("counts", tuttiAlltoAllV(i, NULL, NULL, o, good, NULL, tuttiInt32, comm, NULL),
           "tuttiAlltoAllV");
    refuse("counts", tuttiAlltoAllV(i, good, NULL, o, NULL, NULL, tuttiInt32, comm, NULL),
           "tuttiAlltoAllV");
    refuse("in place", tuttiAlltoAllV(i, good, NULL, i, good, NULL, tuttiInt32, comm, NULL),
           "tuttiAlltoAllV");
    refuse("in place elsewhere",
           tuttiAllGatherV(o + (rank + 1) % NRANKS, o, good, NULL, tuttiInt32, comm, NULL),
           "tuttiAllGatherV");
    CHECK_EQ(tuttiAllGatherV(i, o, good, NULL, tuttiInt32, comm, NULL), tuttiSuccess);
}

TEST(hostile, counts_and_displacements_that_overflow_are_refused_and_nothing_is_lost)
{
    as_threads(NRANKS, &config, pass_nonsense, NULL);
}
