/* Ranks that disagree, and a rank that does not come: everyone gets an error that says what and
 * who. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 3, ODD = 1, COUNT = 1000, MORE = 100000 };

/* What the odd rank calls instead of an all-reduce of COUNT floats by sum, and which words must be
 * in the errors. */
struct disagreement {
    const char *what;
    tuttiCollective_t kind; /* of all ranks but the odd one */
    tuttiResult_t (*odd)(const float *in, float *out, tuttiComm_t comm);
    const char *both[2];
    const char *algorithm; /* of all ranks but the odd one; NULL: as chosen */
};

static tuttiResult_t odd_kind(const float *in, float *out, tuttiComm_t comm)
{
    return tuttiBroadcast(in, out, COUNT, tuttiFloat32, 0, comm, NULL);
}
static tuttiResult_t odd_type(const float *in, float *out, tuttiComm_t comm)
{
    return tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiSum, comm, NULL);
}
static tuttiResult_t odd_op(const float *in, float *out, tuttiComm_t comm)
{
    return tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiMax, comm, NULL);
}
static tuttiResult_t odd_count(const float *in, float *out, tuttiComm_t comm)
{
    return tuttiAllReduce(in, out, MORE, tuttiFloat32, tuttiSum, comm, NULL);
}
static tuttiResult_t odd_root(const float *in, float *out, tuttiComm_t comm)
{
    return tuttiBroadcast(in, out, COUNT, tuttiFloat32, 2, comm, NULL);
}

static tuttiResult_t odd_algorithm(const float *in, float *out, tuttiComm_t comm)
{
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "tree"), tuttiSuccess);
    return tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
}

static const struct disagreement disagreements[] = {
    {"kind", tuttiCollAllReduce, odd_kind, {"all_reduce", "broadcast"}, NULL},
    {"type", tuttiCollAllReduce, odd_type, {"float", "int32"}, NULL},
    {"operation", tuttiCollAllReduce, odd_op, {"sum", "max"}, NULL},
    {"count", tuttiCollAllReduce, odd_count, {"1000", "100000"}, NULL},
    {"root", tuttiCollBroadcast, odd_root, {"root 0", "root 2"}, NULL},
    {"algorithm", tuttiCollAllReduce, odd_algorithm, {"algorithm ring", "algorithm tree"}, "ring"},
};

static void disagree(int rank, tuttiComm_t comm, void *arg)
{
    const struct disagreement *d = arg;
    float *in = calloc(MORE, sizeof *in), *out = calloc(MORE, sizeof *out);
    if (!in || !out) abort();
    tuttiResult_t result;
    if (rank == ODD)
        result = d->odd(in, out, comm);
    else if (d->kind == tuttiCollBroadcast)
        result = tuttiBroadcast(in, out, COUNT, tuttiFloat32, 0, comm, NULL);
    else
        result = tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
    /* A rank that took part before the difference showed may learn of it at its next call. */
    for (int again = 0; result == tuttiSuccess && again < 3; again++)
        result = tuttiBarrier(comm, NULL);
    const char *text = tuttiGetLastError(comm);
    CHECK_MESSAGE(result == tuttiInvalidUsage, "%s: rank %d got %s: %s", d->what, rank,
                  tuttiGetErrorString(result), text);
    CHECK_MESSAGE(strstr(text, d->both[0]) && strstr(text, d->both[1]),
                  "%s: rank %d's error shows not both %s and %s: %s", d->what, rank, d->both[0],
                  d->both[1], text);
    tuttiResult_t state = tuttiSuccess;
    CHECK_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    CHECK_EQ(state, tuttiInvalidUsage);
    free(in);
    free(out);
}

TEST(mismatch, ranks_that_disagree_all_see_both_sides)
{
    tuttiConfig_t config = CONFIG_WITHIN(10000, 20000);
    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++) {
        struct disagreement d = disagreements[i];
        config.algorithm = d.algorithm;
        as_threads(NRANKS, &config, disagree, &d);
    }
}

