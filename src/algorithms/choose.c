#include <math.h>
#include <stdio.h>

#include "algorithms/algorithms.h"

/* The cost model. A call over links takes
 *
 *   depth * link + actions * (rounds * action) + max(bytes sent, depth * one message) * byte_sent
 *     + bytes reduced * byte_reduced
 *
 * where a round is what fits the slots at once; actions are a rank's steps, or its messages when
 * they are more; the maximum is what a pipeline of rounds takes to fill and drain. A call over
 * meetings takes
 *
 *   depth * rounds * (meeting + nranks * meeting_rank) + the same terms for steps and bytes
 *
 * With more ranks than cores a dependence waits for the turn of a rank on the core, which grows
 * with the ranks. */
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
    NCOSTS
};

/* Measured on two cores of an AVX-512 server in a virtual machine. */
static const struct cost costs[NCOSTS] = {
    [LINK] = {"link", 0.15, "a flag from core to core, half of the 0.3 us there and back"},
    [MEETING] = {"meeting", 0.08, "with meeting_rank: an exchange of two ranks, 0.13 to 0.2 us"},
    [MEETING_RANK] = {"meeting_rank", 0.05, "one more flag to look at"},
    [TURN_LINK] = {"turn_link", 1.0, "per rank: tree-like exchanges at 4 and 8 ranks on 2 cores"},
    [TURN_MEETING] = {"turn_meeting", 0.5, "per rank: 1.5 us at 4 and 4.3 us at 8 on 2 cores"},
    [ACTION] = {"action", 0.04, "a step of the executor, or one message of it"},
    [BYTE_SENT] = {"byte_sent", 1.0 / 10000, "10 GB/s into a slot and out of it"},
    [BYTE_REDUCED] = {"byte_reduced", 1.0 / 25000, "25 GB/s, lines dirty in the other core"},
};

static double rounds_of(double nbytes, size_t most)
{
    return nbytes > (double)most ? ceil(nbytes / (double)most) : 1;
}

double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes)
{
    const bool meets = algorithm->one_host && shape->nranks > 1;
    if (meets && (!setting->one_host || setting->meet_bytes == 0)) return INFINITY;
    const struct tt_formula formula = algorithm->formula(shape);
    const int nblocks = tt_nblocks(algorithm, shape);
    const double block =
        nblocks > 0 ? (double)nbytes / nblocks / tt_nchannels(algorithm, shape) : 0;
    const double message = (double)formula.message * block;
    const double rounds = rounds_of(message, meets ? setting->meet_bytes : setting->slot_bytes);
    const double depth = (double)formula.depth;
    const double nranks = shape->nranks;
    double actions = (double)formula.steps, wait, sent = (double)formula.sent * block;
    if (meets) {
        wait =
            depth * rounds *
            (setting->oversubscribed ? nranks * costs[TURN_MEETING].value
                                     : costs[MEETING].value + nranks * costs[MEETING_RANK].value);
    } else {
        const double parts =
            (double)(formula.sent > formula.reduced ? formula.sent : formula.reduced);
        if (formula.message > 0) actions = fmax(actions, parts / (double)formula.message);
        wait =
            depth * (setting->oversubscribed ? nranks * costs[TURN_LINK].value : costs[LINK].value);
        sent = fmax(sent, depth * message / rounds);
    }
    return wait + actions * rounds * costs[ACTION].value + sent * costs[BYTE_SENT].value +
           (double)formula.reduced * block * costs[BYTE_REDUCED].value;
}

const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes)
{
    const struct tt_algorithm *best = NULL, *algorithm;
    double best_cost = INFINITY;
    for (int i = 0; (algorithm = tt_algorithm_at(shape->collective, i)) != NULL; i++) {
        const double cost = tt_cost_us(algorithm, shape, setting, nbytes);
        if (best && cost >= best_cost) continue;
        best = algorithm;
        best_cost = cost;
    }
    return best;
}

void tt_cost_describe(void (*emit)(void *arg, const char *line), void *arg)
{
    for (int i = 0; i < NCOSTS; i++) {
        char line[160];
        snprintf(line, sizeof line, "%-14s %9.6f us  %s", costs[i].name, costs[i].value,
                 costs[i].source);
        emit(arg, line);
    }
}
