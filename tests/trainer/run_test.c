/* Whole runs of tutti-train as processes: the number of ranks does not change what is learnt,
 * resuming changes no bit, and bad input ends every rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "model/gpt.h"
#include "shim.h"

#define SMALL                                                                                      \
    "--layers=2 --heads=2 --width=32 --context=32 --batch=12 --micro-batch=3 --warmup=5 "          \
    "--data=" TUTTI_SOURCE_DIR "/include --sample=0 --lr=0.003 "

enum { COMMAND = 2048, OUTPUT = 1 << 16 };

/* Runs a command; output gets what it printed. Returns the exit code. */
static int run(const char *command, char *output)
{
    FILE *pipe = popen(command, "r");
    if (!pipe) return -1;
    size_t n = fread(output, 1, OUTPUT - 1, pipe);
    output[n] = 0;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs tutti-train with nranks ranks. */
static int train(int nranks, const char *options, char *output)
{
    char command[COMMAND + 512], launcher[256] = "";
    if (nranks > 1)
        snprintf(launcher, sizeof launcher, "%s/bin/tutti-run -n %d ", TUTTI_BINARY_DIR, nranks);
    snprintf(command, sizeof command, "timeout 120 %s%s/bin/tutti-train %s 2>&1", launcher,
             TUTTI_BINARY_DIR, options);
    return run(command, output);
}

struct bench {
    char folder[32];
    char output[OUTPUT];
};

static bool setup(struct bench *b)
{
    strcpy(b->folder, "/tmp/tutti-run-XXXXXX");
    return mkdtemp(b->folder) != NULL;
}

static void teardown(const struct bench *b)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", b->folder);
    if (system(command) != 0) tt_test_fail(__FILE__, __LINE__, "%s is left", b->folder);
}

/* The losses of a --log file. */
static int read_losses(const char *path, double *losses, int most)
{
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    char line[512];
    int n = 0;
    while (n < most && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "\"loss\": ");
        if (at) losses[n++] = strtod(at + 8, NULL);
    }
    fclose(file);
    return n;
}

TEST(run, losses_do_not_depend_on_the_number_of_ranks)
{
    enum { STEPS = 50 };
    struct bench b;
    REQUIRE(setup(&b));
    double one[STEPS], many[STEPS];
    for (int nranks = 1; nranks <= 5; ++nranks) {
        char options[COMMAND], log[96];
        snprintf(log, sizeof log, "%s/log%d", b.folder, nranks);
        snprintf(options, sizeof options, SMALL "--bucket-kib=16 --steps=%d --log=%s", STEPS, log);
        const int code = train(nranks, options, b.output);
        CHECK_MESSAGE(code == 0, "%d ranks: exit code %d:\n%s", nranks, code, b.output);
        double *losses = nranks == 1 ? one : many;
        CHECK_EQ(read_losses(log, losses, STEPS), STEPS);
        if (tt_test_failed()) break;
        double most = 0;
        for (int i = 0; i < STEPS; ++i) most = fmax(most, fabs(losses[i] / one[i] - 1));
        CHECK_MESSAGE(most < 1e-4, "%d ranks: the losses are off by %g", nranks, most);
        CHECK(losses[STEPS - 1] < 4 && losses[0] > 5.3);
    }
    teardown(&b);
}

