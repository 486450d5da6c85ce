/* Counts the steps, bytes and memory of a schedule. */
#include "schedule/network.h"

#include <assert.h>
#include <stdlib.h>

/* The sums of one rank so far: over all channels, but for depth, which is of one channel. */
struct tally {
    uint64_t sent, reduced;
    uint64_t far, far_messages; /* sent to other hosts */
    uint64_t far_received;
    uint64_t actions, folded, stored; /* for struct tt_totals */
    uint32_t depth;
    bool has_sent; /* on this channel */
};

struct counting {
    const struct tt_steps *steps;
    int nblocks, channel;
    bool far;     /* depth counts only messages between hosts */
    bool answers; /* some rank takes a message after it has sent one, or meets */
    struct tally *tallies;
    struct tt_formula *counted;
};

/* A message is two numbers in place of a pointer: its depth at the sender, and its blocks. */
static_assert(sizeof(uintptr_t) >= 8, "two 32-bit numbers travel in a pointer");

static void *pack(uint32_t depth, uint32_t number)
{
    return (void *)((uintptr_t)depth << 32 | number);
}

static uint32_t message_depth(const void *message)
{
    return (uint32_t)((uintptr_t)message >> 32);
}

static uint32_t message_number(const void *message)
{
    return (uint32_t)(uintptr_t)message;
}

static void raise(uint64_t *most, uint64_t value)
{
    if (value > *most) *most = value;
}

static tt_status begin(void *arg, int rank, int index, const struct tt_step *step)
{
    const struct counting *counting = arg;
    const struct tt_shape *shape = &counting->steps->shape;
    const int nscratch = tt_nscratch(counting->steps->algorithm, shape, rank);
    const char *wrong = tt_step_check(step, shape, counting->nblocks, nscratch, rank);
    if (!wrong) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "rank %d channel %d step %d: %s", rank, counting->channel, index,
                   wrong);
}

static bool is_far(const struct counting *counting, int rank, int peer)
{
    const struct tt_hosts *hosts = counting->steps->shape.hosts;
    return !hosts || hosts->host_of[rank] != hosts->host_of[peer];
}

/* The rank's depth becomes that of the message plus one, where that is more. */
static void count_received(struct counting *counting, int rank, int peer, const void *message)
{
    const bool far = is_far(counting, rank, peer);
    const uint32_t depth = message_depth(message) + (far || !counting->far);
    struct tally *tally = &counting->tallies[rank];
    if (depth > tally->depth) tally->depth = depth;
    if (far) tally->far_received += message_number(message);
    if (tally->has_sent) counting->answers = true;
}

static void count_sent(struct counting *counting, int rank, const struct tt_peers *peers,
                       uint32_t number)
{
    struct tally *tally = &counting->tallies[rank];
    tally->sent += (uint64_t)number * (uint64_t)peers->number;
    if (peers->number > 0) tally->has_sent = true;
    for (int i = 0; i < peers->number; i++) {
        if (!is_far(counting, rank, tt_peer_at(peers, i, counting->steps->shape.nranks))) continue;
        tally->far += number;
        tally->far_messages++;
    }
}

static tt_status count_link(void *arg, int rank, int index, const struct tt_step *step,
                            void *const *received, void **sent)
{
    (void)index;
    struct counting *counting = arg;
    struct tally *tally = &counting->tallies[rank];
    uint32_t number = (uint32_t)step->local.number, sources = step->local.number > 0;
    for (int i = 0; i < step->recv.number; i++) {
        const int peer = tt_peer_at(&step->recv, i, counting->steps->shape.nranks);
        count_received(counting, rank, peer, received[i]);
        number = message_number(received[i]);
        sources++;
    }
    if (step->op == TT_FOLD) {
        tally->reduced += (uint64_t)sources * number;
        tally->folded += (uint64_t)sources * number;
    }
    tally->actions += 1 + (uint64_t)step->recv.number + (uint64_t)step->send.number;
    tally->stored += (uint64_t)step->dst.number;
    count_sent(counting, rank, &step->send, number);
    if (step->send.number > 0) raise(&counting->counted->message, number);
    *sent = pack(tally->depth, number);
    return TT_OK;
}

static tt_status count_meeting(void *arg, const struct tt_network *network,
                               const struct tt_peers *members)
{
    struct counting *counting = arg;
    const int nranks = counting->steps->shape.nranks;
    uint32_t depth = 0;
    for (int i = 0; i < members->number; i++) {
        const uint32_t theirs = counting->tallies[tt_peer_at(members, i, nranks)].depth;
        if (theirs > depth) depth = theirs;
    }
    for (int i = 0; i < members->number; i++) {
        const int rank = tt_peer_at(members, i, nranks);
        const struct tt_step *step = tt_network_step(network, rank, NULL);
        struct tally *tally = &counting->tallies[rank];
        tally->depth = depth + !counting->far;
        tally->sent += (uint64_t)step->local.number;
        if (step->op == TT_FOLD)
            tally->reduced += (uint64_t)members->number * (uint64_t)step->dst.number;
        if (step->op == TT_FOLD && i == 0)
            tally->folded += (uint64_t)members->number * (uint64_t)step->local.number;
        tally->actions += 2;
        tally->stored += (uint64_t)step->dst.number;
        raise(&counting->counted->message, (uint64_t)step->local.number);
    }
    counting->answers = true;
    return TT_OK;
}

static void drop(void *arg, void *message)
{
    (void)arg, (void)message;
}

