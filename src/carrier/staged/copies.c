/* The thread that queues the copies of portions (copies.h). */
#include "carrier/staged/copies.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "driver/capture.h"

/* Owned by the communicator's struct tt_staged_part. */
struct tt_copier {
    /* immutable after creation */
    struct tt_context *context;
    pid_t process;
    pthread_t thread;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tt_stage_portions *first, **last; /* those that want copies */
    bool stop;
    tt_status status; /* the first failure of copies: none are queued any more */
    char text[TT_ERROR_TEXT];
    void *event; /* to be asked about; NULL: none */
    bool is_answered;
    tt_status answer;
    uint64_t flushes, flushed; /* wanted and made so far: each covers those wanted before */
    tt_status flush;           /* of the last one */
};

static const struct tt_staged_work *own_const(const struct tt_work *work)
{
    return (const struct tt_staged_work *)work;
}

static struct tt_stage_portions *portions_of(const struct tt_work *work)
{
    return (struct tt_stage_portions *)work->portions;
}

static struct tt_copier *copier_of(const struct tt_work *work)
{
    return own_const(work)->part->copier;
}

/* ---- Copies, in the thread ------------------------------------------------------------------ */

/* Between the two nobody may use the work: it may be gone. */
static void enter_driver(struct tt_copier *copier)
{
    pthread_mutex_unlock(&copier->lock);
}

static tt_status leave_driver(struct tt_copier *copier, const struct tt_stage_portions *portions,
                              tt_status status)
{
    pthread_mutex_lock(&copier->lock);
    if (!status && !portions->work) return TT_ERR_REMOTE; /* the call has ended */
    return status;
}

static tt_status copy(const struct tt_work *work, void *to, const void *from, size_t nbytes)
{
    const struct tt_stage_portions *portions = portions_of(work);
    struct tt_copier *copier = copier_of(work);
    void *stream = portions->stream;
    enter_driver(copier);
    return leave_driver(copier, portions,
                        tt_context_stream_copy(copier->context, stream, to, from, nbytes));
}

static tt_status store(const struct tt_work *work, uint32_t *word, uint64_t value)
{
    const struct tt_stage_portions *portions = portions_of(work);
    struct tt_copier *copier = copier_of(work);
    void *stream = portions->stream;
    enter_driver(copier);
    return leave_driver(copier, portions,
                        tt_context_stream_store(copier->context, stream, word, (uint32_t)value));
}

/* The input has come, but the GPU shall know that the copies come after. */
static tt_status await_input(const struct tt_work *work)
{
    const struct tt_stage_portions *portions = portions_of(work);
    struct tt_copier *copier = copier_of(work);
    const uint32_t *ready = &own_const(work)->stage->words->ready;
    const uint32_t number = own_const(work)->number;
    void *stream = portions->stream;
    enter_driver(copier);
    return leave_driver(copier, portions,
                        tt_context_stream_await(copier->context, stream, ready, number));
}

/* Leaves out what is kept. */
static tt_status copy_out(const struct tt_work *work, char *users, const char *staged,
                          size_t nbytes)
{
    const struct tt_stage_portions *portions = portions_of(work);
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
    const struct tt_stage_portions *portions = portions_of(work);
    const struct tt_binding *binding = work->collective.call->binding;
    const size_t most = portions->base.rounds * binding->piece, skip = (size_t)portion * most;
    size_t begin;
    const size_t length = tt_binding_part(binding, block, part, &begin);
    if (length <= skip) return TT_OK;
    const size_t count = length - skip < most ? length - skip : most;
    char *users = portions->users[buffer] + (begin + skip) * binding->element;
    char *staged = portions->base.memory + tt_portion_place(&portions->base, portion) +
                   tt_portion_part(work, buffer, block, part);
    return buffer == TT_INPUT ? copy(work, staged, users, count * binding->element)
                              : copy_out(work, users, staged, count * binding->element);
}

static tt_status copy_rounds(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_program_blocks *held = &tt_work_program(work)->held[buffer];
    const int nparts = (int)work->collective.binding->parts[0].nparts;
    for (int32_t i = 0; i < held->number; i++)
        for (int part = 0; part < nparts; part++)
            TT_TRY(copy_part(work, buffer, portion, held->first + i, part));
    return TT_OK;
}

static tt_status copy_message(const struct tt_work *work, int buffer, uint64_t portion)
{
    const struct tt_stage_portions *portions = portions_of(work);
    const size_t at = (size_t)portion * portions->base.nbytes, left = work->p2p.nbytes - at;
    const size_t nbytes = left < portions->base.nbytes ? left : portions->base.nbytes;
    char *users = portions->users[buffer] + at;
    char *staged = portions->base.memory + tt_portion_place(&portions->base, portion);
    return buffer == TT_INPUT ? copy(work, staged, users, nbytes)
                              : copy(work, users, staged, nbytes);
}

