#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "transport/fabric.h"
#include "transport/wire.h"

void tt_wire_name_path(const struct tt_tcp *tcp, char *text, size_t size)
{
    const struct tt_wire *wire = tcp->wire;
    const struct tt_path *path = &wire->paths[(tcp - wire->sockets) % wire->npaths];
    char where[TT_ADDRESS_TEXT];
    tt_address_format(&path->target, where);
    snprintf(text, size, "%s over %s", where, path->interface);
}

static tt_status fail(const struct tt_tcp *tcp, const char *what, uint64_t value)
{
    struct tt_fabric *fabric = tcp->wire->wires->fabric;
    char name[128], path[128];
    tt_fabric_name_rank(fabric, tcp->wire->peer, name, sizeof name);
    tt_wire_name_path(tcp, path, sizeof path);
    return tt_fabric_fail(fabric, TT_ERR_REMOTE,
                          "%s sent what tutti never sends (%s %llu) over its connection (%s): "
                          "memory or network is faulty, or its tutti is another build",
                          name, what, (unsigned long long)value, path);
}

/* ---- Records -------------------------------------------------------------------------------- */

uint64_t tt_wire_entered(const struct tt_fabric *fabric)
{
    uint64_t latest = 0;
    for (int i = 0; i < TT_NENTRIES; i++) {
        const uint64_t seq =
            atomic_load_explicit(&fabric->record->entries[i].seq, memory_order_relaxed);
        if (seq > latest) latest = seq;
    }
    return latest;
}

size_t tt_wire_put_record(const struct tt_fabric *fabric, uint8_t *to, uint32_t state)
{
    const struct tt_rank_record *mine = fabric->record;
    const uint64_t seq = tt_wire_entered(fabric);
    const struct tt_entry *entry = &mine->entries[seq % TT_NENTRIES];
    const struct tt_frame frame = {.kind = TT_FRAME_RECORD,
                                   .nbytes = sizeof(struct tt_wire_record)};
    const struct tt_wire_record record = {
        .done = atomic_load_explicit(&mine->done, memory_order_relaxed),
        .seq = seq,
        .count = atomic_load_explicit(&entry->count, memory_order_relaxed),
        .algorithm = atomic_load_explicit(&entry->algorithm, memory_order_relaxed),
        .state = state,
        .collective = atomic_load_explicit(&entry->collective, memory_order_relaxed),
        .type = atomic_load_explicit(&entry->type, memory_order_relaxed),
        .op = atomic_load_explicit(&entry->op, memory_order_relaxed),
        .root = atomic_load_explicit(&entry->root, memory_order_relaxed)};
    memcpy(to, &frame, sizeof frame);
    memcpy(to + sizeof frame, &record, sizeof record);
    return sizeof frame + sizeof record;
}

/* Read by the thread that holds the engine, as this one does. */
static void take_entry(struct tt_entry *entry, const struct tt_wire_record *record)
{
    atomic_store_explicit(&entry->collective, record->collective, memory_order_relaxed);
    atomic_store_explicit(&entry->type, record->type, memory_order_relaxed);
    atomic_store_explicit(&entry->op, record->op, memory_order_relaxed);
    atomic_store_explicit(&entry->root, record->root, memory_order_relaxed);
    atomic_store_explicit(&entry->count, record->count, memory_order_relaxed);
    atomic_store_explicit(&entry->algorithm, record->algorithm, memory_order_relaxed);
    atomic_store_explicit(&entry->seq, record->seq, memory_order_release); /* R1 */
}

/* The goodbye comes last on each socket: then all that was sent is here. */
static bool all_said_goodbye(const struct tt_wire *wire)
{
    for (int i = 0; i < wire->nopen; i++)
        if (wire->sockets[i].fd >= 0 && !wire->sockets[i].left) return false;
    return true;
}

