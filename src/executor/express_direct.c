/* Express calls over links with long messages, which travel by reference or straight into the
 * receiver's output. work.c and link_step.c look offsets up at each step; here they are worked out
 * once. The steps do the same, with the same protocols of references and posts. The general
 * execution does a step that cannot be done here, or not yet, and all that follow. */
#include <string.h>

#include "executor/express.h"
#include "executor/fetch.h"
#include "executor/internal.h"

/* What one run works with. */
struct run {
    const struct tt_express *express;
    struct tt_engine *engine;
    const struct tt_call *call;
    uint64_t signature;
    char *origin[2]; /* INPUT, OUTPUT: where the global naming would begin */
    struct tt_express_state *state;
};

static const struct tt_program_step *step_at(const struct run *run, uint32_t s)
{
    return tt_program_steps(run->call->loaded->program) + s;
}

static bool is_long(const struct tt_express_step *express)
{
    return express->nbytes >= TT_DIRECT_MIN_BYTES;
}

static char *local_of(const struct run *run, uint32_t s)
{
    const struct tt_program_span *local = &step_at(run, s)->local;
    return local->number ? run->origin[local->buffer] + run->express->steps[s].local : NULL;
}

static char *dst_of(const struct run *run, uint32_t s)
{
    const struct tt_program_span *dst = &step_at(run, s)->dst;
    return dst->number ? run->origin[dst->buffer] + run->express->steps[s].dst : NULL;
}

static struct tt_link *link_at(const struct run *run, uint32_t index)
{
    return run->call->loaded->links[index];
}

/* Bytes of a buffer from the beginning of its first block to the end of its last. */
static size_t held_of(const struct tt_call *call, int buffer)
{
    const struct tt_program_blocks *held = &call->loaded->program->held[buffer];
    size_t begin, last;
    if (!held->number) return 0;
    tt_binding_block(call->binding, held->first, &begin);
    const size_t length = tt_binding_block(call->binding, held->first + held->number - 1, &last);
    return (last + length - begin) * call->binding->element;
}

bool tt_express_prepare_direct(struct tt_express *express, const struct tt_engine *engine,
                               const struct tt_call *call)
{
    const struct tt_program *program = call->loaded->program;
    if (engine->fabric->oversubscribed || !program->direct_safe || program->nscratch ||
        call->binding->nontemporal)
        return false;
    for (uint32_t s = 0; s < program->nsteps; s++)
        if (tt_program_steps(program)[s].nsend > 1) return false;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) express->held[b] = held_of(call, b);
    return true;
}

/* ---- The beginning of a call ---------------------------------------------------------------- */

/* Whether a buffer lies in a window. */
static bool find_memory(const struct run *run)
{
    struct tt_fabric *fabric = run->engine->fabric;
    const void *const buffers[2] = {run->call->input, run->call->output};
    const uint32_t nlinks = run->call->loaded->program->nlinks;
    bool any = false;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        struct tt_memory *memory = &run->state->memory[b];
        tt_fabric_find_memory(fabric, buffers[b], run->express->held[b], memory);
        if (memory->window == TT_NO_WINDOW) continue;
        for (uint32_t i = 0; i < nlinks; i++)
            tt_fabric_introduce(fabric, link_at(run, i)->peer, memory);
        any = true;
    }
    return any;
}

static void post(const struct run *run)
{
    const struct tt_program *program = run->call->loaded->program;
    const struct tt_binding *binding = run->call->binding;
    const struct tt_program_post *posts = tt_program_posts(program);
    for (uint32_t k = 0; k < program->nposts; k++) {
        const uint32_t s = posts[k].step;
        if (!is_long(&run->express->steps[s])) continue;
        struct tt_link *link = link_at(run, step_at(run, s)->recv);
        const struct tt_posted posted = {.to = dst_of(run, s),
                                         .nbytes = run->express->steps[s].nbytes,
                                         .signature = run->signature,
                                         .nontemporal =
                                             !posts[k].is_read && binding->nontemporal_posts};
        link->ops->posts->post(link, posts[k].ahead, &run->state->memory[TT_OUTPUT], &posted);
        run->state->posts = true;
    }
}

