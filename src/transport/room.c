/* What the rooms share: how a room fails the communicator of the rank that it works for, and the
 * operations of links without posts, and of those that use no memory of GPUs. */
#include "transport/room.h"

#include <stdarg.h>
#include <stdio.h>

tt_status tt_room_fail(const struct tt_room_context *context, int code, const char *format, ...)
{
    char text[TT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return context->events->fail(context->owner, code, text);
}

static void post_nothing(struct tt_link *link, uint64_t ahead, const struct tt_memory *memory,
                         const struct tt_posted *posted)
{
    (void)link, (void)ahead, (void)memory, (void)posted;
}

static bool claim_nothing(struct tt_link *link, struct tt_posted *posted)
{
    (void)link, (void)posted;
    return false;
}

static tt_status withdraw_nothing(struct tt_link *link)
{
    (void)link;
    return TT_OK;
}

const struct tt_post_ops tt_no_posts = {
    .post = post_nothing,
    .claim = claim_nothing,
    .withdraw = withdraw_nothing,
};

static bool show_no_gpu(struct tt_link *link, const void *data, size_t nbytes,
                        struct tt_gpu_place *place)
{
    (void)link, (void)data, (void)nbytes, (void)place;
    return false;
}

static bool write_to_no_gpu(struct tt_link *link, const void *data, size_t nbytes,
                            const struct tt_gpu_place *place, size_t offset)
{
    (void)link, (void)data, (void)nbytes, (void)place, (void)offset;
    return false;
}

static tt_status flush_no_gpu(struct tt_link *link, const void *data)
{
    (void)data;
    return tt_fail(TT_ERR_INTERNAL, "the link with rank %d uses no memory of a GPU in place",
                   link->peer);
}

const struct tt_gpu_ops tt_no_gpus = {
    .show = show_no_gpu,
    .write = write_to_no_gpu,
    .flush = flush_no_gpu,
};
