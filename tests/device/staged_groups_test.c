/* Groups of calls on GPU memory that go through memory of the host: calls that use what others of
 * the group write, and what is refused because the calls would wait for one another, or would come
 * in another order than the user means. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driven.h"
#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

enum { LONG = 3000 }; /* passes in portions of 4 KiB */

/* ---- Hardware queues ------------------------------------------------------------------------- */

/* A captured call. */
static void on_one_queue(struct gpu_rank *rank)
{
    static const char mend[] = "set CUDA_DEVICE_MAX_CONNECTIONS to at least 2";
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG), *more = make_ints(rank, 0, LONG);
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

/* Sets the process's hardware queues; NULL: as before. */
static void set_queues(const char *number)
{
    static char *before;
    static bool was_set;
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (number) {
        was_set = set;
        before = set ? strdup(set) : NULL;
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", number, 1);
        return;
    }
    if (was_set)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", before, 1);
    else
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    free(before);
}

static void on_queues(const char *number, void (*body)(struct gpu_rank *rank))
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000; /* what waits for a queue ends so */
    set_queues(number);
    on_devices(2, (const int[]){0, 1}, &config, body, NULL);
    set_queues(NULL);
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
        if (at < 2) /* behind it both streams wait, then one, which the other follows, then none */
            check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "MAX_CONNECTIONS to at least 3");
        else
            check_success(rank, tuttiGroupEnd(), "group");
    }
    for (int i = 0; i < 2; i++) {
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
        destroy_streams(rank, &streams[i]);
    }
    check_ints(rank, large, 2, MANY);
    check_ints(rank, small, 2, 2);
    gpu_free(large);
    gpu_free(small);
}

TEST(staged_errors, a_group_whose_streams_hold_all_hardware_queues_before_a_copy_is_refused)
{
    on_queues("2", before_two_streams);
}

/* Two communicators, each with a long sum without a stream and one behind it on a stream. */
static void two_before_streams(struct gpu_rank *rank)
{
    enum { MANY = 3 << 20 };
    tuttiComm_t comms[2] = {rank->comm};
    struct streams streams[] = {make_streams(rank), make_streams(rank)};
    int *large = make_ints(rank, 1, MANY), *small = make_ints(rank, 1, 2);
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &comms[1], NULL), "split");
    check_success(rank, tuttiGroupStart(), "group start");
    for (int i = 0; i < 2; i++) {
        check_success(rank,
                      tuttiAllReduce(large, large, MANY, tuttiInt32, tuttiSum, comms[i], NULL),
                      "long sum");
        check_success(rank,
                      tuttiAllReduce(small + i, small + i, 1, tuttiInt32, tuttiSum, comms[i],
                                     streams[i].stream),
                      "sum");
    }
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "MAX_CONNECTIONS to at least 4");
    check_success(rank, tuttiCommDestroy(comms[1]), "destroy");
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(large);
    gpu_free(small);
}

TEST(staged_errors, streams_of_all_communicators_of_a_group_may_hold_the_hardware_queues)
{
    on_queues("2", two_before_streams);
}

/* A second communicator has sums on the stream that waits for the first one's copier, and on
 * another one, which follows. */
static void behind_by_another(struct gpu_rank *rank)
{
    enum { MANY = 3 << 20 };
    tuttiComm_t other = NULL;
    struct streams streams[] = {make_streams(rank), make_streams(rank)};
    int *large = make_ints(rank, 1, MANY), *small = make_ints(rank, 1, 3);
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &other, NULL), "split");
    check_success(rank, tuttiGroupStart(), "group start");
    check_success(rank, tuttiAllReduce(large, large, MANY, tuttiInt32, tuttiSum, rank->comm, NULL),
                  "sum");
    for (int i = 0; i < 3; i++)
        check_success(rank,
                      tuttiAllReduce(small + i, small + i, 1, tuttiInt32, tuttiSum,
                                     i ? other : rank->comm, streams[i / 2].stream),
                      "sum");
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "MAX_CONNECTIONS to at least 3");
    check_success(rank, tuttiCommDestroy(other), "destroy");
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(large);
    gpu_free(small);
}

TEST(staged_errors, streams_that_wait_by_a_call_of_another_communicator_hold_hardware_queues)
{
    on_queues("2", behind_by_another);
}

