/* Checkpoints of whole runs of tutti-train that fail by the faults of faults.c, as on a disk that
 * is full for a while. */
#include "run.h"

/* A small tutti-train with 2 ranks, these options and the bench's folder for checkpoints ends well
 * in spite of these faults. */
static void train_with(struct bench *b, const char *faults, const char *options)
{
    char command[COMMAND + 512];
    snprintf(command, sizeof command,
             "FAULTS=%s timeout 60 %s/bin/tutti-run -n 2 env LD_PRELOAD=%s/tests/libfaults.so "
             "%s/bin/tutti-train " SMALL "--fsdp=2 %s --checkpoint=%s 2>&1",
             faults, TUTTI_BINARY_DIR, TUTTI_BINARY_DIR, TUTTI_BINARY_DIR, options, b->folder);
    const int code = run(command, b->output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b->output);
}

/* The last save is tried twice with --keep, which makes room for the second try. Its file has the
 * name of the first one's, which another rank must not remove any more. */
TEST(run, what_is_left_of_a_failed_save_is_not_removed_under_the_second_try)
{
    struct bench b;
    char path[64];
    REQUIRE(setup(&b));
    train_with(&b, "fsync:1-1", "--steps=2 --keep=1");
    snprintf(path, sizeof path, "%s/step-00000002.safetensors", b.folder);
    CHECK_MESSAGE(access(path, F_OK) == 0, "%s", b.output);
    teardown(&b);
}

/* The write after step 1 fails on its thread, which is known after step 2 at the earliest. */
TEST(run, no_training_goes_on_after_the_last_step)
{
    struct bench b;
    REQUIRE(setup(&b));
    train_with(&b, "fsync:1-1", "--steps=2 --every=1");
    CHECK_EQ(count(b.output, "there is no checkpoint of step 1\n"), 1);
    CHECK_MESSAGE(count(b.output, "goes on") == 0, "%s", b.output);
    teardown(&b);
}

/* Its name may be gone after a crash of the host, and so may that of the one before. */
TEST(run, nothing_is_removed_for_a_checkpoint_whose_folder_is_not_synced)
{
    struct bench b;
    char path[64];
    REQUIRE(setup(&b));
    train_with(&b, "folder:2-3", "--steps=4 --every=1 --keep=1");
    CHECK_EQ(count(b.output, "cannot be synced (No space left on device)"), 2);
    CHECK_EQ(count(b.output, "there may be no checkpoint of step 2"), 1);
    CHECK_EQ(count(b.output, "there may be no checkpoint of step 3"), 1);
    const char *removed = strstr(b.output, "removed ");
    const char *last = strstr(b.output, "step-00000004.safetensors");
    CHECK_MESSAGE(last && removed > last, "%s", b.output); /* all three, when it is synced again */
    for (int step = 1; step <= 4; ++step) {
        snprintf(path, sizeof path, "%s/step-%08d.safetensors", b.folder, step);
        CHECK_EQ(access(path, F_OK), step == 4 ? 0 : -1);
    }
    teardown(&b);
}

/* Three saves of five find no room. */
TEST(run, no_more_of_a_save_is_waited_for_than_is_under_way)
{
    struct bench b;
    double under_way = 0, waited = 1;
    REQUIRE(setup(&b));
    train_with(&b, "fallocate:2-4", "--steps=5 --every=1");
    CHECK_EQ(count(b.output, "the next one is due after step 4\n"), 1);
    const char *at = strstr(b.output, "checkpoints were under way for ");
    REQUIRE(at && sscanf(at, "checkpoints were under way for %lf s, %lf s of it waited for",
                         &under_way, &waited) == 2);
    CHECK_MESSAGE(waited <= under_way, "%s", at);
    teardown(&b);
}

/* Taking the disk's room for it may take as long as writing to memory. */
TEST(run, room_for_a_checkpoint_in_mid_run_is_taken_beside_the_training)
{
    struct bench b;
    char log[64], path[64], text[OUTPUT];
    REQUIRE(setup(&b));
    snprintf(log, sizeof log, "FAULTS_LOG=%s/log", b.folder);
    REQUIRE(putenv(log) == 0);
    train_with(&b, "none", "--steps=4 --every=1");
    REQUIRE(unsetenv("FAULTS_LOG") == 0);
    snprintf(path, sizeof path, "cat %s/log", b.folder);
    CHECK(run(path, text) == 0);
    CHECK_EQ(count(text, "fallocate 0\n"), 3);
    CHECK_EQ(count(text, "fallocate 1\n"), 1);
    teardown(&b);
}

/* Of a save beside the training, which the next one waits for, and of the last one. */
TEST(run, a_disk_that_hangs_is_named_while_it_does)
{
    struct bench b;
    REQUIRE(setup(&b));
    train_with(&b, "slow:1-1", "--steps=2 --every=1");
    CHECK_EQ(count(b.output, "has waited 5 s for the checkpoint of step 1, and waits on"), 1);
    train_with(&b, "slow:1-1", "--steps=1");
    CHECK_EQ(count(b.output, "has waited 5 s for the checkpoint of step 1, and waits on"), 1);
    teardown(&b);
}
