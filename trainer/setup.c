/* Derives the mesh and the engine's options from the options of the user. */
#include "setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peak.h"

/* "pp 2 x tp 4": the axes that exceed 1. */
static void name_axes(const int64_t size[TR_NUM_AXES], char *out, size_t nbytes)
{
    size_t n = 0;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (size[axis] > 1 && n < nbytes)
            n += (size_t)snprintf(out + n, nbytes - n, "%s--%s=%lld", n ? " x " : "",
                                  tr_axis_names[axis], (long long)size[axis]);
}

/* The product of the axes but for dp. */
static int64_t product_of(const int64_t size[TR_NUM_AXES])
{
    int64_t product = 1;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (axis != TR_DP)
            product = product * size[axis] < 1 << 30 ? product * size[axis] : 1 << 30;
    return product;
}

/* dp becomes what the other axes leave. */
static tr_status take_the_rest(int64_t size[TR_NUM_AXES], int nranks)
{
    const int64_t product = product_of(size), below = nranks / product * product;
    char axes[160] = "";
    name_axes(size, axes, sizeof axes);
    if (nranks % product && below)
        return tr_fail("%s are %lld ranks, which do not divide the %d ranks that there are; the "
                       "nearest numbers of ranks that work are %lld and %lld",
                       axes, (long long)product, nranks, (long long)below,
                       (long long)(below + product));
    if (nranks % product)
        return tr_fail("%s are %lld ranks, but there %s %d; start %lld (tutti-run -n %lld ...), or "
                       "make the axes smaller",
                       axes, (long long)product, nranks == 1 ? "is" : "are", nranks,
                       (long long)product, (long long)product);
    size[TR_DP] = nranks / product;
    return TR_OK;
}

static tr_status check_product(int64_t size[TR_NUM_AXES], int nranks)
{
    const int64_t product = product_of(size), all = product * size[TR_DP];
    if (all == nranks) return TR_OK;
    char axes[160] = "", rest[64] = "";
    name_axes(size, axes, sizeof axes);
    if (nranks % product == 0)
        snprintf(rest, sizeof rest, ", or take --dp=%lld", (long long)(nranks / product));
    return tr_fail("%s %s %lld ranks, but there %s %d; start %lld ranks%s",
                   axes[0] ? axes : "--dp=1", strstr(axes, " x ") ? "are" : "is", (long long)all,
                   nranks == 1 ? "is" : "are", nranks, (long long)all, rest);
}

static tr_status shape_mesh(const struct tr_config *config, int nranks, int mesh[TR_NUM_AXES])
{
    int64_t size[TR_NUM_AXES] = {
        [TR_PP] = config->pp,     [TR_DP] = config->dp, [TR_FSDP] = config->fsdp,
        [TR_RING] = config->ring, [TR_TP] = config->tp, [TR_ULYSSES] = config->ulysses};
    if (size[TR_DP])
        TR_TRY(check_product(size, nranks));
    else
        TR_TRY(take_the_rest(size, nranks));
    if (config->zero == 3 && size[TR_FSDP] > 1 && size[TR_DP] > 1)
        return tr_fail("--zero=3 shards over all of dp's ranks, --fsdp=%lld leaves %lld replicas: "
                       "take --fsdp=%lld without --zero for these replicas, or --zero=3 without "
                       "--fsdp (as --fsdp=%lld) for none",
                       (long long)size[TR_FSDP], (long long)size[TR_DP], (long long)size[TR_FSDP],
                       (long long)(size[TR_FSDP] * size[TR_DP]));
    if (config->zero == 3 && size[TR_FSDP] == 1) {
        size[TR_FSDP] = size[TR_DP];
        size[TR_DP] = 1;
    }
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) mesh[axis] = (int)size[axis];
    return TR_OK;
}

