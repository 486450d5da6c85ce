/* Runs schedules on real numbers, one move at a time. */
#include "interpreter.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/network.h"

enum { MOST_DEPTH = 3 };
enum phase { START, TAKING, SENDING, MEETING, LEAVING, ENDED };

struct worker;

/* Elements; or, by reference, a span of the sender's memory; or nothing, as its place holds it. */
struct message {
    uint64_t *elements;
    size_t number;
    const struct worker *sender;
    struct tt_span span;
    bool posted;
};

struct link {
    struct message messages[MOST_DEPTH];
    int number, nsent; /* in the link; in all */
};

/* One rank's channel. */
struct worker {
    int rank, channel, index, nsteps, peer;
    bool entered;
    bool stores_late; /* its messages leave before its result is stored */
    enum phase phase;
    struct tt_step step;
    struct message taken[MOST_RANKS], result;
};

struct machine {
    const struct tt_steps *steps;
    struct tt_geometry geometry;
    int nranks, nworkers, depth, lazy; /* the worker that moves only when no other can; -1: none */
    bool direct, posts;
    size_t total, slot; /* elements of all blocks; of a scratch slot */
    uint64_t seed;
    uint64_t *original[MOST_RANKS], *input[MOST_RANKS], *output[MOST_RANKS], *scratch[MOST_RANKS];
    struct worker workers[MOST_RANKS * MOST_CHANNELS];
    struct link links[MOST_CHANNELS][MOST_RANKS][MOST_RANKS];
    const char *wrong;
};

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint64_t finished(uint64_t sum)
{
    return sum * 0x9e3779b97f4a7c15u + 12345;
}

static uint64_t scaled(uint64_t input)
{
    return input * 0xd1342543de82ef95u;
}

