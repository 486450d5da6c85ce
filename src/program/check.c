/* Checks that all tables and indices of a program are in range. */
#include "program/check.h"

#include <inttypes.h>
#include <stdio.h>

#include "program/proof.h"

/* The links of one side of a step: at most one to each other rank. */
static const char *check_links(const struct tt_program *program, int channel, uint32_t first,
                               uint32_t number, bool outgoing)
{
    if (number > program->nlinks || first > program->nlinks - number)
        return "its links are not in the table of links";
    uint64_t seen = 0; /* a bit a rank */
    for (uint32_t i = 0; i < number; i++) {
        const struct tt_program_link *link = &tt_program_links(program)[first + i];
        if (link->peer < 0 || link->peer >= program->nranks || link->peer == program->rank)
            return "a link leads to no other rank";
        if (seen >> link->peer & 1) return "two links of a side lead to the same rank";
        seen |= 1ull << link->peer;
        if (link->channel != channel) return "a link is of another channel";
        if (link->outgoing != outgoing) return "a link has the wrong direction";
    }
    return NULL;
}

/* Places first, first + 1, ... without wrapping round. */
static bool is_contiguous(const struct tt_program_span *span)
{
    return (span->run == span->number || span->stride == span->run) &&
           span->first <= span->modulo - span->number && span->buffer != TT_SCRATCH &&
           span->order < 0;
}

static const char *check_span(const struct tt_program *program, const struct tt_program_span *span)
{
    const int32_t nblocks = program->nblocks;
    if (span->number == 0)
        return span->contiguous || span->all ? "a span without blocks is marked as contiguous"
                                             : NULL;
    if (span->buffer > TT_SCRATCH || span->slot_rule > TT_SLOT_IN_ORDER)
        return "a span has no such buffer or rule";
    if (span->modulo < 1 || span->modulo > nblocks || span->base < 0 ||
        span->base > nblocks - span->modulo)
        return "a span's part is not one of the blocks";
    if (span->number < 0 || span->number > span->modulo || span->first < 0 ||
        span->first >= span->modulo || span->run < 1 || span->run > span->number ||
        span->stride < 0 || span->stride >= span->modulo)
        return "a span does not fit its part";
    if (span->order < -1 || (span->order >= 0 && span->order > (int64_t)program->norders - nblocks))
        return "a span's order is not in the table of orders";
    if (span->contiguous > 1 || span->all > 1 || (span->contiguous && !is_contiguous(span)) ||
        (span->all && !(span->contiguous && span->number == nblocks)))
        return "a span is marked as contiguous and is not";
    return NULL;
}

/* Without a table no step has puts. */
static bool has_puts(const struct tt_program *program, const struct tt_program_step *step)
{
    if (!program->nputs) return step->recv == 0;
    const uint32_t nranks = (uint32_t)program->nranks;
    return nranks <= program->nputs && step->recv <= program->nputs - nranks;
}

static const char *check_step(const struct tt_program *program, int channel,
                              const struct tt_program_step *step)
{
    const bool meets = step->kind == TT_STEP_MEET;
    const char *wrong = check_span(program, &step->local);
    if (!wrong) wrong = check_span(program, &step->dst);
    if (!wrong && !meets) wrong = check_links(program, channel, step->recv, step->nrecv, false);
    if (!wrong) wrong = check_links(program, channel, step->send, step->nsend, true);
    if (wrong) return wrong;
    if (step->kind > TT_STEP_MEET || step->op > TT_TRANSPOSE || step->finish > 1)
        return "it has no such kind or operation";
    if (step->meeting != 0 || (meets && (step->nrecv || step->nsend || !program->meets)))
        return "it has no such meeting";
    if (meets && !has_puts(program, step)) return "its meeting's puts are not in the table of puts";
    if (meets || !step->local.number ? step->own_at != -1
                                     : step->own_at < 0 || step->own_at > (int32_t)step->nrecv)
        return "its own part has no place among the sources";
    const int32_t sent = meets || !step->dst.number ? step->local.number : step->dst.number;
    if ((meets || step->nsend) && sent > program->message)
        return "it sends more blocks than a message has room for";
    return NULL;
}

