/* What whole runs of tutti-train write beside checkpoints' contents: their output, their log and
 * the folder of checkpoints, when something is wrong with these. */
#include <math.h>

#include "run.h"

TEST(run, a_run_that_cannot_start_leaves_the_log_of_the_last_one)
{
    struct bench b;
    REQUIRE(setup(&b));
    char options[COMMAND], log[96];
    double losses[4];
    snprintf(log, sizeof log, "%s/log", b.folder);
    snprintf(options, sizeof options, SMALL "--steps=3 --log=%s", log);
    CHECK_EQ(train(1, options, b.output), 0);
    snprintf(options, sizeof options, SMALL "--heads=5 --log=%s", log);
    CHECK(train(1, options, b.output) != 0);
    CHECK_EQ(read_losses(log, losses, 4), 3);
    teardown(&b);
}

/* Runs the program with its standard output where `to` says; output gets its errors. */
static int train_into(const char *to, int nranks, const char *options, char *output)
{
    char command[COMMAND], launcher[256] = "";
    if (nranks > 1)
        snprintf(launcher, sizeof launcher, "%s/bin/tutti-run -n %d ", TUTTI_BINARY_DIR, nranks);
    snprintf(command, sizeof command, "timeout 60 %s%s/bin/tutti-train %s 2>&1 %s", launcher,
             TUTTI_BINARY_DIR, options, to);
    return run(command, output);
}

TEST(run, output_that_cannot_be_written_is_an_error)
{
    static const char *const options[] = {"--help", "--plan", SMALL "--steps=2"};
    struct bench b;
    REQUIRE(setup(&b));
    for (int i = 0; i < 3; ++i) {
        const int code = train_into(">/dev/full", 1, options[i], b.output);
        CHECK_MESSAGE(code == 1, "%s: exit code %d:\n%s", options[i], code, b.output);
        CHECK_MESSAGE(count(b.output, "standard output") == 1, "%s:\n%s", options[i], b.output);
    }
    teardown(&b);
}

/* What the program opens must not get the number of its output: lines would go there. */
TEST(run, a_closed_output_is_not_the_first_file_or_socket_that_is_opened)
{
    struct bench b;
    REQUIRE(setup(&b));
    const int code = train_into(">&-", 1, SMALL "--steps=2 --log=/proc/self/fd/1", b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    teardown(&b);
}

/* The shell holds the folder's lock, as another run would, also one on another host of an NFS:
 * there only a file that is open for writing is locked for all hosts. */
TEST(run, two_runs_do_not_mix_their_checkpoints_in_one_folder)
{
    struct bench b;
    REQUIRE(setup(&b));
    char command[COMMAND];
    for (int held = 1; held >= 0; --held) {
        snprintf(command, sizeof command,
                 "exec 9>>%s/.lock; %s timeout 60 %s/bin/tutti-run -n 2 %s/bin/tutti-train " SMALL
                 "--steps=1 --checkpoint=%s 2>&1",
                 b.folder, held ? "flock 9 || exit 9;" : "", TUTTI_BINARY_DIR, TUTTI_BINARY_DIR,
                 b.folder);
        const int code = run(command, b.output);
        CHECK_MESSAGE(code == held, "exit code %d:\n%s", code, b.output);
        CHECK_MESSAGE(count(b.output, "another run writes") == held, "%s", b.output);
        CHECK_MESSAGE(count(b.output, "cannot lock") == 0, "%s", b.output);
    }
    teardown(&b);
}

/* The steps whose checkpoints are in the folder, and no other file but the lock: "1 5 6 ". */
static void list_steps(const struct bench *b, char output[OUTPUT])
{
    char command[COMMAND];
    snprintf(command, sizeof command,
             "cd %s/c && ls | sed 's/^step-0*\\([0-9]*\\).safetensors$/\\1/' | tr '\\n' ' '",
             b->folder);
    run(command, output);
}

/* The step of the least held-out loss of a log; 0: none. */
static long find_best(const struct bench *b)
{
    char path[64], line[512];
    double least = HUGE_VAL;
    long best = 0;
    snprintf(path, sizeof path, "%s/log", b->folder);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *step = strstr(line, "\"step\": "), *loss = strstr(line, "\"held_out_loss\": ");
        if (!step || !loss || strtod(loss + 17, NULL) > least) continue;
        least = strtod(loss + 17, NULL);
        best = strtol(step + 8, NULL, 10);
    }
    if (file) fclose(file);
    return best;
}

