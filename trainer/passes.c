/* The passes of one micro-batch through this rank's stage: units in order, each with its weights
 * and gradients at hand only while it computes. */
#include "engine.h"

static struct tr_pass pass_of(struct tr_engine *e, struct tr_micro *micro)
{
    return (struct tr_pass){.model = &e->model,
                            .seams = &e->seams,
                            .tokens = &micro->tokens,
                            .acts = &micro->acts,
                            .scratch = &e->scratch};
}

/* The whole weights of a unit that was acquired; NULL for -1. */
static const struct tr_data *weights_of(struct tr_engine *e, int unit)
{
    return unit < 0 ? NULL : tr_store_unit(&e->store, unit)->weights;
}

/* The gradients of a unit, ready to be added to. */
static tr_status gradients_of(struct tr_engine *e, int unit, struct tr_data **gradients)
{
    *gradients = NULL;
    if (unit < 0) return TR_OK;
    TR_TRY(tr_store_gradients(&e->store, unit));
    *gradients = tr_store_unit(&e->store, unit)->gradients;
    return TR_OK;
}

static int block_unit(const struct tr_engine *e, int slot)
{
    return e->model.blocks[e->first_layer + slot].unit;
}

static tr_status embed(struct tr_engine *e, const struct tr_pass *pass)
{
    const struct tr_model *m = &e->model;
    const int first = block_unit(e, 0);
    TR_TRY(tr_store_acquire(&e->store, m->token_unit, m->place_unit >= 0 ? m->place_unit : first));
    if (m->place_unit >= 0) TR_TRY(tr_store_acquire(&e->store, m->place_unit, first));
    TR_TRY(tr_embed_forward(pass, weights_of(e, m->token_unit), weights_of(e, m->place_unit),
                            pass->acts->blocks[0].input));
    if (m->place_unit >= 0) tr_store_release(&e->store, m->place_unit);
    tr_store_release(&e->store, m->token_unit);
    return TR_OK;
}

tr_status tr_pass_forward(struct tr_engine *e, struct tr_micro *micro, bool head_next)
{
    const struct tr_pass pass = pass_of(e, micro);
    if (e->first_stage) TR_TRY(embed(e, &pass));
    for (int slot = 0; slot < e->nlayers; ++slot) {
        const bool last = slot + 1 == e->nlayers;
        const int unit = block_unit(e, slot), next = !last ? block_unit(e, slot + 1)
                                                     : e->last_stage && head_next
                                                         ? e->model.final_unit
                                                         : -1;
        TR_TRY(tr_store_acquire(&e->store, unit, next));
        TR_TRY(tr_block_forward(&pass, slot, &e->model.blocks[e->first_layer + slot],
                                weights_of(e, unit),
                                last ? micro->acts.output : micro->acts.blocks[slot + 1].input));
        tr_store_release(&e->store, unit);
    }
    return TR_OK;
}

/* The units of the final norm and of the head, which are one unless the head is tied. */
static tr_status acquire_head(struct tr_engine *e, int next)
{
    const struct tr_model *m = &e->model;
    const bool two = m->head_unit != m->final_unit;
    TR_TRY(tr_store_acquire(&e->store, m->final_unit, two ? m->head_unit : next));
    return two ? tr_store_acquire(&e->store, m->head_unit, next) : TR_OK;
}

static void release_head(struct tr_engine *e)
{
    if (e->model.head_unit != e->model.final_unit) tr_store_release(&e->store, e->model.head_unit);
    tr_store_release(&e->store, e->model.final_unit);
}

tr_status tr_pass_loss(struct tr_engine *e, struct tr_micro *micro, double *loss)
{
    const struct tr_model *m = &e->model;
    const struct tr_pass pass = pass_of(e, micro);
    TR_TRY(acquire_head(e, -1));
    TR_TRY(tr_head_forward(&pass, weights_of(e, m->final_unit), weights_of(e, m->head_unit), loss));
    release_head(e);
    return TR_OK;
}

tr_status tr_pass_logits(struct tr_engine *e, struct tr_micro *micro)
{
    const struct tr_model *m = &e->model;
    const struct tr_pass pass = pass_of(e, micro);
    TR_TRY(acquire_head(e, -1));
    TR_TRY(tr_head_logits(&pass, weights_of(e, m->final_unit), weights_of(e, m->head_unit)));
    release_head(e);
    return TR_OK;
}

/* Head, forward and backward in one go: the logits of one micro-batch at a time are kept. */
static tr_status head_backward(struct tr_engine *e, const struct tr_pass *pass,
                               const struct tr_ready_hook *hook, double *loss)
{
    const struct tr_model *m = &e->model;
    struct tr_data *d_final, *d_head;
    TR_TRY(acquire_head(e, block_unit(e, e->nlayers - 1)));
    const struct tr_data *final = weights_of(e, m->final_unit), *head = weights_of(e, m->head_unit);
    TR_TRY(tr_head_forward(pass, final, head, loss));
    TR_TRY(gradients_of(e, m->final_unit, &d_final));
    TR_TRY(gradients_of(e, m->head_unit, &d_head));
    TR_TRY(tr_head_backward(pass, final, head, d_final, d_head, e->d_stream, hook));
    release_head(e);
    return tr_store_complete(&e->store, m->final_unit);
}

/* The first stage's end of backward; a last stage that holds the tied table only completes it. */
static tr_status embed_backward(struct tr_engine *e, const struct tr_pass *pass,
                                const struct tr_ready_hook *hook)
{
    const struct tr_model *m = &e->model;
    struct tr_data *d_token, *d_place;
    if (!e->first_stage) {
        if (!tr_store_unit(&e->store, m->token_unit)) return TR_OK;
        tr_hook_call(hook, m->tensor[TR_TOKEN_W]);
        return tr_store_complete(&e->store, m->token_unit);
    }
    TR_TRY(gradients_of(e, m->token_unit, &d_token));
    TR_TRY(gradients_of(e, m->place_unit, &d_place));
    TR_TRY(tr_embed_backward(pass, d_token, d_place, e->d_stream, hook));
    if (m->place_unit >= 0) TR_TRY(tr_store_complete(&e->store, m->place_unit));
    return tr_store_complete(&e->store, m->token_unit);
}

tr_status tr_pass_backward(struct tr_engine *e, struct tr_micro *micro, double *loss)
{
    const struct tr_pass pass = pass_of(e, micro);
    const struct tr_ready_hook hook = {.ready = tr_store_ready, .arg = &e->store};
    if (e->last_stage) TR_TRY(head_backward(e, &pass, &hook, loss));
    for (int slot = e->nlayers - 1; slot >= 0; --slot) {
        const int unit = block_unit(e, slot);
        struct tr_data *gradients;
        TR_TRY(tr_store_acquire(&e->store, unit, slot > 0 ? block_unit(e, slot - 1) : -1));
        TR_TRY(gradients_of(e, unit, &gradients));
        TR_TRY(tr_block_backward(&pass, slot, &e->model.blocks[e->first_layer + slot],
                                 weights_of(e, unit), gradients, e->d_stream, &hook));
        tr_store_release(&e->store, unit);
        TR_TRY(tr_store_complete(&e->store, unit));
    }
    return embed_backward(e, &pass, &hook);
}
