/* Hierarchy: an algorithm X among the ranks of each host, and an algorithm Y between hosts.
 *
 *   all_reduce "X/Y", 2 hosts with 2 ranks each; lane l is the l-th ranks of all hosts
 *
 *            X: reduce_scatter       Y: all_reduce             X: all_gather
 *            inside each host        on each lane              inside each host
 *   host a   r0 --[1]--> r1          r0 <==[0]==> r2           r0 --[0]--> r1
 *            r1 --[0]--> r0          r1 <==[1]==> r3           r1 --[1]--> r0
 *   host b   r2 --[1]--> r3                                    r2 --[0]--> r3
 *            r3 --[0]--> r2                                    r3 --[1]--> r2
 *
 * Only Y sends between hosts: with n hosts and Y = ring, the ranks of a host send together 2(n-1)/n
 * of the data to other hosts, where a ring of all N ranks sends 2(N-1)/N.
 *
 * Lanes need equally many ranks (L) on every host. Otherwise, and for rooted collectives, each host
 * has a leader, which is the root or the first rank of the host, and Y runs among the leaders.
 *
 *                    inside each host       between hosts            inside each host
 *   all_reduce       X reduce_scatter       Y all_reduce, lanes      X all_gather
 *   or               X reduce               Y all_reduce, leaders    X broadcast
 *   reduce_scatter   X reduce_scatter       Y reduce_scatter, lanes
 *   all_gather                              Y all_gather, lanes      X all_gather
 *   broadcast                               Y broadcast, leaders     X broadcast
 *   reduce           X reduce               Y reduce, leaders
 *   gather           X gather               Y gather, leaders
 *   scatter                                 Y scatter, leaders       X scatter
 *   barrier          X barrier              Y barrier, leaders       X barrier
 *
 * An all-to-all is not composed: it sends the same bytes over the network in any order.
 *
 * Blocks. On lanes every block of X is cut into those of Y; the blocks of lane l are the places
 * l*b to (l+1)*b - 1 of the b blocks of Y. With leaders both X and Y cut all of the data, so there
 * are (blocks of X) * (blocks of Y). Each phase starts from the result of the phase before; a phase
 * of a single rank is left out. There are two channels, so that one can run inside hosts while the
 * other runs between them; there is one where X is a meeting.
 *
 * steps, depth, sent, reduced: at most the sums of the phases', in the same unit; message: the
 * largest of the phases'; scratch: the largest of the phases', plus the blocks that one phase
 * leaves for the next where OUTPUT cannot hold them.
 *
 * Order of folding: that of X inside, then that of Y. */
#include "algorithms/hierarchy.h"

#include "algorithms/forms.h"

/* How the blocks of a phase lie in the whole, in places (tt_span). */
struct cut {
    int scale; /* places that one block of the phase's algorithm covers */
    int base, modulo;
    const int32_t *order;
};

/* One phase of a rank. */
struct phase {
    const struct tt_algorithm *algorithm;
    struct tt_shape shape; /* of the group; root is a place in it */
    struct tt_group group;
    int rank; /* this rank's place */
    struct cut cut;
    bool between;
    enum tt_buffer input, output;
    int scratch; /* slots before the phase's own */
};

struct phases {
    struct phase at[TT_MOST_PHASES];
    int number;
};

/* ---- The phases of one rank ----------------------------------------------------------------- */

static bool on_lanes(const struct tt_parts *parts, const struct tt_shape *shape)
{
    return (parts->split || parts->join) && tt_hosts_even(shape->hosts);
}

static struct tt_shape shape_of(const struct tt_algorithm *algorithm, int nranks, int root)
{
    return (struct tt_shape){.collective = algorithm->collective, .nranks = nranks, .root = root};
}

/* Blocks into which an algorithm for n ranks cuts the data. */
static int cut_by(const struct tt_algorithm *algorithm, int n)
{
    const struct tt_shape shape = shape_of(algorithm, n, 0);
    return tt_nblocks(algorithm, &shape);
}

/* Blocks into which the algorithms inside a host of n ranks cut the data. */
static int cut_inside(const struct tt_parts *parts, int n)
{
    return (parts->up ? cut_by(parts->up, n) : 1) * (parts->down ? cut_by(parts->down, n) : 1);
}

/* A rank's host and its place there. */
struct view {
    const struct tt_parts *parts;
    const struct tt_shape *shape;
    int rank, host, local, nlocal;
    bool lanes, leads;
    int leader; /* local place of this host's leader */
};