static uint64_t *get(size_t number)
{
    uint64_t *memory = calloc(number + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

static uint64_t *draw_many(struct machine *machine, size_t number)
{
    uint64_t *memory = get(number);
    for (size_t i = 0; i < number; i++) memory[i] = draw(&machine->seed);
    return memory;
}

/* ---- Spans ---------------------------------------------------------------------------------- */

/* The i-th block of a span on the worker's channel. */
static uint64_t *block_at(struct machine *machine, const struct worker *worker,
                          const struct tt_span *span, int i, size_t *number)
{
    const int name = tt_span_name(span, i, machine->geometry.nblocks);
    size_t begin;
    *number = tt_geometry_part(&machine->geometry, name, worker->channel, &begin);
    if (span->buffer == TT_INPUT) return machine->input[worker->rank] + begin;
    if (span->buffer == TT_OUTPUT) return machine->output[worker->rank] + begin;
    const int slot = tt_span_slot(span, i, machine->geometry.nblocks);
    const int part = slot * machine->geometry.nchannels + worker->channel;
    return machine->scratch[worker->rank] + (size_t)part * machine->slot;
}

static struct message read_span(struct machine *machine, const struct worker *worker,
                                const struct tt_span *span)
{
    struct message message = {.elements = get(machine->total)};
    for (int i = 0; i < span->number; i++) {
        size_t number;
        const uint64_t *block = block_at(machine, worker, span, i, &number);
        memcpy(message.elements + message.number, block, number * sizeof *block);
        message.number += number;
    }
    if (span->buffer == TT_INPUT && tt_collective_reduces(machine->steps->shape.collective))
        for (size_t i = 0; i < message.number; i++)
            message.elements[i] = scaled(message.elements[i]);
    return message;
}

static void write_span(struct machine *machine, const struct worker *worker,
                       const struct tt_span *span, const struct message *message)
{
    size_t at = 0, number;
    for (int i = 0; i < span->number; i++) {
        block_at(machine, worker, span, i, &number);
        at += number;
    }
    if (span->number > 0 && at != message->number) {
        machine->wrong = "a message has another length than its place";
        return;
    }
    at = 0;
    for (int i = 0; i < span->number; i++) {
        uint64_t *block = block_at(machine, worker, span, i, &number);
        memcpy(block, message->elements + at, number * sizeof *block);
        at += number;
    }
}

/* ---- Moves ---------------------------------------------------------------------------------- */

static void add(struct machine *machine, struct message *sum, const struct message *other)
{
    if (sum->number != other->number) {
        machine->wrong = "sources differ in length";
        return;
    }
    for (size_t i = 0; i < sum->number; i++) sum->elements[i] += other->elements[i];
}

static void finish(const struct tt_step *step, struct message *message)
{
    for (size_t i = 0; step->finish && i < message->number; i++)
        message->elements[i] = finished(message->elements[i]);
}

static void take_source(struct machine *machine, struct worker *worker, struct message *source)
{
    if (!worker->result.elements) {
        worker->result = *source;
    } else {
        add(machine, &worker->result, source);
        free(source->elements);
    }
    *source = (struct message){.number = 0};
}

static struct message copy_message(const struct machine *machine, const struct message *message)
{
    struct message copy = {.elements = get(machine->total), .number = message->number};
    if (copy.number) memcpy(copy.elements, message->elements, copy.number * sizeof *copy.elements);
    return copy;
}

static struct worker *worker_of(struct machine *machine, int rank, int channel)
{
    return &machine->workers[rank * machine->geometry.nchannels + channel];
}

/* Whether the next message from the worker to a rank is the first that the rank only stores; then
 * *taker is the rank's step. */
static bool is_posted(const struct machine *machine, const struct worker *worker, int to,
                      struct tt_step *taker)
{
    const struct tt_steps *steps = machine->steps;
    int before = 0;
    if (!machine->posts) return false;
    for (int index = 0; index < tt_steps_number(steps, to, worker->channel); index++) {
        tt_steps_get(steps, to, worker->channel, index, taker);
        for (int i = 0; taker->kind == TT_STEP_LINK && i < taker->recv.number; i++) {
            if (tt_peer_at(&taker->recv, i, machine->nranks) != worker->rank) continue;
            if (tt_step_may_be_posted(taker))
                return before == machine->links[worker->channel][worker->rank][to].nsent;
            before++;
        }
    }
    return false;
}

static void write_to_posts(struct machine *machine, const struct worker *worker)
{
    const struct tt_peers *peers = &worker->step.send;
    for (int i = 0; i < peers->number; i++) {
        struct tt_step taker;
        const int to = tt_peer_at(peers, i, machine->nranks);
        if (is_posted(machine, worker, to, &taker))
            write_span(machine, worker_of(machine, to, worker->channel), &taker.dst,
                       &worker->result);
    }
}

/* The sources of the step, together. What was sent by reference is read where it lies, again if
 * this is called twice. */
static void make_result(struct machine *machine, struct worker *worker)
{
    const struct tt_step *step = &worker->step;
    worker->result = (struct message){.number = 0};
    if (step->local.number > 0) {
        struct message local = read_span(machine, worker, &step->local);
        take_source(machine, worker, &local);
    }
    for (int i = 0; i < step->recv.number; i++) {
        const struct message *taken = &worker->taken[i];
        struct message source = {.number = 0};
        if (taken->sender)
            source = read_span(machine, taken->sender, &taken->span);
        else if (taken->posted)
            source = read_span(machine, worker, &step->dst);
        else if (taken->elements)
            source = copy_message(machine, taken);
        if (source.elements) take_source(machine, worker, &source);
    }
    finish(step, &worker->result);
}

static void compute(struct machine *machine, struct worker *worker)
{
    const struct tt_step *step = &worker->step;
    make_result(machine, worker);
    worker->stores_late =
        step->dst.number > 0 && step->send.number > 0 && draw(&machine->seed) % 2 == 0;
    if (!worker->stores_late) write_span(machine, worker, &step->dst, &worker->result);
    write_to_posts(machine, worker);
}

/* When its messages have left, a copy reads its source again to store it; a fold has its result. */
static void end_sending(struct machine *machine, struct worker *worker)
{
    const struct tt_step *step = &worker->step;
    if (worker->stores_late && step->op == TT_COPY) {
        free(worker->result.elements);
        make_result(machine, worker);
    }
    if (worker->stores_late) write_span(machine, worker, &step->dst, &worker->result);
    for (int i = 0; i < step->recv.number; i++) free(worker->taken[i].elements);
    free(worker->result.elements);
    worker->result = (struct message){.number = 0};
}

static bool move_taking(struct machine *machine, struct worker *worker)
{
    const struct tt_peers *peers = &worker->step.recv;
    if (worker->peer == peers->number) {
        compute(machine, worker);
        worker->phase = SENDING;
        worker->peer = 0;
        return true;
    }
    const int from = tt_peer_at(peers, worker->peer, machine->nranks);
    struct link *link = &machine->links[worker->channel][from][worker->rank];
    if (link->number == 0) return false;
    worker->taken[worker->peer] = link->messages[0];
    memmove(link->messages, link->messages + 1, sizeof link->messages - sizeof *link->messages);
    link->number--;
    worker->peer++;
    return true;
}

/* What is sent as it lies in memory that the peer could read. */
static bool sends_reference(const struct machine *machine, const struct tt_step *step)
{
    const struct tt_span *span = step->dst.number > 0 ? &step->dst : &step->local;
    if (!machine->direct || span->number == 0 || span->buffer == TT_SCRATCH) return false;
    return span == &step->dst || (step->recv.number == 0 && !step->finish);
}

static bool move_sending(struct machine *machine, struct worker *worker)
{
    const struct tt_peers *peers = &worker->step.send;
    if (worker->peer == peers->number) {
        end_sending(machine, worker);
        worker->phase = START;
        worker->index++;
        return true;
    }
    const int to = tt_peer_at(peers, worker->peer, machine->nranks);
    struct link *link = &machine->links[worker->channel][worker->rank][to];
    if (link->number == machine->depth) return false;
    struct message *copy = &link->messages[link->number++];
    struct tt_step taker;
    const bool posted = is_posted(machine, worker, to, &taker);
    worker->peer++;
    link->nsent++;
    if (posted) {
        *copy = (struct message){.posted = true};
        return true;
    }
    if (!worker->stores_late && sends_reference(machine, &worker->step)) {
        const struct tt_step *step = &worker->step;
        *copy =
            (struct message){.sender = worker, .span = step->dst.number ? step->dst : step->local};
        return true;
    }
    *copy = copy_message(machine, &worker->result);
    return true;
}

/* The member that has put in block `name`; -1: none or several. */
static int owner_of(struct machine *machine, const struct worker *worker, int name)
{
    int owner = -1, nowners = 0;
    for (int i = 0; i < worker->step.recv.number; i++) {
        const int rank = tt_peer_at(&worker->step.recv, i, machine->nranks);
        const struct tt_span *put = &worker_of(machine, rank, worker->channel)->step.local;
        if (name < put->first || name >= put->first + put->number) continue;
        owner = rank;
        nowners++;
    }
    return nowners == 1 ? owner : -1;
}

/* Adds what `rank` has put in as block `name`. */
static void add_put(struct machine *machine, const struct worker *worker, int rank, int name,
                    const struct message *puts, struct message *sum)
{
    const struct tt_span *put = &worker_of(machine, rank, worker->channel)->step.local;
    size_t at = 0, begin, number;
    for (int block = put->first; block < name; block++)
        at += tt_geometry_part(&machine->geometry, block, worker->channel, &begin);
    number = tt_geometry_part(&machine->geometry, name, worker->channel, &begin);
    if (rank < 0 || name < put->first || name >= put->first + put->number) {
        machine->wrong = "a block is not in the meeting";
        return;
    }
    for (size_t i = 0; i < number; i++)
        sum->elements[sum->number + i] += puts[rank].elements[at + i];
}

static struct message take_from_meeting(struct machine *machine, const struct worker *worker,
                                        const struct message *puts)
{
    const struct tt_step *step = &worker->step;
    struct message taken = {.elements = get(machine->total)};
    for (int name = step->dst.first; name < step->dst.first + step->dst.number; name++) {
        size_t begin;
        const int owner = step->op == TT_TRANSPOSE ? tt_peer_at(&step->recv, name, machine->nranks)
                                                   : owner_of(machine, worker, name);
        if (step->op == TT_FOLD)
            for (int i = 0; i < step->recv.number && !machine->wrong; i++)
                add_put(machine, worker, tt_peer_at(&step->recv, i, machine->nranks), name, puts,
                        &taken);
        else if (owner < 0)
            machine->wrong = "a block is put in by nobody or by several";
        else
            add_put(machine, worker, owner, step->op == TT_TRANSPOSE ? worker->rank : name, puts,
                    &taken);
        taken.number += tt_geometry_part(&machine->geometry, name, worker->channel, &begin);
    }
    finish(step, &taken);
    return taken;
}

static bool same_meeting(const struct machine *machine, const struct worker *a,
                         const struct worker *b)
{
    const struct tt_peers *of_a = &a->step.recv, *of_b = &b->step.recv;
    bool same = b->phase == MEETING && a->step.op == b->step.op && of_a->number == of_b->number;
    for (int i = 0; same && i < of_a->number; i++)
        same = tt_peer_at(of_a, i, machine->nranks) == tt_peer_at(of_b, i, machine->nranks);
    return same;
}

/* The last member to come computes for all; each stores its result in a move of its own. */
static bool move_meeting(struct machine *machine, struct worker *worker)
{
    const struct tt_peers members = worker->step.recv;
    struct message puts[MOST_RANKS] = {{.number = 0}};
    for (int i = 0; i < members.number; i++) {
        const int rank = tt_peer_at(&members, i, machine->nranks);
        if (!same_meeting(machine, worker, worker_of(machine, rank, worker->channel))) return false;
    }
    for (int i = 0; i < members.number; i++) {
        const int rank = tt_peer_at(&members, i, machine->nranks);
        const struct worker *member = worker_of(machine, rank, worker->channel);
        puts[rank] = read_span(machine, member, &member->step.local);
    }
    for (int i = 0; i < members.number; i++) {
        const int rank = tt_peer_at(&members, i, machine->nranks);
        struct worker *member = worker_of(machine, rank, worker->channel);
        member->result = take_from_meeting(machine, member, puts);
        member->phase = LEAVING;
    }
    for (int rank = 0; rank < machine->nranks; rank++) free(puts[rank].elements);
    return true;
}

static bool move_leaving(struct machine *machine, struct worker *worker)
{
    if (!machine->wrong) write_span(machine, worker, &worker->step.dst, &worker->result);
    free(worker->result.elements);
    worker->result = (struct message){.number = 0};
    worker->phase = START;
    worker->index++;
    return true;
}

static void start_step(struct machine *machine, struct worker *worker)
{
    const struct tt_steps *steps = machine->steps;
    if (worker->index == worker->nsteps) {
        worker->phase = ENDED;
        return;
    }
    worker->step = (struct tt_step){.kind = TT_STEP_LINK};
    if (steps->step)
        steps->step(steps->arg, worker->rank, worker->channel, worker->index, &worker->step);
    else
        tt_step(steps->algorithm, &steps->shape, worker->rank, worker->channel, worker->index,
                &worker->step);
    worker->phase = worker->step.kind == TT_STEP_MEET ? MEETING : TAKING;
    worker->peer = 0;
}

static bool move(struct machine *machine, struct worker *worker)
{
    worker->entered = true;
    switch (worker->phase) {
    case START:
        start_step(machine, worker);
        return true;
    case TAKING:
        return move_taking(machine, worker);
    case SENDING:
        return move_sending(machine, worker);
    case MEETING:
        return move_meeting(machine, worker);
    case LEAVING:
        return move_leaving(machine, worker);
    default:
        return false;
    }
}

/* ---- The whole run -------------------------------------------------------------------------- */

/* Nobody may leave a barrier before all have come. */
static void check_barrier(struct machine *machine, const struct worker *worker)
{
    if (machine->steps->shape.collective != TT_BARRIER || worker->phase != ENDED) return;
    for (int i = 0; i < machine->nworkers; i++)
        if (!machine->workers[i].entered) machine->wrong = "a rank leaves before all have come";
}

/* The first worker from a random one on that can move does so. */
static bool move_one(struct machine *machine)
{
    int at = (int)(draw(&machine->seed) % (uint64_t)machine->nworkers);
    for (int i = 0; i < machine->nworkers; i++, at = (at + 1) % machine->nworkers) {
        if (at == machine->lazy || !move(machine, &machine->workers[at])) continue;
        check_barrier(machine, &machine->workers[at]);
        return true;
    }
    if (machine->lazy < 0 || !move(machine, &machine->workers[machine->lazy])) return false;
    check_barrier(machine, &machine->workers[machine->lazy]);
    return true;
}

/* What element `at` of all blocks must be in OUTPUT of a rank; block: where it lies. */
static uint64_t expected(const struct machine *machine, int rank, int block, size_t at)
{
    const struct tt_shape *shape = &machine->steps->shape;
    uint64_t sum = 0;
    switch (shape->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_REDUCE_SCATTER:
        for (int i = 0; i < machine->nranks; i++) sum += scaled(machine->original[i][at]);
        return finished(sum);
    case TT_BROADCAST:
    case TT_SCATTER:
        return machine->original[shape->root][at];
    case TT_ALL_TO_ALL:
        return machine->original[block][at % machine->geometry.count +
                                        (size_t)rank * machine->geometry.count];
    default:
        return machine->original[block][at];
    }
}

static void check_results(struct machine *machine, int rank)
{
    int first;
    const int number = tt_buffer_blocks(&machine->steps->shape, machine->geometry.nblocks,
                                        TT_OUTPUT, rank, &first);
    for (int block = first; block < first + number; block++) {
        size_t begin;
        const size_t length = tt_geometry_block(&machine->geometry, block, &begin);
        for (size_t i = begin; i < begin + length; i++)
            if (machine->output[rank][i] != expected(machine, rank, block, i))
                machine->wrong = "a result is wrong";
    }
}

static void check_end(struct machine *machine)
{
    for (int i = 0; i < machine->nworkers; i++)
        if (machine->workers[i].phase != ENDED) machine->wrong = "deadlock";
    for (int c = 0; c < machine->geometry.nchannels; c++)
        for (int i = 0; i < machine->nranks * machine->nranks; i++)
            if (machine->links[c][i / machine->nranks][i % machine->nranks].number)
                machine->wrong = "a message is left over";
    for (int rank = 0; rank < machine->nranks && !machine->wrong; rank++)
        check_results(machine, rank);
}

static void set_up(struct machine *machine, bool in_place)
{
    const struct tt_steps *steps = machine->steps;
    machine->total =
        machine->geometry.count * (machine->geometry.split ? 1 : (size_t)machine->geometry.nblocks);
    for (int b = 0; machine->geometry.counts && b < machine->geometry.nblocks; b++)
        machine->total += machine->geometry.counts[b];
    machine->slot = machine->geometry.nblocks ? tt_geometry_largest_part(&machine->geometry) : 0;
    for (int rank = 0; rank < machine->nranks; rank++) {
        const int nscratch = tt_nscratch(steps->algorithm, &steps->shape, rank);
        machine->original[rank] = draw_many(machine, machine->total);
        machine->input[rank] = get(machine->total);
        memcpy(machine->input[rank], machine->original[rank],
               machine->total * sizeof **machine->input);
        machine->output[rank] =
            in_place ? machine->input[rank] : draw_many(machine, machine->total);
        machine->scratch[rank] = draw_many(machine, (size_t)nscratch * machine->slot *
                                                        (size_t)machine->geometry.nchannels);
        for (int channel = 0; channel < machine->geometry.nchannels; channel++) {
            struct worker *worker = worker_of(machine, rank, channel);
            *worker = (struct worker){.rank = rank, .channel = channel};
            worker->nsteps = steps->nsteps
                                 ? steps->nsteps(steps->arg, rank, channel)
                                 : tt_nsteps(steps->algorithm, &steps->shape, rank, channel);
        }
    }
}

static void tear_down(struct machine *machine, bool in_place)
{
    for (int rank = 0; rank < machine->nranks; rank++) {
        free(machine->original[rank]);
        free(machine->input[rank]);
        if (!in_place) free(machine->output[rank]);
        free(machine->scratch[rank]);
    }
    for (int i = 0; i < machine->nworkers; i++) {
        struct worker *worker = &machine->workers[i];
        for (int k = 0; k < worker->step.recv.number; k++)
            if (worker->phase == SENDING || (worker->phase == TAKING && k < worker->peer))
                free(worker->taken[k].elements);
        free(worker->result.elements);
    }
    for (int c = 0; c < MOST_CHANNELS; c++)
        for (int i = 0; i < MOST_RANKS * MOST_RANKS; i++) {
            struct link *link = &machine->links[c][i / MOST_RANKS][i % MOST_RANKS];
            for (int k = 0; k < link->number; k++) free(link->messages[k].elements);
        }
    free(machine);
}

const char *interpret(const struct tt_steps *steps, const struct run *run)
{
    struct machine *machine = calloc(1, sizeof *machine);
    if (!machine) abort();
    machine->steps = steps;
    machine->nranks = steps->shape.nranks;
    machine->direct = run->direct;
    machine->posts = run->posts;
    machine->seed = run->seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 8; i++) draw(&machine->seed);
    machine->depth = 1 + (int)(draw(&machine->seed) % MOST_DEPTH);
    machine->geometry = (struct tt_geometry){
        .count = run->count,
        .nblocks = tt_nblocks(steps->algorithm, &steps->shape),
        .nchannels = tt_nchannels(steps->algorithm, &steps->shape),
        .align = 1,
        .split = tt_collective_splits(steps->shape.collective),
        .counts = run->counts,
    };
    machine->nworkers = machine->nranks * machine->geometry.nchannels;
    machine->lazy = (int)(draw(&machine->seed) % (uint64_t)(2 * machine->nworkers));
    if (machine->lazy >= machine->nworkers) machine->lazy = -1;
    set_up(machine, run->in_place);
    while (!machine->wrong && move_one(machine)) continue;
    if (!machine->wrong) check_end(machine);
    const char *wrong = machine->wrong;
    tear_down(machine, run->in_place);
    return wrong;
}
