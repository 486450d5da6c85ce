/* Cross-entropy of softmax, with its gradient: in three parts, between which ranks that each hold a
 * range of the vocabulary combine their maxima and sums; and whole. */
#include "pool.h"
#include "softmax.h"
#include "table.h"

/* The column of the range [first, first + n) that holds `target`, or -1. */
static inline long column_of(int32_t target, long first, long n)
{
    return target >= first && target < first + n ? target - first : -1;
}

INLINE float logit_at(const float *logits, long column)
{
    return column < 0 ? 0 : logits[column];
}

/* The loss of one row whose logits hold exp(logit - most); leaves its gradient there. */
INLINE double finish_row(float *logits, long n, float sum, float right, float most, float weight,
                         long column)
{
    if (weight == 0) { /* a masked row counts nothing, whatever its values */
        memset(logits, 0, (size_t)n * sizeof *logits);
        return 0;
    }
    row_scale(logits, n, weight / sum);
    if (column >= 0) logits[column] -= weight;
    return (double)weight * (log((double)sum) + (double)most - (double)right);
}

struct max {
    float *most;
    const float *logits;
    long rows, n;
};

static void max_piece(const void *arg, long index)
{
    const struct max *m = arg;
    const struct tr_range part = tr_range_at(m->rows, tr_piece_rows(m->n), index);
    for (long row = part.first; row < part.first + part.n; ++row)
        m->most[row] = row_max(m->logits + row * m->n, m->n);
}

void TR_OP(xent_max)(float *most, const float *logits, long rows, long n)
{
    const struct max max = {most, logits, rows, n};
    tr_pool_run(max_piece, &max, tr_ranges(rows, tr_piece_rows(n)));
}

struct exp {
    float *sum, *right, *logits;
    const float *most;
    const int32_t *targets;
    long first, rows, n;
};

static void exp_piece(const void *arg, long index)
{
    const struct exp *e = arg;
    const struct tr_range part = tr_range_at(e->rows, tr_piece_rows(e->n), index);
    for (long row = part.first; row < part.first + part.n; ++row) {
        float *logits = e->logits + row * e->n;
        e->right[row] = logit_at(logits, column_of(e->targets[row], e->first, e->n));
        e->sum[row] = row_exp(logits, e->n, e->most[row]);
    }
}

void TR_OP(xent_exp)(float *sum, float *right, float *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n)
{
    const struct exp exp = {sum, right, logits, most, targets, first, rows, n};
    tr_pool_run(exp_piece, &exp, tr_ranges(rows, tr_piece_rows(n)));
}

/* What finishes rows: a call, or some rows of one. */
struct call {
    float *logits;
    double *losses; /* of each row */
    const float *weight;
    const int32_t *targets;
    const float *most, *sum, *right; /* not in the whole loss */
    long first, rows, n;
};

/* Calls `piece` for the rows, some at a time, and adds the losses of the rows up in their order. */
static void add_losses(tr_piece *piece, const struct call *call, double *loss)
{
    enum { ROWS = 1024 };
    double losses[ROWS], total = 0;
    for (long from = 0; from < call->rows; from += ROWS) {
        struct call some = *call;
        some.losses = losses;
        some.logits += from * some.n;
        some.weight += from;
        some.targets += from;
        some.rows = call->rows - from < ROWS ? call->rows - from : ROWS;
        if (some.most) some.most += from, some.sum += from, some.right += from;
        tr_pool_run(piece, &some, tr_ranges(some.rows, tr_piece_rows(some.n)));
        for (long row = 0; row < some.rows; ++row) total += losses[row];
    }
    if (loss) *loss += total;
}

static void finish_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->rows, tr_piece_rows(c->n), index);
    for (long row = part.first; row < part.first + part.n; ++row)
        c->losses[row] =
            finish_row(c->logits + row * c->n, c->n, c->sum[row], c->right[row], c->most[row],
                       c->weight[row], column_of(c->targets[row], c->first, c->n));
}

void TR_OP(xent_finish)(float *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n)
{
    const struct call call = {.logits = logits,
                              .weight = weight,
                              .targets = targets,
                              .most = most,
                              .sum = sum,
                              .right = right,
                              .first = first,
                              .rows = rows,
                              .n = n};
    add_losses(finish_piece, &call, loss);
}

static void loss_piece(const void *arg, long index)
{
    const struct call *c = arg;
    const struct tr_range part = tr_range_at(c->rows, tr_piece_rows(c->n), index);
    for (long row = part.first; row < part.first + part.n; ++row) {
        float *logits = c->logits + row * c->n;
        const long column = column_of(c->targets[row], 0, c->n);
        const float most = row_max(logits, c->n), right = logit_at(logits, column);
        const float sum = row_exp(logits, c->n, most);
        c->losses[row] = finish_row(logits, c->n, sum, right, most, c->weight[row], column);
    }
}

void TR_OP(loss)(float *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n)
{
    const struct call call = {
        .logits = logits, .weight = weight, .targets = targets, .rows = rows, .n = n};
    add_losses(loss_piece, &call, loss);
}
