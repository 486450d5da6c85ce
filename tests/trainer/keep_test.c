/* Tests of which checkpoints --keep removes, and which one a folder stands for, where a run was set
 * back or has measured its loss on other held-out data. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/safetensors.h"
#include "shim.h"

/* What a file of run 9 says; loss "": it was not measured. */
struct file {
    int step;
    const char *start, *loss, *from;
};

static void path_of(const char *folder, int step, char path[96])
{
    CHECK_MESSAGE(tr_ckpt_path(folder, step, path, 96) == TR_OK, "%s", tr_error());
}

static bool write_file(const char *folder, const struct file *file)
{
    static const struct tr_tensor tensor = {"a", 1, {1}, 1};
    static const float zero;
    char path[96], step[16];
    struct tr_safetensors_writer *writer;
    path_of(folder, file->step, path);
    snprintf(step, sizeof step, "%d", file->step);
    const struct tr_metadata rows[] = {{"tutti-train", "3"},
                                       {"step", step},
                                       {"samples", "0"},
                                       {"data", "5"},
                                       {"run", "9"},
                                       {"start", file->start},
                                       {"held_out_from", file->from},
                                       {"held_out_loss", file->loss}};
    if (tr_safetensors_create(&writer, path, &tensor, 1, rows, file->loss[0] ? 8 : 7, false) < 0)
        return false;
    if (tr_safetensors_put(writer, 0, 0, &zero, 1) == TR_OK)
        return tr_safetensors_commit(writer, &(bool){false}) == TR_OK;
    tr_safetensors_discard(writer);
    return false;
}

/* Writes the files, n of them, and lets one be kept. `stay` has 1 for each that stays. */
static void check_kept(const struct file *files, int n, const struct tr_state *now,
                       const char *stay)
{
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[96];
    REQUIRE(mkdtemp(folder));
    for (int i = 0; i < n; ++i) REQUIRE(write_file(folder, &files[i]));
    tr_ckpt_keep(folder, NULL, now, 1);
    for (int i = 0; i < n; ++i) {
        path_of(folder, files[i].step, path);
        const bool is_there = access(path, F_OK) == 0;
        CHECK_MESSAGE(is_there == (stay[i] == '1'), "step %d: %d", files[i].step, is_there);
        unlink(path);
    }
    CHECK(rmdir(folder) == 0);
}

/* Start 2 went on from step 2 and has written 3; its save of step 4, or none, came last. Start 1
 * had written up to 5. */
TEST(keep, files_of_later_steps_than_the_run_was_set_back_to_do_not_count)
{
    static const struct file files[] = {{1, "1", "", "7"},
                                        {2, "1", "", "7"},
                                        {3, "2", "", "7"},
                                        {4, "1", "", "7"},
                                        {5, "1", "", "7"}};
    const struct tr_state set_back = {
        .step = 4, .run = 9, .start = 2, .after = 2, .data_checksum = 5, .held_out_from = 7};
    const struct tr_state nothing_written = {
        .step = 3, .run = 9, .start = 3, .after = 2, .data_checksum = 5, .held_out_from = 7};
    const struct tr_state gone_on = {
        .step = 5, .run = 9, .start = 3, .after = 5, .data_checksum = 5, .held_out_from = 7};
    check_kept(files, 5, &set_back, "00111");
    check_kept(files, 5, &nothing_written, "01111");
    check_kept(files, 5, &gone_on, "00001");
}

/* The best of each data stay: steps 1 and 2. From 0: an older version's file, of any data. */
TEST(keep, losses_on_other_held_out_data_are_not_compared)
{
    static const struct file files[] = {
        {1, "1", "0.5", "8"}, {2, "1", "2", "7"}, {3, "1", "3", "7"}, {4, "1", "4", "7"}};
    static const struct file older[] = {
        {1, "1", "0.5", "0"}, {2, "1", "2", "7"}, {3, "1", "3", "7"}, {4, "1", "4", "7"}};
    const struct tr_state now = {
        .step = 4, .run = 9, .start = 1, .data_checksum = 5, .held_out_from = 7};
    check_kept(files, 4, &now, "1101");
    check_kept(older, 4, &now, "1001");
}

