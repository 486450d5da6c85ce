/* Whole runs of tutti-train that cannot go on: bad input, spoilt files, full disks and dead ranks
 * end every rank, and one of them says why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

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
    expect_error(nranks, SMALL "--heads=5",
                 "--heads=5 do not divide --width=32; the nearest numbers of heads that do are 4 "
                 "and 8");
    expect_error(nranks, SMALL "--pp=4", "--pp=4");
    expect_error(nranks, SMALL "--tp=3", "--tp=3");
    expect_error(nranks, SMALL "--zero=1 --fsdp=2", nranks > 1 ? "--zero=1 with" : "--fsdp=2");
    expect_error(nranks, SMALL "--model=gpt3", "--model=gpt3: expected one of gpt2|llama");
    expect_error(nranks, SMALL "--kv-heads=3", "--kv-heads=3 do not divide --heads=2");
    expect_error(nranks, SMALL "--vocabulary=255", "--vocabulary=255");
    expect_error(nranks, SMALL "--ranks=2", "--ranks=2 is for --plan");
    expect_error(nranks, SMALL "--data=" TUTTI_SOURCE_DIR "/.gitignore --context=4096",
                 "--context=4096 needs 4097 bytes");
    expect_error(nranks, SMALL "--plan --resume=/nonexistent", "--plan does not read checkpoints");
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
}

TEST(run, a_truncated_or_foreign_checkpoint_ends_every_rank)
{
    static const char *const spoil[] = {
        "truncate -s -100", "truncate -s 20", "sed -i 's/lr..:0.003/lr\\\\\":0.002/'",
        "sed -i 's/tutti-train/other-train/; s/\"header\":/\"Header\":/'"};
    static const char *const says[] = {"truncated", "truncated", "the header has checksum",
                                       "no checkpoint of tutti-train"};
    for (int i = 0; i < 4; ++i) {
        struct bench b;
        REQUIRE(setup(&b));
        char options[COMMAND], command[COMMAND];
        snprintf(options, sizeof options, SMALL "--steps=1 --checkpoint=%s", b.folder);
        CHECK_EQ(train(1, options, b.output), 0);
        snprintf(command, sizeof command, "%s %s/step-00000001.safetensors", spoil[i], b.folder);
        CHECK_EQ(run(command, b.output), 0);
        snprintf(options, sizeof options, "--resume=%s", b.folder);
        expect_error(2, options, says[i]);
        teardown(&b);
    }
}

TEST(run, a_momentum_that_loses_or_lacks_the_checkpoints_states_is_told)
{
    static const char *const momentum[] = {"0", "0.9"};
    for (int saved = 0; saved < 2; ++saved) {
        struct bench b;
        char options[COMMAND], says[128];
        REQUIRE(setup(&b));
        snprintf(options, sizeof options,
                 SMALL "--optimizer=sgd --momentum=%s --steps=1 --checkpoint=%s", momentum[saved],
                 b.folder);
        CHECK_EQ(train(1, options, b.output), 0);
        snprintf(options, sizeof options, "--resume=%s --steps=2 --sample=0 --momentum=%s",
                 b.folder, momentum[!saved]);
        snprintf(says, sizeof says, "--momentum=%s, but %s/step-00000001.safetensors was written",
                 momentum[!saved], b.folder);
        expect_error(2, options, says);
        teardown(&b);
    }
}

/* The limit on files leaves room for the library's shared memory, but not for the checkpoint. */
TEST(run, a_limit_of_file_sizes_below_a_checkpoint_is_told_before_the_first_step)
{
    struct bench b;
    REQUIRE(setup(&b));
    char command[COMMAND];
    snprintf(command, sizeof command,
             "ulimit -f 8192; TUTTI_SLOTS=2 timeout 60 %s/bin/tutti-train " SMALL
             "--width=256 --steps=1 --checkpoint=%s 2>&1",
             TUTTI_BINARY_DIR, b.folder);
    const int code = run(command, b.output);
    CHECK_MESSAGE(code != 0 && code != 124, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "(ulimit -f); raise that limit") == 1, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "model:") == 0, "%s", b.output);
    snprintf(command, sizeof command, "ls %s", b.folder);
    run(command, b.output);
    CHECK_STR(b.output, "");
    teardown(&b);
}

TEST(run, sizes_beyond_64_bits_are_told_before_the_first_step)
{
    static const char huge[] = "--batch=1048576 --context=1048576 --width=65536 --layers=1000 "
                               "--micro-batch=65536 --sample=0 ";
    for (int plan = 0; plan < 2; ++plan) {
        char options[COMMAND];
        snprintf(options, sizeof options, "%s%s", huge, plan ? "--plan" : "");
        expect_error(1, options,
                     "--batch=1048576 --micro-batch=65536 --context=1048576 --layers=1000 "
                     "--width=65536 --hidden=262144 --vocabulary=256");
    }
}

