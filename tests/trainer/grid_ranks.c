/* The gradient grid: one launch of 8 ranks that goes through every layout by splitting them.
 *
 *     tutti-run -n 8 grid_ranks [--only TEXT] [--case LINE]... [--every N] [--fail RANK]
 *                               [--checksums FILE] [--list]
 *
 * --only runs the cases whose line holds the text, --case those with exactly this line, --every
 * without them each N-th, beginning with the first (then few of one `same` are compared). --fail
 * makes this rank of each case fail in the middle of its first step. --checksums writes a line for
 * each case into a file: checksums of the losses, of the norms and of the weights at the end.
 * A case is a line of words, NAME=VALUE; what is not named is as `basis` says. Cases of few ranks
 * run side by side, each on its own part of the ranks. Cases of one `same` must end with the same
 * bits in every weight. The exit status is 0 when every case matched the oracle. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "grid_cases.h"

enum { NRANKS = 8, NCASES = sizeof grid_cases / sizeof grid_cases[0], REPORT = 512 };

static const char basis[] = "model=gpt2 zero=0 layers=3 heads=4 kv=4 width=32 hidden=48 vocab=61 "
                            "context=16 batch=8 micro=2 pipeline=1f1b order=zigzag mask=random "
                            "reduce=each reshard=auto optimizer=adamw tied=auto det=off";

struct plan {
    struct grid_case test;
    char same[32]; /* cases with equal weights at the end; "": none */
    int nranks;
};

/* One of the names, or the end of the program: a mistake in the table. */
static int one_of(const char *value, const char *const *names, int n, const char *line)
{
    for (int i = 0; i < n; ++i)
        if (!strcmp(value, names[i])) return i;
    fprintf(stderr, "grid: '%s' is no value, in: %s\n", value, line);
    exit(2);
}
#define ONE_OF(value, line, ...)                                                                   \
    one_of(value, (const char *const[]){__VA_ARGS__},                                              \
           (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)), line)

static enum tr_optimizer_kind optimizer_called(const char *name, const char *line)
{
    static const char *const names[] = {
#define OPTIMIZER(NAME, name) [TR_##NAME] = #name,
#include "../../trainer/ops/optimizer_table.h"
    };
    return (enum tr_optimizer_kind)one_of(name, names, TR_NUM_OPTIMIZERS, line);
}

static enum tr_activation_kind activation_called(const char *name, const char *line)
{
    static const char *const names[] = {
#define ACTIVATION(NAME, name) [TR_##NAME] = #name,
#include "../../trainer/ops/activation_table.h"
    };
    return (enum tr_activation_kind)one_of(name, names, TR_NUM_ACTIVATIONS, line);
}

static enum tr_model_kind model_called(const char *name, const char *line)
{
    static const char *const names[] = {
#define ARCHITECTURE(NAME, name) [TR_##NAME] = #name,
#include "../../trainer/model/architecture_table.h"
    };
    return (enum tr_model_kind)one_of(name, names, TR_NUM_MODELS, line);
}

static void take_word(struct plan *plan, const char *name, const char *value, const char *line)
{
    struct tr_engine_options *o = &plan->test.options;
    const struct {
        const char *name;
        long *field;
    } numbers[] = {{"layers", &o->model.layers},   {"heads", &o->model.heads},
                   {"kv", &o->model.kv_heads},     {"width", &o->model.width},
                   {"hidden", &o->model.hidden},   {"vocab", &o->model.vocabulary},
                   {"context", &o->model.context}, {"batch", &o->batch},
                   {"micro", &o->micro_batch}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i)
        if (!strcmp(name, numbers[i].name)) {
            *numbers[i].field = atol(value);
            return;
        }
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (!strcmp(name, tr_axis_names[axis])) {
            plan->test.size[axis] = atoi(value);
            return;
        }
    if (!strcmp(name, "model"))
        o->model.kind = model_called(value, line);
    else if (!strcmp(name, "zero"))
        o->sharding = (enum tr_sharding)ONE_OF(value, line, "0", "1", "2", "3");
    else if (!strcmp(name, "pipeline"))
        o->schedule = ONE_OF(value, line, "gpipe", "1f1b") ? TR_1F1B : TR_GPIPE;
    else if (!strcmp(name, "order"))
        o->zigzag = ONE_OF(value, line, "contiguous", "zigzag");
    else if (!strcmp(name, "mask"))
        plan->test.mask =
            (enum grid_mask)ONE_OF(value, line, "all", "random", "one", "half", "none", "never");
    else if (!strcmp(name, "reduce"))
        o->reduce_last = ONE_OF(value, line, "each", "last");
    else if (!strcmp(name, "reshard"))
        o->reshard_always = ONE_OF(value, line, "auto", "always");
    else if (!strcmp(name, "activation"))
        o->model.activation = activation_called(value, line);
    else if (!strcmp(name, "optimizer"))
        plan->test.optimizer = optimizer_called(value, line);
    else if (!strcmp(name, "tied"))
        o->model.tied = (const bool[]){tr_architectures[o->model.kind]->tied, false,
                                       true}[ONE_OF(value, line, "auto", "off", "on")];
    else if (!strcmp(name, "det"))
        o->deterministic = ONE_OF(value, line, "off", "on");
    else if (!strcmp(name, "same"))
        snprintf(plan->same, sizeof plan->same, "%s", value);
    else
        one_of(name, NULL, 0, line);
}

