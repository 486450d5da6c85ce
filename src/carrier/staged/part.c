/* What a communicator has for staged calls: made when it is made, freed when no CUDA stream or
 * graph uses it any more. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/copies.h"
#include "carrier/staged/graphs.h"
#include "driver/capture.h"

enum {
    LEAVE_MS = 1000, /* how long a rank that leaves waits for the user's CUDA streams */
};

static void free_all(struct tt_staged_part *staged)
{
    tt_copier_destroy(staged->copier);
    tt_stage_free_blocks(staged);
    if (staged->stream) tt_context_stream_destroy(staged->context, staged->stream);
    if (staged->copies) tt_context_stream_destroy(staged->context, staged->copies);
    if (staged->thread) tt_stream_destroy(staged->thread);
    tt_gpu_watch_put(staged->watch);
    tt_context_event_destroy(staged->context, staged->order);
    tt_context_close(staged->context);
    tt_stage_graphs_destroy(staged->graphs);
    free(staged->messages);
    free(staged);
}

/* Neither CUDA streams nor graphs use it any more. */
static bool may_be_freed(const struct tt_staged_part *staged)
{
    if (tt_context_is_reset(staged->context)) return tt_stage_graphs_are_gone(staged->graphs);
    return tt_stage_all_are_free(staged) && tt_stage_graphs_are_gone(staged->graphs);
}

/* What CUDA streams may still use. */
static struct tt_process_lock left_lock = TT_PROCESS_LOCK;
static struct tt_staged_part *left;
static pid_t left_by; /* this process, or its parent */

/* In a child made by fork they are the parent's: their memory is not there, and a thread that the
 * child does not have may hold their locks. */
static void forget_inherited_locked(void)
{
    if (left_by != getpid()) left = NULL;
    left_by = getpid();
}

static void free_left(void)
{
    tt_process_lock(&left_lock);
    forget_inherited_locked();
    for (struct tt_staged_part **at = &left; *at;) {
        struct tt_staged_part *staged = *at;
        if (!may_be_freed(staged)) {
            at = &staged->next_left;
            continue;
        }
        *at = staged->next_left;
        free_all(staged);
    }
    tt_process_unlock(&left_lock);
}

static tt_status open_part(struct tt_staged_part *staged)
{
    TT_TRY(tt_gpu_watch_get(staged->context, &staged->watch));
    TT_TRY(tt_context_stream_create(staged->context, &staged->stream));
    TT_TRY(tt_context_stream_create(staged->context, &staged->copies));
    TT_TRY(tt_context_event_create(staged->context, &staged->order));
    TT_TRY(tt_copier_create(staged->context, &staged->copier));
    return tt_stream_create(&staged->thread);
}

/* Replays begin without the library. */
static bool has_work(const struct tt_context_user *user)
{
    const struct tt_staged_part *staged = (const struct tt_staged_part *)user;
    return staged->graphs ||
           atomic_load_explicit(&staged->engine->outstanding, memory_order_acquire);
}

static tt_status connect_part(struct tt_comm_core *comm, const struct tt_carried_config *config,
                              const void *offers, int32_t *amount, bool *must_fail)
{
    (void)config, (void)offers; /* the other ranks see calls of the host */
    *amount = 0;
    *must_fail = false;
    free_left();
    struct tt_staged_part *staged = calloc(1, sizeof *staged);
    if (!staged) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator's staging memory");
    const size_t most = (size_t)tt_config_int(TT_CONFIG_STAGE_BYTES);
    staged->nbytes = most > TT_STAGE_LEAST_BYTES ? most : TT_STAGE_LEAST_BYTES;
    staged->own_most = TT_STAGE_WAITING * staged->nbytes;
    tt_status status = tt_context_open(comm->gpu, &staged->context);
    if (status) {
        free(staged);
        return status;
    }
    status = open_part(staged);
    if (status) {
        free_all(staged);
        return status;
    }
    staged->engine = &comm->engine;
    staged->user.has_work = has_work;
    tt_context_list_user(staged->context, &staged->user);
    comm->staged = staged;
    comm->context = staged->context;
    return TT_OK;
}

static void end_turns(struct tt_comm_core *comm)
{
    tt_stage_graphs_end(comm);
}

/* Leaves the part, also one that no call has used. */
static void leave_part(struct tt_comm_core *comm)
{
    struct tt_staged_part *staged = comm->staged;
    if (!staged) return;
    const int64_t deadline_ns = tt_deadline_ns(LEAVE_MS);
    struct tt_pause pause = {0};
    tt_stream_destroy(staged->thread);
    tt_context_unlist_user(staged->context, &staged->user);
    staged->thread = NULL;
    comm->staged = NULL;
    comm->context = NULL;
    tt_stage_drop_held(staged); /* the groups that hold these calls find the communicator ended */
    free_left();
    while (!tt_context_is_reset(staged->context) && !tt_stage_all_are_free(staged) &&
           !tt_expired(deadline_ns))
        tt_pause(&pause);
    if (may_be_freed(staged)) {
        free_all(staged);
        return;
    }
    TT_INFO("communicator %s: rank %d leaves its staging memory to CUDA streams that have not come "
            "to the end of its calls, or to CUDA graphs",
            comm->name, comm->rank);
    tt_process_lock(&left_lock);
    staged->next_left = left;
    left = staged;
    tt_process_unlock(&left_lock);
}

static size_t bytes(const struct tt_comm_core *comm)
{
    return sizeof *comm->staged + comm->staged->held_bytes;
}

static void describe(const struct tt_comm_core *comm, char *text, size_t size)
{
    snprintf(text, size, "through memory of the host: %s", comm->no_kernels);
}

const struct tt_carried tt_carried_staged = {.connect = connect_part,
                                             .close = leave_part,
                                             .end_turns = end_turns,
                                             .leave = leave_part,
                                             .bytes = bytes,
                                             .describe = describe,
                                             .register_memory = tt_staged_register,
                                             .deregister = tt_staged_deregister};