TEST(run, a_mesh_of_the_checkpoint_that_does_not_fit_is_named_as_the_checkpoints)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND];
    snprintf(options, sizeof options, SMALL "--pp=2 --steps=1 --checkpoint=%s", b.folder);
    CHECK_EQ(train(2, options, b.output), 0);
    snprintf(options, sizeof options, "--resume=%s --sample=0", b.folder);
    expect_error(1, options,
                 "(the checkpoint brought --pp=2; give other values for another layout)");
    teardown(&b);
}

/* The matrices grow by a factor of -999 a step, until a loss is not a number; a run that ends one
 * step earlier meets it in the held-out part. */
TEST(run, a_held_out_loss_that_is_not_a_number_is_an_error)
{
    struct bench b;
    char options[COMMAND];
    long step = 0;
    REQUIRE(setup(&b));
    static const char grow[] =
        SMALL "--optimizer=sgd --lr=100 --decay=10 --clip=0 --warmup=0 --min-lr=1";
    CHECK(train(2, grow, b.output) != 0);
    const char *at = strstr(b.output, ": step ");
    if (at) step = strtol(at + 7, NULL, 10);
    CHECK_MESSAGE(step > 1, "%s", b.output);
    snprintf(options, sizeof options, "%s --steps=%ld", grow, step - 1);
    const int code = train(2, options, b.output);
    CHECK_MESSAGE(code != 0 && code != 124, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "the held-out loss after step") == 1, "%s", b.output);
    teardown(&b);
}

TEST(run, held_out_text_that_is_too_short_is_told)
{
    struct bench b;
    char options[COMMAND], command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, "head -c 200 %s/include/tutti.h >%s/text", TUTTI_SOURCE_DIR,
             b.folder);
    CHECK_EQ(run(command, b.output), 0);
    snprintf(options, sizeof options, SMALL "--steps=1 --data=%s/text", b.folder);
    CHECK_EQ(train(1, options, b.output), 0);
    CHECK_MESSAGE(count(b.output, "no held-out loss: 10 bytes are held out") == 1, "%s", b.output);
    teardown(&b);
}

TEST(run, a_log_that_cannot_be_written_is_told_once)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_EQ(train(1, SMALL "--steps=3 --log=/dev/full", b.output), 0);
    CHECK_MESSAGE(count(b.output, "--log=/dev/full: No space left on device") == 1, "%s", b.output);
    teardown(&b);
}

/* 16 TiB of weights, gradients and optimizer. */
TEST(run, memory_that_the_host_does_not_have_is_told_before_the_first_step)
{
    static const char large[] = SMALL "--vocabulary=16777216 --width=65536 --layers=1 --steps=1";
    static char output[OUTPUT];
    expect_error(1, large, "GiB of memory, and there are "); /* on the host, or in its group */
    CHECK(train(2, large, output) != 0);
    CHECK_MESSAGE(count(output, ", of 2 ranks on its host ") +
                          count(output, ", of 2 ranks in its control group ") ==
                      1,
                  "%s", output);
}

/* Ranks of a shell command in which $train stands for the program and its options. */
static int train_by_shell(int nranks, const char *script, char *output)
{
    char command[COMMAND + 512];
    snprintf(command, sizeof command,
             "train=\"%s/bin/tutti-train " SMALL
             "\" timeout 60 %s/bin/tutti-run -n %d sh -c '%s' 2>&1",
             TUTTI_BINARY_DIR, TUTTI_BINARY_DIR, nranks, script);
    return run(command, output);
}

