/* The links between two ranks of a host. */
#include "transport/host/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/private_fd.h"
#include "transport/host/cma.h"

/* Messages of at most so many bytes share slots, and so many at most in one. */
enum { SHARED_BYTES = 512, MOST_SHARING = 8 };

/* The receiver reports messages that lie in their flags, and all but the first in a slot that is
 * shared, in groups of so many, so that `taken` goes to the sender that much less often. Others are
 * reported at once: the sender waits for them, or for the slot. A sender that waits for a flag or a
 * slot never waits for an unreported message: all flags but a group are reported, and all slots but
 * the last. */
enum { REPORTED_TOGETHER = 8 };
_Static_assert(REPORTED_TOGETHER < 32, "all flags but a group are reported");

static struct tt_shm_link *shm_of(struct tt_link *link)
{
    return link->end;
}

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
    const uint64_t taken = atomic_load_explicit(&shm->area->taken, memory_order_acquire); /* A4 */
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

/* Short messages share a slot, so that a sender can be as many of them ahead as there are flags. */
static bool shares_slot(const struct tt_shm_link *shm, size_t nbytes)
{
    return nbytes <= SHARED_BYTES && shm->nsharing > 0 && shm->nsharing < MOST_SHARING &&
           shm->shared_end + nbytes <= slot_offset(shm, shm->last_slot) + shm->link.slot_bytes;
}

static void *shm_slot(struct tt_link *link, size_t nbytes)
{
    struct tt_shm_link *shm = shm_of(link);
    if (!has_flag(shm)) return NULL;
    if (nbytes <= TT_INLINE_BYTES) return flag_of(shm)->data.bytes;
    if (shares_slot(shm, nbytes)) return shm->slots + shm->shared_end;
    return has_slot(shm) ? shm->slots + slot_offset(shm, shm->slot) : NULL;
}

/* A rank that only sends fetches the line of its next flag while it does something else. The
 * receiver of one that waits for answers looks at that line already. */
static void prefetch_flag(struct tt_shm_link *shm)
{
    const struct tt_flag *flag = flag_of(shm);
    const uint64_t released = shm->room->nreleased;
    const bool waits = shm->released != released;
    shm->released = released;
    if (waits) return;
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*flag));
#else
    __builtin_prefetch(flag, 1);
#endif
}

static void publish(struct tt_shm_link *shm, size_t nbytes, uint64_t signature,
                    enum tt_message_kind kind)
{
    struct tt_flag *flag = flag_of(shm);
    flag->signature = signature;
    flag->nbytes_kind = (uint64_t)nbytes << 8 | kind;
    atomic_store_explicit(&flag->seq, shm->next, memory_order_release); /* R3 */
    if (kind != TT_MESSAGE_INLINE && kind != TT_MESSAGE_SHARED) shm->reported = shm->next;
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
    shm->nsharing = nbytes <= SHARED_BYTES ? 1 : MOST_SHARING;
    shm->slots_used++;
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
    shm->shared_end += (nbytes + TT_LINE - 1) / TT_LINE * TT_LINE;
    return shares ? TT_MESSAGE_SHARED : TT_MESSAGE_SLOT;
}

static void shm_publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct tt_shm_link *shm = shm_of(link);
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

/* One copy by the kernel against two through slots that stay in the cache: it pays for long
 * messages. */
static bool worth_a_system_call(const struct tt_shm_link *shm, size_t nbytes)
{
    return shm->room->config.force_cma || nbytes >= TT_CMA_MIN_BYTES;
}

static bool shm_reaches(struct tt_link *link, const void *data, size_t nbytes)
{
    struct tt_shm_link *shm = shm_of(link);
    struct tt_window window;
    if (shm->same_process) return true;
    if (shm->room->config.allow_window && tt_window_find(data, nbytes, &window)) return true;
    return tt_host_may_read(shm->room, shm->place) && worth_a_system_call(shm, nbytes);
}

static bool shm_publish_direct(struct tt_link *link, const void *data, size_t nbytes,
                               uint64_t signature)
{
    struct tt_shm_link *shm = shm_of(link);
    struct tt_window window;
    if (!has_flag(shm)) return false;
    enum tt_message_kind kind;
    uint64_t id = 0, offset = (uint64_t)(uintptr_t)data;
    if (shm->same_process) {
        kind = TT_MESSAGE_POINTER;
    } else if (shm->room->config.allow_window && tt_window_find(data, nbytes, &window) &&
               tt_host_introduce(shm->room, shm->place, &window)) {
        kind = TT_MESSAGE_WINDOW;
        id = window.id;
        offset = (uint64_t)((const char *)data - window.base);
    } else if (tt_host_may_read(shm->room, shm->place) && worth_a_system_call(shm, nbytes)) {
        kind = TT_MESSAGE_REMOTE;
    } else {
        return false;
    }
    struct tt_flag *flag = flag_of(shm);
    flag->data.at.window = id;
    flag->data.at.offset = offset;
    tt_count_more(shm->room->context->nbytes_direct, nbytes);
    publish(shm, nbytes, signature, kind);
    return true;
}

