#include "algorithms/algorithms.h"

#include <math.h>
#include <stdio.h>

#include "algorithms/hierarchy.h"

/* The cost model: what the busiest rank does, from the algorithm's formula. A message that does not
 * fit a slot (or a part that does not fit a meeting) is cut, and the whole schedule run once a
 * round. A rank waits in every round for the dependences that its own steps can hold; the rest of
 * the longest chain (`lag`) is waited for once, while rounds follow each other through it.
 *
 *   links      (rounds * min(depth, steps) + lag) * link
 *   meetings    (2 * rounds - 1) * depth * (meeting + nranks * meeting_rank)
 *               for before the next round all wait until all have taken
 *   both      + rounds * actions * action          steps, or messages where they are more
 *             + bytes sent * byte_sent             with those that fill a pipeline: lag messages
 *             + bytes reduced * byte_reduced
 *             + bytes of the result * byte_result
 *
 * With more ranks than cores a dependence waits for a rank's turn on a core instead: turn_link or
 * turn_meeting, times nranks.
 *
 * Between hosts, for what leaves the busiest of them:
 *             + rounds * (messages between hosts one after another) * (net_link - link)
 *             + (messages that a rank sends to other hosts) * net_message
 *             + bytes that a rank sends * net_byte, or, where that is more,
 *               bytes that leave the host / speed of the interface
 *
 * An algorithm X/Y costs what its phases cost. */
struct cost {
    const char *name;
    double value; /* microseconds, or microseconds a byte */
    const char *source;
};

enum {
    LINK,
    MEETING,
    MEETING_RANK,
    TURN_LINK,
    TURN_MEETING,
    ACTION,
    BYTE_SENT,
    BYTE_REDUCED,
    BYTE_RESULT,
    NET_LINK,
    NET_MESSAGE,
    NET_BYTE,
    NCOSTS
};

/* Measured on two cores of an AVX-512 server in a virtual machine. */
static const struct cost costs[NCOSTS] = {
    [LINK] = {"link", 0.45,
              "a message, its slot and its flag; ring of 2 against meet at 4 to 32 KiB"},
    [MEETING] = {"meeting", 0.12, "with meeting_rank, two ranks exchange in 0.13 to 0.2 us"},
    [MEETING_RANK] = {"meeting_rank", 0.03, "one more flag to look at"},
    [TURN_LINK] = {"turn_link", 1.0, "per rank; tree-like exchanges, 2 to 4 ranks a core"},
    [TURN_MEETING] = {"turn_meeting", 0.5, "per rank; 1.5 us at 4 ranks, 4.3 us at 8, on 2 cores"},
    [ACTION] = {"action", 0.08, "a step of the executor, or one of its messages"},
    [BYTE_SENT] = {"byte_sent", 1.0 / 14000, "12 to 16 GB/s into lines the other core read last"},
    [BYTE_REDUCED] = {"byte_reduced", 1.0 / 22000, "20 to 25 GB/s from lines the other core wrote"},
    [NET_LINK] = {"net_link", 6.0,
                  "TCP to a rank that waits: 2.4 us on loopback, and a real network"},
    [NET_MESSAGE] = {"net_message", 1.5, "its system calls; a ping over loopback takes 3.9 us"},
    [NET_BYTE] = {"net_byte", 1.0 / 2600, "TCP on one core; 2.3 GB/s with what is reduced"},
    [BYTE_RESULT] = {"byte_result", 1.0 / 17000, "one core's copy out of the cache, non-temporal"},
};

/* Ranks up to which everyone may talk to everyone, and whose steps are counted to choose. */
enum { MOST_PEERS = 64, MOST_COUNTED = 64 };

/* What the formula says of nbytes, and how they are cut. */
struct load {
    double steps, depth, actions;
    double message, sent, reduced, result; /* bytes */
    double rounds, block;                  /* block: bytes in the unit of the formula */
};

/* All ranks must choose alike, so the type is not part of the choice: what fits is worked out for
 * the largest element. */
enum { LARGEST_ELEMENT = 8 };

/* Most bytes of a message, where parts of meetings count as messages. */
static size_t room_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                      const struct tt_setting *setting)
{
    const bool meets = tt_meets(algorithm) && shape->nranks > 1;
    return meets && setting->meet_bytes < setting->slot_bytes ? setting->meet_bytes
                                                              : setting->slot_bytes;
}