static tt_status take_record(struct tt_tcp *tcp, const char *from)
{
    struct tt_wire_record record;
    memcpy(&record, from, sizeof record);
    struct tt_rank_record *theirs = tt_fabric_record(tcp->wire->wires->fabric, tcp->wire->peer);
    if (record.state != TT_RANK_HERE && record.state != TT_RANK_LEFT &&
        record.state != TT_RANK_ABORTED)
        return fail(tcp, "state", record.state);
    atomic_store_explicit(&theirs->seen_ns, tt_now_ns(), memory_order_relaxed);
    struct tt_entry *entry = &theirs->entries[record.seq % TT_NENTRIES];
    if (record.seq > atomic_load_explicit(&entry->seq, memory_order_relaxed))
        take_entry(entry, &record);
    if (record.done > atomic_load_explicit(&theirs->done, memory_order_relaxed))
        atomic_store_explicit(&theirs->done, record.done, memory_order_release);
    if (record.state == TT_RANK_HERE) return TT_OK;
    tcp->left = true;
    if (tcp->wire->rdma) tt_rdma_wire_quiet(tcp->wire->rdma);
    if (record.state == TT_RANK_ABORTED || all_said_goodbye(tcp->wire))
        atomic_store_explicit(&theirs->state, record.state, memory_order_release);
    return TT_OK;
}

static tt_status take_failure(struct tt_tcp *tcp, const struct tt_frame *frame, char *text)
{
    const int code = (int)frame->number;
    if (code >= 0) return fail(tcp, "failure code", frame->number);
    text[frame->nbytes] = '\0';
    return tt_fabric_fail(tcp->wire->wires->fabric, code, "%s", text);
}

/* ---- Frames --------------------------------------------------------------------------------- */

static tt_status take_credits(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    const uint64_t nslots = tcp->wire->wires->config.nslots;
    for (int c = 0; c < TT_NCHANNELS; c++) {
        struct tt_wire_link *link = &tcp->wire->links[1][c];
        link->allowed += frame->credits[c];
        if (link->allowed - link->next > nslots) return fail(tcp, "credits", frame->credits[c]);
    }
    return TT_OK;
}

static struct tt_arrival *arrival_of(const struct tt_tcp *tcp, const struct tt_frame *frame,
                                     uint64_t *number)
{
    struct tt_wire_link *link = &tcp->wire->links[0][frame->channel];
    *number = link->next + (frame->number - (uint32_t)link->next);
    return &link->arrivals[*number % tcp->wire->wires->config.nslots];
}

static tt_status check_message(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    const struct tt_wire *wire = tcp->wire;
    if (frame->channel >= TT_NCHANNELS) return fail(tcp, "channel", frame->channel);
    const struct tt_wire_link *link = &wire->links[0][frame->channel];
    uint64_t number;
    const struct tt_arrival *arrival = arrival_of(tcp, frame, &number);
    if (frame->nbytes > wire->wires->config.slot_bytes) return fail(tcp, "length", frame->nbytes);
    if (number - link->next >= wire->wires->config.nslots || arrival->data ||
        &wire->sockets[number % (uint64_t)wire->nsockets] != tcp)
        return fail(tcp, "message number", frame->number);
    return TT_OK;
}

tt_status tt_wire_check(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    TT_TRY(take_credits(tcp, frame));
    bool fits = false;
    switch (frame->kind) {
    case TT_FRAME_DATA:
        return check_message(tcp, frame);
    case TT_FRAME_CREDIT:
    case TT_FRAME_READY:
        fits = frame->nbytes == 0;
        break;
    case TT_FRAME_OFFER:
        fits = frame->nbytes <= sizeof((struct tt_rdma_offer *)0)->bytes;
        break;
    case TT_FRAME_RECORD:
        fits = frame->nbytes == sizeof(struct tt_wire_record);
        break;
    case TT_FRAME_FAILURE:
        fits = frame->nbytes < TT_ERROR_TEXT;
        break;
    default:
        return fail(tcp, "frame", frame->kind);
    }
    return fits ? TT_OK : fail(tcp, "length", frame->nbytes);
}

