/* Groups of calls on GPU memory that go through memory of the host: what is refused because the
 * calls would wait for one another, or would come in another order than the user means. */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

enum { LONG = 3000 }; /* passes in portions of 4 KiB */

/* ---- Hardware queues ------------------------------------------------------------------------- */

/* A group whose second sum is of the first one's output, and a captured call. */
static void on_one_queue(struct gpu_rank *rank)
{
    static const char mend[] = "set CUDA_DEVICE_MAX_CONNECTIONS to at least 2";
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG), *more = make_ints(rank, 0, LONG);
    check_success(rank, tuttiGroupStart(), "group start");
    check_success(
        rank, tuttiAllReduce(memory, more, LONG, tuttiInt32, tuttiSum, rank->comm, streams.stream),
        "first sum");
    check_success(
        rank, tuttiAllReduce(more, more, LONG, tuttiInt32, tuttiSum, rank->comm, streams.stream),
        "second sum");
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, mend);
    gpu_use(rank->gpu);
    capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    check_error(
        rank, tuttiAllReduce(memory, more, LONG, tuttiInt32, tuttiSum, rank->comm, streams.stream),
        tuttiInvalidUsage, mend);
    CALL(cuGraphExecDestroy, capture_end(streams.cuda));
    check_success(rank, tuttiBarrier(rank->comm, streams.stream), "barrier");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(more);
}

/* A group of a sum of `in` in `out` and a message on streams, either of which may be NULL. */
struct mixed {
    bool message_first, sends;
    tuttiStream_t sums, messages;
    int *in, *out, *message;
    int nsum, nmessage;
};

static tuttiResult_t mixed_group(const struct gpu_rank *rank, const struct mixed *mixed)
{
    const int peer = 1 - rank->rank;
    const size_t n = (size_t)mixed->nmessage;
    check_success(rank, tuttiGroupStart(), "group start");
    for (int i = 0; i < 2; i++)
        if ((i == 0) == mixed->message_first)
            check_success(
                rank,
                mixed->sends
                    ? tuttiSend(mixed->message, n, tuttiInt32, peer, rank->comm, mixed->messages)
                    : tuttiRecv(mixed->message, n, tuttiInt32, peer, rank->comm, mixed->messages),
                "message");
        else
            check_success(rank,
                          tuttiAllReduce(mixed->in, mixed->out, (size_t)mixed->nsum, tuttiInt32,
                                         tuttiSum, rank->comm, mixed->sums),
                          "sum");
    return tuttiGroupEnd();
}

/* A message that uses what a collective of its group writes; also where all of it is captured. */
static void message_of_output(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG), *more = make_ints(rank, 0, LONG);
    struct mixed mixed = {.messages = streams.stream, .in = memory, .out = more, .nsum = LONG};
    mixed.message = more + 1;
    mixed.nmessage = 5;
    for (int i = 0; i < 4; i++) {
        const bool captured = i / 2;
        mixed.sends = i % 2;
        mixed.sums = captured ? streams.stream : NULL;
        gpu_use(rank->gpu);
        if (captured) capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        check_error(rank, mixed_group(rank, &mixed), tuttiInvalidUsage, "put them into two groups");
        if (captured) CALL(cuGraphExecDestroy, capture_end(streams.cuda));
    }
    check_success(rank, tuttiBarrier(rank->comm, NULL), "barrier");
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(more);
}

TEST(staged_errors, a_message_that_uses_what_a_collective_of_its_group_writes_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, message_of_output, NULL);
}

/* A receive that writes the input of a sum of its group. Where the receive may write before the sum
 * has read, the group is refused; elsewhere the sum adds the values from before the group. */
static void message_of_input(struct gpu_rank *rank)
{
    enum { HUGE = 3 << 20 }; /* more than TUTTI_STAGE_BYTES */
    struct streams streams = make_streams(rank);
    int *in = make_ints(rank, 1, HUGE), *out = make_ints(rank, 0, HUGE);
    int *sent = make_ints(rank, 7, LONG), *empty = in + 10;
    struct mixed mixed = {.in = in, .out = out, .nsum = HUGE, .message = in, .nmessage = LONG};
    for (int i = 0; i < 4; i++) { /* without a stream the sum is copied in portions */
        mixed.message_first = i % 2;
        mixed.messages = i / 2 ? streams.stream : NULL;
        check_error(rank, mixed_group(rank, &mixed), tuttiInvalidUsage, "of the group reads");
    }
    mixed.messages = mixed.sums = streams.stream;
    mixed.message_first = false;
    gpu_use(rank->gpu);
    capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    check_error(rank, mixed_group(rank, &mixed), tuttiInvalidUsage, "of the group reads");
    CALL(cuGraphExecDestroy, capture_end(streams.cuda));
    check_success(rank, tuttiGroupStart(), "group start");
    check_success(rank,
                  tuttiSend(sent, LONG, tuttiInt32, 1 - rank->rank, rank->comm, streams.stream),
                  "send");
    check_success(rank, mixed_group(rank, &mixed), "group with a receive");
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, out, 2, HUGE);
    check_ints(rank, in, 7, LONG);
    /* No bytes are in no buffer. */
    mixed = (struct mixed){.in = in, .out = in, .nsum = LONG, .message = empty};
    mixed.sends = rank->rank;
    check_success(rank, mixed_group(rank, &mixed), "group with an empty message");
    destroy_streams(rank, &streams);
    gpu_free(in);
    gpu_free(out);
    gpu_free(sent);
}

TEST(staged_errors, a_receive_that_may_write_what_a_collective_of_its_group_reads_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, message_of_input, NULL);
}

static void on_queues(const char *number, void (*body)(struct gpu_rank *rank))
{
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    char *before = set ? strdup(set) : NULL;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", number, 1);
    on_devices(2, (const int[]){0, 1}, NULL, body, NULL);
    if (before)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", before, 1);
    else
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    free(before);
}

TEST(staged_errors, what_one_hardware_queue_cannot_carry_is_refused)
{
    on_queues("1", on_one_queue);
}

/* A group of sums on two streams and one without a stream, which is copied in portions. */
static void before_two_streams(struct gpu_rank *rank)
{
    enum { MANY = 3 << 20 };
    struct streams streams[] = {make_streams(rank), make_streams(rank)};
    int *large = make_ints(rank, 1, MANY), *small = make_ints(rank, 1, 2);
    for (int at = 0; at < 3; at++) {
        check_success(rank, tuttiGroupStart(), "group start");
        for (int i = 0; i < 3; i++) {
            const int stream = i - (i > at);
            int *memory = i == at ? large : small + stream;
            check_success(rank,
                          tuttiAllReduce(memory, memory, i == at ? MANY : 1, tuttiInt32, tuttiSum,
                                         rank->comm, i == at ? NULL : streams[stream].stream),
                          "sum");
        }
        if (at == 0) /* behind it both streams wait, then one, then none */
            check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "MAX_CONNECTIONS to at least 3");
        else
            check_success(rank, tuttiGroupEnd(), "group");
    }
    for (int i = 0; i < 2; i++) {
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
        destroy_streams(rank, &streams[i]);
    }
    check_ints(rank, large, 4, MANY);
    check_ints(rank, small, 4, 2);
    gpu_free(large);
    gpu_free(small);
}

TEST(staged_errors, a_group_whose_streams_hold_all_hardware_queues_before_a_copy_is_refused)
{
    on_queues("2", before_two_streams);
}