static tt_status copy_portion(const struct tt_work *work, int buffer, uint64_t portion)
{
    if (own_const(work)->host == &tt_p2p_ops)
        return work->p2p.sends == (buffer == TT_INPUT) ? copy_message(work, buffer, portion)
                                                       : TT_OK;
    return tt_is_divided(work) ? copy_rounds(work, buffer, portion) : TT_OK;
}

static tt_status queue_in(const struct tt_work *work)
{
    struct tt_stage_portions *portions = portions_of(work);
    if (portions->in == 0) TT_TRY(await_input(work));
    for (int i = 0; portions->in == 0 && i < portions->nin; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->staged, piece->users, piece->nbytes));
    }
    TT_TRY(copy_portion(work, TT_INPUT, portions->in));
    /* acquire: has of work.c */
    TT_TRY(store(work, &own_const(work)->stage->words->in, portions->in + 1));
    portions->in++;
    return TT_OK;
}

static tt_status queue_out(const struct tt_work *work)
{
    struct tt_stage_portions *portions = portions_of(work);
    const bool is_last = portions->out + 1 == portions->base.number;
    TT_TRY(copy_portion(work, TT_OUTPUT, portions->out));
    for (int i = portions->nin; is_last && i < portions->nin + portions->nout; i++) {
        const struct tt_stage_piece *piece = &portions->pieces[i];
        TT_TRY(copy(work, piece->users, piece->staged, piece->nbytes));
    }
    /* acquire: tt_copies_are_made */
    TT_TRY(store(work, &own_const(work)->stage->words->out, portions->out + 1));
    portions->out++;
    return TT_OK;
}

/* First the copies back: the next portions take their places. */
static void queue_locked(struct tt_copier *copier, struct tt_stage_portions *portions)
{
    tt_status status = copier->status;
    while (!status && portions->work) {
        const struct tt_work *work = &portions->work->work;
        if (portions->out < portions->want_out)
            status = queue_out(work);
        else if (portions->in < portions->want_in)
            status = queue_in(work);
        else
            break;
    }
    if (!status) return;
    if (!copier->status && portions->work) {
        copier->status = status;
        snprintf(copier->text, sizeof copier->text, "%s", tt_last_error());
    }
    /* Copies may be queued that are not counted. */
    void *stream = portions->stream;
    enter_driver(copier);
    tt_ignore(tt_context_stream_synchronize(copier->context, stream));
    pthread_mutex_lock(&copier->lock);
}

static void answer_locked(struct tt_copier *copier)
{
    void *event = copier->event;
    enter_driver(copier);
    const tt_status status = tt_context_event_query(copier->context, event);
    pthread_mutex_lock(&copier->lock);
    copier->answer = status;
    if (status < 0) snprintf(copier->text, sizeof copier->text, "%s", tt_last_error());
    copier->event = NULL;
    copier->is_answered = true;
}

static void flush_locked(struct tt_copier *copier)
{
    const uint64_t number = copier->flushes;
    enter_driver(copier);
    const tt_status status = tt_context_flush_writes(copier->context);
    pthread_mutex_lock(&copier->lock);
    copier->flush = status;
    if (status) snprintf(copier->text, sizeof copier->text, "%s", tt_last_error());
    copier->flushed = number;
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void *serve(void *argument)
{
    struct tt_copier *copier = argument;
    pthread_mutex_lock(&copier->lock);
    for (;;) {
        struct tt_stage_portions *portions = copier->first;
        if (copier->flushed < copier->flushes) {
            flush_locked(copier);
        } else if (portions) {
            if (!(copier->first = portions->next)) copier->last = &copier->first;
            queue_locked(copier, portions);
            /* acquire: tt_copies_are_made, is_copied of memory.c */
            atomic_store_explicit(&portions->is_busy, false, memory_order_release);
        } else if (copier->event) {
            answer_locked(copier);
        } else if (copier->stop) {
            break;
        } else {
            pthread_cond_wait(&copier->changed, &copier->lock);
        }
    }
    pthread_mutex_unlock(&copier->lock);
    return NULL;
}

static void free_copier(struct tt_copier *copier)
{
    pthread_cond_destroy(&copier->changed);
    pthread_mutex_destroy(&copier->lock);
    free(copier);
}

tt_status tt_copier_create(struct tt_context *context, struct tt_copier **out)
{
    struct tt_copier *copier = calloc(1, sizeof *copier);
    if (!copier) return tt_fail(TT_ERR_SYSTEM, "out of memory for the copies of a communicator");
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->changed, NULL);
    copier->context = context;
    copier->process = getpid();
    copier->last = &copier->first;
    const int error = tt_thread_start(&copier->thread, NULL, serve, copier);
    if (error) {
        free_copier(copier);
        return tt_fail_errno(error, "cannot start the thread that queues copies (ulimit -u?)");
    }
    *out = copier;
    return TT_OK;
}