/* Compares tensor by tensor; part "", ".m" or ".v". Returns the largest relative difference. */
static double compare_files(const char *path_a, const char *path_b, const char *part)
{
    struct tr_gpt gpt;
    struct tr_safetensors *a = NULL, *b = NULL;
    double most = 0;
    const struct tr_gpt_size size = {2, 2, 32, 32};
    if (tr_gpt_init(&gpt, size, tr_ops_choose("")) < 0 || tr_safetensors_open(&a, path_a) < 0 ||
        tr_safetensors_open(&b, path_b) < 0) {
        tt_test_fail(__FILE__, __LINE__, "%s", tr_error());
    } else {
        for (int p = 0; p < gpt.params.n; ++p) {
            const struct tr_param *param = &gpt.params.items[p];
            float *x = malloc(param->count * 4), *y = malloc(param->count * 4);
            char name[80];
            snprintf(name, sizeof name, "%s%s", param->name, part);
            struct tr_tensor tensor = {
                name, param->ndim, {param->shape[0], param->shape[1]}, x, param->count};
            CHECK_MESSAGE(tr_safetensors_read(a, &tensor) == TR_OK, "%s", tr_error());
            tensor.data = y;
            CHECK_MESSAGE(tr_safetensors_read(b, &tensor) == TR_OK, "%s", tr_error());
            double off = 0, largest = 1e-30;
            for (size_t i = 0; i < param->count; ++i) {
                off = fmax(off, fabs((double)x[i] - (double)y[i]));
                largest = fmax(largest, fabs((double)x[i]));
            }
            most = fmax(most, off / largest);
            if (off / largest > 1e-4)
                tt_test_fail(__FILE__, __LINE__, "%s differs by %g", name, off / largest);
            free(x);
            free(y);
        }
    }
    tr_safetensors_close(a);
    tr_safetensors_close(b);
    tr_gpt_fini(&gpt);
    return most;
}

TEST(run, every_gradient_is_the_same_on_three_ranks)
{
    struct bench b;
    REQUIRE(setup(&b));
    char files[2][96];
    for (int i = 0; i < 2; ++i) {
        char options[COMMAND], folder[48];
        snprintf(folder, sizeof folder, "%s/r%d", b.folder, i);
        snprintf(files[i], sizeof files[i], "%s/step-00000001.safetensors", folder);
        /* After one step the optimizer's mean is the gradient, times a tenth and the clipping. */
        snprintf(options, sizeof options,
                 SMALL "--bucket-kib=8 --clip=0 --batch=11 --steps=1 --checkpoint=%s", folder);
        const int code = train(i ? 3 : 1, options, b.output);
        CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    }
    if (!tt_test_failed()) CHECK(compare_files(files[0], files[1], ".m") < 1e-4);
    teardown(&b);
}

/* 20 steps at once against 10, resume, 10, bit for bit. */
static void check_resume(int nranks)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND];
    snprintf(options, sizeof options, SMALL "--steps=20 --checkpoint=%s/whole", b.folder);
    CHECK_EQ(train(nranks, options, b.output), 0);
    snprintf(options, sizeof options, SMALL "--steps=20 --every=10 --checkpoint=%s/half", b.folder);
    CHECK_EQ(train(nranks, options, b.output), 0);
    snprintf(options, sizeof options,
             "--resume=%s/half/step-00000010.safetensors --sample=0 --checkpoint=%s/a/b/rest",
             b.folder, b.folder);
    CHECK_MESSAGE(train(nranks, options, b.output) == 0, "%s", b.output);
    char whole[96], rest[96];
    snprintf(whole, sizeof whole, "%s/whole/step-00000020.safetensors", b.folder);
    snprintf(rest, sizeof rest, "%s/a/b/rest/step-00000020.safetensors", b.folder);
    static const char *const parts[] = {"", ".m", ".v"};
    for (int i = 0; i < 3 && !tt_test_failed(); ++i) {
        const double off = compare_files(whole, rest, parts[i]);
        CHECK_MESSAGE(off == 0, "%d ranks: %s off by %g", nranks, parts[i], off);
    }
    teardown(&b);
}

TEST(run, resuming_is_bit_exact_on_one_rank)
{
    check_resume(1);
}

TEST(run, resuming_is_bit_exact_on_two_ranks)
{
    check_resume(2);
}

TEST(run, resuming_on_another_number_of_ranks_goes_on_alike)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND], log[96];
    double straight[20], both[31];
    snprintf(log, sizeof log, "%s/log", b.folder);
    snprintf(options, sizeof options, SMALL "--steps=20 --every=10 --checkpoint=%s --log=%s",
             b.folder, log);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_EQ(read_losses(log, straight, 20), 20);
    snprintf(options, sizeof options, "--resume=%s/step-00000010.safetensors --sample=0 --log=%s",
             b.folder, log);
    CHECK_MESSAGE(train(3, options, b.output) == 0, "%s", b.output);
    CHECK_EQ(read_losses(log, both, 31), 30); /* added to the first run's lines */
    for (int i = 0; i < 30 && !tt_test_failed(); ++i)
        CHECK(fabs(both[i] / straight[i < 20 ? i : i - 10] - 1) < 1e-4);
    teardown(&b);
}