/* The learning rate is so high that the loss rises, so the best checkpoint is none of the newest.
 * Its loss is known to the resumed run, too. */
TEST(run, the_newest_checkpoints_and_the_best_are_kept)
{
    struct bench b;
    char options[COMMAND], expected[64];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options,
             SMALL "--lr=5 --warmup=20 --steps=8 --every=1 --eval-every=1 --keep=2 "
                   "--checkpoint=%s/c --log=%s/log",
             b.folder, b.folder);
    int code = train(2, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "\nremoved ") == 5, "%s", b.output);
    const long best = find_best(&b);
    CHECK_MESSAGE(best > 0 && best < 7, "the best is that of step %ld", best);
    snprintf(expected, sizeof expected, "%ld 7 8 ", best);
    list_steps(&b, b.output);
    CHECK_STR(b.output, expected);
    snprintf(options, sizeof options,
             "--resume=%s/c --checkpoint=%s/c --sample=0 --steps=9 --keep=1", b.folder, b.folder);
    code = train(1, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    snprintf(expected, sizeof expected, "%ld 9 ", best);
    list_steps(&b, b.output);
    CHECK_STR(b.output, expected);
    snprintf(options, sizeof options, /* other data have a best one of their own */
             "--resume=%s/c --checkpoint=%s/c --sample=0 --steps=11 --keep=1 --every=1 "
             "--data=" TUTTI_SOURCE_DIR "/LICENSE",
             b.folder, b.folder);
    code = train(1, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    list_steps(&b, b.output);
    snprintf(expected, sizeof expected, "%ld ", best);
    CHECK_MESSAGE(!strncmp(b.output, expected, strlen(expected)), "%s", b.output);
    CHECK_MESSAGE(count(b.output, " ") <= 3 && strstr(b.output, " 11 "), "%s", b.output);
    teardown(&b);
}

TEST(run, checkpoints_of_other_runs_and_of_later_steps_are_kept)
{
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options, SMALL "--steps=4 --every=2 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options, SMALL "--steps=5 --every=1 --keep=1 --checkpoint=%s/c",
             b.folder); /* another run, which writes over 2 and 4 */
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    list_steps(&b, b.output);
    CHECK_STR(b.output, "5 ");
    snprintf(options, sizeof options, SMALL "--steps=3 --every=3 --keep=1 --checkpoint=%s/c",
             b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options,
             "--sample=0 --steps=4 --keep=1 --checkpoint=%s/c --resume="
             "%s/c/step-00000003.safetensors",
             b.folder, b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    list_steps(&b, b.output); /* 5 of another run; 3 went for 4 */
    CHECK_STR(b.output, "4 5 ");
    snprintf(options, sizeof options, SMALL "--steps=6 --keep=1 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    list_steps(&b, b.output); /* of three runs */
    CHECK_STR(b.output, "4 5 6 ");
    snprintf(options, sizeof options,
             "--sample=0 --steps=5 --keep=1 --checkpoint=%s/c --resume="
             "%s/c/step-00000004.safetensors",
             b.folder, b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options,
             "--sample=0 --steps=6 --keep=1 --checkpoint=%s/c --resume="
             "%s/c/step-00000005.safetensors",
             b.folder, b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    list_steps(&b, b.output);
    CHECK_STR(b.output, "6 ");
    teardown(&b);
}

/* Set back to step 2, and going on from where that ended. */
TEST(run, a_run_that_was_set_back_keeps_and_resumes_its_own_newest)
{
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options, SMALL "--steps=7 --every=1 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    snprintf(options, sizeof options,
             "--sample=0 --steps=6 --every=2 --keep=2 --checkpoint=%s/c --resume="
             "%s/c/step-00000002.safetensors",
             b.folder, b.folder);
    CHECK_MESSAGE(train(2, options, b.output) == 0, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "another run") == 0, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "holds later checkpoints of this run, the last of step 7") == 1,
                  "%s", b.output);
    list_steps(&b, b.output);
    CHECK_STR(b.output, "3 4 5 6 7 ");
    snprintf(options, sizeof options,
             "--sample=0 --steps=7 --keep=1 --checkpoint=%s/c --resume=%s/c", b.folder, b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "step-00000006.safetensors after step 6\n") == 1, "%s", b.output);
    list_steps(&b, b.output);
    CHECK_STR(b.output, "7 ");
    teardown(&b);
}

