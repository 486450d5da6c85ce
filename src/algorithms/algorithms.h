/* The table of algorithms and the choice among them. */
#ifndef TT_ALGORITHMS_ALGORITHMS_H
#define TT_ALGORITHMS_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "schedule/schedule.h"

/* The index-th algorithm of a collective, NULL past the end. The composed ones, "X/Y", which are
 * for several hosts (tt_refusal), come last. Any thread gets the same pointer at every call; the
 * algorithm lives as long as the process. */
const struct tt_algorithm *tt_algorithm_at(enum tt_collective collective, int index);
/* By name, "ring" or "ring/tree"; NULL when there is none (or no memory to compose it). */
const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name);
/* By tt_algorithm_id; NULL when there is none. Slow: compares the ids of all algorithms. */
const struct tt_algorithm *tt_algorithm_by_id(enum tt_collective collective, uint64_t id);
/* Writes the comma-separated names for error messages; of composed ones only an example. */
void tt_algorithm_names(enum tt_collective collective, char *text, size_t size);

struct tt_costs; /* algorithms/costs.h */

/* What the choice depends on besides the shape. Plain data. */
struct tt_setting {
    bool one_host;       /* all ranks share a host, so meetings are possible */
    bool oversubscribed; /* more ranks than cores, so a rank that waits yields its core */
    /* On the host where most share a core; at most 1 (also 0) where each rank has its own. */
    double ranks_per_core;
    size_t meet_bytes; /* most bytes one rank may put into a meeting at once */
    size_t slot_bytes;
    uint32_t net_mbit;  /* of the slowest interface between hosts; 0: unknown */
    bool uneven;        /* the call has a count for each rank: only algorithms for that */
    bool in_rank_order; /* only algorithms that fold in rank order, where anything is folded */
    /* On GPUs: other constants. slot_bytes, meet_bytes and line_bytes are of one part of the data;
     * nparts of them move side by side. */
    bool on_device;
    bool no_meetings; /* only algorithms without meetings */
    int nparts;
    enum tt_bridge_way bridges; /* other than NO_BRIDGES: constants of their own between hosts, and
                                 * as few parts as are quickest */
    size_t line_bytes;          /* of the lines of one message; half of them are data */
    const struct tt_costs *costs; /* constants of the host; NULL: the shipped ones. Borrowed */
};

/* How a message of a GPU travels (device/call.h has the same protocols). */
enum tt_gpu_protocol { TT_GPU_SLOTS, TT_GPU_LINES, TT_GPU_NPROTOCOLS };
/* Whether lines are faster than slots for a message of nbytes in each part, by the cost model. */
bool tt_gpu_takes_lines(size_t nbytes);

/* Whether a communicator with this setting may use the algorithm as far as the order of folding
 * goes. */
static inline bool tt_order_fits(const struct tt_algorithm *algorithm, bool in_rank_order)
{
    return !in_rank_order || algorithm->in_rank_order ||
           !tt_collective_reduces(algorithm->collective);
}

/* The cost model: predicted microseconds of one call with nbytes in all blocks together; INFINITY
 * where the algorithm cannot run. */
double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes);

/* tt_cost_us for several sizes; counts the algorithm's steps once. */
void tt_costs_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                 const struct tt_setting *setting, const size_t *sizes, int nsizes, double *costs);

/* The cheapest algorithm for nbytes; the root has no influence. Never NULL: every collective has an
 * algorithm that always works. Slow: computes the costs of all algorithms. */
const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes);

/* The results of tt_choose for all sizes, as ranges in ascending order; the last range has no upper
 * end. Plain data. */
enum { TT_MOST_CHOICES = 16 };
struct tt_choices {
    int number; /* 0: not made yet */
    struct tt_choice {
        size_t most; /* bytes */
        const struct tt_algorithm *algorithm;
    } at[TT_MOST_CHOICES];
};
void tt_choices_make(struct tt_choices *choices, const struct tt_shape *shape,
                     const struct tt_setting *setting);
static inline const struct tt_algorithm *tt_choices_at(const struct tt_choices *choices,
                                                       size_t nbytes)
{
    const struct tt_choice *choice = choices->at;
    while (nbytes > choice->most) choice++;
    return choice->algorithm;
}

/* How many copies of the algorithm's program run side by side on GPUs, at most: at[i] for up to 2^i
 * bytes. Over bridges each copy has messages of its own, and each message costs the proxies a frame
 * and a credit, so short calls have fewer copies; else as many as there are parts for. The root has
 * no influence. Plain data. */
enum { TT_COPIES_SIZES = 48 };
struct tt_copies {
    uint8_t at[TT_COPIES_SIZES];
};
void tt_copies_make(struct tt_copies *copies, const struct tt_algorithm *algorithm,
                    const struct tt_shape *shape, const struct tt_setting *setting);
static inline int tt_copies_at(const struct tt_copies *copies, size_t nbytes)
{
    int i = 0;
    while (i < TT_COPIES_SIZES - 1 && nbytes > (size_t)1 << i) i++;
    return copies->at[i];
}

/* Parses TUTTI_ALGORITHM's grammar: "ring" (for every collective that has it), or
 * "all_reduce:ring;broadcast:binomial". Fills forced[TT_NCOLLECTIVES] (NULL: not forced).
 * TT_ERR_ARGUMENT names what is unknown and lists what there is. */
TT_NODISCARD tt_status tt_parse_algorithms(const char *text,
                                           const struct tt_algorithm *forced[TT_NCOLLECTIVES]);

#endif
