/* Whole runs of tutti-train as processes: the layout does not change what is learnt, resuming
 * changes no bit, and plans and budgets are kept. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

/* The numbers of a checkpoint, all its tensors one after the other; free() them. */
static float *read_numbers(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    unsigned char prefix[8];
    *count = 0;
    if (!file) return NULL;
    float *numbers = NULL;
    if (fread(prefix, 1, 8, file) == 8) {
        long header = 0;
        for (int i = 0; i < 8; ++i) header |= (long)prefix[i] << (8 * i);
        fseek(file, 0, SEEK_END);
        const long nbytes = ftell(file) - 8 - header;
        fseek(file, 8 + header, SEEK_SET);
        numbers = malloc((size_t)nbytes);
        *count = fread(numbers, sizeof *numbers, (size_t)nbytes / sizeof *numbers, file);
    }
    fclose(file);
    return numbers;
}

enum { FEW = 4 };
/* The largest difference of two checkpoints' numbers, but for the `spared` (at most FEW) largest
 * ones; infinite when they cannot be compared. */
static double compare_all_but(size_t spared, const char *path_a, const char *path_b)
{
    size_t na, nb;
    float *a = read_numbers(path_a, &na), *b = read_numbers(path_b, &nb);
    double most[FEW + 1] = {0}; /* the largest first */
    for (size_t i = 0; a && b && i < na && i < nb; ++i) {
        double off = fabs((double)a[i] - (double)b[i]);
        for (size_t k = 0; k <= spared; ++k)
            if (off > most[k]) {
                const double less = most[k];
                most[k] = off;
                off = less;
            }
    }
    const bool are_alike = a && b && na == nb && na;
    free(a);
    free(b);
    return are_alike ? most[spared] : HUGE_VAL;
}

static double compare_files(const char *path_a, const char *path_b)
{
    return compare_all_but(0, path_a, path_b);
}

/* Every kind of layout, with the number of ranks that it takes. */
struct layout {
    int nranks;
    const char *options;
};

static const struct layout layouts[] = {
    {1, ""},
    {5, "--dp=5 --bucket-kib=16"},
    {2, "--zero=1"},
    {2, "--zero=2"},
    {2, "--zero=3"},
    {2, "--fsdp=2 --reduce=last"},
    {4, "--fsdp=2 --dp=2"},
    {2, "--tp=2"},
    {2, "--pp=2 --pipeline=gpipe"},
    {2, "--ring=2"},
    {2, "--ulysses=2"},
    {4, "--pp=2 --zero=1"},
    {4, "--ring=2 --ulysses=2 --zero=2"},
    {8, "--pp=2 --fsdp=2 --tp=2 --reshard=always"},
};

static const struct layout of_llama[] = {
    {1, ""},
    {2, "--tp=2"},
    {4, "--fsdp=2 --tp=2"},
    {4, "--pp=2 --ring=2 --ring-order=contiguous"},
};

enum { STEPS = 8 };

/* Eight steps with a checkpoint after four, and four again from there: the losses are those of one
 * rank, and the last checkpoints have the same bits. */
static void check_layout(struct bench *b, const char *model, const struct layout *layout,
                         double *expected)
{
    char options[COMMAND], log[96], whole[96], rest[96];
    double losses[STEPS];
    const char *o = layout->options;
    snprintf(log, sizeof log, "%s/log", b->folder);
    snprintf(whole, sizeof whole, "%s/whole", b->folder);
    snprintf(rest, sizeof rest, "%s/a/rest", b->folder);
    snprintf(options, sizeof options, SMALL "%s %s --steps=%d --every=4 --checkpoint=%s --log=%s",
             model, o, STEPS, whole, log);
    int code = train(layout->nranks, options, b->output);
    CHECK_MESSAGE(code == 0, "%s %s: exit code %d:\n%s", model, o, code, b->output);
    CHECK_EQ(read_losses(log, losses, STEPS), STEPS);
    if (tt_test_failed()) return;
    if (layout->nranks == 1) memcpy(expected, losses, sizeof losses);
    for (int i = 0; i < STEPS; ++i)
        CHECK_MESSAGE(fabs(losses[i] / expected[i] - 1) < 1e-4, "%s %s: step %d: loss %g, not %g",
                      model, o, i + 1, losses[i], expected[i]);
    CHECK_MESSAGE(losses[STEPS - 1] < losses[0] - 0.2, "%s %s: the loss goes from %g to %g", model,
                  o, losses[0], losses[STEPS - 1]);
    snprintf(options, sizeof options,
             "--resume=%s/step-00000004.safetensors --sample=0 --checkpoint=%s", whole, rest);
    code = train(layout->nranks, options, b->output);
    CHECK_MESSAGE(code == 0, "%s %s resumed: exit code %d:\n%s", model, o, code, b->output);
    strcat(whole, "/step-00000008.safetensors");
    strcat(rest, "/step-00000008.safetensors");
    const double off = compare_files(whole, rest);
    CHECK_MESSAGE(off == 0, "%s %s: resumed and not, off by %g", model, o, off);
}

