/* The host segment: one memfd that all ranks of a communicator on one host map.
 *
 * It holds what each rank says about itself, the first failure of the communicator, the meeting
 * places and the links of every pair. Pages cost nothing until they are touched. Positions in the
 * segment are stored as offsets. An address in it (of a probe, of a reference, of a post) is used
 * by its own process only, or by process_vm_readv. Every word has one writer, except `naborted`,
 * `failure.state` and those of `reason` and `gone`, `nranges`, the state of a post, the meeting's
 * `arrived` and the words of sleepers (atomic read-modify-write), and `published` with the result
 * beside it, which the last to arrive writes.
 */
#ifndef TT_TRANSPORT_SEGMENT_H
#define TT_TRANSPORT_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/link.h"

enum { TT_MOST_RANGES = 16, TT_RANGE_HANDLE = 8 };

/* Memory of a rank's GPU that the other ranks may open (carrier/kernel/ranges.h). Writer: that
 * rank. */
struct tt_range_offer {
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* of the offers of the rank, from 1; 0: none.
                                                   * Written last (release), and 0 first */
    _Atomic uint64_t base, nbytes;            /* nbytes: 0: only ranks of the process may read it */
    _Atomic uint64_t handle[TT_RANGE_HANDLE]; /* what another process needs */
};

/* What a rank has opened of an offer. Writer: that rank. The offer's place is not used again while
 * a rank of another process has it, unless that is dead or has aborted. */
struct tt_range_answer {
    _Atomic uint64_t seq;     /* of the offer, before it is opened; 0: none, or it is closed */
    _Atomic uint64_t address; /* of its base, as the rank's GPU uses it; 0: not open yet */
};

enum tt_rank_state { TT_RANK_ABSENT, TT_RANK_HERE, TT_RANK_LEFT, TT_RANK_ABORTED };

/* One collective that a rank has entered; kept to explain waits and mismatches. Writer: that rank.
 * A rank keeps its last tt_entries_kept(); the entry of a number is at the number modulo these. */
struct tt_entry {
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* written last (release), read first (acquire) */
    _Atomic uint32_t collective, type, op;
    _Atomic int32_t root;
    _Atomic uint64_t count;
    _Atomic uint64_t algorithm; /* its id, alike on all ranks */
};

/* What a rank says about itself. Writer: that rank, but for nshown. */
struct tt_rank_record {
    _Alignas(TT_CACHE_LINE) int32_t pid;
    uint64_t probe; /* address of a word that a peer may try to read (cross-memory attach) */
    _Atomic uint32_t state;
    _Atomic uint32_t nshown;   /* windows that others have passed to it */
    _Atomic uint32_t reading;  /* not 0: this rank reads memory of other ranks of its process */
    _Atomic uint32_t captured; /* 0: no call of a CUDA graph uses memory of other ranks; else 1 +
                                * how many ranks of the host have left whose memory none uses any
                                * more */
    _Atomic uint64_t done;     /* sequence number of the last collective completed, 0: none */
    _Atomic uint64_t entered;  /* of the last one entered; its entry is written before */
    /* When it was last seen waiting, in this host's clock; of a rank of another host: heard of. 0:
     * never. */
    _Atomic int64_t seen_ns;
    _Atomic uint64_t replays; /* twice the collectives of CUDA graphs that its GPU has ended, and 1
                               * while it runs one */
    /* 1 + the processor on which it last began to wait on a crowded machine; 0: it has not */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t core;
    /* Calls whose kernels use memory of other ranks, and of which ranks: one bit each (kernels.c)
     */
    _Atomic uint32_t kernels;
    _Atomic uint32_t withdrawn; /* 1: it lends its memory to no kernel that begins later */
    _Atomic uint64_t lenders;
    /* When its process last heard that one of the process's communicators had failed, in this
     * host's clock: the process may end because of that failure. 0: it has heard of none */
    _Atomic int64_t failed_ns;
};

/* Flags of a link, a power of two, at least as many as slots. A small message travels in its flag
 * and takes no slot, so a rank that only sends can be so many of them ahead. */
static inline uint32_t tt_link_flags(size_t nslots)
{
    return nslots <= 32 ? 32 : TT_MAX_SLOTS;
}

/* How many entries a rank keeps, a power of two. A rank that only sends may have entered one more
 * collective than its link has flags since the collective that the receiver compares. Twice the
 * number of flags leaves room for collectives in which the rank sends nothing to that receiver. */