TEST(run, a_folder_with_checkpoints_of_another_run_is_told)
{
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b));
    for (int again = 0; again < 2; ++again) {
        snprintf(options, sizeof options, SMALL "--steps=%d --every=1 --checkpoint=%s/c", 3 - again,
                 b.folder);
        CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
        CHECK_MESSAGE(count(b.output, "holds checkpoints of another run, the newest is "
                                      "step-00000003.safetensors") == again,
                      "%s", b.output);
    }
    /* What it has written is newer than what it found. */
    snprintf(options, sizeof options, "--sample=0 --steps=3 --resume=%s/c", b.folder);
    CHECK_MESSAGE(train(1, options, b.output) == 0, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "step-00000002.safetensors after step 2\n") == 1, "%s", b.output);
    teardown(&b);
}

/* Nothing is trained by the resumed run, whose file says of the data what the one before says. */
TEST(run, a_file_from_which_nothing_was_trained_keeps_its_data_and_held_out_loss)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, SMALL "--steps=1 --eval-every=1 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    static const char *const others[] = {"--held-out=20", "--data=" TUTTI_SOURCE_DIR "/LICENSE"};
    for (int i = 0; i < 4; ++i) { /* to another folder, and to the own one */
        snprintf(command, sizeof command, "cd %s && cp c/step* before", b.folder);
        CHECK_EQ(run(command, b.output), 0);
        snprintf(command, sizeof command, "--resume=%s/c --checkpoint=%s/%c --sample=0 %s",
                 b.folder, b.folder, i < 2 ? 'd' : 'c', others[i % 2]);
        CHECK_MESSAGE(train(1 + i % 2, command, b.output) == 0, "%s", b.output);
        CHECK_EQ(count(b.output, "the checkpoint of step 1 stays as it is\n"), i >= 2);
        snprintf(command, sizeof command,
                 "cd %s && cmp before c/step* && for key in data held_out_from held_out_loss; do "
                 "for f in c/step* d/step*; do grep -ao \"\\\"$key\\\":\\\"[^\\\"]*\" $f; done | "
                 "uniq -c | grep -c '^ *2 ' || exit 1; done",
                 b.folder);
        CHECK_MESSAGE(run(command, b.output) == 0, "%s", b.output);
    }
    teardown(&b);
}

/* The newest checkpoint is looked for behind the lock: another run may write one until it gives the
 * lock up. */
TEST(run, a_folder_is_locked_before_its_newest_checkpoint_is_looked_for)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command,
             "flock %s/.lock %s/bin/tutti-train --resume=%s --checkpoint=%s 2>&1", b.folder,
             TUTTI_BINARY_DIR, b.folder, b.folder);
    CHECK_EQ(run(command, b.output), 1);
    CHECK_MESSAGE(strstr(b.output, "another run writes its checkpoints there"), "%s", b.output);
    teardown(&b);
}

/* A file of a later step lies there which --resume=FOLDER would take. */
TEST(run, a_run_that_a_signal_ends_names_its_own_checkpoint)
{
    struct bench b;
    char command[COMMAND], *says;
    long step = 0;
    REQUIRE(setup(&b));
    for (int is_later = 1; is_later >= 0; --is_later) {
        snprintf(command, sizeof command,
                 "cd %s; rm -rf c; mkdir c; %s timeout 60 %s/bin/tutti-train " SMALL
                 "--steps=1000000 --every=1 --checkpoint=c --log='a b' >out 2>&1 & p=$!; "
                 "while kill -0 $p && [ ! -e %s/c/step-00000001.safetensors ]; do sleep 0.05; "
                 "done; kill -TERM $p; wait $p; cat %s/out",
                 b.folder, is_later ? "touch c/step-99999999.safetensors;" : "", TUTTI_BINARY_DIR,
                 b.folder, b.folder);
        run(command, b.output);
        says = strstr(b.output, "ended by SIGTERM after step ");
        REQUIRE(says && sscanf(says, "ended by SIGTERM after step %ld", &step) == 1);
        snprintf(command, sizeof command,
                 "--resume=c/step-%08ld.safetensors --checkpoint=c --every=1 --log='a b' "
                 "--sample=0\n",
                 step);
        CHECK_MESSAGE(
            strstr(says, is_later ? command
                                  : "--resume=c --checkpoint=c --every=1 --log='a b' --sample=0\n"),
            "%s", says);
    }
    teardown(&b);
}