void tt_copier_destroy(struct tt_copier *copier)
{
    if (!copier) return;
    if (copier->process != getpid()) { /* the parent's */
        free(copier);
        return;
    }
    pthread_mutex_lock(&copier->lock);
    copier->stop = true;
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
    pthread_join(copier->thread, NULL);
    free_copier(copier);
}

/* ---- Who runs calls ------------------------------------------------------------------------- */

static tt_status status_of(const struct tt_copier *copier, tt_status status)
{
    if (status < 0) tt_set_last_error(copier->text);
    return status;
}

void tt_copies_want(struct tt_staged_work *work, uint64_t finished)
{
    struct tt_copier *copier = work->part->copier;
    struct tt_stage_portions *portions = portions_of(&work->work);
    const uint64_t number = portions->base.number;
    const uint64_t in = finished + 2 < number ? finished + 2 : number;
    pthread_mutex_lock(&copier->lock);
    const bool more = in > portions->want_in || finished > portions->want_out;
    work->work.progress += finished - portions->want_out;
    portions->want_in = in;
    portions->want_out = finished;
    portions->work = work;
    if (more && !atomic_load_explicit(&portions->is_busy, memory_order_relaxed)) {
        atomic_store_explicit(&portions->is_busy, true, memory_order_relaxed);
        portions->next = NULL;
        *copier->last = portions;
        copier->last = &portions->next;
        pthread_cond_signal(&copier->changed);
    }
    pthread_mutex_unlock(&copier->lock);
}

tt_status tt_copies_check(const struct tt_staged_work *work)
{
    struct tt_copier *copier = work->part->copier;
    pthread_mutex_lock(&copier->lock);
    const tt_status status = status_of(copier, copier->status);
    pthread_mutex_unlock(&copier->lock);
    return status;
}

static bool are_counted(const struct tt_stage_words *words, uint64_t in, uint64_t out)
{
    /* release: the stream's stores (store) */
    return __atomic_load_n(&words->in, __ATOMIC_ACQUIRE) == (uint32_t)in &&
           __atomic_load_n(&words->out, __ATOMIC_ACQUIRE) == (uint32_t)out;
}

bool tt_copies_are_made(const struct tt_staged_work *work)
{
    const struct tt_stage_portions *portions = portions_of(&work->work);
    return are_counted(work->stage->words, portions->want_in, portions->want_out) &&
           /* release: serve */
           !atomic_load_explicit(&portions->is_busy, memory_order_acquire);
}

/* Whose turn has not come in the thread. */
static void drop_locked(struct tt_copier *copier, struct tt_stage_portions *portions)
{
    struct tt_stage_portions **at = &copier->first;
    while (*at && *at != portions) at = &(*at)->next;
    if (!*at) return;
    if (!(*at = portions->next)) copier->last = at;
    atomic_store_explicit(&portions->is_busy, false, memory_order_relaxed);
}

bool tt_copies_stop(struct tt_staged_work *work)
{
    struct tt_copier *copier = work->part->copier;
    struct tt_stage_portions *portions = portions_of(&work->work);
    pthread_mutex_lock(&copier->lock);
    portions->work = NULL;
    drop_locked(copier, portions);
    const bool made = !atomic_load_explicit(&portions->is_busy, memory_order_relaxed) &&
                      are_counted(work->stage->words, portions->in, portions->out);
    pthread_mutex_unlock(&copier->lock);
    return made;
}

tt_status tt_copies_flush(struct tt_staged_work *work)
{
    struct tt_copier *copier = work->part->copier;
    tt_status status = TT_IN_PROGRESS;
    pthread_mutex_lock(&copier->lock);
    if (!work->flush) {
        work->flush = ++copier->flushes;
        pthread_cond_signal(&copier->changed);
    } else if (copier->flushed >= work->flush) {
        status = status_of(copier, copier->flush);
    }
    pthread_mutex_unlock(&copier->lock);
    return status;
}

/* ---- Who issues calls ----------------------------------------------------------------------- */

tt_status tt_copier_query(struct tt_copier *copier, void *event)
{
    tt_status status = TT_IN_PROGRESS;
    pthread_mutex_lock(&copier->lock);
    if (copier->is_answered) {
        status = status_of(copier, copier->answer);
        copier->is_answered = false;
    } else if (!copier->event) {
        copier->event = event;
        pthread_cond_signal(&copier->changed);
    }
    pthread_mutex_unlock(&copier->lock);
    return status;
}
