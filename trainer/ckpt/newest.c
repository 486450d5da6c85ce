/* The newest checkpoint of a folder, by what the files say of themselves. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../watch/clock.h"
#include "ckpt.h"

/* A checkpoint of a folder; name "": none. */
struct found {
    char name[NAME_MAX + 1];
    long long step;
    uint64_t start;
    struct timespec written;
};

/* The newest that can be read; of those that cannot, the one of the last step, and the one written
 * last, which may be of any start, with the reason. */
struct search {
    struct found readable, last_step, last_written;
    char reason[1024];
    uint64_t start;    /* latest */
    long long own_end; /* last step of the run's own; -1: none */
    long long gone;    /* last step of the files that went while the folder was read; -1: none */
    int error;         /* errno where the folder could not be read to its end, or 0 */
};

static bool is_newer(const struct found *a, const struct found *b)
{
    return a->start > b->start || (a->start == b->start && a->step > b->step);
}

static void take_newer(struct found *newest, const struct found *file)
{
    if (!newest->name[0] || is_newer(file, newest)) *newest = *file;
}

static bool is_later(const struct found *a, const struct found *b)
{
    return a->written.tv_sec > b->written.tv_sec ||
           (a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec > b->written.tv_nsec);
}

static void take_unreadable(struct search *search, const struct found *file)
{
    take_newer(&search->last_step, file);
    if (search->last_written.name[0] && !is_later(file, &search->last_written)) return;
    search->last_written = *file;
    snprintf(search->reason, sizeof search->reason, "%s", tr_error());
}

/* Looks once at the checkpoints of the folder that are not the run's (NULL: all). */
static void look(DIR *folder, const char *where, const uint64_t *run, struct search *search)
{
    rewinddir(folder);
    for (const struct dirent *entry; (entry = tr_ckpt_next(folder, &search->error));) {
        char path[PATH_MAX];
        struct tr_state state;
        struct stat st;
        struct found file = {.name = ""};
        if (!tr_ckpt_is_named(entry->d_name, "", &file.step)) continue;
        snprintf(file.name, sizeof file.name, "%s", entry->d_name);
        tr_status status = TR_OK;
        if (snprintf(path, sizeof path, "%s/%s", where, entry->d_name) >= (int)sizeof path)
            status = tr_fail("%s: the name is too long", entry->d_name);
        if (status == TR_OK) status = tr_ckpt_read_state(path, &state);
        if (status < 0) status = tr_ckpt_read_state(path, &state); /* an error that passes */
        if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno != ENOENT)
                search->error = errno;
            else if (file.step > search->gone)
                search->gone = file.step;
            continue;
        }
        file.written = st.st_mtim;
        if (status < 0) {
            take_unreadable(search, &file);
            continue;
        }
        file.start = state.start;
        if (state.start > search->start) search->start = state.start;
        if (!run || state.run != *run)
            take_newer(&search->readable, &file);
        else if (file.step > search->own_end)
            search->own_end = file.step;
    }
}

/* A sum over the names of the checkpoints, which does not depend on their order. */
static uint64_t sum_names(DIR *folder, int *error)
{
    uint64_t sum = 0;
    long long step;
    rewinddir(folder);
    for (const struct dirent *entry; (entry = tr_ckpt_next(folder, error));) {
        uint64_t hash = 14695981039346656037u; /* FNV-1a */
        if (!tr_ckpt_is_named(entry->d_name, "", &step)) continue;
        for (const char *c = entry->d_name; *c; ++c) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
        sum += hash;
    }
    return sum;
}

/* Looks once; whether what was found can be relied on. A reading may miss a file that was removed
 * and the newer one that came for it, so the names must be the same before and after. Where files
 * go all the time, a newest that is newer than these and than `before`, that of the look before, is
 * of the run that writes there. */
static bool look_settles(DIR *folder, const char *where, const uint64_t *run,
                         const struct found *before, struct search *search)
{
    const struct found *newest = &search->readable;
    const uint64_t names = sum_names(folder, &search->error);
    look(folder, where, run, search);
    if (sum_names(folder, &search->error) == names) return true;
    return before->name[0] && newest->step > search->gone && is_newer(newest, before);
}

/* Looks at the folder until that is settled. */
static tr_status search_folder(const char *option, const char *where, const uint64_t *run,
                               struct search *search)
{
    enum { TRIES = 50, PAUSE_NS = 10000000 };
    static const double most_seconds = 60;
    const double began = tr_clock_seconds();
    for (int tries = 0; tries < TRIES && tr_clock_seconds() - began < most_seconds; ++tries) {
        const struct found before = search->readable;
        *search = (struct search){.start = search->start, .own_end = -1, .gone = -1};
        DIR *folder = opendir(where);
        if (!folder) return tr_fail("--%s=%s: %s", option, where, strerror(errno));
        const bool is_settled = look_settles(folder, where, run, &before, search);
        closedir(folder);
        if (search->error)
            return tr_fail("--%s=%s: the folder cannot be read to its end (%s), so its newest "
                           "checkpoint is not known: give a file of it, or mend the folder",
                           option, where, strerror(search->error));
        if (is_settled) return TR_OK;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return tr_fail("--%s=%s: a run that writes there removes checkpoints (--keep) faster than this "
                   "folder is read, so the newest is not known: give a file of it, or start again "
                   "when that run saves less often or has ended",
                   option, where);
}

/* The newest of what was found. One that cannot be read and was written later than the newest of
 * the others may be of a later start. */
static tr_status choose(const char *option, const char *where, const struct search *search,
                        struct found *newest)
{
    const struct found *readable = &search->readable, *unreadable = &search->last_step;
    const bool has_readable = readable->name[0], has_unreadable = unreadable->name[0];
    if (!has_readable && !has_unreadable)
        return tr_fail("--%s=%s: no step-*.safetensors in that folder", option, where);
    *newest = has_readable ? *readable : *unreadable;
    if (!has_readable || !has_unreadable) return TR_OK;
    if (unreadable->step > readable->step) {
        *newest = *unreadable;
        return TR_OK;
    }
    if (!is_later(&search->last_written, readable)) return TR_OK;
    return tr_fail("%s; it was written after %s, so it is not known which of both is the newest: "
                   "give the file that is meant, as in --%s=%s/%s",
                   search->reason, readable->name, option, where, readable->name);
}

tr_status tr_ckpt_find(const char *option, const char *where, char *path, size_t path_bytes)
{
    struct stat st;
    struct found newest = {.name = ""};
    if (stat(where, &st) < 0) return tr_fail("--%s=%s: %s", option, where, strerror(errno));
    const bool is_folder = S_ISDIR(st.st_mode);
    if (is_folder) {
        struct search search = {.start = 0};
        TR_TRY(search_folder(option, where, NULL, &search));
        TR_TRY(choose(option, where, &search, &newest));
    }
    if (snprintf(path, path_bytes, "%s%s%s", where, is_folder ? "/" : "", newest.name) >=
        (int)path_bytes)
        return tr_fail("--%s=%s: the name is too long", option, where);
    return TR_OK;
}

void tr_ckpt_survey(const char *where, uint64_t run, uint64_t *start, char *name, int64_t *last)
{
    struct search search = {.start = *start, .own_end = -1};
    /* What was found counts also where the folder does not settle. */
    (void)search_folder("checkpoint", where, &run, &search);
    *start = search.start;
    *last = search.own_end;
    memcpy(name, search.readable.name, sizeof search.readable.name);
}