static void more_streams_than_queues(struct gpu_rank *rank)
{
    enum { MANY = 3 << 20, NSTREAMS = 32 };
    struct streams streams[NSTREAMS];
    int *large = make_ints(rank, 1, MANY), *small = make_ints(rank, 1, NSTREAMS);
    check_success(rank, tuttiGroupStart(), "group start");
    check_success(rank, tuttiAllReduce(large, large, MANY, tuttiInt32, tuttiSum, rank->comm, NULL),
                  "sum");
    for (int i = 0; i < NSTREAMS; i++) {
        streams[i] = make_streams(rank);
        check_success(rank,
                      tuttiAllReduce(small + i, small + i, 1, tuttiInt32, tuttiSum, rank->comm,
                                     streams[i].stream),
                      "sum");
    }
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage,
                "may hold more than 32 hardware queues of GPU");
    CHECK(!strstr(tuttiGetLastError(rank->comm), "MAX_CONNECTIONS"));
    for (int i = 0; i < NSTREAMS; i++) destroy_streams(rank, &streams[i]);
    gpu_free(large);
    gpu_free(small);
}

TEST(staged_errors, no_number_of_hardware_queues_is_advised_where_the_most_are_too_few)
{
    on_queues("32", more_streams_than_queues);
}

/* Sums of sums in a group of ranks that one thread drives: one without a stream, then one on each
 * of the rank's streams. */
struct many_streams {
    int nranks, ngpus, nstreams;
};

static void issue_on_many(const struct driven *d, const struct many_streams *many,
                          struct streams (*streams)[MOST_RANKS])
{
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i <= many->nstreams; i++)
        for (int r = 0; r < d->nranks; r++)
            CHECK_EQ(tuttiAllReduce(d->memory[r], d->memory[r], DRIVEN_N - (size_t)(i % 3),
                                    tuttiInt32, tuttiSum, d->comms[r],
                                    i ? streams[r][i - 1].stream : NULL),
                     tuttiSuccess);
}

/* needed: the least number of queues. */
static void on_many_streams(const struct many_streams *many, const char *too_few,
                            const char *needed)
{
    struct driven d;
    struct streams streams[MOST_RANKS][MOST_RANKS];
    struct gpu_rank ranks[MOST_RANKS];
    char text[40];
    if (!driven_begin_with(&d, many->nranks, many->ngpus, 20000)) return;
    for (int r = 0; r < d.nranks; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .gpu = d.gpus[r], .comm = d.comms[r]};
        for (int i = 0; i < many->nstreams; i++) streams[r][i] = make_streams(&ranks[r]);
    }
    set_queues(too_few);
    issue_on_many(&d, many, streams);
    snprintf(text, sizeof text, "MAX_CONNECTIONS to at least %s", needed);
    check_error(&ranks[0], tuttiGroupEnd(), tuttiInvalidUsage, text);
    set_queues(NULL);
    set_queues(needed);
    issue_on_many(&d, many, streams);
    check_success(&ranks[0], tuttiGroupEnd(), "group");
    set_queues(NULL);
    for (int r = 0; r < d.nranks; r++)
        for (int i = 0; i < many->nstreams; i++) {
            check_success(&ranks[r], tuttiStreamSynchronize(streams[r][i].stream), "synchronize");
            destroy_streams(&ranks[r], &streams[r][i]);
        }
    driven_check_sums(&d, many->nstreams + 1);
    driven_finish(&d);
}

TEST(staged_errors, streams_of_the_library_that_copy_for_a_group_need_hardware_queues_too)
{
    on_many_streams(&(struct many_streams){1, 1, 6}, "7", "8");
    on_many_streams(&(struct many_streams){2, 1, 2}, "7", "8");
}

TEST(staged_errors, hardware_queues_are_counted_for_each_gpu)
{
    on_many_streams(&(struct many_streams){2, 2, 4}, "5", "6");
}

/* ---- Collectives that use what earlier ones of the group write ------------------------------- */

enum { NSUMS = 3, NFOLLOWING = 4 };

/* Each sum is of the output of the one before. */
static void issue_sums(const struct gpu_rank *rank, tuttiComm_t comm, int *memory,
                       const struct streams *streams, int nstreams)
{
    for (int i = 0; i < NSUMS; i++)
        check_success(rank,
                      tuttiAllReduce(memory + i * LONG, memory + (i + 1) * LONG, LONG, tuttiInt32,
                                     tuttiSum, comm, streams[i % nstreams].stream),
                      "sum");
}

