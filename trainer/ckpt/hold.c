/* Keeps the folder of a run's checkpoints from other runs, by a lock on its file `.lock`, in which
 * each save writes a number of its process. NFS locks files for all hosts, and only files that are
 * open for writing; folders it locks for one host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../watch/pipe.h"
#include "ckpt.h"

uint64_t tr_ckpt_new_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number && number) return number;
    return (uint64_t)time(NULL) << 32 | (uint64_t)getpid();
}

void tr_ckpt_release(struct tr_hold *hold)
{
    if (hold->lock >= 0) close(hold->lock);
    if (hold->folder >= 0) close(hold->folder);
    *hold = (struct tr_hold)TR_NO_HOLD;
}

/* Opens the folder, whose numbers no other gets while it is open. */
static tr_status open_folder(const char *folder, struct tr_hold *hold)
{
    struct stat st;
    *hold = (struct tr_hold)TR_NO_HOLD;
    hold->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (hold->folder >= 0 && fstat(hold->folder, &st) == 0) {
        hold->device = st.st_dev;
        hold->inode = st.st_ino;
        return TR_OK;
    }
    const int error = errno;
    tr_ckpt_release(hold);
    return tr_fail("--checkpoint=%s: cannot open the folder: %s", folder, strerror(error));
}

/* Opens and locks `.lock`. Returns 0, or what errno was; *lock is open where only the locking
 * failed. */
