/* What optimizers keep, and exchange of whole tensors. */
#include "cost_units.h"

#include <stdlib.h>

#include "parallel/whole.h"

/* Floats of a tensor in shard `shard`. */
static long part_of(const struct tr_cost_sizes *s, const struct tr_cost_unit *unit,
                    const struct tr_cost_tensor *t, int shard)
{
    const long each = unit->total / tr_cost_shards(s), begin = each * shard;
    return tr_cost_max(0, tr_cost_min(t->offset + t->floats, begin + each) -
                              tr_cost_max(t->offset, begin));
}

/* Bytes that the optimizer keeps of a unit in shard `shard`, each state on a cache line of its own,
 * and of the sums over whole tensors. */
static long states_of(const struct tr_cost_sizes *s, const struct tr_cost_unit *unit, int shard,
                      long *sums)
{
    const struct tr_rule *rule = tr_optimizer_rule(&s->optimizer);
    long bytes = 0;
    for (int i = 0; i < unit->n; ++i) {
        const struct tr_cost_tensor *t = &unit->tensors[i];
        enum tr_state_shape shapes[TR_MOST_STATES];
        const int n = rule->states(&s->optimizer, &t->subject, shapes);
        const long part = part_of(s, unit, t, shard);
        for (int state = 0; state < n; ++state) {
            const enum tr_state_shape shape = shapes[state];
            bytes += tr_cost_up((shape == TR_STATE_TENSOR    ? part
                                 : shape == TR_STATE_ROWS    ? t->subject.shape[0]
                                 : shape == TR_STATE_COLUMNS ? t->subject.shape[1]
                                                             : 1) *
                                    4,
                                64);
        }
        if (rule->nsums) *sums += rule->nsums(&s->optimizer, &t->subject);
    }
    return bytes;
}

/* Ranks of tp that hold the same of a tensor. */
static long holders_of(const struct tr_cost_sizes *s, const struct tr_cost_tensor *tensor)
{
    return tensor->section == TR_COST_CUT      ? 1
           : tensor->section == TR_COST_SHARED ? s->tp / s->kv_heads
                                               : s->tp;
}

/* Bytes of one whole matrix, and of what is computed with it. */
static long matrices_of(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage)
{
    const struct tr_rule *rule = tr_optimizer_rule(&s->optimizer);
    long x = 0, staging = 0;
    for (int kind = 0; kind < KINDS && rule->whole; ++kind)
        for (int i = 0; i < stage->units[kind].n && stage->count[kind]; ++i) {
            const struct tr_cost_tensor *t = &stage->units[kind].tensors[i];
            if (!rule->whole(&s->optimizer, &t->subject)) continue;
            const long rows = t->subject.shape[0], cols = t->subject.shape[1];
            x = tr_cost_max(x, rows * cols);
            staging = tr_cost_max(staging, (long)rule->scratch(rows, cols));
            staging = tr_cost_max(staging, t->floats * s->tp / holders_of(s, t));
        }
    return tr_cost_up(x * 4, 64) + tr_cost_up(staging * 4, 64);
}

long tr_cost_optimizer_bytes(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             int shard)
{
    long bytes = 0, all = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        long sums = 0;
        bytes += stage->count[kind] * states_of(s, &stage->units[kind], shard, &sums);
        all += stage->count[kind] * sums;
    }
    return tr_cost_up(bytes + all * 8, 64) + matrices_of(s, stage);
}

/* Weights and states of the tensors of which this rank is the first holder. */
long tr_cost_snapshot_bytes(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                            const struct tr_cost_rank *rank)
{
    long bytes = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        const struct tr_cost_unit *unit = &stage->units[kind];
        if (kind == TOKEN && !stage->first) continue; /* the tied table is saved by the first */
        for (int i = 0; i < unit->n; ++i) {
            struct tr_cost_unit one = *unit;
            long sums = 0;
            if (rank->stage_rank % s->tp % holders_of(s, &unit->tensors[i])) continue;
            one.tensors[0] = unit->tensors[i];
            one.n = 1;
            bytes += stage->count[kind] *
                     (tr_cost_up(part_of(s, unit, &unit->tensors[i], rank->shard) * 4, 64) +
                      states_of(s, &one, rank->shard, &sums));
        }
    }
    return bytes;
}

/* The sums over whole tensors that an optimizer needs: over the shards, over tp, then one message
 * each that gives equal ranks equal bits. */