/* A call in which each rank only sends, since each has another root. */
struct senders {
    const char *name;
    tuttiCollective_t kind;
    tuttiResult_t (*call)(const float *in, float *out, size_t count, int rank, tuttiComm_t comm);
};

static tuttiResult_t broadcast_own(const float *in, float *out, size_t count, int rank,
                                   tuttiComm_t comm)
{
    return tuttiBroadcast(in, out, count, tuttiFloat32, rank, comm, NULL);
}
static tuttiResult_t scatter_own(const float *in, float *out, size_t count, int rank,
                                 tuttiComm_t comm)
{
    return tuttiScatter(in, out, count, tuttiFloat32, rank, comm, NULL);
}
static tuttiResult_t reduce_to_next(const float *in, float *out, size_t count, int rank,
                                    tuttiComm_t comm)
{
    return tuttiReduce(in, out, count, tuttiFloat32, tuttiSum, (rank + 1) % NRANKS, comm, NULL);
}
static tuttiResult_t gather_to_next(const float *in, float *out, size_t count, int rank,
                                    tuttiComm_t comm)
{
    return tuttiGather(in, out, count, tuttiFloat32, (rank + 1) % NRANKS, comm, NULL);
}

static const struct senders all_send[] = {{"broadcast", tuttiCollBroadcast, broadcast_own},
                                          {"scatter", tuttiCollScatter, scatter_own},
                                          {"reduce", tuttiCollReduce, reduce_to_next},
                                          {"gather", tuttiCollGather, gather_to_next}};
static const char *const ways_to_send[] = {"meet", "direct", "binomial"};

struct sending {
    const struct senders *senders;
    const char *algorithm;
};

/* The ranks agree on the calls around it. */
static void only_send(int rank, tuttiComm_t comm, void *arg)
{
    const struct sending *sending = arg;
    const struct senders *senders = sending->senders;
    float in[3 * NRANKS] = {1}, out[3 * NRANKS];
    char call[64];
    CHECK_EQ(tuttiCommSetAlgorithm(comm, senders->kind, sending->algorithm), tuttiSuccess);
    /* Others may disagree while this rank is still in the first call. */
    tuttiResult_t result = tuttiAllReduce(in, out, 3, tuttiFloat32, tuttiSum, comm, NULL);
    if (result == tuttiSuccess) result = senders->call(in, out, 3, rank, comm);
    for (int again = 0; result == tuttiSuccess && again < 2; again++)
        result = tuttiAllReduce(in, out, 3, tuttiFloat32, tuttiSum, comm, NULL);
    const char *text = tuttiGetLastError(comm);
    snprintf(call, sizeof call, "%s number 2 (count 3, float", senders->name);
    CHECK_MESSAGE(result == tuttiInvalidUsage && strstr(text, call) && strstr(text, "root"),
                  "%s with algorithm %s: rank %d got %s: %s", senders->name, sending->algorithm,
                  rank, tuttiGetErrorString(result), text);
}

TEST(mismatch, ranks_that_only_send_learn_by_the_next_call)
{
    tuttiConfig_t config = CONFIG_WITHIN(10000, 20000);
    for (size_t i = 0; i < sizeof all_send / sizeof *all_send; i++)
        for (size_t a = 0; a < sizeof ways_to_send / sizeof *ways_to_send; a++) {
            struct sending sending = {&all_send[i], ways_to_send[a]};
            as_threads(NRANKS, &config, only_send, &sending);
        }
}

