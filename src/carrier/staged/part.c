/* What a communicator has for staged calls: made when it is made, freed when no CUDA stream uses it
 * any more. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pause.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

enum {
    LEAST_BYTES = 256 << 10, /* of staging memory */
    LEAVE_MS = 1000,         /* how long a rank that leaves waits for the user's CUDA streams */
};

/* Areas grow so that all together are at most twice the last one, however slowly the calls grow. */
tt_status tt_stage_memory(struct tt_staged_part *staged, size_t nbytes, char **memory)
{
    if (!staged->nareas || nbytes > staged->area_bytes) {
        const size_t twice = staged->nareas ? 2 * staged->area_bytes : LEAST_BYTES;
        if (nbytes < twice) nbytes = twice;
        TT_TRY(
            tt_context_allocate_lasting(staged->context, nbytes, &staged->areas[staged->nareas]));
        staged->nareas++;
        staged->area_bytes = nbytes;
        staged->held_bytes += nbytes;
    }
    *memory = staged->areas[staged->nareas - 1];
    return TT_OK;
}

static void free_all(void *part)
{
    struct tt_staged_part *staged = part;
    for (int i = 0; i < staged->nareas; i++)
        tt_context_free_host(staged->context, staged->areas[i]);
    tt_context_free_host(staged->context, staged->words);
    tt_context_stream_destroy(staged->context, staged->stream);
    tt_stream_destroy(staged->thread);
    tt_gpu_watch_put(staged->watch);
    tt_context_event_destroy(staged->context, staged->order);
    tt_context_close(staged->context);
    free(staged);
}

/* CUDA streams do not use it any more. */
static bool has_ended(const void *part)
{
    const struct tt_staged_part *staged = part;
    if (tt_context_is_reset(staged->context)) return true;
    /* release: the stream's store (store of carrier.c) */
    return __atomic_load_n(&staged->words->ended, __ATOMIC_ACQUIRE) == staged->last;
}

static tt_status open_part(struct tt_staged_part *staged, int gpu)
{
    void *words;
    TT_TRY(tt_context_open(gpu, &staged->context));
    TT_TRY(tt_gpu_watch_get(staged->context, &staged->watch));
    TT_TRY(tt_context_stream_create(staged->context, &staged->stream));
    TT_TRY(tt_context_event_create(staged->context, &staged->order));
    TT_TRY(tt_context_allocate_lasting(staged->context, sizeof *staged->words, &words));
    staged->words = words;
    return tt_stream_create(&staged->thread);
}

static bool has_work(const struct tt_context_user *user)
{
    const struct tt_staged_part *staged = (const struct tt_staged_part *)user;
    return atomic_load_explicit(&staged->engine->outstanding, memory_order_acquire);
}

static tt_status connect_part(struct tt_comm_core *comm, const struct tt_carried_config *config,
                              const void *offers, int32_t *amount, bool *must_fail)
{
    (void)config, (void)offers; /* the other ranks see calls of the host */
    *amount = 0;
    *must_fail = false;
    tt_left_free(comm->gpu);
    struct tt_staged_part *staged = calloc(1, sizeof *staged);
    if (!staged) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator's staging memory");
    const tt_status status = open_part(staged, comm->gpu);
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

/* The outputs are there, unless the communicator or the GPU has failed. */
static void drain(struct tt_comm_core *comm)
{
    const struct tt_staged_part *staged = comm->staged;
    struct tt_pause pause = {0};
    while (!has_ended(staged) && !tt_fabric_failure_text(comm->fabric)[0] &&
           !tt_gpu_watch_look(staged->watch))
        tt_pause(&pause);
}

/* Leaves the part, also one that no call has used. Groups that hold calls find the communicator
 * ended. */
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
    tt_left_free(comm->gpu);
    while (!has_ended(staged) && !tt_expired(deadline_ns)) tt_pause(&pause);
    if (has_ended(staged)) {
        free_all(staged);
        return;
    }
    TT_INFO("communicator %s: rank %d leaves its staging memory to CUDA streams that have not come "
            "to the end of its calls",
            comm->name, comm->rank);
    staged->left = (struct tt_left_part){
        .part = staged, .gpu = comm->gpu, .is_unused = has_ended, .free = free_all};
    tt_left_add(&staged->left);
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
                                             .drain = drain,
                                             .close = leave_part,
                                             .leave = leave_part,
                                             .bytes = bytes,
                                             .describe = describe};
