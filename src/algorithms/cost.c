/* The cost model: predicts the time of a call from the algorithm's formula and from counts of its
 * schedule. */
#include <math.h>

#include "algorithms/model.h"

/* The cost model: the time of the core on which the busiest rank runs. A message that does not fit
 * a slot (or a part that does not fit a meeting) is cut, and the whole schedule runs once a round.
 * In every round a rank waits for at most as many dependences as it has steps. The rest of the
 * longest chain (`lag`) counts once, because the rounds are pipelined.
 *
 *   waits:
 *   links      (rounds * min(depth, steps) + lag) * link
 *   meetings    (2 * rounds - 1) * depth * (meeting + nranks * meeting_rank)
 *               for before the next round all wait until all have taken
 *
 *   work of the busiest rank, from the algorithm's formula:
 *               rounds * actions * action          steps, or messages sent and received where they
 *                                                  are more
 *             + bytes sent * byte_sent             with those that fill a pipeline: lag messages;
 *                                                  byte_long beyond the first 16 KiB of a message;
 *                                                  in a meeting bytes put in * byte_put
 *             + bytes reduced * byte_reduced
 *             + bytes of the result * byte_result
 *
 *   work of the other ranks on that core: (ranks per core - 1) * the average of the other ranks of
 *               the host, from the totals that are counted in the schedule. 0 with a core for each
 *               rank.
 *
 * With more ranks than cores a dependence waits for a rank's turn on a core instead: turn_link or
 * turn_meeting, times nranks.
 *
 * Where no rank waits for an answer to what it sends (to or from a root), calls overlap: links have
 * link_one_way for link, and there is no pipeline to fill. Where in addition only the root gets the
 * result, a rank either sends or stores, and only the more of both counts. With a core for each
 * rank this holds for depth 1 only, because a tree or a chain brings the data to its last rank
 * later by all its links; on shared cores that rank would wait for its turn anyway.
 *
 * Between hosts, for the messages that leave the busiest host:
 *             + rounds * (dependent messages between hosts) * (net_link - link)
 *             + (messages that a rank sends to other hosts) * net_message
 *             + bytes that a rank sends * net_byte, or, where that is more,
 *               bytes that leave the host / speed of the interface
 *
 * The cost of an algorithm X/Y is the sum of the costs of its phases.
 *
 * Over bridges (of GPUs) it is the same with other constants: net_link stands for all of link, a
 * message has a credit, and each copy has messages of its own, in all rounds of the whole
 * algorithm. As many copies run as cost least. Only TCP shares an interface between the ranks of a
 * host.
 *
 * Where the ranks are groups of one host, the bytes that leave the busiest group cost besides.
 *
 * On GPUs the constants are others, one set for messages in slots and one for lines, and the set
 * that costs less counts. As many copies of the algorithm run side by side as there are blocks of
 * threads for, one for each channel of each copy: these share the rounds, the actions and the
 * bytes. A meeting needs no second wait between rounds. Each step costs `step` besides. Each
 * dependence of the lag costs what a step of the busiest rank does in the mean, in place of bytes
 * sent: on the way the data waits for all that the steps of other ranks do with it. */
/* Most ranks whose steps are counted. */
enum { MOST_COUNTED = 64 };

/* What ranks do in one call; bytes, but for the actions, which are of one round. */
struct work {
    double actions, sent, reduced, stored;
};