/* A step has one file of the run: a second name of a checkpoint, also for the one that was written
 * last, and a copy under another step's name are not counted, and stay. */
TEST(keep, another_name_of_a_checkpoint_is_no_checkpoint)
{
    static const struct file files[] = {
        {2, "1", "", "7"}, {4, "1", "", "7"}, {6, "1", "", "7"}, {8, "1", "", "7"}};
    static const char *const others[] = {"step-6.safetensors",         "step-06.safetensors",
                                         "step-000000006.safetensors", "step- 6.safetensors",
                                         "step-+6.safetensors",        "step-00000005.safetensors"};
    static const struct tr_state now = {
        .step = 6, .run = 9, .start = 1, .data_checksum = 5, .held_out_from = 7};
    for (int kind = 0; kind < 3; ++kind)
        for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
            char folder[] = "/tmp/tutti-keep-XXXXXX", path[96], other[96], command[256];
            REQUIRE(mkdtemp(folder));
            for (int k = 0; k < 4; ++k) REQUIRE(write_file(folder, &files[k]));
            path_of(folder, 6, path);
            snprintf(other, sizeof other, "%s/%s", folder, others[i]);
            snprintf(command, sizeof command, "cp '%s' '%s'", path, other);
            REQUIRE(kind == 0   ? symlink("step-00000006.safetensors", other) == 0
                    : kind == 1 ? link(path, other) == 0
                                : system(command) == 0);
            tr_ckpt_keep(folder, NULL, &now, 2);
            CHECK_MESSAGE(access(other, F_OK) == 0, "kind %d: %s has gone", kind, others[i]);
            for (int k = 0; k < 4; ++k) {
                path_of(folder, files[k].step, path);
                CHECK_MESSAGE((access(path, F_OK) == 0) == (files[k].step > 2), "kind %d: %s: %s",
                              kind, others[i], path);
            }
            snprintf(command, sizeof command, "rm -r %s", folder);
            CHECK(system(command) == 0);
        }
}

static void check_found(const char *folder, int step)
{
    char path[PATH_MAX], expected[96];
    path_of(folder, step, expected);
    CHECK_MESSAGE(tr_ckpt_find("resume", folder, path, sizeof path) == TR_OK, "%s", tr_error());
    CHECK_STR(path, expected);
}