static void check_sums(const struct gpu_rank *rank, int *memory)
{
    for (int i = 0; i <= NSUMS; i++) check_ints(rank, memory + i * LONG, 1 << i, LONG);
    gpu_free(memory);
}

static int *make_sums(const struct gpu_rank *rank)
{
    return make_ints(rank, 1, (NSUMS + 1) * LONG);
}

/* Other streams wait for the group by an event; so streams that wait have all queues. */
static void before_waiting_streams(struct gpu_rank *rank)
{
    struct streams streams[2 + NFOLLOWING];
    CUevent event;
    int *memory = make_sums(rank), *copies = make_ints(rank, 0, NFOLLOWING * LONG);
    gpu_use(rank->gpu);
    for (int i = 0; i < 2 + NFOLLOWING; i++) streams[i] = make_streams(rank);
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    check_success(rank, tuttiGroupStart(), "group start");
    issue_sums(rank, rank->comm, memory, streams, 2);
    check_success(rank, tuttiGroupEnd(), "group");
    CALL(cuEventRecord, event, streams[0].cuda);
    for (int i = 0; i < NFOLLOWING; i++) {
        CALL(cuStreamWaitEvent, streams[2 + i].cuda, event, CU_EVENT_WAIT_DEFAULT);
        CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr)(copies + i * LONG),
             (CUdeviceptr)(memory + NSUMS * LONG), LONG * sizeof *memory, streams[2 + i].cuda);
    }
    for (int i = 0; i < 2 + NFOLLOWING; i++) {
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
        destroy_streams(rank, &streams[i]);
    }
    check_ints(rank, copies, 1 << NSUMS, NFOLLOWING * LONG);
    check_sums(rank, memory);
    CALL(cuEventDestroy_v2, event);
    gpu_free(copies);
}

TEST(staged_groups, sums_of_sums_need_no_hardware_queue_beside_those_of_streams_that_wait)
{
    on_queues("1", before_waiting_streams);
    on_queues("4", before_waiting_streams);
}

static _Atomic bool is_issued; /* by rank 0: its streams wait for rank 1 */

/* arg: whether both communicators have one stream, and the ranks another order of them. */
static void of_two_communicators(struct gpu_rank *rank)
{
    const bool one_stream = rank->arg;
    tuttiComm_t comms[2] = {rank->comm};
    struct streams streams[] = {make_streams(rank), make_streams(rank)};
    int *memory[] = {make_sums(rank), make_sums(rank)};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &comms[1], &config), "split");
    while (rank->rank && !is_issued) tt_test_pause();
    check_success(rank, tuttiGroupStart(), "group start");
    for (int i = 0; i < 2; i++) {
        const int at = one_stream && rank->rank ? 1 - i : i;
        issue_sums(rank, comms[at], memory[at], &streams[one_stream ? 0 : at], 1);
    }
    check_success(rank, tuttiGroupEnd(), "group");
    is_issued = !rank->rank;
    for (int i = 0; i < 2; i++) {
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
        destroy_streams(rank, &streams[i]);
    }
    for (int i = 0; i < 2; i++) check_sums(rank, memory[i]);
    check_success(rank, tuttiCommDestroy(comms[1]), "destroy");
}

TEST(staged_groups, sums_of_sums_of_two_communicators_need_a_queue_for_each_stream)
{
    on_queues("2", of_two_communicators);
}

TEST(staged_groups, sums_of_sums_of_two_communicators_are_on_one_stream_in_any_order)
{
    bool one_stream = true;
    on_devices(2, (const int[]){0, 1}, NULL, of_two_communicators, &one_stream);
}

static void driven_by_one_thread(driven_choice stream)
{
    struct driven d;
    set_queues("1");
    if (driven_begin_with(&d, 4, 1, 20000)) {
        driven_issue_sums(&d, NSUMS, stream);
        driven_synchronize(&d);
        driven_check_sums(&d, NSUMS);
        driven_finish(&d);
    }
    set_queues(NULL);
}

TEST(staged_groups, sums_of_sums_of_ranks_that_one_thread_drives_need_one_hardware_queue)
{
    driven_by_one_thread(driven_stream_of_rank);
    driven_by_one_thread(driven_stream_of_gpu);
}