static tr_status choose_sharding(const struct tr_config *config, enum tr_sharding *sharding)
{
    const long long zero = config->zero, fsdp = config->fsdp;
    if ((zero == 1 || zero == 2) && fsdp > 1)
        return tr_fail("--zero=%lld shards over dp, --fsdp=%lld over fsdp: take --zero=%lld with "
                       "--fsdp=1, or --fsdp=%lld without --zero, which shards the weights, too "
                       "(as --zero=3 does over all of dp's ranks)",
                       zero, fsdp, zero, fsdp);
    *sharding = zero == 1               ? TR_ZERO1
                : zero == 2             ? TR_ZERO2
                : zero == 3 || fsdp > 1 ? TR_ZERO3
                                        : TR_DDP;
    if (*sharding < TR_ZERO2 && config->reduce == TR_REDUCE_EACH &&
        tr_config_given(config, TR_OPTION_reduce))
        return tr_fail("--reduce=each: %s keeps whole gradients and reduces them once a step; give "
                       "--zero=2, --zero=3 or --fsdp=N, or take --reduce=last",
                       tr_setup_sharding_name(*sharding));
    if (*sharding != TR_ZERO3 && config->reshard == TR_RESHARD_ALWAYS)
        return tr_fail("--reshard=always: %s keeps whole weights on every rank; give --zero=3 or "
                       "--fsdp=N, or take --reshard=auto",
                       tr_setup_sharding_name(*sharding));
    return TR_OK;
}

/* Refuses what the 64 bits of sizes cannot count, before anything is multiplied in them. */
static tr_status check_sizes(const struct tr_setup *setup)
{
    const struct tr_engine_options *o = &setup->engine;
    const struct tr_model_size *m = &o->model;
    const double bytes = tr_engine_bound(o, setup->size);
    if (bytes < 0x1p62) return TR_OK;
    return tr_fail("--batch=%ld --micro-batch=%ld --context=%ld --layers=%ld --width=%ld "
                   "--hidden=%ld --vocabulary=%ld: together they are too large, a rank could need "
                   "up to %.0e bytes and at most %.0e can be counted; make one of them smaller",
                   o->batch, o->micro_batch, m->context, m->layers, m->width, m->hidden,
                   m->vocabulary, bytes, 0x1p62);
}

/* Appends to an error which options of the mesh the user did not give: those of the checkpoint. */
static tr_status name_sources(const struct tr_config *config, tr_status status)
{
    char why[1024], options[256] = "";
    size_t n = 0;
    if (status == TR_OK) return TR_OK;
    for (int id = TR_OPTION_pp; id <= TR_OPTION_reshard; ++id) {
        const struct tr_option *option = tr_config_option(id);
        char value[TR_TEXT_BYTES];
        tr_config_value(config, id, value);
        if (config->source[id] == TR_FROM_CHECKPOINT && strcmp(value, option->initial) != 0 &&
            n < sizeof options)
            n += (size_t)snprintf(options + n, sizeof options - n, " --%s=%s", option->name, value);
    }
    if (!n) return status;
    snprintf(why, sizeof why, "%s", tr_error());
    return tr_fail("%s (the checkpoint brought%s; give other values for another layout)", why,
                   options);
}

static long rounded_up(long n, long by)
{
    return (n + by - 1) / by;
}

/* The largest micro-batch with which a pipeline has enough of them, of `most` sequences of a rank;
 * 1 where these are too few. All micro-batches have nearly the same size. */
static long micro_batch_for(int nstages, long most)
{
    const long enough = tr_schedule_enough(nstages);
    if (most < enough) return 1;
    return rounded_up(most, rounded_up(most, most / enough));
}

/* A micro-batch that nobody has chosen is small enough for the stages of a pipeline. */
static void fit_pipeline(struct tr_config *config, const int size[TR_NUM_AXES])
{
    const long parts = (long)size[TR_DP] * size[TR_FSDP];
    if (size[TR_PP] == 1 || config->source[TR_OPTION_micro_batch] != TR_FROM_DEFAULT) return;
    const long fitting = micro_batch_for(size[TR_PP], rounded_up((long)config->batch, parts));
    if (fitting < config->micro_batch) config->micro_batch = fitting;
}

/* Where the batch or the micro-batch follows from --accumulate and the other: batch = micro-batch x
 * accumulate x ranks that have sequences of their own. An --accumulate of a file gives way to a
 * command line that gives one of the other two. */
