/* The table of algorithms and the choice among them. */
#ifndef TT_ALGORITHMS_ALGORITHMS_H
#define TT_ALGORITHMS_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "schedule/schedule.h"

/* The index-th algorithm of a collective, NULL past the end. Those composed of two others, "X/Y",
 * which are for several hosts (tt_refusal), come last. An algorithm is the same pointer whenever it
 * is asked for, by any thread, and lives as long as the process. */
const struct tt_algorithm *tt_algorithm_at(enum tt_collective collective, int index);
/* By name, "ring" or "ring/tree"; NULL when there is none (or no memory to compose it). */
const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name);
/* By tt_algorithm_id; NULL when there is none. Slow: it looks at all. */
const struct tt_algorithm *tt_algorithm_by_id(enum tt_collective collective, uint64_t id);
/* Comma-separated names, for error messages; of those made of two others an example. */
void tt_algorithm_names(enum tt_collective collective, char *text, size_t size);

/* What the choice depends on besides the shape. Plain data. */
struct tt_setting {
    bool one_host;       /* all ranks share a host, so meetings are possible */
    bool oversubscribed; /* more ranks than cores */
    size_t meet_bytes;   /* most bytes one rank may put into a meeting at once */
    size_t slot_bytes;
    uint32_t net_mbit; /* of the slowest interface between hosts; 0: unknown */
    bool uneven;       /* the call has a count for each rank: only algorithms for that */
};

/* Predicted microseconds of one call that moves nbytes in all blocks together (the cost model). */
double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes);

/* The cheapest algorithm, whatever the root. Never NULL: every collective has at least one that
 * always works. Slow: it compares all. */
const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes);

/* What tt_choose says for every size, as ranges in ascending order; the last one is without end.
 * Plain data. */
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

/* Parses TUTTI_ALGORITHM's grammar: "ring" (for every collective that has it), or
 * "all_reduce:ring;broadcast:binomial". Fills forced[TT_NCOLLECTIVES] (NULL: not forced).
 * TT_ERR_ARGUMENT names what is unknown and lists what there is. */
TT_NODISCARD tt_status tt_parse_algorithms(const char *text,
                                           const struct tt_algorithm *forced[TT_NCOLLECTIVES]);

/* The cost model's constants, line by line, for tutti-info. */
void tt_cost_describe(void (*emit)(void *arg, const char *line), void *arg);

#endif
