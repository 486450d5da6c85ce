/* The folder of a run's checkpoints: makes it, and finds files by their names. */
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store)
{
    struct statvfs fs;
    struct tr_parts parts;
    double needed = 0;
    TR_TRY(tr_parts_list(store, &parts));
    for (int i = 0; i < parts.n; ++i) needed += (double)parts.tensors[i].count * sizeof(float);
    tr_parts_free(&parts);
    /* Writing will tell, also where the file system has no size (ramfs). */
    if (statvfs(folder, &fs) < 0 || fs.f_blocks == 0) return TR_OK;
    const double left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left >= needed) return TR_OK;
    int digits = 1; /* as many as tell the numbers apart */
    char takes[32], has[32];
    do {
        snprintf(takes, sizeof takes, "%.*f", digits, needed / 1048576);
        snprintf(has, sizeof has, "%.*f", digits, left / 1048576);
    } while (!strcmp(takes, has) && ++digits < 7);
    return tr_fail("--checkpoint=%s: a checkpoint takes %s MiB, but %s MiB are free there; free "
                   "some, or give another folder",
                   folder, takes, has);
}