static void take_words(struct plan *plan, const char *words, const char *line)
{
    char copy[512], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = 0;
        take_word(plan, word, value, line);
    }
}

static struct plan plan_of(const char *line)
{
    struct plan plan = {.test = {.name = line, .options = {.bucket_bytes = 8192, .seed = 1}},
                        .nranks = 1};
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) plan.test.size[axis] = 1;
    take_words(&plan, basis, line);
    take_words(&plan, line, line);
    if (!strstr(line, "tied="))
        plan.test.options.model.tied = tr_architectures[plan.test.options.model.kind]->tied;
    if (!strstr(line, "activation="))
        plan.test.options.model.activation =
            tr_architectures[plan.test.options.model.kind]->activation;
    if (!strstr(line, "kv=")) plan.test.options.model.kv_heads = plan.test.options.model.heads;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) plan.nranks *= plan.test.size[axis];
    return plan;
}

/* What each case came to, on the first of its ranks; then on rank 0. */
struct outcome {
    char report[REPORT];
    struct grid_result result;
    int32_t ran;
};

/* What the options ask for. */
struct choice {
    bool cases[NCASES];
    int fails; /* as in struct grid_case */
    int every;
    const char *checksums; /* the file, or NULL */
};

static void choose(int argc, char **argv, struct choice *choice)
{
    bool all = true;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--fail")) {
            choice->fails = atoi(argv[i + 1]) + 1;
            continue;
        }
        if (!strcmp(argv[i], "--checksums")) {
            choice->checksums = argv[i + 1];
            continue;
        }
        if (!strcmp(argv[i], "--every")) {
            choice->every = atoi(argv[i + 1]) > 1 ? atoi(argv[i + 1]) : 1;
            continue;
        }
        const bool whole = !strcmp(argv[i], "--case");
        if (!whole && strcmp(argv[i], "--only")) break;
        int found = 0;
        all = false;
        for (int c = 0; c < NCASES; ++c) {
            const bool hit = whole ? !strcmp(grid_cases[c], argv[i + 1])
                                   : strstr(grid_cases[c], argv[i + 1]) != NULL;
            choice->cases[c] |= hit;
            found += hit;
        }
        if (found) continue;
        fprintf(stderr, "grid: no case for %s '%s'; --list prints them\n", argv[i], argv[i + 1]);
        exit(2);
    }
    for (int c = 0; c < NCASES; ++c) choice->cases[c] |= all && c % choice->every == 0;
}

