/* Calls an algorithm's functions for sizes and steps, checks the steps, and builds schedules. */
#include "schedule/schedule.h"

#include <stdlib.h>

/* ---- An algorithm's functions --------------------------------------------------------------- */

int tt_nchannels(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    return algorithm->nchannels ? algorithm->nchannels(algorithm, shape) : 1;
}

int tt_nblocks(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    const int ncounts = tt_collective_counts(shape->collective, shape->nranks);
    if (!tt_collective_splits(shape->collective)) return ncounts;
    return algorithm->nblocks ? algorithm->nblocks(algorithm, shape) : ncounts;
}

int tt_nscratch(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank)
{
    return algorithm->nscratch ? algorithm->nscratch(algorithm, shape, rank) : 0;
}

int tt_nsteps(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
              int channel)
{
    return algorithm->nsteps(algorithm, shape, rank, channel);
}

void tt_step(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
             int channel, int index, struct tt_step *step)
{
    *step = (struct tt_step){.kind = TT_STEP_LINK};
    algorithm->step(algorithm, shape, rank, channel, index, step);
}

struct tt_formula tt_formula_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    return algorithm->formula(algorithm, shape);
}

static uint64_t hash_on(uint64_t hash, const char *text)
{
    static const uint64_t fnv_prime = 0x100000001b3u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * fnv_prime;
    return hash;
}

uint64_t tt_algorithm_id(enum tt_collective collective, const char *name)
{
    static const uint64_t fnv_basis = 0xcbf29ce484222325u;
    return hash_on(hash_on(hash_on(fnv_basis, tt_collective_name(collective)), ":"), name);
}

bool tt_parts_meet(const struct tt_parts *parts)
{
    const struct tt_algorithm *const inside[] = {parts->split, parts->join, parts->up, parts->down};
    for (int i = 0; i < 4; i++)
        if (inside[i] && inside[i]->one_host) return true;
    return false;
}

bool tt_meets(const struct tt_algorithm *algorithm)
{
    return algorithm->parts ? tt_parts_meet(algorithm->parts) : algorithm->one_host;
}

const char *tt_refusal(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    const struct tt_hosts *hosts = tt_hosts_apart(shape->hosts);
    const bool one_host = !hosts || hosts->nhosts == 1;
    if (algorithm->one_host && !one_host)
        return "needs all ranks on one host; between hosts it can be the X of X/Y";
    if (algorithm->parts && one_host) return "needs several hosts; on one host use X without /Y";
    return algorithm->refusal ? algorithm->refusal(algorithm, shape) : NULL;
}

/* ---- Buffers -------------------------------------------------------------------------------- */

int tt_buffer_blocks(const struct tt_shape *shape, int nblocks, enum tt_buffer buffer, int rank,
                     int *first)
{
    const enum tt_holds holds =
        buffer == TT_SCRATCH
            ? TT_HOLDS_NOTHING
            : tt_collective_holds(shape->collective, buffer == TT_INPUT, rank == shape->root);
    *first = holds == TT_HOLDS_OWN ? rank : 0;
    return holds == TT_HOLDS_ALL ? nblocks : holds == TT_HOLDS_OWN;
}

/* ---- Well-formed steps ---------------------------------------------------------------------- */

static const char *check_peers(const struct tt_peers *peers, int nranks)
{
    const int n = peers->group.ranks ? peers->group.number : nranks;
    if (peers->number < 0) return "a negative number of peers";
    if (n < 1 || n > nranks) return "a group of peers of no rank, or of more than there are";
    if (peers->number == 0) return NULL;
    if (peers->has_gap && (peers->gap < 0 || peers->gap > peers->number))
        return "a gap beyond the list of peers";
    const int listed = peers->number + peers->has_gap;
    if (listed > n) return "more peers than there are ranks";
    if (peers->first < 0 || peers->first >= n) return "the first peer is not a rank";
    if (listed == 1) return NULL;
    /* Peers repeat after n / gcd(stride, n). */
    const int stride = tt_mod(peers->stride, n);
    int a = n, b = stride;
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return n / a < listed ? "the same peer twice" : NULL;
}

