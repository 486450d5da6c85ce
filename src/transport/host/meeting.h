/* A meeting: the members put their parts into places that all can read, one after another as often
 * as they like, and take what they need when all parts are in.
 *
 * Each member has two places, used in turn: a member that puts a part into meeting m + 2 has
 * finished meeting m + 1, into which every member put its part after it had finished meeting m. All
 * memory order of meetings is here; how a member waits, and what a part means, is the caller's. */
#ifndef TT_TRANSPORT_HOST_MEETING_H
#define TT_TRANSPORT_HOST_MEETING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/link.h"
#include "transport/host/segment.h"
#include "transport/host/sleep.h"

/* One rank's view. Owned by its embedding struct; tt_meeting_fini frees the table. One thread at a
 * time. */
struct tt_meeting {
    /* immutable after init */
    _Alignas(TT_CACHE_LINE) int nmembers;
    int own;                      /* own: this rank's number among the members */
    size_t capacity;              /* most bytes of a part */
    struct tt_flag **places;      /* [2][nmembers + 1]: the last place of each row is for a result
                                   * that one member makes for all */
    struct tt_meeting_area *area; /* arrivals, results */
    struct tt_sleep *sleep;       /* of this rank */
    /* owner: the thread that runs this rank's work */
    uint64_t number; /* meetings finished */
};

/* What a part is. */
struct tt_part {
    uint64_t signature;
    size_t nbytes;
    uint32_t first, number; /* places of the blocks it holds */
    bool complete;          /* what is folded from the parts is what the collective asks for */
};

/* The meeting of all ranks of a segment on one channel; `sleep` is borrowed. TT_ERR_SYSTEM without
 * memory. */
TT_NODISCARD tt_status tt_meeting_init(struct tt_meeting *meeting, const struct tt_segment *segment,
                                       struct tt_sleep *sleep, int channel);
/* A zeroed meeting is allowed. */
void tt_meeting_fini(struct tt_meeting *meeting);

/* The place of a member in the present meeting; member nmembers: the result's. */
static inline struct tt_flag *tt_meeting_place(const struct tt_meeting *meeting, int member)
{
    return meeting
        ->places[(meeting->number & 1) * (uint64_t)(meeting->nmembers + 1) + (uint64_t)member];
}

/* Where the data of a part of nbytes lies. */
static inline char *tt_meeting_data(struct tt_flag *place, size_t nbytes)
{
    return nbytes <= TT_INLINE_BYTES ? (char *)place->data.bytes : (char *)(place + 1);
}

/* Where the data of a part lies that is in. */
static inline char *tt_meeting_part(const struct tt_meeting *meeting, int member)
{
    struct tt_flag *place = tt_meeting_place(meeting, member);
    return tt_meeting_data(place, (size_t)(place->nbytes_kind >> 8));
}

/* Announces the own part, whose data the caller has written to tt_meeting_data of its own place.
 * wakes: members that sleep may wait for this part, not for what the last to arrive publishes. */
static inline void tt_meeting_put(struct tt_meeting *meeting, const struct tt_part *part,
                                  bool wakes)
{
    struct tt_flag *place = tt_meeting_place(meeting, meeting->own);
    place->nbytes_kind =
        (uint64_t)part->nbytes << 8 | (part->complete ? TT_MESSAGE_LAST_PART : TT_MESSAGE_PART);
    place->signature = part->signature;
    place->first = part->first;
    place->number = part->number;
    /* acquire: tt_meeting_is_in */
    atomic_store_explicit(&place->seq, meeting->number + 1, memory_order_release);
    if (wakes) tt_wake_all(meeting->sleep);
}

/* Whether a member's part is in. */
static inline bool tt_meeting_is_in(const struct tt_meeting *meeting, int member)
{
    return atomic_load_explicit(&tt_meeting_place(meeting, member)->seq, memory_order_acquire) ==
           meeting->number + 1; /* release: tt_meeting_put */
}

/* Says that this rank's part is in (release, acquire: the last has the parts of all). True: it was
 * the last, and makes the result for all. Once a meeting, by every member or by none. */
static inline bool tt_meeting_arrive(struct tt_meeting *meeting)
{
    return atomic_fetch_add_explicit(&meeting->area->arrived, 1, memory_order_acq_rel) + 1 ==
           (meeting->number + 1) * (uint64_t)meeting->nmembers;
}

/* Announces the result, by the last to arrive. */
static inline void tt_meeting_publish(struct tt_meeting *meeting)
{
    atomic_store_explicit(&meeting->area->published, meeting->number + 1,
                          memory_order_release); /* acquire: tt_meeting_is_published */
    tt_wake_all(meeting->sleep);
}

static inline bool tt_meeting_is_published(const struct tt_meeting *meeting)
{
    return atomic_load_explicit(&meeting->area->published, memory_order_acquire) >
           meeting->number; /* release: tt_meeting_publish */
}

/* This rank has taken what it needs. */
static inline void tt_meeting_finish(struct tt_meeting *meeting)
{
    meeting->number++;
}

#endif
