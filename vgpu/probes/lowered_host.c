/* Makes the programs of a collective and runs them on the host, as the reference for the device. */
#include "lowered_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "driver.h"
#include "program/lower.h"

void job_make(struct job *job)
{
    const struct tt_algorithm *algorithm = tt_algorithm_find(job->collective, job->algorithm);
    const struct tt_shape shape = {.collective = job->collective, .nranks = job->nranks};
    if (!algorithm) die("no algorithm %s", job->algorithm);
    size_t payload = job->slot_bytes;
    if (job->protocol > DIRECT) /* a line may be left partly filled at the end of each block */
        payload = (job->slot_bytes / line_bytes(job->protocol) - MOST_PEERS) *
                  line_elements(job->protocol) * sizeof(float) / 64 * 64;
    const struct tt_limits limits = {
        .slot_bytes = payload, .meet_bytes = 1 << 30, .copies = job->copies};
    for (int r = 0; r < job->nranks; r++) {
        if (tt_program_create(algorithm, &shape, r, &job->programs[r]))
            die("no program of %s for %d ranks", job->algorithm, job->nranks);
        const struct tt_program *program = job->programs[r];
        struct tt_binding *binding = &job->bindings[r];
        if (tt_program_bind(program, job->count, sizeof(float), &limits, binding))
            die("%s does not bind %zu elements", job->algorithm, job->count);
        size_t *const bytes[2] = {&job->input_bytes[r], &job->output_bytes[r]};
        for (int b = 0; b < 2; b++) {
            size_t begin = 0, length = 0;
            if (program->held[b].number)
                length = tt_binding_block(
                    binding, program->held[b].first + program->held[b].number - 1, &begin);
            *bytes[b] = program->held[b].number
                            ? (begin + length) * sizeof(float) - binding->skipped[b]
                            : 0;
        }
        job->scratch_bytes[r] =
            (size_t)program->nscratch * binding->parts[0].nparts * binding->piece * sizeof(float);
        if (program->meets) die("%s has meetings, which the kernel does not know", job->algorithm);
    }
}

void job_clear(struct job *job)
{
    for (int r = 0; r < job->nranks; r++) free(job->programs[r]);
}

/* ---- Simulation ----------------------------------------------------------------------------- */

enum { DEEP = 64 };

/* Messages from one rank to another on one part. */
struct queue {
    float *messages[DEEP];
    unsigned sent, taken;
};

struct state {
    size_t round;
    uint32_t step;
    bool done;
};

struct simulation {
    const struct job *job;
    float *const *inputs, *const *outputs;
    float *scratch[MOST_PEERS];
    struct queue *queues; /* [part][from][to] */
};

static struct queue *queue_of(const struct simulation *all, int part, int from, int to)
{
    return &all->queues[(part * all->job->nranks + from) * all->job->nranks + to];
}

static float *data_of(const struct simulation *all, int rank, const struct tt_program_span *span,
                      const struct tt_piece *piece)
{
    const struct tt_binding *binding = &all->job->bindings[rank];
    char *base = span->buffer == TT_INPUT    ? (char *)all->inputs[rank] - binding->skipped[0]
                 : span->buffer == TT_OUTPUT ? (char *)all->outputs[rank] - binding->skipped[1]
                                             : (char *)all->scratch[rank];
    return (float *)(base + piece->offset);
}

static bool ready(const struct simulation *all, int rank, int part,
                  const struct tt_program_step *step)
{
    const struct tt_program_link *links = tt_program_links(all->job->programs[rank]);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        const struct queue *queue = queue_of(all, part, links[step->recv + i].peer, rank);
        if (queue->taken == queue->sent) return false;
    }
    for (uint32_t i = 0; i < step->nsend; i++) {
        const struct queue *queue = queue_of(all, part, rank, links[step->send + i].peer);
        if (queue->sent - queue->taken == DEEP) return false;
    }
    return true;
}

