/* The schedule: the steps of every rank in a collective, as data.
 *
 * An algorithm is pure functions of (itself, shape, rank, channel, index). A step takes data from
 * peers and/or a local span, copies or reduces it, and puts the result in a local span and/or sends
 * it to peers. Schedules contain no pointers to data, no bytes, processes or sockets.
 *
 * Blocks. The data of a collective is cut into `nblocks` blocks with global names 0..nblocks-1:
 *   all_reduce, broadcast,   `count` elements are split into nblocks (the algorithm's choice)
 *   reduce                   balanced blocks; INPUT and OUTPUT hold all of them
 *   all_gather, gather       nblocks = nranks, `count` elements each; INPUT of rank r holds only
 *                            block r, OUTPUT (gather: root's) holds all
 *   reduce_scatter, scatter  nblocks = nranks; INPUT (scatter: root's) holds all, OUTPUT of rank
 *                            r only block r
 *   all_to_all               nblocks = nranks; INPUT block d is for rank d, OUTPUT block s came
 *                            from rank s
 *   barrier                  nblocks = 0; messages are empty
 * A channel c of nchannels works on the c-th part of every block. The executor cuts parts further
 * into rounds, so that each message fits one slot of a link, and runs the whole schedule once a
 * round.
 *
 * Order. The steps of one channel run in order. Links are FIFOs, one per (sender, receiver,
 * channel). A send completes when the message is in the link (a link is at least one message deep);
 * a receive waits for its message. */
#ifndef TT_SCHEDULE_SCHEDULE_H
#define TT_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/hosts.h"
#include "base/status.h"
#include "schedule/collective.h"
#include "schedule/kinds.h"

/* The input of a schedule besides the algorithm. Plain data. */
struct tt_shape {
    enum tt_collective collective;
    int nranks;
    int root;                     /* 0 where there is none */
    const struct tt_hosts *hosts; /* the placement of ranks; NULL: one host. Borrowed: outlives all
                                   * that is made from the shape */
};

/* Some blocks of one buffer: block i of the span, 0 <= i < number, is named
 *   (first + (i / run) * stride + i % run) mod nblocks
 * (run >= 1; a contiguous range has run = number; every second block has run 1, stride 2; a range
 * that wraps around needs nothing special). number = 0: no span. SCRATCH is `nscratch` slots of the
 * largest block's size; there the name gives a block's length only, and slot_rule its slot. */
struct tt_span {
    enum tt_buffer buffer;
    int32_t first, number, run, stride;
    enum tt_slot_rule slot_rule;
    int32_t slot; /* 0 outside SCRATCH */
    /* For composed algorithms: a span of a part of the blocks, in an order of its own.
     *   place = (first + (i / run) * stride + i % run) mod modulo
     *   name = order[base + place]
     * modulo 0: nblocks (and base 0); order NULL: the name is base + place. In SCRATCH and in
     * meetings the place counts instead of the name. */
    int32_t base, modulo;
    const int32_t *order; /* [nblocks], borrowed from the shape's hosts */
};

/* Peers: (first + i * stride) mod nranks for i = 0, 1, ... until there are `number`; with has_gap,
 * i = gap is left out (0 <= gap <= number). Distinct. stride may be negative. number = 0: none.
 * With a group they are places in it instead of ranks, and the modulus is its size. */
struct tt_peers {
    int32_t first, number, stride;
    bool has_gap;
    int32_t gap;
    struct tt_group group; /* ranks NULL: all ranks */
};

struct tt_step {
    enum tt_step_kind kind;
    enum tt_step_op op;
    bool finish; /* the result is complete (all ranks' contributions): averages divide here, once */
    struct tt_peers recv;
    struct tt_span local;
    int32_t own_at; /* LINK: place of local among the sources, 0 <= own_at <= recv.number; else 0 */
    struct tt_span dst;
    struct tt_peers send;
};

/* Closed forms, which tests compare with the counts of the steps. "Block" is the size of the
 * largest block. */
struct tt_formula {
    uint64_t steps;   /* most steps of any rank on any channel */
    uint64_t depth;   /* messages (or meetings) on the longest chain of dependences */
    uint64_t sent;    /* most blocks that any rank sends, over all channels, in units of (block /
                       * nchannels): a step that sends b blocks to p peers counts b * p, a
                       * meeting the blocks put in */
    uint64_t reduced; /* most blocks any rank reads in reducing steps, same unit (b blocks of k
                       * sources, or taken from a meeting of k: k * b) */
    uint64_t scratch; /* most scratch slots of any rank */
    uint64_t message; /* most blocks in one message of any rank (the executor sizes rounds by
                       * it); >= 1 if any */
};

