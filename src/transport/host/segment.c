/* Lays out the segment, creates it, maps it and checks a received one. */
#include "transport/host/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/private_fd.h"
#include "base/process_lock.h"
#include "base/write.h"

enum { PAGE = 4096, SEGMENT_VERSION = 10 };
static const uint64_t segment_magic = 0x7475747469736567u;

/* The segments mapped by this process. A child made by fork may put those that it has inherited. */
static struct tt_process_lock registry_lock = TT_PROCESS_LOCK;
static struct tt_segment *registry;

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static size_t link_stride(const struct tt_segment_layout *layout)
{
    return round_up(sizeof(struct tt_link_area) +
                        tt_link_flags(layout->nslots) * sizeof(struct tt_flag) +
                        layout->nslots * layout->slot_bytes,
                    PAGE);
}

static void lay_out(struct tt_segment *segment, const struct tt_segment_layout *layout)
{
    const size_t nlocal = (size_t)layout->nlocal;
    segment->nentries = tt_entries_kept(layout->nslots);
    segment->sleepers_at = round_up(sizeof(struct tt_segment_header) +
                                        nlocal * sizeof(struct tt_rank_record) + nlocal * nlocal,
                                    TT_CACHE_LINE);
    segment->entries_at =
        segment->sleepers_at + sizeof(struct tt_sleepers) + nlocal * sizeof(struct tt_sleeper);
    segment->meeting_at =
        round_up(segment->entries_at + nlocal * segment->nentries * sizeof(struct tt_entry), PAGE);
    segment->meet_stride = sizeof(struct tt_flag) + round_up(layout->meet_bytes, TT_CACHE_LINE);
    segment->meeting_stride =
        sizeof(struct tt_meeting_area) + 2 * (nlocal + 1) * segment->meet_stride;
    const size_t nmeetings = (size_t)layout->nchannels - 1; /* point to point has none */
    const size_t of_rank =
        TT_MOST_RANGES * (sizeof(struct tt_range_offer) + nlocal * sizeof(struct tt_range_answer));
    segment->ranges_at = round_up(segment->meeting_at + nmeetings * segment->meeting_stride, PAGE);
    segment->links_at = round_up(segment->ranges_at + nlocal * of_rank, PAGE);
    segment->link_stride = link_stride(layout);
    segment->nbytes =
        segment->links_at + nlocal * nlocal * (size_t)layout->nchannels * segment->link_stride;
}

static void take_slots(struct tt_segment_layout *layout, size_t a_link, size_t least)
{
    while (link_stride(layout) > a_link && layout->nslots > least) layout->nslots--;
}

static size_t link_budget(const struct tt_segment_layout *layout, int nlocal, size_t budget)
{
    return budget / ((size_t)nlocal * (size_t)nlocal * (size_t)layout->nchannels);
}

void tt_segment_spare(struct tt_segment_layout *layout, int nlocal, size_t budget)
{
    take_slots(layout, link_budget(layout, nlocal, budget), TT_SLOTS_BETWEEN);
}

void tt_segment_fit(struct tt_segment_layout *layout, int nlocal, size_t budget)
{
    const size_t a_link = link_budget(layout, nlocal, budget);
    take_slots(layout, a_link, TT_SLOTS_BETWEEN);
    while (link_stride(layout) > a_link && layout->slot_bytes > TT_MIN_SLOT_BYTES) {
        const size_t half = layout->slot_bytes / 2 / TT_CACHE_LINE * TT_CACHE_LINE;
        layout->slot_bytes = half > TT_MIN_SLOT_BYTES ? half : TT_MIN_SLOT_BYTES;
    }
    take_slots(layout, a_link, TT_MIN_SLOTS);
}

