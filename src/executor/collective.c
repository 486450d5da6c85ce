/* Collectives of the host: binds and starts the call, advances its channels step by step, and,
 * after a failure, takes the caller's buffers back. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "executor/fetch.h"
#include "executor/internal.h"

/* ---- Begin ---------------------------------------------------------------------------------- */

void tt_collective_begin(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                         uint64_t turn)
{
    const struct tt_program *program = call->loaded->program;
    *work = (struct tt_work){.ops = &tt_collective_ops,
                             .engine = engine,
                             .turns = &engine->collectives_done,
                             .turn = turn,
                             .collective = {.call = *call, .binding = *call->binding}};
    struct tt_collective_work *own = &work->collective;
    if (!own->binding.table_at) own->call.binding = &own->binding; /* the caller's may change */
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
    own->signature = tt_turn_signature(call->signature, turn);
    own->origin[TT_INPUT] = (uintptr_t)call->input - own->binding.skipped[TT_INPUT];
    own->origin[TT_OUTPUT] = (uintptr_t)call->output - own->binding.skipped[TT_OUTPUT];
    own->links = call->loaded->links;
    own->direct[TT_INPUT] = program->direct_safe && call->reduction.op != TT_PREMUL_SUM;
    own->direct[TT_OUTPUT] = program->direct_safe;
}

void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call)
{
    tt_collective_begin(work, engine, call, ++engine->collectives_issued);
}

/* ---- Start ---------------------------------------------------------------------------------- */

static tt_status ensure_scratch(struct tt_work *work)
{
    const struct tt_program *program = tt_work_program(work);
    const struct tt_binding *binding = &work->collective.binding;
    struct tt_engine *engine = work->engine;
    const size_t need =
        (size_t)program->nscratch * binding->parts[0].nparts * binding->piece * binding->element;
    if (need > engine->scratch_bytes) {
        free(engine->scratch);
        engine->scratch_bytes = 0;
        engine->scratch = aligned_alloc(TT_CACHE_LINE,
                                        (need + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE);
        if (!engine->scratch)
            return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of scratch space", need);
        engine->scratch_bytes = need;
    }
    work->collective.origin[TT_SCRATCH] = (uintptr_t)engine->scratch;
    return TT_OK;
}

/* The bytes of the global naming between the beginning of the first block that a buffer holds and
 * the end of the last: of the caller's memory, wherever the blocks lie in between. */
static void find_extent(const struct tt_work *work, int buffer, size_t *begin, size_t *end)
{
    const struct tt_collective_work *own = &work->collective;
    const struct tt_program_blocks *held = &tt_work_program(work)->held[buffer];
    const int32_t last = held->first + held->number - 1;
    /* Only blocks with counts of their own may lie in any order. */
    const int32_t stride = own->binding.table_at || held->number < 2 ? 1 : held->number - 1;
    *begin = SIZE_MAX;
    *end = 0;
    for (int32_t block = held->first; block <= last; block += stride) {
        size_t at;
        const size_t length = tt_binding_block(own->call.binding, block, &at);
        *begin = at < *begin ? at : *begin;
        *end = at + length > *end ? at + length : *end;
    }
    *begin = held->number ? *begin * own->binding.element : 0;
    *end *= own->binding.element;
}

/* Finds the windows in which the caller's buffers lie, and shows them to the peers. */
static void find_memory(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_loaded *loaded = own->call.loaded;
    const size_t longest = tt_work_longest(work);
    own->memory[TT_SCRATCH].window = TT_NO_WINDOW;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        size_t begin, end;
        find_extent(work, b, &begin, &end);
        if (tt_is_divided(work)) {
            begin = 0;
            end = 2 * work->portions->nbytes;
        }
        if (longest < TT_DIRECT_MIN_BYTES) end = begin; /* nothing is sent in place */
        tt_fabric_find_memory(fabric, (const char *)(own->origin[b] + begin), end - begin,
                              &own->memory[b]);
        if (own->memory[b].window == TT_NO_WINDOW) continue;
        for (uint32_t i = 0; i < loaded->program->nlinks; i++)
            tt_fabric_introduce(fabric, loaded->links[i]->peer, &own->memory[b]);
    }
}

/* The call's buffers are the two places of its portions. Nothing there is sent by reference: it
 * would have to stay until the reference has been taken. */
static void use_portions(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    own->binding.merged = false;
    own->origin[TT_INPUT] = own->origin[TT_OUTPUT] = (uintptr_t)work->portions->memory;
    own->direct[TT_INPUT] = own->direct[TT_OUTPUT] = false;
}

static tt_status start(struct tt_work *work)
{
    struct tt_call *call = &work->collective.call;
    const int ncopies = work->collective.binding.copies;
    if (ncopies < 1 || ncopies > call->loaded->copies)
        return tt_fail(TT_ERR_INTERNAL, "a call runs %d copies, its program is loaded for 1 to %d",
                       ncopies, call->loaded->copies);
    tt_record_entry(work->engine, call, work->turn);
    work->collective.channels = work->engine->positions;
    memset(work->collective.channels, 0,
           (size_t)(ncopies * tt_work_program(work)->nchannels) * sizeof(struct tt_position));
    if (tt_is_divided(work))
        use_portions(work);
    else if (tt_call_is_done_already(call))
        work->collective.binding.nrounds = 0;
    if (call->scalar)
        memcpy(call->reduction.scalar, call->scalar, work->collective.binding.element);
    find_memory(work);
    return ensure_scratch(work);
}