/* Messages that the steps of a channel before `end` take from a rank. */
static uint32_t messages_before(const struct tt_program *program, int channel, uint32_t end,
                                int32_t peer)
{
    const struct tt_program_link *links = tt_program_links(program);
    uint32_t number = 0;
    for (uint32_t s = 0; s < end; s++) {
        const struct tt_program_step *step = tt_program_step(program, channel, s);
        for (uint32_t i = 0; step->kind == TT_STEP_LINK && i < step->nrecv; i++)
            number += links[step->recv + i].peer == peer;
    }
    return number;
}

static bool only_stores(const struct tt_program_step *step)
{
    return step->kind == TT_STEP_LINK && step->op == TT_COPY && !step->finish && step->nrecv == 1 &&
           !step->local.number && step->dst.number && step->dst.buffer == TT_OUTPUT;
}

/* The steps of the channel have been checked. */
static const char *check_posts(const struct tt_program *program, int channel)
{
    const struct tt_program_channel *row = tt_program_channel(program, channel);
    uint64_t posted = 0; /* a bit a rank */
    if (row->nposts > program->nposts || row->first_post > program->nposts - row->nposts)
        return "its posts are not in the table of posts";
    for (uint32_t k = 0; k < row->nposts; k++) {
        const struct tt_program_post *post = &tt_program_posts(program)[row->first_post + k];
        if (post->step >= row->nsteps) return "a post is of no step";
        const struct tt_program_step *step = tt_program_step(program, channel, post->step);
        if (!only_stores(step)) return "a post's step does more than store one message in OUTPUT";
        const int32_t peer = tt_program_links(program)[step->recv].peer;
        if (posted >> peer & 1) return "two posts are of the same link";
        posted |= 1ull << peer;
        if (post->ahead != messages_before(program, channel, post->step, peer))
            return "a post is of another message of its link";
    }
    return NULL;
}

static const char *check_header(const struct tt_program *program)
{
    const struct tt_shape shape = {.collective = (enum tt_collective)program->collective,
                                   .nranks = program->nranks,
                                   .root = program->root};
    if (program->collective >= TT_NCOLLECTIVES ||
        program->splits != tt_collective_splits(shape.collective))
        return "its collective is not what it does";
    for (int b = TT_INPUT; b <= TT_OUTPUT && program->nblocks; b++) {
        int32_t first;
        const int32_t number =
            tt_buffer_blocks(&shape, program->nblocks, (enum tt_buffer)b, program->rank, &first);
        if (program->held[b].first != first || program->held[b].number != number)
            return "its buffers do not hold these blocks";
    }
    if (program->nranks > TT_PROOF_MOST_RANKS) return "it has too many ranks to be checked";
    uint32_t nsteps = 0;
    for (int c = 0; c < program->nchannels; c++) {
        const struct tt_program_channel *channel = tt_program_channel(program, c);
        if (channel->first != nsteps || channel->nsteps > program->nsteps - nsteps)
            return "its channels are not in the table of steps";
        nsteps += channel->nsteps;
    }
    return nsteps == program->nsteps ? NULL : "some steps are of no channel";
}

static tt_status malformed(const struct tt_program *program, int channel, int64_t step,
                           const char *wrong, char *text, size_t size)
{
    int used = snprintf(text, size, "rank %d", program->rank);
    if (channel >= 0) used += snprintf(text + used, size - (size_t)used, " channel %d", channel);
    if (step >= 0) used += snprintf(text + used, size - (size_t)used, " step %" PRId64, step);
    snprintf(text + used, size - (size_t)used, ": the program is malformed: %s", wrong);
    return TT_ERR_USAGE;
}

tt_status tt_program_check(const struct tt_program *program, char *text, size_t size)
{
    const char *wrong = check_header(program);
    if (wrong) return malformed(program, -1, -1, wrong, text, size);
    for (int c = 0; c < program->nchannels; c++) {
        for (uint32_t s = 0; s < tt_program_channel(program, c)->nsteps; s++) {
            wrong = check_step(program, c, tt_program_step(program, c, s));
            if (wrong) return malformed(program, c, s, wrong, text, size);
        }
        wrong = check_posts(program, c);
        if (wrong) return malformed(program, c, -1, wrong, text, size);
    }
    return TT_OK;
}
