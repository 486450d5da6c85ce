/* Symbolic memory: spans of blocks are read, folded and written as sets of contributions. */
#include "schedule/symbolic.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

tt_status tt_symbolic_no_memory(void)
{
    return tt_fail(TT_ERR_SYSTEM, "no memory to verify the schedules of all ranks");
}

tt_status tt_symbolic_refute(struct tt_symbolic *run, int rank, int index, const char *format, ...)
{
    char *text = run->report->text;
    const size_t size = sizeof run->report->text;
    int used = snprintf(text, size, "rank %d channel %d", rank, run->channel);
    if (index >= 0) used += snprintf(text + used, size - (size_t)used, " step %d", index);
    used += snprintf(text + used, size - (size_t)used, run->in_place ? " (in place): " : ": ");
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - (size_t)used, format, args);
    va_end(args);
    return TT_ERR_USAGE;
}

/* Small memory that lives as long as the execution. */
static void *pool_get(struct tt_symbolic *run, size_t nbytes)
{
    enum { POOL_BYTES = 65536 };
    const size_t need = (nbytes + 15) / 16 * 16;
    if (need > run->pool_left) {
        const size_t size = need > POOL_BYTES ? need : POOL_BYTES;
        run->pool = tt_arena_get(&run->arena, size);
        run->pool_left = run->pool ? size : 0;
        if (!run->pool) return NULL;
    }
    void *memory = run->pool;
    run->pool += need;
    run->pool_left -= need;
    return memory;
}

/* Says so before the machine is out of memory, not after. */
static tt_status check_memory(const struct tt_symbolic *run)
{
    double nbytes = 0;
    for (int rank = 0; rank < run->shape->nranks; rank++) {
        int first;
        nbytes +=
            (double)tt_buffer_blocks(run->shape, run->geometry.nblocks, TT_OUTPUT, rank, &first) +
            tt_nscratch(run->steps->algorithm, run->shape, rank);
    }
    nbytes *= sizeof(struct tt_cell);
    const double available = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (nbytes <= available / 2) return TT_OK;
    return tt_fail(TT_ERR_SYSTEM,
                   "verifying %d ranks takes %.1f GB of memory, more than half of this machine's: "
                   "verify fewer",
                   run->shape->nranks, nbytes / 1e9);
}

static bool make_memory(struct tt_symbolic *run, int rank)
{
    struct tt_rank_memory *memory = &run->ranks[rank];
    memory->noutput =
        tt_buffer_blocks(run->shape, run->geometry.nblocks, TT_OUTPUT, rank, &memory->first_output);
    memory->nscratch = tt_nscratch(run->steps->algorithm, run->shape, rank);
    memory->output = tt_arena_get(&run->arena, (size_t)memory->noutput * sizeof *memory->output);
    memory->scratch = tt_arena_get(&run->arena, (size_t)memory->nscratch * sizeof *memory->scratch);
    return memory->output && memory->scratch;
}

tt_status tt_symbolic_init(struct tt_symbolic *run)
{
    const int nranks = run->shape->nranks;
    TT_TRY(check_memory(run));
    run->full = tt_value_full(nranks);
    run->ranks = tt_arena_get(&run->arena, (size_t)nranks * sizeof *run->ranks);
    run->result =
        tt_arena_get(&run->arena, (size_t)(run->geometry.nblocks + 1) * sizeof *run->result);
    if (!run->ranks || !run->result) return tt_symbolic_no_memory();
    for (int rank = 0; rank < nranks; rank++)
        if (!make_memory(run, rank)) return tt_symbolic_no_memory();
    return TT_OK;
}

void tt_symbolic_fini(struct tt_symbolic *run)
{
    for (int rank = 0; run->ranks && rank < run->shape->nranks; rank++)
        tt_clock_release(run->ranks[rank].clock);
    tt_arena_fini(&run->arena);
}