/* The peer's call differs, so nothing of its message may be in this rank's buffer. */
static void keep_buffers(int rank, tuttiComm_t comm, void *arg)
{
    enum { LONGER = 1 << 18 };
    const size_t nbytes = LONGER * sizeof(float);
    const bool windows = *(const bool *)arg;
    void *in = NULL, *out = NULL;
    if (tuttiMemAlloc(&in, nbytes) || tuttiMemAlloc(&out, nbytes)) abort();
    float *own = windows ? in : malloc(nbytes);
    if (!own) abort();
    memset(own, 0x22, nbytes);
    memset(out, 0x11, nbytes);
    const tuttiResult_t result =
        tuttiAllReduce(own, out, LONGER, tuttiFloat32, rank ? tuttiSum : tuttiMax, comm, NULL);
    CHECK_MESSAGE(result == tuttiInvalidUsage, "rank %d got %s: %s", rank,
                  tuttiGetErrorString(result), tuttiGetLastError(comm));
    size_t nchanged = 0;
    for (size_t i = 0; i < nbytes; i++) nchanged += ((const char *)out)[i] != 0x11;
    CHECK_EQ(nchanged, 0);
    if (!windows) free(own);
    CHECK_EQ(tuttiMemFree(in), tuttiSuccess);
    CHECK_EQ(tuttiMemFree(out), tuttiSuccess);
}

TEST(mismatch, leaves_the_receive_buffers_untouched)
{
    static const char *const algorithms[] = {"two_shot", "ring", "recursive_halving"};
    tuttiConfig_t config = CONFIG_WITHIN(10000, 20000);
    for (int i = 0; i < 3; i++)
        for (int windows = 0; windows < 2; windows++) {
            bool arg = windows;
            config.algorithm = algorithms[i];
            as_threads(2, &config, keep_buffers, &arg);
        }
}

struct absence {
    pthread_barrier_t over;
};

static void stay_away(int rank, tuttiComm_t comm, void *arg)
{
    struct absence *absence = arg;
    if (rank != 2) {
        int data = rank;
        const int64_t start = now_ms();
        const tuttiResult_t result =
            tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL);
        const char *text = tuttiGetLastError(comm);
        CHECK_MESSAGE(result == tuttiTimeout, "rank %d got %s: %s", rank,
                      tuttiGetErrorString(result), text);
        CHECK_MESSAGE(strstr(text, "rank 2") && strstr(text, "all_reduce"),
                      "the error names not rank 2 and all_reduce: %s", text);
        CHECK_MESSAGE(now_ms() - start < (SANITIZED ? 10000 : 3000), "took %lld ms",
                      (long long)(now_ms() - start));
        int more = 0;
        CHECK_EQ(tuttiAllReduce(&more, &more, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiTimeout);
    }
    pthread_barrier_wait(&absence->over);
}

TEST(mismatch, a_missing_rank_is_named_at_the_deadline)
{
    const tuttiConfig_t config = CONFIG_WITHIN(300, 20000);
    struct absence absence;
    pthread_barrier_init(&absence.over, NULL, NRANKS);
    as_threads(NRANKS, &config, stay_away, &absence);
    pthread_barrier_destroy(&absence.over);
}

static void *join_late(void *arg)
{
    const tuttiConfig_t config = CONFIG_WITHIN(1000, 700);
    const struct {
        tuttiUniqueId id;
        int rank;
    } *who = arg;
    tuttiComm_t comm = NULL;
    const tuttiResult_t result = tuttiCommInitRankConfig(&comm, 3, who->id, who->rank, &config);
    CHECK_MESSAGE(result == tuttiTimeout, "rank %d got %s: %s", who->rank,
                  tuttiGetErrorString(result), tuttiGetLastError(NULL));
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "1"), "the absent rank 1 is not named: %s",
                  tuttiGetLastError(NULL));
    CHECK(comm == NULL);
    return NULL;
}

TEST(mismatch, init_names_the_ranks_that_did_not_come)
{
    struct {
        tuttiUniqueId id;
        int rank;
    } who[2] = {{.rank = 0}, {.rank = 2}};
    pthread_t threads[2];
    REQUIRE(tuttiGetUniqueId(&who[0].id) == tuttiSuccess);
    who[1].id = who[0].id;
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, join_late, &who[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}