static struct view view_of(const struct tt_parts *parts, const struct tt_shape *shape, int rank)
{
    const struct tt_hosts *hosts = shape->hosts;
    struct view view = {.parts = parts,
                        .shape = shape,
                        .rank = rank,
                        .host = hosts->host_of[rank],
                        .local = hosts->local_of[rank],
                        .lanes = on_lanes(parts, shape)};
    view.nlocal = tt_hosts_size(hosts, view.host);
    if (hosts->host_of[shape->root] == view.host) view.leader = hosts->local_of[shape->root];
    view.leads = view.local == view.leader;
    return view;
}

/* The part of the data on which a phase works, and how its blocks lie in the whole. */
static struct cut cut_of(const struct view *view, const struct tt_algorithm *algorithm, int n,
                         bool between)
{
    const struct tt_hosts *hosts = view->shape->hosts;
    const struct tt_parts *parts = view->parts;
    const bool splits = tt_collective_splits(view->shape->collective);
    if (view->lanes) {
        const int nblocks = cut_by(parts->between, hosts->nhosts);
        const int32_t *order = splits ? NULL : hosts->lanes;
        if (!between) return (struct cut){.scale = nblocks, .order = order};
        return (struct cut){
            .scale = 1, .base = view->local * nblocks, .modulo = nblocks, .order = order};
    }
    if (!tt_collective_has_data(view->shape->collective)) return (struct cut){.scale = 1};
    if (splits) {
        const int own = cut_by(algorithm, n);
        return (struct cut){.scale = cut_inside(parts, hosts->most) *
                                     cut_by(parts->between, hosts->nhosts) / own};
    }
    if (between) return (struct cut){.scale = view->nlocal, .order = hosts->ranks};
    return (struct cut){.scale = 1,
                        .base = hosts->begin[view->host],
                        .modulo = view->nlocal,
                        .order = hosts->ranks};
}

static void add_inside(const struct view *view, const struct tt_algorithm *algorithm,
                       struct phases *phases)
{
    if (!algorithm || view->nlocal == 1) return;
    const int root = tt_collective_has_root(algorithm->collective) ? view->leader : 0;
    phases->at[phases->number++] =
        (struct phase){.algorithm = algorithm,
                       .shape = shape_of(algorithm, view->nlocal, root),
                       .group = tt_hosts_inside(view->shape->hosts, view->host),
                       .rank = view->local,
                       .cut = cut_of(view, algorithm, view->nlocal, false)};
}

static void add_between(const struct view *view, struct phases *phases)
{
    const struct tt_hosts *hosts = view->shape->hosts;
    const struct tt_algorithm *algorithm = view->parts->between;
    if (!view->lanes && !view->leads) return;
    struct tt_group group = tt_hosts_lane(hosts, view->lanes ? view->local : 0);
    const int root_host = hosts->host_of[view->shape->root];
    if (!view->lanes) {
        group.replaces = true;
        group.at = root_host;
        group.by = view->shape->root;
    }
    phases->at[phases->number++] = (struct phase){
        .algorithm = algorithm,
        .shape = shape_of(algorithm, hosts->nhosts,
                          tt_collective_has_root(algorithm->collective) ? root_host : 0),
        .group = group,
        .rank = view->host,
        .cut = cut_of(view, algorithm, hosts->nhosts, true),
        .between = true};
}

bool tt_hierarchy_keeps_in_output(enum tt_collective collective)
{
    const struct tt_collective_row *row = tt_collective_row(collective);
    return !tt_collective_has_data(collective) ||
           (row->output == TT_HOLDS_ALL && !row->output_at_root_only);
}

/* Slots for the blocks that one phase leaves for the next. */
static int nbetween(const struct view *view)
{
    const struct tt_hosts *hosts = view->shape->hosts;
    const enum tt_collective collective = view->shape->collective;
    if (tt_hierarchy_keeps_in_output(collective)) return 0;
    if (!tt_collective_has_root(collective)) return hosts->nhosts;
    if (!tt_collective_splits(collective)) return view->nlocal;
    return cut_inside(view->parts, hosts->most) * cut_by(view->parts->between, hosts->nhosts);
}

