/* What the frames of data mean: credits, and messages with their places. */
#include "transport/tcp/tcp.h"

tt_status tt_tcp_refuse(const struct tt_tcp *tcp, const char *what, uint64_t value)
{
    const struct tt_room_context *context = tcp->end->room->context;
    char name[128];
    tt_room_name(context, tcp->end->peer, name, sizeof name);
    return tt_room_fail(context, TT_ERR_REMOTE,
                        "%s sent what tutti never sends (%s %llu) over its connection (%s): "
                        "memory or network is faulty, or its tutti is another build",
                        name, what, (unsigned long long)value, tcp->route.text);
}

static tt_status take_credits(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    const uint64_t nslots = tcp->end->room->nslots;
    for (int i = 0; i < TT_FRAME_CREDITS; i++) {
        const struct tt_credits credits = frame->credits[i];
        if (!credits.number) continue;
        if (credits.channel >= tcp->end->nchannels)
            return tt_tcp_refuse(tcp, "credits of channel", credits.channel);
        struct tt_tcp_link *link = tt_tcp_link_at(tcp->end, true, credits.channel);
        if (link->allowed + credits.number - link->next > nslots)
            return tt_tcp_refuse(tcp, "credits", credits.number);
        link->allowed += credits.number;
    }
    return TT_OK;
}

static struct tt_arrival *arrival_of(const struct tt_tcp *tcp, const struct tt_frame *frame,
                                     uint64_t *number)
{
    struct tt_tcp_link *link = tt_tcp_link_at(tcp->end, false, frame->channel);
    *number = link->next + (frame->number - (uint32_t)link->next);
    return &link->arrivals[*number % tcp->end->room->nslots];
}

static tt_status check_message(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    const struct tt_tcp_end *end = tcp->end;
    if (end->no_data) return tt_tcp_refuse(tcp, "frame", frame->kind);
    if (frame->channel >= end->nchannels) return tt_tcp_refuse(tcp, "channel", frame->channel);
    const struct tt_tcp_link *link = tt_tcp_link_at(end, false, frame->channel);
    uint64_t number;
    const struct tt_arrival *arrival = arrival_of(tcp, frame, &number);
    if (frame->nbytes > link->link.slot_bytes) return tt_tcp_refuse(tcp, "length", frame->nbytes);
    if (number - link->next >= end->room->nslots || arrival->data ||
        &end->sockets[number % (uint64_t)end->nsockets] != tcp)
        return tt_tcp_refuse(tcp, "message number", frame->number);
    return TT_OK;
}

tt_status tt_tcp_check(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    TT_TRY(take_credits(tcp, frame));
    if (frame->kind == TT_FRAME_DATA) return check_message(tcp, frame);
    if (frame->kind != TT_FRAME_CREDIT) return tcp->end->room->owner->check(tcp, frame);
    return frame->nbytes ? tt_tcp_refuse(tcp, "length", frame->nbytes) : TT_OK;
}

tt_status tt_tcp_place(struct tt_tcp *tcp, const struct tt_frame *frame, char **to)
{
    *to = tcp->control;
    if (frame->kind != TT_FRAME_DATA) return TT_OK;
    uint64_t number;
    struct tt_arrival *arrival = arrival_of(tcp, frame, &number);
    struct tt_tcp_link *link = tt_tcp_link_at(tcp->end, false, frame->channel);
    const bool expected = number == link->next && link->expected &&
                          link->expected_nbytes == frame->nbytes &&
                          link->expected_signature == frame->signature;
    char *place = expected ? link->expected : tt_tcp_slot(link, number);
    if (!place) return TT_ERR_SYSTEM;
    *arrival =
        (struct tt_arrival){.data = place, .nbytes = frame->nbytes, .signature = frame->signature};
    *to = place;
    return TT_OK;
}

tt_status tt_tcp_take(struct tt_tcp *tcp, const struct tt_frame *frame, char *to)
{
    uint64_t number;
    if (frame->kind == TT_FRAME_DATA)
        arrival_of(tcp, frame, &number)->whole = true;
    else if (frame->kind != TT_FRAME_CREDIT)
        return tcp->end->room->owner->take(tcp->end->owner, tcp, frame, to);
    return TT_OK;
}
