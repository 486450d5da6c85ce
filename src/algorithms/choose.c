/* Chooses an algorithm: evaluates the cost model with each algorithm's formulas. */
#include "algorithms/algorithms.h"

#include <math.h>
#include <stdio.h>

#include "algorithms/hierarchy.h"

/* The cost model: the time of the busiest rank, from the algorithm's formula. A message that does
 * not fit a slot (or a part that does not fit a meeting) is cut, and the whole schedule runs once a
 * round. In every round a rank waits for at most as many dependences as it has steps. The rest of
 * the longest chain (`lag`) counts once, because the rounds are pipelined.
 *
 *   links      (rounds * min(depth, steps) + lag) * link
 *   meetings    (2 * rounds - 1) * depth * (meeting + nranks * meeting_rank)
 *               for before the next round all wait until all have taken
 *   both      + rounds * actions * action          steps, or messages sent and received where they
 *                                                  are more
 *             + bytes sent * byte_sent             with those that fill a pipeline: lag messages;
 *                                                  in a meeting bytes put in * byte_put
 *             + bytes reduced * byte_reduced
 *             + bytes of the result * byte_result
 *
 * Messages of one host that go straight from or to the root (depth 1), and are all there is to do,
 * have link_one_way for link, as no rank waits for an answer, also with more ranks than cores: a
 * rank then sends many messages in one turn on its core. Where they go to the root, what is
 * sent and what is taken cost only the more of both, as the root takes while others send.
 *
 * With more ranks than cores any other dependence waits for a rank's turn on a core instead:
 * turn_link or turn_meeting, times nranks.
 *
 * Between hosts, for the messages that leave the busiest host:
 *             + rounds * (dependent messages between hosts) * (net_link - link)
 *             + (messages that a rank sends to other hosts) * net_message
 *             + bytes that a rank sends * net_byte, or, where that is more,
 *               bytes that leave the host / speed of the interface
 *
 * The cost of an algorithm X/Y is the sum of the costs of its phases. */
struct cost {
    const char *name;
    double value; /* microseconds, or microseconds a byte */
    const char *source;
};

enum {
    LINK,
    LINK_ONE_WAY,
    MEETING,
    MEETING_RANK,
    TURN_LINK,
    TURN_MEETING,
    ACTION,
    BYTE_SENT,
    BYTE_PUT,
    BYTE_REDUCED,
    BYTE_RESULT,
    NET_LINK,
    NET_MESSAGE,
    NET_BYTE,
    NCOSTS
};

/* Measured on two cores of an AVX-512 server in a virtual machine. The constants of one host are
 * fitted to perf-tests/choice.sh, so that the chosen algorithm is among the fastest. */
static const struct cost costs[NCOSTS] = {
    [LINK] = {"link", 0.31, "a message whose answer is waited for; all_reduce and all_gather of 2"},
    [LINK_ONE_WAY] = {"link_one_way", 0.05,
                      "a message from or to a root, which waits for no answer"},
    [MEETING] = {"meeting", 0.35, "with meeting_rank; all_reduce and barrier of 2"},
    [MEETING_RANK] = {"meeting_rank", 0.03, "one more flag to look at"},
    [TURN_LINK] = {"turn_link", 1.0, "per rank; tree-like exchanges, 2 to 4 ranks a core"},
    [TURN_MEETING] = {"turn_meeting", 0.7, "per rank; 2.8 us at 4 ranks on 2 cores"},
    [ACTION] = {"action", 0.05, "a step, or a message sent or received"},
    [BYTE_SENT] = {"byte_sent", 1.0 / 6700, "into a slot of a link; 4 to 512 KiB between 2"},
    [BYTE_PUT] = {"byte_put", 1.0 / 4000, "into a meeting, where nobody reads before all have put"},
    [BYTE_REDUCED] = {"byte_reduced", 1.0 / 26000, "read to be reduced; the same runs"},
    [BYTE_RESULT] = {"byte_result", 1.0 / 6700, "written to the result; the same runs"},
    [NET_LINK] = {"net_link", 6.0,
                  "TCP to a rank that waits: 2.4 us on loopback, and a real network"},
    [NET_MESSAGE] = {"net_message", 1.5, "its system calls; a ping over loopback takes 3.9 us"},
    [NET_BYTE] = {"net_byte", 1.0 / 3600, "TCP on one core; 2.3 GB/s with byte_sent"},
};

