/* Posts: before the first step of a round a rank says where peers may write the messages that it
 * would only store. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"
#include "executor/kernel_run.h"
#include "executor/staged_run.h"

void tt_post_round(struct tt_work *work, const struct tt_program_channel *row, int channel)
{
    const struct tt_program *program = tt_work_program(work);
    const struct tt_binding *binding = &work->collective.binding;
    const struct tt_program_step *steps = tt_program_steps(program) + row->first;
    const struct tt_program_post *posts = tt_program_posts(program) + row->first_post;
    for (uint32_t k = 0; k < row->nposts; k++) {
        const struct tt_program_step *step = &steps[posts[k].step];
        struct tt_link *link = work->collective.links[step->recv];
        size_t nbytes = 0;
        char *target = tt_work_one_piece(work, channel, &step->dst, &nbytes);
        if (nbytes < TT_DIRECT_MIN_BYTES) continue;
        const struct tt_posted posted = {
            .to = target,
            .nbytes = nbytes,
            .signature = work->collective.signature,
            .nontemporal = posts[k].is_read ? binding->nontemporal : binding->nontemporal_posts};
        link->ops->posts->post(link, posts[k].ahead, &work->collective.memory[TT_OUTPUT], &posted);
        work->collective.posts = true;
    }
}

/* Withdraws all posts. Returns a rank that still writes; -1: none does. */
static int withdraw_posts(struct tt_work *work)
{
    const struct tt_loaded *loaded = work->collective.call.loaded;
    const struct tt_program_link *links = tt_program_links(loaded->program);
    int writer = -1;
    for (int copy = 0; copy < work->collective.binding.copies; copy++)
        for (uint32_t i = 0; i < loaded->program->nlinks; i++) {
            struct tt_link *link = tt_loaded_links(loaded, copy)[i];
            if (!links[i].outgoing && link->ops->posts->withdraw(link) == TT_IN_PROGRESS &&
                writer < 0 && !tt_fabric_is_dead(work->engine->fabric, link->peer))
                writer = link->peer;
        }
    return writer;
}

/* From the rank's own kernel. It may run longer than its call: the other ranks keep their memory
 * until it has ended (tt_kernel_leave_peers), and the failure's text tells the user to keep the
 * buffers. But it must end: nobody stops it after the call. So the call ends, whatever its
 * deadline, when the kernel has been told to wait for no reader any more, and has had time to see
 * that. */
static tt_status regain_from_kernel(struct tt_work *work)
{
    const bool waits = tt_kernel_waits_for_readers(tt_work_kernel(work)->report);
    if (tt_kernel_stop(work) == TT_OK) return TT_OK;
    if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
    if (waits) {
        work->deadline_ns = tt_deadline_ns(TT_GRACE_MS);
        return TT_IN_PROGRESS;
    }
    tt_fabric_add_to_failure(work->engine->fabric,
                             "; this rank's kernel has not ended and may still use its buffers: "
                             "keep them until the stream is done");
    return TT_OK;
}

tt_status tt_work_regain_buffers(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (tt_work_on_device(work)) TT_AWAIT(regain_from_kernel(work));
    TT_AWAIT(tt_staged_stop(work));
    const bool posts = work->kind == TT_WORK_COLLECTIVE && work->collective.posts;
    const int writer = posts ? withdraw_posts(work) : -1;
    const int user = writer < 0 ? tt_fabric_reader(fabric) : writer;
    if (user < 0) return TT_OK;
    if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
    char name[128], still[64] = "", text[384];
    tt_fabric_name_rank(fabric, user, name, sizeof name);
    if (work->engine->timeout_ms <= 0)
        snprintf(still, sizeof still, ", still %d s after the failure,", TT_WITHDRAWAL_S);
    if (writer < 0)
        snprintf(text, sizeof text,
                 "; %s was reading this rank's buffers%s and may still do so: keep them until that "
                 "rank has returned",
                 name, still);
    else
        snprintf(text, sizeof text,
                 "; %s was writing to this rank's receive buffer%s and may still do so: end that "
                 "process before the buffer's memory is used again",
                 name, still);
    tt_fabric_add_to_failure(fabric, text);
    return TT_OK;
}
