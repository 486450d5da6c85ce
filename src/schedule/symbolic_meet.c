/* Symbolic meetings: every rank of a host puts its part in and takes a result. */
#include "schedule/symbolic.h"

#include <stdlib.h>
#include <string.h>

/* What the members have put in: blocks of member i from starts[i] on; all by place. Memory of one
 * meeting. */
struct table {
    struct tt_symbolic *run;
    const struct tt_network *network;
    const struct tt_peers *members;
    struct tt_value *blocks;
    size_t *starts;
    struct tt_value *folded; /* [nblocks]; number 0: not needed so far */
    int *owners;             /* [nblocks]; the member that put it in; nobody or several: below 0 */
    const struct tt_span *part; /* the first span that any member names; NULL: none so far */
    int taker;                  /* the first member that takes anything; -1: none so far */
};

enum { NOBODY = -1, SEVERAL = -2 };

static struct tt_action action_of(const struct table *table, int member)
{
    struct tt_action action = {.rank =
                                   tt_peer_at(table->members, member, table->run->shape->nranks)};
    action.step = tt_network_step(table->network, action.rank, &action.index);
    return action;
}

static tt_status open_table(struct table *table)
{
    const size_t n = (size_t)table->members->number;
    const size_t nblocks = (size_t)table->run->geometry.nblocks + 1;
    size_t total = 0;
    table->starts = calloc(n, sizeof *table->starts);
    table->folded = calloc(nblocks, sizeof *table->folded);
    table->owners = calloc(nblocks, sizeof *table->owners);
    if (!table->starts || !table->folded || !table->owners) return tt_symbolic_no_memory();
    for (int i = 0; i < table->members->number; i++) {
        table->starts[i] = total;
        total += (size_t)action_of(table, i).step->local.number;
    }
    table->blocks = calloc(total + 1, sizeof *table->blocks);
    for (size_t i = 0; i < nblocks; i++) table->owners[i] = NOBODY;
    return table->blocks ? TT_OK : tt_symbolic_no_memory();
}

static void close_table(struct table *table)
{
    free(table->blocks);
    free(table->owners);
    free(table->folded);
    free(table->starts);
}

/* Whether the places of both parts have the same names. */
static bool same_order(const struct tt_span *a, const struct tt_span *b, int nplaces)
{
    if (a->order == b->order) return true;
    if (!a->order || !b->order) return false;
    return memcmp(a->order + a->base, b->order + b->base, (size_t)nplaces * sizeof *a->order) == 0;
}

/* Whether the span, if there is one, names places of the same part as all before it. */
static bool same_part(struct table *table, const struct tt_span *span)
{
    if (span->number == 0) return true;
    if (!table->part) table->part = span;
    const int nplaces = tt_span_places(span, table->run->geometry.nblocks);
    return table->part->base == span->base &&
           tt_span_places(table->part, table->run->geometry.nblocks) == nplaces &&
           same_order(table->part, span, nplaces);
}

static tt_status put_in(struct table *table, int member)
{
    struct tt_symbolic *run = table->run;
    const struct tt_action action = action_of(table, member), first = action_of(table, 0);
    const struct tt_span *local = &action.step->local;
    if (action.step->op != first.step->op)
        return tt_symbolic_refute(run, action.rank, action.index,
                                  "meets for another operation than rank %d in its step %d",
                                  first.rank, first.index);
    if (!same_part(table, local) || !same_part(table, &action.step->dst))
        return tt_symbolic_refute(run, action.rank, action.index,
                                  "names places of another part than others in the meeting");
    if (action.step->op == TT_FOLD &&
        (local->number != first.step->local.number ||
         (local->number > 0 && local->first != first.step->local.first)))
        return tt_symbolic_refute(run, action.rank, action.index,
                                  "puts other blocks into a reduction than rank %d", first.rank);
    for (int i = 0; i < local->number; i++) {
        TT_TRY(tt_symbolic_read(run, &action, local, i,
                                &table->blocks[table->starts[member] + (size_t)i]));
        int *owner = &table->owners[local->first + i];
        *owner = *owner == NOBODY ? member : SEVERAL;
    }
    return TT_OK;
}