/* A link without a flag for one more message is not drained: what a sender waits for when the
 * receiver has left is then known to be missing. */
static bool shm_drained(struct tt_link *link)
{
    struct tt_shm_link *shm = shm_of(link);
    if (!shm->area) return true;
    if (shm->taken < shm->reported) look_at_taken(shm);
    return shm->taken >= shm->reported && has_flag(shm);
}

/* Takes the descriptors that have come and maps them, until window `id` is among them. */
static tt_status await_window(struct tt_host_room *room, uint64_t id, char **base, size_t *nbytes)
{
    while (!(*base = tt_window_map_find(&room->windows, id, nbytes))) {
        struct tt_fd_note note;
        int fd;
        tt_status status = tt_fdpass_receive(room->fd_socket, room->config.secret, &note, &fd);
        if (status == TT_IN_PROGRESS)
            return tt_fail(TT_ERR_INTERNAL, "window %#llx was used before it was passed",
                           (unsigned long long)id);
        if (status) return status;
        if (note.kind == TT_FD_WINDOW && !tt_window_map_find(&room->windows, note.id, nbytes))
            status = tt_window_map_add(&room->windows, note.id, fd, note.nbytes);
        tt_private_fd_close(fd);
        for (int i = 0; note.kind == TT_FD_WINDOW && i < TT_FD_GONE_MAX; i++)
            if (note.gone[i]) tt_window_map_drop(&room->windows, note.gone[i]);
        if (status) return status;
    }
    return TT_OK;
}

/* Where [offset, offset + nbytes) of a peer's window is mapped. */
static tt_status find_in_window(struct tt_shm_link *shm, uint64_t id, uint64_t offset,
                                size_t nbytes, char **data)
{
    char *base;
    size_t size;
    TT_TRY(await_window(shm->room, id, &base, &size));
    if (offset > size || nbytes > size - offset)
        return tt_fail(TT_ERR_INTERNAL, "a message of rank %d lies outside its window",
                       shm->link.peer);
    *data = base + offset;
    return TT_OK;
}

/* ---- Posts ---------------------------------------------------------------------------------- */

static void shm_post(struct tt_link *link, uint64_t ahead, void *to, size_t nbytes,
                     uint64_t signature)
{
    struct tt_shm_link *shm = shm_of(link);
    struct tt_post *post = &shm->area->post;
    struct tt_window window;
    if (shm->same_process) {
        post->window = 0;
        post->offset = (uint64_t)(uintptr_t)to;
    } else if (shm->room->config.allow_window && tt_window_find(to, nbytes, &window) &&
               tt_host_introduce(shm->room, shm->place, &window)) {
        post->window = window.id;
        post->offset = (uint64_t)((char *)to - window.base);
    } else {
        return;
    }
    post->nbytes = nbytes;
    post->signature = signature;
    shm->posted = shm->next + ahead;
    shm->posted_to = to;
    atomic_store_explicit(&post->state, shm->posted << 2 | TT_POST_POSTED,
                          memory_order_release); /* R11 */
}

/* The memory of the post, which is of the next message. NULL: it cannot be written from here. */
static char *posted_memory(struct tt_shm_link *shm)
{
    const struct tt_post *post = &shm->area->post;
    char *data;
    if (shm->same_process) return (char *)(uintptr_t)post->offset;
    if (find_in_window(shm, post->window, post->offset, post->nbytes, &data)) return NULL;
    return tt_window_map_writable(&shm->room->windows, post->window) ? data : NULL;
}

static void *shm_claim(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct tt_shm_link *shm = shm_of(link);
    struct tt_post *post = &shm->area->post;
    uint64_t state = shm->next << 2 | TT_POST_POSTED;
    if (atomic_load_explicit(&post->state, memory_order_acquire) != state) return NULL; /* A11 */
    if (post->nbytes != nbytes || post->signature != signature) return NULL;
    char *to = posted_memory(shm);
    shm->claimed = to && atomic_compare_exchange_strong_explicit(
                             &post->state, &state, shm->next << 2 | TT_POST_CLAIMED,
                             memory_order_acq_rel, memory_order_relaxed);
    return shm->claimed ? to : NULL;
}

