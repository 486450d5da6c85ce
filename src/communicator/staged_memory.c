/* Staging memory: pinned memory that calls use in turn, freed when no CUDA stream uses it. */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "communicator/staged_graphs.h"
#include "driver/capture.h"

enum {
    LEAST_CLASS = 12,
    LEAST_BYTES = 1 << LEAST_CLASS,
    WAITING = 8,              /* times TUTTI_STAGE_BYTES: memory that calls have of their own */
    SHARED_BYTES = 256 << 10, /* stages that are smaller lie together in a block of this size */
    WORDS_BYTES = 64,         /* a line for the words of each stage */
    LEAVE_MS = 1000,          /* how long a rank that leaves waits for the user's CUDA streams */
};

_Static_assert(sizeof(struct tt_stage_words) <= WORDS_BYTES, "the words of a stage fit their line");

/* One allocation of pinned memory: the words of the stages, then their memory. */
struct tt_stage_block {
    void *memory;
    struct tt_stage_block *next;
    int nstages;
    struct tt_stage stages[];
};

/* ---- Stages --------------------------------------------------------------------------------- */

/* Whether the stream has ended its part of the last use. */
static bool has_ended(const struct tt_stage *stage)
{
    /* release: the stream's store (tt_comm_staged_launch) */
    return !stage->failed &&
           __atomic_load_n(&stage->words->ended, __ATOMIC_ACQUIRE) == stage->number;
}

/* Copies that who has run the call has queued: a failed call may not have waited for all. */
static bool is_copied(const struct tt_stage *stage)
{
    const struct tt_stage_words *words = stage->words;
    return __atomic_load_n(&words->in, __ATOMIC_ACQUIRE) == (uint32_t)stage->portions.in &&
           __atomic_load_n(&words->out, __ATOMIC_ACQUIRE) == (uint32_t)stage->portions.out;
}

/* No stream uses its memory; a CUDA graph may use its words. */
static bool is_free(const struct tt_stage *stage)
{
    return !stage->is_used || ((stage->is_kept || has_ended(stage)) && is_copied(stage));
}

static int class_of(size_t nbytes)
{
    int class = LEAST_CLASS;
    while (class < TT_STAGE_CLASSES && (size_t)1 << class < nbytes) class ++;
    return class;
}

/* The first of the blocks: with n stages of nbytes each; without stages, of nbytes. */
static tt_status make_block(struct tt_comm_staged *staged, size_t n, size_t nbytes)
{
    const size_t size = n ? n * (nbytes + WORDS_BYTES) : nbytes;
    struct tt_stage_block *block = calloc(1, sizeof *block + n * sizeof block->stages[0]);
    if (!block) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu entries of staging memory", n);
    const tt_status status = tt_context_allocate_host(staged->context, size, &block->memory);
    if (status) {
        free(block);
        return status;
    }
    block->nstages = (int)n;
    block->next = staged->blocks;
    staged->blocks = block;
    staged->held_bytes += size + sizeof *block + n * sizeof block->stages[0];
    return TT_OK;
}

static size_t bytes_of(int class)
{
    return class ? (size_t)1 << class : 0;
}

/* Stages that a block of the class has: together the shared bytes, or one. */
static size_t number_of(int class)
{
    const size_t nbytes = class ? bytes_of(class) : LEAST_BYTES;
    return nbytes < SHARED_BYTES ? SHARED_BYTES / nbytes : 1;
}

static tt_status make_stages(struct tt_comm_staged *staged, int class)
{
    const size_t n = number_of(class), nbytes = bytes_of(class);
    TT_TRY(make_block(staged, n, nbytes));
    struct tt_stage_block *block = staged->blocks;
    char *words = block->memory, *memory = words + n * WORDS_BYTES;
    for (size_t i = 0; i < n; i++) {
        struct tt_stage *stage = &block->stages[i];
        stage->words = (struct tt_stage_words *)(void *)(words + i * WORDS_BYTES);
        stage->memory = nbytes ? memory + i * nbytes : NULL;
        stage->next = staged->stages[class];
        staged->stages[class] = stage;
    }
    return TT_OK;
}

static struct tt_stage *find_free(const struct tt_comm_staged *staged, int class)
{
    struct tt_stage *stage = staged->stages[class];
    while (stage && (stage->is_kept || !is_free(stage))) stage = stage->next;
    return stage;
}

/* Of the class, or without memory. */
static tt_status find(struct tt_comm_staged *staged, int class, struct tt_stage **out)
{
    const size_t more = number_of(class) * bytes_of(class);
    if (!(*out = find_free(staged, class)) && class &&
        staged->own_bytes + more > staged->own_most) {
        class = 0;
        *out = find_free(staged, class);
    }
    if (*out) return TT_OK;
    TT_TRY(make_stages(staged, class));
    if (class) staged->own_bytes += more;
    *out = staged->stages[class];
    return TT_OK;
}

tt_status tt_stage_take(struct tt_comm_staged *staged, size_t nbytes, int npieces,
                        struct tt_stage **out)
{
    struct tt_stage *stage;
    TT_TRY(find(staged, nbytes <= staged->nbytes ? class_of(nbytes) : 0, &stage));
    if (npieces > stage->room) {
        struct tt_stage_piece *pieces = malloc((size_t)npieces * sizeof *pieces);
        if (!pieces) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d pieces", npieces);
        free(stage->pieces);
        stage->pieces = pieces;
        stage->room = npieces;
    }
    stage->is_used = true;
    stage->number++;
    stage->nin = stage->nout = 0;
    __atomic_store_n(&stage->words->in, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->out, 0, __ATOMIC_RELAXED);
    *out = stage;
    return TT_OK;
}