/* The reduction over all members, made when first needed. */
static tt_status folded_block(struct table *table, const struct tt_action *action, int name,
                              struct tt_value *value)
{
    struct tt_value *sum = &table->folded[name];
    const int at = name - action->step->local.first;
    if (at < 0 || at >= action->step->local.number)
        return tt_symbolic_refute(table->run, action->rank, action->index,
                                  "takes block %d, which nobody has put into the meeting", name);
    if (sum->number == 0) {
        *sum = table->blocks[table->starts[0] + (size_t)at];
        for (int i = 1; i < table->members->number; i++)
            TT_TRY(tt_symbolic_fold(table->run, action, sum,
                                    &table->blocks[table->starts[i] + (size_t)at]));
    }
    *value = *sum;
    return TT_OK;
}

static tt_status owned_block(struct table *table, const struct tt_action *action, int name,
                             struct tt_value *value)
{
    const int owner = table->owners[name];
    if (owner < 0)
        return tt_symbolic_refute(table->run, action->rank, action->index,
                                  "takes block %d, which %s put into the meeting", name,
                                  owner == NOBODY ? "nobody has" : "several members have");
    const int first = action_of(table, owner).step->local.first;
    *value = table->blocks[table->starts[owner] + (size_t)(name - first)];
    return TT_OK;
}

static tt_status transposed_block(struct table *table, const struct tt_action *action, int member,
                                  struct tt_value *value)
{
    const struct tt_action from = action_of(table, member);
    const int at = action->rank - from.step->local.first;
    if (at < 0 || at >= from.step->local.number)
        return tt_symbolic_refute(table->run, action->rank, action->index,
                                  "takes its block of rank %d, which has not put it in", from.rank);
    *value = table->blocks[table->starts[member] + (size_t)at];
    return TT_OK;
}

static tt_status take(struct table *table, int member)
{
    const struct tt_action action = action_of(table, member);
    table->run->action++;
    if (action.step->dst.number > 0 && table->taker < 0) table->taker = member;
    if (action.step->dst.number > 0 &&
        action.step->finish != action_of(table, table->taker).step->finish)
        return tt_symbolic_refute(table->run, action.rank, action.index,
                                  "%s what it takes from the meeting, unlike rank %d",
                                  action.step->finish ? "finishes" : "does not finish",
                                  action_of(table, table->taker).rank);
    for (int i = 0; i < action.step->dst.number; i++) {
        const int name = action.step->dst.first + i;
        struct tt_value value = {.number = 0};
        if (action.step->op == TT_FOLD)
            TT_TRY(folded_block(table, &action, name, &value));
        else if (action.step->op == TT_COPY)
            TT_TRY(owned_block(table, &action, name, &value));
        else
            TT_TRY(transposed_block(table, &action, name, &value));
        TT_TRY(tt_symbolic_write(table->run, &action, i, &value));
    }
    return TT_OK;
}

/* All members know what any of them knew, and that all have done the steps before the meeting. A
 * member may take its result later than others do: so none knows more of the meeting itself. */
static tt_status meet_clocks(struct table *table)
{
    struct tt_symbolic *run = table->run;
    struct tt_clock *common = NULL;
    for (int i = 0; i < table->members->number; i++) {
        const struct tt_action action = action_of(table, i);
        if (!tt_clock_learn(&common, run->ranks[action.rank].clock, run->shape->nranks, action.rank,
                            2 * (uint32_t)action.index + 1)) {
            tt_clock_release(common);
            return tt_symbolic_no_memory();
        }
    }
    for (int i = 0; i < table->members->number; i++) {
        struct tt_rank_memory *memory =
            &run->ranks[tt_peer_at(table->members, i, run->shape->nranks)];
        tt_clock_release(memory->clock);
        memory->clock = tt_clock_share(common);
    }
    tt_clock_release(common);
    return TT_OK;
}

tt_status tt_symbolic_meet(void *arg, const struct tt_network *network,
                           const struct tt_peers *members)
{
    struct table table = {.run = arg, .network = network, .members = members, .taker = -1};
    tt_status status = open_table(&table);
    if (!status) table.run->action++;
    if (!status && table.run->clocks) status = meet_clocks(&table);
    for (int i = 0; i < members->number && !status; i++) status = put_in(&table, i);
    for (int i = 0; i < members->number && !status; i++) status = take(&table, i);
    close_table(&table);
    return status;
}
