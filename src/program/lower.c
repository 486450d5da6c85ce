/* Lowers a schedule to a program.
 *
 * First the sizes of the tables are counted, then one block of memory is filled. Equal ranges of
 * peers share their entries in the table of links: a ring has two, however many steps it has. */
#include "program/lower.h"

#include <stdlib.h>
#include <string.h>

/* Tables begin at multiples of this many bytes. */
enum { TABLE_ALIGN = 64, MOST_ORDERS = 8 };

struct builder {
    const struct tt_schedule *schedule;
    struct tt_program_step *steps; /* [nsteps] */
    uint32_t nsteps;
    struct tt_program_link *links; /* [nlinks], growing */
    uint32_t nlinks, room;
    int32_t *single; /* [2][nchannels][nranks]: entry of a range of one peer; -1: none yet */
    const int32_t *orders[MOST_ORDERS]; /* distinct orders, each of nblocks names */
    int norders;
    struct tt_program_blocks *puts; /* [nputs], growing */
    uint32_t nputs;
    struct tt_program_channel *channels; /* [nchannels] */
    struct tt_program_post *posts;       /* [nposts], with room for one of each rank and channel */
    uint32_t nposts;
};

static tt_status out_of_memory(const struct tt_schedule *schedule)
{
    return tt_fail(TT_ERR_SYSTEM, "out of memory for the program of %s:%s over %d ranks",
                   tt_collective_name(schedule->shape.collective), schedule->algorithm->name,
                   schedule->shape.nranks);
}

/* ---- Links ---------------------------------------------------------------------------------- */

/* The peers of one side of a step. */
struct peers {
    const struct tt_peers *list;
    int nranks, channel;
    bool outgoing;
};

static int peer_of(const struct peers *peers, int i)
{
    return tt_peer_at(peers->list, i, peers->nranks);
}

static tt_status add_link(struct builder *builder, const struct peers *peers, int peer)
{
    if (builder->nlinks == builder->room) {
        const uint32_t room = builder->room ? 2 * builder->room : 16;
        void *more = realloc(builder->links, room * sizeof *builder->links);
        if (!more) return out_of_memory(builder->schedule);
        builder->links = more;
        builder->room = room;
    }
    builder->links[builder->nlinks++] = (struct tt_program_link){
        .peer = peer, .channel = (uint16_t)peers->channel, .outgoing = peers->outgoing};
    return TT_OK;
}

/* Whether entries first, first + 1, ... are this range. */
static bool is_range(const struct builder *builder, const struct peers *peers, uint32_t first,
                     uint32_t number)
{
    for (uint32_t i = 0; i < number; i++) {
        const struct tt_program_link *link = &builder->links[first + i];
        if (link->peer != peer_of(peers, (int)i) || link->channel != peers->channel ||
            link->outgoing != peers->outgoing)
            return false;
    }
    return true;
}

static tt_status add_range(struct builder *builder, const struct peers *peers, uint32_t number,
                           uint32_t *first)
{
    for (uint32_t at = 0; number > 1 && at + number <= builder->nlinks; at++)
        if (is_range(builder, peers, at, number)) {
            *first = at;
            return TT_OK;
        }
    *first = builder->nlinks;
    for (uint32_t i = 0; i < number; i++) TT_TRY(add_link(builder, peers, peer_of(peers, (int)i)));
    return TT_OK;
}

/* The range of links for one side of a step. */
static tt_status lower_peers(struct builder *builder, const struct peers *peers, uint32_t *first,
                             uint32_t *number)
{
    *number = (uint32_t)peers->list->number;
    *first = 0;
    if (*number == 0) return TT_OK;
    if (*number > 1) return add_range(builder, peers, *number, first);
    const int peer = peer_of(peers, 0);
    const size_t row = (size_t)(peers->outgoing * builder->schedule->nchannels + peers->channel);
    int32_t *known = &builder->single[row * (size_t)peers->nranks + (size_t)peer];
    if (*known < 0) {
        *known = (int32_t)builder->nlinks;
        TT_TRY(add_link(builder, peers, peer));
    }
    *first = (uint32_t)*known;
    return TT_OK;
}

/* ---- Spans ---------------------------------------------------------------------------------- */

