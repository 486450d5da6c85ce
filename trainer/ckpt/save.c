/* Saves a checkpoint: each rank writes what it answers for to its places in the file, which rank 0
 * begins and renames at the end. A rank that does not see the file, on a host that does not share
 * the file system, sends its numbers to rank 0.
 *
 * With a snapshot a thread of each rank copies what it saves, before the next update changes that,
 * and writes the copy to the file; it calls no other rank. All that ranks tell each other is told
 * by the calling threads, before and after. */
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../watch/pipe.h"
#include "../watch/thread.h"
#include "ckpt.h"
#include "parts.h"

/* ---- Numbers on their way to the file -------------------------------------------------------- */

enum { MAIL_FLOATS = 1 << 19, MAIL_RUNS = 1 << 14 };

/* Runs of numbers, each one of a tensor, in one message. */
struct mail {
    uint64_t nruns, nfloats, is_last;
    struct mail_run {
        uint64_t tensor, first, count;
    } runs[MAIL_RUNS];
    float floats[MAIL_FLOATS];
};

/* What the file says beside tensors. */
enum { NOTES = 13, LOSS_TEXT = 26 };
struct notes {
    char step[32], samples[32], data[32], run[32], start[32], held_out[32], held_out_from[32];
    char written[64], skipped[32], *options;
    char losses[TR_SPIKE_LOSSES * LOSS_TEXT + 1];
    struct tr_metadata rows[NOTES];
};

struct tr_save {
    /* immutable while the thread runs */
    const struct tr_engine *engine; /* the thread reads nothing of its mesh, which may be aborted */
    bool is_first;                  /* of the ranks */
    struct tr_parts parts;
    char folder[PATH_MAX], path[PATH_MAX];
    struct tr_state state;
    struct tr_hold *hold;      /* rank 0; NULL: no other run is about */
    int64_t keep;              /* 0: all */
    struct tr_part_range *own; /* [tensors]: what this rank answers for, in the store; count 0:
                                * nothing */
    float **copies;            /* [tensors]: the places of these in the snapshot */
    uint64_t *sees;            /* [nranks]: whether a rank sees the file */
    uint64_t *none;            /* [2 x tensors]: 0, the sums of a rank that does not see the file */
    struct notes notes;        /* rank 0 */
    pthread_t thread;
    void (*work)(struct tr_save *); /* of the thread */
    bool has_copy;                  /* what is written is first copied to the snapshot */
    bool has_thread, is_ending;
    bool is_copying; /* nobody has waited for the copy yet */
    sem_t copied;    /* the thread posts it once, where has_copy */

    /* owner: the thread while it runs, else the caller */
    struct tr_safetensors_writer *writer; /* NULL: this rank does not see the file */
    struct mail *mail;
    tr_status status;  /* of the numbers so far; a rank goes on to the end all the same */
    int tensor;        /* whose runs are taken, */
    const float *from; /* from here */
    char story[2048];  /* of the failure */

    /* atomic */
    atomic_bool is_idle; /* the thread has done its work */
    atomic_bool is_vain; /* nobody wants the file any more */
};

/* Keeps the first failure, and its text, which is another thread's. */
static void note(struct tr_save *s, tr_status status)
{
    if (s->status < 0 || status == TR_OK) return;
    s->status = status;
    snprintf(s->story, sizeof s->story, "%s", tr_error());
}

static void put_mail(struct tr_save *s)
{
    const float *at = s->mail->floats;
    if (atomic_load_explicit(&s->is_vain, memory_order_relaxed))
        note(s, tr_fail("%s: given up", s->path));
    for (uint64_t r = 0; r < s->mail->nruns && s->status == TR_OK; ++r) {
        const struct mail_run *run = &s->mail->runs[r];
        note(s, tr_safetensors_put(s->writer, (int)run->tensor, run->first, at, run->count));
        at += run->count;
    }
}

