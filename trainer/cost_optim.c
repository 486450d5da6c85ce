/* What optimizers keep, and exchange of whole tensors. */
#include "cost_units.h"

/* Bytes that the optimizer keeps of a unit in shard `shard`, each state on a cache line of its own,
 * and of the sums over whole tensors. */
static long states_of(const struct tr_cost_sizes *s, const struct tr_cost_unit *unit, int shard,
                      long *sums)
{
    const struct tr_rule *rule = tr_optimizer_rule(&s->optimizer);
    const long each = unit->total / tr_cost_shards(s), begin = each * shard;
    long bytes = 0;
    for (int i = 0; i < unit->n; ++i) {
        const struct tr_cost_tensor *t = &unit->tensors[i];
        enum tr_state_shape shapes[TR_MOST_STATES];
        const int n = rule->states(&s->optimizer, &t->subject, shapes);
        const long part = tr_cost_max(0, tr_cost_min(t->offset + t->floats, begin + each) -
                                             tr_cost_max(t->offset, begin));
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

long tr_cost_optimizer_bytes(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
                             int shard)
{
    long bytes = 0, all = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        long sums = 0;
        bytes += stage->count[kind] * states_of(s, &stage->units[kind], shard, &sums);
        all += stage->count[kind] * sums;
    }
    return bytes + all * 8;
}

/* The sums over whole tensors that an optimizer needs: over the shards, over tp, then one message
 * each that gives equal ranks equal bits. */
void tr_cost_optimizer_calls(const struct tr_cost_sizes *s, const struct tr_cost_stage *stage,
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
    if (tr_cost_shards(s) > 1) tr_cost_count(cost, TR_COST_SHARD, TR_COST_ALL_REDUCE, 1, all * 8);
    if (s->tp > 1) tr_cost_count(cost, TR_COST_TP, TR_COST_ALL_REDUCE, 1, all * 8);
    if (tr_cost_replicas(s) > 1)
        tr_cost_count(cost, TR_COST_REPLICA, TR_COST_ALL_REDUCE, 1, all * 8);
    if (s->pp > 1 && s->tied && (stage->first || stage->last))
        tr_cost_count(cost, TR_COST_TIE, TR_COST_ALL_REDUCE, 1, sums[TOKEN] * 8);
}
