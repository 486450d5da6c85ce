/* A thread that is cancelled in its first call on the memory of a GPU ends after the call, so that
 * the communicator can be aborted; and an abort drops the calls that a group holds. */
#include <pthread.h>

#include "driven.h"
#include "shim.h"
#include "threads.h"

enum { HALF = DRIVEN_N / 2 };

typedef tuttiResult_t (*make_call)(const struct driven *d, int rank);

static tuttiResult_t reduce(const struct driven *d, int rank)
{
    return tuttiAllReduce(d->memory[rank], d->memory[rank], DRIVEN_N, tuttiInt32, tuttiSum,
                          d->comms[rank], d->streams[rank]);
}

static tuttiResult_t reduce_in_group(const struct driven *d, int rank)
{
    tuttiResult_t result = tuttiGroupStart();
    if (result == tuttiSuccess) result = reduce(d, rank);
    const tuttiResult_t end = tuttiGroupEnd();
    return result != tuttiSuccess ? result : end;
}

static tuttiResult_t send_or_receive(const struct driven *d, int rank)
{
    if (rank == 0)
        return tuttiSend(d->memory[0], DRIVEN_N, tuttiInt32, 1, d->comms[0], d->streams[0]);
    return tuttiRecv(d->memory[1], DRIVEN_N, tuttiInt32, 0, d->comms[1], d->streams[1]);
}

static tuttiResult_t exchange(const struct driven *d, int rank)
{
    static const size_t counts[] = {HALF / 2, HALF / 2}, displs[] = {0, HALF / 2};
    return tuttiAlltoAllV(d->memory[rank], counts, displs, d->memory[rank] + HALF, counts, displs,
                          tuttiInt32, d->comms[rank], d->streams[rank]);
}

struct victim {
    const struct driven *d;
    make_call call;
    tuttiResult_t result;
};

static void *call_when_cancelled(void *argument)
{
    struct victim *victim = argument;
    gpu_use(0);
    pthread_cancel(pthread_self());
    victim->result = victim->call(victim->d, 0);
    pthread_testcancel();
    return NULL;
}

/* The aborts of driven_finish hang where the thread ended inside the call. */
static void cancel_in(make_call call)
{
    struct driven d;
    pthread_t thread;
    void *ended = NULL;
    if (!driven_begin(&d, 2, 2)) return;
    struct victim victim = {&d, call, tuttiNumResults};
    REQUIRE(pthread_create(&thread, NULL, call_when_cancelled, &victim) == 0);
    gpu_use(1);
    CHECK_EQ(call(&d, 1), tuttiSuccess);
    pthread_join(thread, &ended);
    CHECK(ended == PTHREAD_CANCELED);
    CHECK_EQ(victim.result, tuttiSuccess);
    driven_finish(&d);
}

TEST(device_cancel, waits_for_a_collective)
{
    cancel_in(reduce);
}

TEST(device_cancel, waits_for_a_group)
{
    cancel_in(reduce_in_group);
}

TEST(device_cancel, waits_for_a_message)
{
    cancel_in(send_or_receive);
}

TEST(device_cancel, waits_for_an_all_to_all_with_counts)
{
    cancel_in(exchange);
}

static void *abort_first(void *argument)
{
    const struct driven *d = argument;
    CHECK_EQ(tuttiCommAbort(d->comms[0]), tuttiSuccess);
    return NULL;
}

/* Gives the threads that are left. */
static int abort_what_a_group_holds(void)
{
    struct driven d;
    pthread_t thread;
    if (!driven_begin(&d, 1, 1)) return -1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(reduce(&d, 0), tuttiSuccess);
    if (pthread_create(&thread, NULL, abort_first, &d) != 0) return -1;
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    d.comms[0] = NULL;
    driven_finish(&d);
    return count_threads();
}

TEST(device_cancel, an_abort_drops_what_a_group_holds)
{
    const int first = abort_what_a_group_holds();
    REQUIRE(first > 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(abort_what_a_group_holds(), first);
}