static tr_status fit_batch(struct tr_config *config, const int size[TR_NUM_AXES], bool *yields)
{
    const enum tr_source *source = config->source;
    const bool has_batch = tr_config_given(config, TR_OPTION_batch);
    const bool has_micro =
        tr_config_given(config, TR_OPTION_micro_batch) &&
        (!has_batch || source[TR_OPTION_micro_batch] == source[TR_OPTION_accumulate]);
    const int64_t parts = (int64_t)size[TR_DP] * size[TR_FSDP], passes = config->accumulate;
    *yields = passes && (source[TR_OPTION_batch] > source[TR_OPTION_accumulate] ||
                         source[TR_OPTION_micro_batch] > source[TR_OPTION_accumulate]);
    if (!passes || *yields) {
        fit_pipeline(config, size);
        return TR_OK;
    }
    const int64_t all = config->micro_batch * passes * parts;
    if (!has_batch) {
        const double highest = tr_config_option(TR_OPTION_batch)->highest;
        config->batch = all;
        if ((double)all <= highest) return TR_OK;
        return tr_fail("--micro-batch=%lld x --accumulate=%lld x %lld ranks with sequences of "
                       "their own are %lld sequences a step, at most %.0f are possible",
                       (long long)config->micro_batch, (long long)passes, (long long)parts,
                       (long long)all, highest);
    }
    if (has_micro && config->batch != all)
        return tr_fail("--batch=%lld is not --micro-batch=%lld x --accumulate=%lld x %lld ranks "
                       "with sequences of their own = %lld; leave one of the three out",
                       (long long)config->batch, (long long)config->micro_batch, (long long)passes,
                       (long long)parts, (long long)all);
    const int64_t unit = passes * parts, beyond = config->batch % unit;
    const bool is_below = config->batch > unit && beyond <= unit / 2;
    if (beyond)
        return tr_fail("--batch=%lld cannot be divided by --accumulate=%lld x %lld ranks with "
                       "sequences of their own; the nearest that can is %lld",
                       (long long)config->batch, (long long)passes, (long long)parts,
                       (long long)(config->batch - beyond + (is_below ? 0 : unit)));
    config->micro_batch = config->batch / (passes * parts);
    const double highest = tr_config_option(TR_OPTION_micro_batch)->highest;
    if ((double)config->micro_batch <= highest) return TR_OK;
    return tr_fail("--batch=%lld with --accumulate=%lld makes micro-batches of %lld sequences, at "
                   "most %.0f are possible; give a larger --accumulate",
                   (long long)config->batch, (long long)passes, (long long)config->micro_batch,
                   highest);
}

static enum tr_activation_kind activation_of(const struct tr_config *config)
{
    if (config->activation == TR_ACTIVATION_AUTO)
        return tr_architectures[config->model]->activation; /* of a gated MLP, which takes none */
    return (enum tr_activation_kind)(config->activation - TR_ACTIVATION_FIRST);
}

static tr_status derive(const struct tr_config *given, int nranks, struct tr_setup *setup)
{
    struct tr_config config = *given;
    tr_config_resolve(&config);
    *setup = (struct tr_setup){0};
    TR_TRY(shape_mesh(&config, nranks, setup->size));
    TR_TRY(fit_batch(&config, setup->size, &setup->yields));
    setup->engine = (struct tr_engine_options){
        .model = {.kind = (enum tr_model_kind)config.model,
                  .layers = (long)config.layers,
                  .heads = (long)config.heads,
                  .kv_heads = (long)config.kv_heads,
                  .width = (long)config.width,
                  .hidden = (long)config.hidden,
                  .vocabulary = (long)config.vocabulary,
                  .context = (long)config.context,
                  .tied = config.tied == TR_TIED_ON,
                  .activation = activation_of(&config)},
        .schedule = (enum tr_schedule_kind)config.pipeline,
        .zigzag = config.ring_order == TR_ZIGZAG,
        .reduce_last = config.reduce == TR_REDUCE_LAST,
        .reshard_always = config.reshard == TR_RESHARD_ALWAYS,
        .deterministic = config.deterministic != 0,
        .inference = config.generates,
        .nthreads = (int)config.threads,
        .batch = (long)config.batch,
        .micro_batch = (long)config.micro_batch,
        .bucket_bytes = (size_t)config.bucket_kib * 1024,
        .seed = (uint64_t)config.seed,
    };
    setup->engine.optimizer = tr_setup_optimizer(&config, 1, config.lr);
    setup->snapshot = config.every > 0 && !config.generates;
    setup->times_products = tr_peak_is_wanted(&config);
    return choose_sharding(&config, &setup->engine.sharding);
}

tr_status tr_setup_of(const struct tr_config *config, int nranks, struct tr_setup *setup)
{
    TR_TRY(name_sources(config, derive(config, nranks, setup)));
    TR_TRY(check_sizes(setup));
    return tr_model_check(&setup->engine.model, setup->size[TR_TP]);
}