/* Most ranks among which all pairs may exchange messages, and whose steps are counted to choose. */
enum { MOST_PEERS = 64, MOST_COUNTED = 64 };
/* An algorithm takes the place of one before it in the table, which is simpler, only where its cost
 * is below this part of the other's. */
static const double CLEARLY = 0.99;
/* Sizes at which costs are compared: 1 byte, 2, 4, ... */
enum { NSIZES = 48 };

/* The formula applied to nbytes, and the rounds. */
struct load {
    double steps, depth, actions;
    double message, sent, reduced, result; /* bytes */
    double rounds, block;                  /* block: bytes in the unit of the formula */
};

/* All ranks must choose alike, so the type has no influence: the rounds are computed for the
 * largest element. */
enum { LARGEST_ELEMENT = 8 };

/* Most bytes of a message, where parts of meetings count as messages. */
static size_t room_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                      const struct tt_setting *setting)
{
    const bool meets = tt_meets(algorithm) && shape->nranks > 1;
    return meets && setting->meet_bytes < setting->slot_bytes ? setting->meet_bytes
                                                              : setting->slot_bytes;
}

static double sent_of(const struct tt_formula *formula)
{
    return formula->message > 0 ? (double)formula->sent / (double)formula->message : 0;
}

/* A rank sends or receives at least so many messages. */
static double messages_of(const struct tt_formula *formula)
{
    const uint64_t parts = formula->sent > formula->reduced ? formula->sent : formula->reduced;
    return formula->message > 0 ? (double)parts / (double)formula->message : 0;
}

/* An algorithm that is not composed, on one group of ranks: the input of its cost. */
struct part {
    const struct tt_algorithm *algorithm;
    struct tt_formula formula;
    int nranks, nblocks, nchannels;
    bool one_host;             /* meetings are possible */
    bool between;              /* hosts */
    bool composed;             /* with other parts, which wait for this one */
    double share;              /* of the call's data */
    int at_once;               /* ranks of a host that do this on different shares */
    int repeats;               /* how often the whole algorithm runs it, on channels of their own */
    struct tt_traffic traffic; /* where between */
};

/* An algorithm as its parts, in the order in which they run. */
struct model {
    struct part parts[TT_MOST_PHASES];
    int number;
    struct part whole; /* as one algorithm: how its messages are cut */
    size_t room;       /* bytes of a message */
};

/* Rounds in which the executor runs nbytes; 0: one element of each block does not fit a message. */
static size_t rounds_of(const struct part *part, double nbytes, size_t room)
{
    const enum tt_collective collective = part->algorithm->collective;
    if (!part->nblocks) return 1;
    const size_t nelements = (size_t)ceil(nbytes / LARGEST_ELEMENT), n = (size_t)part->nblocks;
    const size_t count =
        tt_collective_splits(collective) ? nelements : nelements / n + (nelements % n > 0);
    const struct tt_geometry geometry =
        tt_geometry_of(collective, count, LARGEST_ELEMENT, part->nblocks, part->nchannels);
    return tt_geometry_rounds(&geometry, LARGEST_ELEMENT, (size_t)part->formula.message, room)
        .number;
}

static struct load load_of(const struct part *part, double nbytes, size_t most)
{
    const enum tt_collective collective = part->algorithm->collective;
    const struct tt_formula *formula = &part->formula;
    const double block = part->nblocks > 0 ? nbytes / ((double)part->nblocks * part->nchannels) : 0;
    const bool result_is_a_block = tt_collective_row(collective)->output == TT_HOLDS_OWN;
    struct load load = {
        .steps = (double)formula->steps,
        .depth = (double)formula->depth,
        .actions = (double)formula->steps * part->nchannels * part->repeats,
        .message = (double)formula->message * block,
        .sent = (double)formula->sent * block,
        .reduced = (double)formula->reduced * block,
        .result = part->nblocks == 0  ? 0
                  : result_is_a_block ? block
                                      : nbytes,
        .rounds = fmax(1, (double)rounds_of(part, nbytes, most)),
        .block = block,
    };
    if (!part->algorithm->one_host)
        load.actions = fmax(load.actions, fmax(messages_of(formula), 2 * sent_of(formula)));
    return load;
}