TEST(run, ranks_with_different_options_or_data_are_told_so)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK(train_by_shell(2, "$train --steps=3 --seed=$RANK", b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their options") == 1, "%s", b.output);
    CHECK(train_by_shell(2,
                         "$train --steps=3 --data=" TUTTI_SOURCE_DIR
                         "/src/$([ $RANK = 0 ] && echo base || echo schedule)",
                         b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their data") == 1, "%s", b.output);
    /* An option that one rank alone is given is compared with what the others have from a file. */
    char script[256];
    snprintf(script, sizeof script, "$train --steps=2 --seed=7 --fsdp=2 --checkpoint=%s", b.folder);
    CHECK(train_by_shell(2, script, b.output) == 0);
    snprintf(script, sizeof script,
             "$train --steps=4 --resume=%s $([ $RANK = 1 ] && echo --seed=1)", b.folder);
    CHECK(train_by_shell(2, script, b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their options") == 1, "%s", b.output);
    /* A value that is the default's too, but from which the batch follows. */
    CHECK(train_by_shell(2, "$train --steps=3 --accumulate=2 $([ $RANK = 1 ] && echo --batch=16)",
                         b.output) != 0);
    CHECK_MESSAGE(count(b.output, "the ranks differ in their options") == 1, "%s", b.output);
    teardown(&b);
}

/* The reader of the log, a pipe, ends after the first line. */
TEST(run, a_log_that_nobody_reads_any_more_does_not_end_the_training)
{
    struct bench b;
    char script[512];
    REQUIRE(setup(&b));
    snprintf(script, sizeof script,
             "mkfifo %s/pipe; head -n 1 %s/pipe >/dev/null & exec $train --steps=20 "
             "--log=%s/pipe --checkpoint=%s/c",
             b.folder, b.folder, b.folder, b.folder);
    CHECK_MESSAGE(train_by_shell(1, script, b.output) == 0, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "step-00000020.safetensors") == 1, "%s", b.output);
    teardown(&b);
}

/* As on hosts whose processors differ: replicas that compute with other code drift apart, and the
 * checkpoint, which tells, would be refused. */
TEST(run, ranks_with_different_processors_take_the_code_that_all_can_run)
{
    struct bench b;
    char script[256];
    REQUIRE(setup(&b));
    CHECK(train_by_shell(1, "$train --steps=1", b.output) == 0);
    const int has_newer = count(b.output, "vector code baseline") == 0;
    snprintf(script, sizeof script,
             "$train --steps=4 --dp=2 --checkpoint=%s $([ $RANK = 1 ] && echo --cpu=baseline)",
             b.folder);
    CHECK_MESSAGE(train_by_shell(2, script, b.output) == 0, "%s", b.output);
    CHECK_EQ(count(b.output, "vector code baseline, 1 thread"), 1);
    CHECK_EQ(count(b.output, "note: all ranks use the vector code baseline"), has_newer);
    teardown(&b);
}

/* Rank 1 kills itself when its first steps are logged; the others must end, and say who died. */
static void check_killed(const char *layout)
{
    struct bench b;
    REQUIRE(setup(&b));
    char script[COMMAND];
    snprintf(
        script, sizeof script,
        "if [ $RANK = 1 ]; then exec timeout -s KILL 2 $train %s --seconds=40; fi; exec $train "
        "%s --seconds=40",
        layout, layout);
    const int code = train_by_shell(2, script, b.output);
    CHECK_MESSAGE(code != 0 && code != 124, "%s: exit code %d", layout, code);
    CHECK_MESSAGE(strstr(b.output, "tutti-train: rank 0: ") && strstr(b.output, "rank 1 (host"),
                  "%s: %s", layout, b.output);
    teardown(&b);
}

TEST(run, a_killed_rank_ends_the_others_with_its_name)
{
    check_killed("--dp=2");
    check_killed("--tp=2");
    check_killed("--pp=2");
    check_killed("--ring=2");
}

/* One of many ranks is killed once the first step is logged. Each other rank tells an error. Those
 * that wait for the dead rank name it by its number in the run, whichever communicator they use; no
 * communicator but that of all ranks has so many that its own number is the same. */
static void check_killed_of_many(const char *layout, int nranks, int killed)
{
    struct bench b;
    REQUIRE(setup(&b));
    char script[COMMAND], part[64], whole[64];
    snprintf(script, sizeof script,
             "export TUTTI_LOG=NONE; train=\"$train %s --seconds=40 --log=%s/log\"; [ $RANK = %d ] "
             "|| exec $train; $train & until grep -qs loss %s/log; do sleep 0.1; done; kill -9 $!; "
             "wait $!",
             layout, b.folder, killed, b.folder);
    const int code = train_by_shell(nranks, script, b.output);
    CHECK_MESSAGE(code != 0 && code != 124, "%s: exit code %d", layout, code);
    CHECK_MESSAGE(count(b.output, "tutti-train: rank ") > 0, "%s: %s", layout, b.output);
    snprintf(part, sizeof part, " = rank %d of the run (host", killed);
    snprintf(whole, sizeof whole, ": rank %d (host", killed);
    const int named = count(b.output, part) + count(b.output, whole);
    CHECK_MESSAGE(named > 0 && named == count(b.output, " has died"), "%s: %s", layout, b.output);
    teardown(&b);
}

TEST(run, a_killed_rank_is_named_by_its_number_in_the_run)
{
    check_killed_of_many("--pp=2 --dp=2 --tp=2", 8, 5);
    check_killed_of_many("--ring=2 --tp=2", 4, 2);
}
