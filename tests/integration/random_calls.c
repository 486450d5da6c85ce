/* Draws collectives from a seed, runs them and checks every result. */
#include "random_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reference.h"

enum { NCOMMS = 3, MAX_BATCH = 4, MAX_PENDING = 32, MAX_SAID = 5 };

/* A call with this rank's buffers, from its issue until it is checked. */
struct pending {
    struct call call;
    int rank; /* in the call's communicator */
    tuttiComm_t comm;
    char *memory;
    char *image; /* of memory, on the host; memory itself where that is the host's */
    size_t memory_bytes;
    bool window;          /* memory is tuttiMemAlloc's */
    char *input, *output; /* within memory; may overlap when in place */
    bool in_place;
    tuttiRedOp_t dynamic; /* to destroy; 0: none */
};

struct run {
    const struct call_memory *elsewhere; /* NULL: buffers are memory of the host */
    tuttiComm_t comms[NCOMMS];
    int ranks[NCOMMS], nranks[NCOMMS];
    tuttiStream_t streams[NCOMMS];
    uint64_t common, own; /* random states: drawn alike, drawn by this rank */
    struct pending pending[MAX_PENDING];
    int npending, nwrong;
    bool failed; /* a call failed: the rest cannot go on */
};

static void complain(struct run *run, const struct pending *p, const char *what, long long where)
{
    if (run->nwrong++ < MAX_SAID)
        fprintf(stderr, "rank %d: %s%s: %s (%lld): %s\n", p->rank, call_text(&p->call),
                p->in_place ? ", in place" : "", what, where, tuttiGetLastError(p->comm));
}

