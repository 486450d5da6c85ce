/* A rank without memory for a call that other ranks have begun: all end with an error that says
 * so, however far the rank came, and nobody waits until the deadline. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "allocations.h"
#include "integration/ranks.h"
#include "shim.h"

enum { NRANKS = 3, COUNT = 1000, MOST = 400, MANY = 20 };

/* How the calls of a rank ended. */
struct end {
    tuttiResult_t result;
    char text[1024];
};

struct part {
    int rank;
    tuttiComm_t comm, other; /* two communicators of all ranks */
    tuttiStream_t stream;
    int in[NRANKS * COUNT], out[MANY][NRANKS * COUNT];
    struct end end;
};

struct scene {
    const char *name;
    tuttiResult_t (*run)(struct part *part);
};

/* The calls of a scene, of which rank 0's n-th allocation fails. */
struct attempt {
    const struct scene *scene;
    uint64_t n;
    bool was_refused;
    pthread_barrier_t all;
    struct part parts[NRANKS];
};

static const size_t counts[NRANKS] = {COUNT, 7, COUNT}, places[NRANKS] = {0, COUNT, 2 * COUNT};

static tuttiResult_t all_reduce(struct part *part)
{
    return tuttiAllReduce(part->in, part->out[0], COUNT, tuttiInt32, tuttiSum, part->comm, NULL);
}

static tuttiResult_t with_scratch(struct part *part)
{
    const tuttiResult_t result = tuttiCommSetAlgorithm(part->comm, tuttiCollReduceScatter, "bruck");
    CHECK_EQ(result, tuttiSuccess);
    return tuttiReduceScatter(part->in, part->out[0], COUNT, tuttiInt32, tuttiSum, part->comm,
                              NULL);
}

static tuttiResult_t with_counts(struct part *part)
{
    return tuttiReduceScatterV(part->in, part->out[0], counts, tuttiInt32, tuttiSum, part->comm,
                               NULL);
}

static tuttiResult_t exchange(struct part *part)
{
    static const size_t each[NRANKS] = {COUNT, COUNT, COUNT};
    return tuttiAlltoAllV(part->in, each, places, part->out[0], each, places, tuttiInt32,
                          part->comm, NULL);
}

static tuttiResult_t on_a_stream(struct part *part)
{
    const tuttiResult_t issued = tuttiAllReduce(part->in, part->out[0], COUNT, tuttiInt32, tuttiSum,
                                                part->comm, part->stream);
    const tuttiResult_t ended = tuttiStreamSynchronize(part->stream);
    return issued ? issued : ended;
}

static tuttiResult_t many(struct part *part, tuttiStream_t stream)
{
    tuttiGroupStart();
    for (int i = 0; i < MANY; i++)
        tuttiAllReduce(part->in, part->out[i], COUNT, tuttiInt32, tuttiSum, part->comm, stream);
    tuttiSend(part->in, COUNT, tuttiInt32, (part->rank + 1) % NRANKS, part->other, stream);
    tuttiRecv(part->out[0], COUNT, tuttiInt32, (part->rank + 2) % NRANKS, part->other, stream);
    return tuttiGroupEnd();
}

static tuttiResult_t in_a_large_group(struct part *part)
{
    return many(part, NULL);
}

static tuttiResult_t in_a_large_group_on_a_stream(struct part *part)
{
    const tuttiResult_t issued = many(part, part->stream);
    const tuttiResult_t ended = tuttiStreamSynchronize(part->stream);
    return issued ? issued : ended;
}

/* Rank 0 makes a group of calls on two communicators, the others make one after the other. */
static tuttiResult_t on_two_communicators(struct part *part)
{
    if (part->rank == 0) tuttiGroupStart();
    const tuttiResult_t first =
        tuttiReduceScatter(part->in, part->out[0], COUNT, tuttiInt32, tuttiSum, part->other, NULL);
    if (part->rank) {
        const tuttiResult_t second = all_reduce(part);
        return first ? first : second;
    }
    all_reduce(part);
    return tuttiGroupEnd();
}