/* The cost on one host, or where the placement is not known. */
static double cost_inside(const struct part *part, const struct tt_setting *setting, double nbytes)
{
    const bool meets = part->algorithm->one_host && part->nranks > 1;
    const bool turns = setting->oversubscribed;
    const enum tt_collective collective = part->algorithm->collective;
    if (meets && (!part->one_host || setting->meet_bytes == 0)) return INFINITY;
    const size_t most = meets ? setting->meet_bytes : setting->slot_bytes;
    const struct load load = load_of(part, nbytes, most);
    const double lag = meets || load.depth < load.steps ? 0 : load.depth - load.steps;
    const bool one_way =
        tt_collective_has_root(collective) && load.depth <= 1 && !part->between && !part->composed;
    const bool to_root = one_way && tt_collective_row(collective)->output_at_root_only;
    const double nranks = part->nranks;
    double wait;
    if (meets)
        wait = (2 * load.rounds - 1) * load.depth *
               (turns ? nranks * costs[TURN_MEETING].value
                      : costs[MEETING].value + nranks * costs[MEETING_RANK].value);
    else
        wait = (load.rounds * (load.depth - lag) + lag) * (one_way ? costs[LINK_ONE_WAY].value
                                                           : turns ? nranks * costs[TURN_LINK].value
                                                                   : costs[LINK].value);
    const double sent =
        (load.sent + lag * load.message / load.rounds) * costs[meets ? BYTE_PUT : BYTE_SENT].value;
    const double taken =
        load.reduced * costs[BYTE_REDUCED].value + load.result * costs[BYTE_RESULT].value;
    return wait + load.rounds * load.actions * costs[ACTION].value +
           (to_root && !meets ? fmax(sent, taken) : sent + taken);
}

/* The additional cost of messages between hosts. */
static double cost_between(const struct part *part, const struct tt_setting *setting,
                           const struct load *load)
{
    const struct tt_traffic *traffic = &part->traffic;
    const double wire = setting->net_mbit ? 8.0 / setting->net_mbit : 0; /* us a byte */
    const double through =
        (double)(traffic->sent > traffic->received ? traffic->sent : traffic->received);
    return load->rounds * (double)traffic->depth * (costs[NET_LINK].value - costs[LINK].value) +
           load->rounds * (double)traffic->messages * part->repeats * costs[NET_MESSAGE].value +
           load->block * fmax((double)traffic->by_rank * costs[NET_BYTE].value,
                              part->at_once * through * wire);
}

/* Counted for few ranks; else estimated as if every rank sent equally much to all others. */
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

static struct part part_of(const struct tt_phase *phase, bool one_host)
{
    struct part part = {.algorithm = phase->algorithm,
                        .formula = tt_formula_of(phase->algorithm, &phase->shape),
                        .nranks = phase->shape.nranks,
                        .nblocks = tt_nblocks(phase->algorithm, &phase->shape),
                        .nchannels = tt_nchannels(phase->algorithm, &phase->shape),
                        .one_host = one_host,
                        .between = phase->between,
                        .share = phase->share,
                        .at_once = phase->at_once,
                        .repeats = 1};
    if (phase->between) part.traffic = traffic_of(phase->algorithm, &phase->shape);
    return part;
}

/* The part of the cost model that does not depend on the size of the data. */
static struct model model_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                             const struct tt_setting *setting)
{
    struct tt_phase phases[TT_MOST_PHASES] = {{.algorithm = algorithm,
                                               .shape = *shape,
                                               .between = shape->hosts && shape->hosts->nhosts > 1,
                                               .share = 1,
                                               .at_once = 1}};
    struct model model = {.number = 1,
                          .whole = {.algorithm = algorithm,
                                    .formula = tt_formula_of(algorithm, shape),
                                    .nblocks = tt_nblocks(algorithm, shape),
                                    .nchannels = tt_nchannels(algorithm, shape)},
                          .room = room_of(algorithm, shape, setting)};
    if (algorithm->parts) model.number = tt_hierarchy_phases(algorithm, shape, phases);
    for (int i = 0; i < model.number; i++) {
        model.parts[i] = part_of(&phases[i], shape->hosts ? !phases[i].between : setting->one_host);
        model.parts[i].composed = model.number > 1;
        if (model.whole.nchannels > model.parts[i].nchannels)
            model.parts[i].repeats = model.whole.nchannels / model.parts[i].nchannels;
    }
    return model;
}

