/* Raises a program to the steps of a schedule. Everything comes from the program's own tables, so
 * what verify proves of the raised steps it proves of the program. */
#include <stdlib.h>

#include "program/lower.h"

tt_status tt_raised_init(struct tt_raised *raised, const struct tt_program *program,
                         const struct tt_hosts *hosts)
{
    int32_t *peers = malloc((program->nlinks + 1) * sizeof *peers);
    if (!peers)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for raising a program of %u links",
                       program->nlinks);
    *raised = (struct tt_raised){.program = program, .hosts = hosts, .peers = peers};
    return TT_OK;
}

void tt_raised_fill(const struct tt_raised *raised)
{
    const struct tt_program *program = raised->program;
    for (uint32_t i = 0; i < program->nlinks; i++)
        raised->peers[i] = tt_program_links(program)[i].peer;
}

void tt_raised_fini(struct tt_raised *raised)
{
    free(raised->peers);
    raised->peers = NULL;
}

static struct tt_peers raised_peers(const struct tt_raised *raised, uint32_t first, uint32_t number)
{
    if (!number) return (struct tt_peers){.number = 0};
    return (struct tt_peers){.number = (int32_t)number,
                             .stride = 1,
                             .group = {.ranks = raised->peers + first, .number = (int32_t)number}};
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
        .slot_rule = (enum tt_slot_rule)span->slot_rule,
        .slot = span->slot,
        .base = span->base,
        .modulo = span->modulo,
        .order = span->order < 0 ? NULL : tt_program_orders(program) + span->order,
    };
}

static struct tt_peers everyone_of_host(const struct tt_raised *raised)
{
    const struct tt_hosts *hosts = tt_hosts_apart(raised->hosts);
    if (!hosts) return (struct tt_peers){.number = raised->program->nranks, .stride = 1};
    const struct tt_group group = tt_hosts_inside(hosts, hosts->host_of[raised->program->rank]);
    return (struct tt_peers){.number = group.number, .stride = 1, .group = group};
}

void tt_raise(const struct tt_raised *raised, int channel, int index, struct tt_step *out)
{
    const struct tt_program *program = raised->program;
    const struct tt_program_step *step = tt_program_step(program, channel, (uint32_t)index);
    *out = (struct tt_step){
        .kind = (enum tt_step_kind)step->kind,
        .op = (enum tt_step_op)step->op,
        .finish = step->finish,
        .recv = step->kind == TT_STEP_MEET ? everyone_of_host(raised)
                                           : raised_peers(raised, step->recv, step->nrecv),
        .local = raised_span(program, &step->local),
        .own_at = step->own_at > 0 ? step->own_at : 0,
        .dst = raised_span(program, &step->dst),
        .send = raised_peers(raised, step->send, step->nsend),
    };
}