void tr_setup_adopt(struct tr_config *config, const struct tr_setup *setup)
{
    const int64_t before = config->batch;
    config->batch = setup->engine.batch;
    if (config->micro_batch != setup->engine.micro_batch &&
        config->source[TR_OPTION_micro_batch] == TR_FROM_CHECKPOINT)
        config->source[TR_OPTION_micro_batch] = TR_FROM_DEFAULT; /* it follows from others */
    config->micro_batch = setup->engine.micro_batch;
    if (setup->yields) {
        config->accumulate = 0;
        config->source[TR_OPTION_accumulate] = TR_FROM_DEFAULT;
    }
    if (config->source[TR_OPTION_batch] == TR_FROM_CHECKPOINT && config->batch != before)
        tr_config_note(config,
                       "note: --accumulate=%lld makes a step of %lld sequences; the checkpoint has "
                       "%lld\n",
                       (long long)config->accumulate, (long long)config->batch, (long long)before);
}

/* The options that give a pipeline enough micro-batches, and how many these are. */
static long mend_idle(const struct tr_config *config, const struct tr_engine_options *o,
                      const int size[TR_NUM_AXES], char options[64])
{
    const long enough = tr_schedule_enough(size[TR_PP]), parts = (long)size[TR_DP] * size[TR_FSDP],
               most = rounded_up(o->batch, parts);
    const bool follows =
        config->accumulate && o->micro_batch * config->accumulate * parts == o->batch;
    long passes = enough;
    if (follows && !tr_config_given(config, TR_OPTION_batch)) {
        snprintf(options, 64, "--accumulate=%ld", enough);
        return enough;
    }
    if (most < enough) {
        snprintf(options, 64, "--batch=%ld %s=%ld", enough * parts,
                 follows ? "--accumulate" : "--micro-batch", follows ? enough : 1);
        return enough;
    }
    if (follows) {
        while (most % passes) ++passes;
        snprintf(options, 64, "--accumulate=%ld", passes);
        return passes;
    }
    const long micro = micro_batch_for(size[TR_PP], most);
    snprintf(options, 64, "--micro-batch=%ld", micro);
    return rounded_up(most, micro);
}

void tr_setup_idle_note(const struct tr_config *config, const struct tr_engine_options *options,
                        const int size[TR_NUM_AXES], char note[TR_NOTE_BYTES])
{
    const int stages = size[TR_PP];
    const long batches = tr_engine_micro_batches(options, size);
    char mend[64];
    note[0] = 0;
    if (batches >= tr_schedule_enough(stages)) return;
    const long more = mend_idle(config, options, size, mend);
    snprintf(note, TR_NOTE_BYTES,
             "note: with %ld micro-batch%s a step the stages of the pipeline idle %.0f %% of it, "
             "with %ld they idle %.0f %%: %s",
             batches, batches == 1 ? "" : "es", 100 * tr_schedule_idle(stages, batches), more,
             100 * tr_schedule_idle(stages, more), mend);
}

int tr_setup_tied(const struct tr_setup *setup, int stage)
{
    const int last = setup->size[TR_PP] - 1;
    return setup->engine.model.tied && last > 0 && (stage == 0 || stage == last) ? last - stage
                                                                                 : -1;
}

/* Bytes for the threads of a rank beyond one, and for the products that are timed. */
static uint64_t beside_arenas(const struct tr_setup *setup)
{
    const int nthreads = setup->engine.nthreads > 1 ? setup->engine.nthreads : 1;
    return tr_resident_threads(nthreads) + (setup->times_products ? tr_peak_bytes(nthreads) : 0);
}

void tr_setup_resident_of(const struct tr_setup *setup, const struct tr_memory *own,
                          const struct tr_memory *tied, struct tr_resident *resident)
{
    tr_resident_of(setup->size, setup->engine.sharding, own, tied, resident);
    resident->process += (double)beside_arenas(setup);
}

void tr_setup_trim(const struct tr_setup *setup, struct tr_rehearsal *rehearsal)
{
    if (!setup->snapshot) rehearsal->memory.snapshot = 0;
}

