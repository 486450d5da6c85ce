/* What a communicator has for staged calls: made when it is made, freed when no CUDA stream uses it
 * any more. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"

enum {
    LEAST_BYTES = 256 << 10, /* of staging memory */
    LEAVE_MS = 1000,         /* how long a rank that leaves waits for the user's CUDA streams */
};

/* ---- Staging memory ------------------------------------------------------------------------- */

/* Pinned memory, which begins with this. Areas that have become too small stay: calls may use
 * them. */
struct tt_stage_area {
    struct tt_stage_area *next;
    size_t nbytes; /* with this */
};

/* At least twice as large as the one before, so that all together are at most twice the last one,
 * however slowly the calls grow. */
static tt_status add_area(struct tt_staged_part *staged, size_t nbytes)
{
    const size_t twice = staged->areas ? 2 * staged->areas->nbytes : LEAST_BYTES;
    void *memory;
    nbytes = nbytes > twice ? nbytes : twice;
    TT_TRY(tt_context_allocate_lasting(staged->context, nbytes, &memory));
    struct tt_stage_area *area = memory;
    *area = (struct tt_stage_area){staged->areas, nbytes};
    staged->areas = area;
    staged->held_bytes += nbytes;
    return TT_OK;
}

tt_status tt_stage_memory(struct tt_staged_part *staged, size_t nbytes, char **memory)
{
    nbytes = (nbytes + TT_STAGE_ALIGNMENT - 1) / TT_STAGE_ALIGNMENT * TT_STAGE_ALIGNMENT;
    if (!staged->areas || nbytes > staged->areas->nbytes - staged->used) {
        TT_TRY(add_area(staged, nbytes + TT_STAGE_ALIGNMENT));
        staged->used = TT_STAGE_ALIGNMENT;
    }
    *memory = (char *)staged->areas + staged->used;
    staged->used += nbytes;
    return TT_OK;
}

/* ---- The part ------------------------------------------------------------------------------- */

static void free_all(struct tt_staged_part *staged)
{
    while (staged->areas) {
        struct tt_stage_area *area = staged->areas;
        staged->areas = area->next;
        tt_context_free_host(staged->context, area);
    }
    tt_context_free_host(staged->context, staged->words);
    if (staged->stream) tt_context_stream_destroy(staged->context, staged->stream);
    if (staged->thread) tt_stream_destroy(staged->thread);
    tt_gpu_watch_put(staged->watch);
    tt_context_event_destroy(staged->context, staged->order);
    tt_context_close(staged->context);
    free(staged);
}

/* CUDA streams do not use it any more. */
static bool has_ended(const struct tt_staged_part *staged)
{
    if (tt_context_is_reset(staged->context)) return true;
    /* release: the stream's store (store of carrier.c) */
    return __atomic_load_n(&staged->words->ended, __ATOMIC_ACQUIRE) == staged->last;
}

/* What CUDA streams may still use. */
static struct tt_process_lock left_lock = TT_PROCESS_LOCK;
static struct tt_staged_part *left;
static pid_t left_by; /* this process, or its parent */

static void free_left(void)
{
    tt_process_lock(&left_lock);
    /* In a child made by fork they are the parent's: their memory is not there, and a thread that
     * the child does not have may hold their locks. */
    if (left_by != getpid()) left = NULL;
    left_by = getpid();
    for (struct tt_staged_part **at = &left; *at;) {
        struct tt_staged_part *staged = *at;
        if (!has_ended(staged)) {
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
    void *words;
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
    free_left();
    struct tt_staged_part *staged = calloc(1, sizeof *staged);
    if (!staged) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator's staging memory");
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

/* The outputs are there, unless the communicator or the GPU has failed. */
static void drain(struct tt_comm_core *comm)
{
    const struct tt_staged_part *staged = comm->staged;
    struct tt_pause pause = {0};
    while (!has_ended(staged) && !tt_fabric_failure_text(comm->fabric)[0]) {
        const tt_status status = tt_context_stream_query(staged->context, staged->stream);
        if (status && status != TT_IN_PROGRESS) return;
        tt_pause(&pause);
    }
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
    free_left();
    while (!has_ended(staged) && !tt_expired(deadline_ns)) tt_pause(&pause);
    if (has_ended(staged)) {
        free_all(staged);
        return;
    }
    TT_INFO("communicator %s: rank %d leaves its staging memory to CUDA streams that have not come "
            "to the end of its calls",
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
                                             .drain = drain,
                                             .close = leave_part,
                                             .leave = leave_part,
                                             .bytes = bytes,
                                             .describe = describe};
