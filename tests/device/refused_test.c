/* A rank without memory of the host for a call on its GPU that the other rank has begun: both get
 * an error that says so, however far the rank came, and nobody waits until the deadline. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../allocations.h"
#include "graphs.h"
#include "shim.h"

enum { NRANKS = 2, COUNT = 500, MANY = 6, MOST = 200 };

/* What a rank does once, with its first calls. */
struct part {
    const struct gpu_rank *rank;
    struct both stream;
    float *in, *out;
};

typedef tuttiResult_t (*scene)(const struct part *part);

/* A scene of which rank 0's n-th allocation fails. */
struct attempt {
    const char *name;
    scene run;
    uint64_t n;
    bool was_refused;
    pthread_barrier_t all;
    tuttiResult_t results[NRANKS];
    char texts[NRANKS][1024];
};

static tuttiResult_t all_reduce(const struct part *part, tuttiStream_t stream)
{
    return tuttiAllReduce(part->in, part->out, COUNT, tuttiFloat32, tuttiSum, part->rank->comm,
                          stream);
}

static tuttiResult_t synchronize(const struct part *part, tuttiResult_t issued)
{
    const tuttiResult_t ended = tuttiStreamSynchronize(part->stream.tutti);
    return issued ? issued : ended;
}

static tuttiResult_t without_a_stream(const struct part *part)
{
    return all_reduce(part, NULL);
}

static tuttiResult_t on_a_stream(const struct part *part)
{
    return synchronize(part, all_reduce(part, part->stream.tutti));
}

static tuttiResult_t with_counts(const struct part *part)
{
    static const size_t counts[NRANKS] = {COUNT, 3};
    return tuttiReduceScatterV(part->in, part->out, counts, tuttiFloat32, tuttiSum,
                               part->rank->comm, NULL);
}

static tuttiResult_t group(const struct part *part, tuttiStream_t stream)
{
    tuttiGroupStart();
    for (int i = 0; i < MANY; i++) {
        tuttiSend(part->in, COUNT, tuttiFloat32, !part->rank->rank, part->rank->comm, stream);
        tuttiRecv(part->out + i * COUNT, COUNT, tuttiFloat32, !part->rank->rank, part->rank->comm,
                  stream);
    }
    return tuttiGroupEnd();
}

static tuttiResult_t in_a_group(const struct part *part)
{
    return group(part, NULL);
}

static tuttiResult_t in_a_group_on_a_stream(const struct part *part)
{
    return synchronize(part, group(part, part->stream.tutti));
}

/* The other rank has captured its calls without an error. */
static tuttiResult_t in_a_capture(const struct part *part)
{
    const CUstream stream = part->stream.cuda;
    struct attempt *attempt = part->rank->arg;
    tuttiResult_t failure = tuttiSuccess;
    capture_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    tuttiResult_t result = all_reduce(part, part->stream.tutti);
    if (!result) result = group(part, part->stream.tutti);
    const CUgraph graph = capture_stop(stream);
    CALL(cuGraphDestroy, graph);
    pthread_barrier_wait(&attempt->all);
    if (!result) CHECK_EQ(tuttiCommGetAsyncError(part->rank->comm, &failure), tuttiSuccess);
    return result ? result : failure;
}

static void run_part(struct gpu_rank *rank)
{
    struct attempt *attempt = rank->arg;
    struct part part = {.rank = rank};
    const size_t nbytes = NRANKS * MANY * COUNT * sizeof(float);
    streams_create(rank, &part.stream, 1);
    part.in = (float *)gpu_memory(rank->gpu, nbytes);
    part.out = (float *)gpu_memory(rank->gpu, nbytes);
    pthread_barrier_wait(&attempt->all);
    if (rank->rank == 0) refuse_allocation(attempt->n);
    attempt->results[rank->rank] = attempt->run(&part);
    snprintf(attempt->texts[rank->rank], sizeof attempt->texts[0], "%s",
             tuttiGetLastError(rank->comm));
    if (rank->rank == 0) attempt->was_refused = !allocation_is_to_come();
    refuse_allocation(0);
    pthread_barrier_wait(&attempt->all); /* a rank that left would be an error too */
    CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    rank->comm = NULL;
    streams_destroy(rank, &part.stream, 1);
    gpu_free(part.in);
    gpu_free(part.out);
}

/* The library does without some memory. */
static void check_ends(const struct attempt *attempt)
{
    const bool is_well = !attempt->results[0];
    CHECK(is_well || attempt->was_refused);
    for (int r = 0; r < NRANKS; r++) {
        const bool is_told = attempt->results[r] == tuttiSystemError &&
                             strstr(attempt->texts[r], "memory") &&
                             strstr(attempt->texts[r], "rank 0");
        CHECK_MESSAGE(is_well ? !attempt->results[r] : is_told,
                      "%s, allocation %llu: rank %d: %s: %s", attempt->name,
                      (unsigned long long)attempt->n, r, tuttiGetErrorString(attempt->results[r]),
                      attempt->texts[r]);
    }
}

static void refuse_each(const char *name, scene run)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    struct attempt attempt = {.name = name, .run = run, .was_refused = true};
    config.timeoutMs = 20000;
    pthread_barrier_init(&attempt.all, NULL, NRANKS);
    for (attempt.n = 1; attempt.was_refused && attempt.n < MOST && !tt_test_failed(); attempt.n++) {
        on_gpus(NRANKS, NRANKS, &config, run_part, &attempt);
        check_ends(&attempt);
    }
    pthread_barrier_destroy(&attempt.all);
    printf("%s: %llu allocations\n", name, (unsigned long long)attempt.n - 2);
    CHECK(attempt.n > 2 && attempt.n < MOST);
}

TEST(refused, allocations_of_a_collective_fail_all_ranks)
{
    refuse_each("all-reduce without a stream", without_a_stream);
    refuse_each("all-reduce on a stream", on_a_stream);
    refuse_each("reduce-scatter with counts", with_counts);
}

TEST(refused, allocations_of_a_group_fail_all_ranks)
{
    refuse_each("group without a stream", in_a_group);
    refuse_each("group on a stream", in_a_group_on_a_stream);
}

TEST(refused, allocations_of_a_capture_fail_all_ranks)
{
    refuse_each("capture", in_a_capture);
}

/* The GPU can be used, so the error does not say otherwise. */
static void init_without_memory(uint64_t n, bool *was_refused)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    tuttiUniqueId id;
    config.device = 0;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    refuse_allocation(n);
    const tuttiResult_t result = tuttiCommInitRankConfig(&comm, 1, id, 0, &config);
    *was_refused = !allocation_is_to_come();
    refuse_allocation(0);
    const char *text = tuttiGetLastError(NULL);
    CHECK_MESSAGE(!result || (strstr(text, "memory") && !strstr(text, "cannot be used")),
                  "allocation %llu: %s: %s", (unsigned long long)n, tuttiGetErrorString(result),
                  text);
    if (result)
        CHECK_EQ(tuttiDropUniqueId(&id), tuttiSuccess);
    else
        CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(refused, allocations_of_an_init_are_the_cause_that_it_names)
{
    bool was_refused = true;
    uint64_t n = 0;
    while (was_refused && n < MOST && !tt_test_failed()) init_without_memory(++n, &was_refused);
    printf("init: %llu allocations\n", (unsigned long long)n - 1);
    CHECK(n > 1 && n < MOST);
}
