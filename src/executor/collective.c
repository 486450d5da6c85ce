/* Collectives of the host: sets up and starts a call, whose binding is given, advances its channels
 * step by step, and, after a failure, takes the caller's buffers back. At the end: express calls
 * (express.h), which are begun, and mostly done, in one function. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "executor/fetch.h"
#include "executor/internal.h"

/* ---- Begin ---------------------------------------------------------------------------------- */

/* What short steps use (struct tt_collective_work). */
static inline void prepare_steps(struct tt_work *work, struct tt_engine *engine,
                                 const struct tt_call *call, uint64_t turn)
{
    struct tt_collective_work *own = &work->collective;
    const size_t *skipped = call->binding->skipped;
    work->engine = engine;
    work->turn = turn;
    own->call = call;
    own->binding = call->binding;
    own->signature = engine->fabric->mixed.is_mixed
                         ? tt_signature_alone(call->signature)
                         : tt_chained_signature(call->signature, engine->last_signature);
    engine->last_signature = own->signature;
    own->origin[TT_INPUT] = (uintptr_t)call->input - skipped[TT_INPUT];
    own->origin[TT_OUTPUT] = (uintptr_t)call->output - skipped[TT_OUTPUT];
    own->changes_raw = tt_op_changes_raw(call->reduction.op, call->reduction.type);
}

/* What works of all carriers need, but for the engine and the turn. Member by member: the union is
 * large. */
static inline void prepare_work(struct tt_work *work, const struct tt_work_ops *ops)
{
    struct tt_collective_work *own = &work->collective;
    work->ops = ops;
    work->next = NULL;
    work->turns = &work->engine->collectives_done;
    work->state = TT_WORK_ISSUED;
    work->has_begun = false;
    work->status = TT_OK;
    work->timeout_ms = tt_engine_timeout(work->engine);
    work->deadline_ns = 0;
    work->progress = 0;
    work->late.since_ns = 0;
    work->stream = NULL;
    work->passed_over = false;
    own->mismatch_ns = 0;
}

static void prepare_rest(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    const bool direct_safe =
        own->call->loaded->program->direct_safe && !work->engine->fabric->mixed.is_mixed;
    prepare_work(work, &tt_collective_ops);
    own->is_long = own->references = own->posts = false;
    own->direct[TT_INPUT] = direct_safe && own->call->reduction.op != TT_PREMUL_SUM;
    own->direct[TT_OUTPUT] = direct_safe;
    own->direct[TT_SCRATCH] = false;
    for (int b = TT_INPUT; b <= TT_SCRATCH; b++) own->memory[b].window = TT_NO_WINDOW;
}

/* The work has a copy of the call from now on, and is outstanding. */
static inline void keep_call(struct tt_work *work, const struct tt_call *call)
{
    struct tt_collective_work *own = &work->collective;
    own->kept.call = *call;
    own->kept.binding = *call->binding;
    own->call = &own->kept.call;
    own->binding = &own->kept.binding;
    if (!own->binding->table_at) own->kept.call.binding = own->binding;
    atomic_fetch_add_explicit(&work->engine->outstanding, 1, memory_order_relaxed);
}

void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call)
{
    prepare_steps(work, engine, call, ++engine->collectives_issued);
    prepare_rest(work);
    work->collective.express = false;
    work->collective.channels = NULL;
    keep_call(work, call);
}

void tt_collective_issue(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                         const struct tt_work_ops *ops)
{
    work->engine = engine;
    work->turn = ++engine->collectives_issued;
    prepare_work(work, ops);
    keep_call(work, call);
}

/* ---- Start ---------------------------------------------------------------------------------- */

static tt_status grow_scratch(struct tt_engine *engine, size_t nbytes)
{
    free(engine->scratch);
    engine->scratch_bytes = 0;
    engine->scratch =
        aligned_alloc(TT_CACHE_LINE, (nbytes + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE);
    if (!engine->scratch)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of scratch space", nbytes);
    engine->scratch_bytes = nbytes;
    return TT_OK;
}

/* Finds the windows in which the caller's buffers lie, and shows them to the peers. */
static void find_memory(struct tt_work *work, const struct tt_footprint *footprint)
{
    struct tt_collective_work *own = &work->collective;
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_loaded *loaded = own->call->loaded;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        const size_t begin = footprint->begin[b];
        tt_fabric_find_memory(fabric, (const char *)(own->origin[b] + begin),
                              footprint->end[b] - begin, &own->memory[b]);
        if (own->memory[b].window == TT_NO_WINDOW) continue;
        for (uint32_t i = 0; i < loaded->program->nlinks; i++)
            tt_fabric_introduce(fabric, loaded->links[i]->peer, &own->memory[b]);
    }
}

