/* The links between two ranks of a host. */
#include "transport/host/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/prefetch.h"
#include "base/private_fd.h"
#include "transport/host/cma.h"

/* Messages of at most so many bytes share slots, and so many at most in one. */
enum { SHARED_BYTES = 2048, MOST_SHARING = 8 };

/* rewind_slots */
enum { LONG_BYTES = 16384, FEW_SLOTS = 6, FEW_LONG_SLOTS = 2 };

/* The receiver reports messages that lie in their flags, and all but the first in a slot that is
 * shared, in groups of so many, so that `taken` goes to the sender that much less often. Others are
 * reported at once: the sender waits for references and slots, though not for what was posted. A
 * sender that waits for a flag or a slot never waits for an unreported message: all flags but a
 * group are reported, and all slots but the last. */
enum { REPORTED_TOGETHER = 8 };
_Static_assert(REPORTED_TOGETHER < 32, "all flags but a group are reported");

static struct tt_flag *flag_of(const struct tt_shm_link *shm)
{
    return &shm->flags[(uint32_t)(shm->next - 1) & shm->flag_mask];
}

/* Where slot `slot` begins among the slots. */
static uint64_t slot_offset(const struct tt_shm_link *shm, uint32_t slot)
{
    return slot * (uint64_t)shm->link.slot_bytes;
}

static uint64_t slot_bit(uint64_t number)
{
    return UINT64_C(1) << (number & 63);
}

/* Reads how many messages the receiver has released, and so which slots are free. */
static void look_at_taken(struct tt_shm_link *shm)
{
    /* release: shm_release */
    const uint64_t taken = atomic_load_explicit(&shm->area->taken, memory_order_acquire);
    while (shm->slots_used && shm->taken < taken)
        if (shm->in_slots & slot_bit(++shm->taken)) {
            shm->in_slots &= ~slot_bit(shm->taken);
            shm->slots_used--;
        }
    shm->taken = taken;
}

/* Whether there is a flag for one more message. */
static bool has_flag(struct tt_shm_link *shm)
{
    if (shm->next - 1 - shm->taken <= shm->flag_mask) return true;
    look_at_taken(shm);
    return shm->next - 1 - shm->taken <= shm->flag_mask;
}

static bool has_slot(struct tt_shm_link *shm)
{
    if (shm->slots_used == shm->nslots) look_at_taken(shm);
    return shm->slots_used < shm->nslots;
}

/* Short messages share a slot, so that a sender can be as many of them ahead as there are flags. A
 * shared slot may wait for a report, so there are at least two others (link.h, TT_MIN_SLOTS). */
static bool shares_slot(const struct tt_shm_link *shm, size_t nbytes)
{
    return nbytes <= SHARED_BYTES && shm->nsharing > 0 && shm->nsharing < MOST_SHARING &&
           shm->shared_end + nbytes <= slot_offset(shm, shm->last_slot) + shm->link.slot_bytes;
}

/* A link that has used a few slots for messages of some KiB begins at the first one again, if all
 * messages are taken: these few stay in the caches. Long messages go through all slots, which are
 * more than a core's second cache holds: a slot that the receiver's cache still has is slow to
 * write. Ranks that share cores share caches too: there long messages begin again even sooner,
 * since the slots of all links together are many times what the caches hold. */
static void rewind_slots(struct tt_shm_link *shm, size_t nbytes)
{
    const bool is_long = nbytes >= LONG_BYTES;
    if (is_long && !shm->room->config.oversubscribed) return;
    if (shm->slot < (is_long ? FEW_LONG_SLOTS : FEW_SLOTS)) return;
    if (shm->slots_used) look_at_taken(shm);
    if (shm->slots_used) return;
    shm->slot = 0;
    shm->nsharing = MOST_SHARING; /* the slot filled last may lie anywhere */
}

static void *shm_slot(struct tt_link *link, size_t nbytes)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    if (!has_flag(shm)) return NULL;
    if (nbytes <= TT_INLINE_BYTES) return flag_of(shm)->data.bytes;
    if (shares_slot(shm, nbytes)) return shm->slots + shm->shared_end;
    rewind_slots(shm, nbytes);
    return has_slot(shm) ? shm->slots + slot_offset(shm, shm->slot) : NULL;
}

/* A rank that only sends fetches the cache line of its next flag while it does something else. The
 * receiver of one that waits for answers looks at that cache line already. */
static void prefetch_flag(struct tt_shm_link *shm)
{
    const struct tt_flag *flag = flag_of(shm);
    const uint64_t released = shm->room->nreleased;
    const bool waits = shm->released != released;
    shm->released = released;
    if (waits) return;
    tt_prefetch_for_writing(flag);
}

static void publish(struct tt_shm_link *shm, size_t nbytes, uint64_t signature,
                    enum tt_message_kind kind)
{
    struct tt_flag *flag = flag_of(shm);
    flag->signature = signature;
    flag->nbytes_kind = (uint64_t)nbytes << 8 | kind;
    atomic_store_explicit(&flag->seq, shm->next, memory_order_release); /* acquire: shm_peek */
    tt_wake(shm->sleep, shm->place);
    shm->next++;
    prefetch_flag(shm);
    tt_count_more(shm->room->context->nmessages, 1);
}

