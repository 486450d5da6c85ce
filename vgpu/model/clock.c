/* Trees of epochs that share their parts: see clock.h. */
#include "clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 32, BITS = 5 };

static uint64_t nodes;
static uint32_t made;

void *vg_need(size_t nbytes)
{
    void *memory = calloc(1, nbytes);
    if (memory == NULL) {
        fprintf(stderr, "virtual GPU: no memory for %zu bytes of the memory model\n", nbytes);
        abort();
    }
    return memory;
}

uint64_t vg_clock_nodes(void)
{
    return nodes;
}

static struct vg_clock **children(const struct vg_clock *node)
{
    return (struct vg_clock **)(uintptr_t)(node + 1);
}

static uint32_t *epochs(const struct vg_clock *node)
{
    return (uint32_t *)(uintptr_t)(node + 1);
}

/* How many bits are set. Without an instruction for it, which not all processors have, the
 * compiler calls a function that takes longer than the rest of a look into a tree. */
static uint32_t count(uint32_t bits)
{
    bits -= bits >> 1 & 0x55555555u;
    bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
    return ((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

static struct vg_clock *child(const struct vg_clock *node, uint32_t i)
{
    const uint32_t bit = UINT32_C(1) << i;
    if ((node->present & bit) == 0) return NULL;
    return children(node)[count(node->present & (bit - 1))];
}

/* All nodes of a level that have ended are one node, which stays. Nobody counts its references: it
 * is the same for the models of several threads. */
enum { LEVELS = 2 + 32 / BITS + 1 };
static struct vg_clock ended_nodes[LEVELS];

static bool is_ended_node(const struct vg_clock *node)
{
    return node->floor == VG_ENDED && node == &ended_nodes[node->level];
}

static struct vg_clock *ended_node(uint32_t level)
{
    struct vg_clock *node = &ended_nodes[level];
    node->level = level;
    node->floor = node->top = VG_ENDED;
    return node;
}

static struct vg_clock *make(uint32_t level, uint32_t floor, uint32_t present)
{
    if (floor == VG_ENDED) return ended_node(level);
    const size_t tail = level == 0 ? (present != 0 ? WIDTH * sizeof(uint32_t) : 0)
                                   : (size_t)count(present) * sizeof(void *);
    struct vg_clock *node = malloc(sizeof *node + tail);
    if (node == NULL) node = vg_need(sizeof *node + tail);
    *node = (struct vg_clock){.refs = 1,
                              .floor = floor,
                              .top = floor,
                              .present = present,
                              .level = level,
                              .number = ++made};
    nodes++;
    return node;
}

struct vg_clock *vg_clock_get(struct vg_clock *clock)
{
    if (clock != NULL && !is_ended_node(clock)) clock->refs++;
    return clock;
}

void vg_clock_put(struct vg_clock *clock)
{
    if (clock == NULL || is_ended_node(clock) || --clock->refs > 0) return;
    if (clock->level > 0) {
        const uint32_t n = count(clock->present);
        for (uint32_t i = 0; i < n; i++) vg_clock_put(children(clock)[i]);
    }
    nodes--;
    free(clock);
}

void vg_clock_replace(struct vg_clock **into, struct vg_clock *other)
{
    vg_clock_get(other);
    vg_clock_put(*into);
    *into = other;
}

/* A node of the children, which it takes over; those that say no more than the floor are dropped.
 */
static struct vg_clock *gather(uint32_t level, uint32_t floor, struct vg_clock *at[WIDTH])
{
    uint32_t present = 0;
    bool ended = true;
    for (uint32_t i = 0; i < WIDTH; i++) {
        if (at[i] != NULL && at[i]->top <= floor) {
            vg_clock_put(at[i]);
            at[i] = NULL;
        }
        if (at[i] != NULL) present |= UINT32_C(1) << i;
        ended = ended && at[i] != NULL && at[i]->floor == VG_ENDED;
    }
    if (ended) {
        for (uint32_t i = 0; i < WIDTH; i++) vg_clock_put(at[i]);
        return make(level, VG_ENDED, 0);
    }
    struct vg_clock *node = make(level, floor, present);
    uint32_t n = 0;
    for (uint32_t i = 0; i < WIDTH; i++) {
        if (at[i] == NULL) continue;
        children(node)[n++] = at[i];
        if (at[i]->top > node->top) node->top = at[i]->top;
    }
    return node;
}

static uint32_t lane_epoch(const struct vg_clock *warp, uint32_t lane)
{
    const uint32_t own = warp->present != 0 ? epochs(warp)[lane] : 0;
    return own > warp->floor ? own : warp->floor;
}

/* A warp of these epochs, or one of a and b when it says the same. */
static struct vg_clock *warp_of(const uint32_t at[WIDTH], uint32_t floor, struct vg_clock *a,
                                struct vg_clock *b)
{
    bool is_a = a != NULL && a->floor == floor, is_b = b != NULL && b->floor == floor;
    uint32_t top = floor;
    for (uint32_t i = 0; i < WIDTH; i++) {
        is_a = is_a && lane_epoch(a, i) == at[i];
        is_b = is_b && lane_epoch(b, i) == at[i];
        if (at[i] > top) top = at[i];
    }
    if (is_a) return vg_clock_get(a);
    if (is_b) return vg_clock_get(b);
    struct vg_clock *node = make(0, floor, top > floor);
    node->top = top;
    if (top > floor) memcpy(epochs(node), at, WIDTH * sizeof *at);
    return node;
}

static struct vg_clock *join_warps(struct vg_clock *a, struct vg_clock *b)
{
    uint32_t at[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++) {
        const uint32_t x = lane_epoch(a, i), y = lane_epoch(b, i);
        at[i] = x > y ? x : y;
    }
    return warp_of(at, a->floor > b->floor ? a->floor : b->floor, a, b);
}

/* Both are of the same level. */
static struct vg_clock *join(struct vg_clock *a, struct vg_clock *b)
{
    if (a == b || a->floor >= b->top) return vg_clock_get(a);
    if (b->floor >= a->top) return vg_clock_get(b);
    if (a->level == 0) return join_warps(a, b);
    const uint32_t floor = a->floor > b->floor ? a->floor : b->floor;
    bool is_a = a->floor == floor, is_b = b->floor == floor;
    struct vg_clock *at[WIDTH] = {0};
    for (uint32_t left = a->present | b->present; left != 0; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        struct vg_clock *x = child(a, i), *y = child(b, i);
        if (x == NULL)
            at[i] = vg_clock_get(y);
        else
            at[i] = y == NULL ? vg_clock_get(x) : join(x, y);
        is_a = is_a && at[i] == x;
        is_b = is_b && at[i] == y;
    }
    if (!is_a && !is_b) return gather(a->level, floor, at);
    for (uint32_t i = 0; i < WIDTH; i++) vg_clock_put(at[i]);
    return vg_clock_get(is_a ? a : b);
}

/* Whether a knows all that b knows; both are of the same level. */
static bool covers(const struct vg_clock *a, const struct vg_clock *b, uint32_t floor)
{
    if (a == b || floor >= b->top) return true;
    if (a == NULL) return false;
    if (floor < a->floor) floor = a->floor;
    if (floor >= b->top) return true;
    if (floor < b->floor || a->top < b->top || a->present == 0) return false;
    if (a->level == 0) {
        const uint32_t *x = epochs(a), *y = epochs(b);
        bool less = false;
        for (uint32_t i = 0; i < WIDTH; i++) less |= x[i] < y[i] && y[i] > floor;
        return !less;
    }
    if ((b->present & ~a->present) != 0 && floor == 0) return false;
    for (uint32_t left = b->present; left != 0; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        if (!covers(child(a, i), child(b, i), floor)) return false;
    }
    return true;
}

/* Takes over the node and puts parents on it until it has the level. */
static struct vg_clock *raise_to(struct vg_clock *node, uint32_t level)
{
    while (node->level < level) {
        struct vg_clock *at[WIDTH] = {node};
        node = gather(node->level + 1, 0, at);
    }
    return node;
}

void vg_clock_join(struct vg_clock **into, struct vg_clock *other)
{
    struct vg_clock *mine = *into;
    if (other == NULL || other == mine) return;
    if (mine == NULL) {
        *into = vg_clock_get(other);
        return;
    }
    const uint32_t level = mine->level > other->level ? mine->level : other->level;
    mine = raise_to(mine, level);
    other = raise_to(vg_clock_get(other), level);
    if (covers(mine, other, 0))
        *into = vg_clock_get(mine);
    else
        *into = covers(other, mine, 0) ? vg_clock_get(other) : join(mine, other);
    vg_clock_put(mine);
    vg_clock_put(other);
}

/* The node (NULL: an empty one) with the part of the key known up to the epoch. stop is the level
 * whose floor rises; -1: a lane. */
static struct vg_clock *with(struct vg_clock *node, uint32_t level, uint64_t key, int stop,
                             uint32_t epoch)
{
    if (node != NULL && node->floor >= epoch) return vg_clock_get(node);
    if ((int)level == stop && (node == NULL || node->top <= epoch)) return make(level, epoch, 0);
    uint32_t floor = node != NULL ? node->floor : 0;
    if ((int)level == stop) floor = epoch;
    if (level == 0) {
        uint32_t at[WIDTH];
        for (uint32_t i = 0; i < WIDTH; i++) {
            at[i] = node != NULL ? lane_epoch(node, i) : 0;
            if (at[i] < floor) at[i] = floor;
        }
        if (at[key % WIDTH] < epoch) at[key % WIDTH] = epoch;
        return warp_of(at, floor, node, NULL);
    }
    struct vg_clock *at[WIDTH] = {0};
    for (uint32_t i = 0; node != NULL && i < WIDTH; i++) at[i] = vg_clock_get(child(node, i));
    if ((int)level != stop) {
        const uint32_t i = (uint32_t)(key >> (BITS * level)) % WIDTH;
        struct vg_clock *old = at[i];
        at[i] = with(old, level - 1, key, stop, epoch);
        vg_clock_put(old);
    }
    return gather(level, floor, at);
}

static uint32_t level_for(uint64_t key)
{
    uint32_t level = 1;
    while (key >> (BITS * (level + 1)) != 0) level++;
    return level;
}

void vg_clock_learn(struct vg_clock **into, uint32_t block, uint32_t thread, enum vg_part part,
                    uint32_t epoch)
{
    const uint64_t key = (uint64_t)block * VG_BLOCK_THREADS + thread;
    const uint32_t need = level_for(key);
    struct vg_clock *old = *into;
    if (old != NULL && old->level < need) old = raise_to(old, need);
    *into = with(old, old != NULL ? old->level : need, key, (int)part - 1, epoch);
    vg_clock_put(old);
}

/* A node of the level whose blocks begin at base: those of [first, end) have ended. */
static struct vg_clock *range(uint32_t level, uint64_t base, uint64_t first, uint64_t end)
{
    const uint64_t span = UINT64_C(1) << (BITS * (level - 1)), part = span / WIDTH;
    if (end <= base || first >= base + span) return NULL;
    if (first <= base && end >= base + span) return make(level, VG_ENDED, 0);
    struct vg_clock *at[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++) at[i] = range(level - 1, base + i * part, first, end);
    return gather(level, 0, at);
}

void vg_clock_end(struct vg_clock **into, uint32_t first, uint32_t n)
{
    if (n == 0) return;
    const uint64_t last = (uint64_t)first + n - 1;
    struct vg_clock *ended =
        range(level_for(last * VG_BLOCK_THREADS), 0, first, (uint64_t)first + n);
    vg_clock_join(into, ended);
    vg_clock_put(ended);
}

void vg_clock_look_up(struct vg_looked_up *into, const struct vg_clock *clock, uint64_t warp)
{
    *into = (struct vg_looked_up){.clock = clock, .number = clock->number, .warp = warp};
    if (warp >> (BITS * clock->level) != 0) return;
    while (clock != NULL) {
        if (clock->floor > into->known) into->known = clock->floor;
        if (clock->present == 0) return;
        if (clock->level == 0) {
            into->lanes = clock;
            return;
        }
        clock = child(clock, (uint32_t)(warp >> (BITS * (clock->level - 1))) % WIDTH);
    }
}

uint32_t vg_clock_epoch(const struct vg_clock *clock, uint32_t block, uint32_t thread)
{
    struct vg_looked_up found;
    if (clock == NULL) return 0;
    vg_clock_look_up(&found, clock, ((uint64_t)block * VG_BLOCK_THREADS + thread) / WIDTH);
    return vg_looked_up_epoch(&found, thread);
}

/* How many blocks at the node's beginning have ended. */
static uint64_t ended(const struct vg_clock *node)
{
    if (node == NULL || node->level == 0) return 0;
    const uint64_t span = UINT64_C(1) << (BITS * (node->level - 1));
    if (node->floor == VG_ENDED) return span;
    if (node->level == 1) return 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < WIDTH; i++) {
        const uint64_t more = ended(child(node, i));
        n += more;
        if (more < span / WIDTH) break;
    }
    return n;
}

uint32_t vg_clock_ended_below(const struct vg_clock *clock)
{
    const uint64_t n = ended(clock);
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}