static struct phases phases_of(const struct tt_parts *parts, const struct tt_shape *shape, int rank)
{
    const struct view view = view_of(parts, shape, rank);
    struct phases phases = {.number = 0};
    add_inside(&view, view.lanes ? parts->split : parts->up, &phases);
    add_between(&view, &phases);
    add_inside(&view, view.lanes ? parts->join : parts->down, &phases);
    const enum tt_buffer middle =
        tt_hierarchy_keeps_in_output(shape->collective) ? TT_OUTPUT : TT_SCRATCH;
    for (int i = 0; i < phases.number; i++) {
        struct phase *phase = &phases.at[i];
        phase->input = i > 0 ? middle : TT_INPUT;
        phase->output = i < phases.number - 1 ? middle : TT_OUTPUT;
        phase->scratch = phases.number > 1 && middle == TT_SCRATCH ? nbetween(&view) : 0;
    }
    return phases;
}

/* ---- A step of a phase, renamed ------------------------------------------------------------- */

static void rename_peers(const struct phase *phase, struct tt_peers *peers)
{
    if (peers->number > 0) peers->group = phase->group;
}

/* A rank's own block of its phase is alone in its buffer, so it begins at slot 0; all others lie
 * in the slots of their places. */
static enum tt_slot_rule rule_of_middle(const struct phase *phase, enum tt_buffer buffer)
{
    int first;
    const int nblocks = tt_nblocks(phase->algorithm, &phase->shape);
    const int number = tt_buffer_blocks(&phase->shape, nblocks, buffer, phase->rank, &first);
    return number < nblocks ? TT_SLOT_IN_ORDER : TT_SLOT_BY_PLACE;
}

static void rename_span(const struct phase *phase, struct tt_span *span)
{
    if (span->number == 0) return;
    const struct cut *cut = &phase->cut;
    span->first *= cut->scale;
    span->number *= cut->scale;
    span->run *= cut->scale;
    span->stride *= cut->scale;
    span->base = cut->base;
    span->modulo = cut->modulo;
    span->order = cut->order;
    if (span->buffer == TT_SCRATCH) {
        span->slot = span->slot * cut->scale + phase->scratch;
        return;
    }
    const enum tt_buffer buffer = span->buffer;
    span->buffer = buffer == TT_INPUT ? phase->input : phase->output;
    if (span->buffer == TT_SCRATCH) span->slot_rule = rule_of_middle(phase, buffer);
}

static bool same_span(const struct tt_span *a, const struct tt_span *b)
{
    return a->buffer == b->buffer && a->first == b->first && a->number == b->number &&
           a->run == b->run && a->stride == b->stride && a->slot_rule == b->slot_rule &&
           a->slot == b->slot;
}

/* Channel of a phase's algorithm that works on this channel. */
static int channel_in(const struct phase *phase, int channel)
{
    return tt_nchannels(phase->algorithm, &phase->shape) > 1 ? channel : 0;
}

void tt_hierarchy_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel, int index, struct tt_step *result)
{
    const struct phases phases = phases_of(self->parts, shape, rank);
    const struct phase *phase = phases.at;
    for (;; phase++) {
        const int n =
            tt_nsteps(phase->algorithm, &phase->shape, phase->rank, channel_in(phase, channel));
        if (index < n) break;
        index -= n;
    }
    tt_step(phase->algorithm, &phase->shape, phase->rank, channel_in(phase, channel), index,
            result);
    rename_peers(phase, &result->recv);
    rename_peers(phase, &result->send);
    rename_span(phase, &result->local);
    rename_span(phase, &result->dst);
    result->finish = result->finish && phase->between;
    /* The block lies at its destination already. */
    if (result->kind == TT_STEP_LINK && result->op == TT_COPY && result->send.number > 0 &&
        result->local.number > 0 && same_span(&result->local, &result->dst))
        result->dst.number = 0;
}

int tt_hierarchy_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel)
{
    const struct phases phases = phases_of(self->parts, shape, rank);
    int number = 0;
    for (int i = 0; i < phases.number; i++) {
        const struct phase *phase = &phases.at[i];
        number +=
            tt_nsteps(phase->algorithm, &phase->shape, phase->rank, channel_in(phase, channel));
    }
    return number;
}

/* ---- Numbers -------------------------------------------------------------------------------- */

int tt_hierarchy_nchannels(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    return tt_parts_meet(self->parts) || !tt_collective_has_data(shape->collective) ? 1 : 2;
}

int tt_hierarchy_nblocks(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const struct tt_hosts *hosts = shape->hosts;
    const struct tt_parts *parts = self->parts;
    const int between = cut_by(parts->between, hosts->nhosts);
    return between * (on_lanes(parts, shape) ? hosts->most : cut_inside(parts, hosts->most));
}

