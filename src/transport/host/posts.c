/* Posts: the receiver of a link says where its sender may write a message, and the sender claims
 * that memory. */
#include "base/prefetch.h"
#include "transport/host/host.h"

static void shm_post(struct tt_link *link, uint64_t ahead, const struct tt_memory *memory,
                     const struct tt_posted *posted)
{
    void *to = posted->to;
    struct tt_shm_link *shm = tt_shm_of(link);
    struct tt_post *post = &shm->area->post;
    if (shm->same_process) {
        post->offset = (uint64_t)(uintptr_t)to;
    } else if (tt_host_is_known(shm->room, shm->place, memory, to, posted->nbytes)) {
        post->window = memory->window;
        post->offset = (uint64_t)((char *)to - memory->base);
    } else {
        return;
    }
    post->nbytes = posted->nbytes;
    post->signature = posted->signature;
    post->nontemporal = posted->nontemporal;
    shm->posted = shm->next + ahead;
    shm->posted_to = to;
    atomic_store_explicit(&post->state, shm->posted << 2 | TT_POST_POSTED,
                          memory_order_release); /* acquire: shm_claim */
}

/* The memory of the post, which is of the next message. NULL: it cannot be written from here. */
static char *posted_memory(struct tt_shm_link *shm)
{
    const struct tt_post *post = &shm->area->post;
    char *data;
    if (shm->same_process) return (char *)(uintptr_t)post->offset;
    if (tt_shm_find_in_window(shm, post->window, post->offset, post->nbytes, &data)) return NULL;
    return tt_window_map_writable(&shm->room->windows[shm->place], post->window) ? data : NULL;
}

static bool shm_claim(struct tt_link *link, struct tt_posted *posted)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    struct tt_post *post = &shm->area->post;
    uint64_t state = shm->next << 2 | TT_POST_POSTED;
    /* The cache line of the post comes once, not to be read and again to be claimed. */
    tt_prefetch_for_writing(post);
    /* release: shm_post */
    if (atomic_load_explicit(&post->state, memory_order_acquire) != state) return false;
    if (post->nbytes != posted->nbytes || post->signature != posted->signature) return false;
    posted->to = posted_memory(shm);
    posted->nontemporal = post->nontemporal != 0;
    shm->claimed = posted->to && atomic_compare_exchange_strong_explicit(
                                     &post->state, &state, shm->next << 2 | TT_POST_CLAIMED,
                                     memory_order_acq_rel, memory_order_relaxed);
    return shm->claimed;
}

/* Ends the receiver's post. The message may have been published since. */
static tt_status withdraw_post(struct tt_shm_link *shm)
{
    struct tt_post *post = &shm->area->post;
    uint64_t state = shm->posted << 2 | TT_POST_POSTED;
    const struct tt_flag *flag = &shm->flags[(uint32_t)(shm->posted - 1) & shm->flag_mask];
    const bool unclaimed = atomic_compare_exchange_strong_explicit(
        &post->state, &state, shm->posted << 2 | TT_POST_NONE, memory_order_acq_rel,
        memory_order_acquire); /* release: shm_claim, shm_withdraw */
    if (!unclaimed && state == (shm->posted << 2 | TT_POST_CLAIMED) &&
        /* release: publish of shm.c */
        atomic_load_explicit(&flag->seq, memory_order_acquire) < shm->posted)
        return TT_IN_PROGRESS;
    shm->posted = 0;
    return TT_OK;
}

static tt_status shm_withdraw(struct tt_link *link)
{
    struct tt_shm_link *shm = tt_shm_of(link);
    if (shm->claimed)
        atomic_store_explicit(&shm->area->post.state, shm->next << 2 | TT_POST_GIVEN_UP,
                              memory_order_release); /* acquire: withdraw_post */
    shm->claimed = false;
    return shm->posted ? withdraw_post(shm) : TT_OK;
}

const struct tt_post_ops tt_shm_posts = {
    .post = shm_post,
    .claim = shm_claim,
    .withdraw = shm_withdraw,
};