static tt_status use_memory(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    struct tt_footprint walked;
    const struct tt_footprint *footprint = &walked;
    if (own->call->resolved)
        footprint = &own->call->resolved->footprint;
    else
        tt_footprint_of(own->call->loaded->program, own->call->binding, &walked);
    own->is_long = footprint->longest >= TT_DIRECT_MIN_BYTES;
    if (own->is_long) find_memory(work, footprint); /* else nothing is sent in place */
    if (footprint->scratch > work->engine->scratch_bytes)
        TT_TRY(grow_scratch(work->engine, footprint->scratch));
    own->origin[TT_SCRATCH] = (uintptr_t)work->engine->scratch;
    return TT_OK;
}

static void stand_at_first_step(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    const int nchannels = tt_work_program(work)->nchannels;
    own->channels = work->engine->positions;
    for (int c = 0; c < own->binding->copies * nchannels; c++)
        own->channels[c] = (struct tt_position){
            .done = !tt_program_channel(tt_work_program(work), c % nchannels)->nsteps};
}

/* Of a work that has its call's record, and stands at its first step. */
static tt_status start_whole(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    TT_TRY(use_memory(work));
    if (!tt_call_is_done_already(own->call)) return TT_OK;
    for (int c = 0; c < own->binding->copies * own->call->loaded->program->nchannels; c++)
        own->channels[c].done = true;
    return TT_OK;
}

static tt_status start(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    const int ncopies = own->binding->copies, most = own->call->loaded->copies;
    if (ncopies < 1 || ncopies > most)
        return tt_fail(TT_ERR_INTERNAL, "a call runs %d copies, its program is loaded for 1 to %d",
                       ncopies, most);
    tt_record_entry(work->engine, own->call, work->turn);
    stand_at_first_step(work);
    if (own->call->scalar)
        memcpy(own->kept.call.reduction.scalar, own->call->scalar, own->binding->element);
    return start_whole(work);
}

