/* Collectives on the memory of virtual GPUs, through tutti.h: right, in every shape that a user
 * gives them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../integration/reference.h"
#include "ranks_on_gpus.h"
#include "shim.h"

/* A call with this rank's buffers on its GPU. */
struct placed {
    struct call call;
    struct gpu_rank *rank;
    char *input, *output;
    size_t input_bytes, output_bytes;
};

static void place(struct placed *p, struct gpu_rank *rank, const struct call *call)
{
    const size_t size = call_type_size(call->type);
    *p = (struct placed){.call = *call, .rank = rank};
    p->input_bytes = call_input_count(call, rank->rank) * size;
    p->output_bytes = call_output_count(call, rank->rank) * size;
    p->input = gpu_memory(rank->gpu, p->input_bytes + 1);
    p->output = gpu_memory(rank->gpu, p->output_bytes + 1);
    char *data = malloc(p->input_bytes + 1);
    call_input(call, rank->rank, data);
    gpu_write(rank->gpu, p->input, data, p->input_bytes);
    free(data);
}

static void check_and_free(struct placed *p)
{
    char *got = malloc(p->output_bytes + 1), *expected = malloc(p->output_bytes + 1);
    call_expected(&p->call, p->rank->rank, expected);
    expected[p->output_bytes] = (char)0xa5; /* the byte behind the buffer is nobody's */
    gpu_read(p->rank->gpu, got, p->output, p->output_bytes + 1);
    CHECK_MESSAGE(!memcmp(got, expected, p->output_bytes + 1), "rank %d: wrong result of %s",
                  p->rank->rank, call_text(&p->call));
    free(got);
    free(expected);
    gpu_free(p->rank->gpu, p->input);
    gpu_free(p->rank->gpu, p->output);
}

static tuttiResult_t issue(const struct placed *p, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    tuttiComm_t comm = p->rank->comm;
    const bool is_root = p->rank->rank == c->root;
    void *in = p->input, *out = p->output;
    switch (c->kind) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, c->count, c->type, c->op, comm, stream);
    case tuttiCollReduce:
        return tuttiReduce(in, is_root ? out : NULL, c->count, c->type, c->op, c->root, comm,
                           stream);
    case tuttiCollBroadcast:
        return tuttiBroadcast(is_root ? in : NULL, out, c->count, c->type, c->root, comm, stream);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, c->count, c->type, comm, stream);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, c->count, c->type, c->op, comm, stream);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, c->count, c->type, comm, stream);
    case tuttiCollScatter:
        return tuttiScatter(is_root ? in : NULL, out, c->count, c->type, c->root, comm, stream);
    case tuttiCollGather:
        return tuttiGather(in, is_root ? out : NULL, c->count, c->type, c->root, comm, stream);
    default:
        return tuttiBarrier(comm, stream);
    }
}

static struct call call_of(int kind, size_t count, tuttiDataType_t type, int nranks)
{
    return (struct call){.kind = kind,
                         .count = count,
                         .type = type,
                         .op = tuttiSum,
                         .root = 1 % nranks,
                         .salt = (uint64_t)kind * 1000 + count,
                         .nranks = nranks};
}

static void check_result(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", rank->rank, what,
                  tuttiGetLastError(rank->comm));
}

/* Every collective with a NULL stream: complete when it returns. */
static void every_collective(struct gpu_rank *rank)
{
    static const size_t counts[] = {1, 37, 1500};
    for (int kind = 0; kind < tuttiCollBarrier; kind++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const struct call call = call_of(kind, counts[i], tuttiFloat32, rank->nranks);
            struct placed placed;
            place(&placed, rank, &call);
            check_result(rank, issue(&placed, NULL), call_text(&call));
            check_and_free(&placed);
        }
}

TEST(device, every_collective_is_right_among_two_ranks_of_a_gpu)
{
    on_gpus(2, 1, NULL, every_collective, NULL);
}

TEST(device, every_collective_is_right_among_three_ranks_of_two_gpus)
{
    on_gpus(3, 2, NULL, every_collective, NULL);
}

/* Calls that follow one another on a stream of the user, which the calls' copies follow. */
static void on_a_stream(struct gpu_rank *rank)
{
    enum { NCALLS = 5 };
    struct placed placed[NCALLS];
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) {
        const struct call call =
            call_of(i % 2 ? tuttiCollAllGather : tuttiCollAllReduce, 100 + 333 * (size_t)i,
                    i % 2 ? tuttiInt64 : tuttiBfloat16, rank->nranks);
        place(&placed[i], rank, &call);
    }
    for (int i = 0; i < NCALLS; i++)
        check_result(rank, issue(&placed[i], stream), call_text(&placed[i].call));
    check_result(rank, tuttiBarrier(rank->comm, stream), "barrier");
    check_result(rank, tuttiStreamSynchronize(stream), "synchronize");
    CHECK_EQ(tuttiStreamQuery(stream), tuttiSuccess);
    for (int i = 0; i < NCALLS; i++) check_and_free(&placed[i]);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
}

TEST(device, calls_on_a_cuda_stream_run_in_order_and_are_right)
{
    on_gpus(4, 2, NULL, on_a_stream, NULL);
}

/* One thread drives all ranks of a communicator in groups. */
TEST(device, one_thread_drives_four_ranks_of_two_gpus_in_a_group)
{
    enum { NRANKS = 4 };
    const int devices[NRANKS] = {0, 1, 0, 1};
    tuttiComm_t comms[NRANKS] = {NULL};
    struct gpu_rank ranks[NRANKS];
    struct placed placed[NRANKS][2];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = (struct gpu_rank){r, NRANKS, devices[r], comms[r], NULL};
        const struct call calls[] = {call_of(tuttiCollAllReduce, 777, tuttiFloat64, NRANKS),
                                     call_of(tuttiCollReduceScatter, 50, tuttiInt32, NRANKS)};
        for (int i = 0; i < 2; i++) place(&placed[r][i], &ranks[r], &calls[i]);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < NRANKS; r++) CHECK_EQ(issue(&placed[r][i], NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < 2; i++) check_and_free(&placed[r][i]);
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    gpu_free_all();
}