/* The limit on files leaves room for the library's shared memory, but not for a line behind a log
 * that is as long as the limit. */
TEST(run, a_log_above_the_limit_of_a_files_length_does_not_end_the_run)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, SMALL "--steps=1 --checkpoint=%s/c", b.folder);
    CHECK_MESSAGE(train(1, command, b.output) == 0, "%s", b.output);
    snprintf(command, sizeof command,
             "cd %s; echo '{\"step\": 0, \"loss\": 1}' >log; truncate -s 8388607 log; echo >>log; "
             "ulimit -f "
             "8192; TUTTI_SLOTS=2 timeout 60 "
             "%s/bin/tutti-train --resume=c --sample=0 --steps=2 --log=log 2>&1",
             b.folder, TUTTI_BINARY_DIR);
    const int code = run(command, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "File too large; no lines are written") == 1, "%s", b.output);
    teardown(&b);
}

/* The learning rate is so high that a loss is no number soon. The checkpoint of the step before is
 * still written in that step. */
TEST(run, what_is_being_written_when_a_run_fails_is_ended)
{
    struct bench b;
    char options[COMMAND], expected[64];
    long step = 0;
    REQUIRE(setup(&b));
    snprintf(options, sizeof options,
             SMALL "--optimizer=sgd --momentum=0 --lr=100 --min-lr=1 --clip=0 --decay=10 "
                   "--warmup=0 --steps=100 --every=1 --keep=1 --checkpoint=%s/c",
             b.folder);
    const int code = train(2, options, b.output);
    CHECK_MESSAGE(code == 1, "exit code %d:\n%s", code, b.output);
    const char *why = strstr(b.output, "0: step ");
    REQUIRE(why && sscanf(why, "0: step %ld: the loss is", &step) == 1);
    CHECK(step > 1);
    snprintf(expected, sizeof expected, "%ld ", step - 1);
    list_steps(&b, b.output);
    CHECK_STR(b.output, expected);
    teardown(&b);
}

TEST(run, nothing_can_be_kept_without_checkpoints)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_EQ(train(1, SMALL "--steps=1 --keep=2", b.output), 1);
    CHECK_MESSAGE(strstr(b.output, "--keep=2 without --checkpoint=DIR"), "%s", b.output);
    teardown(&b);
}