int tt_hierarchy_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape, int rank)
{
    const struct phases phases = phases_of(self->parts, shape, rank);
    int number = 0;
    for (int i = 0; i < phases.number; i++) {
        const struct phase *phase = &phases.at[i];
        const int own = tt_nscratch(phase->algorithm, &phase->shape, phase->rank);
        number = (int)most((uint64_t)number, (uint64_t)(phase->scratch + own * phase->cut.scale));
    }
    return number;
}

static void add(struct tt_formula *sum, const struct phase *phase, int channels)
{
    const struct tt_formula own = tt_formula_of(phase->algorithm, &phase->shape);
    const uint64_t scale = (uint64_t)phase->cut.scale;
    /* A block on all channels is as many units as there are channels. */
    const uint64_t unit =
        scale * (uint64_t)(channels / tt_nchannels(phase->algorithm, &phase->shape));
    sum->steps += own.steps;
    sum->depth += own.depth;
    sum->sent += own.sent * unit;
    sum->reduced += own.reduced * unit;
    sum->scratch = most(sum->scratch, own.scratch * scale + (uint64_t)phase->scratch);
    sum->message = most(sum->message, own.message * scale);
}

/* The phases of the leader of the largest host, which has most to do. */
static struct phases busiest(const struct tt_parts *parts, const struct tt_shape *shape)
{
    const struct tt_hosts *hosts = shape->hosts;
    int host = 0;
    while (tt_hosts_size(hosts, host) < hosts->most) host++;
    const int32_t *ranks = hosts->ranks + hosts->begin[host];
    return phases_of(parts, shape, ranks[view_of(parts, shape, ranks[0]).leader]);
}

struct tt_formula tt_hierarchy_formula(const struct tt_algorithm *self,
                                       const struct tt_shape *shape)
{
    const struct phases phases = busiest(self->parts, shape);
    struct tt_formula sum = {.steps = 0};
    for (int i = 0; i < phases.number; i++)
        add(&sum, &phases.at[i], tt_hierarchy_nchannels(self, shape));
    return sum;
}

int tt_hierarchy_phases(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                        struct tt_phase out[TT_MOST_PHASES])
{
    const struct phases phases = busiest(algorithm->parts, shape);
    const double nblocks = tt_nblocks(algorithm, shape);
    for (int i = 0; i < phases.number; i++) {
        const struct phase *phase = &phases.at[i];
        out[i] = (struct tt_phase){
            .algorithm = phase->algorithm,
            .shape = phase->shape,
            .between = phase->between,
            .share = phase->cut.modulo > 0 ? phase->cut.modulo / nblocks : 1,
            .at_once = phase->between && on_lanes(algorithm->parts, shape) ? shape->hosts->most : 1,
        };
    }
    return phases.number;
}

/* ---- On which hosts an algorithm can be ----------------------------------------------------- */

static const char *refuse_uneven(const struct tt_parts *parts, const struct tt_shape *shape)
{
    const struct tt_hosts *hosts = shape->hosts;
    if (tt_hosts_even(hosts)) return NULL;
    if (!parts->up && !parts->down)
        return tt_collective_splits(shape->collective)
                   ? "needs hosts with equally many ranks; with binomial, chain, direct or meet "
                     "inside it does not"
                   : "needs hosts with equally many ranks; use an algorithm without '/'";
    if (tt_collective_has_root(shape->collective) && !tt_collective_splits(shape->collective))
        return "needs hosts with equally many ranks; use an algorithm without '/'";
    for (int h = 0; h < hosts->nhosts && tt_collective_splits(shape->collective); h++) {
        const int n = tt_hosts_size(hosts, h);
        if (n > 1 && cut_inside(parts, n) != cut_inside(parts, hosts->most))
            return "cuts the data by the ranks of a host, so it needs equally many on each; with "
                   "binomial, chain, direct or meet inside it does not";
    }
    return NULL;
}

const char *tt_hierarchy_refusal(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const struct tt_parts *parts = self->parts;
    const struct tt_shape between = shape_of(parts->between, shape->hosts->nhosts, 0);
    if (tt_nchannels(parts->between, &between) > tt_hierarchy_nchannels(self, shape))
        return "needs two channels between hosts, and there is one where ranks meet inside; use "
               "another algorithm inside";
    return refuse_uneven(parts, shape);
}