/* Each layout in a folder of its own; under a sanitizer a third of them: the grid has them all. */
static void check_layouts(const char *model, const struct layout *list, size_t n)
{
    double expected[STEPS];
    for (size_t i = 0; i < n && !tt_test_failed(); ++i) {
        struct bench b;
        if (!tt_test_share(3)) continue;
        REQUIRE(setup(&b));
        check_layout(&b, model, &list[i], expected);
        teardown(&b);
    }
}

TEST(run, gpt2_learns_and_resumes_alike_in_every_layout)
{
    check_layouts("--model=gpt2", layouts, sizeof layouts / sizeof layouts[0]);
}

TEST(run, llama_learns_and_resumes_alike_in_every_layout)
{
    check_layouts("--model=llama --kv-heads=1", of_llama, sizeof of_llama / sizeof of_llama[0]);
}

TEST(run, a_checkpoint_holds_the_same_tensors_whatever_wrote_it)
{
    static const struct layout list[] = {
        {1, ""}, {3, "--fsdp=3"}, {4, "--pp=2 --tp=2"}, {4, "--ulysses=2 --zero=1"}};
    struct bench b;
    REQUIRE(setup(&b));
    char files[4][96];
    for (int i = 0; i < 4; ++i) {
        char options[COMMAND], folder[48];
        snprintf(folder, sizeof folder, "%s/r%d", b.folder, i);
        snprintf(files[i], sizeof files[i], "%s/step-00000001.safetensors", folder);
        /* After one step of SGD the optimizer's mean is the gradient. */
        snprintf(options, sizeof options,
                 SMALL "%s --vocabulary=257 --optimizer=sgd --clip=0 --batch=11 --steps=1 "
                       "--checkpoint=%s",
                 list[i].options, folder);
        const int code = train(list[i].nranks, options, b.output);
        CHECK_MESSAGE(code == 0, "%s: exit code %d:\n%s", list[i].options, code, b.output);
        const double off = compare_files(files[0], files[i]);
        CHECK_MESSAGE(off < 1e-6, "%s: off by %g", list[i].options, off);
    }
    teardown(&b);
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

/* Eight steps on one rank, and from its fourth: two steps on `layout`, then two on one rank again.
 * Of the thousands of numbers, few may have a gradient that is rounding's alone, out of which
 * AdamW's rule makes a step as large as any. */
static void check_states(struct bench *b, const char *optimizer, const struct layout *layout)
{
    char options[COMMAND], straight[96], other[96], last[96];
    snprintf(straight, sizeof straight, "%s/straight", b->folder);
    snprintf(other, sizeof other, "%s/a/other", b->folder);
    snprintf(last, sizeof last, "%s/a/last", b->folder);
    snprintf(options, sizeof options,
             SMALL "--model=llama --kv-heads=2 --optimizer=%s --steps=8 --every=4 --checkpoint=%s",
             optimizer, straight);
    CHECK_MESSAGE(train(1, options, b->output) == 0, "%s", b->output);
    snprintf(options, sizeof options,
             "--resume=%s/step-00000004.safetensors --sample=0 %s --every=2 --checkpoint=%s",
             straight, layout->options, other);
    CHECK_MESSAGE(train(layout->nranks, options, b->output) == 0, "%s", b->output);
    snprintf(options, sizeof options,
             "--resume=%s/step-00000006.safetensors --sample=0 --dp=1 --fsdp=1 --tp=1 --pp=1 "
             "--zero=0 --checkpoint=%s",
             other, last);
    CHECK_MESSAGE(train(1, options, b->output) == 0, "%s", b->output);
    strcat(straight, "/step-00000008.safetensors");
    strcat(other, "/step-00000008.safetensors");
    strcat(last, "/step-00000008.safetensors");
    const double off =
        fmax(compare_all_but(FEW, straight, other), compare_all_but(FEW, straight, last));
    CHECK_MESSAGE(off < 1e-6, "%s %s: off by %g", optimizer, layout->options, off);
}

TEST(run, states_of_lamb_and_muon_resume_on_another_layout_and_back)
{
    static const struct layout list[] = {{4, "--fsdp=2 --tp=2"}, {4, "--pp=2 --zero=1"}};
    static const char *const optimizers[] = {"lamb", "muon"};
    for (int i = 0; i < 4; ++i) {
        struct bench b;
        REQUIRE(setup(&b));
        check_states(&b, optimizers[i / 2], &list[i % 2]);
        teardown(&b);
    }
}

TEST(run, fewer_sequences_than_ranks_work)
{
    struct bench b;
    REQUIRE(setup(&b));
    const int code = train(3, SMALL "--batch=1 --steps=2", b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    teardown(&b);
}

TEST(run, a_rank_takes_the_cores_that_it_may_use)
{
    struct bench b;
    char command[COMMAND];
    cpu_set_t allowed;
    size_t core = 0;
    REQUIRE(setup(&b));
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    while (core + 1 < CPU_SETSIZE && !CPU_ISSET(core, &allowed)) ++core;
    snprintf(command, sizeof command, "taskset -c %zu timeout 120 %s/bin/tutti-train %s 2>&1", core,
             TUTTI_BINARY_DIR, SMALL "--steps=1");
    CHECK_EQ(run(command, b.output), 0);
    CHECK_MESSAGE(strstr(b.output, ", 1 thread a rank\n"), "%s", b.output);
    snprintf(command, sizeof command, "taskset -c %zu timeout 120 %s/bin/tutti-train %s 2>&1", core,
             TUTTI_BINARY_DIR, SMALL "--steps=1 --threads=3");
    CHECK_EQ(run(command, b.output), 0);
    CHECK_MESSAGE(strstr(b.output, ", 3 threads a rank\n") &&
                      strstr(b.output, "note: the 3 threads of rank 0 may run on 1 core only"),
                  "%s", b.output);
    teardown(&b);
}

TEST(run, a_plan_needs_no_launcher)
{
    struct bench b;
    REQUIRE(setup(&b));
    const int code = train(1, SMALL "--plan --ranks=16 --pp=2 --fsdp=2 --tp=2", b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(strstr(b.output, "16 ranks"), "%s", b.output);
    teardown(&b);
}

TEST(run, a_pipeline_that_idles_says_so_at_its_start_and_in_its_plan)
{
    static const char says[] = "note: with 1 micro-batch a step the stages of the pipeline idle "
                               "50 % of it, with 3 they idle 25 %: --micro-batch=4\n";
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_EQ(train(2, SMALL "--pp=2 --steps=1 --micro-batch=12", b.output), 0);
    CHECK_MESSAGE(count(b.output, says) == 1, "%s", b.output);
    CHECK_EQ(train(1, SMALL "--plan --ranks=2 --pp=2 --micro-batch=12", b.output), 0);
    CHECK_MESSAGE(count(b.output, says) == 1, "%s", b.output);
    CHECK_EQ(train(2, SMALL "--pp=2 --steps=1 --micro-batch=4", b.output), 0);
    CHECK_MESSAGE(count(b.output, "note: with") == 0, "%s", b.output);
    teardown(&b);
}

/* Each of these would take minutes, gigabytes or megabytes of text if the plan went through ranks,
 * micro-batches and stages one by one. */
TEST(run, plans_of_the_largest_sizes_end)
{
    static const char *const plans[] = {
        "--ranks=1024 --tp=64 --heads=64 --width=65536 --layers=1000 --vocabulary=1000000 "
        "--batch=1048576 --micro-batch=1",
        "--ranks=65536 --pp=64 --ulysses=1024 --heads=1024 --width=1024 --layers=64 "
        "--batch=1048576 --micro-batch=1",
        "--ranks=65536 --tp=1024 --heads=1024 --width=1024 --layers=1000 --pp=64 "
        "--vocabulary=1024",
        "--ranks=1000 --pp=1000 --layers=1000 --batch=1048576 --micro-batch=1 --pipeline=gpipe",
    };
    struct bench b;
    REQUIRE(setup(&b));
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; ++i) {
        char options[COMMAND];
        snprintf(options, sizeof options, "--plan %s", plans[i]);
        const int code = train(1, options, b.output); /* 141: more than OUTPUT bytes of text */
        CHECK_MESSAGE(code == 0, "%s: exit code %d", plans[i], code);
        CHECK_MESSAGE(strstr(b.output, "Communication of a step"), "%s", b.output);
    }
    CHECK_MESSAGE(strstr(b.output, "drawn with 32 stages and 32 micro-batches"), "%s", b.output);
    CHECK_MESSAGE(strstr(b.output, "the largest of all: stage"), "%s", b.output);
    teardown(&b);
}

TEST(run, a_resumed_run_that_has_nothing_left_to_do_or_keeps_nothing_says_so)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND];
    snprintf(options, sizeof options, SMALL "--steps=2 --checkpoint=%s", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_EQ(count(b.output, "nothing is trained"), 0);
    snprintf(options, sizeof options, "--resume=%s --sample=0", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_MESSAGE(count(b.output, "all of --steps=2 are done, nothing is trained") == 1, "%s",
                  b.output);
    CHECK_EQ(count(b.output, "keeps nothing"), 0);
    snprintf(options, sizeof options, "--resume=%s --sample=0 --steps=3", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_EQ(count(b.output, "nothing is trained"), 0);
    CHECK_MESSAGE(count(b.output, "without --checkpoint=DIR this run keeps nothing") == 1, "%s",
                  b.output);
    snprintf(options, sizeof options, "--resume=%s --sample=0 --steps=3 --checkpoint=%s", b.folder,
             b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_EQ(count(b.output, "keeps nothing"), 0);
    teardown(&b);
}

TEST(run, options_that_mean_what_the_checkpoint_holds_may_be_given_again)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND];
    snprintf(options, sizeof options,
             SMALL "--hidden=0 --kv-heads=0 --tied=auto --steps=2 --checkpoint=%s", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    snprintf(options, sizeof options,
             SMALL "--hidden=0 --kv-heads=0 --tied=auto --steps=3 --resume=%s", b.folder);
    const int code = train(2, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    teardown(&b);
}

TEST(run, a_checkpoint_is_found_however_many_digits_its_name_has)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND], command[COMMAND];
    snprintf(options, sizeof options, SMALL "--steps=7 --every=3 --checkpoint=%s", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    snprintf(command, sizeof command, "cd %s && mv step-00000007.safetensors step-7.safetensors",
             b.folder);
    CHECK_EQ(run(command, b.output), 0);
    snprintf(options, sizeof options, "--resume=%s --sample=0 --steps=8", b.folder);
    const int code = train(1, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(strstr(b.output, "/step-7.safetensors after step 7"), "%s", b.output);
    teardown(&b);
}

TEST(run, the_time_that_is_left_has_no_sign)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    /* A run does not end when nobody reads its lines any more. */
    snprintf(command, sizeof command,
             "timeout 60 %s/bin/tutti-train " SMALL
             "--steps=1000000000000 --log-every=1 >%s/lines 2>&1 & "
             "until grep -m 1 left %s/lines || ! kill -0 $!; do sleep 0.05; done; kill $!",
             TUTTI_BINARY_DIR, b.folder, b.folder);
    run(command, b.output);
    const char *left = strstr(b.output, "ms/step");
    CHECK_MESSAGE(left && !strchr(left, '-'), "%s", b.output);
    teardown(&b);
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