/* The parts of a composed algorithm "X/Y": Y between hosts, and X, for one or two collectives,
 * among the ranks of each host. */
struct tt_parts {
    const struct tt_algorithm *between;
    /* On lanes: before and after `between`, which lane l runs on the l-th share of the data. Hosts
     * must have equally many ranks. NULL: there is no such phase. */
    const struct tt_algorithm *split, *join;
    /* By leaders: before and after `between`, which one rank of each host runs. NULL: there is no
     * such phase. */
    const struct tt_algorithm *up, *down;
};

/* One algorithm. Static const data, one or a few per file of src/algorithms. */
struct tt_algorithm {
    const char *name;    /* "ring" */
    const char *summary; /* one line */
    enum tt_collective collective;
    bool one_host;      /* uses meetings: only where all ranks share a host */
    bool direct_safe;   /* a sent INPUT/OUTPUT span stays unchanged until its receiver has taken it,
                         * also in place; proved by verify, compared with this flag in tests */
    bool in_rank_order; /* every element is folded in one step, in rank order from rank 0 on, so the
                         * result's bits depend on nothing but the contributions; proved by verify.
                         * Without meaning where nothing is reduced */
    bool uneven; /* blocks may have different lengths, so calls with a count for each rank may
                  * use the algorithm; proved by tt_verify_uneven. Not where the count is split */
    const struct tt_parts *parts; /* NULL: not composed */
    /* Pure functions of their arguments; self is this algorithm. */
    int (*nchannels)(const struct tt_algorithm *self, const struct tt_shape *shape); /* NULL: 1 */
    /* all_reduce, broadcast, reduce; NULL: 1 there. */
    int (*nblocks)(const struct tt_algorithm *self, const struct tt_shape *shape);
    /* SCRATCH slots; NULL: 0. */
    int (*nscratch)(const struct tt_algorithm *self, const struct tt_shape *shape, int rank);
    int (*nsteps)(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel);
    /* Fills *step, which the caller has zeroed. */
    void (*step)(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                 int channel, int index, struct tt_step *step);
    struct tt_formula (*formula)(const struct tt_algorithm *self, const struct tt_shape *shape);
    /* Returns NULL, or why the algorithm cannot run on these hosts (static storage). A NULL member:
     * the algorithm runs on any hosts. */
    const char *(*refusal)(const struct tt_algorithm *self, const struct tt_shape *shape);
};

/* These call the algorithm's functions. */
int tt_nsteps(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
              int channel);
void tt_step(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
             int channel, int index, struct tt_step *step);
struct tt_formula tt_formula_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape);
/* Identifies the algorithm of this collective and name, alike in all processes: a 64-bit FNV-1a
 * hash of "collective:name". */
uint64_t tt_algorithm_id(enum tt_collective collective, const char *name);
/* NULL where the algorithm can run on the shape's hosts; else why it cannot (static storage). */
const char *tt_refusal(const struct tt_algorithm *algorithm, const struct tt_shape *shape);
/* Whether the algorithm, or a part of it, has meetings on any rank. */
bool tt_meets(const struct tt_algorithm *algorithm);
bool tt_parts_meet(const struct tt_parts *parts);

/* The algorithm's numbers for the shape, with the defaults for NULL members. */
int tt_nchannels(const struct tt_algorithm *algorithm, const struct tt_shape *shape);
int tt_nblocks(const struct tt_algorithm *algorithm, const struct tt_shape *shape);
int tt_nscratch(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank);

/* ---- Small helpers for algorithms and executors --------------------------------------------- */

static inline int tt_mod(int64_t value, int modulus)
{
    const int64_t rest = value % modulus;
    return (int)(rest < 0 ? rest + modulus : rest);
}

static inline struct tt_span tt_range(enum tt_buffer buffer, int first, int number)
{
    return (struct tt_span){
        .buffer = buffer, .first = first, .number = number, .run = number > 0 ? number : 1};
}

static inline struct tt_peers tt_peer(int rank)
{
    return (struct tt_peers){.first = rank, .number = 1};
}

static inline int tt_peer_at(const struct tt_peers *peers, int i, int nranks)
{
    const int at = peers->has_gap && i >= peers->gap ? i + 1 : i;
    const int64_t place = (int64_t)peers->first + (int64_t)at * peers->stride;
    return peers->group.ranks ? tt_group_rank(&peers->group, tt_mod(place, peers->group.number))
                              : tt_mod(place, nranks);
}

/* Places of the part of which the span is. */
static inline int tt_span_places(const struct tt_span *span, int nblocks)
{
    return span->modulo ? span->modulo : nblocks;
}

