/* Tests of the folder that a run keeps from others: it is renamed, removed, replaced, and so is its
 * `.lock`, between saves and during one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/safetensors.h"
#include "ranks.h"
#include "shim.h"

/* Takes the place of the system's function in this program: another run, whose descriptor of a
 * `.lock` is `thief`, locks that as soon as any lock is given up. */
static int thief = -1, thefts;
int flock(int fd, int operation)
{
    const int result = (int)syscall(SYS_flock, fd, operation);
    if (operation == LOCK_UN && thief >= 0)
        thefts += syscall(SYS_flock, thief, LOCK_EX | LOCK_NB) == 0;
    return result;
}

/* Takes the place of the system's function in this program: fails with that number, if not 0. */
static int rename_error;
int renameat(int from, const char *old, int to, const char *new)
{
    if (!rename_error) return (int)syscall(SYS_renameat2, from, old, to, new, 0);
    errno = rename_error;
    return -1;
}

/* A folder `c` in one of its own, held by run 7. */
struct bench {
    char root[32], folder[64], away[64], lock[80], file[96];
    struct tr_hold hold;
};

static bool setup(struct bench *b)
{
    strcpy(b->root, "/tmp/tutti-hold-XXXXXX");
    if (!mkdtemp(b->root)) return false;
    snprintf(b->folder, sizeof b->folder, "%s/c", b->root);
    snprintf(b->away, sizeof b->away, "%s/away", b->root);
    snprintf(b->lock, sizeof b->lock, "%s/.lock", b->folder);
    snprintf(b->file, sizeof b->file, "%s/step-00000001.safetensors", b->folder);
    return tr_ckpt_prepare(b->folder) == TR_OK && tr_ckpt_lock(b->folder, &b->hold) == TR_OK;
}

static void teardown(struct bench *b)
{
    char command[64];
    tr_ckpt_release(&b->hold);
    snprintf(command, sizeof command, "rm -rf %s", b->root);
    CHECK(system(command) == 0);
}

static tr_status hold(struct bench *b)
{
    return tr_ckpt_hold(b->folder, 7, &b->hold);
}

/* Whether another run, which opens the file anew, finds it locked. */
static bool is_locked(const char *path)
{
    const int fd = open(path, O_RDWR);
    const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    if (fd >= 0) close(fd);
    return locked;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A file of the name, step-0000000N.safetensors, which run 9 has written after step N. */
static bool write_other(const char *path)
{
    static const struct tr_tensor tensor = {"a", 1, {1}, 1};
    static const float zero;
    const char step[2] = {path[strcspn(path, ".") - 1]};
    const struct tr_metadata rows[] = {
        {"tutti-train", "3"}, {"step", step}, {"samples", "0"}, {"data", "0"}, {"run", "9"}};
    struct tr_safetensors_writer *writer;
    if (tr_safetensors_create(&writer, path, &tensor, 1, rows, 5, false) < 0) return false;
    if (tr_safetensors_put(writer, 0, 0, &zero, 1) == TR_OK)
        return tr_safetensors_commit(writer, &(bool){false}) == TR_OK;
    tr_safetensors_discard(writer);
    return false;
}

/* The hold gets the numbers of the folder that has the name, on another file system. */
static bool take_numbers(struct bench *b)
{
    struct stat st;
    if (stat(b->folder, &st) != 0) return false;
    b->hold.device = st.st_dev ^ 1;
    b->hold.inode = st.st_ino;
    return true;
}

#define CHECK_FAILS(status, text)                                                                  \
    do {                                                                                           \
        CHECK((status) < 0);                                                                       \
        CHECK_MESSAGE(strstr(tr_error(), text), "%s", tr_error());                                 \
    } while (0)

TEST(hold, another_folder_with_checkpoints_is_never_taken_over)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(rename(b.folder, b.away) == 0 && mkdir(b.folder, 0777) == 0 && write_other(b.file));
    CHECK_FAILS(hold(&b), "holds step-00000001.safetensors, a checkpoint of another run");
    CHECK(!is_there(b.lock));
    REQUIRE(truncate(b.file, 3) == 0);
    CHECK_FAILS(hold(&b), "holds step-00000001.safetensors, whose run cannot be read");
    CHECK(is_there(b.file));
    /* The run's own folder gets its name back. */
    REQUIRE(unlink(b.file) == 0 && rmdir(b.folder) == 0 && rename(b.away, b.folder) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    teardown(&b);
}

TEST(hold, another_folder_without_checkpoints_is_locked_anew)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(rename(b.folder, b.away) == 0 && mkdir(b.folder, 0777) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    /* The new one is the run's. */
    REQUIRE(write_other(b.file));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    teardown(&b);
}

/* A folder that is made where one was removed may get its inode. */
TEST(hold, a_folder_in_the_place_of_one_that_was_removed_is_another_one)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(unlink(b.lock) == 0 && rmdir(b.folder) == 0 && mkdir(b.folder, 0777) == 0);
    REQUIRE(write_other(b.file));
    CHECK_FAILS(hold(&b), "a checkpoint of another run");
    teardown(&b);
}