/* See fetch.h. */
static void fetch_for_step(const struct run *run, uint32_t s, int nlines)
{
    if (s >= run->call->loaded->program->nsteps) return;
    const struct tt_program_step *step = step_at(run, s);
    const size_t nbytes = run->express->steps[s].nbytes;
    if (step->op != TT_FOLD || !step->nrecv || !is_long(&run->express->steps[s])) return;
    if (step->local.number) tt_fetch_to_read(local_of(run, s), nbytes, nlines);
    if (step->dst.number) tt_fetch_to_write(dst_of(run, s), nbytes, nlines);
}

/* ---- A step --------------------------------------------------------------------------------- */

/* Waits a little for a message. */
static bool get(const struct run *run, struct tt_link *link, size_t nbytes,
                struct tt_message *message)
{
    if (tt_peek_for(run->engine, link, TT_EXPRESS_LOOKS, message) != TT_OK) return false;
    if (!tt_message_is_of(message, run->signature) || message->nbytes != nbytes) return false;
    return message->data && !message->is_borrowed;
}

static bool gather(const struct run *run, uint32_t s)
{
    const struct tt_program_step *step = step_at(run, s);
    const size_t nbytes = run->express->steps[s].nbytes;
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_message message;
        if (!get(run, link_at(run, step->recv + i), nbytes, &message)) return false;
        run->engine->pointers[0].raw_messages[i] = message.signature & TT_SIGNATURE_RAW;
        if (step->op == TT_FOLD) tt_fetch_to_read(message.data, nbytes, TT_FETCH_LATE);
        run->engine->pointers[0].messages[i] = message.data;
    }
    return true;
}

static void release(const struct run *run, uint32_t s)
{
    const struct tt_program_step *step = step_at(run, s);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = link_at(run, step->recv + i);
        link->ops->release(link);
    }
}

/* Stores the only source, and sends a reference to the place where it then lies. */
static bool copy(const struct run *run, uint32_t s)
{
    const struct tt_program_step *step = step_at(run, s);
    const struct tt_program_span *sent = step->dst.number ? &step->dst : &step->local;
    const size_t nbytes = run->express->steps[s].nbytes;
    const struct tt_step_pointers *pointers = &run->engine->pointers[0];
    struct tt_link *link = step->nsend ? link_at(run, step->send) : NULL;
    char *dst = dst_of(run, s);
    const bool own = step->own_at >= 0;
    const void *const source = own ? local_of(run, s) : pointers->messages[0];
    const bool raw = own ? run->express->steps[s].raw : pointers->raw_messages[0];
    const char *reference = dst ? dst : source;
    const uint64_t signature = run->signature | (raw && !dst ? TT_SIGNATURE_RAW : 0);
    const struct tt_memory *memory = &run->state->memory[sent->buffer];
    if (link && !dst && step->finish) return false; /* as link_step.c: no reference to an input */
    if (link && dst && raw) return false; /* it would be changed twice where the link is full */
    if (link &&
        (!link->ops->slot(link, nbytes) || !link->ops->reaches(link, memory, reference, nbytes)))
        return false;
    if (dst && raw)
        tt_reduce(&run->call->reduction, dst, &source, 1, run->express->steps[s].count, TT_RAW);
    else if (dst && dst != source)
        memcpy(dst, source, nbytes);
    if (link && !link->ops->publish_direct(link, memory, reference, nbytes, signature))
        return false;
    if (link) run->state->references = true;
    return true;
}

/* The sources of a fold, in their order. */
static struct tt_sources list_inputs(const struct run *run, uint32_t s)
{
    const struct tt_program_step *step = step_at(run, s);
    const struct tt_step_pointers *pointers = &run->engine->pointers[0];
    int n = 0;
    for (uint32_t i = 0; i <= step->nrecv; i++) {
        if ((int32_t)i == step->own_at) {
            pointers->raw[n] = run->express->steps[s].raw;
            pointers->inputs[n++] = local_of(run, s);
        }
        if (i == step->nrecv) break;
        pointers->raw[n] = pointers->raw_messages[i];
        pointers->inputs[n++] = pointers->messages[i];
    }
    return (struct tt_sources){pointers->inputs, pointers->raw, n};
}