static inline size_t tt_entries_kept(size_t nslots)
{
    return 2 * (size_t)tt_link_flags(nslots);
}

/* The first failure; whoever moves state 0 -> 1 writes it, then sets 2 (release); readers wait for
 * 2 (acquire). */
struct tt_failure {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t state;
    int32_t code; /* tt_status for every rank */
    char text[TT_ERROR_TEXT];
};

/* A message's flag and, when small, its data. Writer: the sender. */
struct tt_flag {
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t seq; /* number of the message, from 1 */
    uint64_t signature;
    uint64_t nbytes_kind; /* nbytes << 8 | enum tt_message_kind */
    union {
        uint8_t bytes[32];
        struct {
            /* SLOT, SHARED: the offset among the slots. WINDOW: the window's name and an offset.
             * POINTER, REMOTE: an address as the offset. */
            uint64_t window, offset;
        } at;
    } data;
    uint32_t first, number; /* meetings: places of the blocks put in */
};
enum tt_message_kind {
    TT_MESSAGE_INLINE,
    TT_MESSAGE_SLOT,   /* the first, or only, message in its slot */
    TT_MESSAGE_SHARED, /* a later message of a slot that several share */
    TT_MESSAGE_POINTER,
    TT_MESSAGE_WINDOW,
    TT_MESSAGE_REMOTE,
    TT_MESSAGE_POSTED, /* the sender has written it where the receiver wanted it */
    /* meetings: a part, with which the result is not, or is, what the collective asks for */
    TT_MESSAGE_PART,
    TT_MESSAGE_LAST_PART,
};
_Static_assert(sizeof(struct tt_flag) == TT_CACHE_LINE, "a flag is a cache line");

/* Where the receiver of a link wants one message written. Writer: the receiver; the sender changes
 * POSTED into CLAIMED, and that into GIVEN_UP. */
struct tt_post {
    _Atomic uint64_t state; /* number of the message << 2 | enum tt_post_state */
    uint64_t nbytes, signature;
    uint64_t window, offset; /* within one process: an address as offset */
    uint64_t nontemporal;    /* 1: to be stored past the caches */
};
enum tt_post_state {
    TT_POST_NONE,
    TT_POST_POSTED,
    TT_POST_CLAIMED,  /* the sender writes; it has done so when the message is published */
    TT_POST_GIVEN_UP, /* the sender will not write any more, nor publish the message */
};

/* Head of a link's area; the flags and the slots follow. */
struct tt_link_area {
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t taken; /* messages released, of which the last few
                                                     * may be missing; writer: the receiver */
    struct tt_post post;
};
_Static_assert(sizeof(struct tt_link_area) == TT_CACHE_LINE, "a link's head is a cache line");

/* Head of a meeting place. */
struct tt_meeting_area {
    _Alignas(
        TT_CACHE_LINE) _Atomic uint64_t arrived; /* arrivals so far; every rank adds 1 a meeting */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t
        published; /* meetings whose result is out; writer: the last to arrive */
};

/* A rank that may sleep (sleep.h). */
struct tt_sleeper {
    /* 1: a thread of the rank sleeps, or is about to. Set by the rank, cleared by who wakes it. */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t wakes; /* 1: this rank's process wakes others; writer: the rank */
};

/* The ranks that may sleep. The first cache line is written when a rank begins or ends to do so,
 * and read by whoever publishes something. */
struct tt_sleepers {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t number; /* ranks that may be asleep */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t nwakes; /* the futex: grows with each wake */
    struct tt_sleeper each[];                        /* [nlocal] */
};

/* Ranks that are reported gone. Reports may be mistaken, so there may be several. */
enum { TT_MOST_GONE = 16 };

struct tt_segment_header {
    uint64_t magic;
    uint32_t version;
    int32_t nlocal, nchannels;
    uint32_t nslots, slot_bytes, meet_bytes;
    _Atomic uint32_t naborted; /* ranks that have aborted; their records say so before */
    _Atomic uint64_t nranges;  /* changes of offers and answers; added after them (release) */
    struct tt_failure failure;
    /* for which a rank has left first that gives one (transport/reason.h); its code is not used */
    struct tt_failure reason;
    /* ranks that are reported gone: the code is the rank, the text says why (transport/gone.c).
     * Made from the first one on */
    struct tt_failure gone[TT_MOST_GONE];
    struct tt_rank_record records[]; /* [nlocal] */
};

