/* The only file that knows the order of a step: the schedule's passes and messages, the reductions,
 * the norm, the update. */
#include <math.h>
#include <string.h>

#include "calls.h"
#include "engine.h"
#include "parallel/norm.h"

/* The samples, and the tokens of them that were counted while the passes run. */
struct progress {
    struct tr_samples samples;
    double tokens;
};

/* Elements of the stream of a pass between two stages. */
static size_t message(const struct tr_engine *e, const struct progress *p, int pass)
{
    const long rows = tr_pass_batch(e, &p->samples, pass) * e->sequence.local;
    return (size_t)(rows / e->seams.tp * e->model.size.width);
}

/* The four messages that a stage may exchange with its neighbours at a time. */
static tr_status post(struct tr_engine *e, const struct progress *p,
                      const struct tr_schedule_step *step, const struct tr_data *output,
                      struct tr_data *input)
{
    const tuttiDataType_t type = tr_type_datatype(e->backend->types.activations);
    static const char what[] = "passing micro-batches between stages";
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    if (step->to_next >= 0)
        TR_TRY(tr_send(pp, e->backend->stream, output, message(e, p, step->to_next), type,
                       pp->rank + 1, what));
    if (step->from_previous >= 0)
        TR_TRY(tr_receive(pp, e->backend->stream, input, message(e, p, step->from_previous), type,
                          pp->rank - 1, what));
    if (step->to_previous >= 0)
        TR_TRY(tr_send(pp, e->backend->stream, e->d_stream, message(e, p, step->to_previous), type,
                       pp->rank - 1, what));
    if (step->from_next >= 0)
        TR_TRY(tr_receive(pp, e->backend->stream, e->d_received, message(e, p, step->from_next),
                          type, pp->rank + 1, what));
    return TR_OK;
}

static tr_status exchange(struct tr_engine *e, const struct progress *p,
                          const struct tr_schedule_step *step, const struct tr_data *output)
{
    const struct tr_group *pp = tr_mesh_group(e->mesh, 1u << TR_PP);
    struct tr_data *input = NULL;
    if (step->from_previous >= 0)
        input =
            tr_pass_take_set(e, &p->samples, step->set, step->from_previous)->acts.blocks[0].input;
    TR_TRY(tr_calls_begin(pp, "opening a group"));
    const tr_status posted = post(e, p, step, output, input);
    const tr_status ended = tr_calls_end(pp, "passing micro-batches");
    return posted < 0 ? posted : ended;
}

static tr_status backward(struct tr_engine *e, struct progress *p,
                          const struct tr_schedule_step *step)
{
    if (step->receives) {
        struct tr_data *received = e->d_received;
        e->d_received = e->d_stream;
        e->d_stream = received;
    }
    struct tr_micro *micro = &e->sets[step->set];
    const bool answers = tr_engine_answers(e);
    tr_store_micro(&e->store, step->batch + 1 == e->schedule.nbatches);
    if (answers) p->tokens += micro->count;
    return tr_pass_backward(e, micro, answers ? &e->sums[TR_LOSS] : NULL);
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
    const struct tr_data *output = NULL; /* of the forward pass that was last */
    for (int s = 0; s < e->schedule.nsteps; ++s) {
        const struct tr_schedule_step *step = &e->schedule.steps[s];
        switch (step->action) {
        case TR_EXCHANGE:
            TR_TRY(exchange(e, p, step, output));
            break;
        case TR_FORWARD:
            if (e->first_stage) tr_pass_take_set(e, &p->samples, step->set, step->batch);
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

/* Losses, tokens, what the caller added, and the gradients' squares: one message. */
static tr_status sum_up(struct tr_engine *e, const struct progress *p, const double *extra,
                        struct tr_step_sums *sums)
{
    const struct tr_group *all = tr_mesh_group(e->mesh, TR_AXES_ALL);
    double host[TR_NUM_SUMS] = {[TR_TOKENS] = p->tokens};
    for (int i = 0; i < TR_NUM_EXTRA; ++i) host[TR_EXTRA + i] = extra ? extra[i] : 0;
    e->backend->write(e->sums + TR_TOKENS, host + TR_TOKENS,
                      (TR_SQUARES - TR_TOKENS) * sizeof *host);
    tr_norm_add(&e->store, e->sums + TR_SQUARES);
    if (all->n > 1)
        TR_TRY(tr_all_reduce(all, e->backend->stream, e->sums, TR_NUM_SUMS, tuttiFloat64, tuttiSum,
                             "summing losses and norms"));
    e->backend->read(host, e->sums, sizeof host);
    sums->tokens = host[TR_TOKENS];
    sums->scale = sums->tokens > 0 ? 1 / sums->tokens : 0;
    sums->loss = host[TR_LOSS] * sums->scale;
    sums->norm = sqrt(tr_norm_squares(host + TR_SQUARES)) * sums->scale;
    memcpy(sums->extra, host + TR_EXTRA, sizeof sums->extra);
    return TR_OK;
}

tr_status tr_engine_gradients(struct tr_engine *e, const struct tr_feed *feed, uint64_t first,
                              const double extra[TR_NUM_EXTRA], struct tr_step_sums *sums)
{
    struct progress p = {{feed, first + (uint64_t)e->first_sample, e->samples}, 0};
    e->backend->clear(e->sums, TR_NUM_SUMS * sizeof *e->sums);
    tr_store_begin(&e->store);
    TR_TRY(run_schedule(e, &p));
    TR_TRY(tr_store_finish(&e->store));
    return sum_up(e, &p, extra, sums);
}

tr_status tr_engine_update(struct tr_engine *e, const struct tr_optimizer *how, double scale)
{
    TR_TRY(tr_optimizer_step(how, &e->store, scale));
    return tr_store_publish(&e->store);
}
