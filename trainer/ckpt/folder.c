/* The folder of a run's checkpoints: makes it, and finds files by their names. */
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt.h"
#include "parts.h"

/* The name that a run gives the checkpoint of a step. */
#define OWN_NAME "step-%08lld.safetensors"

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
    if (access(folder, R_OK | W_OK | X_OK) < 0)
        return tr_fail("--checkpoint=%s: cannot read and write there: %s", folder, strerror(errno));
    return TR_OK;
}

tr_status tr_ckpt_path(const char *folder, int64_t step, char *path, size_t path_bytes)
{
    const int length = snprintf(path, path_bytes, "%s/" OWN_NAME, folder, (long long)step);
    if ((size_t)length < path_bytes) return TR_OK;
    return tr_fail("--checkpoint=%s: the name is too long", folder);
}

const struct dirent *tr_ckpt_next(DIR *folder, int *error)
{
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (!entry && errno) *error = errno;
    return entry;
}

bool tr_ckpt_is_named(const char *name, const char *rest, long long *step)
{
    static const char prefix[] = "step-", suffix[] = ".safetensors";
    const size_t before = sizeof prefix - 1, behind = sizeof suffix - 1;
    if (strncmp(name, prefix, before) != 0) return false;
    const size_t digits = strspn(name + before, "0123456789");
    const char *end = name + before + digits;
    if (!digits || strncmp(end, suffix, behind) != 0) return false;
    errno = 0;
    *step = strtoll(name + before, NULL, 10);
    return errno == 0 && !fnmatch(rest, end + behind, FNM_EXTMATCH);
}

bool tr_ckpt_is_own_name(const char *name, long long *step)
{
    char own[64];
    if (!tr_ckpt_is_named(name, "", step)) return false;
    snprintf(own, sizeof own, OWN_NAME, *step);
    return !strcmp(name, own);
}

/* A checkpoint's bytes but for its header. */
static tr_status count_bytes(const struct tr_store *store, double *nbytes)
{
    struct tr_parts parts;
    TR_TRY(tr_parts_list(store, &parts));
    *nbytes = 0;
    for (int i = 0; i < parts.n; ++i) *nbytes += (double)parts.tensors[i].count * sizeof(float);
    tr_parts_free(&parts);
    return TR_OK;
}

/* Both in MiB, with as many digits as tell them apart. */
static void write_sizes(double a, double b, char texts[2][32])
{
    int digits = 1;
    do {
        snprintf(texts[0], sizeof texts[0], "%.*f", digits, a / 1048576);
        snprintf(texts[1], sizeof texts[1], "%.*f", digits, b / 1048576);
    } while (!strcmp(texts[0], texts[1]) && ++digits < 7);
}

/* The system's limit of the size of a file. */
static tr_status check_limit(const char *folder, double needed)
{
    struct rlimit limit;
    char sizes[2][32];
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return TR_OK;
    if ((double)limit.rlim_cur >= needed) return TR_OK;
    write_sizes(needed, (double)limit.rlim_cur, sizes);
    return tr_fail("--checkpoint=%s: a checkpoint takes %s MiB, but this process may write files "
                   "of at most %s MiB (ulimit -f); raise that limit where the run is started, or "
                   "train without --checkpoint",
                   folder, sizes[0], sizes[1]);
}

/* Bytes that are free; false: the file system does not say (ramfs), and writing will tell. */
static bool find_free(const char *folder, double *nbytes)
{
    struct statvfs fs;
    if (statvfs(folder, &fs) < 0 || fs.f_blocks == 0) return false;
    *nbytes = (double)fs.f_bavail * (double)fs.f_frsize;
    return true;
}

tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store)
{
    double needed, left;
    char sizes[2][32];
    TR_TRY(count_bytes(store, &needed));
    TR_TRY(check_limit(folder, needed));
    if (!find_free(folder, &left) || left >= needed) return TR_OK;
    write_sizes(needed, left, sizes);
    return tr_fail("--checkpoint=%s: a checkpoint takes %s MiB, but %s MiB are free there; free "
                   "some, or give another folder",
                   folder, sizes[0], sizes[1]);
}

void tr_ckpt_note_space(const char *folder, const struct tr_store *store,
                        const struct tr_state *now, const struct tr_saves *saves)
{
    double needed, left;
    if (count_bytes(store, &needed) < 0 || needed <= 0 || !find_free(folder, &left)) return;
    const double there = tr_ckpt_count_own(folder, now);
    const double kept = (double)saves->keep + saves->keeps_best;
    double all = there + saves->count;
    if (saves->keep && all > kept + 1) all = kept + 1;
    const double room = there + floor(left / needed);
    if (room >= all || !isfinite(all)) return;
    printf("note: --checkpoint=%s: a checkpoint takes %.1f MiB, and %.1f MiB are free there: room "
           "for %.0f checkpoint%s, but ",
           folder, needed / 1048576, left / 1048576, room, room > 1 ? "s" : "");
    if (saves->keep)
        printf("--keep=%lld has up to %.0f at a time%s, as an older one is removed only when a "
               "newer one is whole; free some, or give another folder\n",
               (long long)saves->keep, all,
               saves->keeps_best ? ", the one with the least held-out loss among them" : "");
    else
        printf("this run writes %.0f, which all stay; free some, or give --keep=K, a larger "
               "--every, or another folder\n",
               all);
}

tr_status tr_ckpt_check_last(const char *folder, int64_t step)
{
    char path[PATH_MAX];
    struct stat file, place;
    TR_TRY(tr_ckpt_path(folder, step, path, sizeof path));
    if (lstat(path, &file) < 0 || stat(folder, &place) < 0) return TR_OK;
    const uid_t user = geteuid();
    const bool is_theirs =
        place.st_mode & S_ISVTX && user != 0 && user != file.st_uid && user != place.st_uid;
    if (!S_ISDIR(file.st_mode) && !is_theirs) return TR_OK;
    return tr_fail("--checkpoint=%s: the run's last checkpoint is to be %s, but %s of that name is "
                   "there, which it cannot replace; give another folder",
                   folder, path,
                   S_ISDIR(file.st_mode) ? "a folder" : "a file of another user (sticky bit)");
}
