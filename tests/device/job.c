/* Makes the programs of a collective, and runs them on the host as the reference. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "shim.h"

static size_t element_of(const struct job *job)
{
    return job->bindings[0]->element;
}

/* Most bytes of a message: with lines each block begins a line. */
static size_t payload_of(const struct job *job)
{
    if (job->protocol == TT_PROTOCOL_SLOTS) return job->slot_bytes;
    const size_t nlines = job->line_bytes / TT_LINE_BYTES;
    const size_t nblocks = (size_t)job->programs[0]->message;
    return nlines > nblocks ? (nlines - nblocks) * TT_LINE_DATA : 1;
}

static tt_status bind(struct job *job, int r)
{
    const struct tt_limits limits = {
        .slot_bytes = payload_of(job), .meet_bytes = payload_of(job), .copies = job->copies};
    const size_t element = tt_type_size(job->reduction.type);
    if (job->counts) {
        const struct tt_counts counts = {.counts = job->counts};
        return tt_program_bind_counts(job->programs[r], &counts, element, &limits,
                                      &job->bindings[r]);
    }
    job->bindings[r] = calloc(1, sizeof **job->bindings);
    return tt_program_bind(job->programs[r], job->count, element, &limits, job->bindings[r]);
}

/* Bytes of a buffer. */
static size_t held_bytes(const struct job *job, int r, int buffer)
{
    const struct tt_program_blocks *held = &job->programs[r]->held[buffer];
    const struct tt_binding *binding = job->bindings[r];
    if (!held->number) return 0;
    size_t begin;
    const size_t length = tt_binding_block(binding, held->first + held->number - 1, &begin);
    return (begin + length) * binding->element - binding->skipped[buffer];
}

bool job_make(struct job *job)
{
    const struct tt_shape shape = {
        .collective = job->algorithm->collective, .nranks = job->nranks, .root = job->root};
    memset(job->programs, 0, sizeof job->programs);
    memset(job->bindings, 0, sizeof job->bindings);
    bool made = true;
    for (int r = 0; r < job->nranks && made; r++)
        made = tt_program_create(job->algorithm, &shape, r, &job->programs[r]) == TT_OK;
    for (int r = 0; r < job->nranks && made; r++) {
        made = bind(job, r) == TT_OK;
        if (!made) break;
        job->input_bytes[r] = held_bytes(job, r, TT_INPUT);
        job->output_bytes[r] = held_bytes(job, r, TT_OUTPUT);
        job->scratch_bytes[r] = (size_t)job->programs[r]->nscratch *
                                job->bindings[r]->parts[0].nparts * job->bindings[r]->piece *
                                job->bindings[r]->element;
    }
    if (!made) job_clear(job);
    return made;
}

void job_clear(struct job *job)
{
    for (int r = 0; r < job->nranks; r++) {
        free(job->programs[r]);
        free(job->bindings[r]);
    }
}

uint32_t job_nparts(const struct job *job)
{
    return (uint32_t)(job->bindings[0]->copies * job->programs[0]->nchannels);
}

/* ---- Simulation ----------------------------------------------------------------------------- */

enum { DEEP = 64 };

/* Messages from one rank to another on one part. */
struct queue {
    char *messages[DEEP];
    unsigned sent, taken;
};

/* What a rank has put into the meetings on one part. */
struct puts {
    char *data[DEEP];
    unsigned number;
};

struct place {
    size_t round;
    uint32_t step;
    bool entered;
};

struct simulation {
    const struct job *job;
    char *const *inputs, *const *outputs;
    char *scratch[JOB_MOST_RANKS];
    struct queue *queues; /* [part][from][to] */
    struct puts *puts;    /* [part][rank] */
};

static struct queue *queue_of(const struct simulation *all, int part, int from, int to)
{
    return &all->queues[(part * all->job->nranks + from) * all->job->nranks + to];
}

