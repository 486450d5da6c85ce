/* Express calls: whether a call may be one, and those that are a single meeting. Calls over links
 * are in express_links.c and, with long messages, in express_direct.c. */
#include "executor/express.h"

#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

static bool prepare_meeting(struct tt_express_meeting *express, const struct tt_engine *engine,
                            const struct tt_call *call)
{
    const struct tt_program *program = call->loaded->program;
    const struct tt_binding *binding = call->binding;
    const struct tt_program_step *step = tt_program_steps(program);
    const bool one_size = program->nblocks <= 1 || !program->splits;
    if (program->nsteps != 1 || step->kind != TT_STEP_MEET || !one_size) return false;
    if (engine->fabric->oversubscribed) return false;
    const size_t block = binding->count * binding->element;
    if ((size_t)step->local.number * block > engine->meetings[0].capacity)
        return false; /* tt_step_meet says so */
    *express = (struct tt_express_meeting){
        .op = (enum tt_step_op)step->op,
        .block = block,
        .first = (uint32_t)step->local.first,
        .number = (uint32_t)step->local.number,
        .part = (size_t)step->local.number * block,
        .take_first = step->dst.first,
        .take_number = step->dst.number,
        .raw = tt_is_raw_span(&call->reduction, &step->local)
                   ? (size_t)step->local.number * binding->count
                   : 0,
    };
    return true;
}

/* Whether every step runs once, on one channel, with all of the data, if any. */
static bool runs_once(const struct tt_program *program, const struct tt_binding *binding)
{
    if (!program->nblocks) return program->nchannels == 1;
    return binding->count > 0 && binding->merged;
}

static bool has_long(const struct tt_express *express, const struct tt_program *program)
{
    uint32_t s = 0;
    while (s < program->nsteps && express->steps[s].nbytes < TT_DIRECT_MIN_BYTES) s++;
    return s < program->nsteps;
}

void tt_express_prepare(struct tt_express *express, const struct tt_engine *engine,
                        const struct tt_call *call)
{
    *express = (struct tt_express){.kind = TT_EXPRESS_NOT};
    if (call->binding->table_at || !runs_once(call->loaded->program, call->binding) ||
        engine->fabric->hosts->nhosts > 1)
        return;
    if (call->reduction.op == TT_PREMUL_SUM) return;
    if (prepare_meeting(&express->meeting, engine, call))
        express->kind = TT_EXPRESS_MEETING;
    else if (!tt_express_prepare_links(express, call))
        return;
    else if (!has_long(express, call->loaded->program))
        express->kind = TT_EXPRESS_LINKS;
    else if (tt_express_prepare_direct(express, engine, call))
        express->kind = TT_EXPRESS_DIRECT;
}

static void put_in(const struct tt_express_meeting *express, struct tt_engine *engine,
                   const struct tt_call *call, uint64_t signature)
{
    struct tt_meeting *meeting = &engine->meetings[0];
    const struct tt_part part = {.signature = signature,
                                 .nbytes = express->part,
                                 .first = express->first,
                                 .number = express->number,
                                 .complete = true};
    char *to = tt_meeting_data(tt_meeting_place(meeting, meeting->own), express->part);
    if (express->raw)
        tt_reduce(&call->reduction, to, &call->input, 1, express->raw, TT_RAW);
    else if (express->part)
        memcpy(to, call->input, express->part);
    tt_meeting_put(meeting, &part, true);
    tt_count_more(&engine->fabric->nmessages, 1);
    tt_count_more(&engine->fabric->nbytes_copied, express->part);
}

/* How many parts, counted from member 0, are in and of this call. */
static int await_parts(const struct tt_meeting *meeting, uint64_t signature)
{
    int member = 0;
    for (int look = 0; look < TT_EXPRESS_LOOKS && member < meeting->nmembers;) {
        if (!tt_meeting_is_in(meeting, member)) {
            tt_cpu_relax();
            look++;
            continue;
        }
        if (tt_meeting_place(meeting, member)->signature != signature) break;
        member++;
    }
    return member;
}

/* Where the block of a place lies in a member's part, which holds it. */
static const char *block_of(const struct tt_express_meeting *express,
                            const struct tt_meeting *meeting, int member, int block)
{
    const int first = (int)tt_meeting_place(meeting, member)->first;
    return tt_meeting_part(meeting, member) + (size_t)(block - first) * express->block;
}

