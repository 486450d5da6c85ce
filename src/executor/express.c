#include "executor/express.h"

#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

/* Then the wait loop takes over: some microseconds. */
enum { EXPRESS_LOOKS = 256 };

static bool takes_everyone(const struct tt_peers *members, int nranks)
{
    return members->number == nranks && members->first == 0 && !members->group.ranks &&
           (members->stride == 1 || nranks == 1);
}

void tt_express_prepare(struct tt_express *express, const struct tt_engine *engine,
                        const struct tt_call *call)
{
    const struct tt_schedule *schedule = call->schedule;
    *express = (struct tt_express){.possible = false};
    if (schedule->nchannels != 1 || schedule->nsteps[0] != 1) return;
    if (engine->fabric->hosts->nhosts > 1) return;
    const struct tt_step *step = &schedule->steps[0][0];
    const size_t element = tt_type_size(call->reduction.type);
    const bool one_size =
        schedule->nblocks <= 1 || !tt_collective_splits(schedule->shape.collective);
    const struct tt_segment_header *header = engine->fabric->segment->header;
    const size_t room =
        header->meet_bytes < header->slot_bytes ? header->meet_bytes : header->slot_bytes;
    const size_t nblocks = schedule->nblocks ? (size_t)schedule->nblocks : 1;
    if (step->kind != TT_STEP_MEET || !takes_everyone(&step->recv, engine->fabric->nranks)) return;
    if (!one_size || engine->fabric->oversubscribed || call->reduction.op == TT_PREMUL_SUM) return;
    if (call->count > room / element / nblocks) return; /* more takes rounds */
    if (schedule->nblocks && call->count == 0) return;
    *express = (struct tt_express){
        .possible = true,
        .op = step->op,
        .signature = tt_call_signature(call),
        .block = call->count * element,
        .first = (uint32_t)step->local.first,
        .number = (uint32_t)step->local.number,
        .part = (size_t)step->local.number * call->count * element,
        .take_first = step->dst.first,
        .take_number = step->dst.number,
    };
}

static void put_in(const struct tt_express *express, struct tt_engine *engine, const void *input,
                   uint64_t signature)
{
    struct tt_fabric *fabric = engine->fabric;
    struct tt_flag *flag =
        tt_segment_meet_flag(fabric->segment, fabric->rank, (int)(engine->meetings & 1));
    flag->nbytes_kind = (uint64_t)express->part << 8 | TT_MESSAGE_LAST_PART;
    flag->signature = signature;
    flag->first = express->first;
    flag->number = express->number;
    if (express->part) memcpy(tt_part_payload(flag), input, express->part);
    atomic_store_explicit(&flag->seq, engine->meetings + 1, memory_order_release); /* R3 */
    tt_count_more(&fabric->nmessages, 1);
    tt_count_more(&fabric->nbytes_copied, express->part);
}

/* How many parts, counted from rank 0, are in; the signatures of those that are not this call's
 * stop it. */
static int await_parts(struct tt_engine *engine, uint64_t signature)
{
    struct tt_fabric *fabric = engine->fabric;
    int member = 0;
    for (int look = 0; look < EXPRESS_LOOKS && member < fabric->nranks;) {
        const struct tt_flag *flag =
            tt_segment_meet_flag(fabric->segment, member, (int)(engine->meetings & 1));
        if (atomic_load_explicit(&flag->seq, memory_order_acquire) !=
            engine->meetings + 1) { /* A3 */
            tt_cpu_relax();
            look++;
            continue;
        }
        if (flag->signature != signature) return member;
        member++;
    }
    return member;
}

static void fold(const struct tt_express *express, struct tt_engine *engine,
                 const struct tt_call *call)
{
    struct tt_fabric *fabric = engine->fabric;
    const void **inputs = engine->sources[0];
    if (!express->take_number) return;
    for (int m = 0; m < fabric->nranks; m++) {
        struct tt_flag *flag =
            tt_segment_meet_flag(fabric->segment, m, (int)(engine->meetings & 1));
        inputs[m] = tt_part_payload(flag) +
                    (size_t)(express->take_first - (int)flag->first) * express->block;
    }
    const size_t count = (size_t)express->take_number * call->count;
    tt_reduce(&call->reduction, call->output, inputs, fabric->nranks, count, TT_FINISH);
}

static void copy_blocks(const struct tt_express *express, struct tt_flag *flag, char *output)
{
    const int first = (int)flag->first, end = first + (int)flag->number;
    const int take_end = express->take_first + express->take_number;
    const int low = first > express->take_first ? first : express->take_first;
    const int high = end < take_end ? end : take_end;
    if (low >= high) return;
    memcpy(output + (size_t)(low - express->take_first) * express->block,
           tt_part_payload(flag) + (size_t)(low - first) * express->block,
           (size_t)(high - low) * express->block);
}

static void take(const struct tt_express *express, struct tt_engine *engine,
                 const struct tt_call *call)
{
    struct tt_fabric *fabric = engine->fabric;
    char *output = call->output;
    if (express->op == TT_FOLD) {
        fold(express, engine, call);
        return;
    }
    for (int m = 0; m < fabric->nranks && express->take_number; m++) {
        struct tt_flag *flag =
            tt_segment_meet_flag(fabric->segment, m, (int)(engine->meetings & 1));
        if (express->op == TT_COPY)
            copy_blocks(express, flag, output);
        else
            memcpy(output + (size_t)m * express->block,
                   tt_part_payload(flag) +
                       (size_t)(fabric->rank - (int)flag->first) * express->block,
                   express->block);
    }
}

/* Too late, or something is wrong: the general way goes on from here, and finds out. */
static tt_status go_on(struct tt_engine *engine, const struct tt_call *call, uint64_t turn)
{
    struct tt_work work;
    tt_work_begin(&work, engine, call, turn);
    work.started = true;
    work.channels[0].entered = true;
    atomic_store_explicit(&engine->busy, false, memory_order_release); /* R7 */
    return tt_run(&work, 1, false);
}

tt_status tt_express_run(const struct tt_express *express, struct tt_engine *engine,
                         const struct tt_call *call)
{
    const uint64_t turn = ++engine->collectives_issued;
    const uint64_t signature = tt_turn_signature(express->signature, turn);
    atomic_store_explicit(&engine->busy, true,
                          memory_order_relaxed); /* idle: nobody else wants it */
    tt_record_entry(engine, call, turn);
    put_in(express, engine, call->input, signature);
    if (await_parts(engine, signature) < engine->fabric->nranks) return go_on(engine, call, turn);
    take(express, engine, call);
    engine->meetings++;
    atomic_store_explicit(&engine->fabric->record->done, turn, memory_order_release);
    atomic_store_explicit(&engine->collectives_done, turn, memory_order_release); /* R8 */
    atomic_store_explicit(&engine->busy, false, memory_order_release);            /* R7 */
    return TT_OK;
}