static tuttiResult_t split(struct part *part)
{
    tuttiComm_t made = NULL;
    const tuttiResult_t result = tuttiCommSplit(part->comm, 0, part->rank, &made, NULL);
    if (!result) CHECK_EQ(tuttiCommDestroy(made), tuttiSuccess);
    return result;
}

static tuttiResult_t split_in_a_group(struct part *part)
{
    tuttiComm_t made[2] = {NULL, NULL};
    tuttiGroupStart();
    tuttiCommSplit(part->comm, 0, part->rank, &made[0], NULL);
    tuttiCommSplit(part->other, 0, part->rank, &made[1], NULL);
    const tuttiResult_t result = tuttiGroupEnd();
    for (int i = 0; !result && i < 2; i++) CHECK_EQ(tuttiCommDestroy(made[i]), tuttiSuccess);
    return result;
}

static void run_part(int rank, tuttiComm_t comm, void *argument)
{
    struct attempt *attempt = argument;
    struct part *part = &attempt->parts[rank];
    part->rank = rank;
    part->comm = comm;
    CHECK_EQ(tuttiStreamCreate(&part->stream), tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(comm, 0, rank, &part->other, NULL), tuttiSuccess);
    pthread_barrier_wait(&attempt->all); /* the split has ended */
    if (rank == 0) refuse_allocation(attempt->n);
    part->end.result = attempt->scene->run(part);
    snprintf(part->end.text, sizeof part->end.text, "%s", tuttiGetLastError(NULL));
    if (rank == 0) attempt->was_refused = !allocation_is_to_come();
    refuse_allocation(0);
    pthread_barrier_wait(&attempt->all); /* a rank that left would be an error too */
    CHECK_EQ(tuttiCommDestroy(part->other), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(part->stream), tuttiSuccess);
}

/* The communicators do without some memory. */
static void check_ends(const struct attempt *attempt)
{
    const bool is_well = !attempt->parts[0].end.result;
    CHECK(is_well || attempt->was_refused);
    for (int r = 0; r < NRANKS; r++) {
        const struct end *end = &attempt->parts[r].end;
        const bool is_told = end->result == tuttiSystemError && strstr(end->text, "memory") &&
                             (!r || strstr(end->text, "rank 0"));
        CHECK_MESSAGE(is_well ? !end->result : is_told, "%s, allocation %llu: rank %d: %s: %s",
                      attempt->scene->name, (unsigned long long)attempt->n, r,
                      tuttiGetErrorString(end->result), end->text);
    }
}

static void refuse_each(const char *name, tuttiResult_t (*run)(struct part *part))
{
    static const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000, .commName = "without memory");
    static struct attempt attempt;
    const struct scene scene = {name, run};
    attempt.scene = &scene;
    pthread_barrier_init(&attempt.all, NULL, NRANKS);
    attempt.was_refused = true;
    for (attempt.n = 1; attempt.was_refused && attempt.n < MOST && !tt_test_failed(); attempt.n++) {
        as_threads(NRANKS, &config, run_part, &attempt);
        check_ends(&attempt);
    }
    pthread_barrier_destroy(&attempt.all);
    printf("%s: %llu allocations\n", name, (unsigned long long)attempt.n - 2);
    CHECK(attempt.n > 2 && attempt.n < MOST);
}

TEST(refused_allocations, of_a_first_call_fail_all_ranks)
{
    refuse_each("all-reduce", all_reduce);
    refuse_each("reduce-scatter with scratch memory", with_scratch);
    refuse_each("reduce-scatter with counts", with_counts);
}

TEST(refused_allocations, of_an_exchange_fail_all_ranks)
{
    refuse_each("exchange", exchange);
}

TEST(refused_allocations, of_a_call_on_a_stream_fail_all_ranks)
{
    refuse_each("call on a stream", on_a_stream);
}

TEST(refused_allocations, of_a_group_fail_all_ranks)
{
    refuse_each("large group", in_a_large_group);
    refuse_each("large group on a stream", in_a_large_group_on_a_stream);
}

TEST(refused_allocations, fail_all_communicators_of_the_group)
{
    refuse_each("two communicators", on_two_communicators);
}

TEST(refused_allocations, of_a_split_fail_all_ranks)
{
    refuse_each("split", split);
    refuse_each("splits of a group", split_in_a_group);
}
