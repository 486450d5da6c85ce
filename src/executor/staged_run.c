/* What a call on staging memory has in common with the CUDA stream that copies for it, and the
 * copies of its portions. */
#include "executor/staged_run.h"

#include "executor/kernel_run.h"
#include "executor/stream.h"

/* ---- Where things lie ----------------------------------------------------------------------- */

static size_t place_of(const struct tt_stage_portions *portions, uint64_t portion)
{
    return (size_t)(portion & 1) * portions->nbytes;
}

/* Bytes before the elements of a part of a block, in a portion. */
static size_t part_at(const struct tt_work *work, int buffer, int32_t block, int part)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const struct tt_stage_side *side = &portions->sides[buffer];
    const struct tt_binding *binding = &work->collective.binding;
    const size_t index = (size_t)(block - side->first) * binding->parts[0].nparts + (size_t)part;
    return side->at + index * portions->rounds * binding->piece * binding->element;
}

void tt_staged_place(const struct tt_work *work, const struct tt_walk *walk, int32_t place,
                     struct tt_piece *piece)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const struct tt_binding *binding = &work->collective.binding;
    const int32_t block = tt_span_name_at(walk->program, walk->span, place);
    const size_t portion = walk->round / portions->rounds, within = walk->round % portions->rounds;
    piece->offset = place_of(portions, portion) +
                    part_at(work, walk->span->buffer, block, walk->part) +
                    within * binding->piece * binding->element;
}

char *tt_staged_message(const struct tt_work *work, size_t *nbytes)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const size_t offset = work->p2p.offset, left = work->p2p.nbytes - offset;
    const size_t within = offset % portions->nbytes, room = portions->nbytes - within;
    *nbytes = left < room ? left : room;
    return portions->memory + place_of(portions, offset / portions->nbytes) + within;
}

/* ---- Copies --------------------------------------------------------------------------------- */

static tt_status copy(const struct tt_work *work, void *to, const void *from, size_t nbytes)
{
    const struct tt_staged_run *staged = &work->staged;
    return tt_context_stream_copy(staged->context, staged->portions->stream, to, from, nbytes);
}

/* Leaves out what is kept. */
static tt_status copy_out(const struct tt_work *work, char *users, const char *staged,
                          size_t nbytes)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const char *const end = users + nbytes;
    if (portions->kept >= end || portions->kept_end <= users)
        return copy(work, users, staged, nbytes);
    if (portions->kept > users) TT_TRY(copy(work, users, staged, (size_t)(portions->kept - users)));
    if (portions->kept_end >= end) return TT_OK;
    const size_t after = (size_t)(end - portions->kept_end);
    return copy(work, users + (nbytes - after), staged + (nbytes - after), after);
}

static tt_status copy_part(const struct tt_work *work, int buffer, uint64_t portion, int32_t block,
                           int part)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const struct tt_binding *binding = work->collective.call.binding;
    const size_t most = portions->rounds * binding->piece, skip = (size_t)portion * most;
    size_t begin;
    const size_t length = tt_binding_part(binding, block, part, &begin);
    if (length <= skip) return TT_OK;
    const size_t count = length - skip < most ? length - skip : most;
    char *users = portions->sides[buffer].users + (begin + skip) * binding->element;
    char *staged =
        portions->memory + place_of(portions, portion) + part_at(work, buffer, block, part);
    return buffer == TT_INPUT ? copy(work, staged, users, count * binding->element)
                              : copy_out(work, users, staged, count * binding->element);
}

static tt_status copy_rounds(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_program_blocks *held = &tt_work_program(work)->held[buffer];
    const int nparts = (int)work->collective.binding.parts[0].nparts;
    for (int32_t i = 0; i < held->number; i++)
        for (int part = 0; part < nparts; part++)
            TT_TRY(copy_part(work, buffer, portion, held->first + i, part));
    return TT_OK;
}

static tt_status copy_message(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const size_t at = (size_t)portion * portions->nbytes, left = work->p2p.nbytes - at;
    const size_t nbytes = left < portions->nbytes ? left : portions->nbytes;
    char *users = portions->sides[buffer].users + at;
    char *staged = portions->memory + place_of(portions, portion);
    return buffer == TT_INPUT ? copy(work, staged, users, nbytes)
                              : copy(work, users, staged, nbytes);
}

static tt_status copy_portion(const struct tt_work *work, int buffer, uint64_t portion)
{
    const bool sends = work->kind == TT_WORK_SEND;
    if (work->kind != TT_WORK_COLLECTIVE)
        return sends == (buffer == TT_INPUT) ? copy_message(work, buffer, portion) : TT_OK;
    return tt_work_is_divided(work) ? copy_rounds(work, buffer, portion) : TT_OK;
}

static tt_status queue_in(struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    struct tt_stage_portions *portions = staged->portions;
    for (int i = 0; portions->in == 0 && i < portions->nin; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->staged, piece->users, piece->nbytes));
    }
    TT_TRY(copy_portion(work, TT_INPUT, portions->in));
    /* acquire: tt_staged_has */
    TT_TRY(tt_context_stream_store(staged->context, portions->stream, &staged->words->in,
                                   (uint32_t)(portions->in + 1)));
    portions->in++;
    return TT_OK;
}

