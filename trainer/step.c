/* The only file that knows the order of a step: the schedule's passes and messages, the reductions,
 * the norm, the update. */
#include <math.h>
#include <string.h>

#include "engine.h"
#include "parallel/norm.h"

/* What is added up while the passes run. */
struct progress {
    const struct tr_feed *feed;
    uint64_t first; /* of this rank's samples */
    long samples;
    double loss, tokens;
};

static long batch_of(const struct tr_engine *e, long samples, int pass)
{
    const long most = e->options.micro_batch, rest = samples - pass * most;
    return rest < 0 ? 0 : rest < most ? rest : most;
}

/* Gives pass `pass` an activation set, with its tokens. */
static struct tr_micro *take_set(struct tr_engine *e, const struct progress *p, int set, int pass)
{
    struct tr_micro *micro = &e->sets[set];
    tr_pass_tokens(e, micro, p->feed, p->first + (uint64_t)(pass * e->options.micro_batch),
                   batch_of(e, p->samples, pass));
    return micro;
}

/* Floats of the stream of a pass between two stages. */
static size_t message(const struct tr_engine *e, const struct progress *p, int pass)
{
    const long rows = batch_of(e, p->samples, pass) * e->sequence.local;
    return (size_t)(rows / e->seams.tp * e->model.size.width);
}

/* The four messages that a stage may exchange with its neighbours at a time. */
static tr_status post(struct tr_engine *e, const struct progress *p,
                      const struct tr_schedule_step *step, const float *output, float *input)
{
    static const char what[] = "passing micro-batches between stages";
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    if (step->to_next >= 0)
        TR_TRY(tr_group_check(pp,
                              tuttiSend(output, message(e, p, step->to_next), tuttiFloat32,
                                        pp->rank + 1, pp->comm, NULL),
                              what));
    if (step->from_previous >= 0)
        TR_TRY(tr_group_check(pp,
                              tuttiRecv(input, message(e, p, step->from_previous), tuttiFloat32,
                                        pp->rank - 1, pp->comm, NULL),
                              what));
    if (step->to_previous >= 0)
        TR_TRY(tr_group_check(pp,
                              tuttiSend(e->d_stream, message(e, p, step->to_previous), tuttiFloat32,
                                        pp->rank - 1, pp->comm, NULL),
                              what));
    if (step->from_next >= 0)
        TR_TRY(tr_group_check(pp,
                              tuttiRecv(e->d_received, message(e, p, step->from_next), tuttiFloat32,
                                        pp->rank + 1, pp->comm, NULL),
                              what));
    return TR_OK;
}

static tr_status exchange(struct tr_engine *e, const struct progress *p,
                          const struct tr_schedule_step *step, const float *output)
{
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    float *input = NULL;
    if (step->from_previous >= 0)
        input = take_set(e, p, step->set, step->from_previous)->acts.blocks[0].input;
    TR_TRY(tr_group_check(pp, tuttiGroupStart(), "opening a group"));
    const tr_status posted = post(e, p, step, output, input);
    const tr_status ended = tr_group_check(pp, tuttiGroupEnd(), "passing micro-batches");
    return posted < 0 ? posted : ended;
}

/* A micro-batch's loss and the tokens that count, on the last stage and once for all ranks of tp.
 */
static void add_up(const struct tr_engine *e, struct progress *p, const struct tr_micro *micro,
                   double loss)
{
    if (!e->last_stage || e->parallel.tp->rank != 0) return;
    p->loss += loss;
    for (long row = 0; row < micro->tokens.rows; ++row)
        p->tokens += (double)micro->tokens.weights[row];
}

static tr_status backward(struct tr_engine *e, struct progress *p,
                          const struct tr_schedule_step *step)
{
    if (step->receives) {
        float *received = e->d_received;
        e->d_received = e->d_stream;
        e->d_stream = received;
    }
    struct tr_micro *micro = &e->sets[step->set];
    double loss;
    tr_store_micro(&e->store, step->batch + 1 == e->schedule.nbatches);
    TR_TRY(tr_pass_backward(e, micro, &loss));
    add_up(e, p, micro, loss);
    return TR_OK;
}

/* Whether the pass after step `s` is a backward pass. */
static bool turns_after(const struct tr_schedule *schedule, int s)
{
    do ++s;
    while (s < schedule->nsteps && schedule->steps[s].action == TR_EXCHANGE);
    return s < schedule->nsteps && schedule->steps[s].action == TR_BACKWARD;
}

static tr_status run_schedule(struct tr_engine *e, struct progress *p)
{
    const float *output = NULL; /* of the forward pass that was last */
    for (int s = 0; s < e->schedule.nsteps; ++s) {
        const struct tr_schedule_step *step = &e->schedule.steps[s];
        switch (step->action) {
        case TR_EXCHANGE:
            TR_TRY(exchange(e, p, step, output));
            break;
        case TR_FORWARD:
            if (e->first_stage) take_set(e, p, step->set, step->batch);
            TR_TRY(tr_pass_forward(e, &e->sets[step->set], turns_after(&e->schedule, s)));
            output = e->sets[step->set].acts.output;
            break;
        case TR_BACKWARD:
            TR_TRY(backward(e, p, step));
            break;
        }
    }
    return TR_OK;
}