/* A slot is free when the last of its messages, which has its bit set, is taken. */
static void extend_slot(struct tt_shm_link *shm)
{
    if (shm->last_in_slot > shm->taken)
        shm->in_slots &= ~slot_bit(shm->last_in_slot);
    else
        shm->slots_used++; /* it was free again */
    shm->nsharing++;
}

static void begin_slot(struct tt_shm_link *shm, size_t nbytes)
{
    shm->last_slot = shm->slot;
    shm->shared_end = slot_offset(shm, shm->slot);
    shm->nsharing = nbytes <= SHARED_BYTES && shm->nslots > TT_MIN_SLOTS ? 1 : MOST_SHARING;
    shm->slots_used++;
    shm->awaited = shm->next;
    shm->slot = shm->slot + 1 == shm->nslots ? 0 : shm->slot + 1;
}

/* The flag says where among the slots its message lies. */
static enum tt_message_kind occupy_slot(struct tt_shm_link *shm, size_t nbytes)
{
    const bool shares = shares_slot(shm, nbytes);
    if (shares)
        extend_slot(shm);
    else
        begin_slot(shm, nbytes);
    shm->last_in_slot = shm->next;
    shm->in_slots |= slot_bit(shm->next);
    flag_of(shm)->data.at.offset = shm->shared_end;
    shm->shared_end += (nbytes + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE;
    return shares ? TT_MESSAGE_SHARED : TT_MESSAGE_SLOT;
}

static void shm_publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    enum tt_message_kind kind = TT_MESSAGE_INLINE;
    if (shm->claimed) {
        shm->claimed = false;
        tt_count_more(shm->room->context->nbytes_direct, nbytes);
        publish(shm, nbytes, signature, TT_MESSAGE_POSTED);
        return;
    }
    if (nbytes > TT_INLINE_BYTES) kind = occupy_slot(shm, nbytes);
    tt_count_more(shm->room->context->nbytes_copied, nbytes);
    publish(shm, nbytes, signature, kind);
}

static bool shm_reaches(struct tt_link *link, const struct tt_memory *memory, const void *data,
                        size_t nbytes)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    return shm->same_process || tt_host_is_known(shm->room, shm->place, memory, data, nbytes) ||
           tt_host_may_read(shm->room, shm->place);
}

static bool shm_publish_direct(struct tt_link *link, const struct tt_memory *memory,
                               const void *data, size_t nbytes, uint64_t signature)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    if (!has_flag(shm)) return false;
    struct tt_flag *flag = flag_of(shm);
    enum tt_message_kind kind = TT_MESSAGE_POINTER;
    flag->data.at.offset = (uint64_t)(uintptr_t)data;
    if (!shm->same_process && tt_host_is_known(shm->room, shm->place, memory, data, nbytes)) {
        kind = TT_MESSAGE_WINDOW;
        flag->data.at.window = memory->window;
        flag->data.at.offset = (uint64_t)((const char *)data - memory->base);
    } else if (!shm->same_process) {
        if (!tt_host_may_read(shm->room, shm->place)) return false;
        kind = TT_MESSAGE_REMOTE;
    }
    tt_count_more(shm->room->context->nbytes_direct, nbytes);
    shm->awaited = shm->next;
    publish(shm, nbytes, signature, kind);
    return true;
}

/* A message that was posted is in the receiver's memory: nobody waits until it is taken.
 *
 * When the receiver has left, tt_fabric_check_peers asks whether the link is drained: then the
 * sender can go on. A sender that has no flag for one more message cannot, so its link is not
 * drained. */
static bool shm_drained(struct tt_link *link)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    if (!shm->area) return true;
    if (shm->taken < shm->awaited) look_at_taken(shm);
    return shm->taken >= shm->awaited && has_flag(shm);
}

/* ---- Receiving ------------------------------------------------------------------------------ */

/* Where [offset, offset + nbytes) of a peer's window is mapped. */
tt_status tt_shm_find_in_window(struct tt_shm_link *shm, uint64_t window, uint64_t offset,
                                size_t nbytes, char **data)
{
    char *base;
    size_t size;
    TT_TRY(tt_host_find_window(shm->room, shm->place, window, &base, &size));
    if (offset > size || nbytes > size - offset)
        return tt_fail(TT_ERR_INTERNAL, "a message of rank %d lies outside its window",
                       shm->link.peer);
    *data = base + offset;
    return TT_OK;
}

static tt_status resolve_slot(struct tt_shm_link *shm, const struct tt_flag *flag,
                              struct tt_message *message)
{
    const uint64_t end = slot_offset(shm, shm->nslots), offset = flag->data.at.offset;
    if (offset > end || message->nbytes > end - offset)
        return tt_fail(TT_ERR_INTERNAL, "a message of rank %d lies outside the slots of its link",
                       shm->link.peer);
    message->data = shm->slots + offset;
    return TT_OK;
}