tt_status tt_wire_place(struct tt_tcp *tcp, const struct tt_frame *frame, char **to)
{
    *to = tcp->control;
    if (frame->kind != TT_FRAME_DATA) return TT_OK;
    uint64_t number;
    struct tt_arrival *arrival = arrival_of(tcp, frame, &number);
    struct tt_wire_link *link = &tcp->wire->links[0][frame->channel];
    const bool expected = number == link->next && link->expected &&
                          link->expected_nbytes == frame->nbytes &&
                          link->expected_signature == frame->signature;
    char *place = expected ? link->expected : tt_wire_slot(link, number);
    if (!place) return TT_ERR_SYSTEM;
    *arrival =
        (struct tt_arrival){.data = place, .nbytes = frame->nbytes, .signature = frame->signature};
    *to = place;
    return TT_OK;
}

tt_status tt_wire_end(struct tt_tcp *tcp, const struct tt_frame *frame, char *to)
{
    if (frame->kind == TT_FRAME_RECORD) return take_record(tcp, to);
    if (frame->kind == TT_FRAME_FAILURE) return take_failure(tcp, frame, to);
    if (frame->kind == TT_FRAME_OFFER) return tt_wire_take_offer(tcp->wire, to, frame->nbytes);
    if (frame->kind == TT_FRAME_READY) return tt_wire_take_ready(tcp->wire, frame->number != 0);
    if (frame->kind != TT_FRAME_DATA) return TT_OK;
    uint64_t number;
    arrival_of(tcp, frame, &number)->whole = true;
    return TT_OK;
}

/* What has become of the peer, in words. */
static void explain_end(struct tt_wire *wire, const struct tt_tcp *tcp, int error)
{
    const struct tt_fabric *fabric = wire->wires->fabric;
    const struct tt_rank_record *theirs = tt_fabric_record(fabric, wire->peer);
    const uint32_t state = atomic_load_explicit(&theirs->state, memory_order_relaxed);
    char name[128], path[128], words[128];
    tt_wire_name_path(tcp, path, sizeof path);
    tt_fabric_name_rank(fabric, wire->peer, name, sizeof name);
    if (tcp->left && !tcp->in_frame)
        snprintf(wire->gone, sizeof wire->gone, "%s %s", name,
                 state == TT_RANK_ABORTED ? "aborted the communicator"
                                          : "has left: it destroyed its communicator");
    else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        snprintf(wire->gone, sizeof wire->gone,
                 "%s cannot be reached any more: its connection (%s) carried nothing for "
                 "TUTTI_NET_TIMEOUT_MS=%lld ms (%s)",
                 name, path, (long long)(wire->wires->timeout_ns / 1000000),
                 strerror_r(error, words, sizeof words));
    else if (error == EPROTO)
        snprintf(wire->gone, sizeof wire->gone,
                 "the encrypted connection to %s (%s) brought what that rank did not send: "
                 "somebody or something changed it underway",
                 name, path);
    else
        snprintf(wire->gone, sizeof wire->gone, "%s has died: its connection (%s) was %s", name,
                 path,
                 !error                ? "closed"
                 : error == ECONNRESET ? "reset"
                                       : strerror_r(error, words, sizeof words));
}

tt_status tt_wire_lost(struct tt_tcp *tcp, int error)
{
    struct tt_wire *wire = tcp->wire;
    if (!wire->gone[0]) explain_end(wire, tcp, error);
    tt_tcp_close(tcp);
    tt_dial_hang_up(&wire->dial);
    if (wire->rdma) tt_rdma_wire_lost(wire->rdma);
    wire->state = TT_WIRE_GONE;
    tt_wire_handles_settle(wire);
    return error == EPROTO ? tt_wire_missed(wire) : TT_IN_PROGRESS;
}

tt_status tt_wire_missed(struct tt_wire *wire)
{
    struct tt_fabric *fabric = wire->wires->fabric;
    while (tt_tcp_read(&wire->sockets[0]) == TT_OK) { /* its last words may tell more */
    }
    TT_TRY(tt_fabric_check(fabric)); /* the others are going already */
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s", wire->gone);
}
