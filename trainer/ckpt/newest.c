/* The newest checkpoint of a folder, by what the files say of themselves. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt.h"

/* A checkpoint of a folder; name "": none. */
struct found {
    char name[NAME_MAX + 1];
    long long step;
    uint64_t start;
};

static void take_newer(struct found *newest, const char *name, long long step, uint64_t start)
{
    if (newest->name[0] &&
        (start < newest->start || (start == newest->start && step <= newest->step)))
        return;
    snprintf(newest->name, sizeof newest->name, "%s", name);
    newest->step = step;
    newest->start = start;
}

/* The newest checkpoint of the folder that is not the run's (NULL: any), and the latest start. */
static void search(DIR *folder, const char *where, const uint64_t *run, struct found *newest,
                   uint64_t *start)
{
    struct found readable = {.name = ""}, other = {.name = ""};
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[PATH_MAX];
        struct tr_state state;
        long long step;
        if (!tr_ckpt_is_named(entry->d_name, "", &step)) continue;
        if (snprintf(path, sizeof path, "%s/%s", where, entry->d_name) >= (int)sizeof path ||
            tr_ckpt_read_state(path, &state) < 0) {
            take_newer(&other, entry->d_name, step, 0);
            continue;
        }
        if (state.start > *start) *start = state.start;
        if (!run || state.run != *run) take_newer(&readable, entry->d_name, step, state.start);
    }
    const bool has_later = other.name[0] && (!readable.name[0] || other.step > readable.step);
    *newest = has_later ? other : readable;
}

tr_status tr_ckpt_find(const char *option, const char *where, char *path, size_t path_bytes)
{
    struct stat st;
    struct found newest = {.name = ""};
    uint64_t start = 0;
    if (stat(where, &st) < 0) return tr_fail("--%s=%s: %s", option, where, strerror(errno));
    const bool is_folder = S_ISDIR(st.st_mode);
    if (is_folder) {
        DIR *folder = opendir(where);
        if (!folder) return tr_fail("--%s=%s: %s", option, where, strerror(errno));
        search(folder, where, NULL, &newest, &start);
        closedir(folder);
        if (!newest.name[0])
            return tr_fail("--%s=%s: no step-*.safetensors in that folder", option, where);
    }
    if (snprintf(path, path_bytes, "%s%s%s", where, is_folder ? "/" : "", newest.name) >=
        (int)path_bytes)
        return tr_fail("--%s=%s: the name is too long", option, where);
    return TR_OK;
}

void tr_ckpt_survey(const char *where, uint64_t run, uint64_t *start, char *name)
{
    struct found newest = {.name = ""};
    DIR *folder = opendir(where);
    if (folder) {
        search(folder, where, &run, &newest, start);
        closedir(folder);
    }
    memcpy(name, newest.name, sizeof newest.name);
}