/* The formula and the totals applied to nbytes, and the rounds. */
struct load {
    double steps, depth;
    double message;       /* bytes */
    double rounds, block; /* block: bytes in the unit of the formula */
    struct work busiest;  /* of one rank */
    struct work together; /* of the ranks of a host */
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

/* Rounds in which the executor runs nbytes; 0: one element of each block does not fit a message. */
static size_t rounds_of(const struct tt_model_part *part, double nbytes, size_t room)
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

static struct load load_of(const struct tt_model_part *part, double nbytes, size_t most)
{
    const enum tt_collective collective = part->algorithm->collective;
    const struct tt_formula *formula = &part->formula;
    const struct tt_totals *totals = &part->totals;
    const double block = part->nblocks > 0 ? nbytes / ((double)part->nblocks * part->nchannels) : 0;
    const bool result_is_a_block = tt_collective_row(collective)->output == TT_HOLDS_OWN;
    struct load load = {
        .steps = (double)formula->steps,
        .depth = (double)formula->depth,
        .message = (double)formula->message * block,
        .rounds = fmax(1, (double)rounds_of(part, nbytes, most)),
        .block = block,
        .busiest = {.actions = (double)formula->steps * part->nchannels * part->repeats,
                    .sent = (double)formula->sent * block,
                    .reduced = (double)formula->reduced * block,
                    .stored = part->nblocks == 0  ? 0
                              : result_is_a_block ? block
                                                  : nbytes},
        .together = {.actions = (double)totals->actions * part->repeats,
                     .sent = (double)totals->sent * block,
                     .reduced = (double)totals->reduced * block,
                     .stored = (double)totals->stored * block},
    };
    if (!part->algorithm->one_host)
        load.busiest.actions =
            fmax(load.busiest.actions, fmax(messages_of(formula), 2 * sent_of(formula)));
    return load;
}

/* Dependences that the longest chain has beyond the steps of a rank. */
static double lag_of(const struct load *load, bool meets)
{
    return meets || load->depth < load->steps ? 0 : load->depth - load->steps;
}

static double wait_of(const struct tt_model_part *part, const struct load *load,
                      const struct tt_costs *costs, bool meets, const struct tt_setting *setting)
{
    const double nranks = part->nranks, lag = lag_of(load, meets);
    const bool turns = setting->oversubscribed;
    if (meets)
        return (setting->on_device ? load->rounds : 2 * load->rounds - 1) * load->depth *
               (turns ? nranks * costs->at[TT_COST_TURN_MEETING].value
                      : costs->at[TT_COST_MEETING].value +
                            nranks * costs->at[TT_COST_MEETING_RANK].value);
    return (load->rounds * (load->depth - lag) + lag) *
           (part->one_way ? costs->at[TT_COST_LINK_ONE_WAY].value
            : turns       ? nranks * costs->at[TT_COST_TURN_LINK].value
                          : costs->at[TT_COST_LINK].value);
}

/* Of a message inside a host, what is beyond so many bytes costs byte_long: the receiver reads the
 * beginning while the sender still writes. */
static const double LONG_BYTES = 16 << 10;

/* The mean cost of a byte that is sent. */
static double byte_sent_of(const struct tt_model_part *part, const struct load *load,
                           const struct tt_costs *costs, bool meets)
{
    const struct tt_cost *more = &costs->at[TT_COST_BYTE_LONG];
    const double first = costs->at[meets ? TT_COST_BYTE_PUT : TT_COST_BYTE_SENT].value;
    const double message = load->message / load->rounds;
    if (meets || part->between || !more->name || message <= LONG_BYTES) return first;
    return more->value + (first - more->value) * LONG_BYTES / message;
}

/* byte_sent: the cost of one. either: a rank sends or stores, not both. */
static double time_of(const struct work *work, double rounds, const struct tt_costs *costs,
                      double byte_sent, bool either, double blocks)
{
    const double sent = work->sent * byte_sent;
    const double stored = work->stored * costs->at[TT_COST_BYTE_RESULT].value;
    const double bytes = work->reduced * costs->at[TT_COST_BYTE_REDUCED].value +
                         (either ? fmax(sent, stored) : sent + stored);
    return rounds * work->actions * costs->at[TT_COST_ACTION].value + bytes / blocks;
}

/* The cost on one host, or where the placement is not known, with these constants. */
static double cost_with(const struct tt_model_part *part, const struct tt_setting *setting,
                        const struct tt_costs *costs, double nbytes)
{
    const bool meets = part->algorithm->one_host && part->nranks > 1;
    if (meets && (!part->one_host || setting->meet_bytes == 0)) return INFINITY;
    const size_t most = meets ? setting->meet_bytes : setting->slot_bytes;
    struct load load = load_of(part, nbytes, most);
    const bool on_device = setting->on_device;
    const double channels = on_device ? part->nchannels : 1;
    const double copies = on_device ? fmax(1, floor(setting->nparts / channels)) : 1;
    const double blocks = copies * channels, lag = lag_of(&load, meets);
    load.rounds = ceil(load.rounds / copies);
    load.busiest.actions /= channels;
    if (costs == &tt_gpu_costs[TT_GPU_LINES]) {
        const double lines = copies * (double)setting->line_bytes;
        if (load.message > lines / 2 || !part->nblocks) return INFINITY;
        if (meets) load.busiest.sent *= part->nranks - 1; /* put_to_each */
    }
    const bool to_root =
        part->one_way && tt_collective_row(part->algorithm->collective)->output_at_root_only;
    if (!part->one_way && !on_device) load.busiest.sent += lag * load.message / load.rounds;
    const double byte = byte_sent_of(part, &load, costs, meets);
    const double own = time_of(&load.busiest, load.rounds, costs, byte, to_root && !meets, blocks);
    const double all = time_of(&load.together, load.rounds, costs, byte, false, blocks);
    const double other = part->counted ? fmax(0, all - own) / (part->on_host - 1) : own;
    const double on_the_way = on_device && lag > 0 ? lag * own / (load.rounds * load.steps) : 0;
    return wait_of(part, &load, costs, meets, setting) +
           (load.steps + lag) * costs->at[TT_COST_STEP].value + own + on_the_way +
           (part->per_core - 1) * other;
}

static const struct tt_costs *host_costs(const struct tt_setting *setting)
{
    return setting->costs ? setting->costs : &tt_shipped_costs;
}

static double cost_inside(const struct tt_model_part *part, const struct tt_setting *setting,
                          double nbytes)
{
    if (!setting->on_device) return cost_with(part, setting, host_costs(setting), nbytes);
    return fmin(cost_with(part, setting, &tt_gpu_costs[TT_GPU_SLOTS], nbytes),
                cost_with(part, setting, &tt_gpu_costs[TT_GPU_LINES], nbytes));
}

/* Whether messages to other hosts go over bridges. */
static bool is_bridged(const struct tt_setting *setting)
{
    return setting->on_device && setting->bridges != TT_NO_BRIDGES;
}

/* How long a part's bytes are on an interface that so many ranks share, in us. */
static double wire_us(const struct tt_traffic *traffic, const struct tt_setting *setting,
                      double nshares)
{
    const double wire = setting->net_mbit ? 8.0 / setting->net_mbit : 0; /* us a byte */
    const double through =
        (double)(traffic->sent > traffic->received ? traffic->sent : traffic->received);
    return nshares * through * wire;
}

/* The additional cost of messages between hosts over bridges. nruns: how often the part runs, in
 * all copies and rounds; rounds: of one copy. Waves of messages follow one another. Of a wave the
 * first message takes all of the way, and the others come behind it. Nobody awaits the credits of
 * the last wave. */
static double cost_of_bridges(const struct tt_model_part *part, const struct tt_setting *setting,
                              const struct load *load, double rounds, double nruns)
{
    const struct tt_cost *costs = tt_bridge_costs[setting->bridges].at;
    const struct tt_traffic *traffic = &part->traffic;
    const double shares = setting->bridges == TT_BRIDGES_BY_TCP ? part->at_once : 0;
    const double longer =
        costs[TT_COST_NET_LINK].value - tt_gpu_costs[TT_GPU_SLOTS].at[TT_COST_LINK].value;
    const double waves = rounds * fmax(1, (double)traffic->depth);
    const double nmessages = nruns * (double)traffic->messages;
    return waves * longer + fmax(0, nmessages - waves) * costs[TT_COST_NET_MESSAGE].value +
           nmessages * (1 - 1 / waves) * costs[TT_COST_NET_CREDIT].value +
           load->block * fmax((double)traffic->by_rank * costs[TT_COST_NET_BYTE].value,
                              wire_us(traffic, setting, shares));
}

/* The additional cost of messages between hosts. */
static double cost_between(const struct tt_model_part *part, const struct tt_setting *setting,
                           const struct load *load)
{
    const struct tt_costs *costs = host_costs(setting);
    const struct tt_traffic *traffic = &part->traffic;
    const double longer =
        fmax(0, costs->at[TT_COST_NET_LINK].value - costs->at[TT_COST_LINK].value);
    return load->rounds * (double)traffic->depth * longer +
           load->rounds * (double)traffic->messages * part->repeats *
               costs->at[TT_COST_NET_MESSAGE].value +
           load->block * fmax((double)traffic->by_rank * costs->at[TT_COST_NET_BYTE].value,
                              wire_us(traffic, setting, part->at_once));
}

/* Whether the ranks are groups of one host. */
static bool has_groups(const struct tt_shape *shape)
{
    return shape->hosts && shape->hosts->one_host;
}

/* Counted for few ranks; else estimated as if every rank sent equally much to all others. Of
 * meetings, which only groups have: as if it read what it folds, and the result, from all others.
 */
static struct tt_traffic traffic_of(const struct tt_algorithm *algorithm,
                                    const struct tt_shape *shape)
{
    struct tt_traffic traffic;
    const struct tt_steps steps = {.algorithm = algorithm, .shape = *shape};
    const bool meets = has_groups(shape) && tt_meets(algorithm);
    if (!meets && shape->nranks <= MOST_COUNTED && tt_count_traffic(&steps, &traffic) == TT_OK)
        return traffic;
    const struct tt_formula formula = tt_formula_of(algorithm, shape);
    const int most = shape->hosts ? shape->hosts->most : 1;
    const double away = (double)(shape->nranks - most) / (shape->nranks - 1);
    const uint64_t read = formula.reduced + (uint64_t)tt_nblocks(algorithm, shape);
    const uint64_t by_rank = (uint64_t)ceil(away * (double)(meets ? read : formula.sent));
    return (struct tt_traffic){.sent = by_rank * (uint64_t)most,
                               .by_rank = by_rank,
                               .messages = (uint64_t)ceil(away * messages_of(&formula)),
                               .depth = formula.depth};
}

/* Sets what depends on the other ranks of a host: how many of them work on one core, what they do
 * together, and whether they wait for answers. ranks_per_core is that of all ranks. */
static void share_cores(struct tt_model_part *part, const struct tt_shape *shape,
                        const struct tt_phase *phase, double ranks_per_core)
{
    const struct tt_steps steps = {.algorithm = phase->algorithm, .shape = phase->shape};
    const bool by_lanes = part->between && !phase->shape.hosts;
    const int all = shape->hosts ? shape->hosts->most : shape->nranks;
    part->on_host = by_lanes ? part->at_once : all;
    part->per_core = fmax(1, ranks_per_core * part->on_host / all);
    part->counted = part->per_core > 1 && part->on_host > 1 && !by_lanes &&
                    part->nranks <= MOST_COUNTED && tt_count_totals(&steps, &part->totals) == TT_OK;
    if (part->between || part->composed) return;
    part->one_way = part->counted ? part->totals.one_way
                                  : tt_collective_has_root(phase->algorithm->collective) &&
                                        part->formula.depth <= 1;
}

/* Bytes a microsecond that GPUs of a group send to those of other groups of the host, together: an
 * estimate for a root of PCIe 4 with 16 lanes, never measured. */
static const double ACROSS_GROUPS = 20e3;

/* The additional cost of bytes that leave a group of the host. */
static double cost_across(const struct tt_model_part *part, const struct load *load)
{
    const struct tt_traffic *traffic = &part->traffic;
    return load->block *
           (double)(traffic->sent > traffic->received ? traffic->sent : traffic->received) /
           ACROSS_GROUPS;
}

static struct tt_model_part part_of(const struct tt_phase *phase, bool one_host)
{
    struct tt_model_part part = {.algorithm = phase->algorithm,
                                 .formula = tt_formula_of(phase->algorithm, &phase->shape),
                                 .nranks = phase->shape.nranks,
                                 .nblocks = tt_nblocks(phase->algorithm, &phase->shape),
                                 .nchannels = tt_nchannels(phase->algorithm, &phase->shape),
                                 .one_host = one_host,
                                 .between = phase->between,
                                 .share = phase->share,
                                 .at_once = phase->at_once,
                                 .repeats = 1};
    part.in_groups = has_groups(&phase->shape);
    if (phase->between || part.in_groups)
        part.traffic = traffic_of(phase->algorithm, &phase->shape);
    return part;
}

struct tt_model tt_model_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                            const struct tt_setting *setting)
{
    struct tt_phase phases[TT_MOST_PHASES] = {
        {.algorithm = algorithm,
         .shape = *shape,
         .between = shape->hosts && shape->hosts->nhosts > 1 && !has_groups(shape),
         .share = 1,
         .at_once = 1}};
    struct tt_model model = {.number = 1,
                             .whole = {.algorithm = algorithm,
                                       .formula = tt_formula_of(algorithm, shape),
                                       .nblocks = tt_nblocks(algorithm, shape),
                                       .nchannels = tt_nchannels(algorithm, shape)},
                             .room = room_of(algorithm, shape, setting)};
    if (algorithm->parts) model.number = tt_hierarchy_phases(algorithm, shape, phases);
    for (int i = 0; i < model.number; i++) {
        model.parts[i] = part_of(&phases[i], shape->hosts ? !phases[i].between : setting->one_host);
        model.parts[i].composed = model.number > 1;
        share_cores(&model.parts[i], shape, &phases[i], setting->ranks_per_core);
        if (model.whole.nchannels > model.parts[i].nchannels)
            model.parts[i].repeats = model.whole.nchannels / model.parts[i].nchannels;
    }
    return model;
}