/* Ends the receiver's post. The message may have been published since. */
static tt_status withdraw_post(struct tt_shm_link *shm)
{
    struct tt_post *post = &shm->area->post;
    uint64_t state = shm->posted << 2 | TT_POST_POSTED;
    const struct tt_flag *flag = &shm->flags[(uint32_t)(shm->posted - 1) & shm->flag_mask];
    const bool unclaimed = atomic_compare_exchange_strong_explicit(
        &post->state, &state, shm->posted << 2 | TT_POST_NONE, memory_order_acq_rel,
        memory_order_acquire); /* A11 */
    if (!unclaimed && state == (shm->posted << 2 | TT_POST_CLAIMED) &&
        atomic_load_explicit(&flag->seq, memory_order_acquire) < shm->posted) /* A3 */
        return TT_IN_PROGRESS;
    shm->posted = 0;
    return TT_OK;
}

static tt_status shm_withdraw(struct tt_link *link)
{
    struct tt_shm_link *shm = shm_of(link);
    if (shm->claimed)
        atomic_store_explicit(&shm->area->post.state, shm->next << 2 | TT_POST_GIVEN_UP,
                              memory_order_release); /* R11 */
    shm->claimed = false;
    return shm->posted ? withdraw_post(shm) : TT_OK;
}

/* ---- Receiving ------------------------------------------------------------------------------ */

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
    struct tt_shm_link *shm = shm_of(link);
    const struct tt_flag *flag = flag_of(shm);
    if (atomic_load_explicit(&flag->seq, memory_order_acquire) != shm->next)
        return TT_IN_PROGRESS; /* A3 */
    message->signature = flag->signature;
    message->nbytes = (size_t)(flag->nbytes_kind >> 8);
    switch ((enum tt_message_kind)(flag->nbytes_kind & 255)) {
    case TT_MESSAGE_INLINE:
        message->data = flag->data.bytes;
        break;
    case TT_MESSAGE_SLOT:
    case TT_MESSAGE_SHARED:
        return resolve_slot(shm, flag, message);
    case TT_MESSAGE_POINTER:
        message->data = (const void *)(uintptr_t)flag->data.at.offset;
        break;
    case TT_MESSAGE_WINDOW:
        return find_in_window(shm, flag->data.at.window, flag->data.at.offset, message->nbytes,
                              (char **)(uintptr_t)&message->data);
    case TT_MESSAGE_POSTED:
        message->data = shm->posted_to;
        break;
    default: /* TT_MESSAGE_REMOTE */
        message->data = NULL;
        break;
    }
    return TT_OK;
}

static tt_status shm_fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    struct tt_shm_link *shm = shm_of(link);
    struct tt_message message;
    TT_TRY(shm_peek(link, &message));
    if (message.data) {
        memcpy(to, (const char *)message.data + offset, nbytes);
        return TT_OK;
    }
    const tt_status status = tt_cma_read(shm->room->segment->header->records[shm->place].pid,
                                         flag_of(shm)->data.at.offset + offset, to, nbytes);
    if (!status) return TT_OK;
    char name[128], why[256];
    tt_room_name(shm->room->context, link->peer, name, sizeof name);
    snprintf(why, sizeof why, "%s", tt_last_error());
    return tt_fail(TT_ERR_REMOTE, "%s has died, or lets nobody read its memory: %s", name, why);
}

static void shm_release(struct tt_link *link)
{
    struct tt_shm_link *shm = shm_of(link);
    const enum tt_message_kind kind = (enum tt_message_kind)(flag_of(shm)->nbytes_kind & 255);
    const bool may_wait = kind == TT_MESSAGE_INLINE || kind == TT_MESSAGE_SHARED;
    if (!may_wait || shm->next % REPORTED_TOGETHER == 0)
        atomic_store_explicit(&shm->area->taken, shm->next, memory_order_release); /* R4 */
    shm->next++;
    shm->room->nreleased++;
}

/* What is published lies in the segment, which outlives this rank's calls. */
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
    .expect = shm_expect,
    .post = shm_post,
    .claim = shm_claim,
    .withdraw = shm_withdraw,
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
                 .slot_bytes = header->slot_bytes},
        .room = room,
        .place = place,
        .area = area,
        .flags = tt_link_area_flags(area),
        .slots = tt_link_area_slots(area, nflags),
        .flag_mask = nflags - 1,
        .nslots = header->nslots,
        .next = 1,
        .same_process = member->same_process,
    };
}