static tt_status ready(struct tt_work *work)
{
    (void)work;
    return TT_OK;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static void next_step(struct tt_work *work, struct tt_position *at, uint32_t nsteps)
{
    at->ready = at->nslots = 0;
    at->entered = at->asked = at->borrows = at->refers = false;
    work->progress++;
    if (++at->step < nsteps) return;
    at->step = 0;
    at->posted = false;
    at->done = ++at->round >= work->collective.binding->nrounds;
}

/* From here on steps are of this channel of this copy. */
static void use_channel(struct tt_collective_work *own, int copy,
                        const struct tt_program_channel *row)
{
    const struct tt_step_table *resolved = own->call->resolved;
    own->links = tt_loaded_links(own->call->loaded, copy);
    own->resolved =
        resolved ? &resolved->steps[(size_t)copy * resolved->nsteps + row->first] : NULL;
}

/* Before the first step of a round. */
static void begin_round(struct tt_work *work, const struct tt_program_channel *row,
                        const struct tt_program_step *steps, int channel)
{
    struct tt_position *at = &work->collective.channels[channel];
    at->posted = true;
    if (!work->collective.is_long) return;
    if (row->nsteps > 1) tt_fetch_for_step(work, channel, steps + 1, 1, TT_FETCH_EARLY);
    tt_post_round(work, row, channel);
}

static tt_status advance_channel(struct tt_work *work, const struct tt_program_channel *row,
                                 int channel)
{
    const struct tt_program_step *steps = tt_program_steps(tt_work_program(work)) + row->first;
    struct tt_position *at = &work->collective.channels[channel];
    const bool is_long = work->collective.is_long;
    while (!at->done) {
        const struct tt_program_step *step = &steps[at->step];
        if (!at->step && !at->posted) begin_round(work, row, steps, channel);
        TT_AWAIT(step->kind == TT_STEP_MEET ? tt_step_meet(work, channel, step)
                                            : tt_step_link(work, channel, step));
        next_step(work, at, row->nsteps);
        if (is_long && at->step)
            tt_fetch_for_step(work, channel, step + 1, at->step, TT_FETCH_LATE);
    }
    return TT_OK;
}

/* References that receivers have not taken yet keep the caller's buffers in use. */
static bool references_taken(const struct tt_collective_work *own)
{
    const struct tt_loaded *loaded = own->call->loaded;
    const struct tt_program_link *links = tt_program_links(loaded->program);
    for (int copy = 0; copy < own->binding->copies; copy++)
        for (uint32_t i = 0; i < loaded->program->nlinks; i++) {
            struct tt_link *link = tt_loaded_links(loaded, copy)[i];
            if (links[i].outgoing && !link->ops->drained(link)) return false;
        }
    return true;
}

static bool await_taken(const struct tt_work *work)
{
    const struct tt_collective_work *own = &work->collective;
    const int looks = own->express && !work->engine->fabric->oversubscribed ? tt_looks(work) : 1;
    if (!own->references) return true;
    for (int look = 1; look < looks; look++) {
        if (references_taken(own)) return true;
        tt_cpu_relax();
    }
    return references_taken(own);
}

static tt_status advance(struct tt_work *work)
{
    const struct tt_program *program = tt_work_program(work);
    const int ncopies = work->collective.binding->copies, nchannels = program->nchannels;
    bool waiting = false;
    for (int copy = 0; copy < ncopies; copy++)
        for (int c = 0; c < nchannels; c++) {
            const struct tt_program_channel *row = tt_program_channel(program, c);
            use_channel(&work->collective, copy, row);
            const tt_status status = advance_channel(work, row, copy * nchannels + c);
            if (status < 0) return status;
            waiting |= status == TT_IN_PROGRESS;
        }
    return waiting || !await_taken(work) ? TT_IN_PROGRESS : TT_OK;
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
    for (int copy = 0; copy < work->collective.binding->copies; copy++) {
        work->collective.links = tt_loaded_links(work->collective.call->loaded, copy);
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
    if (!own->binding->table_at) return;
    free((void *)(uintptr_t)own->call->binding);
    own->kept.call.binding = own->binding;
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

/* ---- Express -------------------------------------------------------------------------------- */

/* Whether one channel does the call in one round, of which all steps are resolved. */
static bool is_simple(const struct tt_call *call)
{
    const struct tt_program *program = call->loaded->program;
    const struct tt_binding *binding = call->binding;
    if (!call->resolved || program->nscratch || !program->nsteps) return false;
    if (binding->copies * program->nchannels != 1 || binding->nrounds != 1) return false;
    for (uint32_t s = 0; s < program->nsteps; s++)
        if (!call->resolved->steps[s].known) return false;
    return true;
}

enum tt_express tt_express_kind(const struct tt_engine *engine, const struct tt_call *call)
{
    const struct tt_program *program = call->loaded->program;
    const struct tt_program_step *steps = tt_program_steps(program);
    if (call->binding->table_at || call->scalar || engine->fabric->hosts->nhosts > 1 ||
        engine->fabric->mixed.is_mixed)
        return TT_EXPRESS_NOT;
    if (!is_simple(call)) return TT_EXPRESS_WHOLE;
    if (program->nsteps == 1 && steps->kind == TT_STEP_MEET)
        return engine->fabric->oversubscribed || call->reduction.op == TT_PREMUL_SUM
                   ? TT_EXPRESS_WHOLE
                   : TT_EXPRESS_MEETING;
    if (call->resolved->footprint.longest > engine->fabric->segment->header->slot_bytes)
        return TT_EXPRESS_WHOLE; /* which reports it */
    for (uint32_t s = 0; s < program->nsteps; s++)
        if (!tt_step_is_brief(&steps[s], &call->resolved->steps[s], &call->reduction))
            return TT_EXPRESS_WHOLE;
    return TT_EXPRESS_LINKS;
}

/* Nothing but the steps needs to be set up. */
static inline tt_status advance_brief(struct tt_work *work, enum tt_express kind)
{
    struct tt_collective_work *own = &work->collective;
    own->channels = work->engine->positions;
    if (kind == TT_EXPRESS_MEETING) return tt_do_brief_meeting(work);
    own->links = own->call->loaded->links;
    return tt_do_brief_steps(work);
}

static tt_status advance_whole(struct tt_work *work)
{
    prepare_rest(work);
    stand_at_first_step(work);
    TT_TRY(start_whole(work));
    TT_AWAIT(advance(work));
    /* After a failure a peer may have freed what was read here by reference. */
    return tt_fabric_check(work->engine->fabric);
}

/* Something is late, or wrong: from here on the work is like any other. */
__attribute__((noinline)) static tt_status go_on(struct tt_work *work, enum tt_express kind,
                                                 tt_status status)
{
    if (kind != TT_EXPRESS_WHOLE) prepare_rest(work);
    work->collective.express = false;
    tt_work_note_begin(work);
    work->engine->report_ns = 0;
    atomic_fetch_add_explicit(&work->engine->outstanding, 1, memory_order_relaxed);
    return tt_work_settle(work, status);
}

TT_INLINED tt_status begin_express(struct tt_work *work, struct tt_engine *engine,
                                   const struct tt_call *call, enum tt_express kind)
{
    const uint64_t turn = ++engine->collectives_issued;
    tt_record_entry(engine, call, turn);
    prepare_steps(work, engine, call, turn);
    work->collective.express = true;
    const tt_status status =
        kind == TT_EXPRESS_WHOLE ? advance_whole(work) : advance_brief(work, kind);
    if (status) return go_on(work, kind, status);
    atomic_store_explicit(&engine->fabric->record->done, turn, memory_order_release);
    /* acquire: tt_work_advance */
    atomic_store_explicit(&engine->collectives_done, turn, memory_order_release);
    tt_engine_leave(engine);
    return TT_OK;
}

tt_status tt_express_begin(struct tt_work *work, struct tt_engine *engine,
                           const struct tt_call *call, enum tt_express kind)
{
    return begin_express(work, engine, call, kind);
}

tt_status tt_express_run(struct tt_engine *engine, const struct tt_call *call, enum tt_express kind)
{
    struct tt_work work;
    return begin_express(&work, engine, call, kind) == TT_OK ? TT_OK : tt_run(&work, false);
}
