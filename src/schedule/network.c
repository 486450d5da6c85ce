/* Runs the ranks of a channel as a network of processes, one message a link. */
#include "schedule/network.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum phase { AT_STEP, RECEIVING, SENDING, MEETING, ENDED };

struct process {
    struct tt_step step;
    int index, nsteps;
    enum phase phase;
    int ready; /* peers of the phase that need not be waited for */
    void *message;
    bool queued;
};

/* A link by (sender, receiver). */
struct slot {
    bool used;
    uint64_t key;
    void *message;
    int number; /* messages in the link */
};

struct table {
    struct slot *slots;
    size_t nslots, used; /* a power of two */
};

struct tt_network {
    const struct tt_steps *steps;
    const struct tt_network_ops *ops;
    void *arg;
    struct tt_network_report *report;
    int channel, nranks;
    struct process *processes;
    struct table links;
    int *come;  /* [nranks]: ranks that have come to the meeting of a host, by its first rank */
    int *queue; /* ring of nranks */
    int head, queued;
    void **received;
};

int tt_steps_number(const struct tt_steps *steps, int rank, int channel)
{
    if (steps->nsteps) return steps->nsteps(steps->arg, rank, channel);
    return tt_nsteps(steps->algorithm, &steps->shape, rank, channel);
}

void tt_steps_get(const struct tt_steps *steps, int rank, int channel, int index,
                  struct tt_step *step)
{
    *step = (struct tt_step){0};
    if (steps->step)
        steps->step(steps->arg, rank, channel, index, step);
    else
        tt_step(steps->algorithm, &steps->shape, rank, channel, index, step);
}

const struct tt_step *tt_network_step(const struct tt_network *network, int rank, int *index)
{
    if (index) *index = network->processes[rank].index;
    return &network->processes[rank].step;
}

/* ---- The tables ----------------------------------------------------------------------------- */

static struct slot *probe(const struct table *table, uint64_t key)
{
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (table->nslots - 1);
    while (table->slots[at].used && table->slots[at].key != key)
        at = (at + 1) & (table->nslots - 1);
    return &table->slots[at];
}

static bool grow(struct table *table)
{
    const struct table old = *table;
    table->nslots = old.nslots ? 2 * old.nslots : 64;
    table->slots = calloc(table->nslots, sizeof *table->slots);
    if (!table->slots) {
        *table = old;
        return false;
    }
    for (size_t i = 0; i < old.nslots; i++)
        if (old.slots[i].used) *probe(table, old.slots[i].key) = old.slots[i];
    free(old.slots);
    return true;
}

/* The slot of a key, made when there is none; NULL without memory. Valid until the next call. */
static struct slot *find(struct table *table, uint64_t key)
{
    if (2 * table->used >= table->nslots && !grow(table)) return NULL;
    struct slot *slot = probe(table, key);
    if (!slot->used) {
        slot->used = true;
        slot->key = key;
        table->used++;
    }
    return slot;
}

static struct slot *link_of(struct tt_network *network, int from, int to)
{
    return find(&network->links, (uint64_t)from * (uint64_t)network->nranks + (uint64_t)to);
}

/* ---- Who waits for whom --------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

/* A member that is not at the meeting. */
static int absent_member(const struct tt_network *network, const struct tt_peers *members)
{
    for (int i = 0; i < members->number; i++) {
        const int rank = tt_peer_at(members, i, network->nranks);
        if (network->processes[rank].phase != MEETING) return rank;
    }
    return tt_peer_at(members, 0, network->nranks);
}