tt_status tt_stage_share(struct tt_comm_staged *staged, struct tt_stage_shared *shared,
                         size_t nbytes)
{
    if (nbytes <= shared->nbytes) return TT_OK;
    /* Calls that wait keep the one before. It grows to twice its size at least, so that all of them
     * together are at most twice the last one, however slowly the calls grow. */
    if (nbytes < 2 * shared->nbytes) nbytes = 2 * shared->nbytes;
    TT_TRY(make_block(staged, 0, nbytes));
    *shared = (struct tt_stage_shared){staged->blocks->memory, nbytes};
    return TT_OK;
}

tt_status tt_stage_messages(struct tt_comm_staged *staged, int nranks,
                            struct tt_stage_shared **messages)
{
    const size_t n = 2 * (size_t)nranks;
    if (!staged->messages) {
        staged->messages = calloc(n, sizeof *staged->messages);
        if (!staged->messages)
            return tt_fail(TT_ERR_SYSTEM, "out of memory for messages with %d ranks", nranks);
        staged->held_bytes += n * sizeof *staged->messages;
    }
    *messages = staged->messages;
    return TT_OK;
}

size_t tt_comm_staged_bytes(const struct tt_comm_staged *staged)
{
    return staged ? sizeof *staged + staged->held_bytes : 0;
}

void tt_stage_drop(struct tt_stage *stage)
{
    if (stage) stage->is_used = false;
}

void tt_stage_keep(struct tt_stage *stage)
{
    __atomic_store_n(&stage->words->ready, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->closed, 0, __ATOMIC_RELAXED);
    stage->is_kept = true;
}

void tt_stage_release(struct tt_stage *stage)
{
    __atomic_store_n(&stage->words->ready, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->ended, stage->number, __ATOMIC_RELAXED);
    stage->is_kept = false; /* used until copies that a failure has left have been made */
}

/* ---- Creation and end ----------------------------------------------------------------------- */

static void free_blocks(struct tt_comm_staged *staged)
{
    while (staged->blocks) {
        struct tt_stage_block *block = staged->blocks;
        staged->blocks = block->next;
        for (int i = 0; i < block->nstages; i++) free(block->stages[i].pieces);
        tt_context_free_host(staged->context, block->memory);
        free(block);
    }
}

static void free_all(struct tt_comm_staged *staged)
{
    free_blocks(staged);
    if (staged->stream) tt_context_stream_destroy(staged->context, staged->stream);
    if (staged->copies) tt_context_stream_destroy(staged->context, staged->copies);
    tt_context_event_destroy(staged->context, staged->order);
    tt_context_close(staged->context);
    tt_stage_graphs_destroy(staged->graphs);
    free(staged->messages);
    free(staged);
}

static bool all_are_free(const struct tt_comm_staged *staged)
{
    for (const struct tt_stage_block *block = staged->blocks; block; block = block->next)
        for (int i = 0; i < block->nstages; i++)
            if (!is_free(&block->stages[i])) return false;
    return true;
}

/* Neither CUDA streams nor graphs use it any more. */
static bool may_be_freed(const struct tt_comm_staged *staged)
{
    return all_are_free(staged) && tt_stage_graphs_are_gone(staged->graphs);
}

/* What CUDA streams may still use. */
static struct tt_process_lock left_lock = TT_PROCESS_LOCK;
static struct tt_comm_staged *left;
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
    for (struct tt_comm_staged **at = &left; *at;) {
        struct tt_comm_staged *staged = *at;
        if (!may_be_freed(staged)) {
            at = &staged->next_left;
            continue;
        }
        *at = staged->next_left;
        free_all(staged);
    }
    tt_process_unlock(&left_lock);
}

tt_status tt_comm_staged_open(tuttiComm_t comm)
{
    free_left();
    struct tt_comm_staged *staged = calloc(1, sizeof *staged);
    if (!staged) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator's staging memory");
    const size_t most = (size_t)tt_config_int(TT_CONFIG_STAGE_BYTES);
    staged->nbytes = most > LEAST_BYTES ? most : LEAST_BYTES;
    staged->own_most = WAITING * staged->nbytes;
    tt_status status = tt_context_open(comm->gpu, &staged->context);
    if (status) {
        free(staged);
        return status;
    }
    status = tt_context_stream_create(staged->context, &staged->stream);
    if (!status) status = tt_context_stream_create(staged->context, &staged->copies);
    if (!status) status = tt_context_event_create(staged->context, &staged->order);
    if (!status) status = tt_stream_create(&staged->attendant);
    if (status) {
        free_all(staged);
        return status;
    }
    comm->staged = staged;
    return TT_OK;
}

void tt_comm_staged_free(tuttiComm_t comm)
{
    struct tt_comm_staged *staged = comm->staged;
    if (!staged) return;
    const int64_t deadline_ns = tt_deadline_ns(LEAVE_MS);
    tt_stream_destroy(staged->attendant);
    staged->attendant = NULL;
    comm->staged = NULL;
    free_left();
    while (!all_are_free(staged) && !tt_expired(deadline_ns)) {
        sched_yield();
        usleep(50);
    }
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
