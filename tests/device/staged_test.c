/* Calls on GPU memory that go through memory of the host: where some ranks have no GPU, and where
 * TUTTI_DEVICE_KERNELS is off, as in all of these tests. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../integration/random_calls.h"
#include "calls_on_gpu.h"
#include "on_streams.h"
#include "shim.h"

/* ---- Results -------------------------------------------------------------------------------- */

static void random_run(struct gpu_rank *rank)
{
    enum { NCALLS = 40 };
    CHECK_EQ(random_calls_on_gpu(rank, *(const uint64_t *)rank->arg, NCALLS), 0);
}

TEST(staged, ranks_with_and_without_a_gpu_get_the_same_results)
{
    uint64_t seed = 21;
    on_devices(3, (const int[]){0, -1, 1}, NULL, random_run, &seed);
    seed = 22;
    on_devices(5, (const int[]){-1, 0, 0, -1, 1}, NULL, random_run, &seed);
}

/* Every kind of call, in and out of place, in groups and alone, on streams and without, also on
 * communicators that are split from this one. */
static void run_everything(struct gpu_rank *rank)
{
    enum { NCALLS = 60 };
    const struct call_memory on_gpu = {rank->gpu, gpu_memory, gpu_free,          gpu_write,
                                       gpu_read,  gpu_stream, gpu_stream_destroy};
    const struct call_memory *elsewhere = rank->gpu < 0 ? NULL : &on_gpu;
    CHECK_EQ(random_calls_in(elsewhere, rank->comm, *(const uint64_t *)rank->arg, NCALLS), 0);
}

TEST(staged, every_kind_of_call_is_right_on_two_gpus)
{
    uint64_t seed = 31;
    on_devices(4, (const int[]){0, 1, 0, 1}, NULL, run_everything, &seed);
}

TEST(staged, every_kind_of_call_is_right_among_ranks_with_and_without_a_gpu)
{
    for (uint64_t seed = 32; seed <= 33; seed++)
        on_devices(4, (const int[]){0, -1, 1, 0}, NULL, run_everything, &seed);
}

/* Calls that follow one another on a CUDA stream, each on the result of the last. */
static void chain(struct gpu_rank *rank)
{
    enum { NCALLS = 12, N = 5000 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    for (int i = 0; i < NCALLS; i++)
        check_success(
            rank,
            tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
            "chain");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 4096, N); /* 2 to the 12th */
    CHECK_EQ(tuttiStreamQuery(streams.stream), tuttiSuccess);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, calls_on_a_stream_use_the_results_of_earlier_ones)
{
    on_devices(2, (const int[]){0, -1}, NULL, chain, NULL);
}

/* Both ranks send on one stream and receive on another. */
static void exchange_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 1 << 20 };
    const int peer = 1 - rank->rank;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *mine = make_ints(rank, rank->rank + 1, N), *theirs = make_ints(rank, 0, N);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_success(rank, tuttiSend(mine, N, tuttiInt32, peer, rank->comm, streams[0].stream),
                  "send");
    check_success(rank, tuttiRecv(theirs, N, tuttiInt32, peer, rank->comm, streams[1].stream),
                  "receive");
    check_success(rank, tuttiGroupEnd(), "group");
    for (int s = 0; s < 2; s++)
        check_success(rank, tuttiStreamSynchronize(streams[s].stream), "synchronize");
    check_ints(rank, theirs, peer + 1, N);
    for (int s = 0; s < 2; s++) destroy_streams(rank, &streams[s]);
    gpu_free(mine);
    gpu_free(theirs);
}

TEST(staged, a_group_on_two_streams_progresses_together)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    on_devices(2, (const int[]){0, 1}, &config, exchange_on_two_streams, NULL);
}