/* The i-th block's place in the part; its name; in SCRATCH, its slot. */
static inline int tt_span_place(const struct tt_span *span, int i, int nblocks)
{
    const int64_t place =
        (int64_t)span->first + (int64_t)(i / span->run) * span->stride + i % span->run;
    return tt_mod(place, tt_span_places(span, nblocks));
}

static inline int tt_span_name(const struct tt_span *span, int i, int nblocks)
{
    const int at = span->base + tt_span_place(span, i, nblocks);
    return span->order ? span->order[at] : at;
}

static inline int tt_span_slot(const struct tt_span *span, int i, int nblocks)
{
    return span->slot + (span->slot_rule == TT_SLOT_IN_ORDER ? i : tt_span_place(span, i, nblocks));
}

/* Places first, first + 1, ... without wrapping round. */
static inline bool tt_span_contiguous(const struct tt_span *span, int nblocks)
{
    return (span->run >= span->number || span->stride == span->run) && span->first >= 0 &&
           span->first <= tt_span_places(span, nblocks) - span->number;
}

/* ---- Geometry: blocks become elements ------------------------------------------------------- */

/* How blocks cut the elements of a call. split: `count` elements in nblocks balanced blocks whose
 * bounds are multiples of `align` elements where count allows; otherwise every block has `count`
 * elements, or block b has counts[b]. */
struct tt_geometry {
    size_t count;
    int nblocks, nchannels;
    size_t align; /* elements; >= 1 */
    bool split;
    const size_t *counts; /* [nblocks], borrowed; NULL: all blocks have `count`. Not with split */
};

/* The elements of a block that a channel works on: returns their number; *begin is the first one's
 * index in the whole data. (A buffer that holds only the own block begins at that block's begin.)
 */
size_t tt_geometry_part(const struct tt_geometry *geometry, int block, int channel, size_t *begin);
/* The elements of a block on all channels: returns their number; *begin as above. */
size_t tt_geometry_block(const struct tt_geometry *geometry, int block, size_t *begin);
/* Most elements that any block has on any channel. */
size_t tt_geometry_largest_part(const struct tt_geometry *geometry);
/* The geometry of a call with elements of `element` bytes: block bounds are on cache lines where
 * count allows. nblocks is the algorithm's; nchannels too, times the copies that run side by side.
 */
struct tt_geometry tt_geometry_of(enum tt_collective collective, size_t count, size_t element,
                                  int nblocks, int nchannels);

/* How parts are cut into rounds, each of which runs the whole schedule. Plain data. */
struct tt_rounds {
    size_t piece;  /* most elements of a block's part in one round */
    size_t number; /* 0: not even one element of each block of a message fits */
};

/* Cuts parts so that a message of `message` blocks of elements of `element` bytes fits `room`
 * bytes. The cost model and the binding both call this, and so agree for one copy of the algorithm.
 */
struct tt_rounds tt_geometry_rounds(const struct tt_geometry *geometry, size_t element,
                                    size_t message, size_t room);
/* The least room in bytes with which the number of rounds is not 0. */
size_t tt_geometry_least_room(const struct tt_geometry *geometry, size_t element, size_t message);

/* Returns the number of blocks that a rank's buffer holds (0: the buffer is not used); *first is
 * the first of them. */
int tt_buffer_blocks(const struct tt_shape *shape, int nblocks, enum tt_buffer buffer, int rank,
                     int *first);

/* ---- Materialised: one rank's steps in an array --------------------------------------------- */

/* Owned by its creator; freed by tt_schedule_destroy. Immutable after build: may be shared by
 * threads. */
struct tt_schedule {
    const struct tt_algorithm *algorithm;
    uint64_t algorithm_id;
    struct tt_shape shape;
    int rank;
    int nblocks, nchannels, nscratch;
    int message;            /* most blocks in one message, of any rank */
    bool meets;             /* has meetings, on any rank */
    int *nsteps;            /* [nchannels] */
    struct tt_step **steps; /* [nchannels][nsteps] */
    struct tt_arena arena;  /* holds all of the above */
};

/* Builds rank's schedule. TT_ERR_ARGUMENT for a shape out of range, TT_ERR_USAGE where the
 * algorithm cannot be on these hosts (tt_refusal), TT_ERR_SYSTEM without memory. The builder keeps
 * the first error of any step (peer, span, op out of range) and reports it: TT_ERR_INTERNAL. */
TT_NODISCARD tt_status tt_schedule_create(const struct tt_algorithm *algorithm,
                                          const struct tt_shape *shape, int rank,
                                          struct tt_schedule **schedule);
void tt_schedule_destroy(struct tt_schedule *schedule);