/* Says what the rank waits for; returns for whom. */
static int explain_wait(const struct tt_network *network, int rank, char *text, size_t size)
{
    const struct process *process = &network->processes[rank];
    append(text, size, "rank %d channel %d step %d waits ", rank, network->channel, process->index);
    if (process->phase == MEETING) {
        const int other = absent_member(network, &process->step.recv);
        append(text, size, "for rank %d to come to a meeting of %d", other,
               process->step.recv.number);
        return other;
    }
    const bool receives = process->phase == RECEIVING;
    const int other = tt_peer_at(receives ? &process->step.recv : &process->step.send,
                                 process->ready, network->nranks);
    append(text, size, receives ? "for a message from rank %d" : "for room in its link to rank %d",
           other);
    return other;
}

static tt_status deadlocked(const struct tt_network *network, int rank)
{
    char *text = network->report->text;
    const size_t size = sizeof network->report->text;
    const int first = rank;
    snprintf(text, size, "deadlock: ");
    for (int i = 0; i < 4; i++) {
        rank = explain_wait(network, rank, text, size);
        if (network->processes[rank].phase == ENDED) {
            append(text, size, ", which has ended after %d steps", network->processes[rank].index);
            break;
        }
        if (rank == first) break;
        append(text, size, i == 3 ? ", and so on" : "; ");
    }
    return TT_ERR_USAGE;
}

static tt_status check_ends(const struct tt_network *network)
{
    for (int rank = 0; rank < network->nranks; rank++)
        if (network->processes[rank].phase != ENDED) return deadlocked(network, rank);
    for (size_t i = 0; i < network->links.nslots; i++) {
        const struct slot *slot = &network->links.slots[i];
        if (!slot->number) continue;
        const uint64_t n = (uint64_t)network->nranks;
        snprintf(network->report->text, sizeof network->report->text,
                 "rank %d channel %d never receives the last message that rank %d sends it",
                 (int)(slot->key % n), network->channel, (int)(slot->key / n));
        return TT_ERR_USAGE;
    }
    return TT_OK;
}

/* ---- Execution ------------------------------------------------------------------------------ */

static void wake(struct tt_network *network, int rank)
{
    struct process *process = &network->processes[rank];
    if (process->queued || process->phase == ENDED) return;
    process->queued = true;
    network->queue[(network->head + network->queued++) % network->nranks] = rank;
}

static tt_status no_memory(void)
{
    return tt_fail(TT_ERR_SYSTEM, "no memory to run the schedules of all ranks");
}

/* Walks on over the peers whose link holds `number` messages; *all: it does for every peer. */
static tt_status await(struct tt_network *network, int rank, const struct tt_peers *peers,
                       int number, bool *all)
{
    struct process *process = &network->processes[rank];
    *all = false;
    for (; process->ready < peers->number; process->ready++) {
        const int peer = tt_peer_at(peers, process->ready, network->nranks);
        const struct slot *slot =
            number ? link_of(network, peer, rank) : link_of(network, rank, peer);
        if (!slot) return no_memory();
        if (slot->number != number) return TT_OK;
    }
    process->ready = 0;
    *all = true;
    return TT_OK;
}

static tt_status take_messages(struct tt_network *network, int rank)
{
    struct process *process = &network->processes[rank];
    const struct tt_peers *peers = &process->step.recv;
    for (int i = 0; i < peers->number; i++) {
        const int peer = tt_peer_at(peers, i, network->nranks);
        struct slot *slot = link_of(network, peer, rank);
        network->received[i] = slot->message;
        slot->number = 0;
        wake(network, peer);
    }
    process->phase = SENDING;
    process->message = NULL;
    return network->ops->link(network->arg, rank, process->index, &process->step, network->received,
                              &process->message);
}

static void send_messages(struct tt_network *network, int rank)
{
    struct process *process = &network->processes[rank];
    const struct tt_peers *peers = &process->step.send;
    for (int i = 0; i < peers->number; i++) {
        const int peer = tt_peer_at(peers, i, network->nranks);
        struct slot *slot = link_of(network, rank, peer);
        slot->message = process->message;
        slot->number = 1;
        wake(network, peer);
    }
    network->report->nmessages += (uint64_t)peers->number;
    process->phase = AT_STEP;
    process->index++;
}

