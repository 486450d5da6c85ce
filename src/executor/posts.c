/* Posts: before the first step of a round a rank says where peers may write the messages that it
 * would only store. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

void tt_post_round(struct tt_work *work, const struct tt_program_channel *row, int channel)
{
    const struct tt_program *program = tt_work_program(work);
    const struct tt_binding *binding = work->collective.binding;
    const struct tt_program_step *steps = tt_program_steps(program) + row->first;
    const struct tt_program_post *posts = tt_program_posts(program) + row->first_post;
    for (uint32_t k = 0; k < row->nposts; k++) {
        const struct tt_program_step *step = &steps[posts[k].step];
        struct tt_link *link = work->collective.links[step->recv];
        struct tt_spans spans;
        tt_step_spans(work, channel, step, posts[k].step, &spans);
        if (!spans.dst || spans.nbytes < TT_DIRECT_MIN_BYTES) continue;
        const struct tt_posted posted = {
            .to = spans.dst,
            .nbytes = spans.nbytes,
            .signature = work->collective.signature,
            .nontemporal = posts[k].is_read ? binding->nontemporal : binding->nontemporal_posts};
        link->ops->posts->post(link, posts[k].ahead, &work->collective.memory[TT_OUTPUT], &posted);
        work->collective.posts = true;
    }
}

/* Withdraws all posts. Returns a rank that still writes; -1: none does. */
static int withdraw_posts(struct tt_work *work)
{
    const struct tt_loaded *loaded = work->collective.call->loaded;
    const struct tt_program_link *links = tt_program_links(loaded->program);
    int writer = -1;
    for (int copy = 0; copy < work->collective.binding->copies; copy++)
        for (uint32_t i = 0; i < loaded->program->nlinks; i++) {
            struct tt_link *link = tt_loaded_links(loaded, copy)[i];
            if (!links[i].outgoing && link->ops->posts->withdraw(link) == TT_IN_PROGRESS &&
                writer < 0 && !tt_fabric_is_dead(work->engine->fabric, link->peer))
                writer = link->peer;
        }
    return writer;
}

/* At the deadline: says in the failure's text that the rank may still use the buffers. does: what
 * it did, and what follows from that. */
static tt_status give_up_waiting(struct tt_work *work, int rank, const char *does, const char *mend)
{
    struct tt_fabric *fabric = work->engine->fabric;
    char name[128], still[64] = "", text[384];
    if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
    tt_fabric_name_rank(fabric, rank, name, sizeof name);
    if (work->timeout_ms <= 0)
        snprintf(still, sizeof still, ", still %d s after the failure,", TT_WITHDRAWAL_S);
    snprintf(text, sizeof text, "; %s was %s%s and may still do so: %s", name, does, still, mend);
    tt_fabric_add_to_failure(fabric, text);
    return TT_OK;
}

tt_status tt_await_writers(struct tt_work *work)
{
    const int writer = withdraw_posts(work);
    if (writer < 0) return TT_OK;
    return give_up_waiting(work, writer, "writing to this rank's receive buffer",
                           "end that process before the buffer's memory is used again");
}

static tt_status await_reader(struct tt_work *work, int reader)
{
    if (reader < 0) return TT_OK;
    return give_up_waiting(work, reader, "reading this rank's buffers",
                           "keep them until that rank has returned");
}

tt_status tt_await_readers(struct tt_work *work)
{
    return await_reader(work, tt_fabric_reader(work->engine->fabric));
}

tt_status tt_await_kernels(struct tt_work *work)
{
    return await_reader(work, tt_fabric_user(work->engine->fabric));
}