static double cost_of(const struct model *model, const struct tt_setting *setting, size_t nbytes)
{
    double cost = 0;
    if (!rounds_of(&model->whole, (double)nbytes, model->room)) return INFINITY;
    for (int i = 0; i < model->number; i++) {
        const struct part *part = &model->parts[i];
        const double share = part->share * (double)nbytes;
        cost += cost_inside(part, setting, share);
        if (!part->between) continue;
        const struct load load = load_of(part, share, setting->slot_bytes);
        cost += cost_between(part, setting, &load);
    }
    return cost;
}

double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes)
{
    if (tt_refusal(algorithm, shape)) return INFINITY;
    const struct model model = model_of(algorithm, shape, setting);
    return cost_of(&model, setting, nbytes);
}

/* Whether the algorithm makes a rank exchange messages with all of many ranks at once. Every link
 * takes memory, so such an algorithm is chosen only where there is no other. */
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

/* Whether the algorithm may be chosen. With one rank on each host X/Y equals Y. */
static bool eligible(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                     const struct tt_setting *setting, bool may_crowd)
{
    if (setting->uneven && !algorithm->uneven) return false;
    if (!tt_order_fits(algorithm, setting->in_rank_order)) return false;
    if (setting->on_device && tt_meets(algorithm)) return false;
    if (tt_refusal(algorithm, shape)) return false;
    if (algorithm->parts && shape->hosts->most == 1) return false;
    return may_crowd || !crowded(algorithm, shape);
}

/* Where one of these algorithms is clearly cheaper than least[i] for sizes[i] bytes, it becomes
 * best[i]. */
static void look_for_cheaper(const struct tt_shape *shape, const struct tt_setting *setting,
                             const size_t *sizes, int nsizes, bool may_crowd, double *least,
                             const struct tt_algorithm **best)
{
    const struct tt_algorithm *algorithm;
    for (int a = 0; (algorithm = tt_algorithm_at(shape->collective, a)) != NULL; a++) {
        if (!eligible(algorithm, shape, setting, may_crowd)) continue;
        const struct model model = model_of(algorithm, shape, setting);
        for (int i = 0; i < nsizes; i++) {
            const double cost = cost_of(&model, setting, sizes[i]);
            if (cost >= CLEARLY * least[i]) continue;
            best[i] = algorithm;
            least[i] = cost;
        }
    }
}

/* best[i] = the cheapest algorithm for sizes[i] bytes. The root has no influence, so ranks choose
 * alike even when their calls differ in the root. */
static void choose_for(const struct tt_shape *given, const struct tt_setting *setting,
                       const size_t *sizes, int nsizes, const struct tt_algorithm **best)
{
    double least[NSIZES];
    bool is_missing = false;
    struct tt_shape shape = *given;
    shape.root = 0;
    int first = 0; /* of those that may be used at all */
    while (!eligible(tt_algorithm_at(shape.collective, first), &shape, setting, true)) first++;
    for (int i = 0; i < nsizes; i++) {
        best[i] = tt_algorithm_at(shape.collective, first);
        least[i] = INFINITY;
    }
    look_for_cheaper(&shape, setting, sizes, nsizes, false, least, best);
    for (int i = 0; i < nsizes; i++) is_missing |= least[i] == INFINITY;
    if (is_missing) look_for_cheaper(&shape, setting, sizes, nsizes, true, least, best);
}

const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes)
{
    const struct tt_algorithm *best;
    choose_for(shape, setting, &nbytes, 1, &best);
    return best;
}

void tt_choices_make(struct tt_choices *choices, const struct tt_shape *shape,
                     const struct tt_setting *setting)
{
    size_t sizes[NSIZES];
    const struct tt_algorithm *best[NSIZES];
    for (int i = 0; i < NSIZES; i++) sizes[i] = (size_t)1 << i;
    choose_for(shape, setting, sizes, NSIZES, best);
    choices->number = 0;
    for (int i = 0; i < NSIZES; i++) {
        const struct tt_choice *last =
            choices->number > 0 ? &choices->at[choices->number - 1] : NULL;
        const bool is_full = choices->number == TT_MOST_CHOICES;
        if (!last || (last->algorithm != best[i] && !is_full))
            choices->at[choices->number++].algorithm = best[i];
        choices->at[choices->number - 1].most = sizes[i];
    }
    choices->at[choices->number - 1].most = SIZE_MAX;
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