/* The host returns while the stream has not come to the call. */
static void behind_other_work(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    if (rank->gpu >= 0) {
        gpu_block(rank->gpu, streams.cuda);
        gpu_fill(rank->gpu, streams.cuda, memory, 5, N);
    }
    for (int i = 0; i < 2; i++)
        check_success(
            rank,
            tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm, streams.stream),
            "all-reduce");
    if (rank->gpu >= 0) {
        CHECK_EQ(tuttiStreamQuery(streams.stream), tuttiInProgress);
        gpu_unblock();
    }
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, 12, N);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, a_call_waits_for_what_the_stream_does_before_and_its_caller_does_not)
{
    on_devices(2, (const int[]){0, -1}, NULL, behind_other_work, NULL);
}

/* Ranks send to themselves and to one another. */
static void send_long(struct gpu_rank *rank)
{
    enum { N = 2 << 20 };
    struct streams streams = make_streams(rank);
    int *data = malloc(N * sizeof *data);
    int *sent = make_ints(rank, 0, N), *got = make_ints(rank, 0, N);
    for (int shift = 0; shift < rank->nranks; shift++) {
        const int to = (rank->rank + shift) % rank->nranks;
        const int from = (rank->rank + rank->nranks - shift) % rank->nranks;
        for (int i = 0; i < N; i++) data[i] = 10 * i + rank->rank;
        gpu_write(rank->gpu, sent, data, N * sizeof *data);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        check_success(rank, tuttiSend(sent, N, tuttiInt32, to, rank->comm, streams.stream), "send");
        check_success(rank, tuttiRecv(got, N, tuttiInt32, from, rank->comm, streams.stream),
                      "receive");
        check_success(rank, tuttiGroupEnd(), "group");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        gpu_read(rank->gpu, data, got, N * sizeof *data);
        int right = 0;
        while (right < N && data[right] == 10 * right + from) right++;
        CHECK_MESSAGE(right == N, "rank %d: element %d from rank %d is %d", rank->rank, right, from,
                      right < N ? data[right] : 0);
    }
    free(data);
    destroy_streams(rank, &streams);
    gpu_free(sent);
    gpu_free(got);
}

TEST(staged, a_long_message_is_right_however_late_it_is_received)
{
    on_devices(1, (const int[]){0}, NULL, send_long, NULL);
    on_devices(2, (const int[]){0, 1}, NULL, send_long, NULL);
}

/* The message is there, and its sender gone, before the receiver's stream has come to the receive.
 */
static void send_and_leave(struct gpu_rank *rank)
{
    enum { N = 500 };
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, rank->rank + 1, N);
    if (rank->rank == 0) {
        check_success(rank, tuttiSend(memory, N, tuttiInt32, 1, rank->comm, streams.stream),
                      "send");
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
        rank->comm = NULL;
        pthread_barrier_wait(rank->arg);
    } else {
        gpu_block(rank->gpu, streams.cuda);
        check_success(rank, tuttiRecv(memory, N, tuttiInt32, 0, rank->comm, streams.stream),
                      "receive");
        pthread_barrier_wait(rank->arg);
        usleep(20000); /* some looks at who has left */
        gpu_unblock();
        check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
        check_ints(rank, memory, 1, N);
    }
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, a_sender_may_leave_before_the_stream_of_the_receiver_has_come)
{
    pthread_barrier_t has_left;
    pthread_barrier_init(&has_left, NULL, 2);
    on_devices(2, (const int[]){0, 1}, NULL, send_and_leave, &has_left);
    on_devices(2, (const int[]){-1, 0}, NULL, send_and_leave, &has_left);
    pthread_barrier_destroy(&has_left);
}