/* Where the order begins in the table of orders. */
static tt_status add_order(struct builder *builder, const int32_t *order, int32_t *at)
{
    const int nblocks = builder->schedule->nblocks;
    int i = 0;
    while (i < builder->norders && builder->orders[i] != order) i++;
    if (i == MOST_ORDERS)
        return tt_fail(TT_ERR_INTERNAL, "%s:%s has more than %d orders of blocks",
                       tt_collective_name(builder->schedule->shape.collective),
                       builder->schedule->algorithm->name, MOST_ORDERS);
    if (i == builder->norders) builder->orders[builder->norders++] = order;
    *at = i * nblocks;
    return TT_OK;
}

static tt_status lower_span(struct builder *builder, const struct tt_span *span,
                            struct tt_program_span *out)
{
    const int nblocks = builder->schedule->nblocks;
    *out = (struct tt_program_span){.order = -1, .run = 1, .modulo = 1};
    if (!span->number) return TT_OK;
    const int modulo = tt_span_places(span, nblocks);
    const bool contiguous = tt_span_contiguous(span, nblocks);
    *out = (struct tt_program_span){
        .first = tt_mod(span->first, modulo),
        .number = span->number,
        .run = contiguous || span->run > span->number ? span->number : span->run,
        .stride = tt_mod(span->stride, modulo),
        .base = span->base,
        .modulo = modulo,
        .order = -1,
        .slot = span->slot,
        .buffer = (uint8_t)span->buffer,
        .slot_rule = (uint8_t)span->slot_rule,
        .contiguous = contiguous && span->buffer != TT_SCRATCH && !span->order,
    };
    out->all = out->contiguous && span->number == nblocks;
    return span->order ? add_order(builder, span->order, &out->order) : TT_OK;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* A slot holds as many blocks as the algorithm's formula says that a message has. */
static tt_status check_message(const struct tt_schedule *schedule, const struct tt_step *step)
{
    const int number = step->dst.number ? step->dst.number : step->local.number;
    if (step->kind != TT_STEP_LINK || !step->send.number || number <= schedule->message)
        return TT_OK;
    return tt_fail(TT_ERR_INTERNAL,
                   "%s:%s over %d ranks: rank %d sends %d blocks in one message, "
                   "its formula says at most %d",
                   tt_collective_name(schedule->shape.collective), schedule->algorithm->name,
                   schedule->shape.nranks, schedule->rank, number, schedule->message);
}

/* What every rank puts into the meeting that is this step of all ranks. Not where only the ranks of
 * one of several hosts are its members. */
static tt_status lower_meeting(struct builder *builder, int channel, int index,
                               struct tt_program_step *out)
{
    const struct tt_schedule *schedule = builder->schedule;
    const struct tt_algorithm *algorithm = schedule->algorithm;
    const size_t nranks = (size_t)schedule->shape.nranks;
    if (!algorithm->one_host) return TT_OK;
    void *more = realloc(builder->puts, (builder->nputs + nranks) * sizeof *builder->puts);
    if (!more) return out_of_memory(schedule);
    builder->puts = more;
    out->recv = builder->nputs;
    for (int rank = 0; rank < schedule->shape.nranks; rank++) {
        struct tt_step step;
        tt_step(algorithm, &schedule->shape, rank, channel, index, &step);
        builder->puts[builder->nputs++] =
            (struct tt_program_blocks){step.local.number ? step.local.first : 0, step.local.number};
    }
    return TT_OK;
}

static tt_status lower_step(struct builder *builder, int channel, int index)
{
    const struct tt_schedule *schedule = builder->schedule;
    const struct tt_step *step = &schedule->steps[channel][index];
    TT_TRY(check_message(schedule, step));
    struct tt_program_step *out = &builder->steps[builder->nsteps++];
    *out = (struct tt_program_step){
        .kind = (uint8_t)step->kind, .op = (uint8_t)step->op, .finish = step->finish, .own_at = -1};
    TT_TRY(lower_span(builder, &step->local, &out->local));
    TT_TRY(lower_span(builder, &step->dst, &out->dst));
    if (step->kind == TT_STEP_MEET) return lower_meeting(builder, channel, index, out);
    struct peers peers = {
        .list = &step->recv, .nranks = schedule->shape.nranks, .channel = channel};
    TT_TRY(lower_peers(builder, &peers, &out->recv, &out->nrecv));
    if (step->local.number) out->own_at = step->own_at;
    peers.list = &step->send;
    peers.outgoing = true;
    return lower_peers(builder, &peers, &out->send, &out->nsend);
}

static tt_status lower_steps(struct builder *builder)
{
    const struct tt_schedule *schedule = builder->schedule;
    const size_t nranks = (size_t)schedule->shape.nranks, nchannels = (size_t)schedule->nchannels;
    size_t nsteps = 0;
    for (size_t c = 0; c < nchannels; c++) nsteps += (size_t)schedule->nsteps[c];
    builder->steps = malloc((nsteps ? nsteps : 1) * sizeof *builder->steps);
    builder->single = malloc(2 * nchannels * nranks * sizeof *builder->single);
    if (!builder->steps || !builder->single) return out_of_memory(schedule);
    memset(builder->single, 0xff, 2 * nchannels * nranks * sizeof *builder->single);
    for (int c = 0; c < schedule->nchannels; c++)
        for (int s = 0; s < schedule->nsteps[c]; s++) TT_TRY(lower_step(builder, c, s));
    return TT_OK;
}

/* ---- Posts ---------------------------------------------------------------------------------- */

/* Whether the step sends what it stores in OUTPUT, or a later one of the channel may read it. */
static bool is_read_later(const struct tt_schedule *schedule, int channel, uint32_t index)
{
    const struct tt_step *steps = schedule->steps[channel];
    bool is_read = steps[index].send.number > 0;
    for (int s = (int)index + 1; s < schedule->nsteps[channel]; s++)
        is_read = is_read || (steps[s].local.number > 0 && steps[s].local.buffer == TT_OUTPUT);
    return is_read;
}

/* came: [nranks] messages of each rank that earlier steps of the channel take; -1: has a post. */
static void lower_posts(struct builder *builder, int channel, int32_t *came)
{
    const struct tt_schedule *schedule = builder->schedule;
    const int nranks = schedule->shape.nranks;
    struct tt_program_channel *row = &builder->channels[channel];
    row->first_post = builder->nposts;
    memset(came, 0, (size_t)nranks * sizeof *came);
    for (uint32_t s = 0; s < row->nsteps; s++) {
        const struct tt_step *step = &schedule->steps[channel][s];
        if (step->kind == TT_STEP_MEET) continue;
        for (int i = 0; i < step->recv.number; i++) {
            int32_t *from = &came[tt_peer_at(&step->recv, i, nranks)];
            if (*from < 0) continue;
            const bool posted = tt_step_may_be_posted(step);
            if (posted)
                builder->posts[builder->nposts++] =
                    (struct tt_program_post){.step = s,
                                             .ahead = (uint32_t)*from,
                                             .is_read = is_read_later(schedule, channel, s)};
            *from = posted ? -1 : *from + 1;
        }
    }
    row->nposts = builder->nposts - row->first_post;
}

static tt_status lower_channels(struct builder *builder)
{
    const struct tt_schedule *schedule = builder->schedule;
    const size_t nranks = (size_t)schedule->shape.nranks, nchannels = (size_t)schedule->nchannels;
    int32_t *came = malloc(nranks * sizeof *came);
    builder->channels = malloc(nchannels * sizeof *builder->channels);
    builder->posts = malloc(nranks * nchannels * sizeof *builder->posts);
    const bool ready = came && builder->channels && builder->posts;
    uint32_t first = 0;
    for (int c = 0; ready && c < schedule->nchannels; c++) {
        builder->channels[c] =
            (struct tt_program_channel){.first = first, .nsteps = (uint32_t)schedule->nsteps[c]};
        first += builder->channels[c].nsteps;
        lower_posts(builder, c, came);
    }
    free(came);
    return ready ? TT_OK : out_of_memory(schedule);
}

/* ---- The block ------------------------------------------------------------------------------ */

/* Makes room for a table behind what there is; returns where it begins. */
static uint32_t reserve(size_t *nbytes, size_t number, size_t size)
{
    const size_t at = (*nbytes + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
    *nbytes = at + number * size;
    return (uint32_t)at;
}

static tt_status fill_header(struct tt_program *program, const struct builder *builder)
{
    const struct tt_schedule *schedule = builder->schedule;
    size_t nbytes = sizeof *program;
    *program = (struct tt_program){
        .algorithm = schedule->algorithm_id,
        .nsteps = builder->nsteps,
        .nlinks = builder->nlinks,
        .nposts = builder->nposts,
        .norders = (uint32_t)(builder->norders * schedule->nblocks),
        .nputs = builder->nputs,
        .rank = schedule->rank,
        .nranks = schedule->shape.nranks,
        .root = schedule->shape.root,
        .nblocks = schedule->nblocks,
        .nchannels = schedule->nchannels,
        .nscratch = schedule->nscratch,
        .message = schedule->message,
        .collective = (uint8_t)schedule->shape.collective,
        .splits = tt_collective_splits(schedule->shape.collective),
        .meets = schedule->meets,
        .direct_safe = schedule->algorithm->direct_safe,
    };
    program->steps_at = reserve(&nbytes, program->nsteps, sizeof(struct tt_program_step));
    program->channels_at =
        reserve(&nbytes, (size_t)program->nchannels, sizeof(struct tt_program_channel));
    program->links_at = reserve(&nbytes, program->nlinks, sizeof(struct tt_program_link));
    program->posts_at = reserve(&nbytes, program->nposts, sizeof(struct tt_program_post));
    program->orders_at = reserve(&nbytes, program->norders, sizeof(int32_t));
    program->puts_at = reserve(&nbytes, program->nputs, sizeof(struct tt_program_blocks));
    program->nbytes = reserve(&nbytes, 0, 1);
    for (int b = TT_INPUT; b <= TT_OUTPUT && schedule->nblocks; b++)
        program->held[b].number =
            tt_buffer_blocks(&schedule->shape, schedule->nblocks, (enum tt_buffer)b, schedule->rank,
                             &program->held[b].first);
    if (nbytes <= UINT32_MAX) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "the program of %s:%s over %d ranks takes %zu bytes, more than %u: choose an "
                   "algorithm with fewer steps",
                   tt_collective_name(schedule->shape.collective), schedule->algorithm->name,
                   schedule->shape.nranks, nbytes, UINT32_MAX);
}

/* Empty tables have no source. */
static void fill_table(struct tt_program *program, uint32_t at, const void *from, size_t nbytes)
{
    if (nbytes) memcpy((char *)program + at, from, nbytes);
}

static void fill_tables(struct tt_program *program, const struct builder *builder)
{
    const struct tt_schedule *schedule = builder->schedule;
    const size_t order_bytes = (size_t)schedule->nblocks * sizeof(int32_t);
    fill_table(program, program->steps_at, builder->steps,
               builder->nsteps * sizeof *builder->steps);
    fill_table(program, program->links_at, builder->links,
               builder->nlinks * sizeof *builder->links);
    for (int i = 0; i < builder->norders; i++)
        fill_table(program, program->orders_at + (uint32_t)((size_t)i * order_bytes),
                   builder->orders[i], order_bytes);
    fill_table(program, program->posts_at, builder->posts,
               builder->nposts * sizeof *builder->posts);
    fill_table(program, program->puts_at, builder->puts, builder->nputs * sizeof *builder->puts);
    fill_table(program, program->channels_at, builder->channels,
               (size_t)schedule->nchannels * sizeof *builder->channels);
}

tt_status tt_program_lower(const struct tt_schedule *schedule, struct tt_program **out)
{
    struct builder builder = {.schedule = schedule};
    tt_status status = lower_steps(&builder);
    if (!status) status = lower_channels(&builder);
    struct tt_program header, *program = NULL;
    if (!status) status = fill_header(&header, &builder);
    if (!status) {
        program = aligned_alloc(TABLE_ALIGN, header.nbytes);
        if (!program) status = out_of_memory(schedule);
    }
    if (program) {
        memset(program, 0, header.nbytes);
        *program = header;
        fill_tables(program, &builder);
        *out = program;
    }
    free(builder.steps);
    free(builder.links);
    free(builder.single);
    free(builder.puts);
    free(builder.channels);
    free(builder.posts);
    return status;
}

tt_status tt_program_create(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                            int rank, struct tt_program **program)
{
    struct tt_schedule *schedule;
    TT_TRY(tt_schedule_create(algorithm, shape, rank, &schedule));
    const tt_status status = tt_program_lower(schedule, program);
    tt_schedule_destroy(schedule);
    return status;
}