static void count_sums(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                       struct tr_cost *cost)
{
    const struct tr_rule *rule = tr_optimizer_rule(&s->optimizer);
    long sums[KINDS] = {0}, all = 0;
    if (!rule->nsums) return;
    for (int kind = 0; kind < KINDS; ++kind) {
        for (int i = 0; i < stage->units[kind].n; ++i)
            sums[kind] += rule->nsums(&s->optimizer, &stage->units[kind].tensors[i].subject);
        all += stage->count[kind] * sums[kind];
    }
    if (!all) return;
    if (tr_cost_shards(s) > 1) tr_cost_count(cost, TR_WITH_SHARDS, TR_ALL_REDUCE, 1, all * 8);
    if (s->tp > 1) tr_cost_count(cost, TR_WITH_TP, TR_ALL_REDUCE, 1, all * 8);
    if (tr_cost_replicas(s) > 1) tr_cost_count(cost, TR_WITH_REPLICAS, TR_ALL_REDUCE, 1, all * 8);
    if (s->pp > 1 && s->tied && (stage->first || stage->last))
        tr_cost_count(cost, TR_WITH_TIE, TR_ALL_REDUCE, 1, sums[TOKEN] * 8);
}

/* ---- Whole matrices ----------------------------------------------------------------------------
 */

/* The messages of a matrix: one to the owner from each part of the owner's replica, one to every
 * rank with a part, but for those that would go to the sender. */
static void count_matrix(const struct tr_cost_sizes *s, const struct tr_cost_unit *unit,
                         const struct tr_cost_tensor *t, int me, int owner, struct tr_cost *cost)
{
    const long shards = tr_cost_shards(s), holders = holders_of(s, t);
    const int tp = me % s->tp, shard = (int)(me / s->tp % shards);
    const bool first = tp % holders == 0,
               same_replica = me / s->tp / shards == owner / s->tp / shards;
    const long mine = part_of(s, unit, t, shard);
    if (me != owner) {
        if (mine && first && same_replica) tr_cost_count(cost, TR_WITH_STAGE, TR_SEND, 1, mine * 4);
        if (mine) tr_cost_count(cost, TR_WITH_STAGE, TR_RECEIVE, 1, mine * 4);
        return;
    }
    for (int other = 0; other < shards; ++other) {
        const long part = part_of(s, unit, t, other), own = other == shard;
        if (!part) continue;
        tr_cost_count(cost, TR_WITH_STAGE, TR_RECEIVE, s->tp / holders - (own && first), part * 4);
        tr_cost_count(cost, TR_WITH_STAGE, TR_SEND, tr_cost_replicas(s) * s->tp - own, part * 4);
    }
}

static void count_matrices(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage, int me,
                           struct tr_cost *cost)
{
    const struct tr_rule *rule = tr_optimizer_rule(&s->optimizer);
    const long ranks = tr_cost_shards(s) * tr_cost_replicas(s) * s->tp;
    const struct tr_cost_unit *block = &stage->units[BLOCKS];
    const int most = block->n * (int)stage->count[BLOCKS] + 1;
    if (!rule->whole || ranks == 1) return;
    double *costs = calloc((size_t)most, sizeof *costs);
    int *owner = calloc((size_t)most, sizeof *owner), *turn = calloc((size_t)most, sizeof *turn);
    const struct tr_cost_tensor **matrices = calloc((size_t)most, sizeof *matrices);
    int n = 0;
    for (int layer = 0; costs && matrices && layer < stage->count[BLOCKS]; ++layer)
        for (int i = 0; i < block->n; ++i) {
            const struct tr_subject *subject = &block->tensors[i].subject;
            if (!rule->whole(&s->optimizer, subject)) continue;
            costs[n] = tr_whole_cost(subject->shape[0], subject->shape[1]);
            matrices[n++] = &block->tensors[i];
        }
    if (owner && turn && costs && tr_whole_assign(costs, n, (int)ranks, owner, turn))
        for (int i = 0; i < n; ++i) count_matrix(s, block, matrices[i], me, owner[i], cost);
    free(costs);
    free(owner);
    free(turn);
    free(matrices);
}

void tr_cost_optimizer_calls(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             const struct tr_cost_rank *rank, struct tr_cost *cost)
{
    count_sums(s, stage, cost);
    count_matrices(s, stage, rank->stage_rank, cost);
}