static tt_status check_layout(const struct tt_segment_layout *layout)
{
    if (layout->nchannels < TT_MIN_CHANNELS || layout->nchannels > TT_MAX_CHANNELS)
        return tt_fail(TT_ERR_USAGE,
                       "the host segment (%d ranks) has links for %d channels of collectives, "
                       "expected %d to %d: set TUTTI_CHANNELS",
                       layout->nlocal, layout->nchannels - 1, TT_MIN_CHANNELS - 1,
                       TT_MAX_COLLECTIVE_CHANNELS);
    if (layout->nslots >= TT_MIN_SLOTS) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "a link of the host segment (%d ranks) has %zu slots of %zu bytes, expected at "
                   "least %d slots: set TUTTI_SLOTS to %d or more",
                   layout->nlocal, layout->nslots, layout->slot_bytes, TT_MIN_SLOTS, TT_MIN_SLOTS);
}

static tt_status map(struct tt_segment *segment, int fd)
{
    void *memory =
        mmap(NULL, segment->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED)
        return tt_fail_errno(
            errno,
            "cannot map %zu bytes of address space for the host segment (ulimit -v?); a smaller "
            "TUTTI_SLOTS or TUTTI_SLOT_BYTES takes less",
            segment->nbytes);
    madvise(memory, segment->nbytes, MADV_DONTDUMP); /* a core would have its holes too */
    segment->header = memory;
    return TT_OK;
}

static void enrol_locked(struct tt_segment *segment)
{
    segment->next = registry;
    registry = segment;
}

static struct tt_segment *find_locked(uint64_t id)
{
    struct tt_segment *segment = registry;
    while (segment && segment->id != id) segment = segment->next;
    if (segment) segment->users++;
    return segment;
}

tt_status tt_segment_create(uint64_t id, const struct tt_segment_layout *layout,
                            struct tt_segment **out)
{
    TT_TRY(check_layout(layout));
    struct tt_segment *segment = calloc(1, sizeof *segment);
    if (!segment) return tt_fail(TT_ERR_SYSTEM, "out of memory for a segment");
    *segment = (struct tt_segment){.id = id, .users = 1, .fd = -1};
    lay_out(segment, layout);
    tt_status status;
    tt_private_fd_begin();
    segment->fd = tt_private_fd_end(memfd_create("tutti-segment", MFD_CLOEXEC));
    if (segment->fd < 0) {
        status = tt_fail_errno(errno, "cannot create shared memory (memfd_create)");
        goto free_segment;
    }
    if (tt_truncate(segment->fd, (off_t)segment->nbytes)) {
        status = tt_fail_errno(errno,
                               "cannot size shared memory to %zu bytes%s; a smaller TUTTI_SLOTS or "
                               "TUTTI_SLOT_BYTES takes less",
                               segment->nbytes, tt_write_limit(errno));
        goto close_fd;
    }
    status = map(segment, segment->fd);
    if (status) goto close_fd;
    struct tt_segment_header *header = segment->header;
    header->magic = segment_magic;
    header->version = SEGMENT_VERSION;
    header->nlocal = layout->nlocal;
    header->nchannels = layout->nchannels;
    header->nslots = (uint32_t)layout->nslots;
    header->slot_bytes = (uint32_t)layout->slot_bytes;
    header->meet_bytes = (uint32_t)layout->meet_bytes;
    tt_process_lock(&registry_lock);
    enrol_locked(segment);
    tt_process_unlock(&registry_lock);
    *out = segment;
    return TT_OK;

close_fd:
    tt_private_fd_close(segment->fd);
free_segment:
    free(segment);
    return status;
}

struct tt_segment *tt_segment_find(uint64_t id)
{
    tt_process_lock(&registry_lock);
    struct tt_segment *segment = find_locked(id);
    tt_process_unlock(&registry_lock);
    return segment;
}