static bool names_itself(const struct tt_peers *peers, int nranks, int rank)
{
    for (int i = 0; i < peers->number; i++)
        if (tt_peer_at(peers, i, nranks) == rank) return true;
    return false;
}

/* Whether all names of the span lie in [first, first + number). */
static bool span_within(const struct tt_span *span, int nblocks, int first, int number)
{
    if (number == nblocks) return true;
    for (int i = 0; i < span->number; i++) {
        const int name = tt_span_name(span, i, nblocks);
        if (name < first || name >= first + number) return false;
    }
    return true;
}

static bool slots_within(const struct tt_span *span, int nblocks, int nscratch)
{
    if (span->slot < 0) return false;
    if (span->slot_rule == TT_SLOT_IN_ORDER) return span->number <= nscratch - span->slot;
    if (tt_span_places(span, nblocks) <= nscratch - span->slot) return true;
    for (int i = 0; i < span->number; i++)
        if (tt_span_slot(span, i, nblocks) >= nscratch) return false;
    return true;
}

static const char *check_span(const struct tt_span *span, const struct tt_shape *shape, int nblocks,
                              int nscratch, int rank)
{
    if (span->number == 0) return NULL;
    if (span->number < 0) return "a span of a negative number of blocks";
    if (nblocks == 0) return "a span in a collective without data";
    if (span->number > nblocks) return "a span of more blocks than there are";
    if (span->run < 1) return "a span whose run is below 1";
    if (span->base < 0 || span->modulo < 0 || span->base > nblocks - span->modulo ||
        (span->base > 0 && span->modulo == 0) || span->number > tt_span_places(span, nblocks))
        return "a span of a part beyond the blocks there are";
    switch (span->buffer) {
    case TT_INPUT:
    case TT_OUTPUT: {
        int first;
        const int number = tt_buffer_blocks(shape, nblocks, span->buffer, rank, &first);
        if (span_within(span, nblocks, first, number)) return NULL;
        return span->buffer == TT_INPUT ? "a span beyond what this rank's INPUT holds"
                                        : "a span beyond what this rank's OUTPUT holds";
    }
    case TT_SCRATCH:
        return slots_within(span, nblocks, nscratch) ? NULL : "a span beyond the SCRATCH slots";
    default:
        return "a span in no known buffer";
    }
}

static const char *check_link(const struct tt_step *step, const struct tt_shape *shape, int nblocks,
                              int rank)
{
    if (names_itself(&step->recv, shape->nranks, rank)) return "receives from itself";
    if (names_itself(&step->send, shape->nranks, rank)) return "sends to itself";
    if (step->own_at < 0 || step->own_at > (step->local.number > 0 ? step->recv.number : 0))
        return "a place of local that is beyond the sources";
    if (nblocks == 0) return NULL;
    const int nsources = step->recv.number + (step->local.number > 0);
    if (nsources == 0) return "no source: neither a local span nor a peer to receive from";
    if (step->op == TT_TRANSPOSE) return "transposes outside a meeting";
    if (nsources > 1 && step->op != TT_FOLD) return "several sources but no reduction";
    if (nsources == 1 && step->op != TT_COPY) return "a reduction of a single source";
    if (step->dst.number == 0 && step->send.number == 0) return "nothing is done with the result";
    if (step->local.number > 0 && step->dst.number > 0 && step->local.number != step->dst.number)
        return "local and dst have different numbers of blocks";
    return NULL;
}

