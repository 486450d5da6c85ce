/* Calls of a rank in a group that are on several CUDA streams: they begin when all these streams
 * have come to the group, and all of them follow, also what another one's call has written. Whether
 * kernels run the calls or the host. */
#include <time.h>

#include "../driver/calls.h"
#include "on_streams.h"

enum { N = 700, NSTREAMS = 3 };

/* Each buffer is filled, and copied afterwards, by another stream than its call's. */
struct buffers {
    struct streams streams[NSTREAMS];
    int *data[NSTREAMS], *copy[NSTREAMS];
};

static void begin(const struct gpu_rank *rank, struct buffers *b)
{
    gpu_use(rank->gpu);
    for (int i = 0; i < NSTREAMS; i++) {
        b->streams[i] = make_streams(rank);
        b->data[i] = make_ints(rank, 1000, N);
        b->copy[i] = make_ints(rank, 2000, N);
    }
    if (!rank->rank) gpu_block(rank->gpu, b->streams[NSTREAMS - 1].cuda);
    for (int i = 0; i < NSTREAMS; i++)
        gpu_fill(rank->gpu, b->streams[NSTREAMS - 1 - i].cuda, b->data[i],
                 (unsigned)(1 + i + 10 * rank->rank), N);
}

static void end(const struct gpu_rank *rank, struct buffers *b, const int expected[NSTREAMS])
{
    for (int i = 0; i < NSTREAMS; i++)
        CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr)b->copy[i], (CUdeviceptr)b->data[i],
             N * sizeof(int), b->streams[NSTREAMS - 1 - i].cuda);
    if (!rank->rank) {
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL); /* for calls that do not wait */
        gpu_unblock();
    }
    for (int i = 0; i < NSTREAMS; i++)
        check_success(rank, tuttiStreamSynchronize(b->streams[i].stream), "synchronize");
    for (int i = 0; i < NSTREAMS; i++) {
        check_ints(rank, b->copy[i], expected[i], N);
        destroy_streams(rank, &b->streams[i]);
        gpu_free(b->data[i]);
        gpu_free(b->copy[i]);
    }
}

static void sums(struct gpu_rank *rank)
{
    struct buffers b;
    begin(rank, &b);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < NSTREAMS; i++)
        check_success(rank,
                      tuttiAllReduce(b.data[i], b.data[i], N, tuttiInt32, tuttiSum, rank->comm,
                                     b.streams[i].stream),
                      "all-reduce");
    check_success(rank, tuttiGroupEnd(), "group");
    end(rank, &b, (const int[]){12, 14, 16});
}

TEST(group_streams, collectives_on_several_streams_are_one_operation_of_all_of_them)
{
    on_gpus(2, 1, NULL, sums, NULL);
}

/* The first buffer is sent, the last one is received into, the other one is added up. */
static void messages(struct gpu_rank *rank)
{
    struct buffers b;
    const int peer = 1 - rank->rank;
    begin(rank, &b);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_success(rank, tuttiSend(b.data[0], N, tuttiInt32, peer, rank->comm, b.streams[0].stream),
                  "send");
    check_success(rank,
                  tuttiAllReduce(b.data[1], b.data[1], N, tuttiInt32, tuttiSum, rank->comm,
                                 b.streams[1].stream),
                  "all-reduce");
    check_success(rank, tuttiRecv(b.data[2], N, tuttiInt32, peer, rank->comm, b.streams[2].stream),
                  "receive");
    check_success(rank, tuttiGroupEnd(), "group");
    end(rank, &b, (const int[]){1 + 10 * rank->rank, 14, 1 + 10 * peer});
}

TEST(group_streams, messages_on_several_streams_are_one_operation_of_all_of_them)
{
    on_gpus(2, 2, NULL, messages, NULL);
}

/* A group's calls without a stream: on memory of the GPU (1) and of the host (0). */
static void sums_here_and_there(struct gpu_rank *rank)
{
    static const bool on_gpu[2][3] = {{1, 0, 1}, {0, 1, 0}};
    for (int group = 0; group < 2; group++) {
        int *there[3], here[3];
        for (int i = 0; i < 3; i++) {
            there[i] = make_ints(rank, i + 10 * rank->rank, 1);
            here[i] = i + 10 * rank->rank;
        }
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int i = 0; i < 3; i++) {
            int *data = on_gpu[group][i] ? there[i] : &here[i];
            check_success(rank,
                          tuttiAllReduce(data, data, 1, tuttiInt32, tuttiSum, rank->comm, NULL),
                          "all-reduce");
        }
        check_success(rank, tuttiGroupEnd(), "group");
        for (int i = 0; i < 3; i++) {
            if (on_gpu[group][i])
                check_ints(rank, there[i], 10 + 2 * i, 1);
            else
                CHECK_EQ(here[i], 10 + 2 * i);
            gpu_free(there[i]);
        }
    }
}

/* A group's calls have their turns in the group's order, whichever carrier takes each. */
TEST(group_streams, calls_on_memory_of_gpu_and_host_end_in_one_group)
{
    on_gpus(2, 1, NULL, sums_here_and_there, NULL);
}