TEST(keep, the_newest_of_a_folder_is_the_last_one_of_the_latest_start)
{
    static const struct file files[] = {
        {2, "1", "", "7"}, {5, "1", "", "7"}, {3, "2", "", "7"}, {4, "2", "", "7"}};
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[96], command[64], name[NAME_MAX + 1];
    uint64_t start = 1;
    int64_t last;
    REQUIRE(mkdtemp(folder));
    CHECK(tr_ckpt_find("resume", folder, path, sizeof path) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "no step-*.safetensors in that folder"), "%s", tr_error());
    for (int i = 0; i < 4; ++i) {
        static const int newest[] = {2, 5, 3, 4};
        REQUIRE(write_file(folder, &files[i]));
        check_found(folder, newest[i]);
    }
    tr_ckpt_survey(folder, 9, &start, name, &last);
    CHECK_EQ(start, 2);
    CHECK_EQ(last, 5);
    CHECK_STR(name, "");
    start = 3;
    tr_ckpt_survey(folder, 8, &start, name, &last);
    CHECK_EQ(start, 3);
    CHECK_EQ(last, -1);
    CHECK_STR(name, "step-00000004.safetensors");
    /* One that cannot be read may be the newest only where its step is the last, or it was written
     * last: that of a start which a later one has set back may have a later step. */
    const struct timespec before[2] = {{1, 0}, {1, 0}}, later[2] = {{1LL << 31, 0}, {1LL << 31, 0}};
    path_of(folder, 3, path);
    REQUIRE(truncate(path, 3) == 0 && utimensat(AT_FDCWD, path, before, 0) == 0);
    check_found(folder, 4);
    REQUIRE(utimensat(AT_FDCWD, path, later, 0) == 0);
    CHECK(tr_ckpt_find("resume", folder, path, sizeof path) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "step-00000003.safetensors") &&
                      strstr(tr_error(), "it was written after step-00000004.safetensors, so it is "
                                         "not known which of both is the newest"),
                  "%s", tr_error());
    path_of(folder, 5, path);
    REQUIRE(truncate(path, 3) == 0);
    check_found(folder, 5);
    tr_ckpt_survey(folder, 9, &start, name, &last); /* of which run they are is not known */
    CHECK_STR(name, "");
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* Start 1 wrote up to step 20 and was set back to 5; start 2 has written 8, 12 and 18. */
TEST(keep, the_error_of_a_damaged_file_names_one_of_the_same_start)
{
    static const struct file files[] = {{5, "1", "", "7"},  {10, "1", "", "7"}, {15, "1", "", "7"},
                                        {20, "1", "", "7"}, {8, "2", "", "7"},  {12, "2", "", "7"},
                                        {18, "2", "", "7"}};
    static const int gone[] = {12, 8}, named[] = {12, 8, 15};
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[96], expected[160], command[64];
    REQUIRE(mkdtemp(folder));
    for (int i = 0; i < 7; ++i) REQUIRE(write_file(folder, &files[i]));
    for (int i = 0; i < 3; ++i) {
        path_of(folder, named[i], path);
        snprintf(expected, sizeof expected, "of step %d%s: --resume=%s", named[i],
                 i == 2 ? ", of another start" : "", path);
        path_of(folder, 18, path);
        CHECK(tr_ckpt_propose_older("resume", path, tr_fail("a wrong checksum")) < 0);
        CHECK_MESSAGE(strstr(tr_error(), expected), "%s", tr_error());
        if (i == 2) break;
        path_of(folder, gone[i], path);
        REQUIRE(unlink(path) == 0);
    }
    path_of(folder, 18, path);
    REQUIRE(unlink(path) == 0);
    CHECK(tr_ckpt_propose_older("resume", path, tr_fail("not there")) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "not there; it was removed meanwhile"), "%s", tr_error());
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* What another run does in a folder once the first of its names were read. */
static struct {
    const char *folder; /* NULL: nothing */
    struct file file;   /* its newest */
    int turns;          /* how often it still writes the next one and removes this one */
    int misses;         /* in so many readings no name of a step from that of `file` on is seen */
    int entries;        /* > 0: so many entries on the folder cannot be read, once */
} other_run;

static void write_next(void)
{
    char path[96];
    path_of(other_run.folder, other_run.file.step, path);
    other_run.file.step++;
    CHECK(write_file(other_run.folder, &other_run.file));
    CHECK(unlink(path) == 0);
}

struct dirent *__real_readdir(DIR *folder);
struct dirent *__wrap_readdir(DIR *folder);

struct dirent *__wrap_readdir(DIR *folder)
{
    static bool has_begun;
    if (other_run.entries > 0 && --other_run.entries == 0) {
        errno = EIO;
        return NULL;
    }
    struct dirent *entry = __real_readdir(folder);
    const bool begins = entry && !has_begun;
    has_begun = entry != NULL;
    if (other_run.folder && begins && other_run.turns-- > 0) write_next();
    long long step;
    while (other_run.folder && other_run.misses > 0 && entry &&
           tr_ckpt_is_named(entry->d_name, "", &step) && step >= other_run.file.step)
        entry = __real_readdir(folder);
    if (!entry && has_begun) has_begun = false;
    if (!entry && other_run.misses > 0) other_run.misses--;
    return entry;
}

/* `best` stays; NULL: there is none. After `turns` the folder stands for the last that was
 * written. */