static int take_lock(int folder, int *lock)
{
    *lock = openat(folder, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

/* The first file of the folder, from *entries on, whose name is a checkpoint's with `rest` behind
 * it; NULL: there is none, or *error is what errno was. */
static const char *next_file(DIR *entries, const char *rest, int *error)
{
    for (const struct dirent *entry; (entry = tr_ckpt_next(entries, error));) {
        long long step;
        if (tr_ckpt_is_named(entry->d_name, rest, &step)) return entry->d_name;
    }
    return NULL;
}

static DIR *open_entries(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !entries) close(fd);
    return entries;
}

static void remove_temporary(int folder, const char *pattern)
{
    DIR *entries = open_entries(folder);
    int error = 0;
    if (!entries) return;
    for (const char *name; (name = next_file(entries, pattern, &error));)
        unlinkat(dirfd(entries), name, 0);
    closedir(entries);
}

/* Removes the temporary files of runs that were killed while several ranks wrote. A run that cannot
 * lock the folder, as that of another user, may write there later: only this moment is safe. */
static void remove_leftovers(int folder)
{
    remove_temporary(folder, ".+([0-9]).tmp");
}

/* Removes those of saves of this process that have failed and could not remove theirs. */
static void remove_own_leftovers(int folder)
{
    char pattern[32];
    snprintf(pattern, sizeof pattern, ".%ld.tmp", (long)getpid());
    remove_temporary(folder, pattern);
}

static tr_status refuse(const char *folder)
{
    return tr_fail("--checkpoint=%s: another run writes its checkpoints there; wait for its end, "
                   "or give another folder",
                   folder);
}

static void tell_unlocked(const char *folder, int error)
{
    tr_say(stdout,
           "note: --checkpoint=%s: cannot lock %s/.lock (%s), so nothing keeps another run from "
           "writing its checkpoints there: give each run a folder of its own\n",
           folder, folder, strerror(error));
}

/* Whether a file of the folder can get another name, as a checkpoint does at the end of its save.
 * Both names are those of leftovers, of no process. Another run's may be removed meanwhile where
 * the folder could not be locked. */
static tr_status try_rename(const char *folder, int descriptor)
{
    static const char one[] = "step-00000000.safetensors.0.tmp",
                      other[] = "step-00000000.safetensors.00.tmp";
    const int fd =
        openat(descriptor, one, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0)
        return tr_fail("--checkpoint=%s: no file can be made there: %s; give another folder",
                       folder, strerror(errno));
    close(fd);
    const int error = renameat(descriptor, one, descriptor, other) < 0 ? errno : 0;
    const bool is_left = unlinkat(descriptor, error ? one : other, 0) < 0 && errno != ENOENT;
    if (!error || error == ENOENT) return TR_OK;
    return tr_fail("--checkpoint=%s: a file there cannot be renamed (%s), as a checkpoint is when "
                   "it is whole; give another folder%s%s",
                   folder, strerror(error), is_left ? ", and remove the empty " : "",
                   is_left ? one : "");
}

static tr_status try_or_release(const char *folder, struct tr_hold *hold)
{
    const tr_status status = try_rename(folder, hold->folder);
    if (status < 0) tr_ckpt_release(hold);
    return status;
}

tr_status tr_ckpt_lock(const char *folder, struct tr_hold *hold)
{
    TR_TRY(open_folder(folder, hold));
    hold->owner = tr_ckpt_new_number();
    const int error = take_lock(hold->folder, &hold->lock);
    if (!error) {
        remove_leftovers(hold->folder);
        return try_or_release(folder, hold);
    }
    if (hold->lock >= 0) close(hold->lock);
    const bool is_taken = hold->lock >= 0 && error == EWOULDBLOCK;
    hold->lock = -1;
    if (is_taken) {
        tr_ckpt_release(hold);
        return refuse(folder);
    }
    tell_unlocked(folder, error);
    return try_or_release(folder, hold);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Locks a folder in the middle of a run, in which `.lock` may be the file of the lock of before.
 * *lock is -1 only where the run has held none. *is_taken: fails as somebody else has locked it. */
static tr_status lock_anew(const char *folder, int descriptor, const struct tr_hold *old, int *lock,
                           bool *is_taken)
{
    struct stat before, found;
    const int error = take_lock(descriptor, lock), held = old->lock;
    *is_taken = false;
    if (!error) return TR_OK;
    const bool is_open = *lock >= 0;
    const bool is_own = is_open && held >= 0 && !old->is_lost && fstat(held, &before) == 0 &&
                        fstat(*lock, &found) == 0 && is_same(&before, &found);
    if (is_open) close(*lock);
    *lock = is_own ? fcntl(held, F_DUPFD_CLOEXEC, 0) : -1; /* which shares the lock */
    if (*lock >= 0) return TR_OK;
    *is_taken = is_open && error == EWOULDBLOCK && !is_own;
    if (*is_taken) return refuse(folder);
    if (held >= 0)
        return tr_fail("--checkpoint=%s: cannot lock %s/.lock: %s", folder, folder,
                       strerror(error));
    tell_unlocked(folder, error);
    return TR_OK;
}

enum { OWNER_TEXT = 17 };

static void write_owner(uint64_t owner, char text[OWNER_TEXT + 1])
{
    snprintf(text, OWNER_TEXT + 1, "%016llx\n", (unsigned long long)owner);
}

/* Whether `.lock` is a file of runs alone: empty, or with what mark writes. */
static bool is_of_runs(int lock)
{
    char text[OWNER_TEXT];
    struct stat st;
    if (fstat(lock, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) return false;
    if (st.st_size == 0) return true;
    return st.st_size == OWNER_TEXT && pread(lock, text, OWNER_TEXT, 0) == OWNER_TEXT &&
           strspn(text, "0123456789abcdef") == OWNER_TEXT - 1 && text[OWNER_TEXT - 1] == '\n';
}

/* Without it (the disk is full, say) the folder is not known again on another file system. */
static void mark(const struct tr_hold *hold)
{
    char text[OWNER_TEXT + 1];
    write_owner(hold->owner, text);
    if (hold->lock < 0 || !is_of_runs(hold->lock)) return;
    const ssize_t n = pwrite(hold->lock, text, OWNER_TEXT, 0);
    (void)n;
}

/* Whether `.lock` has the number of that process. */
static bool is_marked(int lock, uint64_t owner)
{
    char text[OWNER_TEXT + 1], read_text[OWNER_TEXT];
    write_owner(owner, text);
    return pread(lock, read_text, OWNER_TEXT, 0) == OWNER_TEXT &&
           !memcmp(text, read_text, OWNER_TEXT);
}

/* Whether the `.lock` that was locked anew has the number of another process, which has written to
 * the folder since `held` was its `.lock`. */
static bool is_of_another(int lock, int held, uint64_t owner)
{
    char text[OWNER_TEXT], before[OWNER_TEXT];
    if (!is_of_runs(lock) || pread(lock, text, OWNER_TEXT, 0) != OWNER_TEXT) return false;
    if (is_marked(lock, owner)) return false;
    return pread(held, before, OWNER_TEXT, 0) != OWNER_TEXT ||
           memcmp(text, before, OWNER_TEXT) != 0;
}

static tr_status refuse_had(const char *folder)
{
    return tr_fail("--checkpoint=%s: another run has had the folder since this run lost its lock; "
                   "nothing is written there: rename that folder",
                   folder);
}

/* Holds a lock again that was given up. Another run may have had the folder meanwhile. */
static tr_status lock_back(const char *folder, struct tr_hold *hold)
{
    if (!hold->is_lost) return TR_OK;
    if (flock(hold->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK) return refuse(folder);
        return tr_fail("--checkpoint=%s: cannot lock %s/.lock: %s", folder, folder,
                       strerror(errno));
    }
    if (is_marked(hold->lock, hold->owner)) {
        hold->is_lost = false;
        return TR_OK;
    }
    (void)flock(hold->lock, LOCK_UN);
    return refuse_had(folder);
}

/* Locks the folder of the hold again where its `.lock` is another file, or gone. One with
 * another run's number tells that this has written there: its files stay. */
static tr_status renew(const char *folder, struct tr_hold *hold)
{
    struct stat held, found;
    int lock;
    bool is_taken;
    if (hold->lock < 0) return TR_OK; /* as at the start */
    TR_TRY(lock_back(folder, hold));
    if (fstatat(hold->folder, ".lock", &found, 0) == 0) {
        if (fstat(hold->lock, &held) == 0 && is_same(&held, &found)) return TR_OK;
    } else if (errno != ENOENT) {
        return tr_fail("--checkpoint=%s: cannot look at %s/.lock: %s", folder, folder,
                       strerror(errno));
    }
    TR_TRY(lock_anew(folder, hold->folder, hold, &lock, &is_taken));
    if (is_of_another(lock, hold->lock, hold->owner)) {
        close(lock);
        return refuse_had(folder);
    }
    close(hold->lock);
    hold->lock = lock;
    tr_say(stdout,
           "note: --checkpoint=%s: its .lock was removed or replaced: the folder is locked anew\n",
           folder);
    return TR_OK;
}

/* What the name stands for now. */
enum place { SAME, OTHER, AWAY };
static tr_status look(const char *folder, const struct tr_hold *hold, enum place *place)
{
    struct stat st;
    if (stat(folder, &st) < 0) {
        if (errno != ENOENT)
            return tr_fail("--checkpoint=%s: cannot look at the folder: %s", folder,
                           strerror(errno));
        *place = AWAY;
        return TR_OK;
    }
    *place = st.st_dev == hold->device && st.st_ino == hold->inode ? SAME : OTHER;
    return TR_OK;
}

tr_status tr_ckpt_check_hold(const char *folder, struct tr_hold *hold)
{
    enum place place;
    TR_TRY(look(folder, hold, &place));
    if (place == SAME) return renew(folder, hold);
    return tr_fail("--checkpoint=%s: the folder %s since this save began", folder,
                   place == AWAY ? "was removed or renamed" : "became another one");
}

/* Fails where a run's checkpoints are in the folder. */
static tr_status check_empty(const char *folder, int descriptor, uint64_t run)
{
    char path[PATH_MAX], name[NAME_MAX + 1];
    struct tr_state state;
    DIR *entries = open_entries(descriptor);
    int error = entries ? 0 : errno;
    const char *found = entries ? next_file(entries, "", &error) : NULL;
    snprintf(name, sizeof name, "%s", found ? found : "");
    if (entries) closedir(entries);
    if (error)
        return tr_fail("--checkpoint=%s: the folder is not the one of the start any more, and "
                       "cannot be read: %s",
                       folder, strerror(error));
    if (!*name) return TR_OK;
    const bool is_readable =
        snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
        tr_ckpt_read_state(path, &state) == TR_OK;
    return tr_fail("--checkpoint=%s: the folder is not the one of the start any more, and it "
                   "holds %s, %s; nothing is written there: rename that folder, or give this "
                   "run's own folder its name back",
                   folder, name,
                   !is_readable       ? "whose run cannot be read"
                   : state.run == run ? "a checkpoint of this run"
                                      : "a checkpoint of another run");
}

/* Whether the folder is the one of before, on a file system that was mounted again and got another
 * number: its own number is the same, and its `.lock` has that of this process. */
static bool is_mounted_again(const struct tr_hold *found, const struct tr_hold *old)
{
    if (found->inode != old->inode) return false;
    const int fd = openat(found->folder, ".lock", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool is_own = fd >= 0 && is_marked(fd, old->owner);
    if (fd >= 0) close(fd);
    return is_own;
}

/* Makes the folder again, but not those above it: they are away where a file system is. */
static tr_status make_again(const char *folder, const struct tr_hold *hold)
{
    char copy[PATH_MAX];
    struct stat st;
    snprintf(copy, sizeof copy, "%s", folder);
    const char *above = dirname(copy);
    if (stat(above, &st) < 0)
        return tr_fail("--checkpoint=%s: the folder is away, and %s, in which it was: %s", folder,
                       above, strerror(errno));
    if (st.st_dev != hold->device)
        return tr_fail("--checkpoint=%s: the folder is away, and %s is on another file system than "
                       "it was: mount that one again",
                       folder, above);
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return tr_fail("--checkpoint=%s: the folder is away and cannot be made again: %s", folder,
                       strerror(errno));
    return TR_OK;
}

/* Locks a folder that was mounted again, where a server may keep the lock of before as another
 * owner's: gives that one up first. Where that does not help, it is held again, or lost. */
static tr_status lock_instead(const char *folder, struct tr_hold *old, struct tr_hold *taken)
{
    bool is_taken;
    if (old->lock < 0 || old->is_lost) return refuse(folder);
    old->is_lost = flock(old->lock, LOCK_UN) == 0;
    if (lock_anew(folder, taken->folder, old, &taken->lock, &is_taken) == TR_OK) return TR_OK;
    (void)lock_back(folder, old); /* the next save tells of a lock that is lost */
    return refuse(folder);
}

/* Locks another folder, unless there are checkpoints in it: another run may have ended there, and
 * may end between the first look and the lock. In a folder that was mounted again they are the
 * run's. */
static tr_status take_over(const char *folder, uint64_t run, struct tr_hold *old,
                           struct tr_hold *taken)
{
    TR_TRY(open_folder(folder, taken));
    taken->owner = old->owner;
    taken->unsynced = old->unsynced;
    tr_status status = TR_OK;
    bool is_taken = false;
    const bool is_moved = taken->device != old->device;
    const bool is_own = is_moved && is_mounted_again(taken, old);
    if (is_moved && !is_own)
        status = tr_fail("--checkpoint=%s: the folder is on another file system than at the start: "
                         "mount that one again",
                         folder);
    if (status == TR_OK && !is_own) status = check_empty(folder, taken->folder, run);
    if (status == TR_OK) status = lock_anew(folder, taken->folder, old, &taken->lock, &is_taken);
    if (status < 0 && is_taken && is_own) status = lock_instead(folder, old, taken);
    if (status == TR_OK && !is_own) status = check_empty(folder, taken->folder, run);
    if (status < 0)
        tr_ckpt_release(taken);
    else if (taken->lock >= 0)
        remove_leftovers(taken->folder);
    return status;
}

tr_status tr_ckpt_hold(const char *folder, uint64_t run, struct tr_hold *hold)
{
    enum place place;
    struct tr_hold taken;
    TR_TRY(look(folder, hold, &place));
    if (place == SAME) {
        TR_TRY(renew(folder, hold));
        if (hold->lock >= 0) remove_own_leftovers(hold->folder);
        mark(hold);
        return TR_OK;
    }
    if (place == AWAY) TR_TRY(make_again(folder, hold));
    TR_TRY(take_over(folder, run, hold, &taken));
    tr_ckpt_release(hold);
    *hold = taken;
    mark(hold);
    tr_say(stdout, "note: --checkpoint=%s: the folder %s\n", folder,
           place == AWAY ? "was removed or renamed: it is made again, without what was in it"
                         : "is not the one of the start any more: it is locked anew");
    return TR_OK;
}