static void pass_on(struct tr_save *s, bool is_last)
{
    static const char what[] = "sending this rank's part of the checkpoint";
    const struct tr_mesh *mesh = s->engine->mesh;
    s->mail->is_last = is_last;
    if (s->writer)
        put_mail(s);
    else if (s->status == TR_OK)
        note(s, tr_mesh_check(mesh,
                              tuttiSend(s->mail, sizeof *s->mail, tuttiUint8, 0, mesh->world, NULL),
                              what));
    s->mail->nruns = s->mail->nfloats = 0;
}

/* Appends to the run before where the numbers follow it. */
static void append(struct tr_save *s, size_t first, const float *from, size_t count)
{
    struct mail *mail = s->mail;
    struct mail_run *last = mail->nruns ? &mail->runs[mail->nruns - 1] : NULL;
    if (last && last->tensor == (uint64_t)s->tensor && last->first + last->count == first)
        last->count += count;
    else
        mail->runs[mail->nruns++] = (struct mail_run){(uint64_t)s->tensor, first, count};
    s->engine->backend->read(mail->floats + mail->nfloats, from, count * sizeof *from);
    mail->nfloats += count;
}

static void take(struct tr_save *s, const float *from, size_t first, size_t count)
{
    while (count) {
        if (s->mail->nfloats == MAIL_FLOATS || s->mail->nruns == MAIL_RUNS) pass_on(s, false);
        const size_t room = MAIL_FLOATS - s->mail->nfloats, n = count < room ? count : room;
        append(s, first, from, n);
        from += n;
        first += n;
        count -= n;
    }
}

static void take_run(void *arg, struct tr_run run)
{
    struct tr_save *s = arg;
    take(s, s->from + run.range, run.global, run.count);
}

/* What this rank answers for. */
static void write_own(struct tr_save *s)
{
    const struct tr_store *store = &s->engine->store;
    s->mail->nruns = s->mail->nfloats = 0;
    for (s->tensor = 0; s->tensor < s->parts.n; ++s->tensor) {
        const struct tr_part_id id = s->parts.ids[s->tensor];
        const struct tr_part_range *range = &s->own[s->tensor];
        if (!range->count) continue;
        s->from = s->has_copy ? s->copies[s->tensor] : range->floats;
        if (tr_part_is_cut(store, id))
            tr_param_each_run(store->params, &store->params->items[id.param], range->first,
                              range->count, take_run, s);
        else
            take(s, s->from, 0, range->count);
    }
    pass_on(s, true);
}