static tt_status ready(struct tt_work *work)
{
    (void)work;
    return TT_OK;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static void next_step(struct tt_work *work, int channel, uint32_t nsteps)
{
    struct tt_position *at = &work->collective.channels[channel];
    at->ready = at->nslots = 0;
    at->entered = at->asked = at->borrows = false;
    work->progress++;
    if (++at->step < nsteps) return;
    at->step = 0;
    at->posted = false;
    at->done = ++at->round >= work->collective.binding.nrounds;
}

static tt_status advance_channel(struct tt_work *work, const struct tt_program_channel *row,
                                 int channel)
{
    const struct tt_program_step *steps = tt_program_steps(tt_work_program(work)) + row->first;
    struct tt_position *at = &work->collective.channels[channel];
    if (row->nsteps == 0 || !work->collective.binding.nrounds) at->done = true;
    while (!at->done) {
        const struct tt_program_step *step = &steps[at->step];
        if (!at->step && !at->posted) {
            if (!tt_portions_have_round(work, at->round)) return TT_IN_PROGRESS;
            if (row->nsteps > 1) tt_fetch_for_step(work, channel, step + 1, TT_FETCH_EARLY);
            tt_post_round(work, row, channel);
        }
        at->posted = true;
        TT_AWAIT(step->kind == TT_STEP_MEET ? tt_step_meet(work, channel, step)
                                            : tt_step_link(work, channel, step));
        next_step(work, channel, row->nsteps);
        if (at->step) tt_fetch_for_step(work, channel, step + 1, TT_FETCH_LATE);
    }
    return TT_OK;
}

/* References that receivers have not taken yet keep the caller's buffers in use. */
static bool references_taken(const struct tt_collective_work *own)
{
    const struct tt_loaded *loaded = own->call.loaded;
    const struct tt_program_link *links = tt_program_links(loaded->program);
    for (int copy = 0; own->references && copy < own->binding.copies; copy++)
        for (uint32_t i = 0; i < loaded->program->nlinks; i++) {
            struct tt_link *link = tt_loaded_links(loaded, copy)[i];
            if (links[i].outgoing && !link->ops->drained(link)) return false;
        }
    return true;
}

/* From here on steps use the links of this copy. */
static void use_copy(struct tt_collective_work *own, int copy)
{
    own->links = tt_loaded_links(own->call.loaded, copy);
}

static tt_status advance(struct tt_work *work)
{
    const struct tt_program *program = tt_work_program(work);
    const int ncopies = work->collective.binding.copies, nchannels = program->nchannels;
    bool waiting = false;
    for (int copy = 0; copy < ncopies; copy++) {
        use_copy(&work->collective, copy);
        for (int c = 0; c < nchannels; c++) {
            const tt_status status =
                advance_channel(work, tt_program_channel(program, c), copy * nchannels + c);
            if (status < 0) return status;
            waiting |= status == TT_IN_PROGRESS;
        }
    }
    return waiting || !references_taken(&work->collective) ? TT_IN_PROGRESS : TT_OK;
}

static tt_status flush(struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    return !fabric->wires || tt_wires_flushed(fabric->wires) ? TT_OK : TT_IN_PROGRESS;
}

/* ---- End ------------------------------------------------------------------------------------ */

static tt_status stop(struct tt_work *work)
{
    if (work->collective.posts) TT_AWAIT(tt_await_writers(work));
    return tt_await_readers(work);
}

/* After a failure: no message may be delivered to the caller's buffers any more. */
static void take_back(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (fabric->wires) tt_wires_give_back(fabric->wires);
    if (!work->collective.channels) return;
    const struct tt_program *program = tt_work_program(work);
    for (int copy = 0; copy < work->collective.binding.copies; copy++) {
        use_copy(&work->collective, copy);
        for (int c = 0; c < program->nchannels; c++) {
            const struct tt_position *at =
                &work->collective.channels[copy * program->nchannels + c];
            if (at->asked) tt_step_expect(work, tt_program_step(program, c, at->step), NULL, 0);
        }
    }
}

void tt_collective_end(struct tt_work *work, tt_status status)
{
    struct tt_collective_work *own = &work->collective;
    if (!status)
        atomic_store_explicit(&work->engine->fabric->record->done, work->turn,
                              memory_order_release);
    if (!own->binding.table_at || own->keeps_table) return;
    free((void *)(uintptr_t)own->call.binding);
    own->call.binding = &own->binding;
}

static void end(struct tt_work *work, tt_status status)
{
    if (status) take_back(work);
    tt_collective_end(work, status);
}

const struct tt_work_ops tt_collective_ops = {.ready = ready,
                                              .start = start,
                                              .advance = advance,
                                              .flush = flush,
                                              .is_woken = true,
                                              .check = tt_collective_check,
                                              .stop = stop,
                                              .end = end,
                                              .describe = tt_collective_describe,
                                              .missing = tt_collective_missing,
                                              .knows = tt_collective_knows};
