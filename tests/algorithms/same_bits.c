/* An all-reduce gives every rank the same bits: all of them must fold the same contributions in the
 * same order. Here a contribution is a number, and folding is a function that is neither
 * commutative nor associative. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "each.h"
#include "schedule/network.h"

enum { MOST = 17 };

/* One channel of one run. A message is a copy of the blocks sent; all are freed at the end. */
struct run {
    const struct tt_shape *shape;
    int nblocks;
    uint64_t memory[3][MOST][MOST]; /* by buffer, rank and block */
    struct copy {
        struct copy *next;
        uint64_t blocks[MOST];
    } * copies;
};

static uint64_t fold(uint64_t a, uint64_t b)
{
    a = (a ^ (b >> 7)) * 0x9e3779b97f4a7c15u + b;
    return a ^ a >> 29;
}

static uint64_t *block_of(struct run *run, const struct tt_span *span, int rank, int i)
{
    return &run->memory[span->buffer][rank][tt_span_name(span, i, run->nblocks)];
}

static tt_status begin(void *arg, int rank, int index, const struct tt_step *step)
{
    (void)arg, (void)rank, (void)index, (void)step;
    return TT_OK;
}

static void drop(void *arg, void *message)
{
    (void)arg, (void)message;
}

/* The i-th block of the result of a step over links. */
static uint64_t result_of(struct run *run, int rank, const struct tt_step *step,
                          void *const *received, int i)
{
    uint64_t sources[MOST + 1] = {0};
    int n = 0;
    for (int k = 0; k <= step->recv.number; k++) {
        if (step->local.number > 0 && k == step->own_at)
            sources[n++] = *block_of(run, &step->local, rank, i);
        if (k < step->recv.number) sources[n++] = ((const struct copy *)received[k])->blocks[i];
    }
    for (int k = 1; k < n; k++) sources[0] = fold(sources[0], sources[k]);
    return sources[0];
}

static tt_status link(void *arg, int rank, int index, const struct tt_step *step,
                      void *const *received, void **sent)
{
    (void)index;
    struct run *run = arg;
    struct copy *copy = calloc(1, sizeof *copy);
    if (!copy) return TT_ERR_SYSTEM;
    copy->next = run->copies;
    run->copies = copy;
    const int number = step->dst.number > 0 ? step->dst.number : step->local.number;
    for (int i = 0; i < number; i++) copy->blocks[i] = result_of(run, rank, step, received, i);
    for (int i = 0; i < step->dst.number; i++)
        *block_of(run, &step->dst, rank, i) = copy->blocks[i];
    *sent = copy;
    return TT_OK;
}

/* What a meeting gives for a block: all members put it in, or one of them. */
static uint64_t met(struct run *run, const struct tt_network *network,
                    const struct tt_peers *members, int name)
{
    uint64_t result = 0;
    bool first = true;
    for (int k = 0; k < members->number; k++) {
        const int rank = tt_peer_at(members, k, run->shape->nranks);
        const struct tt_step *step = tt_network_step(network, rank, NULL);
        const int i = name - step->local.first;
        if (i < 0 || i >= step->local.number) continue;
        const uint64_t put = *block_of(run, &step->local, rank, i);
        result = first ? put : fold(result, put);
        first = false;
    }
    return result;
}

static tt_status meet(void *arg, const struct tt_network *network, const struct tt_peers *members)
{
    struct run *run = arg;
    uint64_t taken[MOST];
    for (int name = 0; name < run->nblocks; name++) taken[name] = met(run, network, members, name);
    for (int k = 0; k < members->number; k++) {
        const int rank = tt_peer_at(members, k, run->shape->nranks);
        const struct tt_step *step = tt_network_step(network, rank, NULL);
        for (int i = 0; i < step->dst.number; i++)
            *block_of(run, &step->dst, rank, i) = taken[step->dst.first + i];
    }
    return TT_OK;
}

static void compare(const struct tt_steps *steps, const char *where, int channel)
{
    static const struct tt_network_ops ops = {
        .begin = begin, .link = link, .meet = meet, .drop = drop};
    const int nranks = steps->shape.nranks;
    struct run run = {.shape = &steps->shape,
                      .nblocks = tt_nblocks(steps->algorithm, &steps->shape)};
    for (int rank = 0; rank < nranks; rank++)
        for (int name = 0; name < run.nblocks; name++)
            run.memory[TT_INPUT][rank][name] = (uint64_t)(rank * MOST + name + 1);
    struct tt_network_report report = {.text = ""};
    CHECK(tt_network_run(steps, channel, &ops, &run, &report) == TT_OK);
    for (int rank = 1; rank < nranks; rank++)
        CHECK_MESSAGE(memcmp(run.memory[TT_OUTPUT][rank], run.memory[TT_OUTPUT][0],
                             sizeof run.memory[TT_OUTPUT][0]) == 0,
                      "%s, %d ranks%s%s: rank %d folds in another order than rank 0",
                      steps->algorithm->name, nranks, where[0] ? " on " : "", where, rank);
    while (run.copies) {
        struct copy *next = run.copies->next;
        free(run.copies);
        run.copies = next;
    }
}

static void compare_channels(const struct tt_steps *steps, const char *where)
{
    const int nchannels = tt_nchannels(steps->algorithm, &steps->shape);
    for (int channel = 0; channel < nchannels; channel++) compare(steps, where, channel);
}

TEST(same_bits, every_all_reduce_folds_alike_on_every_rank)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_algorithm_at(TT_ALL_REDUCE, i)) && !algorithm->parts; i++)
        for (int nranks = 1; nranks <= MOST; nranks++) {
            const struct tt_steps steps = {.algorithm = algorithm,
                                           .shape = shape_of(algorithm, nranks, 0)};
            compare_channels(&steps, "");
        }
}

TEST(same_bits, every_all_reduce_between_hosts_folds_alike_on_every_rank)
{
    const struct tt_algorithm *algorithm;
    struct placed placed;
    for (int i = 0; (algorithm = tt_algorithm_at(TT_ALL_REDUCE, i)); i++)
        for (int p = 0; each_placement(p); p++) {
            if (!place(&placed, algorithm, each_placement(p))) continue;
            if (tt_nblocks(algorithm, &placed.steps.shape) <= MOST)
                compare_channels(&placed.steps, each_placement(p));
            tt_hosts_destroy(placed.hosts);
        }
}