/* Whether the step does nothing but store one message in OUTPUT. Then the sender may write the
 * message there, where tt_verify_report.post_safe holds. */
bool tt_step_may_be_posted(const struct tt_step *step);

/* Checks that a step is well-formed: peers and names are in range, and sources are as its kind and
 * op demand. Returns NULL, or the violation (static storage). */
const char *tt_step_check(const struct tt_step *step, const struct tt_shape *shape, int nblocks,
                          int nscratch, int rank);

/* ---- Verify, count, print ------------------------------------------------------------------- */

/* The steps that verify, count and print go through: an algorithm's, or replaced ones (raised
 * programs, mutation tests). */
struct tt_steps {
    const struct tt_algorithm *algorithm;
    struct tt_shape shape;
    /* NULL: the algorithm's own functions. */
    int (*nsteps)(void *arg, int rank, int channel);
    void (*step)(void *arg, int rank, int channel, int index, struct tt_step *step);
    void *arg;
};

struct tt_verify_report {
    char text[512];   /* the first violation: rank, channel, step, what; "" when proved */
    bool direct_safe; /* also holds for links that do not copy at the send, in and out of place */
    char direct[256]; /* why direct_safe is false; "" when it is true */
    bool post_safe;   /* the targets of all steps that may be posted are free from the beginning of
                       * the round, in and out of place */
    char post[256];   /* why post_safe is false; "" when it is true */
    bool in_rank_order; /* every element of a reduction is folded in one step, in rank order from
                         * rank 0 on; true where nothing is reduced */
    char order[256];    /* why in_rank_order is false; "" when it is true */
    bool any_count;     /* the result holds for every count: no check depended on `count` */
    uint64_t nsteps, nmessages;
};

/* Proves, by running all ranks symbolically over links one message deep: the result is the
 * collective's definition, each contribution counted once and finished once, sends match receives
 * in order and length, spans in range, no deadlock, no race between channels, in place as the
 * collective allows. `count` elements (the binding of blocks to elements is checked too). TT_OK
 * proved, TT_ERR_USAGE refuted (report->text), TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_verify(const struct tt_steps *steps, size_t count,
                                 struct tt_verify_report *report);

/* Proves the steps, as tt_verify, for blocks of different lengths: block b has counts[b] elements,
 * or, with counts NULL, no two blocks have the same length, which proves it for all counts. */
TT_NODISCARD tt_status tt_verify_uneven(const struct tt_steps *steps, const size_t *counts,
                                        struct tt_verify_report *report);

/* Counts the steps of every rank; the depth by running all ranks symbolically. Errors as tt_verify,
 * with the violation as this thread's last error. */
TT_NODISCARD tt_status tt_count(const struct tt_steps *steps, struct tt_formula *counted);

/* The data between hosts; blocks are in the unit of tt_formula.sent. */
struct tt_traffic {
    uint64_t sent, received; /* most blocks that leave any host; most that any host receives */
    uint64_t by_rank;        /* most blocks that any rank sends to, or receives from, other hosts */
    uint64_t messages;       /* most messages that any rank sends to other hosts */
    uint64_t depth;          /* most messages between hosts on a chain of dependences */
};

/* Counts the traffic. Without hosts in the shape every rank counts as a host. Errors as tt_count.
 */
TT_NODISCARD tt_status tt_count_traffic(const struct tt_steps *steps, struct tt_traffic *traffic);

/* What the ranks of a host do together, over all channels; blocks in the unit of tt_formula.sent.
 */
struct tt_totals {
    uint64_t actions; /* steps, and messages sent and received; a meeting counts as two for each of
                       * its members */
    uint64_t sent;    /* as tt_formula.sent */
    uint64_t reduced; /* as tt_formula.reduced, but what is put into a meeting counts once, as if
                       * one member reduced for all */
    uint64_t stored;  /* blocks written to OUTPUT or SCRATCH */
    bool one_way; /* no rank meets, or takes a message after it has sent one on the channel: none
                   * waits for an answer to what it sends */
};

/* Counts the totals, each of the host where it is most. Without hosts in the shape all ranks are on
 * one host. Errors as tt_count. */
TT_NODISCARD tt_status tt_count_totals(const struct tt_steps *steps, struct tt_totals *totals);

/* Emits one line per step of `rank`, without newline:
 * "recv 3 reduce OUTPUT[2..3] -> OUTPUT[2..3] send 1". */
void tt_print(const struct tt_steps *steps, int rank, void (*emit)(void *arg, const char *line),
              void *arg);

/* Writes one step as text. */
void tt_step_print(const struct tt_step *step, const struct tt_shape *shape, int nblocks,
                   char *text, size_t size);

#endif