/* Runs the cases of `nranks` ranks, 8 / nranks of them at a time. */
static tuttiResult_t run_size(tuttiComm_t world, int rank, int nranks, const struct choice *choice,
                              struct outcome *outcomes)
{
    const int parts = NRANKS / nranks, part = rank / nranks;
    tuttiComm_t comm;
    const tuttiResult_t split =
        tuttiCommSplit(world, part < parts ? part : TUTTI_SPLIT_NOCOLOR, rank, &comm, NULL);
    if (split != tuttiSuccess || part >= parts) return split;
    int turn = 0;
    for (int c = 0; c < NCASES; ++c) {
        struct plan plan = plan_of(grid_cases[c]);
        if (plan.nranks != nranks || !choice->cases[c]) continue;
        if (turn++ % parts != part) continue;
        plan.test.fails = choice->fails;
        tuttiComm_t own;
        const tuttiResult_t again = tuttiCommSplit(comm, 0, rank, &own, NULL);
        if (again != tuttiSuccess) return again;
        struct tr_mesh mesh;
        if (tr_mesh_init(&mesh, own) < 0) return tuttiInternalError;
        struct outcome outcome = {.ran = 1};
        outcome.result = grid_run(&plan.test, &mesh, outcome.report, REPORT);
        if (rank % nranks == 0) outcomes[c] = outcome;
        tr_mesh_fini(&mesh);
    }
    tuttiCommFinalize(comm);
    return tuttiCommDestroy(comm);
}

static int judge(const struct outcome *outcomes, const bool *chosen)
{
    int failures = 0, ran = 0;
    for (int c = 0; c < NCASES; ++c) {
        if (!chosen[c]) continue;
        const struct plan plan = plan_of(grid_cases[c]);
        char report[REPORT + 64];
        snprintf(report, sizeof report, "%.*s", REPORT,
                 outcomes[c].ran ? outcomes[c].report : "did not run");
        for (int d = 0; d < c && plan.same[0] && !report[0]; ++d) {
            if (!chosen[d] || outcomes[d].result.weights == outcomes[c].result.weights) continue;
            const struct plan other = plan_of(grid_cases[d]);
            if (!strcmp(other.same, plan.same))
                snprintf(report, sizeof report, "other bits than: %s", grid_cases[d]);
        }
        ++ran;
        failures += report[0] != 0;
        printf("%s %s%s%s\n", report[0] ? "FAILED" : "ok", grid_cases[c], report[0] ? "\n    " : "",
               report);
    }
    printf("%d layouts, %d failed\n", ran, failures);
    return ran && !failures ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool write_checksums(const struct outcome *outcomes, const struct choice *choice)
{
    FILE *file = fopen(choice->checksums, "w");
    if (!file) {
        perror(choice->checksums);
        return false;
    }
    for (int c = 0; c < NCASES; ++c) {
        const struct grid_result *r = &outcomes[c].result;
        if (choice->cases[c])
            fprintf(file, "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %s\n",
                    tr_checksum(r->loss, sizeof r->loss), tr_checksum(r->norm, sizeof r->norm),
                    r->weights, grid_cases[c]);
    }
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    static struct choice choice = {.every = 1};
    if (argc > 1 && !strcmp(argv[1], "--list")) {
        for (int c = 0; c < NCASES; ++c) printf("%s\n", grid_cases[c]);
        return EXIT_SUCCESS;
    }
    choose(argc, argv, &choice);
    tuttiComm_t world;
    int rank, nranks;
    if (tuttiCommInitEnv(&world, NULL, NULL) != tuttiSuccess) return 2;
    tuttiCommUserRank(world, &rank);
    tuttiCommCount(world, &nranks);
    if (nranks != NRANKS) {
        fprintf(stderr, "grid: start it on %d ranks: tutti-run -n %d grid_ranks\n", NRANKS, NRANKS);
        return 2;
    }
    tr_process_tune();
    static struct outcome outcomes[NCASES];
    for (int size = 1; size <= NRANKS; ++size) {
        const tuttiResult_t result = run_size(world, rank, size, &choice, outcomes);
        if (result == tuttiSuccess) continue;
        fprintf(stderr, "grid: rank %d: %s: %s\n", rank, tuttiGetErrorString(result),
                tuttiGetLastError(world));
        return 2;
    }
    /* Each outcome is one rank's, and zeros on the others. */
    if (tuttiAllReduce(outcomes, outcomes, sizeof outcomes, tuttiUint8, tuttiSum, world, NULL) !=
        tuttiSuccess)
        return 2;
    int status = rank == 0 ? judge(outcomes, choice.cases) : EXIT_SUCCESS;
    if (rank == 0 && choice.checksums && !write_checksums(outcomes, &choice)) status = EXIT_FAILURE;
    tuttiCommFinalize(world);
    tuttiCommDestroy(world);
    return status;
}