/* As the executor cuts nbytes. */
static size_t rounds_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                        uint64_t message, size_t nbytes, size_t room)
{
    const size_t nblocks = (size_t)tt_nblocks(algorithm, shape);
    if (!nblocks) return 1;
    const size_t nelements = nbytes / LARGEST_ELEMENT + (nbytes % LARGEST_ELEMENT > 0);
    const size_t count = tt_collective_splits(shape->collective)
                             ? nelements
                             : nelements / nblocks + (nelements % nblocks > 0);
    const struct tt_geometry geometry = tt_geometry_of(
        shape->collective, count, LARGEST_ELEMENT, (int)nblocks, tt_nchannels(algorithm, shape));
    return tt_geometry_rounds(&geometry, LARGEST_ELEMENT, (size_t)message, room).number;
}

/* Whether its messages fit slots and its meetings meeting places. */
static bool fits(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                 const struct tt_setting *setting, size_t nbytes)
{
    return rounds_of(algorithm, shape, tt_formula_of(algorithm, shape).message, nbytes,
                     room_of(algorithm, shape, setting)) > 0;
}

/* A rank sends or receives at least so many messages. */
static double messages_of(const struct tt_formula *formula)
{
    const uint64_t parts = formula->sent > formula->reduced ? formula->sent : formula->reduced;
    return formula->message > 0 ? (double)parts / (double)formula->message : 0;
}

static struct load load_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                           size_t nbytes, size_t most)
{
    const struct tt_formula formula = tt_formula_of(algorithm, shape);
    const int nblocks = tt_nblocks(algorithm, shape), nchannels = tt_nchannels(algorithm, shape);
    const double block = nblocks > 0 ? (double)nbytes / ((double)nblocks * nchannels) : 0;
    const bool result_is_a_block =
        shape->collective == TT_REDUCE_SCATTER || shape->collective == TT_SCATTER;
    struct load load = {
        .steps = (double)formula.steps,
        .depth = (double)formula.depth,
        .actions = (double)formula.steps * nchannels,
        .message = (double)formula.message * block,
        .sent = (double)formula.sent * block,
        .reduced = (double)formula.reduced * block,
        .result = nblocks == 0        ? 0
                  : result_is_a_block ? block
                                      : (double)nbytes,
        .rounds = fmax(1, (double)rounds_of(algorithm, shape, formula.message, nbytes, most)),
        .block = block,
    };
    if (!algorithm->one_host) load.actions = fmax(load.actions, messages_of(&formula));
    return load;
}

/* On one host, or where it is not known who is where. */
static double cost_inside(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                          const struct tt_setting *setting, size_t nbytes)
{
    const bool meets = algorithm->one_host && shape->nranks > 1, turns = setting->oversubscribed;
    if (meets && (!setting->one_host || setting->meet_bytes == 0)) return INFINITY;
    const size_t most = meets ? setting->meet_bytes : setting->slot_bytes;
    const struct load load = load_of(algorithm, shape, nbytes, most);
    const double lag = meets || load.depth < load.steps ? 0 : load.depth - load.steps;
    const double nranks = shape->nranks;
    double wait;
    if (meets)
        wait = (2 * load.rounds - 1) * load.depth *
               (turns ? nranks * costs[TURN_MEETING].value
                      : costs[MEETING].value + nranks * costs[MEETING_RANK].value);
    else
        wait = (load.rounds * (load.depth - lag) + lag) *
               (turns ? nranks * costs[TURN_LINK].value : costs[LINK].value);
    return wait + load.rounds * load.actions * costs[ACTION].value +
           (load.sent + lag * load.message / load.rounds) * costs[BYTE_SENT].value +
           load.reduced * costs[BYTE_REDUCED].value + load.result * costs[BYTE_RESULT].value;
}

/* What goes between hosts costs more. traffic: in blocks of `block` bytes; at_once: ranks of a host
 * that have as much. */
static double cost_between(const struct tt_traffic *traffic, int at_once, const struct load *load,
                           const struct tt_setting *setting)
{
    const double wire = setting->net_mbit ? 8.0 / setting->net_mbit : 0; /* us a byte */
    const double through =
        (double)(traffic->sent > traffic->received ? traffic->sent : traffic->received);
    return load->rounds * (double)traffic->depth * (costs[NET_LINK].value - costs[LINK].value) +
           load->rounds * (double)traffic->messages * costs[NET_MESSAGE].value +
           load->block *
               fmax((double)traffic->by_rank * costs[NET_BYTE].value, at_once * through * wire);
}