/* As many copies as there are parts for. */
static int most_copies(const struct tt_model *model, const struct tt_setting *setting)
{
    const int n = model->whole.nchannels > 0 ? model->whole.nchannels : 1;
    return setting->nparts > n ? setting->nparts / n : 1;
}

/* With all parts. */
static double cost_of_all(const struct tt_model *model, const struct tt_setting *setting,
                          size_t nbytes)
{
    double cost = 0;
    const size_t whole = rounds_of(&model->whole, (double)nbytes, model->room);
    if (!whole) return INFINITY;
    const double copies = most_copies(model, setting), rounds = ceil((double)whole / copies);
    for (int i = 0; i < model->number; i++) {
        const struct tt_model_part *part = &model->parts[i];
        const double share = part->share * (double)nbytes;
        cost += cost_inside(part, setting, share);
        if (!part->between && !part->in_groups) continue;
        const struct load load = load_of(part, share, setting->slot_bytes);
        cost += !part->between ? cost_across(part, &load)
                : is_bridged(setting)
                    ? cost_of_bridges(part, setting, &load, rounds, rounds * copies * part->repeats)
                    : cost_between(part, setting, &load);
    }
    return cost;
}

/* With so many copies as cost least: 1, 2, 4, ..., or all there are parts for. *copies: how many.
 */
