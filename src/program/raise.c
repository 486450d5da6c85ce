/* Raises a program to the steps of a schedule. Everything comes from the program's own tables, so
 * what verify proves of the raised steps it proves of the program. */
#include <stdlib.h>

#include "program/lower.h"

/* The list of a step: its recv peers with this rank at its own place, then its send peers. */
static uint32_t list_length(const struct tt_program_step *step)
{
    return step->nrecv + (step->own_at > 0) + step->nsend;
}

static int32_t *add_peers(int32_t *to, const struct tt_program *program, uint32_t first,
                          uint32_t number)
{
    const struct tt_program_link *links = tt_program_links(program);
    for (uint32_t i = 0; i < number; i++) *to++ = links[first + i].peer;
    return to;
}

tt_status tt_raised_init(struct tt_raised *out, const struct tt_program *program,
                         const struct tt_hosts *hosts)
{
    struct tt_raised raised = {.program = program, .hosts = hosts};
    const struct tt_program_step *steps = tt_program_steps(program);
    size_t length = 1;
    for (uint32_t s = 0; s < program->nsteps; s++) length += list_length(&steps[s]);
    raised.begin = malloc((program->nsteps + 1) * sizeof *raised.begin);
    raised.lists = malloc(length * sizeof *raised.lists);
    if (!raised.begin || !raised.lists) {
        tt_raised_fini(&raised);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for raising a program of %u steps",
                       program->nsteps);
    }
    int32_t *to = raised.lists;
    for (uint32_t s = 0; s < program->nsteps; s++) {
        const struct tt_program_step *step = &steps[s];
        const uint32_t before = step->own_at > 0 ? (uint32_t)step->own_at : 0;
        raised.begin[s] = (size_t)(to - raised.lists);
        to = add_peers(to, program, step->recv, before);
        if (step->own_at > 0) *to++ = program->rank;
        to = add_peers(to, program, step->recv + before, step->nrecv - before);
        to = add_peers(to, program, step->send, step->nsend);
    }
    *out = raised;
    return TT_OK;
}

void tt_raised_fini(struct tt_raised *raised)
{
    free(raised->begin);
    free(raised->lists);
    raised->begin = NULL;
    raised->lists = NULL;
}

static struct tt_peers listed(const int32_t *list, uint32_t number)
{
    struct tt_peers peers = {.number = (int32_t)number, .stride = 1};
    if (number) peers.group = (struct tt_group){.ranks = list, .number = (int32_t)number};
    return peers;
}

static struct tt_span raised_span(const struct tt_program *program,
                                  const struct tt_program_span *span)
{
    if (!span->number) return (struct tt_span){.run = 1};
    return (struct tt_span){
        .buffer = (enum tt_buffer)span->buffer,
        .first = span->first,
        .number = span->number,
        .run = span->run,
        .stride = span->stride,
        .at = span->slot_rule == TT_SLOTS_BY_PLACE ? TT_BY_NAME - span->slot : span->slot,
        .base = span->base,
        .modulo = span->modulo,
        .order = span->order < 0 ? NULL : tt_program_orders(program) + span->order,
    };
}

static struct tt_peers everyone_of_host(const struct tt_raised *raised)
{
    const struct tt_hosts *hosts = raised->hosts;
    if (!hosts) return (struct tt_peers){.number = raised->program->nranks, .stride = 1};
    const struct tt_group group = tt_hosts_inside(hosts, hosts->host_of[raised->program->rank]);
    return (struct tt_peers){.number = group.number, .stride = 1, .group = group};
}

void tt_raise(const struct tt_raised *raised, int channel, int index, struct tt_step *out)
{
    const struct tt_program *program = raised->program;
    const struct tt_program_step *step = tt_program_step(program, channel, (uint32_t)index);
    const int32_t *list = raised->lists + raised->begin[step - tt_program_steps(program)];
    const uint32_t nrecv = step->nrecv + (step->own_at > 0);
    *out = (struct tt_step){
        .kind = (enum tt_step_kind)step->kind,
        .op = (enum tt_step_op)step->op,
        .finish = step->finish,
        .recv = step->kind == TT_STEP_MEET ? everyone_of_host(raised) : listed(list, nrecv),
        .local = raised_span(program, &step->local),
        .dst = raised_span(program, &step->dst),
        .send = listed(list + nrecv, step->nsend),
    };
}