/* Counted where that takes no time; else as if every rank sent to all alike. */
static struct tt_traffic traffic_of(const struct tt_algorithm *algorithm,
                                    const struct tt_shape *shape)
{
    struct tt_traffic traffic;
    const struct tt_steps steps = {.algorithm = algorithm, .shape = *shape};
    if (shape->nranks <= MOST_COUNTED && tt_count_traffic(&steps, &traffic) == TT_OK)
        return traffic;
    const struct tt_formula formula = tt_formula_of(algorithm, shape);
    const int most = shape->hosts ? shape->hosts->most : 1;
    const double away = (double)(shape->nranks - most) / (shape->nranks - 1);
    const uint64_t by_rank = (uint64_t)ceil(away * (double)formula.sent);
    return (struct tt_traffic){.sent = by_rank * (uint64_t)most,
                               .by_rank = by_rank,
                               .messages = (uint64_t)ceil(away * messages_of(&formula)),
                               .depth = formula.depth};
}

/* One algorithm that is not made of others, all of whose ranks are on one host or not. */
static double cost_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                      const struct tt_setting *setting, size_t nbytes, bool between, int at_once)
{
    struct tt_setting own = *setting;
    own.one_host = !between;
    const double cost = cost_inside(algorithm, shape, &own, nbytes);
    if (!between) return cost;
    const struct tt_traffic traffic = traffic_of(algorithm, shape);
    const struct load load = load_of(algorithm, shape, nbytes, setting->slot_bytes);
    return cost + cost_between(&traffic, at_once, &load, setting);
}

double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes)
{
    if (tt_refusal(algorithm, shape) || !fits(algorithm, shape, setting, nbytes)) return INFINITY;
    if (!algorithm->parts) {
        if (!shape->hosts) return cost_inside(algorithm, shape, setting, nbytes);
        return cost_of(algorithm, shape, setting, nbytes, shape->hosts->nhosts > 1, 1);
    }
    struct tt_phase phases[TT_MOST_PHASES];
    double cost = 0;
    for (int i = tt_hierarchy_phases(algorithm, shape, phases); i-- > 0;)
        cost += cost_of(phases[i].algorithm, &phases[i].shape, setting,
                        (size_t)(phases[i].share * (double)nbytes), phases[i].between,
                        phases[i].at_once);
    return cost;
}

/* With many ranks, an algorithm in which a rank talks to all others at once: every link takes
 * memory, so the choice falls on it only where there is nothing else. */
static bool crowded(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    if (shape->nranks <= MOST_PEERS || algorithm->one_host) return false;
    if (algorithm->parts) {
        struct tt_phase phases[TT_MOST_PHASES];
        bool any = false;
        for (int i = tt_hierarchy_phases(algorithm, shape, phases); i-- > 0;)
            any = any || crowded(phases[i].algorithm, &phases[i].shape);
        return any;
    }
    const struct tt_formula formula = tt_formula_of(algorithm, shape);
    const double messages = fmax((double)formula.steps, messages_of(&formula));
    return formula.depth <= 2 && messages >= shape->nranks - 1;
}

/* Whether to look at it at all. With one rank on each host X/Y is Y. */
static bool eligible(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                     bool may_crowd)
{
    if (tt_refusal(algorithm, shape)) return false;
    if (algorithm->parts && shape->hosts->most == 1) return false;
    return may_crowd || !crowded(algorithm, shape);
}

/* The cheapest algorithm that can work; NULL: there is none. */
static const struct tt_algorithm *cheapest(const struct tt_shape *shape,
                                           const struct tt_setting *setting, size_t nbytes,
                                           bool may_crowd)
{
    const struct tt_algorithm *best = NULL, *algorithm;
    double best_cost = INFINITY;
    for (int i = 0; (algorithm = tt_algorithm_at(shape->collective, i)) != NULL; i++) {
        if (!eligible(algorithm, shape, may_crowd)) continue;
        const double cost = tt_cost_us(algorithm, shape, setting, nbytes);
        if (cost >= best_cost) continue;
        best = algorithm;
        best_cost = cost;
    }
    return best;
}

const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes)
{
    const struct tt_algorithm *best = cheapest(shape, setting, nbytes, false);
    if (!best) best = cheapest(shape, setting, nbytes, true);
    return best ? best : tt_algorithm_at(shape->collective, 0);
}

void tt_cost_describe(void (*emit)(void *arg, const char *line), void *arg)
{
    for (int i = 0; i < NCOSTS; i++) {
        char line[160];
        snprintf(line, sizeof line, "%-13s %9.6f us  %s", costs[i].name, costs[i].value,
                 costs[i].source);
        emit(arg, line);
    }
}