bool tt_symbolic_same_length(struct tt_symbolic *run, int name, int other)
{
    static const size_t aligns[] = {1, 8, 16, 32, 64}; /* elements of a cache line, and none */
    if (name == other) return true;
    if (run->uneven && !run->geometry.counts) return false;
    if (!run->geometry.split && !run->geometry.counts) return true;
    run->report->any_count = false;
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        struct tt_geometry geometry = run->geometry;
        size_t begin;
        geometry.align = aligns[i];
        if (tt_geometry_part(&geometry, name, run->channel, &begin) !=
            tt_geometry_part(&geometry, other, run->channel, &begin))
            return false;
    }
    return true;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static struct tt_cell *output_cell(const struct tt_symbolic *run, int rank, int name)
{
    const struct tt_rank_memory *memory = &run->ranks[rank];
    const int at = name - memory->first_output;
    return at >= 0 && at < memory->noutput ? &memory->output[at] : NULL;
}

/* NULL: INPUT that is not also OUTPUT. */
static struct tt_cell *cell_of(const struct tt_symbolic *run, int rank, const struct tt_span *span,
                               int i, int name)
{
    if (span->buffer == TT_SCRATCH)
        return &run->ranks[rank].scratch[tt_span_slot(span, i, run->geometry.nblocks)];
    if (span->buffer == TT_INPUT && !run->in_place) return NULL;
    return output_cell(run, rank, name);
}

static tt_status read_input(struct tt_symbolic *run, const struct tt_action *action,
                            const struct tt_cell *cell, int name, struct tt_value *value)
{
    *value = tt_value_own(run->shape->nranks, action->rank, name);
    if (!cell || cell->value.number == 0) return TT_OK;
    if (!tt_collective_reduces(run->shape->collective) && tt_value_equal(value, &cell->value))
        return TT_OK;
    return tt_symbolic_refute(run, action->rank, action->index,
                              "reads INPUT[%d], which step %d has overwritten through OUTPUT[%d]",
                              name, cell->step, name);
}

static void describe_cell(const struct tt_symbolic *run, const struct tt_span *span, int i,
                          int name, char *text, size_t size)
{
    if (span->buffer == TT_SCRATCH)
        snprintf(text, size, "SCRATCH slot %d", tt_span_slot(span, i, run->geometry.nblocks));
    else
        snprintf(text, size, "%s[%d]", span->buffer == TT_INPUT ? "INPUT" : "OUTPUT", name);
}

tt_status tt_symbolic_read(struct tt_symbolic *run, const struct tt_action *action,
                           const struct tt_span *span, int i, struct tt_value *value)
{
    const int name = tt_span_name(span, i, run->geometry.nblocks);
    struct tt_cell *cell = cell_of(run, action->rank, span, i, name);
    if (cell) {
        cell->read_mark = run->action;
        cell->read_at = i;
        cell->own_done = (uint32_t)action->index + 1;
    }
    if (span->buffer == TT_INPUT) return read_input(run, action, cell, name, value);
    char where[64];
    if (cell->value.number == 0) {
        describe_cell(run, span, i, name, where, sizeof where);
        return tt_symbolic_refute(run, action->rank, action->index,
                                  "reads %s, which nothing has written", where);
    }
    if (!tt_symbolic_same_length(run, cell->name, name)) {
        describe_cell(run, span, i, name, where, sizeof where);
        return tt_symbolic_refute(
            run, action->rank, action->index,
            "reads %s as block %d, but it was written as block %d, which has another length", where,
            name, cell->name);
    }
    *value = cell->value;
    return TT_OK;
}

