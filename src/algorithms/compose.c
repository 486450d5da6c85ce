/* Composed algorithms "X/Y": X among the ranks of each host, Y between hosts. Each is made when it
 * is first asked for, from the algorithms of table.c that have these names. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/hierarchy.h"
#include "algorithms/list.h"
#include "base/process_lock.h"

enum { MOST_NAME = 63, MOST_LISTED = 256 };

/* One composed algorithm. Lives in the list below until the process ends. */
struct composed {
    struct tt_algorithm algorithm;
    struct tt_parts parts;
    char name[MOST_NAME + 1], summary[2 * MOST_NAME];
    struct composed *next;
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
/* Guarded by lock; an entry is immutable. */
static struct composed *composed[TT_NCOLLECTIVES];
/* All composed algorithms of a collective, made at the first call of tt_composed_at. Guarded by
 * lock. */
static struct listing {
    _Atomic int number; /* 0: nobody has */
    const struct tt_algorithm *at[MOST_LISTED];
} listings[TT_NCOLLECTIVES];

/* ---- What can be composed ------------------------------------------------------------------- */

/* Finds two parts that must both exist, where both have a collective; false where one is missing.
 */
static bool find_both(const int collectives[2], const char *x, const struct tt_algorithm *found[2])
{
    for (int i = 0; i < 2; i++) {
        found[i] = tt_basic_find(collectives[i], x);
        if (!found[i] && collectives[i] != TT_NCOLLECTIVES) {
            found[0] = found[1] = NULL;
            return false;
        }
    }
    return found[0] || found[1];
}

/* The parts of X/Y; false where it cannot be composed. */
static bool find_parts(enum tt_collective collective, const char *x,
                       const struct tt_algorithm *between, struct tt_parts *parts)
{
    const struct tt_algorithm *lanes[2], *leaders[2];
    const int *inside = tt_collective_row(collective)->inside;
    const bool on_lanes = find_both(&inside[TT_INSIDE_SPLIT], x, lanes);
    const bool by_leaders = find_both(&inside[TT_INSIDE_UP], x, leaders);
    *parts = (struct tt_parts){.between = between,
                               .split = lanes[0],
                               .join = lanes[1],
                               .up = leaders[0],
                               .down = leaders[1]};
    if ((!on_lanes && !by_leaders) || between->one_host) return false;
    /* A meeting has one channel, so the phase after it must have one. */
    return !tt_parts_meet(parts) || !between->nchannels;
}

/* Whether one of inside[0..n) has an algorithm of this name. */
static bool named_before(const int *inside, int n, const char *x)
{
    for (int i = 0; i < n; i++)
        if (tt_basic_find(inside[i], x)) return true;
    return false;
}

/* ---- Composing ------------------------------------------------------------------------------ */

/* Whether a phase sends blocks from OUTPUT that the next phase overwrites while other hosts may
 * still read them. Only a meeting does: it also writes the blocks that this rank has put in. Blocks
 * in SCRATCH are never sent by reference. */
static bool overwrites_sent(enum tt_collective collective, const struct tt_parts *parts)
{
    const bool meets =
        (parts->join && parts->join->one_host) || (parts->down && parts->down->one_host);
    return meets && tt_collective_has_data(collective) && tt_hierarchy_keeps_in_output(collective);
}

static bool is_direct_safe(enum tt_collective collective, const struct tt_parts *parts)
{
    const struct tt_algorithm *const all[] = {parts->between, parts->split, parts->join, parts->up,
                                              parts->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && !all[i]->direct_safe) return false;
    return !overwrites_sent(collective, parts);
}

static struct composed *make(const char *x, const struct tt_parts *parts)
{
    struct composed *made = malloc(sizeof *made);
    if (!made) return NULL;
    const enum tt_collective collective = parts->between->collective;
    made->parts = *parts;
    snprintf(made->name, sizeof made->name, "%s/%s", x, parts->between->name);
    snprintf(made->summary, sizeof made->summary, "%s inside each host, %s between hosts", x,
             parts->between->name);
    made->algorithm = (struct tt_algorithm){.name = made->name,
                                            .summary = made->summary,
                                            .collective = collective,
                                            .direct_safe = is_direct_safe(collective, parts),
                                            .parts = &made->parts,
                                            .nchannels = tt_hierarchy_nchannels,
                                            .nblocks = tt_hierarchy_nblocks,
                                            .nscratch = tt_hierarchy_nscratch,
                                            .nsteps = tt_hierarchy_nsteps,
                                            .step = tt_hierarchy_step,
                                            .formula = tt_hierarchy_formula,
                                            .refusal = tt_hierarchy_refusal};
    return made;
}

static bool same_name(const struct composed *made, const char *x, const char *y)
{
    const size_t length = strlen(x);
    return !strncmp(made->name, x, length) && made->name[length] == '/' &&
           !strcmp(made->name + length + 1, y);
}

/* The algorithm of this name, made now if there is none; NULL without memory. */
static const struct tt_algorithm *get_locked(const char *x, const struct tt_parts *parts)
{
    struct composed **list = &composed[parts->between->collective];
    struct composed *found = *list;
    while (found && !same_name(found, x, parts->between->name)) found = found->next;
    if (!found && (found = make(x, parts))) {
        found->next = *list;
        *list = found;
    }
    return found ? &found->algorithm : NULL;
}

const struct tt_algorithm *tt_composed_find(enum tt_collective collective, const char *name)
{
    char x[MOST_NAME + 1];
    struct tt_parts parts;
    const char *slash = strchr(name, '/');
    if (!slash || slash - name > MOST_NAME) return NULL;
    snprintf(x, sizeof x, "%.*s", (int)(slash - name), name);
    const struct tt_algorithm *between = tt_basic_find((int)collective, slash + 1);
    if (!between || !find_parts(collective, x, between, &parts)) return NULL;
    tt_process_lock(&lock);
    const struct tt_algorithm *algorithm = get_locked(x, &parts);
    tt_process_unlock(&lock);
    return algorithm;
}

/* Adds x/Y for every Y; false without memory. */
static bool list_locked(enum tt_collective collective, const char *x, struct listing *listing,
                        int *number)
{
    const struct tt_algorithm *between;
    struct tt_parts parts;
    for (int i = 0; (between = tt_basic_at((int)collective, i)) != NULL; i++) {
        if (!find_parts(collective, x, between, &parts)) continue;
        if (*number == MOST_LISTED) return true;
        listing->at[*number] = get_locked(x, &parts);
        if (!listing->at[*number]) return false;
        ++*number;
    }
    return true;
}

/* The number comes last: a child made by fork() takes a listing without one as not made. */
static void list_all_locked(enum tt_collective collective, struct listing *listing)
{
    const struct tt_algorithm *x;
    bool done = true;
    int number = 0;
    const int *inside = tt_collective_row(collective)->inside;
    for (int part = 0; part < TT_NINSIDE; part++)
        for (int i = 0; done && (x = tt_basic_at(inside[part], i)) != NULL; i++)
            if (!named_before(inside, part, x->name))
                done = list_locked(collective, x->name, listing, &number);
    atomic_store_explicit(&listing->number, done ? number : 0, memory_order_release);
}

const struct tt_algorithm *tt_composed_at(enum tt_collective collective, int index)
{
    struct listing *listing = &listings[collective];
    tt_process_lock(&lock);
    if (listing->number == 0) list_all_locked(collective, listing);
    const struct tt_algorithm *algorithm = index < listing->number ? listing->at[index] : NULL;
    tt_process_unlock(&lock);
    return algorithm;
}