static tt_status attach_locked(uint64_t id, int fd, struct tt_segment **out)
{
    struct stat info;
    struct tt_segment_header peek;
    if (fstat(fd, &info)) return tt_fail_errno(errno, "cannot look at the host segment");
    if (pread(fd, &peek, sizeof peek, 0) != (ssize_t)sizeof peek || peek.magic != segment_magic ||
        peek.version != SEGMENT_VERSION || peek.nlocal < 1)
        return tt_fail(TT_ERR_USAGE,
                       "the host segment is of another version of tutti; use one version in a job");
    const struct tt_segment_layout layout = {.nlocal = peek.nlocal,
                                             .nchannels = peek.nchannels,
                                             .nslots = peek.nslots,
                                             .slot_bytes = peek.slot_bytes,
                                             .meet_bytes = peek.meet_bytes};
    TT_TRY(check_layout(&layout));
    struct tt_segment *segment = calloc(1, sizeof *segment);
    if (!segment) return tt_fail(TT_ERR_SYSTEM, "out of memory for a segment");
    *segment = (struct tt_segment){.id = id, .users = 1, .fd = -1};
    lay_out(segment, &layout);
    tt_status status = (size_t)info.st_size == segment->nbytes
                           ? map(segment, fd)
                           : tt_fail(TT_ERR_USAGE, "the host segment has %zu bytes, expected %zu",
                                     (size_t)info.st_size, segment->nbytes);
    if (status) {
        free(segment);
        return status;
    }
    enrol_locked(segment);
    *out = segment;
    return TT_OK;
}

tt_status tt_segment_attach(uint64_t id, int fd, struct tt_segment **segment)
{
    tt_process_lock(&registry_lock);
    struct tt_segment *found = find_locked(id);
    const tt_status status = found ? TT_OK : attach_locked(id, fd, &found);
    tt_process_unlock(&registry_lock);
    if (!status) *segment = found;
    return status;
}

void tt_segment_seal(struct tt_segment *segment)
{
    if (segment->fd >= 0) tt_private_fd_close(segment->fd);
    segment->fd = -1;
}

void tt_segment_put(struct tt_segment *segment)
{
    if (!segment) return;
    tt_process_lock(&registry_lock);
    const bool last = --segment->users == 0;
    if (last) {
        struct tt_segment **link = &registry;
        while (*link != segment) link = &(*link)->next;
        *link = segment->next;
    }
    tt_process_unlock(&registry_lock);
    if (!last) return;
    tt_segment_seal(segment);
    munmap(segment->header, segment->nbytes);
    free(segment);
}

_Atomic uint8_t *tt_segment_may_read(const struct tt_segment *segment, int reader, int owner)
{
    const size_t nlocal = (size_t)segment->header->nlocal;
    return (_Atomic uint8_t *)&segment->header->records[nlocal] + (size_t)reader * nlocal +
           (size_t)owner;
}

struct tt_range_offer *tt_segment_offer(const struct tt_segment *segment, int owner, int i)
{
    struct tt_range_offer *offers =
        (struct tt_range_offer *)((char *)segment->header + segment->ranges_at);
    return offers + (size_t)owner * TT_MOST_RANGES + (size_t)i;
}

struct tt_range_answer *tt_segment_answer(const struct tt_segment *segment, int reader, int owner,
                                          int i)
{
    const int nlocal = segment->header->nlocal;
    struct tt_range_answer *answers =
        (struct tt_range_answer *)tt_segment_offer(segment, nlocal, 0);
    return answers + ((size_t)reader * (size_t)nlocal + (size_t)owner) * TT_MOST_RANGES + (size_t)i;
}

struct tt_sleepers *tt_segment_sleepers(const struct tt_segment *segment)
{
    return (struct tt_sleepers *)((char *)segment->header + segment->sleepers_at);
}

struct tt_link_area *tt_segment_link(const struct tt_segment *segment, int from, int to,
                                     int channel)
{
    const size_t nlocal = (size_t)segment->header->nlocal;
    const size_t nchannels = (size_t)segment->header->nchannels;
    const size_t index = ((size_t)from * nlocal + (size_t)to) * nchannels + (size_t)channel;
    return (struct tt_link_area *)((char *)segment->header + segment->links_at +
                                   index * segment->link_stride);
}

struct tt_meeting_area *tt_segment_meeting(const struct tt_segment *segment, int channel)
{
    return (struct tt_meeting_area *)((char *)segment->header + segment->meeting_at +
                                      (size_t)channel * segment->meeting_stride);
}

struct tt_flag *tt_segment_meet_flag(const struct tt_segment *segment, int channel, int local,
                                     int parity)
{
    char *first = (char *)(tt_segment_meeting(segment, channel) + 1);
    return (struct tt_flag *)(first + ((size_t)local * 2 + (size_t)parity) * segment->meet_stride);
}