/* Rank 0: what those send who do not see the file. */
static tr_status write_others(struct tr_save *s)
{
    const struct tr_mesh *mesh = s->engine->mesh;
    for (int rank = 1; rank < mesh->nranks; ++rank) {
        if (s->sees[rank]) continue;
        do {
            TR_TRY(tr_mesh_check(
                mesh, tuttiRecv(s->mail, sizeof *s->mail, tuttiUint8, rank, mesh->world, NULL),
                "receiving a rank's part of the checkpoint"));
            put_mail(s);
        } while (!s->mail->is_last);
    }
    return TR_OK;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* The losses with all their digits, with a space behind each. */
static void write_losses(const struct tr_spikes *spikes, char *out)
{
    *out = 0;
    for (uint64_t i = 0; i < spikes->count; ++i)
        out += snprintf(out, LOSS_TEXT, "%.17g ", spikes->losses[i]);
}

/* Rank 0 begins the file. */
static tr_status create(struct tr_save *s, const struct tr_state *state,
                        const struct tr_config *config)
{
    struct notes *notes = &s->notes;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    notes->options = tr_config_to_json(config);
    if (!notes->options) return tr_fail("%s: out of memory", s->path);
    snprintf(notes->step, sizeof notes->step, "%lld", (long long)state->step);
    snprintf(notes->samples, sizeof notes->samples, "%llu", (unsigned long long)state->samples);
    snprintf(notes->data, sizeof notes->data, "%016llx", (unsigned long long)state->data_checksum);
    snprintf(notes->run, sizeof notes->run, "%016llx", (unsigned long long)state->run);
    snprintf(notes->start, sizeof notes->start, "%llu", (unsigned long long)state->start);
    snprintf(notes->held_out, sizeof notes->held_out, "%.17g", state->held_out);
    snprintf(notes->held_out_from, sizeof notes->held_out_from, "%llu",
             (unsigned long long)state->held_out_from);
    snprintf(notes->skipped, sizeof notes->skipped, "%lld", (long long)state->spikes.skipped);
    write_losses(&state->spikes, notes->losses);
    /* Tells the file from one of the same name that a killed run has left on another host. */
    snprintf(notes->written, sizeof notes->written, "%lld.%09ld", (long long)now.tv_sec,
             now.tv_nsec);
    const struct tr_metadata rows[NOTES] = {
        {"format", "pt"}, /* Hugging Face's loaders ask for it */
        {TR_CKPT_KEY, TR_CKPT_VERSION},
        {"step", notes->step},
        {"samples", notes->samples},
        {"data", notes->data},
        {TR_CKPT_RUN, notes->run},
        {TR_CKPT_START, notes->start},
        {TR_CKPT_HELD_OUT_FROM, notes->held_out_from},
        {"skipped", notes->skipped},
        {"losses", notes->losses},
        {"written", notes->written},
        {"options", notes->options},
        {TR_CKPT_HELD_OUT, notes->held_out}};
    memcpy(notes->rows, rows, sizeof rows);
    return tr_safetensors_create(&s->writer, s->path, s->parts.tensors, s->parts.n, notes->rows,
                                 isnan(state->held_out) ? NOTES - 1 : NOTES,
                                 s->engine->mesh->nranks > 1);
}

/* The other ranks open the file, where they see it; who does not is known to all. */
static tr_status join(struct tr_save *s)
{
    static const char what[] = "telling all ranks of the checkpoint's file";
    const struct tr_mesh *mesh = s->engine->mesh;
    struct tr_safetensors_place place = {.length = 0};
    if (mesh->rank == 0) tr_safetensors_locate(s->writer, &place);
    TR_TRY(tr_mesh_check(
        mesh, tuttiBroadcast(&place, &place, sizeof place, tuttiUint8, 0, mesh->world, NULL),
        what));
    if (mesh->rank != 0 &&
        tr_safetensors_join(&s->writer, &place, s->parts.tensors, s->parts.n) != TR_OK)
        s->writer = NULL; /* rank 0 writes for this rank */
    const uint64_t sees = s->writer != NULL;
    return tr_mesh_check(mesh, tuttiAllGather(&sees, s->sees, 1, tuttiUint64, mesh->world, NULL),
                         what);
}

/* Of masters and states: in rows, which the pool shares where a save has no thread of its own, and
 * the rest. */
static void copy_all(const struct tr_backend *backend, void *to, const void *from, long count)
{
    enum { ROW = 1 << 14 };
    const long whole = count / ROW * ROW, rest = count - whole;
    backend->copy_rows(to, ROW, from, ROW, count / ROW, ROW, TR_FP32);
    backend->copy_rows(tr_at(to, TR_FP32, (size_t)whole), rest,
                       tr_const_at(from, TR_FP32, (size_t)whole), rest, 1, rest, TR_FP32);
}

static void copy_own(struct tr_save *s)
{
    for (int i = 0; i < s->parts.n; ++i)
        if (s->own[i].count)
            copy_all(s->engine->backend, s->copies[i], s->own[i].floats, (long)s->own[i].count);
    sem_post(&s->copied);
}

/* Copies and writes what this rank answers for, and waits until the disk has it: then ending the
 * file is quick. */
static void write_and_sync(struct tr_save *s)
{
    if (s->has_copy) copy_own(s);
    if (s->is_first && !atomic_load_explicit(&s->is_vain, memory_order_relaxed))
        note(s, tr_safetensors_take_room(s->writer));
    write_own(s);
    if (s->status == TR_OK && s->writer) note(s, tr_safetensors_sync(s->writer));
}

/* Rank 0 ends the file, unless the folder became another run's meanwhile. Only then older ones go:
 * what has a name is whole. */
static void end_file(struct tr_save *s)
{
    note(s, tr_safetensors_finish(s->writer));
    if (s->status == TR_OK && s->hold) note(s, tr_ckpt_check_hold(s->folder, s->hold));
    if (s->status < 0) return; /* free_save removes the file */
    bool is_named;
    note(s, tr_safetensors_commit(s->writer, &is_named));
    if (s->hold && is_named) s->hold->unsynced = s->status < 0 ? s->state.step : 0;
    s->writer = NULL;
    if (s->status < 0) return;
    tr_say(stdout, "wrote %s\n", s->path);
    if (s->keep) tr_ckpt_keep(s->folder, s->hold, &s->state, s->keep);
}

/* From here on the file is rank 0's alone: another rank that fails does not remove it. */
static void leave_file(struct tr_save *s)
{
    tr_safetensors_leave(s->writer);
    s->writer = NULL;
}

/* Rank 0 gets the sums of all. */
static tr_status add_sums(struct tr_save *s)
{
    const struct tr_mesh *mesh = s->engine->mesh;
    const size_t n = 2 * (size_t)s->parts.n;
    uint64_t *sums = s->writer ? tr_safetensors_sums(s->writer) : s->none;
    return tr_mesh_check(mesh,
                         tuttiReduce(sums, sums, n, tuttiUint64, tuttiSum, 0, mesh->world, NULL),
                         "adding up the checkpoint's checksums");
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void *work(void *arg)
{
    struct tr_save *s = arg;
    s->work(s);
    atomic_store_explicit(&s->is_idle, true, memory_order_release); /* acquire: tr_ckpt_is_writing
                                                                     */
    return NULL;
}

/* Works on a thread. Where the weights must not change meanwhile, and where there is no thread, the
 * caller works. */
static void start(struct tr_save *s, void (*what)(struct tr_save *))
{
    s->work = what;
    atomic_store_explicit(&s->is_idle, false, memory_order_relaxed);
    if (s->has_copy) s->has_thread = tr_thread_start(&s->thread, work, s);
    if (!s->has_thread) work(s);
}

static void finish_thread(struct tr_save *s)
{
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
}

void tr_ckpt_wait_for_copy(struct tr_save *s)
{
    if (!s->is_copying) return;
    while (sem_wait(&s->copied) != 0) continue; /* a signal */
    s->is_copying = false;
}

bool tr_ckpt_is_writing(const struct tr_save *s)
{
    return !atomic_load_explicit(&s->is_idle, memory_order_acquire); /* release: work */
}

/* ---- A save ---------------------------------------------------------------------------------- */

/* own[tensors]: what this rank answers for, in the store. */
static void list_own(const struct tr_engine *e, const struct tr_parts *parts,
                     struct tr_part_range *own)
{
    for (int i = 0; i < parts->n; ++i)
        if (tr_part_answers(e, parts->ids[i])) own[i] = tr_part_range(&e->store, parts->ids[i]);
}

/* Gives what this rank answers for a place in the snapshot, which counts while it has no memory. */
static void carve(const struct tr_part_range *own, int n, struct tr_arena *snapshot, float **copies)
{
    snapshot->used = 0;
    for (int i = 0; i < n; ++i)
        if (own[i].count) copies[i] = tr_arena_take(snapshot, own[i].count, sizeof *copies[i]);
}

tr_status tr_ckpt_snapshot_bytes(const struct tr_engine *e, size_t *nbytes)
{
    struct tr_parts parts;
    struct tr_arena counted = {0};
    TR_TRY(tr_parts_list(&e->store, &parts));
    struct tr_part_range *own = calloc((size_t)parts.n + 1, sizeof *own);
    float **copies = calloc((size_t)parts.n + 1, sizeof *copies);
    const bool has_room = own && copies;
    if (has_room) {
        list_own(e, &parts, own);
        carve(own, parts.n, &counted, copies);
        *nbytes = counted.used;
    }
    free(own);
    free(copies);
    tr_parts_free(&parts);
    return has_room ? TR_OK : tr_fail("out of memory for the list of a checkpoint's tensors");
}

/* What each rank can do alone. */
static tr_status prepare(struct tr_save *s, const char *folder, const struct tr_state *state,
                         const struct tr_config *config)
{
    TR_TRY(tr_ckpt_path(folder, state->step, s->path, sizeof s->path));
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->state = *state;
    s->keep = config->keep;
    TR_TRY(tr_parts_list(&s->engine->store, &s->parts));
    s->own = calloc((size_t)s->parts.n + 1, sizeof *s->own);
    s->copies = calloc((size_t)s->parts.n + 1, sizeof *s->copies);
    s->mail = malloc(sizeof *s->mail);
    s->sees = calloc((size_t)s->engine->mesh->nranks, sizeof *s->sees);
    s->none = calloc(2 * (size_t)s->parts.n + 1, sizeof *s->none);
    if (!s->own || !s->copies || !s->mail || !s->sees || !s->none)
        return tr_fail("out of memory for writing a checkpoint");
    list_own(s->engine, &s->parts, s->own);
    if (s->engine->mesh->rank != 0) return TR_OK;
    TR_TRY(tr_ckpt_check_space(folder, &s->engine->store));
    return create(s, state, config);
}

/* The file's beginning; a rank that does not see it sends its numbers at once. Rank 0 waits for the
 * disk when it has written all of them. */
static tr_status begin_file(struct tr_save *s, struct tr_arena *snapshot)
{
    TR_TRY(join(s));
    s->has_copy = s->is_copying = snapshot && s->writer;
    if (s->has_copy) carve(s->own, s->parts.n, snapshot, s->copies);
    if (s->engine->mesh->rank == 0) TR_TRY(write_others(s));
    start(s, write_and_sync);
    return TR_OK;
}

static void free_save(struct tr_save *s)
{
    tr_safetensors_discard(s->writer); /* what a failure has left, whichever rank can remove it */
    sem_destroy(&s->copied);
    free(s->own);
    free(s->copies);
    free(s->mail);
    free(s->sees);
    free(s->none);
    free(s->notes.options);
    tr_parts_free(&s->parts);
    free(s);
}

tr_status tr_ckpt_begin(struct tr_engine *e, const char *folder, struct tr_hold *hold,
                        const struct tr_state *state, const struct tr_config *config,
                        struct tr_arena *snapshot, struct tr_save **save)
{
    struct tr_save *s = calloc(1, sizeof *s);
    tr_status status = s ? TR_OK : tr_fail("out of memory for writing a checkpoint");
    if (s) {
        s->engine = e;
        s->is_first = e->mesh->rank == 0;
        if (s->is_first) s->hold = hold;
        sem_init(&s->copied, 0, 0);
        status = prepare(s, folder, state, config);
    }
    status = tr_mesh_agree(e->mesh, status);
    if (status == TR_OK) status = begin_file(s, snapshot);
    if (status == TR_OK)
        *save = s;
    else
        tr_ckpt_give_up(s);
    return status;
}

tr_status tr_ckpt_advance(struct tr_save **save)
{
    struct tr_save *s = *save;
    finish_thread(s);
    if (s->status < 0) s->status = tr_fail("%s", s->story);
    tr_status status = tr_mesh_agree(s->engine->mesh, s->status);
    if (status == TR_OK && !s->is_ending) {
        status = add_sums(s);
        s->is_ending = true;
        if (status == TR_OK && s->engine->mesh->rank == 0) start(s, end_file);
        if (status == TR_OK && s->engine->mesh->rank != 0) leave_file(s);
        if (status == TR_OK) return TR_OK;
    }
    /* All know of the failure: rank 0 removes the file, as it may begin another of that name. */
    if (tr_is_agreed(status) && s->engine->mesh->rank != 0) leave_file(s);
    free_save(s);
    *save = NULL;
    return status;
}

void tr_ckpt_give_up(struct tr_save *s)
{
    if (!s) return;
    atomic_store_explicit(&s->is_vain, true, memory_order_relaxed);
    finish_thread(s);
    free_save(s);
}