static void check_beside(const struct file *best, const struct file *newest, int turns, int misses)
{
    char folder[] = "/tmp/tutti-keep-XXXXXX", command[64];
    REQUIRE(mkdtemp(folder));
    REQUIRE(write_file(folder, newest) && (!best || write_file(folder, best)));
    other_run.file = *newest;
    other_run.turns = turns;
    other_run.misses = misses;
    other_run.folder = folder;
    check_found(folder, newest->step + turns);
    other_run.folder = NULL;
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

TEST(keep, the_newest_is_found_where_a_run_removes_the_one_before_it_meanwhile)
{
    static const struct file best = {1, "1", "", "7"}, newest = {5, "1", "", "7"},
                             set_back = {5, "2", "", "7"}, later = {20, "1", "", "7"};
    check_beside(&best, &newest, 1, 0);
    check_beside(&best, &newest, 3, 0);
    check_beside(NULL, &newest, 1, 0);
    check_beside(NULL, &newest, 2, 0);
    check_beside(&later, &set_back, 3, 0);
    check_beside(&best, &newest, 0, 1);
    check_beside(NULL, &newest, 0, 1);
}

TEST(keep, an_older_one_is_not_taken_where_the_newest_always_goes)
{
    static const struct file best = {1, "1", "", "7"}, newest = {5, "1", "", "7"};
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[PATH_MAX], command[64];
    REQUIRE(mkdtemp(folder));
    REQUIRE(write_file(folder, &best) && write_file(folder, &newest));
    other_run.file = newest;
    other_run.turns = INT_MAX;
    other_run.folder = folder;
    CHECK(tr_ckpt_find("resume", folder, path, sizeof path) < 0);
    other_run.folder = NULL;
    CHECK_MESSAGE(
        strstr(tr_error(), "removes checkpoints (--keep) faster than this folder is read"), "%s",
        tr_error());
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

TEST(keep, an_older_one_is_not_taken_where_the_folder_cannot_be_read)
{
    static const struct file older = {1, "1", "", "7"}, newest = {5, "1", "", "7"};
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[PATH_MAX], command[64];
    REQUIRE(mkdtemp(folder));
    REQUIRE(write_file(folder, &older) && write_file(folder, &newest));
    for (int entries = 1; entries <= 15; entries++) { /* three readings of 4 entries and an end */
        other_run.entries = entries;
        CHECK_MESSAGE(tr_ckpt_find("resume", folder, path, sizeof path) < 0, "%d", entries);
        CHECK_MESSAGE(strstr(tr_error(), "cannot be read to its end (Input/output error)"), "%s",
                      tr_error());
    }
    CHECK_EQ(other_run.entries, 0);
    check_found(folder, 5);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

TEST(keep, nothing_is_removed_or_proposed_where_the_folder_cannot_be_read)
{
    static const struct file files[] = {
        {1, "1", "", "7"}, {5, "1", "", "7"}, {9, "1", "", "7"}, {12, "1", "", "7"}};
    const struct tr_state now = {.run = 1, .start = 1, .step = 12};
    char folder[] = "/tmp/tutti-keep-XXXXXX", path[PATH_MAX], command[64];
    REQUIRE(mkdtemp(folder));
    for (int i = 0; i < 4; i++) REQUIRE(write_file(folder, &files[i]));
    for (int entries = 1; entries <= 7; entries++) { /* a reading of 6 entries and an end */
        other_run.entries = entries;
        tr_ckpt_keep(folder, NULL, &now, 1);
        CHECK_EQ(other_run.entries, 0);
        for (int i = 0; i < 4; i++) {
            path_of(folder, files[i].step, path);
            CHECK_MESSAGE(access(path, F_OK) == 0, "%d: %s", entries, path);
        }
        other_run.entries = entries;
        CHECK(tr_ckpt_propose_older("resume", path, tr_fail("a wrong checksum")) < 0);
        CHECK_MESSAGE(strstr(tr_error(), "a wrong checksum; older ones cannot be looked for") &&
                          strstr(tr_error(), "to its end (Input/output error)"),
                      "%s", tr_error());
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}