/* Losses, tokens, what the caller added, and the norm's blocks: one message. */
static tr_status sum_up(struct tr_engine *e, const struct progress *p, const double *extra,
                        struct tr_step_sums *sums)
{
    e->sums[TR_LOSS] = p->loss;
    e->sums[TR_TOKENS] = p->tokens;
    for (int i = 0; i < TR_NUM_EXTRA; ++i) e->sums[TR_EXTRA + i] = extra ? extra[i] : 0;
    tr_norm_fill(&e->store, e->ops, e->sums + TR_NUM_SUMS);
    const struct tr_group *all = tr_mesh_group(e->mesh, TR_AXES_ALL);
    if (all->n > 1)
        TR_TRY(tr_group_check(all,
                              tuttiAllReduce(e->sums, e->sums, TR_NUM_SUMS + e->nblocks,
                                             tuttiFloat64, tuttiSum, all->comm, NULL),
                              "summing losses and norms"));
    sums->tokens = e->sums[TR_TOKENS];
    sums->scale = sums->tokens > 0 ? 1 / sums->tokens : 0;
    sums->loss = e->sums[TR_LOSS] * sums->scale;
    sums->norm = tr_norm_of(e->sums + TR_NUM_SUMS, e->nblocks) * sums->scale;
    memcpy(sums->extra, e->sums + TR_EXTRA, sizeof sums->extra);
    return TR_OK;
}

tr_status tr_engine_gradients(struct tr_engine *e, const struct tr_feed *feed, uint64_t first,
                              const double extra[TR_NUM_EXTRA], struct tr_step_sums *sums)
{
    struct progress p = {
        .feed = feed, .first = first + (uint64_t)e->first_sample, .samples = e->samples};
    tr_store_begin(&e->store);
    TR_TRY(run_schedule(e, &p));
    TR_TRY(tr_store_finish(&e->store));
    return sum_up(e, &p, extra, sums);
}

tr_status tr_engine_update(struct tr_engine *e, const struct tr_optimizer *how, double scale)
{
    tr_optimizer_step(how, e->ops, &e->store, scale);
    return tr_store_publish(&e->store);
}

/* ---- Passes without gradients -----------------------------------------------------------------
 */

/* One forward pass through all stages; the last stage goes on with the head. */
static tr_status forward_only(struct tr_engine *e, struct tr_micro *micro)
{
    static const char what[] = "passing activations between stages";
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    const size_t count = (size_t)(micro->tokens.own * e->model.size.width);
    if (!e->first_stage)
        TR_TRY(tr_group_check(pp,
                              tuttiRecv(micro->acts.blocks[0].input, count, tuttiFloat32,
                                        pp->rank - 1, pp->comm, NULL),
                              what));
    TR_TRY(tr_pass_forward(e, micro, true));
    if (e->last_stage) return TR_OK;
    return tr_group_check(
        pp, tuttiSend(micro->acts.output, count, tuttiFloat32, pp->rank + 1, pp->comm, NULL), what);
}

tr_status tr_engine_loss(struct tr_engine *e, const struct tr_feed *feed, uint64_t first,
                         long count, double *loss)
{
    long mine, samples;
    const long most = tr_engine_share(e->mesh, count, &mine, &samples);
    struct progress p = {.feed = feed, .first = first + (uint64_t)mine, .samples = samples};
    for (int pass = 0; pass * e->options.micro_batch < most; ++pass) {
        struct tr_micro *micro = take_set(e, &p, 0, pass);
        TR_TRY(forward_only(e, micro));
        double part = 0;
        if (e->last_stage) TR_TRY(tr_pass_head(e, micro, &part));
        add_up(e, &p, micro, part);
    }
    double sums[2] = {p.loss, p.tokens};
    TR_TRY(tr_mesh_check(
        e->mesh, tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, e->mesh->world, NULL),
        "summing the held-out loss"));
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return TR_OK;
}

struct given {
    const int32_t *ids;
    long count;
};

static void give(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                 float *weights)
{
    const struct given *given = arg;
    (void)number;
    for (long i = 0; i < context; ++i) {
        ids[i] = given->ids[i];
        targets[i] = 0;
        weights[i] = 0;
    }
}

/* The row of this rank that has place `position`, or -1. */
static long row_of(const struct tr_engine *e, long position)
{
    for (long i = 0; i < e->sequence.local; ++i)
        if (tr_sequence_position(&e->sequence, i) == position) return i;
    return -1;
}

tr_status tr_engine_logits(struct tr_engine *e, const int32_t *ids, long count, float *logits)
{
    const long context = e->options.model.context;
    if (count < 1 || count > context)
        return tr_mesh_alike(e->mesh,
                             tr_fail("logits of what follows %ld tokens: the model takes 1 "
                                     "to %ld; give it the last %ld of them",
                                     count, context, context));
    const struct tr_sequence trained = e->sequence;
    const int *size = e->mesh->size, *coord = e->mesh->coord;
    e->sequence = tr_sequence_of(count, trained.ring, trained.ring_rank, trained.ulysses,
                                 trained.ulysses_rank, size[TR_TP], trained.zigzag);
    struct given given = {ids, count};
    const struct tr_feed feed = {give, &given};
    struct tr_micro *micro = &e->sets[0];
    tr_pass_tokens(e, micro, &feed, 0, 1);
    tr_status status = forward_only(e, micro);
    if (status == TR_OK && e->last_stage) status = tr_pass_head(e, micro, NULL);
    const long row = row_of(e, count - 1), n = e->model.vocabulary_count;
    e->sequence = trained;
    TR_TRY(status);
    memset(logits, 0, (size_t)e->model.size.vocabulary * sizeof *logits);
    if (e->last_stage && row >= 0 && coord[TR_DP] == 0 && coord[TR_FSDP] == 0)
        memcpy(logits + e->model.vocabulary_first, micro->acts.logits + row * n,
               (size_t)n * sizeof *logits);
    /* As integers: one rank has each logit, the others zero bits. */
    return tr_mesh_check(e->mesh,
                         tuttiAllReduce(logits, logits, (size_t)e->model.size.vocabulary,
                                        tuttiUint32, tuttiSum, e->mesh->world, NULL),
                         "sharing the logits");
}
