/* Calls of collectives on the memory of a GPU, checked against the serial reference. */
#include "calls_on_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin(struct placed *p, const struct gpu_rank *rank, const struct call *call)
{
    const size_t size = call_type_size(call->type);
    *p = (struct placed){.call = *call, .rank = rank, .op = call->op};
    p->input_bytes = call_input_count(call, rank->rank) * size;
    p->output_bytes = call_output_count(call, rank->rank) * size;
}

static void fill(struct placed *p)
{
    const struct gpu_rank *rank = p->rank;
    const struct call *call = &p->call;
    char *data = malloc(p->input_bytes + 1);
    call_input(call, rank->rank, data);
    gpu_write(rank->gpu, p->input, data, p->input_bytes);
    free(data);
    if (!call_reduces(call) || call->op != tuttiFirstDynamicRedOp) return;
    char scalar[8];
    call_scalar(call, scalar);
    p->scalar = gpu_memory(rank->gpu, sizeof scalar);
    gpu_write(rank->gpu, p->scalar, scalar, sizeof scalar);
    if (tuttiRedOpCreatePreMulSum(&p->op, p->scalar, call->type, tuttiScalarDevice, rank->comm))
        p->op = tuttiMaxRedOp;
}

void place_call(struct placed *p, const struct gpu_rank *rank, const struct call *call, size_t skew)
{
    begin(p, rank, call);
    p->memory[0] = gpu_memory(rank->gpu, p->input_bytes + 1 + skew);
    p->memory[1] = gpu_memory(rank->gpu, p->output_bytes + 1 + skew);
    p->input = p->memory[0] + skew;
    p->output = p->memory[1] + skew;
    fill(p);
}

void place_call_in_place(struct placed *p, const struct gpu_rank *rank, const struct call *call,
                         size_t skew)
{
    size_t input, output;
    begin(p, rank, call);
    call_in_place(call, rank->rank, &input, &output);
    p->memory[0] = gpu_memory(rank->gpu, p->input_bytes + p->output_bytes + 1 + skew);
    p->input = p->memory[0] + skew + input;
    p->output = p->memory[0] + skew + output;
    fill(p);
}

bool check_call(struct placed *p)
{
    char *got = malloc(p->output_bytes + 1), *expected = malloc(p->output_bytes + 1);
    /* The byte behind a buffer of its own is nobody's. */
    const size_t nbytes = p->output_bytes + (p->memory[1] != NULL);
    memset(expected, 0xa5, p->output_bytes + 1); /* gaps between blocks are nobody's either */
    call_expected(&p->call, p->rank->rank, expected);
    gpu_read(p->rank->gpu, got, p->output, nbytes);
    const bool right = !memcmp(got, expected, nbytes);
    free(got);
    free(expected);
    gpu_free(p->memory[0]);
    if (p->memory[1]) gpu_free(p->memory[1]);
    if (p->scalar) gpu_free(p->scalar);
    if (p->scalar) (void)tuttiRedOpDestroy(p->op, p->rank->comm);
    return right;
}

/* The kinds with a V. The arrays are gone when this returns. */
static tuttiResult_t issue_blocks(const struct placed *p, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    tuttiComm_t comm = p->rank->comm;
    const bool is_root = p->rank->rank == c->root;
    void *in = p->input, *out = p->output;
    struct call_arrays a;
    call_arrays_of(c, p->rank->rank, &a);
    switch (c->kind) {
    case ALL_GATHER_V:
        return tuttiAllGatherV(in, out, a.counts[0], a.begins[0], c->type, comm, stream);
    case REDUCE_SCATTER_V:
        return tuttiReduceScatterV(in, out, a.counts[0], c->type, p->op, comm, stream);
    case GATHER_V:
        return tuttiGatherV(in, is_root ? out : NULL, a.counts[0], a.begins[0], c->type, c->root,
                            comm, stream);
    case SCATTER_V:
        return tuttiScatterV(is_root ? in : NULL, out, a.counts[1], a.begins[1], c->type, c->root,
                             comm, stream);
    default:
        return tuttiAlltoAllV(in, a.counts[1], a.begins[1], out, a.counts[0], a.begins[0], c->type,
                              comm, stream);
    }
}

