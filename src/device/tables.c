/* Puts a program and the ends of links that each of its channels uses into one piece of memory. */
#include "device/tables.h"

#include <stdlib.h>
#include <string.h>

/* Tables begin at multiples of it. */
enum { ALIGN = 16 };

static uint32_t align(size_t nbytes)
{
    return (uint32_t)((nbytes + ALIGN - 1) / ALIGN * ALIGN);
}

/* The place of a link's end in its channel's list of n ends; n: it is not there. */
static uint32_t find_end(const struct tt_program_link *links, const uint32_t *uses, uint32_t n,
                         const struct tt_program_link *link)
{
    uint32_t place = 0;
    while (place < n &&
           (links[uses[place]].peer != link->peer || links[uses[place]].outgoing != link->outgoing))
        place++;
    return place;
}

/* Whether the channel has meetings; it has no links then. */
static bool has_meetings(const struct tt_program *program, int channel)
{
    const struct tt_program_channel *row = tt_program_channel(program, channel);
    for (uint32_t s = 0; s < row->nsteps; s++)
        if (tt_program_step(program, channel, s)->kind == TT_STEP_MEET) return true;
    return false;
}

/* The ends of a channel: uses[0..n) are entries of the table of links. places may be NULL. */
static uint32_t list_ends(const struct tt_program *program, int channel,
                          uint32_t uses[TT_DEVICE_MOST_ENDS], uint16_t *places)
{
    const struct tt_program_link *links = tt_program_links(program);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->nlinks; i++) {
        if (links[i].channel != channel) continue;
        const uint32_t place = find_end(links, uses, n, &links[i]);
        if (place == TT_DEVICE_MOST_ENDS) return place + 1;
        if (place == n) uses[n++] = i;
        if (places) places[i] = (uint16_t)place;
    }
    return n;
}

/* A meeting is messages over the links of its channel, so nothing else may be: ranks may meet
 * before or after messages of other steps. */
static const char *refuse_meeting(const struct tt_program *program, int channel)
{
    const struct tt_program_channel *row = tt_program_channel(program, channel);
    if (!has_meetings(program, channel)) return NULL;
    if (!program->nputs) return "its meetings are of the ranks of one of several hosts";
    if (program->nranks > TT_DEVICE_MOST_PEERS) return "a meeting has too many ranks";
    for (uint32_t s = 0; s < row->nsteps; s++) {
        const struct tt_program_step *step = tt_program_step(program, channel, s);
        if (step->nrecv + step->nsend) return "a channel has meetings and links";
    }
    return NULL;
}

static const char *refuse_step(const struct tt_program *program, const struct tt_program_step *step)
{
    if (step->kind == TT_STEP_MEET) return NULL;
    if (step->nrecv > TT_DEVICE_MOST_PEERS || step->nsend > TT_DEVICE_MOST_PEERS)
        return "a step has too many peers";
    if (program->nblocks && step->nrecv + step->nsend && !step->local.number && !step->dst.number)
        return "a step only forwards, so that its length is not known";
    return NULL;
}

const char *tt_device_refusal(const struct tt_program *program)
{
    uint32_t uses[TT_DEVICE_MOST_ENDS];
    for (uint32_t i = 0; i < program->nsteps; i++) {
        const char *why = refuse_step(program, &tt_program_steps(program)[i]);
        if (why) return why;
    }
    if (program->nchannels < 1 || program->nchannels > TT_DEVICE_MOST_CHANNELS)
        return "it has too many channels, or none";
    for (int c = 0; c < program->nchannels; c++) {
        const char *why = refuse_meeting(program, c);
        if (why) return why;
        if (list_ends(program, c, uses, NULL) > TT_DEVICE_MOST_ENDS)
            return "a channel has too many links";
    }
    return NULL;
}

/* Lists the ends of a channel as tt_device_end_at() gives them, where `ends` is not NULL. Returns
 * their number. */
static uint32_t fill_channel(const struct tt_program *program, int channel, uint32_t nchannels,
                             uint32_t *ends, uint16_t *places)
{
    const struct tt_program_link *links = tt_program_links(program);
    uint32_t uses[TT_DEVICE_MOST_ENDS];
    const bool meets = has_meetings(program, channel);
    const uint32_t n =
        meets ? 2 * (uint32_t)program->nranks : list_ends(program, channel, uses, places);
    for (uint32_t e = 0; ends && e < n; e++)
        ends[e] = meets ? tt_device_end_at(nchannels, e / 2, (uint32_t)channel, e % 2)
                        : tt_device_end_at(nchannels, (uint32_t)links[uses[e]].peer,
                                           (uint32_t)channel, links[uses[e]].outgoing);
    return n;
}

tt_status tt_device_tables_create(const struct tt_program *program, uint32_t nchannels,
                                  struct tt_device_program *device, void **memory)
{
    const char *why = tt_device_refusal(program);
    if (why) return tt_fail(TT_ERR_USAGE, "a GPU cannot run this program: %s", why);
    struct tt_device_program made = {.nchannels = (uint32_t)program->nchannels};
    for (int c = 0; c < program->nchannels; c++)
        made.firsts[c + 1] = made.firsts[c] + fill_channel(program, c, nchannels, NULL, NULL);
    made.ends_at = align(program->nlinks * sizeof(uint16_t));
    made.program_at = made.ends_at + align(made.firsts[program->nchannels] * sizeof(uint32_t));
    made.nbytes = made.program_at + align(program->nbytes);
    char *all = calloc(1, made.nbytes);
    if (!all) return tt_fail(TT_ERR_SYSTEM, "out of memory for %u bytes of a program", made.nbytes);
    uint32_t *ends = (uint32_t *)(all + made.ends_at);
    for (int c = 0; c < program->nchannels; c++)
        fill_channel(program, c, nchannels, ends + made.firsts[c], (uint16_t *)all);
    memcpy(all + made.program_at, program, program->nbytes);
    *device = made;
    *memory = all;
    return TT_OK;
}
