/* Opens, describes, saves and closes a run. */
#include "trainer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "watch/clock.h"

static tr_status check_run(const struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    TR_TRY(tr_config_check(config));
    if (config->batch < t->mesh->nranks)
        return tr_fail(
            "--batch=%lld sequences cannot be shared by %d ranks: every rank needs at least one",
            (long long)config->batch, t->mesh->nranks);
    if (!t->ops)
        return tr_fail("--cpu=%s: expected v4, v3 or baseline, and one that this processor can run",
                       config->cpu);
    return TR_OK;
}

/* The arenas, one allocation each. */
static tr_status take_memory(struct tr_trainer *t)
{
    const size_t total = t->gpt.params.total, f = sizeof(float);
    const size_t tokens = (size_t)(t->micro * t->gpt.size.context);
    struct tr_arena count = {0};
    struct tr_acts counted;
    tr_gpt_take_acts(&t->gpt, &count, t->micro, &counted);
    TR_TRY(tr_arena_create(&t->weights, "weights", total * f, false));
    TR_TRY(tr_arena_create(&t->gradients, "gradients", total * f, t->mesh->nranks > 1));
    TR_TRY(tr_arena_create(&t->optimizer, "optimizer", 2 * total * f, false));
    TR_TRY(tr_arena_create(&t->activations, "activations", count.used + 2 * tokens + 128, false));
    tr_arena_take(&t->weights, total, f);
    tr_arena_take(&t->gradients, total, f);
    t->m = tr_arena_take(&t->optimizer, total, f);
    t->v = tr_arena_take(&t->optimizer, total, f);
    tr_gpt_take_acts(&t->gpt, &t->activations, t->micro, &t->acts);
    t->tokens = tr_arena_take(&t->activations, tokens, 1);
    t->targets = tr_arena_take(&t->activations, tokens, 1);
    return TR_OK;
}

/* What each rank can do alone: options, data, model, memory. */
static tr_status prepare(struct tr_trainer *t)
{
    struct tr_config *config = &t->config;
    char path[PATH_MAX];
    if (config->resume[0]) {
        TR_TRY(tr_ckpt_find(config->resume, path, sizeof path));
        TR_TRY(tr_ckpt_read_config(path, config));
    }
    if (config->checkpoint[0] && t->mesh->rank == 0) TR_TRY(tr_ckpt_prepare(config->checkpoint));
    t->ops = tr_ops_choose(config->cpu);
    TR_TRY(check_run(t));
    tr_process_tune((int)config->threads);
    TR_TRY(tr_text_read(&t->text, config->data, config->held_out, (long)config->context));
    t->data_checksum = tr_checksum(t->text.bytes, t->text.nbytes);
    const struct tr_gpt_size size = {(long)config->layers, (long)config->heads, (long)config->width,
                                     (long)config->context};
    TR_TRY(tr_gpt_init(&t->gpt, size, t->ops));
    long first, most;
    tr_layout_slice((long)config->batch, t->mesh->nranks, 0, &first, &most);
    t->micro = most < config->micro_batch ? most : (long)config->micro_batch;
    t->total_steps = config->steps ? config->steps : config->seconds > 0 ? 0 : 2000;
    TR_TRY(take_memory(t));
    return tr_log_open(&t->log, t->mesh->rank == 0, config->log_every, config->log,
                       config->resume[0] != 0);
}

static struct tr_state state_of(struct tr_trainer *t)
{
    return (struct tr_state){.params = &t->gpt.params,
                             .weights = t->weights.base,
                             .m = t->m,
                             .v = t->v,
                             .step = t->step,
                             .samples = t->samples,
                             .data_checksum = t->data_checksum};
}

/* Rank 0 reads the checkpoint; the others need not see the file's tensors. */
static tr_status load(struct tr_trainer *t)
{
    struct tr_state state = state_of(t);
    tr_status status = TR_OK;
    char path[PATH_MAX];
    if (t->mesh->rank == 0) {
        status = tr_ckpt_find(t->config.resume, path, sizeof path);
        if (status == TR_OK) status = tr_ckpt_load(path, &state);
    }
    TR_TRY(tr_mesh_agree(t->mesh, status));
    if (t->mesh->rank == 0) {
        printf("resumed from %s after step %lld\n", path, (long long)state.step);
        if (state.data_checksum != t->data_checksum)
            printf("note: the data are not those that the checkpoint was trained on\n");
    }
    float *const arenas[] = {state.weights, state.m, state.v};
    static const char what[] = "sharing the checkpoint";
    for (int i = 0; i < 3; ++i)
        TR_TRY(tr_mesh_check(t->mesh,
                             tuttiBroadcast(arenas[i], arenas[i], t->gpt.params.total, tuttiFloat32,
                                            0, t->mesh->world, NULL),
                             what));
    int64_t numbers[2] = {state.step, (int64_t)state.samples};
    TR_TRY(tr_mesh_check(
        t->mesh, tuttiBroadcast(numbers, numbers, 2, tuttiInt64, 0, t->mesh->world, NULL), what));
    t->step = numbers[0];
    t->samples = (uint64_t)numbers[1];
    return TR_OK;
}