/* All ranks of the rank's host, in rank order. */
static bool is_host(const struct tt_peers *members, const struct tt_shape *shape, int rank)
{
    const struct tt_hosts *hosts = tt_hosts_apart(shape->hosts);
    const int host = hosts ? hosts->host_of[rank] : 0;
    if (members->number != (hosts ? tt_hosts_size(hosts, host) : shape->nranks)) return false;
    for (int i = 0; i < members->number; i++)
        if (tt_peer_at(members, i, shape->nranks) !=
            (hosts ? hosts->ranks[hosts->begin[host] + i] : i))
            return false;
    return true;
}

static const char *check_meeting(const struct tt_step *step, const struct tt_shape *shape,
                                 int nblocks, int rank)
{
    if (!names_itself(&step->recv, shape->nranks, rank)) return "a meeting without this rank";
    if (!is_host(&step->recv, shape, rank))
        return "a meeting of others than all ranks of this host in rank order";
    if (step->send.number > 0) return "sends from a meeting";
    if (step->own_at != 0) return "a place of local in a meeting, which has its members' order";
    if (!tt_span_contiguous(&step->local, nblocks) || !tt_span_contiguous(&step->dst, nblocks))
        return "a span in a meeting that is not contiguous";
    if (step->op == TT_TRANSPOSE &&
        tt_collective_row(shape->collective)->result != TT_RESULT_TRANSPOSED)
        return "transposes in another collective than all_to_all";
    if (step->op == TT_TRANSPOSE && step->dst.first + step->dst.number > step->recv.number)
        return "transposes more blocks than the meeting has members";
    return NULL;
}

bool tt_step_may_be_posted(const struct tt_step *step)
{
    return step->kind == TT_STEP_LINK && step->op == TT_COPY && !step->finish &&
           step->recv.number == 1 && step->local.number == 0 && step->dst.number > 0 &&
           step->dst.buffer == TT_OUTPUT;
}

const char *tt_step_check(const struct tt_step *step, const struct tt_shape *shape, int nblocks,
                          int nscratch, int rank)
{
    const char *wrong = check_peers(&step->recv, shape->nranks);
    if (!wrong) wrong = check_peers(&step->send, shape->nranks);
    if (!wrong) wrong = check_span(&step->local, shape, nblocks, nscratch, rank);
    if (!wrong) wrong = check_span(&step->dst, shape, nblocks, nscratch, rank);
    if (wrong) return wrong;
    if (step->dst.number > 0 && step->dst.buffer == TT_INPUT) return "writes to INPUT";
    if (step->op < TT_COPY || step->op > TT_TRANSPOSE) return "an operation that does not exist";
    const bool reduces = tt_collective_reduces(shape->collective);
    if (step->op == TT_FOLD && nblocks > 0 && !reduces)
        return "reduces in a collective that does not";
    if (step->finish && !reduces) return "finishes in a collective that does not reduce";
    switch (step->kind) {
    case TT_STEP_LINK:
        return check_link(step, shape, nblocks, rank);
    case TT_STEP_MEET:
        return check_meeting(step, shape, nblocks, rank);
    default:
        return "a kind of step that does not exist";
    }
}

/* ---- Materialised --------------------------------------------------------------------------- */

/* Fills a schedule; keeps the first error and does nothing more after it. */
struct builder {
    struct tt_schedule *schedule;
    tt_status status;
};

static void *builder_get(struct builder *builder, size_t number, size_t size)
{
    if (builder->status) return NULL;
    const struct tt_schedule *schedule = builder->schedule;
    void *memory = tt_arena_get(&builder->schedule->arena, (number > 0 ? number : 1) * size);
    if (!memory)
        builder->status =
            tt_fail(TT_ERR_SYSTEM, "no memory for the schedule of %s:%s over %d ranks",
                    tt_collective_name(schedule->shape.collective), schedule->algorithm->name,
                    schedule->shape.nranks);
    return memory;
}