/* How often `what` is in `text`. */
static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) ++n;
    return n;
}

/* The error ends every rank and is told by one. */
static void expect_error(int nranks, const char *options, const char *says)
{
    static char output[OUTPUT];
    const int code = train(nranks, options, output);
    CHECK_MESSAGE(code != 0 && code != 124, "%d ranks, %s: exit code %d", nranks, options, code);
    CHECK_MESSAGE(count(output, says) == 1, "%d ranks, %s: expected \"%s\" once in:\n%s", nranks,
                  options, says, output);
}

static void expect_errors(int nranks)
{
    expect_error(nranks, SMALL "--steps=lots", "--steps=lots: not a number");
    expect_error(nranks, SMALL "--context=10000000", "--context");
    expect_error(nranks, SMALL "--data=/nonexistent", "/nonexistent: No such file");
    expect_error(nranks, SMALL "--heads=5", "not divisible by --heads=5");
    expect_error(nranks, SMALL "--resume=/nonexistent", "--resume=/nonexistent");
    expect_error(nranks, SMALL "--steps=1000000 --checkpoint=/proc/none",
                 "--checkpoint=/proc/none");
    expect_error(nranks, SMALL "--steps=1000000 --checkpoint=/dev/null", "--checkpoint=/dev/null");
    expect_error(nranks, SMALL "--cpu=v9", "--cpu=v9");
    expect_error(nranks, SMALL "--lr=100 --clip=0 --warmup=0 --steps=200 --decay=10",
                 "smaller --lr");
}

TEST(run, bad_input_is_told_on_one_rank)
{
    expect_errors(1);
}

TEST(run, bad_input_ends_every_rank)
{
    expect_errors(2);
    expect_error(2, SMALL "--batch=1", "--batch=1");
}

TEST(run, a_time_budget_is_kept)
{
    struct bench b;
    REQUIRE(setup(&b));
    for (int nranks = 1; nranks <= 2; ++nranks) {
        const int code =
            train(nranks, SMALL "--seconds=1 --sample=30 --log-every=100000", b.output);
        CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
        CHECK_MESSAGE(strstr(b.output, "end of sample") && strstr(b.output, "done: loss"), "%s",
                      b.output);
    }
    teardown(&b);
}

TEST(run, the_sources_of_tutti_are_the_data_by_default)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_EQ(train(1, "--steps=1 --sample=0 --layers=1 --width=16 --batch=2", b.output), 0);
    CHECK_MESSAGE(strstr(b.output, "data: ") != NULL, "%s", b.output);
    teardown(&b);
}

/* Two ranks of a shell command in which $train stands for the program and its options. */
static int train_by_shell(const char *script, char *output)
{
    char command[COMMAND + 512];
    snprintf(command, sizeof command,
             "train=\"%s/bin/tutti-train " SMALL
             "\" timeout 60 %s/bin/tutti-run -n 2 sh -c '%s' 2>&1",
             TUTTI_BINARY_DIR, TUTTI_BINARY_DIR, script);
    return run(command, output);
}

TEST(run, ranks_with_different_options_or_data_are_told_so)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK(train_by_shell("$train --steps=3 --seed=$RANK", b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their options") == 1, "%s", b.output);
    CHECK(train_by_shell("$train --steps=3 --data=" TUTTI_SOURCE_DIR
                         "/src/$([ $RANK = 0 ] && echo base || echo schedule)",
                         b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their data") == 1, "%s", b.output);
    teardown(&b);
}

TEST(run, a_killed_rank_ends_the_others_with_its_name)
{
    struct bench b;
    REQUIRE(setup(&b));
    const int code = train_by_shell("if [ $RANK = 1 ]; then exec timeout -s KILL 2 $train "
                                    "--seconds=40; fi; exec $train --seconds=40",
                                    b.output);
    CHECK_MESSAGE(code != 0 && code != 124, "exit code %d", code);
    CHECK_MESSAGE(strstr(b.output, "tutti-train: rank 0: ") && strstr(b.output, "rank 1 (host"),
                  "%s", b.output);
    teardown(&b);
}
