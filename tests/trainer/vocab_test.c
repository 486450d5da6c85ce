/* Cross-entropy cut along tp against the uncut one: loss, gradient, equal bits, collectives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cut.h"

enum { MOST_ROWS = 40, MOST_COLUMNS = 300 };
static const double TOLERANCE = 2e-6;

struct problem {
    long rows, columns;
    float logits[MOST_ROWS * MOST_COLUMNS], weights[MOST_ROWS];
    int32_t targets[MOST_ROWS];
};

/* The problem, which is equal on every rank. Targets lie at the edges of the ranges too; every
 * third row is masked. */
static void make_problem(struct problem *p, long rows, long columns, int ranks)
{
    uint32_t x = (uint32_t)(rows * 1000 + columns);
    p->rows = rows;
    p->columns = columns;
    for (long i = 0; i < rows * columns; ++i) {
        x = x * 1664525 + 1013904223;
        p->logits[i] = (float)((double)(x >> 8) / (1 << 20) - 8); /* -8 to 8 */
    }
    for (long row = 0; row < rows; ++row) {
        const long edge = (columns + ranks - 1) / ranks * (row % (ranks + 1)) - row % 2;
        p->targets[row] = (int32_t)(edge < 0 ? 0 : edge < columns ? edge : columns - 1);
        p->weights[row] = row % 3 == 2 ? 0 : 1;
    }
}

/* The last ranks may have fewer columns, or none. */
static void range_of(const struct problem *p, int ranks, int rank, long *first, long *n)
{
    const long most = (p->columns + ranks - 1) / ranks;
    *first = most * rank < p->columns ? most * rank : p->columns;
    *n = p->columns - *first < most ? p->columns - *first : most;
}

static uint64_t calls_on(const struct tr_group *group)
{
    tuttiCounters_t counters = {0};
    CHECK_EQ(tuttiCommCounters(group->comm, &counters), tuttiSuccess);
    return counters.collectives;
}

static void check_same_bits(const struct tr_group *tp, double loss)
{
    double all[MOST_RANKS];
    REQUIRE(tuttiAllGather(&loss, all, 1, tuttiFloat64, tp->comm, NULL) == tuttiSuccess);
    for (int r = 0; r < tp->n; ++r) CHECK(memcmp(&all[r], &loss, sizeof loss) == 0);
}

static void check_problem(struct place *place, const struct problem *p)
{
    const struct tr_group *tp = place->parallel.tp;
    long first, n;
    range_of(p, tp->n, tp->rank, &first, &n);
    float *whole = malloc(sizeof p->logits), *mine = malloc(sizeof p->logits);
    memcpy(whole, p->logits, sizeof p->logits);
    for (long row = 0; row < p->rows; ++row)
        memcpy(mine + row * n, p->logits + row * p->columns + first, (size_t)n * sizeof *mine);
    double expected = 0, loss = 0;
    place->parallel.backend->loss(data_of(whole), &expected, p->weights, p->targets, p->rows,
                                  p->columns);
    const size_t scratch = tr_vocab_scratch(&place->parallel, p->rows);
    place->parallel.scratch = malloc(scratch + 1);
    const uint64_t before = calls_on(tp);
    CHECK_EQ(tr_vocab_loss(&place->parallel, data_of(mine), p->targets, p->weights, first, p->rows,
                           n, &loss),
             TR_OK);
    CHECK_EQ(calls_on(tp) - before, 2);
    CHECK_MESSAGE(fabs(loss - expected) <= TOLERANCE * fabs(expected), "loss %.9g, uncut %.9g",
                  loss, expected);
    check_same_bits(tp, loss);
    double off = 0;
    for (long row = 0; row < p->rows; ++row)
        for (long i = 0; i < n; ++i) {
            const double difference =
                fabs((double)mine[row * n + i] - (double)whole[row * p->columns + first + i]);
            if (!(difference <= off)) off = difference;
        }
    CHECK_MESSAGE(off <= TOLERANCE, "%ld rows, %ld columns: a gradient is off by %g", p->rows,
                  p->columns, off);
    free(place->parallel.scratch);
    free(whole);
    free(mine);
}

static void lose_everything(struct rank *self)
{
    static const long rows[] = {0, 1, 40}, columns[] = {2, 11, 257, 300};
    struct place place;
    if (!settle(&place, self, self->arg)) return;
    struct problem *p = malloc(sizeof *p);
    for (int r = 0; r < 3; ++r)
        for (int c = 0; c < 4; ++c) {
            make_problem(p, rows[r], columns[c], self->nranks);
            check_problem(&place, p);
        }
    free(p);
    tr_mesh_fini(&place.mesh);
}

TEST(vocab, loss_and_gradient_of_a_cut_vocabulary_equal_those_of_the_whole)
{
    for (int tp = 2; tp <= 4; ++tp) {
        const struct cut cut = {1, 1, tp};
        run_cut(&cut, lose_everything);
    }
}

static void lose_a_rank(struct rank *self)
{
    struct place place;
    if (!settle(&place, self, self->arg)) return;
    float logits[] = {1, 2}, scratch[3];
    const float weight = 1;
    const int32_t target = 0;
    double loss = 0;
    place.parallel.scratch = scratch;
    if (self->rank == 1)
        abort_group(&place, TR_TP);
    else
        check_failed(
            tr_vocab_loss(&place.parallel, data_of(logits), &target, &weight, 0, 1, 2, &loss),
            "finding the largest logits of a vocabulary cut along tp");
    tr_mesh_fini(&place.mesh);
}

TEST(vocab, the_loss_fails_with_a_sentence_when_a_rank_leaves)
{
    const struct cut cut = {1, 1, 2};
    run_cut(&cut, lose_a_rank);
}
