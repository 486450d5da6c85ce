/* Saves a checkpoint: each rank writes what it answers for to its places in the file, which rank 0
 * begins and renames at the end. A rank that does not see the file, on a host that does not share
 * the file system, sends its numbers to rank 0. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
enum { NOTES = 11, LOSS_TEXT = 26 };
struct notes {
    char step[32], samples[32], data[32], run[32], held_out[32], written[64], skipped[32], *options;
    char losses[TR_SPIKE_LOSSES * LOSS_TEXT + 1];
    struct tr_metadata rows[NOTES];
};

struct save {
    const struct tr_engine *engine;
    struct tr_parts parts;
    struct tr_safetensors_writer *writer; /* NULL: this rank does not see the file */
    struct mail *mail;
    uint64_t *sees;   /* [nranks]: whether a rank sees the file */
    uint64_t *none;   /* [2 x tensors]: 0, the sums of a rank that does not see the file */
    tr_status status; /* of the numbers so far; a rank goes on to the end all the same */
    int tensor;       /* whose runs are taken */
    struct tr_part_range range; /* of this rank, of that tensor */
    struct notes notes;         /* rank 0 */
};

static void put_mail(struct save *s)
{
    const float *at = s->mail->floats;
    for (uint64_t r = 0; r < s->mail->nruns && s->status == TR_OK; ++r) {
        const struct mail_run *run = &s->mail->runs[r];
        s->status = tr_safetensors_put(s->writer, (int)run->tensor, run->first, at, run->count);
        at += run->count;
    }
}

static void pass_on(struct save *s, bool is_last)
{
    static const char what[] = "sending this rank's part of the checkpoint";
    const struct tr_mesh *mesh = s->engine->mesh;
    s->mail->is_last = is_last;
    if (s->writer)
        put_mail(s);
    else if (s->status == TR_OK)
        s->status = tr_mesh_check(
            mesh, tuttiSend(s->mail, sizeof *s->mail, tuttiUint8, 0, mesh->world, NULL), what);
    s->mail->nruns = s->mail->nfloats = 0;
}

/* Appends to the run before where the numbers follow it. */
static void append(struct save *s, size_t first, const float *from, size_t count)
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

static void take(struct save *s, const float *from, size_t first, size_t count)
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
    struct save *s = arg;
    take(s, s->range.floats + run.range, run.global, run.count);
}

/* What this rank answers for. */
static void write_own(struct save *s)
{
    const struct tr_store *store = &s->engine->store;
    s->mail->nruns = s->mail->nfloats = 0;
    for (s->tensor = 0; s->tensor < s->parts.n; ++s->tensor) {
        const struct tr_part_id id = s->parts.ids[s->tensor];
        if (!tr_part_answers(s->engine, id)) continue;
        s->range = tr_part_range(store, id);
        if (tr_part_is_cut(store, id))
            tr_param_each_run(store->params, &store->params->items[id.param], s->range.first,
                              s->range.count, take_run, s);
        else
            take(s, s->range.floats, 0, s->range.count);
    }
    pass_on(s, true);
}

/* Rank 0: what those send who do not see the file. */
static tr_status write_others(struct save *s)
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
static tr_status create(struct save *s, const char *path, const struct tr_state *state,
                        const struct tr_config *config)
{
    struct notes *notes = &s->notes;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    notes->options = tr_config_to_json(config);
    if (!notes->options) return tr_fail("%s: out of memory", path);
    snprintf(notes->step, sizeof notes->step, "%lld", (long long)state->step);
    snprintf(notes->samples, sizeof notes->samples, "%llu", (unsigned long long)state->samples);
    snprintf(notes->data, sizeof notes->data, "%016llx", (unsigned long long)state->data_checksum);
    snprintf(notes->run, sizeof notes->run, "%016llx", (unsigned long long)state->run);
    snprintf(notes->held_out, sizeof notes->held_out, "%.17g", state->held_out);
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
        {"skipped", notes->skipped},
        {"losses", notes->losses},
        {"written", notes->written},
        {"options", notes->options},
        {TR_CKPT_HELD_OUT, notes->held_out}};
    memcpy(notes->rows, rows, sizeof rows);
    return tr_safetensors_create(&s->writer, path, s->parts.tensors, s->parts.n, notes->rows,
                                 isnan(state->held_out) ? NOTES - 1 : NOTES,
                                 s->engine->mesh->nranks > 1);
}

/* The other ranks open the file, where they see it; who does not is known to all. */
static tr_status join(struct save *s)
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

/* Rank 0 gets the sums of all, and ends the file. */
static tr_status commit(struct save *s)
{
    const struct tr_mesh *mesh = s->engine->mesh;
    const size_t n = 2 * (size_t)s->parts.n;
    if (s->writer && s->status == TR_OK && mesh->rank != 0)
        s->status = tr_safetensors_sync(s->writer);
    TR_TRY(tr_mesh_agree(mesh, s->status));
    uint64_t *sums = s->writer ? tr_safetensors_sums(s->writer) : s->none;
    TR_TRY(tr_mesh_check(mesh,
                         tuttiReduce(sums, sums, n, tuttiUint64, tuttiSum, 0, mesh->world, NULL),
                         "adding up the checkpoint's checksums"));
    /* From here on the file is rank 0's alone: a rank that fails does not remove it. */
    tr_status status = TR_OK;
    if (mesh->rank == 0)
        status = tr_safetensors_commit(s->writer);
    else
        tr_safetensors_leave(s->writer);
    s->writer = NULL;
    return tr_mesh_agree(mesh, status);
}

/* From the file's beginning to its end. */
static tr_status write_file(struct save *s)
{
    TR_TRY(join(s));
    write_own(s);
    if (s->engine->mesh->rank == 0) TR_TRY(write_others(s));
    return commit(s);
}

/* What each rank can do alone. */
static tr_status prepare(struct save *s, const char *path, const struct tr_state *state,
                         const struct tr_config *config)
{
    s->mail = malloc(sizeof *s->mail);
    s->sees = calloc((size_t)s->engine->mesh->nranks, sizeof *s->sees);
    s->none = calloc(2 * (size_t)s->parts.n + 1, sizeof *s->none);
    if (!s->mail || !s->sees || !s->none) return tr_fail("out of memory for writing a checkpoint");
    return s->engine->mesh->rank == 0 ? create(s, path, state, config) : TR_OK;
}

static tr_status name_of(const char *folder, int64_t step, char *path, size_t path_bytes)
{
    const int length =
        snprintf(path, path_bytes, "%s/step-%08lld.safetensors", folder, (long long)step);
    if ((size_t)length < path_bytes) return TR_OK;
    return tr_fail("--checkpoint=%s: the name is too long", folder);
}

tr_status tr_ckpt_save(struct tr_engine *e, const char *folder, const struct tr_state *state,
                       const struct tr_config *config, char *path, size_t path_bytes)
{
    struct save s = {.engine = e};
    tr_status status = tr_parts_list(&e->store, &s.parts);
    if (status == TR_OK) status = name_of(folder, state->step, path, path_bytes);
    status = tr_mesh_agree(e->mesh, status);
    if (status == TR_OK) status = tr_mesh_agree(e->mesh, prepare(&s, path, state, config));
    if (status == TR_OK) status = write_file(&s);
    /* A failure leaves no temporary file, whichever rank is left to remove it. */
    if (status == TR_OK)
        tr_safetensors_leave(s.writer);
    else
        tr_safetensors_discard(s.writer);
    free(s.mail);
    free(s.sees);
    free(s.none);
    free(s.notes.options);
    tr_parts_free(&s.parts);
    return status;
}