static void draw_call(struct run *run, struct call *call, int *which)
{
    uint64_t *state = &run->common;
    static const int operations[] = {tuttiSum,        tuttiProd,      tuttiMax,
                                     tuttiMin,        tuttiAvg,       tuttiFirstDynamicRedOp,
                                     tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
                                     tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
    *call = (struct call){.kind = random_below(state, NKINDS),
                          .type = (tuttiDataType_t)random_below(state, tuttiNumTypes)};
    const int size_class = random_below(state, 50);
    call->count = (size_t)random_below(state, size_class < 3    ? 1
                                              : size_class < 25 ? 65
                                              : size_class < 48 ? 5000
                                                                : 120000);
    const bool integer = call->type < tuttiFloat16 || call->type >= tuttiInt16;
    call->op = (tuttiRedOp_t)operations[random_below(state, integer ? 12 : 6)];
    *which = random_below(state, NCOMMS);
    call->salt = next_random(state);
    call->root = (int)(next_random(state) % 1000000); /* made smaller by the communicator's size */
    if (call->kind == tuttiCollBarrier) call->count = 0;
}

/* Where the input lies from the start of memory; the output's offset in *output. */
static size_t place(const struct call *call, int rank, bool in_place, size_t *output)
{
    size_t input = 0;
    *output = call_input_count(call, rank) * call_type_size(call->type) + 64;
    if (in_place) call_in_place(call, rank, &input, output);
    return input;
}

static bool allocate(struct run *run, struct pending *p)
{
    void *memory = NULL;
    if (run->elsewhere) {
        p->memory = run->elsewhere->allocate(run->elsewhere->gpu, p->memory_bytes);
        p->image = malloc(p->memory_bytes);
        return p->memory && p->image;
    }
    p->window = random_below(&run->own, 4) == 0;
    if (p->window ? tuttiMemAlloc(&memory, p->memory_bytes) != tuttiSuccess
                  : !(memory = malloc(p->memory_bytes)))
        return false;
    p->memory = p->image = memory;
    return true;
}

static tuttiResult_t free_memory(struct run *run, struct pending *p)
{
    if (run->elsewhere) {
        run->elsewhere->free(p->memory);
        free(p->image);
    } else if (p->window) {
        return tuttiMemFree(p->memory);
    } else {
        free(p->memory);
    }
    return tuttiSuccess;
}

static bool prepare(struct run *run, struct pending *p)
{
    const struct call *call = &p->call;
    const size_t size = call_type_size(call->type);
    size_t output;
    p->in_place = call_can_be_in_place(call) && random_below(&run->own, 2);
    const size_t skew = (size_t)random_below(&run->own, 4) * size;
    const size_t input = place(call, p->rank, p->in_place, &output);
    p->memory_bytes =
        (call_input_count(call, p->rank) + call_output_count(call, p->rank)) * size + 256;
    if (!allocate(run, p)) return false;
    p->input = p->memory + skew + input;
    p->output = p->memory + skew + output;
    memset(p->image, 0xa5, p->memory_bytes);
    call_input(call, p->rank, p->image + skew + input);
    if (run->elsewhere)
        run->elsewhere->write(run->elsewhere->gpu, p->memory, p->image, p->memory_bytes);
    p->dynamic = 0;
    if (!call_reduces(call) || call->op != tuttiFirstDynamicRedOp) return true;
    char scalar[8];
    call_scalar(call, scalar);
    return tuttiRedOpCreatePreMulSum(&p->dynamic, scalar, call->type, tuttiScalarHostImmediate,
                                     p->comm) == tuttiSuccess;
}

/* The kinds with a V. The arrays are gone when this returns. */
static tuttiResult_t issue_blocks(const struct pending *p, tuttiRedOp_t op, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    const bool is_root = p->rank == c->root;
    struct call_arrays arrays;
    call_arrays_of(c, p->rank, &arrays);
    const size_t *const counts[2] = {arrays.counts[0], arrays.counts[1]};
    const size_t *const *at = arrays.begins;
    void *const in = p->input, *const out = p->output;
    switch (c->kind) {
    case ALL_GATHER_V:
        return tuttiAllGatherV(in, out, counts[0], at[0], c->type, p->comm, stream);
    case REDUCE_SCATTER_V:
        return tuttiReduceScatterV(in, out, counts[0], c->type, op, p->comm, stream);
    case GATHER_V:
        return tuttiGatherV(in, is_root ? out : NULL, counts[0], at[0], c->type, c->root, p->comm,
                            stream);
    case SCATTER_V:
        return tuttiScatterV(is_root ? in : NULL, out, counts[1], at[1], c->type, c->root, p->comm,
                             stream);
    default:
        return tuttiAlltoAllV(in, counts[1], at[1], out, counts[0], at[0], c->type, p->comm,
                              stream);
    }
}

static tuttiResult_t issue(const struct pending *p, tuttiStream_t stream)
{
    const struct call *c = &p->call;
    const tuttiRedOp_t op = p->dynamic ? p->dynamic : c->op;
    const bool is_root = p->rank == c->root;
    void *const in = p->input, *const out = p->output;
    if (c->kind > EXCHANGE) return issue_blocks(p, op, stream);
    switch (c->kind) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, c->count, c->type, op, p->comm, stream);
    case tuttiCollReduce:
        return tuttiReduce(in, is_root ? out : NULL, c->count, c->type, op, c->root, p->comm,
                           stream);
    case tuttiCollBroadcast:
        return tuttiBroadcast(is_root ? in : NULL, out, c->count, c->type, c->root, p->comm,
                              stream);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, c->count, c->type, p->comm, stream);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, c->count, c->type, op, p->comm, stream);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, c->count, c->type, p->comm, stream);
    case tuttiCollScatter:
        return tuttiScatter(is_root ? in : NULL, out, c->count, c->type, c->root, p->comm, stream);
    case tuttiCollGather:
        return tuttiGather(in, is_root ? out : NULL, c->count, c->type, c->root, p->comm, stream);
    case tuttiCollBarrier:
        return tuttiBarrier(p->comm, stream);
    default:
        break;
    }
    const tuttiResult_t start = tuttiGroupStart();
    const tuttiResult_t sent =
        tuttiSend(in, c->count, c->type, (p->rank + c->root) % c->nranks, p->comm, stream);
    const tuttiResult_t received =
        tuttiRecv(out, c->count, c->type, (p->rank - c->root % c->nranks + c->nranks) % c->nranks,
                  p->comm, stream);
    const tuttiResult_t end = tuttiGroupEnd();
    return start ? start : sent ? sent : received ? received : end;
}

/* The result, and that nothing else in memory changed. */
static void check(struct run *run, struct pending *p)
{
    const size_t size = call_type_size(p->call.type);
    char *expected = malloc(p->memory_bytes);
    if (!expected) abort();
    memset(expected, 0xa5, p->memory_bytes);
    call_input(&p->call, p->rank, expected + (p->input - p->memory));
    call_expected(&p->call, p->rank, expected + (p->output - p->memory));
    /* A rank that is not the root keeps its input, wherever it lies; an in-place root's is
     * overwritten by the result. */
    if (run->elsewhere)
        run->elsewhere->read(run->elsewhere->gpu, p->image, p->memory, p->memory_bytes);
    size_t i = 0;
    while (i < p->memory_bytes && expected[i] == p->image[i]) i++;
    if (i < p->memory_bytes)
        complain(run, p, "first wrong element",
                 ((long long)i - (p->output - p->memory)) / (long long)size);
    free(expected);
    if (p->dynamic && tuttiRedOpDestroy(p->dynamic, p->comm) != tuttiSuccess)
        complain(run, p, "op destroy", 0);
    if (free_memory(run, p) != tuttiSuccess) complain(run, p, "free", 0);
}

static void need(struct run *run, tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return;
    run->failed = true;
    if (run->nwrong++ < MAX_SAID)
        fprintf(stderr, "%s: %s: %s\n", what, tuttiGetErrorString(result), tuttiGetLastError(NULL));
}