tt_status tt_symbolic_fold(struct tt_symbolic *run, const struct tt_action *action,
                           struct tt_value *value, const struct tt_value *other)
{
    char text[128];
    const char *wrong = tt_value_fold(value, other, run->shape->nranks, text, sizeof text);
    return wrong ? tt_symbolic_refute(run, action->rank, action->index, "%s", wrong) : TT_OK;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static tt_status finish(struct tt_symbolic *run, const struct tt_action *action,
                        struct tt_value *value)
{
    if (value->finished)
        return tt_symbolic_refute(run, action->rank, action->index,
                                  "finishes block %d a second time", value->block);
    char text[128];
    const char *wrong =
        tt_value_incomplete(value, &run->full, run->shape->nranks, text, sizeof text);
    if (wrong)
        return tt_symbolic_refute(run, action->rank, action->index, "finishes block %d, which %s",
                                  value->block, wrong);
    value->finished = true;
    if (tt_value_in_rank_order(value, run->shape->nranks) || !run->report->in_rank_order)
        return TT_OK;
    run->report->in_rank_order = false;
    snprintf(run->report->order, sizeof run->report->order,
             "rank %d channel %d step %d finishes block %d, whose contributions were not folded in "
             "one step from rank 0 to rank %d",
             action->rank, run->channel, action->index, value->block, run->shape->nranks - 1);
    return TT_OK;
}

/* Overwrites what messages may still refer to. */
static void forget_references(struct tt_symbolic *run, const struct tt_action *action,
                              struct tt_cell *cell, const char *where)
{
    const struct tt_clock *clock = run->ranks[action->rank].clock;
    for (; cell->references; cell->references = cell->references->next) {
        const struct tt_reference *reference = cell->references->reference;
        const struct tt_reading *pending = tt_reference_pending(reference, clock);
        if (!pending || !run->report->direct_safe) continue;
        if (!run->clocks && pending->done) {
            run->needs_clocks = true;
            continue;
        }
        run->report->direct_safe = false;
        snprintf(run->report->direct, sizeof run->report->direct,
                 "rank %d channel %d step %d%s overwrites %s, which rank %d may not have read yet "
                 "(sent in step %d)",
                 action->rank, run->channel, action->index, run->in_place ? " (in place)" : "",
                 where, pending->peer, reference->step);
    }
}

/* In place, INPUT[b] -> OUTPUT[b] writes nothing (link_step.c), nor does OUTPUT[b] -> OUTPUT[b]. (A
 * reduction's raw input may be scaled on its way.) */
static bool copies_onto_itself(const struct tt_symbolic *run, const struct tt_action *action,
                               const struct tt_cell *cell)
{
    return action->step->kind == TT_STEP_LINK && action->step->recv.number == 0 &&
           cell->read_mark == run->action && !action->step->finish &&
           (action->step->local.buffer == TT_OUTPUT ||
            !tt_collective_reduces(run->shape->collective));
}

tt_status tt_symbolic_write(struct tt_symbolic *run, const struct tt_action *action, int i,
                            struct tt_value *value)
{
    if (action->step->finish) TT_TRY(finish(run, action, value));
    tt_value_leave_step(value);
    const struct tt_span *dst = &action->step->dst;
    if (dst->number == 0) return TT_OK;
    const int name = tt_span_name(dst, i, run->geometry.nblocks);
    struct tt_cell *cell = cell_of(run, action->rank, dst, i, name);
    char where[64];
    if (cell->write_mark == run->action) {
        describe_cell(run, dst, i, name, where, sizeof where);
        return tt_symbolic_refute(run, action->rank, action->index, "writes %s twice", where);
    }
    if (cell->read_mark == run->action && cell->read_at != i) {
        describe_cell(run, dst, i, name, where, sizeof where);
        return tt_symbolic_refute(
            run, action->rank, action->index,
            "writes %s, the %d-th block of dst, and reads the same memory as the %d-th of local",
            where, i, cell->read_at);
    }
    if (cell->references && !copies_onto_itself(run, action, cell)) {
        describe_cell(run, dst, i, name, where, sizeof where);
        forget_references(run, action, cell, where);
    }
    cell->value = *value;
    cell->name = name;
    cell->step = action->index;
    cell->write_mark = run->action;
    /* A fold that sends has read its sources then, but may store its result later (link_step.c). */
    const bool late = action->step->op == TT_FOLD && action->step->send.number > 0;
    cell->own_done = (uint32_t)action->index + (late ? 2 : 1);
    return TT_OK;
}

/* ---- Posts ---------------------------------------------------------------------------------- */

static void refute_post(struct tt_symbolic *run, const struct tt_action *action,
                        const struct tt_parcel *parcel, int i, const char *user, int peer)
{
    char where[64];
    const int name = tt_span_name(&action->step->dst, i, run->geometry.nblocks);
    describe_cell(run, &action->step->dst, i, name, where, sizeof where);
    run->report->post_safe = false;
    snprintf(run->report->post, sizeof run->report->post,
             "rank %d channel %d step %d%s: rank %d may not write %s itself in its step %d, as "
             "%s %d may still use that memory",
             action->rank, run->channel, action->index, run->in_place ? " (in place)" : "",
             parcel->sender, where, parcel->step, user, peer);
}

/* Whether the reading has surely happened before the sender of the parcel writes a cell: its place
 * in the message read is `from`, in the parcel `to`. A step that reads and writes the same place
 * reads first. */
static bool is_read_before(const struct tt_reading *reading, const struct tt_parcel *parcel,
                           int from, int to)
{
    if (!reading->done) return false;
    if (reading->peer != parcel->sender)
        return tt_clock_done(parcel->clock, reading->peer) >= reading->done;
    const uint32_t done = (uint32_t)parcel->step + 1;
    return reading->done < done || (reading->done == done && from == to);
}

void tt_symbolic_post(struct tt_symbolic *run, const struct tt_action *action,
                      const struct tt_parcel *parcel, int i)
{
    const struct tt_span *dst = &action->step->dst;
    const struct tt_cell *cell =
        cell_of(run, action->rank, dst, i, tt_span_name(dst, i, run->geometry.nblocks));
    const struct tt_references *references = cell->references;
    if (!run->report->post_safe || (!cell->own_done && !references)) return;
    if (!run->clocks) {
        run->needs_clocks = true;
        return;
    }
    if (cell->own_done > tt_clock_done(parcel->clock, action->rank)) {
        refute_post(run, action, parcel, i, "its own rank", action->rank);
        return;
    }
    for (; references; references = references->next)
        for (int k = 0; k < references->reference->npeers; k++) {
            const struct tt_reading *reading = &references->reference->readings[k];
            if (is_read_before(reading, parcel, references->at, i)) continue;
            refute_post(run, action, parcel, i, "rank", reading->peer);
            return;
        }
}

tt_status tt_symbolic_refer(struct tt_symbolic *run, const struct tt_action *action,
                            struct tt_parcel *parcel)
{
    const struct tt_step *step = action->step;
    const struct tt_span *span = step->dst.number > 0 ? &step->dst : &step->local;
    parcel->reference = NULL;
    if (span->number == 0 || span->buffer == TT_SCRATCH) return TT_OK;
    if (span == &step->local && (step->recv.number > 0 || step->finish)) return TT_OK;
    if (span->buffer == TT_INPUT && !run->in_place) return TT_OK;
    struct tt_reference *reference = pool_get(
        run, sizeof *reference + (size_t)step->send.number * sizeof reference->readings[0]);
    if (!reference) return tt_symbolic_no_memory();
    reference->step = action->index;
    reference->npeers = step->send.number;
    for (int i = 0; i < step->send.number; i++)
        reference->readings[i] =
            (struct tt_reading){.peer = tt_peer_at(&step->send, i, run->shape->nranks), .done = 0};
    for (int i = 0; i < span->number; i++) {
        const int name = tt_span_name(span, i, run->geometry.nblocks);
        struct tt_cell *cell = cell_of(run, action->rank, span, i, name);
        if (!cell) continue;
        struct tt_references *references = pool_get(run, sizeof *references);
        if (!references) return tt_symbolic_no_memory();
        *references =
            (struct tt_references){.reference = reference, .at = i, .next = cell->references};
        cell->references = references;
    }
    parcel->reference = reference;
    return TT_OK;
}
