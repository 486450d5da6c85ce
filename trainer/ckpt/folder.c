/* The folder of a run's checkpoints: makes, locks and searches it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt.h"
#include "parts.h"

tr_status tr_ckpt_prepare(const char *folder)
{
    char path[TR_TEXT_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (char *slash = path + 1;; ++slash) {
        slash += strcspn(slash, "/");
        const char kept = *slash;
        *slash = 0;
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return tr_fail("--checkpoint=%s: cannot make the folder %s: %s", folder, path,
                           strerror(errno));
        *slash = kept;
        if (!kept) break;
    }
    struct stat st;
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return tr_fail("--checkpoint=%s: that is not a folder", folder);
    if (access(folder, W_OK | X_OK) < 0)
        return tr_fail("--checkpoint=%s: cannot write there: %s", folder, strerror(errno));
    return TR_OK;
}

bool tr_ckpt_is_named(const char *name, const char *rest, long long *step)
{
    int end = 0;
    return sscanf(name, "step-%lld.safetensors%n", step, &end) == 1 && end &&
           !fnmatch(rest, name + end, FNM_EXTMATCH);
}

/* Removes the temporary files of runs that were killed while several ranks wrote. */
static void remove_leftovers(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (const struct dirent *entry; (entry = readdir(entries));) {
        long long step;
        if (tr_ckpt_is_named(entry->d_name, ".+([0-9]).tmp", &step))
            unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
}

/* NFS locks files for all hosts, and only files that are open for writing; folders it locks for
 * one host. */
tr_status tr_ckpt_lock(const char *folder, int *lock)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.lock", folder);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0) {
        remove_leftovers(folder);
        return TR_OK;
    }
    const int error = errno;
    if (*lock >= 0) close(*lock);
    if (*lock >= 0 && error == EWOULDBLOCK) {
        *lock = -1;
        return tr_fail("--checkpoint=%s: another run writes its checkpoints there; wait for its "
                       "end, or give another folder",
                       folder);
    }
    *lock = -1;
    printf("note: --checkpoint=%s: cannot lock %s (%s), so nothing keeps another run from writing "
           "its checkpoints there: give each run a folder of its own\n",
           folder, path, strerror(error));
    return TR_OK;
}

/* Whether the lock is of the file that the folder has now, or of none where it cannot be locked. */
static bool holds(const char *folder, int lock)
{
    char path[PATH_MAX];
    struct stat held, found;
    snprintf(path, sizeof path, "%s/.lock", folder);
    return lock < 0 || fstat(lock, &held) < 0 ||
           (stat(path, &found) == 0 && held.st_dev == found.st_dev && held.st_ino == found.st_ino);
}

tr_status tr_ckpt_hold(const char *folder, int *lock)
{
    const bool is_there = access(folder, F_OK) == 0;
    int other;
    if (is_there && holds(folder, *lock)) return TR_OK;
    TR_TRY(tr_ckpt_prepare(folder));
    TR_TRY(tr_ckpt_lock(folder, &other));
    if (*lock >= 0) close(*lock);
    *lock = other;
    printf("note: --checkpoint=%s: the folder %s\n", folder,
           is_there ? "is not the one of the start any more, or its .lock was removed: it is "
                      "locked anew"
                    : "was removed or renamed: it is made again, without what was in it");
    return TR_OK;
}

tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store)
{
    struct statvfs fs;
    struct tr_parts parts;
    double needed = 0;
    TR_TRY(tr_parts_list(store, &parts));
    for (int i = 0; i < parts.n; ++i) needed += (double)parts.tensors[i].count * sizeof(float);
    tr_parts_free(&parts);
    if (statvfs(folder, &fs) < 0) return TR_OK; /* writing will tell */
    const double left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left >= needed) return TR_OK;
    return tr_fail("--checkpoint=%s: a checkpoint takes %.1f MiB, but %.1f MiB are free there",
                   folder, needed / 1048576, left / 1048576);
}

tr_status tr_ckpt_find_older(const char *where, long long *step, char *path, size_t path_bytes)
{
    DIR *folder = opendir(where);
    if (!folder) return tr_fail("--resume=%s: %s", where, strerror(errno));
    long long newest = -1;
    char name[NAME_MAX + 1] = "";
    for (const struct dirent *entry; (entry = readdir(folder));) {
        long long found;
        if (tr_ckpt_is_named(entry->d_name, "", &found) && found > newest && found < *step) {
            newest = found;
            snprintf(name, sizeof name, "%s", entry->d_name); /* however many zeros it has */
        }
    }
    closedir(folder);
    if (newest < 0) return tr_fail("--resume=%s: no step-*.safetensors in that folder", where);
    if (snprintf(path, path_bytes, "%s/%s", where, name) >= (int)path_bytes)
        return tr_fail("--resume=%s: the name is too long", where);
    *step = newest;
    return TR_OK;
}

tr_status tr_ckpt_find(const char *where, char *path, size_t path_bytes)
{
    struct stat st;
    if (stat(where, &st) < 0) return tr_fail("--resume=%s: %s", where, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        if (snprintf(path, path_bytes, "%s", where) >= (int)path_bytes)
            return tr_fail("--resume=%s: the name is too long", where);
        return TR_OK;
    }
    long long step = LLONG_MAX;
    return tr_ckpt_find_older(where, &step, path, path_bytes);
}