static void settle(struct run *run)
{
    for (int c = 0; c < NCOMMS; c++)
        need(run, tuttiStreamSynchronize(run->streams[c]), "synchronize");
    for (int i = 0; i < run->npending; i++) check(run, &run->pending[i]);
    run->npending = 0;
}

/* Forces some algorithm for some collective on some communicator, if it can be on its hosts, or
 * leaves the choice to the library again. */
static void draw_algorithm(struct run *run)
{
    const tuttiCollective_t kind =
        (tuttiCollective_t)random_below(&run->common, tuttiNumCollectives);
    const tuttiComm_t comm = run->comms[random_below(&run->common, NCOMMS)];
    int n = 0;
    while (tuttiAlgorithmName(kind, n)) n++;
    const int which = random_below(&run->common, n + 1);
    const char *name = which < n ? tuttiAlgorithmName(kind, which) : NULL;
    if (!comm) return;
    const tuttiResult_t result = tuttiCommSetAlgorithm(comm, kind, name);
    if (!name || result != tuttiInvalidUsage) need(run, result, "set algorithm");
}

/* One batch: 1 to MAX_BATCH calls, in a group or one by one. */
static int batch(struct run *run)
{
    const int n = 1 + random_below(&run->common, MAX_BATCH);
    const bool grouped = random_below(&run->common, 2), streams = random_below(&run->common, 2);
    const bool settled = random_below(&run->common, 3) == 0;
    if (!streams || settled || run->npending + n > MAX_PENDING) settle(run);
    draw_algorithm(run);
    const int first = run->npending;
    int which[MAX_BATCH];
    for (int i = 0; i < n; i++) {
        struct pending p = {.rank = 0};
        int c;
        draw_call(run, &p.call, &c);
        if (!run->comms[c]) continue; /* not a member */
        p.comm = run->comms[c];
        p.rank = run->ranks[c];
        p.call.nranks = run->nranks[c];
        p.call.root %= p.call.nranks;
        if (!prepare(run, &p)) complain(run, &p, "no memory or no operation", 0);
        which[run->npending - first] = c;
        run->pending[run->npending++] = p;
    }
    if (grouped) need(run, tuttiGroupStart(), "group start");
    for (int i = first; i < run->npending; i++) {
        const tuttiResult_t result =
            issue(&run->pending[i], streams ? run->streams[which[i - first]] : NULL);
        if (result == tuttiSuccess) continue;
        run->failed = true;
        complain(run, &run->pending[i], tuttiGetErrorString(result), result);
    }
    if (grouped) need(run, tuttiGroupEnd(), "group end");
    if (!streams) settle(run);
    return n;
}

static tuttiResult_t make_stream(const struct run *run, tuttiStream_t *stream, void **device_stream)
{
    if (!run->elsewhere) return tuttiStreamCreate(stream);
    *device_stream = run->elsewhere->make_stream(run->elsewhere->gpu);
    return tuttiStreamFromDevice(stream, run->elsewhere->gpu, *device_stream);
}

int random_calls(tuttiComm_t comm, uint64_t seed, int ncalls)
{
    return random_calls_in(NULL, comm, seed, ncalls);
}

int random_calls_in(const struct call_memory *elsewhere, tuttiComm_t comm, uint64_t seed,
                    int ncalls)
{
    struct run *run = calloc(1, sizeof *run);
    void *device_streams[NCOMMS];
    if (!run) abort();
    run->elsewhere = elsewhere;
    run->comms[0] = comm;
    int rank, nranks;
    if (tuttiCommUserRank(comm, &rank) || tuttiCommCount(comm, &nranks)) abort();
    run->common = seed;
    run->own = seed ^ (((uint64_t)rank + 1) << 32);
    for (int c = 1; c < NCOMMS; c++) {
        const uint64_t colors = next_random(&run->common), keys = next_random(&run->common);
        const int color = (int)(colors >> (2 * rank) & 3),
                  key = (int)(keys >> (8 * rank % 56) & 255);
        if (tuttiCommSplit(comm, color == 3 ? TUTTI_SPLIT_NOCOLOR : color & 1, key, &run->comms[c],
                           NULL))
            run->nwrong++;
    }
    for (int c = 0; c < NCOMMS; c++) {
        if (make_stream(run, &run->streams[c], &device_streams[c])) abort();
        if (!run->comms[c]) continue;
        if (tuttiCommUserRank(run->comms[c], &run->ranks[c]) ||
            tuttiCommCount(run->comms[c], &run->nranks[c]))
            abort();
    }
    for (int done = 0; done < ncalls && !run->failed;) done += batch(run);
    settle(run);
    for (int c = 0; c < NCOMMS; c++) {
        if (c && tuttiCommDestroy(run->comms[c])) run->nwrong++;
        if (tuttiStreamDestroy(run->streams[c])) run->nwrong++;
        if (elsewhere) elsewhere->destroy_stream(elsewhere->gpu, device_streams[c]);
    }
    const int nwrong = run->nwrong;
    free(run);
    return nwrong;
}