static void fold(const struct tt_express_meeting *express, struct tt_engine *engine,
                 const struct tt_call *call)
{
    const struct tt_meeting *meeting = &engine->meetings[0];
    const void **inputs = engine->pointers[0].messages;
    for (int member = 0; member < meeting->nmembers; member++)
        inputs[member] = block_of(express, meeting, member, express->take_first);
    const size_t count = (size_t)express->take_number * call->binding->count;
    tt_reduce_to(&call->reduction, &(struct tt_target){.data = call->output}, 1,
                 &(struct tt_sources){.data = inputs, .number = meeting->nmembers}, count,
                 TT_FINISH);
}

/* The blocks that this rank takes of a member's part. */
static void copy_blocks(const struct tt_express_meeting *express, const struct tt_meeting *meeting,
                        int member, char *output)
{
    const struct tt_flag *part = tt_meeting_place(meeting, member);
    const int first = (int)part->first, end = first + (int)part->number;
    const int take_end = express->take_first + express->take_number;
    const int low = first > express->take_first ? first : express->take_first;
    const int high = end < take_end ? end : take_end;
    if (low >= high) return;
    memcpy(output + (size_t)(low - express->take_first) * express->block,
           block_of(express, meeting, member, low), (size_t)(high - low) * express->block);
}

static void take(const struct tt_express_meeting *express, struct tt_engine *engine,
                 const struct tt_call *call)
{
    const struct tt_meeting *meeting = &engine->meetings[0];
    char *output = call->output;
    if (!express->take_number) return;
    if (express->op == TT_FOLD) {
        fold(express, engine, call);
        return;
    }
    for (int member = 0; member < meeting->nmembers; member++) {
        if (express->op == TT_COPY)
            copy_blocks(express, meeting, member, output);
        else
            memcpy(output + (size_t)member * express->block,
                   block_of(express, meeting, member, engine->fabric->rank), express->block);
    }
}

void tt_express_hand_over(struct tt_work *work, struct tt_engine *engine,
                          const struct tt_call *call, uint64_t turn,
                          const struct tt_express_state *state)
{
    tt_collective_begin(work, engine, call, turn);
    work->state = TT_WORK_RUNNING;
    work->collective.memory[TT_INPUT] = state->memory[TT_INPUT];
    work->collective.memory[TT_OUTPUT] = state->memory[TT_OUTPUT];
    work->collective.references = state->references;
    work->collective.posts = state->posts;
    work->collective.channels = engine->positions;
    work->collective.channels[0] = state->at;
    engine->report_ns = 0;
}

/* Something is late or wrong: the general execution goes on, and reports a failure. */
static tt_status go_on(struct tt_engine *engine, const struct tt_call *call, uint64_t turn,
                       const struct tt_express_state *state)
{
    struct tt_work work;
    tt_express_hand_over(&work, engine, call, turn, state);
    tt_engine_leave(engine);
    return tt_run(&work, false);
}

/* Goes on in the general execution where nothing was posted or sent by reference. */
static tt_status go_on_at(struct tt_engine *engine, const struct tt_call *call, uint64_t turn,
                          struct tt_position at)
{
    const struct tt_memory none = {.window = TT_NO_WINDOW};
    return go_on(engine, call, turn, &(struct tt_express_state){.at = at, .memory = {none, none}});
}

static bool run_meeting(const struct tt_express_meeting *express, struct tt_engine *engine,
                        const struct tt_call *call, uint64_t signature)
{
    put_in(express, engine, call, signature);
    if (await_parts(&engine->meetings[0], signature) < engine->meetings[0].nmembers) return false;
    take(express, engine, call);
    tt_meeting_finish(&engine->meetings[0]);
    return true;
}

tt_status tt_express_run(const struct tt_express *express, struct tt_engine *engine,
                         const struct tt_call *call)
{
    const uint64_t turn = ++engine->collectives_issued;
    const uint64_t signature = tt_turn_signature(call->signature, turn);
    tt_record_entry(engine, call, turn);
    if (express->kind == TT_EXPRESS_MEETING) {
        if (!run_meeting(&express->meeting, engine, call, signature))
            return go_on_at(engine, call, turn, (struct tt_position){.entered = true});
    } else if (express->kind == TT_EXPRESS_LINKS) {
        const uint32_t step = tt_express_run_links(express, engine, call, signature);
        if (step < call->loaded->program->nsteps)
            return go_on_at(engine, call, turn, (struct tt_position){.step = step});
    } else {
        struct tt_express_state state;
        if (!tt_express_run_direct(express, engine, call, signature, &state))
            return go_on(engine, call, turn, &state);
    }
    atomic_store_explicit(&engine->fabric->record->done, turn, memory_order_release);
    /* acquire: tt_work_advance */
    atomic_store_explicit(&engine->collectives_done, turn, memory_order_release);
    tt_engine_leave(engine);
    return TT_OK;
}