/* Element i of the result, folded in the order of the step. */
static float fold_at(const struct tt_program_step *step, float *const *messages, const float *own,
                     size_t at, size_t i)
{
    float sum = 0;
    bool first = true;
    for (int s = 0; s <= (int)step->nrecv; s++) {
        if (own && s == (step->own_at < 0 ? 0 : step->own_at)) {
            sum = first ? own[i] : sum + own[i];
            first = false;
        }
        if (s == (int)step->nrecv) break;
        sum = first ? messages[s][at + i] : sum + messages[s][at + i];
        first = false;
    }
    return sum;
}

static void simulate_step(const struct simulation *all, int rank, int part, size_t round,
                          const struct tt_program_step *step)
{
    const struct tt_program *program = all->job->programs[rank];
    const struct tt_binding *binding = &all->job->bindings[rank];
    const struct tt_program_link *links = tt_program_links(program);
    const struct tt_program_span *sent = step->dst.number ? &step->dst : &step->local;
    const size_t length = tt_span_count(program, binding, sent, part, round);
    float *messages[MOST_PEERS], *result = malloc(length * sizeof(float) + 4);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct queue *queue = queue_of(all, part, links[step->recv + i].peer, rank);
        messages[i] = queue->messages[queue->taken++ % DEEP];
    }
    struct tt_walk froms = tt_walk_begin(program, binding, &step->local, part, round, false);
    struct tt_walk tos = tt_walk_begin(program, binding, &step->dst, part, round, false);
    for (size_t at = 0;;) {
        struct tt_piece from = {0, 0}, to = {0, 0};
        const bool have_from = tt_walk_next(&froms, &from), have_to = tt_walk_next(&tos, &to);
        if (!have_from && !have_to) break;
        const size_t count = have_to ? to.count : from.count;
        const float *own = have_from ? data_of(all, rank, &step->local, &from) : NULL;
        for (size_t i = 0; i < count; i++) result[at + i] = fold_at(step, messages, own, at, i);
        if (have_to)
            memcpy(data_of(all, rank, &step->dst, &to), result + at, count * sizeof(float));
        at += count;
    }
    for (uint32_t i = 0; i < step->nrecv; i++) free(messages[i]);
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct queue *queue = queue_of(all, part, rank, links[step->send + i].peer);
        float *copy = malloc(length * sizeof(float) + 4);
        memcpy(copy, result, length * sizeof(float));
        queue->messages[queue->sent++ % DEEP] = copy;
    }
    free(result);
}

void job_simulate(const struct job *job, float *const *inputs, float *const *outputs)
{
    const int nchannels = job->programs[0]->nchannels, nparts = job->bindings[0].copies * nchannels;
    struct simulation all = {.job = job, .inputs = inputs, .outputs = outputs};
    all.queues = calloc((size_t)(nparts * job->nranks * job->nranks), sizeof *all.queues);
    for (int r = 0; r < job->nranks; r++) all.scratch[r] = malloc(job->scratch_bytes[r] + 4);
    struct state *states = calloc((size_t)(nparts * job->nranks), sizeof *states);
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = 0; i < nparts * job->nranks; i++) {
            const int rank = i % job->nranks, part = i / job->nranks, channel = part % nchannels;
            struct state *state = &states[i];
            const struct tt_program_channel *steps =
                tt_program_channel(job->programs[rank], channel);
            while (state->round < job->bindings[rank].nrounds) {
                if (state->step == steps->nsteps) {
                    state->step = 0;
                    state->round++;
                    continue;
                }
                const struct tt_program_step *step =
                    tt_program_step(job->programs[rank], channel, state->step);
                if (!ready(&all, rank, part, step)) break;
                simulate_step(&all, rank, part, state->round, step);
                state->step++;
                progress = true;
            }
        }
    }
    for (int i = 0; i < nparts * job->nranks; i++)
        if (states[i].round < job->bindings[0].nrounds) die("the simulation does not end");
    for (int r = 0; r < job->nranks; r++) free(all.scratch[r]);
    free(states);
    free(all.queues);
}
