/* Runs one layout and compares with the oracle. */
#include "grid.h"
#include "floats.h"
#include "param_get.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the oracle found, on every rank. */
struct expected {
    struct oracle oracle;
    double *weights[3], *gradients; /* weights: before, after one step, after two */
    double loss, norm, tokens, scale;
    double largest; /* of all gradients of the first step */
};

enum { SEED = 11 };

/* Ends the program: nothing else is right to compare with. */
static _Noreturn void lacks(const char *what)
{
    fprintf(stderr, "grid: the oracle does not compute %s (tests/trainer/grid.c)\n", what);
    exit(2);
}

static enum oracle_kind oracle_kind_of(enum tr_model_kind kind)
{
    if (kind == TR_GPT2) return ORACLE_GPT2;
    if (kind == TR_LLAMA) return ORACLE_LLAMA;
    lacks("this architecture");
}

static enum oracle_activation oracle_activation_of(enum tr_activation_kind kind)
{
    if (kind == TR_GELU) return ORACLE_GELU;
    if (kind == TR_RELU) return ORACLE_RELU;
    if (kind == TR_RELU2) return ORACLE_RELU2;
    lacks("this activation");
}

static struct oracle_shape shape_of(const struct tr_model_size *size)
{
    return (struct oracle_shape){.kind = oracle_kind_of(size->kind),
                                 .layers = size->layers,
                                 .heads = size->heads,
                                 .kv_heads = size->kv_heads,
                                 .width = size->width,
                                 .hidden = size->hidden,
                                 .vocabulary = size->vocabulary,
                                 .context = size->context,
                                 .tied = size->tied,
                                 .theta = tr_architectures[size->kind]->rope_theta,
                                 .activation = oracle_activation_of(size->activation)};
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static bool counts(const struct grid_case *test, uint64_t number, long at)
{
    const long context = test->options.model.context;
    switch (test->mask) {
    case GRID_ALL:
        return true;
    case GRID_RANDOM:
        return mix(number * 1000 + (uint64_t)at + 5) % 3 != 0;
    case GRID_ONE:
        return number % (uint64_t)test->options.batch == 0 && at == context / 2;
    case GRID_FIRST_HALF:
        return at < context / 2;
    case GRID_NONE:
        return number >= (uint64_t)test->options.batch;
    case GRID_NEVER:
        return false;
    }
    return false;
}

/* The feed of the trainer and of the oracle. */
static void sample(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                   float *weights)
{
    const struct grid_case *test = arg;
    const uint64_t v = (uint64_t)test->options.model.vocabulary;
    for (long i = 0; i < context; ++i) {
        ids[i] = (int32_t)(mix(number * 100003 + (uint64_t)i) % v);
        targets[i] = (int32_t)(mix(number * 100003 + (uint64_t)i + 1) % v);
        weights[i] = counts(test, number, i);
    }
}

/* Loss and gradients of one step, by the oracle. */
static void oracle_step(const struct grid_case *test, struct expected *x, int step, double *loss,
                        double *tokens, double *gradients)
{
    const long n = test->options.batch, s = test->options.model.context;
    int32_t *ids = malloc((size_t)(n * s) * sizeof *ids),
            *targets = malloc((size_t)(n * s) * sizeof *ids);
    float *weights = malloc((size_t)s * sizeof *weights);
    double *wide = malloc((size_t)(n * s) * sizeof *wide);
    *tokens = 0;
    for (long b = 0; b < n; ++b) {
        sample((void *)(uintptr_t)test, (uint64_t)(step * n + b), s, ids + b * s, targets + b * s,
               weights);
        for (long i = 0; i < s; ++i) *tokens += wide[b * s + i] = (double)weights[i];
    }
    const struct oracle_batch batch = {ids, targets, wide, n, s};
    memset(gradients, 0, (size_t)x->oracle.total * sizeof *gradients);
    *loss = oracle_loss(&x->oracle, x->weights[step], gradients, &batch);
    free(ids);
    free(targets);
    free(weights);
    free(wide);
}

static struct tr_optimizer optimizer_of(enum tr_optimizer_kind kind, int t)
{
    return (struct tr_optimizer){.kind = kind,
                                 .lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 0.01,
                                 .decay = 0.1,
                                 .momentum = 0.9,
                                 .nesterov = true,
                                 .adjust = TR_ADJUST_MATCH_RMS,
                                 .trust_min = 0.01,
                                 .trust_max = kind == TR_LAMB ? 3 : 10,
                                 .t = t};
}

static const double clip_at = 0.5;

static void oracle_update(struct expected *x, enum tr_optimizer_kind kind, int t, double *m,
                          double *v, const double *gradients, double scale)
{
    double *w = x->weights[t];
    memcpy(w, x->weights[t - 1], (size_t)x->oracle.total * sizeof *w);
    const struct tr_optimizer o = optimizer_of(kind, t);
    if (kind == TR_MUON) {
        const struct oracle_adamw adamw = {o.lr, o.beta1, o.beta2, o.eps, o.decay, scale};
        oracle_muon_step(&x->oracle, w, gradients, m, v, t, &adamw, o.momentum);
    } else if (kind == TR_LAMB) {
        const struct oracle_adamw adamw = {o.lr, o.beta1, o.beta2, o.eps, o.decay, scale};
        oracle_lamb_step(&x->oracle, w, gradients, m, v, t, &adamw, o.trust_min, o.trust_max);
    } else if (kind == TR_SGD) {
        const struct oracle_sgd sgd = {o.lr, o.momentum, o.decay, scale};
        oracle_sgd_step(&x->oracle, w, gradients, m, &sgd);
    } else if (kind == TR_ADAMW) {
        const struct oracle_adamw adamw = {o.lr, o.beta1, o.beta2, o.eps, o.decay, scale};
        oracle_adamw_step(&x->oracle, w, gradients, m, v, t, &adamw);
    } else {
        lacks("this optimizer");
    }
}

static bool expect(const struct grid_case *test, struct expected *x)
{
    if (!oracle_init(&x->oracle, shape_of(&test->options.model))) return false;
    const size_t n = (size_t)x->oracle.total;
    for (int i = 0; i < 3; ++i) x->weights[i] = calloc(n, sizeof(double));
    x->gradients = calloc(n, sizeof(double));
    double *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v), *g = calloc(n, sizeof *g);
    oracle_fill(&x->oracle, x->weights[0], SEED);
    for (int t = 1; t <= 2; ++t) {
        double loss, tokens;
        double *gradients = t == 1 ? x->gradients : g;
        oracle_step(test, x, t - 1, &loss, &tokens, gradients);
        const double scale = tokens > 0 ? 1 / tokens : 0;
        const double norm = oracle_norm(&x->oracle, gradients, scale);
        oracle_update(x, test->optimizer, t, m, v, gradients, oracle_clip(norm, clip_at) * scale);
        if (t > 1) continue;
        x->scale = scale;
        x->loss = loss * scale;
        x->norm = norm;
        x->tokens = tokens;
    }
    for (size_t i = 0; i < n; ++i) {
        x->gradients[i] *= x->scale;
        if (fabs(x->gradients[i]) > x->largest) x->largest = fabs(x->gradients[i]);
    }
    free(m);
    free(v);
    free(g);
    return true;
}