TEST(hold, a_folder_that_another_run_has_locked_stays_its_own)
{
    struct bench b;
    struct tr_hold other;
    REQUIRE(setup(&b));
    REQUIRE(rename(b.folder, b.away) == 0 && mkdir(b.folder, 0777) == 0);
    REQUIRE(tr_ckpt_lock(b.folder, &other) == TR_OK);
    CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
    tr_ckpt_release(&other);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    teardown(&b);
}

TEST(hold, what_a_failed_save_could_not_remove_goes_before_the_next_one)
{
    struct bench b;
    char left[160];
    REQUIRE(setup(&b));
    snprintf(left, sizeof left, "%s/step-00000001.safetensors.%ld.tmp", b.folder, (long)getpid());
    REQUIRE(write_other(b.file) && rename(b.file, left) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(!is_there(left));
    /* That of another process, which could not lock the folder, may be under way. */
    char others[160];
    snprintf(others, sizeof others, "%s/step-00000001.safetensors.%ld.tmp", b.folder,
             (long)getpid() + 1);
    REQUIRE(write_other(b.file) && rename(b.file, others) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_there(others));
    REQUIRE(unlink(others) == 0);
    /* Where nothing could be locked it may be another run's. */
    REQUIRE(write_other(b.file) && rename(b.file, left) == 0);
    close(b.hold.lock);
    b.hold.lock = -1;
    REQUIRE(unlink(b.lock) == 0 && mkdir(b.lock, 0777) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_there(left));
    REQUIRE(rmdir(b.lock) == 0 && unlink(left) == 0);
    teardown(&b);
}

TEST(hold, a_lock_that_is_gone_or_another_file_is_taken_anew)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(write_other(b.file)); /* as own ones are there */
    REQUIRE(unlink(b.lock) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    REQUIRE(unlink(b.lock) == 0);
    const int other = open(b.lock, O_RDWR | O_CREAT, 0666);
    REQUIRE(other >= 0 && flock(other, LOCK_EX) == 0);
    CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
    close(other);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    teardown(&b);
}

/* Its `.lock` was removed, and another run has written checkpoints there and ended. A copy of the
 * own `.lock` is no sign of another run. */
TEST(hold, a_folder_that_another_run_has_had_is_not_written_to)
{
    struct bench b;
    struct tr_hold other;
    char command[512];
    REQUIRE(setup(&b));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    snprintf(command, sizeof command, "cp %s %s && mv %s %s", b.lock, b.away, b.away, b.lock);
    REQUIRE(system(command) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    REQUIRE(unlink(b.lock) == 0 && tr_ckpt_lock(b.folder, &other) == TR_OK);
    CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
    CHECK_MESSAGE(tr_ckpt_hold(b.folder, 9, &other) == TR_OK, "%s", tr_error());
    tr_ckpt_release(&other);
    for (int i = 0; i < 2; ++i) {
        CHECK_FAILS(hold(&b), "another run has had the folder");
        CHECK_FAILS(tr_ckpt_check_hold(b.folder, &b.hold), "another run has had the folder");
    }
    CHECK(!is_locked(b.lock));
    REQUIRE(rename(b.folder, b.away) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    teardown(&b);
}

/* By the system's word, as on NFS where another host has removed the file. */
TEST(hold, a_lock_whose_file_cannot_be_looked_at_is_taken_anew)
{
    struct bench b;
    REQUIRE(setup(&b));
    close(b.hold.lock);
    b.hold.lock = 1 << 30; /* no descriptor */
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    teardown(&b);
}

/* Another folder has the run's own `.lock`, by another link. */
TEST(hold, the_own_lock_in_another_folder_is_no_other_run)
{
    struct bench b;
    char own[80];
    REQUIRE(setup(&b));
    snprintf(own, sizeof own, "%s/.lock", b.away);
    REQUIRE(rename(b.folder, b.away) == 0 && mkdir(b.folder, 0777) == 0);
    REQUIRE(link(own, b.lock) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    teardown(&b);
}

/* A `.lock` that is somebody's file keeps its bytes. */
TEST(hold, a_lock_with_another_text_is_locked_and_not_written)
{
    static const char text[] = "somebody's notes\n"; /* as long as what a run writes */
    char read_text[sizeof text] = "";
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    const int fd = open(b.lock, O_RDWR);
    REQUIRE(fd >= 0 && pwrite(fd, text, sizeof text - 1, 0) == (ssize_t)sizeof text - 1);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    CHECK_EQ(pread(fd, read_text, sizeof text, 0), (ssize_t)sizeof text - 1);
    CHECK_MESSAGE(strcmp(read_text, text) == 0, "%s", read_text);
    close(fd);
    teardown(&b);
}

TEST(hold, a_lock_that_is_a_link_leads_to_no_other_file)
{
    struct bench b;
    struct stat st;
    char own[80];
    REQUIRE(setup(&b));
    snprintf(own, sizeof own, "%s/notes", b.root);
    const int fd = open(own, O_RDWR | O_CREAT, 0666);
    REQUIRE(fd >= 0 && unlink(b.lock) == 0 && symlink(own, b.lock) == 0);
    CHECK_FAILS(hold(&b), "/.lock");
    CHECK(!is_locked(own));
    CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
    close(fd);
    teardown(&b);
}

/* No descriptor is left: the lock of before stays, and a later save takes a new one. */
TEST(hold, a_lock_that_cannot_be_taken_keeps_the_one_before)
{
    struct bench b;
    struct rlimit limit, none;
    REQUIRE(setup(&b));
    REQUIRE(unlink(b.lock) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const int before = b.hold.lock;
    none = limit;
    none.rlim_cur = 0;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const tr_status status = hold(&b);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_FAILS(status, "Too many open files");
    CHECK_EQ(b.hold.lock, before);
    CHECK(fcntl(before, F_GETFD) >= 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    teardown(&b);
}

/* Of another reason than that it is gone. */
TEST(hold, a_folder_that_cannot_be_looked_at_is_not_made_again)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(rename(b.folder, b.away) == 0 && symlink("c", b.folder) == 0);
    CHECK_FAILS(hold(&b), "Too many levels of symbolic links");
    CHECK_FAILS(tr_ckpt_check_hold(b.folder, &b.hold), "Too many levels of symbolic links");
    teardown(&b);
}

/* As after a mount by which the file system gets another number: with the run's checkpoints in it,
 * and the number of this process in the `.lock`. */
TEST(hold, the_own_folder_that_was_mounted_again_is_known)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    REQUIRE(write_other(b.file));
    b.hold.device ^= 1;
    CHECK_FAILS(tr_ckpt_check_hold(b.folder, &b.hold), "became another one");
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    CHECK_MESSAGE(tr_ckpt_check_hold(b.folder, &b.hold) == TR_OK, "%s", tr_error());
    b.hold.device ^= 1;
    b.hold.inode ^= 1;
    CHECK_FAILS(hold(&b), "on another file system");
    teardown(&b);
}

/* The root folders of two disks have the same number, and what goes on from one checkpoint has the
 * same run. */
TEST(hold, a_folder_of_the_same_run_on_another_disk_is_not_the_own)
{
    struct bench b, other;
    REQUIRE(setup(&b) && setup(&other));
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK_MESSAGE(hold(&other) == TR_OK, "%s", tr_error());
    tr_ckpt_release(&other.hold);
    REQUIRE(write_other(other.file));
    REQUIRE(rename(b.folder, b.away) == 0 && rename(other.folder, b.folder) == 0);
    take_numbers(&b);
    CHECK_FAILS(hold(&b), "on another file system");
    teardown(&b);
    teardown(&other);
}

/* Puts a folder in the place of the held one, with the own number in its `.lock`. */
static bool mount_again(struct bench *b)
{
    char command[512];
    snprintf(command, sizeof command, "mv %s %s && mkdir %s && cp %s/.lock %s", b->folder, b->away,
             b->folder, b->away, b->lock);
    return system(command) == 0 && take_numbers(b);
}

static bool mount_back(struct bench *b)
{
    char command[512];
    snprintf(command, sizeof command, "rm -r %s && mv %s %s", b->folder, b->away, b->folder);
    const bool is_done = system(command) == 0 && take_numbers(b);
    b->hold.device ^= 1;
    return is_done;
}

/* Another run, `other`, has locked the folder that was mounted again, and a third one locks the
 * folder of before in the moment in which its lock is given up. */
TEST(hold, a_lock_that_is_given_up_and_lost_is_an_error_until_it_is_held_again)
{
    static const char text[] = "0123456789abcdef\n";
    for (int writes = 0; writes < 2; ++writes) {
        struct bench b;
        char before[80];
        REQUIRE(setup(&b));
        snprintf(before, sizeof before, "%s/.lock", b.away);
        CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
        REQUIRE(mount_again(&b));
        const int other = open(b.lock, O_RDWR);
        REQUIRE(other >= 0 && flock(other, LOCK_EX) == 0);
        CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
        CHECK(is_locked(before)); /* by this run again */
        thief = open(before, O_RDWR);
        thefts = 0;
        REQUIRE(thief >= 0);
        CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
        CHECK_EQ(thefts, 1);
        REQUIRE(mount_back(&b));
        CHECK_FAILS(hold(&b), "another run writes its checkpoints there");
        CHECK_FAILS(tr_ckpt_check_hold(b.folder, &b.hold), "another run writes");
        if (writes) CHECK(pwrite(thief, text, sizeof text - 1, 0) > 0);
        close(thief);
        thief = -1;
        close(other);
        if (writes)
            CHECK_FAILS(hold(&b), "another run has had the folder");
        else
            CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
        CHECK_EQ(is_locked(b.lock), !writes);
        teardown(&b);
    }
}

/* Without a server there is no need to give a lock up. */
TEST(hold, a_lock_is_given_up_only_where_the_other_one_is_taken)
{
    struct bench b;
    char before[80];
    REQUIRE(setup(&b));
    snprintf(before, sizeof before, "%s/.lock", b.away);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    REQUIRE(mount_again(&b));
    thief = open(before, O_RDWR);
    thefts = 0;
    REQUIRE(thief >= 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    CHECK_EQ(thefts, 0);
    close(thief);
    thief = -1;
    teardown(&b);
}

TEST(hold, only_the_folder_itself_is_made_again)
{
    struct bench b, above;
    char moved[64];
    REQUIRE(setup(&b));
    REQUIRE(rename(b.folder, b.away) == 0);
    CHECK_MESSAGE(hold(&b) == TR_OK, "%s", tr_error());
    CHECK(is_locked(b.lock));
    teardown(&b);
    REQUIRE(setup(&above));
    snprintf(moved, sizeof moved, "%s-moved", above.root);
    REQUIRE(rename(above.root, moved) == 0);
    CHECK_FAILS(hold(&above), "in which it was: No such file or directory");
    CHECK(!is_there(above.root));
    REQUIRE(rename(moved, above.root) == 0);
    CHECK_MESSAGE(hold(&above) == TR_OK, "%s", tr_error());
    teardown(&above);
}

/* As a folder that only grows (chattr +a) does, and some mounts of buckets. */
TEST(hold, a_folder_whose_files_cannot_be_renamed_is_told_at_the_start)
{
    struct bench b;
    struct tr_hold other;
    REQUIRE(setup(&b));
    tr_ckpt_release(&b.hold);
    rename_error = EPERM;
    const tr_status status = tr_ckpt_lock(b.folder, &other);
    rename_error = 0;
    CHECK_FAILS(status, "a file there cannot be renamed (Operation not permitted)");
    CHECK_EQ(other.folder, -1);
    CHECK(unlink(b.lock) == 0 && rmdir(b.folder) == 0); /* nothing else is left there */
    teardown(&b);
}

TEST(hold, a_name_that_the_last_checkpoint_cannot_get_is_told_at_the_start)
{
    struct bench b;
    char path[PATH_MAX];
    REQUIRE(setup(&b));
    snprintf(path, sizeof path, "%s/step-00000050.safetensors", b.folder);
    CHECK_EQ(tr_ckpt_check_last(b.folder, 50), TR_OK);
    REQUIRE(write_other(path));
    CHECK_EQ(tr_ckpt_check_last(b.folder, 50), TR_OK); /* an own file is replaced */
    REQUIRE(unlink(path) == 0 && mkdir(path, 0777) == 0);
    CHECK(tr_ckpt_check_last(b.folder, 50) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "but a folder of that name is there"), "%s", tr_error());
    CHECK_EQ(tr_ckpt_check_last(b.folder, 51), TR_OK);
    rmdir(path);
    teardown(&b);
}

TEST(hold, keep_removes_nothing_from_another_folder)
{
    struct bench b;
    char later[96];
    const struct tr_state now = {.step = 2, .run = 9};
    REQUIRE(setup(&b));
    snprintf(later, sizeof later, "%s/step-00000002.safetensors", b.folder);
    REQUIRE(rename(b.folder, b.away) == 0 && mkdir(b.folder, 0777) == 0);
    REQUIRE(write_other(b.file) && write_other(later));
    tr_ckpt_keep(b.folder, &b.hold, &now, 1);
    CHECK(is_there(b.file) && is_there(later));
    tr_ckpt_keep(b.folder, NULL, &now, 1);
    CHECK(is_there(b.file) != is_there(later));
    teardown(&b);
}

/* The folder is replaced after a save has begun. */
static void save_into_another(struct rank *self)
{
    static const struct tr_engine_options options = {.model = {.kind = TR_GPT2,
                                                               .layers = 1,
                                                               .heads = 2,
                                                               .kv_heads = 2,
                                                               .width = 16,
                                                               .hidden = 32,
                                                               .vocabulary = 256,
                                                               .context = 8,
                                                               .tied = true},
                                                     .schedule = TR_1F1B,
                                                     .batch = 2,
                                                     .micro_batch = 1,
                                                     .bucket_bytes = 1 << 20,
                                                     .seed = 1};
    struct bench *b = (struct bench *)self->arg;
    const struct tr_state state = {.step = 1, .run = 7};
    static const int size[TR_NUM_AXES] = {1, 1, 1, 1, 1, 1};
    struct tr_mesh mesh = {0};
    struct tr_engine e = {0};
    struct tr_config config;
    struct tr_save *begun = NULL;
    tr_process_tune();
    tr_config_init(&config);
    config.keep = 1;
    tr_status status = tr_mesh_init(&mesh, self->world);
    if (status == TR_OK) status = tr_mesh_shape(&mesh, size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &options);
    if (status == TR_OK)
        status = tr_ckpt_begin(&e, b->folder, &b->hold, &state, &config, NULL, &begun);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    if (status == TR_OK) {
        CHECK(rename(b->folder, b->away) == 0 && mkdir(b->folder, 0777) == 0);
        CHECK(write_other(b->file));
        while (begun && status == TR_OK) status = tr_ckpt_advance(&begun);
        CHECK_EQ(status, TR_AGREED);
        CHECK_MESSAGE(strstr(tr_error(), "became another one since this save"), "%s", tr_error());
    }
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(hold, a_folder_that_is_replaced_during_a_save_gets_no_file)
{
    struct bench b;
    struct tr_state state;
    REQUIRE(setup(&b));
    CHECK(run_ranks(1, save_into_another, &b));
    CHECK_MESSAGE(tr_ckpt_read_state(b.file, &state) == TR_OK, "%s", tr_error());
    CHECK_EQ(state.run, 9);
    teardown(&b);
}
