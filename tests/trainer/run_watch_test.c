/* What whole runs of tutti-train say while they train. */
#include "run.h"

/* 90 windows of 32 bytes, nothing held out. */
#define EPOCHS                                                                                     \
    "--layers=1 --heads=2 --width=16 --context=32 --micro-batch=3 --warmup=5 --sample=0 "          \
    "--held-out=0 "

static bool write_data(const struct bench *b, size_t nbytes)
{
    char path[64];
    snprintf(path, sizeof path, "%s/text", b->folder);
    FILE *file = fopen(path, "w");
    for (size_t i = 0; file && i < nbytes; ++i) fputc('a' + (int)(i * i % 23), file);
    return file && fclose(file) == 0;
}

TEST(run, epochs_give_the_steps_and_their_ends_are_shown)
{
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b) && write_data(&b, 91 * 32 + 1));
    snprintf(options, sizeof options,
             EPOCHS "--data=%s/text --batch=9 --epochs=2.5 --checkpoint=%s/c", b.folder, b.folder);
    int code = train(2, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "90 windows an epoch; --epochs=2.5 ends with step 25\n") == 1,
                  "%s", b.output);
    CHECK_MESSAGE(count(b.output, "\nepoch ") == 2, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "\nepoch 2 ends with step 20: mean loss ") == 1, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "25 steps in ") == 1, "%s", b.output);
    /* 225 sequences are done, 45 are left: 5 steps of 10. */
    snprintf(options, sizeof options, "--sample=0 --resume=%s/c --epochs=3 --batch=10", b.folder);
    code = train(1, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "\nepoch 3 ends with step 30: mean loss ") == 1, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "of 5 steps\n") == 1, "%s", b.output);
    snprintf(options, sizeof options, "--sample=0 --resume=%s/c", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_MESSAGE(count(b.output, "note: all of --epochs=2.5 are done") == 1, "%s", b.output);
    teardown(&b);
}

/* A run that goes on says anew what is run; the kinds of lines can be told apart. */
TEST(run, a_log_begins_with_what_is_run)
{
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options,
             SMALL "--steps=4 --eval-every=2 --checkpoint=%s/c --log=%s/log", b.folder, b.folder);
    CHECK_MESSAGE(train(2, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options, "--resume=%s/c --sample=0 --steps=6 --log=%s/log", b.folder,
             b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options, "cut -d, -f1 %s/log | tr -d '\\n'", b.folder);
    run(options, b.output);
    CHECK_MESSAGE(count(b.output, "\"kind\": \"") == 10, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "\"kind\": \"step\"") == 6, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "\"kind\": \"held_out\"") == 2, "%s", b.output);
    const char *first = strstr(b.output, "\"kind\": \"run\"");
    CHECK_MESSAGE(first == b.output + 2 && count(b.output, "\"kind\": \"run\"") == 2, "%s",
                  b.output);
    snprintf(
        options, sizeof options,
        "grep -c '\"ranks\": [12], .*\"parameters\": [0-9]*, .*\"options\": { .*\"width\":' %s/log",
        b.folder);
    run(options, b.output);
    CHECK_EQ(atoi(b.output), 2);
    teardown(&b);
}

