/* Removes the checkpoints of a run that --keep does not keep. Which these are is read from the
 * files each time, so a resumed run knows as much as one that nothing has ended. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../watch/pipe.h"
#include "ckpt.h"

struct entry {
    char *name;
    struct tr_state state;
};
struct list {
    struct entry *entries;
    int n;
};

static void list_fini(struct list *list)
{
    for (int i = 0; i < list->n; ++i) free(list->entries[i].name);
    free(list->entries);
}

static bool append(struct list *list, const char *name, const struct tr_state *state)
{
    struct entry *more = realloc(list->entries, ((size_t)list->n + 1) * sizeof *more);
    if (!more) return false;
    list->entries = more;
    more[list->n] = (struct entry){strdup(name), *state};
    return more[list->n++].name != NULL;
}

/* Whether the file is of the run up to its step, and not of a later step than the one that the run
 * was set back to. */
static bool is_own(const struct tr_state *file, const struct tr_state *now)
{
    return file->run == now->run && file->step <= now->step &&
           (file->step <= now->after || file->start == now->start);
}

/* Whether the run itself has made the file of this name: one that it wrote, no link to it. */
static bool is_written(DIR *entries, const char *name)
{
    struct stat st;
    return fstatat(dirfd(entries), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static tr_status find_own(DIR *entries, const char *folder, const struct tr_state *now,
                          struct list *list)
{
    int error = 0;
    for (const struct dirent *entry; (entry = tr_ckpt_next(entries, &error));) {
        char path[PATH_MAX];
        struct tr_state state;
        long long step;
        if (!tr_ckpt_is_own_name(entry->d_name, &step) || step > now->step) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path ||
            !is_written(entries, entry->d_name) || tr_ckpt_read_state(path, &state) < 0 ||
            state.step != step || !is_own(&state, now))
            continue;
        if (!append(list, entry->d_name, &state))
            return tr_fail("out of memory for the list of checkpoints");
    }
    return error ? tr_fail("%s: the folder cannot be read to its end (%s)", folder, strerror(error))
                 : TR_OK;
}

static int newest_first(const void *a, const void *b)
{
    const int64_t x = ((const struct entry *)a)->state.step,
                  y = ((const struct entry *)b)->state.step;
    return (x < y) - (x > y);
}

bool tr_ckpt_is_comparable(const struct tr_state *a, const struct tr_state *b)
{
    return a->data_checksum == b->data_checksum &&
           (a->held_out_from == b->held_out_from || !a->held_out_from || !b->held_out_from);
}

/* Whether entry i has the least held-out loss of those that are comparable with it, of several the
 * newest. */
static bool is_best(const struct list *list, int i)
{
    const struct tr_state *state = &list->entries[i].state;
    if (isnan(state->held_out)) return false;
    for (int j = 0; j < list->n; ++j) {
        const struct tr_state *other = &list->entries[j].state;
        if (!tr_ckpt_is_comparable(state, other)) continue;
        if (other->held_out < state->held_out || (j < i && other->held_out == state->held_out))
            return false;
    }
    return true;
}

static void remove_others(DIR *entries, const char *folder, const struct list *list, int64_t keep)
{
    for (int i = 0; i < list->n; ++i) {
        const char *name = list->entries[i].name;
        if (i < keep || is_best(list, i)) continue;
        if (unlinkat(dirfd(entries), name, 0) == 0)
            tr_say(stdout, "removed %s/%s\n", folder, name);
        else
            tr_say(stderr, "tutti-train: --keep: cannot remove %s/%s: %s\n", folder, name,
                   strerror(errno));
    }
}

void tr_ckpt_keep(const char *folder, struct tr_hold *hold, const struct tr_state *now,
                  int64_t keep)
{
    struct list list = {0};
    if (hold && hold->unsynced) return;
    DIR *entries = opendir(folder);
    tr_status status = entries ? TR_OK : tr_fail("%s: %s", folder, strerror(errno));
    if (status == TR_OK && hold) status = tr_ckpt_check_hold(folder, hold);
    if (status == TR_OK) status = find_own(entries, folder, now, &list);
    if (status == TR_OK) {
        if (list.n) qsort(list.entries, (size_t)list.n, sizeof *list.entries, newest_first);
        remove_others(entries, folder, &list, keep);
    } else {
        tr_say(stderr, "tutti-train: --keep removes nothing: %s\n", tr_error());
    }
    list_fini(&list);
    if (entries) closedir(entries);
}

int tr_ckpt_count_own(const char *folder, const struct tr_state *now)
{
    struct list list = {0};
    DIR *entries = opendir(folder);
    if (!entries) return 0;
    const tr_status status = find_own(entries, folder, now, &list);
    const int n = status == TR_OK ? list.n : 0;
    list_fini(&list);
    closedir(entries);
    return n;
}