static char *data_of(const struct simulation *all, int rank, const struct tt_program_span *span,
                     const struct tt_piece *piece)
{
    const struct tt_binding *binding = all->job->bindings[rank];
    char *base = span->buffer == TT_INPUT    ? all->inputs[rank] - binding->skipped[0]
                 : span->buffer == TT_OUTPUT ? all->outputs[rank] - binding->skipped[1]
                                             : all->scratch[rank];
    return base + piece->offset;
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

/* Whether the local span is input that the operation changes. */
static bool is_raw(const struct job *job, const struct tt_program_step *step)
{
    return step->local.buffer == TT_INPUT &&
           tt_op_changes_raw(job->reduction.op, job->reduction.type);
}

/* One piece: result = the fold of the messages from byte `at` on and `own`, which may be NULL. */
static void fold_piece(const struct job *job, const struct tt_program_step *step,
                       char *const *messages, size_t at, const char *own, char *result,
                       size_t count)
{
    const void *sources[JOB_MOST_RANKS + 1];
    char *aside = malloc(count * element_of(job) + 1);
    int n = 0;
    const int own_at = own ? (step->own_at < 0 ? 0 : step->own_at) : -1;
    if (own && is_raw(job, step)) {
        const void *raw = own;
        if (count) tt_reduce(&job->reduction, aside, &raw, 1, count, TT_RAW);
        own = aside;
    }
    for (int i = 0; i <= (int)step->nrecv; i++) {
        if (i == own_at) sources[n++] = own;
        if (i < (int)step->nrecv) sources[n++] = messages[i] + at;
    }
    if (n && count)
        tt_reduce(&job->reduction, result, sources, n, count, step->finish ? TT_FINISH : 0);
    free(aside);
}

static void simulate_step(const struct simulation *all, int rank, int part, size_t round,
                          const struct tt_program_step *step)
{
    const struct job *job = all->job;
    const struct tt_program *program = job->programs[rank];
    const struct tt_binding *binding = job->bindings[rank];
    const struct tt_program_link *links = tt_program_links(program);
    const struct tt_program_span *sent = step->dst.number ? &step->dst : &step->local;
    const size_t length = tt_span_count(program, binding, sent, part, round) * binding->element;
    char *messages[JOB_MOST_RANKS], *result = malloc(length + 1);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct queue *queue = queue_of(all, part, links[step->recv + i].peer, rank);
        messages[i] = queue->messages[queue->taken++ % DEEP];
    }
    struct tt_walk froms = tt_walk_begin(program, binding, &step->local, part, round, false);
    struct tt_walk tos = tt_walk_begin(program, binding, &step->dst, part, round, false);
    for (size_t at = 0;;) {
        struct tt_piece from = {0, 0}, to = {0, 0};
        const bool has_from = tt_walk_next(&froms, &from), has_to = tt_walk_next(&tos, &to);
        if (!has_from && !has_to) break;
        const size_t count = has_to ? to.count : from.count;
        fold_piece(job, step, messages, at,
                   has_from ? data_of(all, rank, &step->local, &from) : NULL, result + at, count);
        if (has_to)
            memmove(data_of(all, rank, &step->dst, &to), result + at, count * binding->element);
        at += count * binding->element;
    }
    for (uint32_t i = 0; i < step->nrecv; i++) free(messages[i]);
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct queue *queue = queue_of(all, part, rank, links[step->send + i].peer);
        char *copy = malloc(length + 1);
        memcpy(copy, result, length);
        queue->messages[queue->sent++ % DEEP] = copy;
    }
    free(result);
}

/* ---- Meetings ------------------------------------------------------------------------------- */

static struct puts *puts_of(const struct simulation *all, int part, int rank)
{
    return &all->puts[part * all->job->nranks + rank];
}

/* All blocks of the local span, one after the other. */
static void put_in(const struct simulation *all, int rank, int part, size_t round,
                   const struct tt_program_step *step)
{
    const struct job *job = all->job;
    struct puts *puts = puts_of(all, part, rank);
    struct tt_walk walk =
        tt_walk_begin(job->programs[rank], job->bindings[rank], &step->local, part, round, false);
    struct tt_piece piece;
    char *to = malloc(job->slot_bytes + job->line_bytes); /* more than a message has */
    const bool raw = is_raw(job, step);
    free(puts->data[puts->number % DEEP]); /* of a meeting long ago */
    puts->data[puts->number++ % DEEP] = to;
    while (tt_walk_next(&walk, &piece)) {
        const void *from = data_of(all, rank, &step->local, &piece);
        if (raw && piece.count)
            tt_reduce(&job->reduction, to, &from, 1, piece.count, TT_RAW);
        else
            memcpy(to, from, piece.count * element_of(job));
        to += piece.count * element_of(job);
    }
}