static double cost_of_best(const struct tt_model *model, const struct tt_setting *setting,
                           size_t nbytes, int *copies)
{
    const int most = most_copies(model, setting);
    struct tt_setting fewer = *setting;
    double least = cost_of_all(model, setting, nbytes);
    *copies = most;
    for (int n = 1; is_bridged(setting) && n < most; n *= 2) {
        fewer.nparts = n * (model->whole.nchannels > 0 ? model->whole.nchannels : 1);
        const double cost = cost_of_all(model, &fewer, nbytes);
        if (cost > least || (cost == least && n > *copies)) continue;
        least = cost;
        *copies = n;
    }
    return least;
}

double tt_model_us(const struct tt_model *model, const struct tt_setting *setting, size_t nbytes)
{
    int copies;
    return cost_of_best(model, setting, nbytes, &copies);
}

int tt_model_copies(const struct tt_model *model, const struct tt_setting *setting, size_t nbytes)
{
    int copies;
    (void)cost_of_best(model, setting, nbytes, &copies);
    return copies;
}

void tt_copies_make(struct tt_copies *copies, const struct tt_algorithm *algorithm,
                    const struct tt_shape *given, const struct tt_setting *setting)
{
    struct tt_shape shape = *given;
    shape.root = 0;
    const struct tt_model model = tt_model_of(algorithm, &shape, setting);
    for (int i = 0; i < TT_COPIES_SIZES; i++)
        copies->at[i] = (uint8_t)tt_model_copies(&model, setting, (size_t)1 << i);
}

void tt_costs_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                 const struct tt_setting *setting, const size_t *sizes, int nsizes, double *out)
{
    if (tt_refusal(algorithm, shape)) {
        for (int i = 0; i < nsizes; i++) out[i] = INFINITY;
        return;
    }
    const struct tt_model model = tt_model_of(algorithm, shape, setting);
    for (int i = 0; i < nsizes; i++) out[i] = tt_model_us(&model, setting, sizes[i]);
}

double tt_cost_us(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                  const struct tt_setting *setting, size_t nbytes)
{
    double cost;
    tt_costs_us(algorithm, shape, setting, &nbytes, 1, &cost);
    return cost;
}