/* Options that each rank may have differently are left out: where it writes and how it computes. */
static uint64_t checksum_of_options(const struct tr_config *config)
{
    uint64_t sum = 0;
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES];
        tr_config_value(config, id, value);
        const enum tr_option_group group = tr_config_option(id)->group;
        if (group != TR_GROUP_RUN && id != TR_OPTION_cpu && id != TR_OPTION_threads &&
            id != TR_OPTION_data)
            sum = (sum << 1 | sum >> 63) ^ tr_checksum(value, strlen(value));
    }
    return sum;
}

tr_status tr_trainer_init(struct tr_trainer *t, const struct tr_config *config,
                          const struct tr_mesh *mesh)
{
    *t = (struct tr_trainer){.config = *config, .mesh = mesh};
    TR_TRY(tr_mesh_agree(mesh, prepare(t)));
    TR_TRY(tr_mesh_same(mesh, checksum_of_options(&t->config), "their options"));
    TR_TRY(tr_mesh_same(mesh, t->data_checksum, "their data"));
    tr_params_initialize(&t->gpt.params, t->weights.base, (uint64_t)t->config.seed);
    if (t->config.resume[0]) TR_TRY(load(t));
    const tr_status status = tr_ddp_init(&t->ddp, mesh, &t->gpt.params, t->gradients.base,
                                         (size_t)t->config.bucket_kib * 1024);
    return tr_mesh_agree(mesh, status);
}

void tr_trainer_fini(struct tr_trainer *t)
{
    tr_ddp_fini(&t->ddp);
    tr_log_close(&t->log);
    tr_gpt_fini(&t->gpt);
    tr_text_fini(&t->text);
    tr_arena_fini(&t->weights);
    tr_arena_fini(&t->gradients);
    tr_arena_fini(&t->optimizer);
    tr_arena_fini(&t->activations);
}

void tr_trainer_describe(const struct tr_trainer *t)
{
    if (t->mesh->rank != 0) return;
    tr_config_print(&t->config, stdout);
    const struct tr_arena *const arenas[] = {&t->weights, &t->gradients, &t->optimizer,
                                             &t->activations};
    printf("memory of a rank:");
    for (int i = 0; i < 4; ++i)
        printf(" %s %.1f MiB%s", arenas[i]->tag, (double)arenas[i]->used / 1048576,
               i < 3 ? "," : "\n");
    printf("model: %zu parameters, %.1f MFLOP a token; vector code %s\n", t->gpt.params.count,
           tr_gpt_flops_per_token(&t->gpt) * 1e-6, t->ops->name);
    printf("data: %zu bytes in %d files, the last %zu held out; %llu windows an epoch\n",
           t->text.nbytes, t->text.nfiles, t->text.nbytes - t->text.ntrain,
           (unsigned long long)tr_sampler_windows(&t->text, t->gpt.size.context));
    printf("ranks: %d, %lld sequences of %lld bytes a step, %d buckets\n", t->mesh->nranks,
           (long long)t->config.batch, (long long)t->config.context, t->ddp.nbuckets);
    fflush(stdout);
}

tr_status tr_trainer_save(struct tr_trainer *t)
{
    TR_TRY(tr_mesh_same(t->mesh, tr_checksum(t->weights.base, t->gpt.params.total * sizeof(float)),
                        "their weights"));
    tr_status status = TR_OK;
    if (t->mesh->rank == 0) {
        const struct tr_state state = state_of(t);
        char path[PATH_MAX];
        status = tr_ckpt_save(t->config.checkpoint, &state, &t->config, path, sizeof path);
        if (status == TR_OK) printf("wrote %s\n", path);
    }
    return tr_mesh_agree(t->mesh, status);
}
