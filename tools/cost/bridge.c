/* Messages between hosts: a kernel, the proxy of its rank, the network, the proxy of the other
 * rank, the other kernel (src/carrier/kernel/bridge.h). A proxy does one thing at a time, in the
 * order in which it can begin. */
#include <math.h>

#include "base/config.h"
#include "cost/world.h"

/* FRAME_BYTES: the head of a frame (struct tt_bridge_frame of src/carrier/kernel). HEAD_BYTES: a
 * slot's room for that (TT_BRIDGE_HEAD_BYTES of src/transport/link.h). */
enum { FRAME_BYTES = 32, HEAD_BYTES = 64 };

static double constant(enum cost_key key)
{
    return cost_constants[key].value;
}

static const struct cost_link *net_of(const struct cost_world *world)
{
    return world->call->between;
}

/* us for so many bytes; a constant that the link does not have costs nothing. */
static double bytes_us(const struct cost_constant *constant, double nbytes)
{
    return constant->name ? nbytes / (constant->value * 1e3) : 0;
}

static void push(struct cost_world *world, const struct cost_event *event,
                 enum cost_event_kind kind, double at)
{
    struct cost_event next = *event;
    next.kind = kind;
    next.at = at;
    if (kind == COST_COME || kind == COST_TOLD) {
        next.rank = event->peer;
        next.peer = event->rank;
    }
    cost_events_push(&world->events, &next);
}

/* ---- The proxy ------------------------------------------------------------------------------ */

/* Frames of a message: a slot of the channel for bridges has room for the frame's head besides
 * (TT_BRIDGE_HEAD_BYTES). A message whose bytes move between memories of GPUs is one frame. */
static double frames_of(const struct cost_world *world, double nbytes)
{
    const double room = (double)tt_config_int(TT_CONFIG_SLOT_BYTES) + HEAD_BYTES - FRAME_BYTES;
    return net_of(world)->direct ? 1 : fmax(1, ceil(nbytes / room));
}

static double frame_us(const struct cost_world *world)
{
    return constant(COST_PROXY_FRAME) + net_of(world)->at[COST_FENCE].value;
}

/* The proxy's time for a message; from_slot: it sends. */
static double message_us(const struct cost_world *world, double nbytes, bool sends)
{
    const struct cost_link *net = net_of(world);
    const double frames = frames_of(world, nbytes) * frame_us(world);
    if (net->direct) return frames + net->at[COST_FENCE].value; /* the bytes, or the flush */
    return frames + bytes_us(&cost_constants[COST_PROXY_COPY], nbytes) +
           bytes_us(&net->at[sends ? COST_BYTES_OUT : COST_BYTES_IN], nbytes);
}

/* Returns when the proxy has done it. */
static double work(struct cost_world *world, int rank, double at, double us)
{
    struct cost_rank *of = &world->ranks[rank];
    of->proxy = fmax(of->proxy, at) + us;
    of->busy.proxy_us += us;
    return of->proxy;
}

/* ---- The network ---------------------------------------------------------------------------- */

static struct cost_rank *device_of(const struct cost_world *world, int rank)
{
    const struct tt_hosts *hosts = world->call->hosts;
    if (net_of(world)->each) return &world->ranks[rank];
    return &world->ranks[hosts->ranks[hosts->begin[hosts->host_of[rank]]]];
}

static double wire_us(const struct cost_world *world, double nbytes)
{
    return bytes_us(&net_of(world)->at[COST_BANDWIDTH],
                    nbytes + FRAME_BYTES * frames_of(world, nbytes));
}

/* The first bytes come while the last ones leave. */
static void leave(struct cost_world *world, const struct cost_event *event)
{
    struct cost_rank *device = device_of(world, event->rank);
    const double begin = fmax(device->net_out, event->at);
    device->net_out = begin + wire_us(world, event->nbytes);
    device->busy.net_out_us += wire_us(world, event->nbytes);
    world->ranks[event->rank].busy.net_bytes += event->nbytes;
    push(world, event, COST_COME, begin + net_of(world)->at[COST_LATENCY].value);
}

static void come(struct cost_world *world, const struct cost_event *event)
{
    struct cost_rank *device = device_of(world, event->rank);
    device->net_in = fmax(device->net_in, event->at) + wire_us(world, event->nbytes);
    device->busy.net_in_us += wire_us(world, event->nbytes);
    push(world, event, COST_TAKE, device->net_in);
}

/* ---- Messages ------------------------------------------------------------------------------- */

void cost_bridge_publish(struct cost_world *world, int from, int to, int channel,
                         unsigned long long number, double at)
{
    struct cost_slot *slot = cost_slot_of(world, from, to, channel, number);
    const struct cost_event event = {
        .rank = from, .peer = to, .channel = channel, .number = number, .nbytes = slot->nbytes};
    slot->arrives = INFINITY;
    push(world, &event, COST_SEND, at + constant(COST_HOST_FLAG));
}

void cost_bridge_release(struct cost_world *world, int from, int to, int channel,
                         unsigned long long number, double at)
{
    const struct cost_event event = {
        .rank = to, .peer = from, .channel = channel, .number = number};
    push(world, &event, COST_TELL, at + constant(COST_HOST_FLAG));
}

static void take(struct cost_world *world, const struct cost_event *event)
{
    const double us = message_us(world, event->nbytes, false);
    const double at = work(world, event->rank, event->at, us) +
                      net_of(world)->at[COST_FLUSH].value + constant(COST_HOST_FLAG);
    cost_slot_of(world, event->peer, event->rank, event->channel, event->number)->arrives = at;
    cost_wake(world, event->rank, event->channel, at);
}

static void told(struct cost_world *world, const struct cost_event *event)
{
    const int from = event->rank, to = event->peer, channel = event->channel;
    struct cost_wire *wire = cost_wire_of(world, from, to, channel);
    const double at = work(world, from, event->at, frame_us(world)) + constant(COST_HOST_FLAG);
    while (wire->told < event->number)
        cost_slot_of(world, from, to, channel, wire->told++)->released = at;
    cost_wake(world, from, channel, at);
}

void cost_bridge_go_on(struct cost_world *world, const struct cost_event *event)
{
    switch (event->kind) {
    case COST_SEND:
        push(world, event, COST_LEAVE,
             work(world, event->rank, event->at, message_us(world, event->nbytes, true)));
        return;
    case COST_LEAVE:
        leave(world, event);
        return;
    case COST_COME:
        come(world, event);
        return;
    case COST_TAKE:
        take(world, event);
        return;
    case COST_TELL:
        push(world, event, COST_TOLD,
             work(world, event->rank, event->at, frame_us(world)) +
                 net_of(world)->at[COST_LATENCY].value);
        return;
    case COST_TOLD:
        told(world, event);
        return;
    case COST_GO_ON:
        return;
    }
}