/* As on a file system that has no locks: a folder is not opened for writing. */
TEST(run, a_folder_that_cannot_be_locked_is_told)
{
    struct bench b;
    char command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(command, sizeof command, "mkdir %s/.lock", b.folder);
    REQUIRE(system(command) == 0);
    snprintf(command, sizeof command, SMALL "--steps=1 --checkpoint=%s", b.folder);
    const int code = train(2, command, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    CHECK_MESSAGE(count(b.output, "/.lock (Is a directory), so nothing keeps another run") == 1,
                  "%s", b.output);
    teardown(&b);
}

/* Writes 255 to a byte of the step's checkpoint in that folder; place: its number, as the shell
 * computes it, where $f is the file. */
static void damage(struct bench *b, const char *folder, int step, const char *place)
{
    char command[COMMAND];
    snprintf(command, sizeof command,
             "cd %s; f=step-%08d.safetensors; printf '\\377' | dd of=$f bs=1 conv=notrunc seek=%s "
             "2>&1",
             folder, step, place);
    CHECK_MESSAGE(run(command, b->output) == 0, "%s", b->output);
}

/* Of four checkpoints the newest has a flipped bit in the last tensor, then in the header, and the
 * one before a flipped bit in a tensor, too. */
TEST(run, a_damaged_checkpoint_names_the_next_older_one_that_is_whole)
{
    static const char *const places[] = {"$(($(stat -c %s $f) - 1))", "300"};
    struct bench b;
    char options[COMMAND], command[COMMAND], folder[96], says[128];
    REQUIRE(setup(&b));
    snprintf(folder, sizeof folder, "%s/c", b.folder);
    snprintf(options, sizeof options, SMALL "--steps=4 --every=1 --checkpoint=%s", folder);
    REQUIRE(train(1, options, b.output) == 0);
    damage(&b, folder, 3, "$(($(stat -c %s $f) - 9))");
    snprintf(options, sizeof options, "--resume=%s/c --steps=5 --sample=0", b.folder);
    for (int i = 0; i < 2; ++i) {
        damage(&b, folder, 4, places[i]);
        snprintf(says, sizeof says, "of step 2%s: --resume=%s/c/step-00000002.safetensors\n",
                 i ? ", perhaps of another run" : "", b.folder);
        CHECK_EQ(train(2, options, b.output), 1);
        CHECK_MESSAGE(strstr(b.output, "step-00000004") && count(b.output, says) == 1, "%s",
                      b.output);
        CHECK_EQ(count(b.output, "to see whether it is whole\n"), 2);
    }
    snprintf(command, sizeof command, "generate --from=%s/c", b.folder);
    CHECK_EQ(train(2, command, b.output), 1);
    CHECK_MESSAGE(count(b.output, ": --from=") == 1 && !strstr(b.output, "--resume"), "%s",
                  b.output);
    snprintf(command, sizeof command, "rm %s/c/step-0000000[12].safetensors", b.folder);
    CHECK_EQ(run(command, b.output), 0);
    CHECK_EQ(train(2, options, b.output), 1);
    CHECK_MESSAGE(strstr(b.output, "no older checkpoint there is whole"), "%s", b.output);
    teardown(&b);
}

/* A run's only checkpoint is damaged, and then its name leads nowhere; an older one of the folder
 * is of another run. */
TEST(run, a_damaged_checkpoint_names_no_older_one_of_another_run)
{
    struct bench b;
    char options[COMMAND], command[COMMAND];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options, SMALL "--steps=1 --checkpoint=%s", b.folder);
    REQUIRE(train(1, options, b.output) == 0);
    snprintf(options, sizeof options, SMALL "--steps=2 --checkpoint=%s", b.folder);
    REQUIRE(train(1, options, b.output) == 0);
    damage(&b, b.folder, 2, "$(($(stat -c %s $f) - 1))");
    snprintf(options, sizeof options, "--resume=%s --steps=5 --sample=0", b.folder);
    CHECK_EQ(train(1, options, b.output), 1);
    CHECK_MESSAGE(strstr(b.output, "no older checkpoint there is whole and of this run\n"), "%s",
                  b.output);
    snprintf(command, sizeof command, "ln -sf nowhere %s/step-00000002.safetensors", b.folder);
    CHECK_EQ(run(command, b.output), 0);
    CHECK_EQ(train(1, options, b.output), 1);
    CHECK_MESSAGE(strstr(b.output, "No such file or directory\n"), "%s", b.output);
    teardown(&b);
}

/* Matrices of more numbers than a piece of a checkpoint that is read has (TR_PIECE). */
TEST(run, tensors_of_several_pieces_are_read_on_another_layout)
{
    enum { MATRICES = 60000000 }; /* bytes of the file behind its header */
    struct bench b;
    char options[COMMAND];
    REQUIRE(setup(&b));
    snprintf(options, sizeof options,
             SMALL "--width=1056 --hidden=1056 --layers=1 --context=8 --batch=2 --micro-batch=1 "
                   "--held-out=0 --steps=1 --tp=2 --checkpoint=%s/a",
             b.folder);
    int code = train(2, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    snprintf(options, sizeof options,
             "--resume=%s/a --checkpoint=%s/b --steps=1 --sample=0 --tp=1 --fsdp=2", b.folder,
             b.folder);
    code = train(2, options, b.output);
    CHECK_MESSAGE(code == 0, "exit code %d:\n%s", code, b.output);
    snprintf(options, sizeof options,
             "cd %s && tail -c %d a/step-*.safetensors >end && tail -c %d b/step-*.safetensors | "
             "cmp - end 2>&1 && [ $(stat -c %%s end) -eq %d ]",
             b.folder, MATRICES, MATRICES, MATRICES);
    code = run(options, b.output);
    CHECK_MESSAGE(code == 0, "%s", b.output);
    teardown(&b);
}
