/* Sets and reads the counts of links between GPUs. */
#include "counts.h"

#include <stdlib.h>
#include <string.h>

static size_t nends_of(const struct tt_device_links *links)
{
    return (size_t)links->nranks * links->nchannels * 2;
}

static struct tt_device_end *read_ends(const struct tt_device_links *links,
                                       const struct counts_access *access)
{
    struct tt_device_end *ends = calloc(nends_of(links), sizeof *ends);
    access->read(access->arg, ends, links->ends, nends_of(links) * sizeof *ends);
    return ends;
}

/* What the link's memory says, all of the same message. */
static void make_fresh(const struct tt_device_links *links, const struct counts_access *access,
                       const struct tt_device_end *end, uint64_t number)
{
    const size_t nbytes = (size_t)links->nslots * links->line_bytes;
    struct tt_device_note *notes = calloc(links->nslots, sizeof *notes);
    char *lines = calloc(1, nbytes);
    for (uint32_t i = 0; i < links->nslots; i++) notes[i].head = number;
    for (size_t at = TT_LINE_DATA; at < nbytes; at += TT_LINE_BYTES)
        memcpy(lines + at, &number, sizeof number);
    access->write(access->arg, end->head, &number, sizeof number);
    access->write(access->arg, end->notes, notes, links->nslots * sizeof *notes);
    access->write(access->arg, end->lines, lines, nbytes);
    free(lines);
    free(notes);
}

void counts_set(const struct tt_device_links *links, const struct counts_access *access,
                uint32_t count, bool fresh)
{
    struct tt_device_end *ends = read_ends(links, access);
    const uint64_t tail = count;
    for (size_t i = 0; i < nends_of(links); i++) {
        struct tt_device_end *end = &ends[i];
        end->count = end->known_tail = count;
        if (!end->head) continue; /* of the rank with itself */
        if (end->outgoing)
            access->write(access->arg, end->tail, &tail, sizeof tail);
        else if (fresh)
            make_fresh(links, access, end, count);
    }
    access->write(access->arg, links->ends, ends, nends_of(links) * sizeof *ends);
    free(ends);
}

static uint32_t older(uint32_t oldest, const struct tt_device_end *end, uint64_t word)
{
    const uint32_t age = end->count - (uint32_t)word;
    return age > oldest ? age : oldest;
}

static uint32_t oldest_of(const struct tt_device_links *links, const struct counts_access *access,
                          const struct tt_device_end *end)
{
    const size_t nbytes = (size_t)links->nslots * links->line_bytes;
    struct tt_device_note *notes = calloc(links->nslots, sizeof *notes);
    char *lines = calloc(1, nbytes);
    uint64_t word;
    access->read(access->arg, &word, end->head, sizeof word);
    access->read(access->arg, notes, end->notes, links->nslots * sizeof *notes);
    access->read(access->arg, lines, end->lines, nbytes);
    uint32_t oldest = older(0, end, word);
    for (uint32_t i = 0; i < links->nslots; i++) oldest = older(oldest, end, notes[i].head);
    for (size_t at = TT_LINE_DATA; at < nbytes; at += TT_LINE_BYTES) {
        memcpy(&word, lines + at, sizeof word);
        oldest = older(oldest, end, word);
    }
    free(lines);
    free(notes);
    return oldest;
}

uint32_t counts_oldest(const struct tt_device_links *links, const struct counts_access *access,
                       uint32_t count)
{
    struct tt_device_end *ends = read_ends(links, access);
    uint32_t oldest = 0;
    for (size_t i = 0; i < nends_of(links); i++) {
        if (!ends[i].head || ends[i].outgoing || ends[i].count == count) continue;
        const uint32_t age = oldest_of(links, access, &ends[i]);
        if (age > oldest) oldest = age;
    }
    free(ends);
    return oldest;
}
