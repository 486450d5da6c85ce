/* Opens, describes and closes a run. */
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine.h"
#include "ops/pool.h"
#include "optim/rate.h"
#include "param.h"
#include "picture.h"
#include "place.h"
#include "watch/clock.h"

/* The option that names the checkpoint. */
static const char *source(const struct tr_trainer *t)
{
    return t->config.generates ? "from" : "resume";
}

static bool is_gone(const char *path)
{
    struct stat st;
    return lstat(path, &st) < 0 && errno == ENOENT;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Makes the folder of checkpoints and locks it, once. */
static tr_status take_folder(struct tr_trainer *t)
{
    const char *folder = t->config.checkpoint;
    if (!folder[0] || t->mesh->rank != 0 || t->hold.folder >= 0) return TR_OK;
    TR_TRY(tr_ckpt_prepare(folder));
    return tr_ckpt_lock(folder, &t->hold);
}

static void close_resumed(struct tr_trainer *t)
{
    tr_safetensors_close(t->resumed);
    t->resumed = NULL;
}

/* Finds and opens the checkpoint, path[PATH_MAX], and reads its options. A run that writes to the
 * folder may remove it at any moment for a newer one, which is found then. */
static tr_status find_options(struct tr_trainer *t, char *path, char **options)
{
    enum { TRIES = 100 };
    for (int tries = 1;; ++tries) {
        TR_TRY(tr_ckpt_find(source(t), t->config.resume, path, PATH_MAX));
        close_resumed(t);
        tr_status status = tr_ckpt_open(path, &t->resumed);
        if (status == TR_OK) status = tr_ckpt_read_options(t->resumed, options);
        if (status == TR_OK || tries == TRIES || !is_gone(path)) return status;
    }
}

/* The options of the checkpoint that rank 0 finds, on every rank. */
static tr_status share_options(struct tr_trainer *t, char *path, char **options)
{
    const struct tr_mesh *mesh = t->mesh;
    static const char what[] = "sharing the checkpoint's options";
    tr_status status = TR_OK;
    /* What another run has written there until it gave up the lock is found, too. */
    if (mesh->rank == 0 && is_same_file(t->config.resume, t->config.checkpoint))
        status = take_folder(t);
    if (status == TR_OK && mesh->rank == 0) {
        status = find_options(t, path, options);
        if (status < 0) status = tr_ckpt_propose_older(source(t), path, status);
    }
    TR_TRY(tr_mesh_agree(mesh, status));
    uint64_t length = mesh->rank == 0 ? strlen(*options) : 0;
    TR_TRY(tr_mesh_check(
        mesh, tuttiBroadcast(&length, &length, 1, tuttiUint64, 0, mesh->world, NULL), what));
    if (mesh->rank != 0) *options = calloc(1, length + 1);
    TR_TRY(tr_mesh_agree(mesh, *options ? TR_OK : tr_fail("out of memory for the options")));
    return tr_mesh_check(
        mesh, tuttiBroadcast(*options, *options, length, tuttiUint8, 0, mesh->world, NULL), what);
}

/* Takes over the options of the checkpoint; its file in path[PATH_MAX], on rank 0. */
static tr_status resume_options(struct tr_trainer *t, char *path)
{
    char *options = NULL;
    tr_status status = share_options(t, path, &options);
    if (status == TR_OK)
        status = tr_mesh_agree(t->mesh, tr_setup_resume(&t->config, options, path));
    free(options);
    return status;
}

/* The steps of the whole run, from where it is. */
static void count_steps(struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    t->total_steps = config->steps ? config->steps : config->seconds > 0 ? 0 : 2000;
    if (config->epochs > 0)
        t->total_steps =
            t->step + tr_epochs_left(config->epochs, t->epochs.windows, t->samples, config->batch);
}

/* What each rank can do alone, before it needs memory for the model. */
static tr_status prepare(struct tr_trainer *t, struct tr_setup *setup)
{
    struct tr_config *config = &t->config;
    TR_TRY(tr_config_check(config));
    tr_config_resolve(config);
    TR_TRY(tr_setup_of(config, t->mesh->nranks, setup));
    tr_setup_adopt(config, setup);
    TR_TRY(tr_mesh_shape(t->mesh, setup->size));
    t->backend = tr_backend_choose(config->cpu);
    if (!t->backend)
        return tr_fail("--cpu=%s: expected v4, v3 or baseline, and one that this processor can run",
                       config->cpu);
    TR_TRY(take_folder(t));
    tr_process_tune();
    if (config->generates) return TR_OK;
    TR_TRY(tr_text_read(&t->text, config->data, config->held_out, (long)config->context));
    t->data_checksum = tr_checksum(t->text.bytes, t->text.nbytes);
    t->epochs.windows = tr_sampler_windows(&t->text, (long)config->context);
    count_steps(t);
    return TR_OK;
}

/* All ranks take the newest vector code that each can run. Replicas compute the same update, which
 * has other bits by code that rounds products before it adds them. */
static tr_status choose_code(struct tr_trainer *t)
{
    const int own = tr_backend_level(t->backend);
    int32_t levels[] = {own, -own};
    TR_TRY(tr_mesh_check(
        t->mesh, tuttiAllReduce(levels, levels, 2, tuttiInt32, tuttiMin, t->mesh->world, NULL),
        "choosing the vector code"));
    t->backend = tr_backend_at(levels[0]);
    if (t->mesh->rank == 0 && levels[0] < -levels[1])
        printf("note: all ranks use the vector code %s: some processors, or a --cpu, allow no "
               "newer one\n",
               t->backend->name);
    return TR_OK;
}

/* After all that can fail: opening empties the file, which may hold the lines of an earlier run and
 * be part of the data. */
static tr_status open_log(struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    return tr_mesh_agree(t->mesh, tr_log_open(&t->log, t->mesh->rank == 0, config->log_every,
                                              config->log, config->resume[0] != 0));
}

/* How many threads this rank takes: those that were given, or its share of the host's cores. */
static tr_status choose_threads(struct tr_trainer *t, const struct tr_machine *limits)
{
    const struct tr_need need = tr_machine_need(limits, 0);
    struct tr_need *needs;
    int nneeds, own;
    TR_TRY(tr_place_needs(t->mesh, &need, &needs, &nneeds, &own));
    t->nthreads = (int)t->config.threads;
    if (!t->nthreads) t->nthreads = tr_machine_threads(limits, needs, nneeds, own);
    free(needs);
    return TR_OK;
}

/* Compares what the ranks of a host need with what there is, before a rank takes any: the system
 * would end a process that uses more, and not say why. */
static tr_status check_memory(const struct tr_trainer *t, const struct tr_setup *setup,
                              const struct tr_machine *limits)
{
    const struct tr_mesh *mesh = t->mesh;
    struct tr_need *needs;
    uint64_t mine = 0;
    int nneeds, own;
    TR_TRY(tr_mesh_agree(mesh, tr_setup_memory(setup, mesh->rank, &mine)));
    const struct tr_need need = tr_machine_need(limits, mine);
    TR_TRY(tr_place_needs(mesh, &need, &needs, &nneeds, &own));
    const tr_status status = tr_machine_check(limits, mesh->rank, needs, nneeds, own);
    free(needs);
    return tr_mesh_agree(mesh, status);
}

/* Takes this rank's share of the host: threads, and memory that is there. */
static tr_status share_host(struct tr_trainer *t, struct tr_setup *setup)
{
    const struct tr_mesh *mesh = t->mesh;
    struct tr_machine limits;
    tr_machine_read("", &limits);
    TR_TRY(choose_threads(t, &limits));
    setup->engine.nthreads = t->nthreads;
    TR_TRY(check_memory(t, setup, &limits));
    if (mesh->rank == 0 && t->nthreads > limits.cores.count)
        printf("note: the %d threads of rank 0 may run on %d core%s only, where they wait for each "
               "other%s\n",
               t->nthreads, limits.cores.count, limits.cores.count == 1 ? "" : "s",
               mesh->nranks > 1 ? " (tutti-run --bind none lets ranks use all cores)" : "");
    return tr_mesh_agree(mesh, tr_pool_open(t->nthreads, TR_ATTENTION_ROOM));
}

static void print_all_done(const struct tr_trainer *t)
{
    if (t->config.epochs > 0)
        printf("note: all of --epochs=%g are done, nothing is trained; a larger --epochs trains "
               "on\n",
               t->config.epochs);
    else
        printf("note: all of --steps=%lld are done, nothing is trained; a larger --steps trains "
               "on\n",
               (long long)t->total_steps);
}

/* Whether the folder of checkpoints has the loaded file under the name that the run would give it,
 * on every rank. */
static tr_status look_for_loaded(struct tr_trainer *t)
{
    char own[PATH_MAX];
    int32_t is_there = 0;
    if (t->mesh->rank == 0 && t->config.checkpoint[0] &&
        tr_ckpt_path(t->config.checkpoint, t->step, own, sizeof own) == TR_OK)
        is_there = tr_safetensors_is_at(t->resumed, own);
    TR_TRY(tr_mesh_check(
        t->mesh, tuttiBroadcast(&is_there, &is_there, 1, tuttiInt32, 0, t->mesh->world, NULL),
        "looking for the loaded checkpoint"));
    t->has_loaded = is_there;
    return TR_OK;
}

static tr_status load(struct tr_trainer *t, const char *path)
{
    TR_TRY(tr_ckpt_load(&t->engine, source(t), t->resumed, &t->loaded));
    const struct tr_state state = t->loaded;
    t->step = t->after = state.step;
    t->samples = state.samples;
    if (state.run) t->run = state.run;
    t->start = state.start;
    t->held_out = state.held_out;
    TR_TRY(look_for_loaded(t));
    t->spikes = state.spikes;
    count_steps(t);
    if (t->mesh->rank == 0) {
        printf("resumed from %s after step %lld\n", path, (long long)state.step);
        if (state.data_checksum != t->data_checksum)
            printf("note: the data are not those that the checkpoint was trained on\n");
        if (t->total_steps && state.step >= t->total_steps)
            print_all_done(t);
        else if (!t->config.checkpoint[0])
            printf("note: without --checkpoint=DIR this run keeps nothing of what it trains\n");
    }
    return TR_OK;
}

/* Rank 0: takes the number of this start, and tells of files that this run may replace. */
static void survey(struct tr_trainer *t)
{
    const char *folder = t->config.checkpoint;
    char name[NAME_MAX + 1];
    int64_t last;
    tr_ckpt_survey(folder, t->run, &t->start, name, &last);
    t->start++;
    if (last > t->step)
        printf("note: --checkpoint=%s holds later checkpoints of this run, the last of step %lld: "
               "this run replaces those of the steps that it writes (another folder keeps all)\n",
               folder, (long long)last);
    if (name[0])
        printf("note: --checkpoint=%s holds checkpoints of another run, the newest is %s: this run "
               "replaces those of the steps that it writes (--resume=%s/%s goes on with that one, "
               "another folder keeps all)\n",
               folder, name, folder, name);
}

/* Rank 0: tells of checkpoints that the disk will have no room for. */
static void note_space(const struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    const struct tr_state now = {
        .step = t->step, .run = t->run, .start = t->start, .after = t->after};
    const int64_t total = t->total_steps, every = config->every;
    struct tr_saves saves = {
        .count = every ? INFINITY : 1, .keep = config->keep, .keeps_best = config->eval_every > 0};
    if (total && total <= t->step)
        saves.count = t->has_loaded ? 0 : 1;
    else if (total && every)
        saves.count = (double)(total / every - t->step / every + (total % every != 0));
    tr_ckpt_note_space(config->checkpoint, &t->engine.store, &now, &saves);
}

/* Rank 0: before the first step. */
static tr_status look_at_folder(struct tr_trainer *t)
{
    survey(t);
    note_space(t);
    return t->total_steps > t->step ? tr_ckpt_check_last(t->config.checkpoint, t->total_steps)
                                    : TR_OK;
}

/* Memory for the copy of what is saved in the middle of the run. */
static tr_status take_snapshot(struct tr_trainer *t)
{
    size_t nbytes;
    TR_TRY(tr_ckpt_snapshot_bytes(&t->engine, &nbytes));
    if (!nbytes) return TR_OK;
    TR_TRY(tr_arena_create(&t->snapshot, t->backend, "snapshot", nbytes, false));
    t->snapshot.used = nbytes;
    return TR_OK;
}

tr_status tr_trainer_init(struct tr_trainer *t, struct tr_config *config, struct tr_mesh *mesh)
{
    *t = (struct tr_trainer){.config = *config,
                             .mesh = mesh,
                             .hold = TR_NO_HOLD,
                             .run = tr_ckpt_new_number(),
                             .held_out = NAN,
                             .asked = -1};
    config->more_notes = NULL; /* the trainer's now */
    struct tr_setup setup;
    char path[PATH_MAX] = "";
    TR_TRY(tr_place_ranks(mesh));
    TR_TRY(tr_mesh_same(mesh, tr_config_checksum(&t->config), "their options"));
    if (t->config.resume[0]) {
        TR_TRY(resume_options(t, path));
        /* An option that one rank alone was given may have the value that all others had then. */
        TR_TRY(tr_mesh_same(mesh, tr_config_checksum(&t->config), "their options"));
    }
    TR_TRY(tr_mesh_agree(mesh, prepare(t, &setup)));
    /* Options that follow from which others were given: the batch, for instance. */
    TR_TRY(tr_mesh_same(mesh, tr_config_checksum(&t->config), "their options"));
    TR_TRY(tr_mesh_same(mesh, t->data_checksum, "their data"));
    TR_TRY(choose_code(t));
    TR_TRY(tr_place_report(mesh));
    TR_TRY(share_host(t, &setup));
    TR_TRY(tr_engine_init(&t->engine, mesh, t->backend, &setup.engine));
    tr_status status = TR_OK;
    if (t->config.checkpoint[0] && mesh->rank == 0)
        status = tr_ckpt_check_space(t->config.checkpoint, &t->engine.store);
    if (status == TR_OK && t->config.every) status = take_snapshot(t);
    TR_TRY(tr_mesh_agree(mesh, status));
    if (t->config.generates) return tr_ckpt_load(&t->engine, source(t), t->resumed, &t->loaded);
    if (t->config.resume[0]) TR_TRY(load(t, path));
    close_resumed(t);
    if (t->config.checkpoint[0])
        TR_TRY(tr_mesh_agree(mesh, mesh->rank == 0 ? look_at_folder(t) : TR_OK));
    TR_TRY(open_log(t));
    tr_picture_open(t);
    return TR_OK;
}

void tr_trainer_fini(struct tr_trainer *t)
{
    tr_ckpt_give_up(t->saving);
    t->saving = NULL;
    tr_arena_fini(&t->snapshot);
    tr_engine_fini(&t->engine);
    tr_pool_close();
    tr_picture_end(t, NAN);
    tr_log_close(&t->log);
    tr_text_fini(&t->text);
    tr_ckpt_release(&t->hold);
    tr_safetensors_close(t->resumed);
    tr_config_fini(&t->config);
}

/* ---- What is run ------------------------------------------------------------------------------
 */

static void describe_mesh(const struct tr_trainer *t)
{
    const struct tr_engine *e = &t->engine;
    const struct tr_store *store = &e->store;
    char axes[TR_AXES_TEXT];
    tr_mesh_write_axes(t->mesh, axes);
    printf("ranks: %d%s; %s", t->mesh->nranks, axes, tr_setup_sharding_name(e->options.sharding));
    if (store->shard->n > 1) printf(", %d shards a unit", store->shard->n);
    if (store->replica->n > 1) printf(", %d replicas", store->replica->n);
    printf("; %lld sequences of %lld bytes a step\n", (long long)t->config.batch,
           (long long)t->config.context);
    if (t->mesh->size[TR_PP] > 1)
        printf("pipeline: %s, %d micro-batches of a rank and step, stage 0 has %d of %lld layers\n",
               e->schedule.kind == TR_1F1B ? "1F1B" : "GPipe", e->schedule.nbatches, e->nlayers,
               (long long)t->config.layers);
    char note[TR_NOTE_BYTES];
    tr_setup_idle_note(&t->config, &e->options, t->mesh->size, note);
    if (note[0]) printf("%s\n", note);
}

/* The largest of any rank, by kind. */
static tr_status describe_memory(const struct tr_trainer *t)
{
    const struct tr_engine *e = &t->engine;
    const struct tr_arena *const arenas[] = {&e->store.weights,   &e->store.gradients,
                                             &e->store.optimizer, &e->store.gathered,
                                             &e->activations,     &t->snapshot};
    static const char *const names[] = {"weights",  "gradients",   "optimizer",
                                        "gathered", "activations", "snapshot"};
    enum { N = sizeof arenas / sizeof arenas[0] };
    uint64_t used[N];
    for (int i = 0; i < N; ++i) used[i] = arenas[i]->used;
    TR_TRY(tr_mesh_check(t->mesh,
                         tuttiAllReduce(used, used, N, tuttiUint64, tuttiMax, t->mesh->world, NULL),
                         "asking all ranks for their memory"));
    if (t->mesh->rank != 0) return TR_OK;
    printf("memory of a rank%s:", t->mesh->nranks > 1 ? ", at most" : "");
    for (int i = 0; i < N; ++i)
        if (used[i]) printf("%s %s %.1f MiB", i ? "," : "", names[i], (double)used[i] / 1048576);
    printf("\n");
    return TR_OK;
}

tr_status tr_trainer_describe(const struct tr_trainer *t)
{
    if (t->mesh->rank == 0) {
        const struct tr_model *model = &t->engine.model;
        tr_config_print_notes(&t->config, stdout);
        tr_config_print(&t->config, stdout);
        printf("model: %zu parameters, %.1f MFLOP a token; vector code %s, %d thread%s a rank\n",
               model->params.count, tr_model_flops_per_token(&model->size) * 1e-6, t->backend->name,
               t->nthreads, t->nthreads == 1 ? "" : "s");
        printf("data: %zu bytes in %d file%s", t->text.nbytes, t->text.nfiles,
               t->text.nfiles == 1 ? "" : "s");
        if (t->text.nleft) printf(" (%d passed over)", t->text.nleft);
        printf(", the last %zu held out; %llu windows an epoch", t->text.nbytes - t->text.ntrain,
               (unsigned long long)t->epochs.windows);
        if (t->config.epochs > 0)
            printf("; --epochs=%g ends with step %lld", t->config.epochs,
                   (long long)t->total_steps);
        printf("\n%s%s", t->text.warning, t->text.warning[0] ? "\n" : "");
        describe_mesh(t);
        tr_rate_print_notes(&t->config, t->total_steps, stdout);
    }
    TR_TRY(describe_memory(t));
    fflush(stdout);
    return TR_OK;
}