/* A call whose stream is busy keeps the staging memory from the next one, on another stream. */
static void on_two_streams(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams busy = make_streams(rank), idle = make_streams(rank);
    int *first = make_ints(rank, 1, N), *second = make_ints(rank, 10, N);
    if (rank->gpu >= 0) gpu_block(rank->gpu, busy.cuda);
    check_success(rank,
                  tuttiAllReduce(first, first, N, tuttiInt32, tuttiSum, rank->comm, busy.stream),
                  "first");
    check_success(rank,
                  tuttiAllReduce(second, second, N, tuttiInt32, tuttiSum, rank->comm, idle.stream),
                  "second");
    if (rank->gpu >= 0) gpu_unblock();
    check_success(rank, tuttiStreamSynchronize(busy.stream), "synchronize the first");
    check_success(rank, tuttiStreamSynchronize(idle.stream), "synchronize the second");
    check_ints(rank, first, 2, N);
    check_ints(rank, second, 20, N);
    destroy_streams(rank, &busy);
    destroy_streams(rank, &idle);
    gpu_free(first);
    gpu_free(second);
}

TEST(staged, calls_on_two_streams_use_staging_memory_one_after_the_other)
{
    on_devices(2, (const int[]){0, -1}, NULL, on_two_streams, NULL);
}

/* In a group, what is on one stream does not wait for the end of what is on the other. */
static void group_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 300000 }; /* the send ends when the other rank has begun its receive */
    struct streams first = make_streams(rank), second = make_streams(rank);
    int *sums[3], *sent = make_ints(rank, 1 + rank->rank, N), *got = make_ints(rank, 9, N);
    const int peer = 1 - rank->rank;
    for (int i = 0; i < 3; i++) sums[i] = make_ints(rank, i, 100);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 3; i++)
        check_success(rank,
                      tuttiAllReduce(sums[i], sums[i], 100, tuttiInt32, tuttiSum, rank->comm,
                                     i % 2 ? second.stream : first.stream),
                      "all-reduce");
    check_success(rank, tuttiSend(sent, N, tuttiInt32, peer, rank->comm, second.stream), "send");
    check_success(rank, tuttiRecv(got, N, tuttiInt32, peer, rank->comm, first.stream), "receive");
    check_success(rank, tuttiGroupEnd(), "group");
    check_success(rank, tuttiStreamSynchronize(first.stream), "synchronize the first");
    check_success(rank, tuttiStreamSynchronize(second.stream), "synchronize the second");
    for (int i = 0; i < 3; i++) check_ints(rank, sums[i], 2 * i, 100);
    check_ints(rank, got, 1 + peer, N);
    destroy_streams(rank, &first);
    destroy_streams(rank, &second);
    for (int i = 0; i < 3; i++) gpu_free(sums[i]);
    gpu_free(sent);
    gpu_free(got);
}

TEST(staged, calls_of_a_group_on_two_streams_run_side_by_side)
{
    on_devices(2, (const int[]){0, 1}, NULL, group_on_two_streams, NULL);
}

/* Each call takes the result of the one before, which is on another stream. */
static void in_order_on_two_streams(struct gpu_rank *rank)
{
    enum { N = 3000 };
    struct streams first = make_streams(rank), second = make_streams(rank);
    int *memory = make_ints(rank, 1, N);
    for (int i = 0; i < 6; i++)
        check_success(rank,
                      tuttiAllReduce(memory, memory, N, tuttiInt32, tuttiSum, rank->comm,
                                     i % 2 ? second.stream : first.stream),
                      "all-reduce");
    check_success(rank, tuttiStreamSynchronize(second.stream), "synchronize the second");
    check_success(rank, tuttiStreamSynchronize(first.stream), "synchronize the first");
    check_ints(rank, memory, 64, N);
    destroy_streams(rank, &first);
    destroy_streams(rank, &second);
    gpu_free(memory);
}

TEST(staged, calls_on_two_streams_run_in_the_order_in_which_they_were_issued)
{
    on_devices(2, (const int[]){0, 1}, NULL, in_order_on_two_streams, NULL);
}

/* Root's buffer of a broadcast in place is not written, not even with what it holds: here something
 * else is stored there before the call's copy of the output would be made, which stands on the
 * stream behind a barrier for which the other rank comes late. */