static tt_status arrive(struct tt_network *network, const struct tt_peers *members)
{
    int *come = &network->come[tt_peer_at(members, 0, network->nranks)];
    if (++*come < members->number) return TT_OK;
    *come = 0;
    TT_TRY(network->ops->meet(network->arg, network, members));
    for (int i = 0; i < members->number; i++) {
        const int rank = tt_peer_at(members, i, network->nranks);
        network->processes[rank].phase = AT_STEP;
        network->processes[rank].index++;
        wake(network, rank);
    }
    return TT_OK;
}

static tt_status begin_step(struct tt_network *network, int rank)
{
    struct process *process = &network->processes[rank];
    if (process->index == process->nsteps) {
        process->phase = ENDED;
        return TT_OK;
    }
    tt_steps_get(network->steps, rank, network->channel, process->index, &process->step);
    network->report->nsteps++;
    TT_TRY(network->ops->begin(network->arg, rank, process->index, &process->step));
    process->phase = process->step.kind == TT_STEP_MEET ? MEETING : RECEIVING;
    if (process->phase == RECEIVING) return TT_OK;
    const struct tt_peers members = process->step.recv;
    return arrive(network, &members);
}

/* Goes on with a rank until it must wait. */
static tt_status run_process(struct tt_network *network, int rank)
{
    struct process *process = &network->processes[rank];
    bool all = true;
    while (all && process->phase != ENDED && process->phase != MEETING) {
        if (process->phase == AT_STEP) {
            TT_TRY(begin_step(network, rank));
        } else if (process->phase == RECEIVING) {
            TT_TRY(await(network, rank, &process->step.recv, 1, &all));
            if (all) TT_TRY(take_messages(network, rank));
        } else {
            TT_TRY(await(network, rank, &process->step.send, 0, &all));
            if (all) send_messages(network, rank);
        }
    }
    return TT_OK;
}

static tt_status run(struct tt_network *network)
{
    for (int rank = 0; rank < network->nranks; rank++) {
        network->processes[rank].nsteps = tt_steps_number(network->steps, rank, network->channel);
        wake(network, rank);
    }
    while (network->queued > 0) {
        const int rank = network->queue[network->head];
        network->head = (network->head + 1) % network->nranks;
        network->queued--;
        network->processes[rank].queued = false;
        TT_TRY(run_process(network, rank));
    }
    return check_ends(network);
}

static void drop_messages(struct tt_network *network)
{
    for (size_t i = 0; i < network->links.nslots; i++)
        if (network->links.slots[i].number)
            network->ops->drop(network->arg, network->links.slots[i].message);
    for (int rank = 0; rank < network->nranks; rank++) {
        const struct process *process = &network->processes[rank];
        for (int i = 0; process->phase == SENDING && i < process->step.send.number; i++)
            if (process->message) network->ops->drop(network->arg, process->message);
    }
}

tt_status tt_network_run(const struct tt_steps *steps, int channel,
                         const struct tt_network_ops *ops, void *arg,
                         struct tt_network_report *report)
{
    const size_t n = (size_t)steps->shape.nranks;
    struct tt_network network = {.steps = steps,
                                 .ops = ops,
                                 .arg = arg,
                                 .report = report,
                                 .channel = channel,
                                 .nranks = steps->shape.nranks,
                                 .processes = calloc(n, sizeof *network.processes),
                                 .come = calloc(n, sizeof *network.come),
                                 .queue = calloc(n, sizeof *network.queue),
                                 .received = calloc(n, sizeof *network.received)};
    tt_status status;
    if (network.processes && network.come && network.queue && network.received) {
        status = run(&network);
        drop_messages(&network);
    } else {
        status = no_memory();
    }
    free(network.links.slots);
    free(network.received);
    free(network.queue);
    free(network.come);
    free(network.processes);
    return status;
}
