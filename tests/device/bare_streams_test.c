/* Calls on bare CUDA streams: their handles go through tuttiStreamOfDevice before each call. */
#include <pthread.h>

#include "graphs.h"
#include "shim.h"

enum { COUNT = 300 };

static tuttiStream_t of_device(const struct gpu_rank *rank, CUstream handle)
{
    tuttiStream_t stream = NULL;
    CHECK_MESSAGE(tuttiStreamOfDevice(&stream, rank->gpu, handle) == tuttiSuccess, "rank %d: %s",
                  rank->rank, tuttiGetLastError(NULL));
    return stream;
}

/* All ranks' numbers become their sum, in place. */
static void issue_sum(const struct gpu_rank *rank, int *numbers, CUstream handle)
{
    CHECK_MESSAGE(tuttiAllReduce(numbers, numbers, COUNT, tuttiInt32, tuttiSum, rank->comm,
                                 of_device(rank, handle)) == tuttiSuccess,
                  "rank %d: %s", rank->rank, tuttiGetLastError(rank->comm));
}

static void write_numbers(const struct gpu_rank *rank, int *numbers)
{
    int data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = rank->rank + 1;
    gpu_write(rank->gpu, numbers, data, sizeof data);
}

/* After so many sums of 1 and 2. */
static void check_sums(const struct gpu_rank *rank, const int *numbers, int nsums)
{
    int data[COUNT], expected = 3 << (nsums - 1), nwrong = 0;
    gpu_read(rank->gpu, data, numbers, sizeof data);
    for (int i = 0; i < COUNT; i++) nwrong += data[i] != expected;
    CHECK_MESSAGE(!nwrong, "rank %d: %d numbers are wrong, the first is %d, expected %d",
                  rank->rank, nwrong, data[0], expected);
}

static int *make_numbers(const struct gpu_rank *rank)
{
    int *numbers = (int *)gpu_memory(rank->gpu, COUNT * sizeof *numbers);
    gpu_use(rank->gpu);
    write_numbers(rank, numbers);
    return numbers;
}

/* Who waits for the CUDA stream waits for the calls. */
static void every_handle(struct gpu_rank *rank)
{
    int *numbers = make_numbers(rank);
    CUstream own = gpu_stream(rank->gpu);
    const CUstream handles[] = {own, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, own};
    int nsums = 0;
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        for (int n = 0; n < 2; n++) issue_sum(rank, numbers, handles[i]);
        nsums += 2;
        CALL(cuStreamSynchronize, handles[i]);
        check_sums(rank, numbers, nsums);
    }
    gpu_stream_destroy(rank->gpu, own);
    gpu_free(numbers);
}

TEST(bare_streams, calls_on_every_kind_of_handle_are_right)
{
    on_gpus(2, 2, NULL, every_handle, NULL);
}

/* The default stream of rank 0 waits for the host, so the calls cannot have ended. */
static void on_the_default_stream(struct gpu_rank *rank)
{
    int *numbers = make_numbers(rank);
    if (rank->rank == 0) gpu_block(rank->gpu, NULL);
    for (int n = 0; n < 3; n++) issue_sum(rank, numbers, NULL);
    CHECK_EQ(RESULT(cuStreamQuery, NULL), CUDA_ERROR_NOT_READY);
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 0) gpu_unblock();
    CALL(cuStreamSynchronize, NULL);
    check_sums(rank, numbers, 3);
    gpu_free(numbers);
}

TEST(bare_streams, a_call_on_the_default_stream_returns_before_it_is_complete)
{
    on_gpus_together(2, 2, NULL, on_the_default_stream);
}

/* Each stream lives for one call, as in programs that make streams for a while: most come to lie
 * where another one was, some with another priority. */
static void short_lives(struct gpu_rank *rank)
{
    int *numbers = make_numbers(rank);
    for (int n = 0; n < 8; n++) {
        CUstream stream = NULL;
        CALL(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, n % 3 ? 0 : -1);
        issue_sum(rank, numbers, stream);
        if (n % 2) CALL(cuStreamSynchronize, stream); /* else it has work when it is destroyed */
        CALL(cuStreamDestroy_v2, stream);
    }
    issue_sum(rank, numbers, CU_STREAM_PER_THREAD); /* behind all of them */
    CALL(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    check_sums(rank, numbers, 9);
    gpu_free(numbers);
}

TEST(bare_streams, calls_on_streams_that_live_for_one_call_follow_one_another)
{
    on_gpus(2, 2, NULL, short_lives, NULL);
}

/* The handle's first use is while its stream is being captured. During a capture of mode global no
 * thread of the test makes calls of its own that the mode forbids. */
static void captured(struct gpu_rank *rank)
{
    pthread_barrier_t *all = rank->arg;
    int *numbers = make_numbers(rank);
    for (CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
         mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CUstream stream = gpu_stream(rank->gpu);
        write_numbers(rank, numbers);
        pthread_barrier_wait(all);
        capture_begin(stream, mode);
        issue_sum(rank, numbers, stream);
        issue_sum(rank, numbers, stream);
        CUgraph graph = capture_stop(stream);
        pthread_barrier_wait(all); /* before any rank makes a graph */
        CUgraphExec made = graph_make(graph);
        for (int turn = 0; turn < 3; turn++) replay(made, stream);
        check_sums(rank, numbers, 6);
        CALL(cuGraphExecDestroy, made);
        gpu_stream_destroy(rank->gpu, stream);
    }
    gpu_free(numbers);
}

TEST(bare_streams, a_stream_may_be_found_while_it_is_being_captured)
{
    on_gpus_together(2, 2, NULL, captured);
}

/* One thread has the ranks of both GPUs, all on the default streams. */
TEST(bare_streams, a_group_may_have_the_default_streams_of_several_gpus)
{
    enum { RANKS = 2 };
    struct gpu_rank ranks[RANKS];
    tuttiComm_t comms[RANKS];
    int *numbers[RANKS];
    REQUIRE(tuttiCommInitAll(comms, RANKS, (const int[]){0, 1}) == tuttiSuccess);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .nranks = RANKS, .gpu = r, .comm = comms[r]};
        numbers[r] = make_numbers(&ranks[r]);
    }
    for (int n = 0; n < 2; n++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int r = 0; r < RANKS; r++) issue_sum(&ranks[r], numbers[r], NULL);
        CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    for (int r = 0; r < RANKS; r++) {
        gpu_use(r);
        CALL(cuStreamSynchronize, NULL);
        check_sums(&ranks[r], numbers[r], 2);
        gpu_free(numbers[r]);
    }
    for (int r = 0; r < RANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    gpu_free_all();
}