static tt_status queue_out(struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    struct tt_stage_portions *portions = staged->portions;
    const bool is_last = portions->out + 1 == portions->number;
    TT_TRY(copy_portion(work, TT_OUTPUT, portions->out));
    for (int i = portions->nin; is_last && i < portions->nin + portions->nout; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->users, piece->staged, piece->nbytes));
    }
    /* acquire: tt_staged_copied */
    TT_TRY(tt_context_stream_store(staged->context, portions->stream, &staged->words->out,
                                   (uint32_t)(portions->out + 1)));
    portions->out++;
    return TT_OK;
}

/* The copies back of portions that are finished, then those of the next ones, which take their
 * places. */
static tt_status queue_copies(struct tt_work *work, uint64_t finished)
{
    struct tt_stage_portions *portions = work->staged.portions;
    while (portions->out < finished) {
        TT_TRY(queue_out(work));
        work->progress++;
    }
    while (portions->in < portions->number && portions->in < finished + 2) TT_TRY(queue_in(work));
    return TT_OK;
}

/* ---- The call ------------------------------------------------------------------------------- */

tt_status tt_staged_begin(struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (staged->gpu) return TT_OK;
    if (!staged->portions->in) {
        TT_TRY(tt_fabric_check(work->engine->fabric)); /* issued before the failure */
        /* Has happened, but the GPU shall know that the copies come after. */
        TT_TRY(tt_context_stream_await(staged->context, staged->portions->stream,
                                       &staged->words->ready, staged->number));
        TT_TRY(queue_copies(work, 0));
    }
    return tt_staged_has(work, 0) ? TT_OK : TT_IN_PROGRESS;
}

bool tt_staged_has(const struct tt_work *work, uint64_t portion)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    const uint32_t number = (uint32_t)(portion + 1);
    if (portions->in <= portion) return false;
    /* release: the stream's store (queue_in) */
    return (int32_t)(__atomic_load_n(&work->staged.words->in, __ATOMIC_ACQUIRE) - number) >= 0;
}

/* Portions that every channel of a collective has finished. */
static uint64_t finished_rounds(const struct tt_work *work)
{
    const int nparts = (int)work->collective.binding.parts[0].nparts;
    uint64_t least = UINT64_MAX;
    for (int part = 0; part < nparts; part++) {
        const struct tt_position *at = &work->collective.channels[part];
        if (!at->done && at->round < least) least = at->round;
    }
    const struct tt_stage_portions *portions = work->staged.portions;
    return least == UINT64_MAX ? portions->number : least / portions->rounds;
}

tt_status tt_staged_pass(struct tt_work *work, bool ran)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    if (!portions || work->staged.gpu) return TT_OK;
    if (ran) return queue_copies(work, portions->number);
    if (portions->number == 1) return TT_OK;
    return queue_copies(work, work->kind == TT_WORK_COLLECTIVE
                                  ? finished_rounds(work)
                                  : work->p2p.offset / portions->nbytes);
}

tt_status tt_staged_copied(const struct tt_work *work)
{
    const struct tt_stage_portions *portions = work->staged.portions;
    if (!portions) return TT_OK;
    const struct tt_stage_words *words = work->staged.words;
    /* release: the stream's stores (queue_in, queue_out) */
    const bool all = __atomic_load_n(&words->in, __ATOMIC_ACQUIRE) == (uint32_t)portions->in &&
                     __atomic_load_n(&words->out, __ATOMIC_ACQUIRE) == (uint32_t)portions->out;
    return all ? TT_OK : TT_IN_PROGRESS;
}

/* Also of those that are not counted, because what was to be queued behind them could not be. */
static bool has_copies(const struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (!staged->portions) return false;
    return tt_staged_copied(work) == TT_IN_PROGRESS ||
           tt_context_stream_query(staged->context, staged->portions->stream) == TT_IN_PROGRESS;
}

tt_status tt_staged_stop(struct tt_work *work)
{
    if (!has_copies(work)) return TT_OK;
    if (!tt_expired(work->deadline_ns)) return TT_IN_PROGRESS;
    tt_fabric_add_to_failure(work->engine->fabric,
                             "; copies of this rank's GPU have not ended and may still use its "
                             "buffers: keep them until the GPU is idle");
    return TT_OK;
}

tt_status tt_staged_check(const struct tt_work *work)
{
    const struct tt_staged_run *staged = &work->staged;
    if (!staged->words) return TT_OK;
    return tt_check_gpu(work->engine->fabric, staged->context, staged->stream);
}

void tt_staged_end(const struct tt_work *work)
{
    /* acquire: the stream's wait (tt_comm_staged_launch) */
    struct tt_stage_words *words = work->staged.words;
    if (!words) return;
    if (work->staged.replayed)
        __atomic_store_n(&words->ready, TT_REPLAY_ENDED, __ATOMIC_RELEASE); /* acquire: the graph */
    else
        __atomic_store_n(&words->done, work->staged.number, __ATOMIC_RELEASE);
}