static tt_status count_channel(struct counting *counting, int channel)
{
    static const struct tt_network_ops ops = {
        .begin = begin, .link = count_link, .meet = count_meeting, .drop = drop};
    const int nranks = counting->steps->shape.nranks;
    for (int rank = 0; rank < nranks; rank++) {
        counting->tallies[rank].depth = 0;
        counting->tallies[rank].has_sent = false;
        raise(&counting->counted->steps, (uint64_t)tt_steps_number(counting->steps, rank, channel));
    }
    counting->channel = channel;
    struct tt_network_report report = {.nsteps = 0};
    const tt_status status = tt_network_run(counting->steps, channel, &ops, counting, &report);
    if (status == TT_ERR_USAGE && report.text[0]) return tt_fail(TT_ERR_USAGE, "%s", report.text);
    for (int rank = 0; rank < nranks; rank++)
        raise(&counting->counted->depth, counting->tallies[rank].depth);
    return status;
}

/* Runs all channels and adds to the tallies, which the caller has allocated. */
static tt_status count_channels(struct counting *counting)
{
    const struct tt_steps *steps = counting->steps;
    const int nchannels = tt_nchannels(steps->algorithm, &steps->shape);
    if (!counting->tallies)
        return tt_fail(TT_ERR_SYSTEM, "no memory to count the steps of %d ranks",
                       steps->shape.nranks);
    counting->nblocks = tt_nblocks(steps->algorithm, &steps->shape);
    for (int channel = 0; channel < nchannels; channel++) TT_TRY(count_channel(counting, channel));
    return TT_OK;
}

tt_status tt_count(const struct tt_steps *steps, struct tt_formula *counted)
{
    const int nranks = steps->shape.nranks;
    struct tt_formula result = {.steps = 0};
    struct counting counting = {.steps = steps,
                                .tallies = calloc((size_t)nranks, sizeof *counting.tallies),
                                .counted = &result};
    const tt_status status = count_channels(&counting);
    for (int rank = 0; rank < nranks && !status; rank++) {
        raise(&result.sent, counting.tallies[rank].sent);
        raise(&result.reduced, counting.tallies[rank].reduced);
        raise(&result.scratch, (uint64_t)tt_nscratch(steps->algorithm, &steps->shape, rank));
    }
    free(counting.tallies);
    if (!status) *counted = result;
    return status;
}

/* Adds up the blocks that the ranks of a host send and receive. */
static void raise_host(struct tt_traffic *traffic, const struct tally *tallies,
                       const int32_t *ranks, int nranks)
{
    struct tally sum = {.sent = 0};
    for (int i = 0; i < nranks; i++) {
        const struct tally *tally = &tallies[ranks[i]];
        sum.far += tally->far;
        sum.far_received += tally->far_received;
        raise(&traffic->by_rank, tally->far);
        raise(&traffic->by_rank, tally->far_received);
        raise(&traffic->messages, tally->far_messages);
    }
    raise(&traffic->sent, sum.far);
    raise(&traffic->received, sum.far_received);
}

tt_status tt_count_traffic(const struct tt_steps *steps, struct tt_traffic *traffic)
{
    const struct tt_hosts *hosts = steps->shape.hosts;
    const int nranks = steps->shape.nranks;
    struct tt_formula result = {.steps = 0};
    struct counting counting = {.steps = steps,
                                .far = true,
                                .tallies = calloc((size_t)nranks, sizeof *counting.tallies),
                                .counted = &result};
    const tt_status status = count_channels(&counting);
    *traffic = (struct tt_traffic){.depth = result.depth};
    for (int h = 0; hosts && !status && h < hosts->nhosts; h++)
        raise_host(traffic, counting.tallies, hosts->ranks + hosts->begin[h],
                   tt_hosts_size(hosts, h));
    for (int32_t rank = 0; !hosts && !status && rank < nranks; rank++)
        raise_host(traffic, counting.tallies, &rank, 1);
    free(counting.tallies);
    return status;
}

/* Adds up what the ranks of a host do; ranks NULL: ranks 0, 1, ... */
static void raise_totals(struct tt_totals *totals, const struct tally *tallies,
                         const int32_t *ranks, int nranks)
{
    struct tt_totals sum = {.actions = 0};
    for (int i = 0; i < nranks; i++) {
        const struct tally *tally = &tallies[ranks ? ranks[i] : i];
        sum.actions += tally->actions;
        sum.sent += tally->sent;
        sum.reduced += tally->folded;
        sum.stored += tally->stored;
    }
    raise(&totals->actions, sum.actions);
    raise(&totals->sent, sum.sent);
    raise(&totals->reduced, sum.reduced);
    raise(&totals->stored, sum.stored);
}

tt_status tt_count_totals(const struct tt_steps *steps, struct tt_totals *totals)
{
    const struct tt_hosts *hosts = steps->shape.hosts;
    const int nranks = steps->shape.nranks;
    struct tt_formula result = {.steps = 0};
    struct tt_totals counted = {.actions = 0};
    struct counting counting = {.steps = steps,
                                .tallies = calloc((size_t)nranks, sizeof *counting.tallies),
                                .counted = &result};
    const tt_status status = count_channels(&counting);
    for (int h = 0; hosts && !status && h < hosts->nhosts; h++)
        raise_totals(&counted, counting.tallies, hosts->ranks + hosts->begin[h],
                     tt_hosts_size(hosts, h));
    if (!hosts && !status) raise_totals(&counted, counting.tallies, NULL, nranks);
    free(counting.tallies);
    counted.one_way = !counting.answers;
    if (!status) *totals = counted;
    return status;
}