/* A receive that ends when the peer sends, which it does after the group. */
static void with_a_late_message(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_sums(rank), *message = make_ints(rank, 1 + 6 * rank->rank, LONG);
    check_success(rank, tuttiGroupStart(), "group start");
    if (!rank->rank)
        check_success(rank, tuttiRecv(message, LONG, tuttiInt32, 1, rank->comm, streams.stream),
                      "receive");
    issue_sums(rank, rank->comm, memory, &streams, 1);
    check_success(rank, tuttiGroupEnd(), "group");
    if (rank->rank)
        check_success(rank, tuttiSend(message, LONG, tuttiInt32, 0, rank->comm, streams.stream),
                      "send");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, message, 7, LONG);
    check_sums(rank, memory);
    destroy_streams(rank, &streams);
    gpu_free(message);
}

TEST(staged_groups, sums_of_sums_do_not_wait_for_messages_of_their_group)
{
    on_queues("1", with_a_late_message);
}

/* ---- Scalars of pre-multiplied sums ---------------------------------------------------------- */

struct scaled {
    int *one, *scalar, *in, *out;
    tuttiRedOp_t op; /* times the scalar, which is on the GPU */
};

static struct scaled make_scaled(const struct gpu_rank *rank)
{
    struct scaled made = {make_ints(rank, 1, 1), make_ints(rank, 7, 1), make_ints(rank, 1, LONG),
                          make_ints(rank, 0, LONG), tuttiSum};
    check_success(
        rank,
        tuttiRedOpCreatePreMulSum(&made.op, made.scalar, tuttiInt32, tuttiScalarDevice, rank->comm),
        "operation");
    return made;
}

static void free_scaled(const struct gpu_rank *rank, struct scaled *scaled)
{
    check_success(rank, tuttiRedOpDestroy(scaled->op, rank->comm), "operation");
    gpu_free(scaled->one);
    gpu_free(scaled->scalar);
    gpu_free(scaled->in);
    gpu_free(scaled->out);
}

static void scale(const struct gpu_rank *rank, const struct scaled *scaled, tuttiStream_t stream)
{
    check_success(
        rank,
        tuttiAllReduce(scaled->in, scaled->out, LONG, tuttiInt32, scaled->op, rank->comm, stream),
        "sum with a scalar");
}

/* A sum writes the scalar with which the next one multiplies: on a stream, captured, and without a
 * stream. */
static void by_a_sum(struct gpu_rank *rank)
{
    enum { ON_STREAM, CAPTURED, WITHOUT, WAYS };
    struct streams streams = make_streams(rank);
    gpu_use(rank->gpu);
    for (int way = ON_STREAM; way < WAYS; way++) {
        tuttiStream_t stream = way == WITHOUT ? NULL : streams.stream;
        struct scaled scaled = make_scaled(rank);
        if (way == CAPTURED) capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        check_success(rank, tuttiGroupStart(), "group start");
        check_success(
            rank,
            tuttiAllReduce(scaled.one, scaled.scalar, 1, tuttiInt32, tuttiSum, rank->comm, stream),
            "sum");
        scale(rank, &scaled, stream);
        check_success(rank, tuttiGroupEnd(), "group");
        if (way == CAPTURED) {
            CUgraphExec graph = capture_end(streams.cuda);
            replay(graph, streams.cuda);
            CALL(cuGraphExecDestroy, graph);
        }
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        check_ints(rank, scaled.out, 4, LONG);
        free_scaled(rank, &scaled);
    }
    destroy_streams(rank, &streams);
}

TEST(staged_scalars, a_sum_reads_the_scalar_that_an_earlier_one_of_the_group_writes)
{
    on_devices(2, (const int[]){0, 1}, NULL, by_a_sum, NULL);
}

/* A receive that writes the scalar of a captured sum. */
static void by_a_receive(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    struct scaled scaled = make_scaled(rank);
    gpu_use(rank->gpu);
    capture_begin(streams.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    check_success(rank, tuttiGroupStart(), "group start");
    scale(rank, &scaled, streams.stream);
    check_success(
        rank, tuttiRecv(scaled.scalar, 1, tuttiInt32, 1 - rank->rank, rank->comm, streams.stream),
        "receive");
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "of the group reads");
    CALL(cuGraphExecDestroy, capture_end(streams.cuda));
    destroy_streams(rank, &streams);
    free_scaled(rank, &scaled);
}

TEST(staged_scalars, a_receive_that_may_write_the_scalar_of_a_sum_of_its_group_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, by_a_receive, NULL);
}
