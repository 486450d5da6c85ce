/* Calls take no memory of the heap once their stream, event or communicator has had as many at
 * once. Counted over all threads. */
#include "allocations.h"

#include <semaphore.h>
#include <stdlib.h>

#include "integration/ranks.h"
#include "shim.h"

enum { NRANKS = 2, NCALLS = 8, COUNT = 100 };

struct part {
    tuttiComm_t comm;
    tuttiStream_t stream;
    tuttiEvent_t begun, done;
    int in[COUNT], out[NCALLS][COUNT];
};

#define WELL(call) CHECK_EQ(call, tuttiSuccess)

static void on_a_stream(struct part *part)
{
    for (int i = 0; i < NCALLS; i++)
        WELL(tuttiAllReduce(part->in, part->out[i], COUNT, tuttiInt32, tuttiSum, part->comm,
                            part->stream));
    WELL(tuttiStreamSynchronize(part->stream));
}

static void without_a_stream(struct part *part)
{
    for (int i = 0; i < NCALLS; i++)
        WELL(tuttiAllReduce(part->in, part->out[i], COUNT, tuttiInt32, tuttiSum, part->comm, NULL));
}

/* Ranks and streams of a group: messages and collectives, in memory of the stack and of streams. */
static void in_small_groups(struct part *part, tuttiStream_t stream)
{
    int rank;
    WELL(tuttiCommUserRank(part->comm, &rank));
    WELL(tuttiGroupStart());
    WELL(tuttiSend(part->in, COUNT, tuttiInt32, !rank, part->comm, stream));
    WELL(tuttiRecv(part->out[0], COUNT, tuttiInt32, !rank, part->comm, stream));
    WELL(tuttiAllReduce(part->in, part->out[1], COUNT, tuttiInt32, tuttiSum, part->comm, stream));
    WELL(tuttiGroupEnd());
    if (stream) WELL(tuttiStreamSynchronize(stream));
}

static void groups(struct part *part)
{
    in_small_groups(part, NULL);
    in_small_groups(part, part->stream);
}

/* As the trainer reduces a bucket of gradients. */
static void buckets(struct part *part)
{
    for (int i = 0; i < NCALLS; i++) {
        WELL(tuttiEventRecord(part->begun, part->stream));
        WELL(tuttiAllReduce(part->out[i], part->out[i], COUNT, tuttiInt32, tuttiSum, part->comm,
                            part->stream));
        WELL(tuttiEventRecord(part->done, part->stream));
        WELL(tuttiEventSynchronize(part->done));
    }
}

static void nothing(void *argument)
{
    (void)argument;
}

static void functions_and_waits(struct part *part)
{
    for (int i = 0; i < NCALLS; i++) {
        WELL(tuttiStreamLaunch(part->stream, nothing, NULL));
        WELL(tuttiEventRecord(part->done, part->stream));
        WELL(tuttiStreamWaitEvent(part->stream, part->done));
    }
    WELL(tuttiStreamSynchronize(part->stream));
}

/* The ranks are here and do nothing else. */
static void meet(struct part *part)
{
    WELL(tuttiStreamSynchronize(part->stream));
    WELL(tuttiBarrier(part->comm, NULL));
}

static void wait_for(void *argument)
{
    sem_t *semaphore = argument;
    while (sem_wait(semaphore)) continue;
}

/* The stream and the events have more at once than they will ever have again. */
static void hold_many(struct part *part)
{
    sem_t gate;
    sem_init(&gate, 0, 0);
    WELL(tuttiStreamLaunch(part->stream, wait_for, &gate));
    for (int i = 0; i < 4 * NCALLS; i++) {
        WELL(tuttiEventRecord(part->begun, part->stream));
        WELL(tuttiAllReduce(part->in, part->out[0], COUNT, tuttiInt32, tuttiSum, part->comm,
                            part->stream));
        WELL(tuttiEventRecord(part->done, part->stream));
        WELL(tuttiStreamWaitEvent(part->stream, part->done));
        WELL(tuttiStreamLaunch(part->stream, nothing, NULL));
    }
    sem_post(&gate);
    meet(part);
    sem_destroy(&gate);
    groups(part);
    without_a_stream(part);
    meet(part);
}

static void count(struct part *part, void (*body)(struct part *part), const char *what)
{
    meet(part);
    const uint64_t before = allocations();
    meet(part);
    for (int i = 0; i < 10; i++) {
        body(part);
        meet(part);
    }
    const uint64_t n = allocations() - before;
    CHECK_MESSAGE(n == 0, "%s: %llu allocations", what, (unsigned long long)n);
    meet(part);
}

static void count_all(int rank, tuttiComm_t comm, void *argument)
{
    static struct part parts[NRANKS];
    struct part *part = &parts[rank];
    (void)argument;
    part->comm = comm;
    WELL(tuttiStreamCreate(&part->stream));
    WELL(tuttiEventCreate(&part->begun));
    WELL(tuttiEventCreate(&part->done));
    hold_many(part);
    count(part, without_a_stream, "calls without a stream");
    count(part, on_a_stream, "calls on a stream");
    count(part, groups, "small groups");
    count(part, buckets, "calls between events");
    count(part, functions_and_waits, "functions, records and waits");
    WELL(tuttiEventDestroy(part->begun));
    WELL(tuttiEventDestroy(part->done));
    WELL(tuttiStreamDestroy(part->stream));
}

TEST(allocations, calls_take_no_memory_of_the_heap_that_calls_before_did_not_take)
{
    const uint64_t before = allocations();
    void *volatile memory = malloc(1); /* volatile: the compiler leaves it in */
    free(memory);
    REQUIRE(allocations() > before); /* they are counted */
    as_threads(NRANKS, NULL, count_all, NULL);
}