static bool is_input(const struct tt_sources *sources, const void *to)
{
    int i = 0;
    while (i < sources->number && sources->data[i] != to) i++;
    return i < sources->number;
}

/* Stores the result, and writes it to the memory that the receiver has posted. */
static bool fold(const struct run *run, uint32_t s)
{
    const struct tt_program_step *step = step_at(run, s);
    const struct tt_express_step *express = &run->express->steps[s];
    struct tt_link *link = step->nsend ? link_at(run, step->send) : NULL;
    struct tt_posted posted = {.nbytes = express->nbytes, .signature = run->signature};
    struct tt_target targets[2];
    int ntargets = 0;
    if (link &&
        (!link->ops->slot(link, express->nbytes) || !link->ops->posts->claim(link, &posted)))
        return false;
    if (link && !posted.nontemporal) tt_fetch_to_write(posted.to, express->nbytes, TT_FETCH_EARLY);
    const struct tt_sources sources = list_inputs(run, s);
    if (step->dst.number) targets[ntargets++] = (struct tt_target){.data = dst_of(run, s)};
    if (link)
        targets[ntargets++] = (struct tt_target){
            .data = posted.to, .nontemporal = posted.nontemporal && !is_input(&sources, posted.to)};
    tt_reduce_to(&run->call->reduction, targets, ntargets, &sources, express->count,
                 step->finish ? TT_FINISH : 0);
    if (link) link->ops->publish(link, express->nbytes, run->signature);
    return true;
}

/* False: nothing has happened that the general execution may not do again. */
static bool do_long_step(const struct run *run, uint32_t s)
{
    if (!gather(run, s)) return false;
    if (!(step_at(run, s)->op == TT_FOLD ? fold(run, s) : copy(run, s))) return false;
    release(run, s);
    return true;
}

/* ---- The call ------------------------------------------------------------------------------- */

/* Whether receivers have taken all references: until then they use the caller's buffers. */
static bool await_taken(const struct run *run)
{
    const struct tt_program *program = run->call->loaded->program;
    const struct tt_program_link *links = tt_program_links(program);
    uint32_t i = 0;
    for (int look = 0; look < TT_EXPRESS_LOOKS && i < program->nlinks;) {
        struct tt_link *link = link_at(run, i);
        if (!links[i].outgoing || link->ops->drained(link)) {
            i++;
            continue;
        }
        tt_cpu_relax();
        look++;
    }
    return i == program->nlinks;
}

static bool do_steps(const struct run *run)
{
    const uint32_t nsteps = run->call->loaded->program->nsteps;
    uint32_t *s = &run->state->at.step;
    for (*s = 0; *s < nsteps; ++*s) {
        const struct tt_express_step *express = &run->express->steps[*s];
        const bool done = is_long(express)
                              ? do_long_step(run, *s)
                              : tt_express_do_step(express, step_at(run, *s), run->engine,
                                                   run->call, run->signature);
        if (!done) return false;
        fetch_for_step(run, *s + 1, TT_FETCH_LATE);
    }
    return true;
}

bool tt_express_run_direct(const struct tt_express *express, struct tt_engine *engine,
                           const struct tt_call *call, uint64_t signature,
                           struct tt_express_state *state)
{
    const size_t *skipped = call->binding->skipped;
    const struct run run = {.express = express,
                            .engine = engine,
                            .call = call,
                            .signature = signature,
                            .origin = {(char *)((uintptr_t)call->input - skipped[TT_INPUT]),
                                       (char *)((uintptr_t)call->output - skipped[TT_OUTPUT])},
                            .state = state};
    *state = (struct tt_express_state){.references = false};
    if (!find_memory(&run)) return false;
    fetch_for_step(&run, 1, TT_FETCH_EARLY);
    post(&run);
    state->at.posted = true;
    if (!do_steps(&run)) return false;
    state->at.done = true;
    state->at.step = 0;
    /* After a failure a peer may have freed what was read here by reference. */
    return (!state->references || await_taken(&run)) && tt_fabric_check(engine->fabric) == TT_OK;
}
