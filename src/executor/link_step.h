/* What the files of LINK steps share: link_step.c waits and does short steps, long_step.c does all
 * others. */
#ifndef TT_EXECUTOR_LINK_STEP_H
#define TT_EXECUTOR_LINK_STEP_H

#include "executor/internal.h"

static inline struct tt_link *tt_recv_link(const struct tt_work *work,
                                           const struct tt_program_step *step, uint32_t i)
{
    return work->collective.links[step->recv + i];
}

static inline struct tt_link *tt_send_link(const struct tt_work *work,
                                           const struct tt_program_step *step, uint32_t i)
{
    return work->collective.links[step->send + i];
}

/* Of an operation that changes raw sources: whether the local span is one. */
static inline bool tt_is_local_raw(const struct tt_program_step *step)
{
    return step->local.number && step->local.buffer == TT_INPUT;
}

/* The sources of a fold, in their order. */
TT_INLINED struct tt_sources tt_step_inputs(const struct tt_work *work, int channel,
                                            const struct tt_program_step *step, const char *local,
                                            size_t offset)
{
    const struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    const bool raw = work->collective.changes_raw;
    int n = 0;
    for (uint32_t i = 0; i <= step->nrecv; i++) {
        if ((int32_t)i == step->own_at) {
            if (raw) pointers->raw[n] = tt_is_local_raw(step);
            pointers->inputs[n++] = local;
        }
        if (i == step->nrecv) break;
        if (raw) pointers->raw[n] = pointers->raw_messages[i];
        pointers->inputs[n++] = (const char *)pointers->messages[i] + offset;
    }
    return (struct tt_sources){pointers->inputs, raw ? pointers->raw : NULL, n};
}

/* Whether the only source of a copy is raw. */
static inline bool tt_is_source_raw(const struct tt_work *work, int channel,
                                    const struct tt_program_step *step)
{
    if (!work->collective.changes_raw) return false;
    return step->own_at >= 0 ? tt_is_local_raw(step)
                             : work->engine->pointers[channel].raw_messages[0];
}

/* The work of a step that is not short, once its messages and slots are there, and publishes it. */
TT_NODISCARD tt_status tt_step_long(struct tt_work *work, int channel,
                                    const struct tt_program_step *step,
                                    const struct tt_spans *spans);

#endif
