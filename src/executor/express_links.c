/* Express calls over links: programs of a few steps whose messages are small. */
#include <string.h>

#include "executor/express.h"
#include "executor/internal.h"

/* Where the one piece of a span lies; false: there are several, or it is in SCRATCH. */
static bool find_piece(const struct tt_program *program, const struct tt_binding *binding,
                       const struct tt_program_span *span, struct tt_piece *piece)
{
    *piece = (struct tt_piece){.offset = 0};
    if (!span->number) return true;
    if (span->buffer == TT_SCRATCH || !tt_span_is_whole(binding, span)) return false;
    struct tt_walk walk = tt_walk_begin(program, binding, span, 0, 0, true);
    return tt_walk_next(&walk, piece);
}

static bool prepare_step(struct tt_express_step *express, const struct tt_program *program,
                         const struct tt_program_step *step, const struct tt_call *call)
{
    const struct tt_binding *binding = call->binding;
    struct tt_piece local, dst;
    if (step->kind != TT_STEP_LINK || !find_piece(program, binding, &step->local, &local) ||
        !find_piece(program, binding, &step->dst, &dst))
        return false;
    const bool has_data = step->local.number || step->dst.number;
    if (!has_data && program->nblocks) return false; /* forwards what comes, however long */
    const bool finishes = step->finish && tt_op_finishes(call->reduction.op, call->reduction.type);
    if (step->op == TT_COPY && finishes) return false;
    const size_t count = step->dst.number ? dst.count : local.count;
    *express = (struct tt_express_step){
        .local = local.offset,
        .dst = dst.offset,
        .count = count,
        .nbytes = count * binding->element,
        .changes = tt_op_changes_raw(call->reduction.op, call->reduction.type),
        .raw = tt_is_raw_span(&call->reduction, &step->local)};
    return true;
}

bool tt_express_prepare_links(struct tt_express *express, const struct tt_call *call)
{
    const struct tt_program *program = call->loaded->program;
    if (program->nsteps > TT_EXPRESS_STEPS) return false;
    for (uint32_t s = 0; s < program->nsteps; s++)
        if (!prepare_step(&express->steps[s], program, &tt_program_steps(program)[s], call))
            return false;
    return true;
}

/* Waits a little for a message. */
static bool get(const struct tt_engine *engine, struct tt_link *link, size_t nbytes,
                uint64_t signature, struct tt_message *message)
{
    if (tt_peek_for(engine, link, TT_EXPRESS_LOOKS, message) != TT_OK) return false;
    if (!tt_message_is_of(message, signature) || message->nbytes != nbytes) return false;
    return (message->data || !nbytes) && !message->is_borrowed;
}

static bool gather(const struct tt_express_step *express, const struct tt_program_step *step,
                   struct tt_engine *engine, const struct tt_call *call, uint64_t signature)
{
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = call->loaded->links[step->recv + i];
        struct tt_message message;
        if (!get(engine, link, express->nbytes, signature, &message)) return false;
        engine->pointers[0].messages[i] = message.data;
        if (express->changes)
            engine->pointers[0].raw_messages[i] = message.signature & TT_SIGNATURE_RAW;
    }
    return true;
}

static bool get_slots(const struct tt_express_step *express, const struct tt_program_step *step,
                      struct tt_engine *engine, const struct tt_call *call)
{
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = call->loaded->links[step->send + i];
        char *slot = link->ops->slot(link, express->nbytes);
        if (!slot) return false;
        engine->pointers[0].slots[i] = slot;
    }
    return true;
}

/* The only source of a copy, and whether it is raw. */
static const void *source_of(const struct tt_express_step *express,
                             const struct tt_program_step *step, const struct tt_engine *engine,
                             const char *local, bool *raw)
{
    const struct tt_step_pointers *pointers = &engine->pointers[0];
    const bool own = step->own_at >= 0;
    *raw = express->changes && (own ? express->raw : pointers->raw_messages[0]);
    return own ? local : pointers->messages[0];
}

