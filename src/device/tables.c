/* Lists the ends of links that each channel of a program uses. */
#include "device/tables.h"

#include <stdlib.h>

/* Bytes of the tables' beginnings. */
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
                                  struct tt_device_tables **out)
{
    const char *why = tt_device_refusal(program);
    if (why) return tt_fail(TT_ERR_USAGE, "a GPU cannot run this program: %s", why);
    uint32_t nends = 0;
    for (int c = 0; c < program->nchannels; c++)
        nends += fill_channel(program, c, nchannels, NULL, NULL);
    const uint32_t places_at = align(sizeof(struct tt_device_tables));
    const uint32_t firsts_at = places_at + align(program->nlinks * sizeof(uint16_t));
    const uint32_t ends_at = firsts_at + align(((size_t)program->nchannels + 1) * sizeof(uint32_t));
    const uint32_t nbytes = ends_at + align(nends * sizeof(uint32_t));
    struct tt_device_tables *tables = calloc(1, nbytes);
    if (!tables)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %u bytes of a program's tables", nbytes);
    *tables = (struct tt_device_tables){
        .nbytes = nbytes, .places_at = places_at, .firsts_at = firsts_at, .ends_at = ends_at};
    uint16_t *places = (uint16_t *)((char *)tables + places_at);
    uint32_t *firsts = (uint32_t *)((char *)tables + firsts_at);
    uint32_t *ends = (uint32_t *)((char *)tables + ends_at);
    for (int c = 0; c < program->nchannels; c++)
        firsts[c + 1] = firsts[c] + fill_channel(program, c, nchannels, ends + firsts[c], places);
    *out = tables;
    return TT_OK;
}