static tt_status shm_peek(struct tt_link *link, struct tt_message *message)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    const struct tt_flag *flag = flag_of(shm);
    if (atomic_load_explicit(&flag->seq, memory_order_acquire) != shm->next)
        return TT_IN_PROGRESS; /* release: publish */
    message->signature = flag->signature;
    message->nbytes = (size_t)(flag->nbytes_kind >> 8);
    message->is_reference = message->is_borrowed = false;
    switch ((enum tt_message_kind)(flag->nbytes_kind & 255)) {
    case TT_MESSAGE_INLINE:
        message->data = flag->data.bytes;
        break;
    case TT_MESSAGE_SLOT:
    case TT_MESSAGE_SHARED:
        return resolve_slot(shm, flag, message);
    case TT_MESSAGE_POINTER:
        message->data = (const void *)(uintptr_t)flag->data.at.offset;
        message->is_reference = message->is_borrowed = true;
        break;
    case TT_MESSAGE_WINDOW:
        message->is_reference = true;
        return tt_shm_find_in_window(shm, flag->data.at.window, flag->data.at.offset,
                                     message->nbytes, (char **)(uintptr_t)&message->data);
    case TT_MESSAGE_POSTED:
        message->data = shm->posted_to;
        break;
    default: /* TT_MESSAGE_REMOTE */
        message->is_reference = true;
        message->data = NULL;
        break;
    }
    return TT_OK;
}

/* Memory that was to be read by process_vm_readv cannot be; `why`: the system's reason. */
static tt_status fail_fetch(const struct tt_shm_link *shm, const char *why)
{
    char name[128];
    tt_room_name(shm->room->context, shm->link.peer, name, sizeof name);
    /* What it sent may be gone since its call has failed. */
    /* release: tt_fabric_abort */
    if (atomic_load_explicit(&shm->room->segment->header->records[shm->place].state,
                             memory_order_acquire) == TT_RANK_ABORTED)
        return tt_fail(TT_ERR_REMOTE, "%s aborted the communicator", name);
    return tt_fail(TT_ERR_REMOTE, "%s has died, or lets nobody read its memory: %s", name, why);
}

static tt_status shm_fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    struct tt_message message;
    TT_TRY(shm_peek(link, &message));
    if (message.data) {
        memcpy(to, (const char *)message.data + offset, nbytes);
        return TT_OK;
    }
    const tt_status status = tt_cma_read(shm->room->segment->header->records[shm->place].pid,
                                         flag_of(shm)->data.at.offset + offset, to, nbytes);
    if (!status) return TT_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", tt_last_error());
    return fail_fetch(shm, why);
}

static void shm_release(struct tt_link *link)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    const enum tt_message_kind kind = (enum tt_message_kind)(flag_of(shm)->nbytes_kind & 255);
    const bool may_wait = kind == TT_MESSAGE_INLINE || kind == TT_MESSAGE_SHARED;
    if (!may_wait || shm->next % REPORTED_TOGETHER == 0) {
        /* acquire: look_at_taken */
        atomic_store_explicit(&shm->area->taken, shm->next, memory_order_release);
        tt_wake(shm->sleep, shm->place);
    }
    shm->next++;
    shm->room->nreleased++;
}

/* What is published lies in the segment, which outlives this rank. */
static bool shm_flushed(struct tt_link *link)
{
    (void)link;
    return true;
}

/* Messages are looked at where they lie. */
static void shm_expect(struct tt_link *link, void *to, size_t nbytes, uint64_t signature)
{
    (void)link, (void)to, (void)nbytes, (void)signature;
}

static const struct tt_link_ops shm_ops = {
    .slot = shm_slot,
    .publish = shm_publish,
    .publish_direct = shm_publish_direct,
    .reaches = shm_reaches,
    .drained = shm_drained,
    .flushed = shm_flushed,
    .delivered = shm_flushed,
    .expect = shm_expect,
    .posts = &tt_shm_posts,
    .gpus = &tt_no_gpus,
    .peek = shm_peek,
    .fetch = shm_fetch,
    .release = shm_release,
};

void tt_shm_open(struct tt_shm_link *shm, struct tt_host_room *room, int place, int channel,
                 bool outgoing)
{
    const struct tt_segment_header *header = room->segment->header;
    const struct tt_host_member *member = &room->config.members[place];
    const int local = room->config.local;
    struct tt_link_area *area =
        tt_segment_link(room->segment, outgoing ? local : place, outgoing ? place : local, channel);
    const uint32_t nflags = tt_link_flags(header->nslots);
    *shm = (struct tt_shm_link){
        .link = {.ops = &shm_ops,
                 .end = shm,
                 .peer = member->rank,
                 .slot_bytes = header->slot_bytes,
                 .store = &room->store},
        .room = room,
        .place = place,
        .area = area,
        .sleep = &room->sleep,
        .flags = tt_link_area_flags(area),
        .slots = tt_link_area_slots(area, nflags),
        .flag_mask = nflags - 1,
        .nslots = header->nslots,
        .next = 1,
        .same_process = member->same_process,
    };
}