/* The result of a fold, made in `target`. */
static void fold(const struct tt_express_step *express, const struct tt_program_step *step,
                 const struct tt_engine *engine, const struct tt_call *call, const char *local,
                 char *target)
{
    const struct tt_step_pointers *pointers = &engine->pointers[0];
    int n = 0;
    for (uint32_t i = 0; i <= step->nrecv; i++) {
        if ((int32_t)i == step->own_at) pointers->inputs[n++] = local;
        if (i < step->nrecv) pointers->inputs[n++] = pointers->messages[i];
    }
    for (uint32_t i = 0, k = 0; express->changes && i <= step->nrecv; i++) {
        if ((int32_t)i == step->own_at) pointers->raw[k++] = express->raw;
        if (i < step->nrecv) pointers->raw[k++] = pointers->raw_messages[i];
    }
    const struct tt_target to = {.data = target};
    const struct tt_sources sources = {pointers->inputs, express->changes ? pointers->raw : NULL,
                                       n};
    tt_reduce_to(&call->reduction, &to, 1, &sources, express->count, step->finish ? TT_FINISH : 0);
}

/* Stores the source of a copy: a raw one as the operation changes it. */
static void store(const struct tt_express_step *express, const struct tt_call *call,
                  const void *source, bool raw, char *dst)
{
    if (raw)
        tt_reduce(&call->reduction, dst, &source, 1, express->count, TT_RAW);
    else if (source != dst)
        memcpy(dst, source, express->nbytes);
}

/* The step's work on data. Messages leave before the result is stored: the receivers wait for them.
 * A copy sends a raw source as it is. */
static void make_and_publish(const struct tt_express_step *express,
                             const struct tt_program_step *step, struct tt_engine *engine,
                             const struct tt_call *call, const char *local, char *dst,
                             uint64_t signature)
{
    char **slots = engine->pointers[0].slots;
    const bool copies = step->op == TT_COPY;
    bool raw = false;
    const void *source = copies ? source_of(express, step, engine, local, &raw) : NULL;
    if (!copies) {
        char *target = step->nsend ? slots[0] : dst;
        fold(express, step, engine, call, local, target);
        source = target;
    }
    for (uint32_t i = copies ? 0 : 1; i < step->nsend; i++)
        memcpy(slots[i], source, express->nbytes);
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = call->loaded->links[step->send + i];
        link->ops->publish(link, express->nbytes, raw ? signature | TT_SIGNATURE_RAW : signature);
    }
    if (dst) store(express, call, source, raw, dst);
}

static void complete_step(const struct tt_express_step *express, const struct tt_program_step *step,
                          struct tt_engine *engine, const struct tt_call *call, uint64_t signature)
{
    const size_t *skipped = call->binding->skipped;
    char *const origin[2] = {(char *)((uintptr_t)call->input - skipped[TT_INPUT]),
                             (char *)((uintptr_t)call->output - skipped[TT_OUTPUT])};
    const char *local = step->own_at >= 0 ? origin[step->local.buffer] + express->local : NULL;
    char *dst = step->dst.number ? origin[step->dst.buffer] + express->dst : NULL;
    if (express->nbytes) make_and_publish(express, step, engine, call, local, dst, signature);
    for (uint32_t i = 0; i < step->nsend && !express->nbytes; i++) {
        struct tt_link *link = call->loaded->links[step->send + i];
        link->ops->publish(link, 0, signature);
    }
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = call->loaded->links[step->recv + i];
        link->ops->release(link);
    }
}

bool tt_express_do_step(const struct tt_express_step *express, const struct tt_program_step *step,
                        struct tt_engine *engine, const struct tt_call *call, uint64_t signature)
{
    if (!gather(express, step, engine, call, signature) || !get_slots(express, step, engine, call))
        return false;
    complete_step(express, step, engine, call, signature);
    return true;
}

uint32_t tt_express_run_links(const struct tt_express *express, struct tt_engine *engine,
                              const struct tt_call *call, uint64_t signature)
{
    const struct tt_program_step *steps = tt_program_steps(call->loaded->program);
    const uint32_t nsteps = call->loaded->program->nsteps;
    for (uint32_t s = 0; s < nsteps; s++)
        if (!tt_express_do_step(&express->steps[s], &steps[s], engine, call, signature)) return s;
    return nsteps;
}