/* The block of this place of what a rank has put into meeting `number`; NULL: it has not. */
static const char *find_put(const struct simulation *all, int rank, int part, size_t round,
                            const struct place *at, unsigned number, int block)
{
    const struct tt_program *program = all->job->programs[rank];
    const struct tt_program_step *step =
        tt_program_step(program, part % program->nchannels, at->step);
    struct tt_walk walk =
        tt_walk_begin(program, all->job->bindings[rank], &step->local, part, round, false);
    const char *data = puts_of(all, part, rank)->data[number % DEEP];
    struct tt_piece piece;
    for (int i = step->local.first; tt_walk_next(&walk, &piece); i++) {
        if (i == block) return data;
        data += piece.count * element_of(all->job);
    }
    return NULL;
}

static void take_out(const struct simulation *all, int rank, int part, const struct place *at,
                     const struct tt_program_step *step)
{
    const struct job *job = all->job;
    const unsigned number = puts_of(all, part, rank)->number - 1;
    struct tt_walk walk =
        tt_walk_begin(job->programs[rank], job->bindings[rank], &step->dst, part, at->round, false);
    struct tt_piece piece;
    for (int block = step->dst.first; tt_walk_next(&walk, &piece); block++) {
        const void *sources[JOB_MOST_RANKS];
        int n = 0;
        for (int r = 0; r < job->nranks; r++) {
            const bool mine = step->op != TT_TRANSPOSE || r == block;
            const char *found = find_put(all, r, part, at->round, at, number,
                                         step->op == TT_TRANSPOSE ? rank : block);
            if (mine && found) sources[n++] = found;
        }
        CHECK_EQ(n, step->op == TT_FOLD ? job->nranks : 1);
        if (piece.count)
            tt_reduce(&job->reduction, data_of(all, rank, &step->dst, &piece), sources, n,
                      piece.count, step->finish ? TT_FINISH : 0);
    }
}

/* False: the rank waits for others. Whether it moved: *moved is set. */
static bool simulate_meeting(const struct simulation *all, int rank, int part, struct place *place,
                             const struct tt_program_step *step, bool *moved)
{
    if (!place->entered) put_in(all, rank, part, place->round, step);
    *moved = *moved || !place->entered;
    place->entered = true;
    for (int r = 0; r < all->job->nranks; r++)
        if (puts_of(all, part, r)->number < puts_of(all, part, rank)->number) return false;
    take_out(all, rank, part, place, step);
    place->entered = false;
    return true;
}

/* ---- The walk ------------------------------------------------------------------------------- */

/* Goes on with a part of a rank as far as it can. Whether it moved. */
static bool simulate_part(const struct simulation *all, int rank, int part, struct place *place)
{
    const struct tt_program *program = all->job->programs[rank];
    const int channel = part % program->nchannels;
    const struct tt_program_channel *steps = tt_program_channel(program, channel);
    bool moved = false;
    while (place->round < all->job->bindings[rank]->nrounds) {
        if (place->step == steps->nsteps) {
            place->step = 0;
            place->round++;
            continue;
        }
        const struct tt_program_step *step = tt_program_step(program, channel, place->step);
        if (step->kind == TT_STEP_MEET) {
            if (!simulate_meeting(all, rank, part, place, step, &moved)) break;
        } else {
            if (!ready(all, rank, part, step)) break;
            simulate_step(all, rank, part, place->round, step);
        }
        place->step++;
        moved = true;
    }
    return moved;
}

void job_simulate(const struct job *job, char *const *inputs, char *const *outputs)
{
    const int nparts = (int)job_nparts(job), n = nparts * job->nranks;
    struct simulation all = {.job = job, .inputs = inputs, .outputs = outputs};
    all.queues = calloc((size_t)(n * job->nranks) + 1, sizeof *all.queues);
    all.puts = calloc((size_t)n + 1, sizeof *all.puts);
    for (int r = 0; r < job->nranks; r++) all.scratch[r] = malloc(job->scratch_bytes[r] + 1);
    struct place *places = calloc((size_t)n + 1, sizeof *places);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++)
            moved = simulate_part(&all, i % job->nranks, i / job->nranks, &places[i]) || moved;
    }
    for (int i = 0; i < n; i++) CHECK(places[i].round == job->bindings[i % job->nranks]->nrounds);
    for (int r = 0; r < job->nranks; r++) free(all.scratch[r]);
    for (int i = 0; i < n; i++)
        for (unsigned k = 0; k < DEEP; k++) free(all.puts[i].data[k]);
    free(all.puts);
    free(places);
    free(all.queues);
}