/* A mapping of a segment, shared by the ranks of this process. Freed with its last user. */
struct tt_segment {
    struct tt_segment_header *header;
    size_t nbytes;
    uint64_t id;
    int users; /* guarded by the registry's lock */
    int fd;    /* the creator's, until everyone has it; else -1 */
    struct tt_segment *next;
    size_t nentries; /* that each rank keeps */
    /* layout; meeting_stride: of a channel's meeting place, meet_stride: of a part in it */
    size_t sleepers_at, entries_at, meeting_at, meeting_stride, meet_stride, ranges_at, links_at,
        link_stride;
};

struct tt_segment_layout {
    int nlocal, nchannels; /* nchannels: of two ranks (link.h) */
    size_t nslots, slot_bytes, meet_bytes;
};

/* Makes the links of a host of nlocal ranks (which may be more than the layout's) fit into
 * `budget` bytes of address space: takes slots away down to TT_SLOTS_BETWEEN, halves slot_bytes
 * down to TT_MIN_SLOT_BYTES, then takes slots away down to TT_MIN_SLOTS. More ranks than that
 * allows (2,364 with three channels in 64 GiB) exceed the budget. */
void tt_segment_fit(struct tt_segment_layout *layout, int nlocal, size_t budget);

/* Takes slots away, down to TT_SLOTS_BETWEEN, while the links take more than `budget` bytes. */
void tt_segment_spare(struct tt_segment_layout *layout, int nlocal, size_t budget);

/* Creates and maps a segment; id is unique among the segments of this host that this process may
 * see. TT_ERR_USAGE with fewer than TT_MIN_SLOTS slots, or when the number of channels is not
 * TT_MIN_CHANNELS to TT_MAX_CHANNELS. */
TT_NODISCARD tt_status tt_segment_create(uint64_t id, const struct tt_segment_layout *layout,
                                         struct tt_segment **segment);
/* The mapping of this process, with one more user; NULL when it has none. */
struct tt_segment *tt_segment_find(uint64_t id);
/* The mapping of this process, or, when it has none, a new one of fd (which stays the caller's).
 * Checks magic, version, slots, channels and size. */
TT_NODISCARD tt_status tt_segment_attach(uint64_t id, int fd, struct tt_segment **segment);
/* Drops the creator's descriptor: nobody else will come. */
void tt_segment_seal(struct tt_segment *segment);
void tt_segment_put(struct tt_segment *segment);

/* Where local rank `local` keeps its entry of collective `seq`. */
static inline struct tt_entry *tt_segment_entry(const struct tt_segment *segment, int local,
                                                uint64_t seq)
{
    return (struct tt_entry *)((char *)segment->header + segment->entries_at) +
           (size_t)local * segment->nentries + (seq & (segment->nentries - 1));
}

/* 1: local rank `reader` may read the memory of local rank `owner`. Writer: the reader. */
_Atomic uint8_t *tt_segment_may_read(const struct tt_segment *segment, int reader, int owner);

/* The i-th offer of local rank `owner`, and what `reader` has opened of it. */
struct tt_range_offer *tt_segment_offer(const struct tt_segment *segment, int owner, int i);
struct tt_range_answer *tt_segment_answer(const struct tt_segment *segment, int reader, int owner,
                                          int i);

struct tt_sleepers *tt_segment_sleepers(const struct tt_segment *segment);

struct tt_link_area *tt_segment_link(const struct tt_segment *segment, int from, int to,
                                     int channel);
/* The flags of a link lie behind its head, the slots behind the flags. */
static inline struct tt_flag *tt_link_area_flags(struct tt_link_area *area)
{
    return (struct tt_flag *)(area + 1);
}
static inline char *tt_link_area_slots(struct tt_link_area *area, uint32_t nflags)
{
    return (char *)(tt_link_area_flags(area) + nflags);
}

/* Each channel of collectives has a meeting place. */
struct tt_meeting_area *tt_segment_meeting(const struct tt_segment *segment, int channel);
/* A local rank's flag and payload for meetings of one parity; local = nlocal: the result's. */
struct tt_flag *tt_segment_meet_flag(const struct tt_segment *segment, int channel, int local,
                                     int parity);

#endif