static void builder_add(struct builder *builder, int channel, int index, struct tt_step *step)
{
    if (builder->status) return;
    struct tt_schedule *schedule = builder->schedule;
    tt_step(schedule->algorithm, &schedule->shape, schedule->rank, channel, index, step);
    const char *wrong = tt_step_check(step, &schedule->shape, schedule->nblocks, schedule->nscratch,
                                      schedule->rank);
    if (wrong)
        builder->status =
            tt_fail(TT_ERR_INTERNAL, "%s:%s over %d ranks, rank %d channel %d step %d: %s",
                    tt_collective_name(schedule->shape.collective), schedule->algorithm->name,
                    schedule->shape.nranks, schedule->rank, channel, index, wrong);
    if (step->kind == TT_STEP_MEET) schedule->meets = true;
}

static void build_channel(struct builder *builder, int channel)
{
    if (builder->status) return;
    struct tt_schedule *schedule = builder->schedule;
    const int nsteps = tt_nsteps(schedule->algorithm, &schedule->shape, schedule->rank, channel);
    struct tt_step *steps = builder_get(builder, (size_t)nsteps, sizeof *steps);
    if (!steps) return;
    schedule->nsteps[channel] = nsteps;
    schedule->steps[channel] = steps;
    for (int i = 0; i < nsteps && !builder->status; i++)
        builder_add(builder, channel, i, &steps[i]);
}

static tt_status check_shape(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                             int rank)
{
    if (shape->collective != algorithm->collective)
        return tt_fail(TT_ERR_ARGUMENT, "%s is an algorithm for %s", algorithm->name,
                       tt_collective_name(algorithm->collective));
    if (shape->nranks < 1)
        return tt_fail(TT_ERR_ARGUMENT, "%d ranks: there must be at least 1", shape->nranks);
    if (rank < 0 || rank >= shape->nranks)
        return tt_fail(TT_ERR_ARGUMENT, "rank %d is not one of %d ranks (0 to %d)", rank,
                       shape->nranks, shape->nranks - 1);
    if (shape->root < 0 || shape->root >= shape->nranks)
        return tt_fail(TT_ERR_ARGUMENT, "root %d is not one of %d ranks (0 to %d)", shape->root,
                       shape->nranks, shape->nranks - 1);
    const char *refusal = tt_refusal(algorithm, shape);
    if (refusal)
        return tt_fail(TT_ERR_USAGE, "%s:%s %s", tt_collective_name(shape->collective),
                       algorithm->name, refusal);
    return TT_OK;
}

tt_status tt_schedule_create(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                             int rank, struct tt_schedule **schedule)
{
    TT_TRY(check_shape(algorithm, shape, rank));
    struct tt_schedule *made = calloc(1, sizeof *made);
    if (!made) return tt_fail(TT_ERR_SYSTEM, "no memory for a schedule");
    *made = (struct tt_schedule){.algorithm = algorithm,
                                 .algorithm_id =
                                     tt_algorithm_id(algorithm->collective, algorithm->name),
                                 .shape = *shape,
                                 .rank = rank,
                                 .nblocks = tt_nblocks(algorithm, shape),
                                 .nchannels = tt_nchannels(algorithm, shape),
                                 .nscratch = tt_nscratch(algorithm, shape, rank),
                                 .message = (int)tt_formula_of(algorithm, shape).message,
                                 .meets = tt_meets(algorithm)};
    struct builder builder = {.schedule = made};
    made->nsteps = builder_get(&builder, (size_t)made->nchannels, sizeof *made->nsteps);
    made->steps = builder_get(&builder, (size_t)made->nchannels, sizeof *made->steps);
    for (int channel = 0; channel < made->nchannels; channel++) build_channel(&builder, channel);
    if (builder.status) {
        tt_schedule_destroy(made);
        return builder.status;
    }
    *schedule = made;
    return TT_OK;
}

void tt_schedule_destroy(struct tt_schedule *schedule)
{
    if (!schedule) return;
    tt_arena_fini(&schedule->arena);
    free(schedule);
}
