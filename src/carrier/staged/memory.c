/* Staging memory: pinned memory that calls use in turn. */
#include <stdlib.h>

#include "carrier/staged/staged.h"

enum {
    LEAST_CLASS = 12,
    SHARED_BYTES = 256 << 10, /* stages that are smaller lie together in a block of this size */
    WORDS_BYTES = 64,         /* a line for the words of each stage */
};

_Static_assert(1 << LEAST_CLASS == TT_STAGE_LEAST_BYTES, "the least class has the least bytes");
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
    const struct tt_stage_words *words = stage->words;
    const bool is_left = stage->is_left && !stage->failed;
    /* release: the stream's last store (tell_ready of streams.c, tt_staged_tell_ended) */
    return __atomic_load_n(is_left ? &words->ready : &words->ended, __ATOMIC_ACQUIRE) ==
           stage->number;
}

/* Copies of portions: a failed call may not have waited for all. */
static bool is_copied(const struct tt_stage *stage)
{
    /* release: serve of copies.c */
    if (atomic_load_explicit(&stage->portions.is_busy, memory_order_acquire)) return false;
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
static tt_status make_block(struct tt_staged_part *staged, size_t n, size_t nbytes)
{
    const size_t size = n ? n * (nbytes + WORDS_BYTES) : nbytes;
    struct tt_stage_block *block = calloc(1, sizeof *block + n * sizeof block->stages[0]);
    if (!block) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu entries of staging memory", n);
    const tt_status status = tt_context_allocate_lasting(staged->context, size, &block->memory);
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
    const size_t nbytes = class ? bytes_of(class) : TT_STAGE_LEAST_BYTES;
    return nbytes < SHARED_BYTES ? SHARED_BYTES / nbytes : 1;
}

static tt_status make_stages(struct tt_staged_part *staged, int class)
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

static struct tt_stage *find_free(const struct tt_staged_part *staged, int class)
{
    struct tt_stage *stage = staged->stages[class];
    while (stage && (stage->is_kept || !is_free(stage))) stage = stage->next;
    return stage;
}

/* Of memory that calls have of their own: what those use that have not ended. */
static size_t used_bytes(const struct tt_staged_part *staged)
{
    size_t nbytes = 0;
    for (int class = LEAST_CLASS; class < TT_STAGE_CLASSES; class ++)
        for (const struct tt_stage *stage = staged->stages[class]; stage; stage = stage->next)
            if (!is_free(stage)) nbytes += bytes_of(class);
    return nbytes;
}

static tt_status find(struct tt_staged_part *staged, enum tt_stage_kind kind, int class,
                      bool may_wait, struct tt_stage **out)
{
    if (!(*out = find_free(staged, class)) && class) {
        const size_t used = used_bytes(staged);
        const bool is_full = used && used + bytes_of(class) > staged->own_most;
        if (is_full && kind == TT_STAGE_OWN && may_wait) return TT_IN_PROGRESS;
        if (is_full && kind == TT_STAGE_IF_ROOM) *out = find_free(staged, class = 0);
    }
    if (*out) return TT_OK;
    TT_TRY(make_stages(staged, class));
    *out = staged->stages[class];
    return TT_OK;
}

tt_status tt_stage_take(struct tt_staged_part *staged, enum tt_stage_kind kind, size_t nbytes,
                        bool may_wait, int npieces, struct tt_stage **out)
{
    const int class = kind == TT_STAGE_SHARED ? 0 : class_of(nbytes);
    struct tt_stage *stage;
    if (class >= TT_STAGE_CLASSES)
        return tt_fail(TT_ERR_SYSTEM, "out of pinned memory: a call needs %zu bytes", nbytes);
    const tt_status status = find(staged, kind, class, may_wait, &stage);
    if (status) return status;
    if (npieces > stage->room) {
        struct tt_stage_piece *pieces = malloc((size_t)npieces * sizeof *pieces);
        if (!pieces) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d pieces", npieces);
        free(stage->pieces);
        stage->pieces = pieces;
        stage->room = npieces;
    }
    stage->is_used = stage->is_held = true;
    stage->number++;
    stage->nin = stage->nout = 0;
    __atomic_store_n(&stage->words->in, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->out, 0, __ATOMIC_RELAXED);
    *out = stage;
    return TT_OK;
}

tt_status tt_stage_share(struct tt_staged_part *staged, struct tt_stage_shared *shared,
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

tt_status tt_stage_messages(struct tt_staged_part *staged, int nranks,
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

void tt_stage_drop(struct tt_stage *stage)
{
    if (stage) stage->is_used = stage->is_held = false;
}

void tt_stage_keep(struct tt_stage *stage)
{
    __atomic_store_n(&stage->words->ready, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->closed, 0, __ATOMIC_RELAXED);
    stage->is_kept = true;
    stage->is_held = false;
}

void tt_stage_drop_held(struct tt_staged_part *staged)
{
    for (struct tt_stage_block *block = staged->blocks; block; block = block->next)
        for (int i = 0; i < block->nstages; i++)
            if (block->stages[i].is_held) tt_stage_drop(&block->stages[i]);
}

void tt_stage_release(struct tt_stage *stage)
{
    __atomic_store_n(&stage->words->ready, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stage->words->ended, stage->number, __ATOMIC_RELAXED);
    stage->is_kept = false; /* used until copies that a failure has left have been made */
}

bool tt_stage_all_are_free(const struct tt_staged_part *staged)
{
    for (const struct tt_stage_block *block = staged->blocks; block; block = block->next)
        for (int i = 0; i < block->nstages; i++)
            if (!is_free(&block->stages[i])) return false;
    return true;
}

void tt_stage_free_blocks(struct tt_staged_part *staged)
{
    while (staged->blocks) {
        struct tt_stage_block *block = staged->blocks;
        staged->blocks = block->next;
        for (int i = 0; i < block->nstages; i++) free(block->stages[i].pieces);
        tt_context_free_host(staged->context, block->memory);
        free(block);
    }
}
