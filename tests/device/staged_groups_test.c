/* Groups of calls on GPU memory that go through memory of the host, which are copied as one: what
 * they need, and what is refused because all inputs are read before any output is written. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driven.h"
#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

enum { LONG = 3000 };

/* ---- What uses the output of an earlier call ------------------------------------------------- */

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

/* A message that uses what a collective of its group writes, before or behind it. */
static void message_of_output(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, LONG), *more = make_ints(rank, 0, LONG);
    struct mixed mixed = {.sends = true, .in = memory, .out = more, .nsum = LONG};
    mixed.message = more + 1;
    mixed.nmessage = 5;
    for (int i = 0; i < 4; i++) {
        mixed.message_first = i % 2;
        mixed.messages = i / 2 ? streams.stream : NULL;
        check_error(rank, mixed_group(rank, &mixed), tuttiInvalidUsage, "put them into two groups");
    }
    check_success(rank, tuttiBarrier(rank->comm, NULL), "barrier");
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(more);
}

TEST(staged_errors, a_send_of_what_a_collective_of_its_group_writes_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, message_of_output, NULL);
}

/* A collective that reads what an earlier one of its group writes: as its input, or its scalar. */
static void collective_of_output(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, 3 * LONG), *scalar = make_ints(rank, 7, 1);
    tuttiRedOp_t op;
    check_success(rank,
                  tuttiRedOpCreatePreMulSum(&op, scalar, tuttiInt32, tuttiScalarDevice, rank->comm),
                  "operation");
    for (int i = 0; i < 4; i++) {
        int *const first = i % 2 ? scalar : memory + LONG;
        tuttiStream_t stream = i / 2 ? streams.stream : NULL;
        check_success(rank, tuttiGroupStart(), "group start");
        check_success(rank,
                      tuttiAllReduce(memory, first, 1, tuttiInt32, tuttiSum, rank->comm, stream),
                      "sum");
        check_success(rank,
                      tuttiAllReduce(memory + LONG, memory + 2 * LONG, LONG, tuttiInt32,
                                     i % 2 ? op : tuttiSum, rank->comm, stream),
                      "sum");
        check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage,
                    "a collective of a group uses what a collective of the group writes");
    }
    check_success(rank, tuttiBarrier(rank->comm, NULL), "barrier");
    check_success(rank, tuttiRedOpDestroy(op, rank->comm), "operation");
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(scalar);
}

TEST(staged_errors, a_collective_of_what_an_earlier_one_of_its_group_writes_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, collective_of_output, NULL);
}

/* A collective that reads what one of another communicator writes is refused where that one comes
 * first. */
static void call_of_output_of_another(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, 3 * LONG);
    tuttiComm_t comms[2] = {rank->comm};
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &comms[1], NULL), "split");
    for (int first = 0; first < 2; first++) {
        check_success(rank, tuttiGroupStart(), "group start");
        for (int i = 0; i < 2; i++) {
            int *const in = memory + (i == first) * LONG;
            check_success(
                rank,
                tuttiAllReduce(in, in + LONG, LONG, tuttiInt32, tuttiSum, comms[i], streams.stream),
                "sum");
        }
        if (first)
            check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "put them into two groups");
        else
            check_success(rank, tuttiGroupEnd(), "group");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    }
    check_ints(rank, memory + LONG, 2, 2 * LONG);
    check_success(rank, tuttiCommDestroy(comms[1]), "destroy");
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged_errors, a_call_of_what_one_of_another_communicator_writes_before_it_is_refused)
{
    on_devices(2, (const int[]){0, 1}, NULL, call_of_output_of_another, NULL);
}

/* A sum whose input a receive of its group writes adds the values from before the group. */
static void message_of_input(struct gpu_rank *rank)
{
    struct streams streams = make_streams(rank);
    int *sent = make_ints(rank, 7, LONG);
    for (int i = 0; i < 4; i++) {
        int *in = make_ints(rank, 1, LONG), *out = make_ints(rank, 0, LONG);
        struct mixed mixed = {.in = in, .out = out, .nsum = LONG, .message = in, .nmessage = LONG};
        mixed.message_first = i % 2;
        mixed.messages = streams.stream;
        mixed.sums = i / 2 ? NULL : streams.stream;
        check_success(rank, tuttiGroupStart(), "group start");
        check_success(rank,
                      tuttiSend(sent, LONG, tuttiInt32, 1 - rank->rank, rank->comm, streams.stream),
                      "send");
        check_success(rank, mixed_group(rank, &mixed), "group with a receive");
        check_success(rank, tuttiGroupEnd(), "group");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        check_ints(rank, out, 2, LONG);
        check_ints(rank, in, 7, LONG);
        gpu_free(in);
        gpu_free(out);
    }
    destroy_streams(rank, &streams);
    gpu_free(sent);
}

