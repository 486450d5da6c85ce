/* Looks for an older checkpoint of the run where one cannot be read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt.h"

/* Whether the file can be opened: else what it holds is not the reason. */
static bool can_be_opened(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* A checkpoint; path "": none. */
struct older {
    char path[PATH_MAX];
    long long step;
    uint64_t start;
};

static bool is_older(const struct older *a, const struct older *b)
{
    return a->start < b->start || (a->start == b->start && a->step < b->step);
}

/* The newest that is older than *last and of a step before `step`, and of that run (NULL: any),
 * which becomes *last. False where there is none; *error is 0, or what errno was where the folder
 * cannot be read to its end. */
static bool find_older(const char *where, long long step, const uint64_t *run, struct older *last,
                       int *error)
{
    struct older newest = {.path = ""}, file;
    DIR *folder = opendir(where);
    *error = folder ? 0 : errno;
    if (!folder) return false;
    for (const struct dirent *entry; (entry = tr_ckpt_next(folder, error));) {
        struct tr_state state;
        if (!tr_ckpt_is_named(entry->d_name, "", &file.step) || file.step >= step) continue;
        if (snprintf(file.path, sizeof file.path, "%s/%s", where, entry->d_name) >=
                (int)sizeof file.path ||
            tr_ckpt_read_state(file.path, &state) < 0 || (run && state.run != *run))
            continue;
        file.start = state.start;
        if (is_older(&file, last) && (!newest.path[0] || is_older(&newest, &file))) newest = file;
    }
    closedir(folder);
    if (*error) return false;
    if (newest.path[0]) *last = newest;
    return newest.path[0];
}

static tr_status propose(const char *option, const char *path, const char *folder, long long step)
{
    char story[2048];
    struct tr_state damaged;
    struct older older = {.step = LLONG_MAX, .start = UINT64_MAX};
    snprintf(story, sizeof story, "%s", tr_error());
    /* older versions' files name none */
    const bool has_run = tr_ckpt_read_state(path, &damaged) == TR_OK && damaged.run;
    const uint64_t *run = has_run ? &damaged.run : NULL;
    int error;
    while (find_older(folder, step, run, &older, &error)) {
        if (tr_ckpt_read_whole(older.path, run) < 0) continue;
        const char *doubt = !has_run                       ? ", perhaps of another run"
                            : older.start != damaged.start ? ", of another start"
                                                           : "";
        return tr_fail("%s; an older checkpoint that is whole is that of step %lld%s: --%s=%s",
                       story, older.step, doubt, option, older.path);
    }
    if (error)
        return tr_fail("%s; older ones cannot be looked for: %s cannot be read to its end (%s)",
                       story, folder, strerror(error));
    return tr_fail("%s; no older checkpoint there is whole%s", story,
                   has_run ? " and of this run" : "");
}

tr_status tr_ckpt_propose_older(const char *option, const char *path, tr_status status)
{
    char folder[PATH_MAX], story[2048];
    struct stat st;
    snprintf(folder, sizeof folder, "%s%s", strchr(path, '/') ? "" : "./", path);
    char *slash = strrchr(folder, '/');
    long long step;
    if (!slash || !tr_ckpt_is_named(slash + 1, "", &step)) return status;
    *slash = 0;
    if (lstat(path, &st) < 0 && errno == ENOENT) {
        snprintf(story, sizeof story, "%s", tr_error());
        return tr_fail("%s; it was removed meanwhile, as --keep of a run that writes there does: "
                       "start again",
                       story);
    }
    return can_be_opened(path) ? propose(option, path, folder, step) : status;
}