tr_status tr_setup_resident(const struct tr_setup *setup, int rank, struct tr_resident *resident)
{
    const int stages = setup->size[TR_PP], each = tr_mesh_extent(setup->size, TR_AXES_ALL) / stages;
    const int stage = rank / each, tied = tr_setup_tied(setup, stage);
    struct tr_rehearsal own, other;
    TR_TRY(tr_rehearse_memory(setup->size, &setup->engine, rank, &own));
    tr_setup_trim(setup, &own);
    if (tied >= 0)
        TR_TRY(
            tr_rehearse_memory(setup->size, &setup->engine, rank + (tied - stage) * each, &other));
    tr_setup_resident_of(setup, &own.memory, tied >= 0 ? &other.memory : NULL, resident);
    return TR_OK;
}

tr_status tr_setup_memory(const struct tr_setup *setup, int rank, uint64_t *nbytes)
{
    struct tr_rehearsal rehearsal;
    TR_TRY(tr_rehearse_memory(setup->size, &setup->engine, rank, &rehearsal));
    tr_setup_trim(setup, &rehearsal);
    *nbytes = tr_memory_sum(&rehearsal.memory) + beside_arenas(setup);
    return TR_OK;
}

struct tr_optimizer tr_setup_optimizer(const struct tr_config *config, int64_t t, double lr)
{
    return (struct tr_optimizer){.kind = (enum tr_optimizer_kind)config->optimizer,
                                 .lr = lr,
                                 .beta1 = config->beta1,
                                 .beta2 = config->beta2,
                                 .eps = config->eps,
                                 .decay = config->decay,
                                 .momentum = config->momentum,
                                 .nesterov = config->nesterov != 0,
                                 .adjust = (enum tr_adjust)config->adjust_lr,
                                 .trust_min = config->trust_min,
                                 .trust_max = config->trust_max,
                                 .t = t};
}

/* Whether the optimizers of these options keep the same states of every tensor. */
static bool keep_the_same(const struct tr_config *a, const struct tr_config *b)
{
    static const struct tr_subject subjects[] = {{.ndim = 1, .shape = {1, 1}},
                                                 {.ndim = 2, .shape = {1, 1}},
                                                 {.ndim = 2, .shape = {1, 1}, .hidden = true}};
    const struct tr_optimizer first = tr_setup_optimizer(a, 1, a->lr),
                              second = tr_setup_optimizer(b, 1, b->lr);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; ++i) {
        enum tr_state_shape x[TR_MOST_STATES] = {0}, y[TR_MOST_STATES] = {0};
        const int n = tr_optimizer_rule(&first)->states(&first, &subjects[i], x);
        if (tr_optimizer_rule(&second)->states(&second, &subjects[i], y) != n) return false;
        if (memcmp(x, y, (size_t)n * sizeof *x) != 0) return false;
    }
    return true;
}

/* The value as a user writes it: 0.9, where 17 digits tell it apart from all others. */
static void value_for_people(const struct tr_config *config, int id, char out[TR_TEXT_BYTES])
{
    tr_config_value(config, id, out);
    if (tr_config_option(id)->type == TR_TYPE_REAL)
        snprintf(out, TR_TEXT_BYTES, "%g", strtod(out, NULL));
}

/* Fails when an option that was given makes the optimizer keep other states than the checkpoint
 * has. */
static tr_status check_states(const struct tr_config *config, const struct tr_config *saved,
                              const char *path)
{
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const char *name = tr_config_option(id)->name;
        struct tr_config other = *saved;
        char given[TR_TEXT_BYTES], value[TR_TEXT_BYTES];
        if (!tr_config_given(config, id)) continue;
        tr_config_value(config, id, given);
        TR_TRY(tr_config_set(&other, name, given, TR_FROM_COMMAND_LINE));
        if (keep_the_same(&other, saved)) continue;
        value_for_people(config, id, given);
        value_for_people(saved, id, value);
        return tr_fail("--%s=%.32s, but %s was written with --%s=%.32s, with which the optimizer "
                       "keeps other numbers of each tensor; leave the option out",
                       name, given, path, name, value);
    }
    return TR_OK;
}

tr_status tr_setup_resume(struct tr_config *config, const char *json, const char *path)
{
    struct tr_config saved;
    tr_config_init(&saved);
    TR_TRY(tr_config_restore(config, json, path));
    TR_TRY(tr_config_restore(&saved, json, path));
    return check_states(config, &saved, path);
}

const char *tr_setup_sharding_name(enum tr_sharding sharding)
{
    static const char *const names[] = {"DDP", "ZeRO-1", "ZeRO-2", "FSDP (ZeRO-3)"};
    return names[sharding];
}