TEST(staged_groups, all_inputs_are_read_before_a_receive_writes)
{
    on_devices(2, (const int[]){0, 1}, NULL, message_of_input, NULL);
}

/* ---- Hardware queues ------------------------------------------------------------------------- */

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

enum { NSUMS = 3, NFOLLOWING = 4 };

/* Of memory of make_sums. */
static void issue_sums(const struct gpu_rank *rank, tuttiComm_t comm, int *memory,
                       const struct streams *streams, int nstreams)
{
    for (int i = 0; i < NSUMS; i++)
        check_success(rank,
                      tuttiAllReduce(memory + i * LONG, memory + i * LONG, LONG, tuttiInt32,
                                     tuttiSum, comm, streams[i % nstreams].stream),
                      "sum");
}

static void check_sums(const struct gpu_rank *rank, int *memory)
{
    check_ints(rank, memory, 2, NSUMS * LONG);
    gpu_free(memory);
}

static int *make_sums(const struct gpu_rank *rank)
{
    return make_ints(rank, 1, NSUMS * LONG);
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
        CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr)(copies + i * LONG), (CUdeviceptr)memory,
             LONG * sizeof *memory, streams[2 + i].cuda);
    }
    for (int i = 0; i < 2 + NFOLLOWING; i++) {
        check_success(rank, tuttiStreamSynchronize(streams[i].stream), "synchronize");
        destroy_streams(rank, &streams[i]);
    }
    check_ints(rank, copies, 2, NFOLLOWING * LONG);
    check_sums(rank, memory);
    CALL(cuEventDestroy_v2, event);
    gpu_free(copies);
}

TEST(staged_groups, sums_need_no_hardware_queue_beside_those_of_streams_that_wait)
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

TEST(staged_groups, sums_of_two_communicators_need_a_queue_for_each_stream)
{
    on_queues("2", of_two_communicators);
}

TEST(staged_groups, sums_of_two_communicators_are_on_one_stream_in_any_order)
{
    bool one_stream = true;
    on_devices(2, (const int[]){0, 1}, NULL, of_two_communicators, &one_stream);
}

static void driven_by_one_thread(driven_choice stream)
{
    struct driven d;
    set_queues("1");
    if (driven_begin_with(&d, 4, 1, 20000)) {
        driven_issue_sums(&d, 1, stream);
        driven_synchronize(&d);
        driven_check_sums(&d, 1);
        driven_finish(&d);
    }
    set_queues(NULL);
}

TEST(staged_groups, sums_of_ranks_that_one_thread_drives_need_one_hardware_queue)
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

TEST(staged_groups, sums_do_not_wait_for_messages_of_their_group)
{
    on_queues("1", with_a_late_message);
}

/* ---- Groups of two threads that use a communicator one after the other ------------------------
 */

struct other_thread {
    const struct gpu_rank *rank;
    int *memory;
};

static void *call_meanwhile(void *arg)
{
    const struct other_thread *other = arg;
    gpu_use(other->rank->gpu);
    check_success(other->rank,
                  tuttiAllReduce(other->memory, other->memory, 10, tuttiInt32, tuttiSum,
                                 other->rank->comm, NULL),
                  "all-reduce of the other thread");
    return NULL;
}

/* The call that the group holds already, and the one that follows, keep memory of their own. */
static void with_a_call_meanwhile(struct gpu_rank *rank)
{
    enum { N = 10000 };
    struct streams streams = make_streams(rank);
    int *first = make_ints(rank, 1, N), *second = make_ints(rank, 2, N);
    struct other_thread other = {rank, make_ints(rank, 3, N)};
    pthread_t thread;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_success(rank,
                  tuttiAllReduce(first, first, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
                  "first");
    CHECK(pthread_create(&thread, NULL, call_meanwhile, &other) == 0);
    pthread_join(thread, NULL);
    check_success(
        rank, tuttiAllReduce(second, second, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
        "second");
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, first, 2, N);
    check_ints(rank, second, 4, N);
    check_ints(rank, other.memory, 6, 10);
    destroy_streams(rank, &streams);
    gpu_free(first);
    gpu_free(second);
    gpu_free(other.memory);
}

TEST(staged_groups, calls_of_another_thread_while_a_group_is_open_use_other_memory)
{
    on_devices(2, (const int[]){0, 1}, NULL, with_a_call_meanwhile, NULL);
}