static tuttiResult_t issue_exchange(const struct placed *p, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    const struct gpu_rank *rank = p->rank;
    const int to = (rank->rank + c->root) % c->nranks,
              from = (rank->rank - c->root + c->nranks) % c->nranks;
    tuttiResult_t result = tuttiGroupStart();
    if (!result) result = tuttiSend(p->input, c->count, c->type, to, rank->comm, stream);
    if (!result) result = tuttiRecv(p->output, c->count, c->type, from, rank->comm, stream);
    const tuttiResult_t end = tuttiGroupEnd();
    return result ? result : end;
}

tuttiResult_t issue_call(const struct placed *p, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    tuttiComm_t comm = p->rank->comm;
    const bool is_root = p->rank->rank == c->root;
    void *in = p->input, *out = p->output;
    if (c->kind == EXCHANGE) return issue_exchange(p, stream);
    if (c->kind > EXCHANGE) return issue_blocks(p, stream);
    switch (c->kind) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, c->count, c->type, p->op, comm, stream);
    case tuttiCollReduce:
        return tuttiReduce(in, is_root ? out : NULL, c->count, c->type, p->op, c->root, comm,
                           stream);
    case tuttiCollBroadcast:
        return tuttiBroadcast(is_root ? in : NULL, out, c->count, c->type, c->root, comm, stream);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, c->count, c->type, comm, stream);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, c->count, c->type, p->op, comm, stream);
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

uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

struct call draw_call(uint64_t *state, int nranks)
{
    static const tuttiRedOp_t operations[] = {
        tuttiSum,        tuttiProd,      tuttiMax,
        tuttiMin,        tuttiAvg,       tuttiFirstDynamicRedOp,
        tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
        tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
    struct call call = {.kind = (int)(next_number(state) % NKINDS),
                        .type = (tuttiDataType_t)(next_number(state) % tuttiNumTypes),
                        .root = (int)(next_number(state) % (uint64_t)nranks),
                        .nranks = nranks};
    const bool integer = call.type < tuttiFloat16 || call.type >= tuttiInt16;
    call.op = operations[next_number(state) % (integer ? 12 : 6)];
    const uint64_t size = next_number(state) % 10;
    call.count = (size_t)(next_number(state) % (size < 2   ? 3
                                                : size < 6 ? 70
                                                : size < 9 ? 900
                                                           : 9000));
    call.salt = next_number(state);
    if (call.kind == tuttiCollBarrier) call.count = 0;
    return call;
}

int random_calls_on_gpu(const struct gpu_rank *rank, uint64_t seed, int ncalls)
{
    uint64_t state = seed;
    int nwrong = 0;
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    const tuttiResult_t made = rank->gpu < 0
                                   ? tuttiStreamCreate(&stream)
                                   : tuttiStreamFromDevice(&stream, rank->gpu, device_stream);
    if (made != tuttiSuccess) return ncalls;
    for (int i = 0; i < ncalls; i++) {
        const struct call call = draw_call(&state, rank->nranks);
        const bool on_stream = next_number(&state) % 2 || call.kind == tuttiCollBarrier;
        struct placed placed;
        const size_t skew = next_number(&state) % 4 * call_type_size(call.type);
        if (next_number(&state) % 3 == 0 && call_can_be_in_place(&call))
            place_call_in_place(&placed, rank, &call, skew);
        else
            place_call(&placed, rank, &call, skew);
        tuttiResult_t result = issue_call(&placed, on_stream ? stream : NULL);
        if (!result && on_stream) result = tuttiStreamSynchronize(stream);
        const bool right = check_call(&placed) && !result;
        if (!right)
            fprintf(stderr, "rank %d: call %d of seed %llu: %s: %s\n", rank->rank, i,
                    (unsigned long long)seed, call_text(&call), tuttiGetLastError(rank->comm));
        nwrong += !right;
        if (result) break;
    }
    (void)tuttiStreamDestroy(stream);
    gpu_stream_destroy(rank->gpu, device_stream);
    return nwrong;
}