static void forget(struct expected *x)
{
    for (int i = 0; i < 3; ++i) free(x->weights[i]);
    free(x->gradients);
    oracle_fini(&x->oracle);
}

/* ---- The trainer's side -----------------------------------------------------------------------
 */

struct state {
    const struct grid_case *test;
    struct expected *expected;
    struct tr_engine *engine;
    char *report;
    size_t report_bytes;
};

static void complain(struct state *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(struct state *s, const char *format, ...)
{
    if (s->report[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(s->report, s->report_bytes, format, args);
    va_end(args);
}

/* Visits each parameter of each unit that this rank holds: its range of the unit's floats. */
typedef void (*visitor)(struct state *s, const struct tr_param *param,
                        const struct tr_unit_state *unit, const struct oracle_param *row);

static void each_param(struct state *s, visitor visit)
{
    const struct tr_store *store = &s->engine->store;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit *unit = &store->params->units[store->units[u].unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            const struct tr_param *param = &store->params->items[p];
            const struct oracle_param *row = oracle_find(&s->expected->oracle, param->name);
            if (row && (size_t)row->count == param->count)
                visit(s, param, &store->units[u], row);
            else
                complain(s, "the oracle has no parameter %s of %zu elements", param->name,
                         param->count);
        }
    }
}

static void set_weights(struct state *s, const struct tr_param *param,
                        const struct tr_unit_state *unit, const struct oracle_param *row)
{
    float *whole = malloc(param->count * sizeof *whole);
    for (size_t i = 0; i < param->count; ++i)
        whole[i] = (float)s->expected->weights[0][row->offset + (long)i];
    const struct tr_excerpt all = {whole, 0, param->count};
    tr_param_put(s->engine->store.params, param, &all, unit->masters, unit->first, unit->count);
    free(whole);
}

/* Compares what this rank holds of a tensor, elements it does not hold are NaN. */
static void compare(struct state *s, const char *what, const struct tr_param *param,
                    const float *range, const struct tr_unit_state *unit, const double *expected,
                    double scale, double tolerance)
{
    float *mine = malloc(param->count * sizeof *mine);
    memset(mine, 0xff, param->count * sizeof *mine);
    param_get(s->engine->store.params, param, mine, range, unit->first, unit->count);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < param->count; ++i) {
        uint32_t bits;
        memcpy(&bits, &mine[i], sizeof bits);
        if (bits == UINT32_MAX) continue; /* not held */
        const double off = fabs((double)mine[i] * scale - expected[i]);
        if (!(off <= worst)) {
            worst = off;
            at = i;
        }
    }
    if (!(worst <= tolerance))
        complain(s, "%s of %s[%zu]: %.9g, the oracle has %.9g; off by %.3g, allowed is %.3g", what,
                 param->name, at, (double)mine[at] * scale, expected[at], worst, tolerance);
    free(mine);
}

static void compare_gradient(struct state *s, const struct tr_param *param,
                             const struct tr_unit_state *unit, const struct oracle_param *row)
{
    const double *expected = s->expected->gradients + row->offset;
    double largest = 0;
    for (long i = 0; i < row->count; ++i)
        if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
    compare(s, "gradient", param, floats_of(unit->gradient_shard), unit, expected,
            s->expected->scale, 1e-5 * largest + 1e-7 * s->expected->largest);
}

static void compare_weights(struct state *s, const struct tr_param *param,
                            const struct tr_unit_state *unit, const struct oracle_param *row)
{
    compare(s, "weight after two steps", param, unit->masters, unit,
            s->expected->weights[2] + row->offset, 1, 2e-6);
}

/* Ranks that hold the same element must have the same bits: the smallest and the largest of all
 * ranks' bits, where those that do not hold it stay out of the way. */
static tr_status compare_replicas(struct state *s, uint64_t *checksum)
{
    const struct tr_params *params = s->engine->store.params;
    struct tr_mesh *mesh = s->engine->mesh;
    for (int p = 0; p < params->n; ++p) {
        const struct tr_param *param = &params->items[p];
        const struct tr_unit_state *unit = tr_store_unit(&s->engine->store, param->unit);
        uint32_t *low = malloc(param->count * 4), *high = malloc(param->count * 4);
        memset(low, 0xff, param->count * 4);
        memset(high, 0, param->count * 4);
        if (unit) {
            param_get(params, param, (float *)low, unit->masters, unit->first, unit->count);
            param_get(params, param, (float *)high, unit->masters, unit->first, unit->count);
        }
        tuttiResult_t result =
            tuttiAllReduce(low, low, param->count, tuttiUint32, tuttiMin, mesh->world, NULL);
        if (result == tuttiSuccess)
            result =
                tuttiAllReduce(high, high, param->count, tuttiUint32, tuttiMax, mesh->world, NULL);
        if (memcmp(low, high, param->count * 4))
            complain(s, "ranks have different bits in, or none has all of, %s", param->name);
        *checksum = (*checksum << 1 | *checksum >> 63) ^ tr_checksum(low, param->count * 4);
        free(low);
        free(high);
        TR_TRY(tr_mesh_check(mesh, result, "comparing replicas"));
    }
    return TR_OK;
}

static tr_status fail(void *arg, const struct tr_attend *call)
{
    (void)arg;
    (void)call;
    return tr_fail("a planted failure");
}

static tr_status run(struct state *s, struct grid_result *result)
{
    struct tr_engine *e = s->engine;
    const struct expected *x = s->expected;
    const struct tr_feed feed = {sample, (void *)(uintptr_t)s->test};
    if (s->test->fails == e->mesh->rank + 1) e->seams.attend_backward = fail;
    each_param(s, set_weights);
    TR_TRY(tr_store_publish(&e->store));
    for (int t = 1; t <= 2; ++t) {
        struct tr_step_sums sums;
        TR_TRY(tr_engine_gradients(e, &feed, (uint64_t)((t - 1) * s->test->options.batch), NULL,
                                   &sums));
        result->loss[t - 1] = sums.loss;
        result->norm[t - 1] = sums.norm;
        if (t == 1) {
            if (sums.tokens != x->tokens)
                complain(s, "%g tokens count, the oracle has %g", sums.tokens, x->tokens);
            if (!(fabs(sums.loss - x->loss) <= 2e-6 * x->loss))
                complain(s, "loss %.9g, the oracle has %.9g", sums.loss, x->loss);
            each_param(s, compare_gradient);
            if (!(fabs(sums.norm - x->norm) <= 1e-5 * x->norm))
                complain(s, "norm %.9g, the oracle has %.9g", sums.norm, x->norm);
        }
        const struct tr_optimizer how = optimizer_of(s->test->optimizer, t);
        TR_TRY(tr_engine_update(e, &how, tr_clip_coefficient(sums.norm, clip_at) * sums.scale));
    }
    each_param(s, compare_weights);
    return compare_replicas(s, &result->weights);
}

struct grid_result grid_run(const struct grid_case *test, struct tr_mesh *mesh, char *report,
                            size_t report_bytes)
{
    struct grid_result result = {0};
    report[0] = 0;
    struct expected expected = {0};
    struct tr_engine engine = {0};
    struct state s = {test, &expected, &engine, report, report_bytes};
    const struct tr_backend *backend = tr_backend_choose("");
    const struct tr_optimizer how = optimizer_of(test->optimizer, 1);
    struct tr_engine_options options = test->options;
    options.optimizer = how;
    if (!expect(test, &expected)) complain(&s, "the oracle refuses the model");
    tr_status status = tr_mesh_shape(mesh, test->size);
    if (status == TR_OK) status = tr_engine_init(&engine, mesh, backend, &options);
    if (status == TR_OK) status = run(&s, &result);
    if (status < 0) {
        complain(&s, "%s", status == TR_ELSEWHERE ? "another rank failed" : tr_error());
        fprintf(stderr, "grid: rank %d of %s: %s\n", mesh->rank, test->name, report);
        if (status == TR_FAILED) tr_mesh_abort(mesh); /* others may wait for this rank in vain */
    }
    tr_engine_fini(&engine);
    forget(&expected);
    if (status == TR_FAILED) return result;
    /* The lowest rank that has something to say tells all. */
    int32_t first = report[0] ? mesh->rank : INT32_MAX;
    if (tuttiAllReduce(&first, &first, 1, tuttiInt32, tuttiMin, mesh->world, NULL) !=
        tuttiSuccess) {
        complain(&s, "after the steps: %s", tuttiGetLastError(mesh->world));
        return result;
    }
    if (first != INT32_MAX)
        tuttiBroadcast(report, report, report_bytes, tuttiInt8, first, mesh->world, NULL);
    return result;
}

struct tr_engine_options grid_small_options(enum tr_model_kind kind)
{
    return (struct tr_engine_options){.model = {.kind = kind,
                                                .layers = 3,
                                                .heads = 4,
                                                .kv_heads = kind == TR_LLAMA ? 2 : 4,
                                                .width = 32,
                                                .hidden = 48,
                                                .vocabulary = GRID_SMALL_VOCABULARY,
                                                .context = GRID_SMALL_CONTEXT,
                                                .tied = tr_architectures[kind]->tied,
                                                .activation = tr_architectures[kind]->activation},
                                      .sharding = TR_DDP,
                                      .schedule = TR_1F1B,
                                      .batch = 8,
                                      .micro_batch = 2,
                                      .bucket_bytes = 8192,
                                      .seed = 1};
}