static void broadcast_in_place(struct gpu_rank *rank)
{
    enum { N = 1000 };
    const bool is_root = rank->rank == 0;
    tuttiComm_t late;
    struct streams streams = make_streams(rank);
    int *memory = make_ints(rank, is_root ? 3 : 0, N), *other = make_ints(rank, 9, N);
    check_success(rank, tuttiCommSplit(rank->comm, 0, rank->rank, &late, NULL), "split");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    if (is_root) check_success(rank, tuttiBarrier(late, streams.stream), "barrier");
    check_success(rank,
                  tuttiBroadcast(memory, memory, N, tuttiInt32, 0, rank->comm, streams.stream),
                  "broadcast");
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    if (!is_root) check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    pthread_barrier_wait(rank->arg);
    if (is_root) {
        int nines[N];
        gpu_read(rank->gpu, nines, other, sizeof nines);
        gpu_write(rank->gpu, memory, nines, sizeof nines);
    }
    pthread_barrier_wait(rank->arg);
    if (!is_root) check_success(rank, tuttiBarrier(late, NULL), "barrier");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    check_ints(rank, memory, is_root ? 9 : 3, N);
    CHECK_EQ(tuttiCommDestroy(late), tuttiSuccess);
    destroy_streams(rank, &streams);
    gpu_free(memory);
    gpu_free(other);
}

TEST(staged, what_a_call_in_place_does_not_change_is_not_written)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    on_devices(2, (const int[]){0, -1}, NULL, broadcast_in_place, &barrier);
    pthread_barrier_destroy(&barrier);
}

/* All ranks' calls on one CUDA stream: no rank's wait may stand before another's copy. */
TEST(staged, one_thread_drives_three_ranks_on_one_stream)
{
    enum { NRANKS = 3, N = 2000, HALF = N / 2 };
    const int devices[NRANKS] = {0, 0, 0};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    int *memory[NRANKS];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = NRANKS, .comm = comms[r]};
        memory[r] = make_ints(&ranks[r], 1 + r, N);
    }
    struct streams streams = make_streams(&ranks[0]);
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int twice = 0; twice < 2; twice++)
            for (int r = 0; r < NRANKS; r++)
                check_success(&ranks[r],
                              tuttiAllReduce(memory[r] + twice * HALF, memory[r] + twice * HALF,
                                             HALF, tuttiInt32, tuttiSum, comms[r],
                                             on_stream ? streams.stream : NULL),
                              "all-reduce");
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
        check_success(&ranks[0], tuttiStreamSynchronize(streams.stream), "synchronize");
        for (int r = 0; r < NRANKS; r++) check_ints(&ranks[r], memory[r], on_stream ? 18 : 6, N);
    }
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
        gpu_free(memory[r]);
    }
    destroy_streams(&ranks[0], &streams);
    gpu_free_all();
}

/* Memory between blocks is nobody's: it is not even written with what it held. */
static void with_gaps(struct gpu_rank *rank)
{
    enum { N = 8 };
    const size_t counts[] = {2, 3}, displs[] = {4, 0}; /* 3 is in a gap */
    int data[N] = {10, 11, 12, 13, 14, 15, 16, 17};
    struct streams streams = make_streams(rank);
    int *memory = (int *)gpu_memory(rank->gpu, sizeof data);
    gpu_write(rank->gpu, memory, data, sizeof data);
    check_success(rank,
                  tuttiAllGatherV(memory + displs[rank->rank], memory, counts, displs, tuttiInt32,
                                  rank->comm, streams.stream),
                  "all-gather-v in place");
    check_success(rank, tuttiStreamSynchronize(streams.stream), "synchronize");
    gpu_read(rank->gpu, data, memory, sizeof data);
    for (int i = 0; i < N; i++) CHECK_EQ(data[i], 10 + i);
    destroy_streams(rank, &streams);
    gpu_free(memory);
}

TEST(staged, blocks_with_gaps_in_place_leave_the_gaps_alone)
{
    on_devices(2, (const int[]){0, -1}, NULL, with_gaps, NULL);
}