/* The steps' losses with and without the evaluation between them have the same bits. */
TEST(run, an_evaluation_between_steps_changes_no_bit)
{
    static const struct {
        int nranks;
        const char *options;
    } layouts[] = {{1, ""},         {2, "--zero=2"}, {2, "--fsdp=2"},
                   {2, "--ring=2"}, {2, "--pp=2"},   {4, "--pp=2 --fsdp=2"}};
    enum { STEPS = 4 };
    struct bench b;
    REQUIRE(setup(&b));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; ++i) {
        double losses[2][STEPS + 1];
        for (int evaluates = 0; evaluates < 2; ++evaluates) {
            char options[COMMAND], log[64];
            snprintf(log, sizeof log, "%s/log%d", b.folder, evaluates);
            snprintf(options, sizeof options,
                     SMALL "%s --deterministic=on --steps=%d --log=%s --eval-every=%d",
                     layouts[i].options, STEPS, log, evaluates);
            const int code = train(layouts[i].nranks, options, b.output);
            CHECK_MESSAGE(code == 0, "%s: exit code %d:\n%s", layouts[i].options, code, b.output);
            CHECK_EQ(read_losses(log, losses[evaluates], STEPS + 1), STEPS);
            CHECK_EQ(count(b.output, "  perplexity "), evaluates ? STEPS : 0);
            snprintf(options, sizeof options, "grep -c held_out_loss %s", log);
            run(options, b.output);
            CHECK_EQ(atoi(b.output), evaluates ? STEPS : 0);
        }
        CHECK_MESSAGE(memcmp(losses[0], losses[1], STEPS * sizeof **losses) == 0,
                      "%s: the losses differ", layouts[i].options);
    }
    teardown(&b);
}

/* One that is no log: of another text, the options of a run, or other lines of JSON. */
TEST(run, a_file_that_is_no_log_is_not_written_to)
{
    static const char *const texts[] = {"Once upon a time, once upon a time, and again",
                                        "{\"steps\": 5}",
                                        "{\"kind\": \"x\", \"text\": \"a\"}",
                                        "{\"step\": \"first\", \"text\": \"open\"}",
                                        "{\"step\": 1, \"text\": \"open the door\"}",
                                        "{\"kind\": \"run\", \"distance\": 5}"};
    enum { NTEXTS = sizeof texts / sizeof *texts };
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, SMALL "--steps=1 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    for (int i = 0; i < 2 * NTEXTS; ++i) { /* by a new run, and by one that goes on */
        snprintf(command, sizeof command, "cd %s && echo '%s' >text && cp text before", b.folder,
                 texts[i / 2]);
        REQUIRE(run(command, b.output) == 0);
        if (i % 2)
            snprintf(command, sizeof command, SMALL "--steps=1 --log=%s/text", b.folder);
        else
            snprintf(command, sizeof command, "--resume=%s/c --sample=0 --steps=2 --log=%s/text",
                     b.folder, b.folder);
        CHECK_EQ(train(1 + i / 2 % 2, command, b.output), 1);
        CHECK_MESSAGE(
            count(b.output, "/text: the file has something else than the lines of a log") == 1,
            "%s", b.output);
        snprintf(command, sizeof command, "cmp %s/text %s/before", b.folder, b.folder);
        CHECK_MESSAGE(run(command, b.output) == 0, "%s", b.output);
    }
    teardown(&b);
}

/* As a full disk leaves it. */
TEST(run, a_log_that_was_cut_in_a_line_goes_on_behind_the_last_whole_one)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, SMALL "--steps=2 --checkpoint=%s/c --log=%s/log", b.folder,
             b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    snprintf(command, sizeof command,
             "cd %s && printf '{\"kind\": \"step\", \"ste' >>log && cp log cut", b.folder);
    REQUIRE(run(command, b.output) == 0);
    snprintf(command, sizeof command, "--resume=%s/c --sample=0 --steps=3 --log=%s/log", b.folder,
             b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    snprintf(command, sizeof command, "cd %s && grep -c '^{ *\"kind\".*}$' log && wc -l <log",
             b.folder);
    CHECK_MESSAGE(run(command, b.output) == 0, "%s", b.output);
    CHECK_STR(b.output, "5\n5\n");
    snprintf(command, sizeof command, "--plot=%s/p.svg --plot-logs=%s/log", b.folder, b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    snprintf(command, sizeof command, "--plot=%s/p.svg --plot-logs=%s/log,", b.folder, b.folder);
    CHECK(train(1, command, b.output) == 1);
    CHECK_MESSAGE(count(b.output, "one of the names is empty") == 1, "%s", b.output);
    teardown(&b);
}
