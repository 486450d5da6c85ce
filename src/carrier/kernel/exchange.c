/* Exchanges: the sends and receives of a group, carried out by a kernel. */
#include "carrier/kernel/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* A rank that is gone may have done its part, and this rank's kernel not have seen it yet. */
enum { GONE_MS = 2000 };

enum { MOST_LISTED = 4 };

void tt_exchange_release(struct tt_group_exchange *exchange)
{
    if (atomic_fetch_sub_explicit(&exchange->nworks, 1, memory_order_acq_rel) > 1) return;
    /* acquire: take_back of ring.c */
    if (exchange->held) atomic_store_explicit(exchange->held, 0, memory_order_release);
    free(exchange);
}

void tt_exchange_describe(const struct tt_group_exchange *exchange, char *text, size_t size)
{
    const struct tt_exchange_call *call = &exchange->calls[0];
    if (exchange->ncalls == 1)
        snprintf(text, size, "%s %d (%zu bytes) on a GPU", call->sends ? "send to" : "receive from",
                 call->peer, call->nbytes);
    else
        snprintf(text, size, "a group of %d sends and receives on a GPU", exchange->ncalls);
}

/* Whether the kernel has done the flow; it is written by the GPU. */
static bool is_done(const struct tt_device_flow *flow)
{
    return __atomic_load_n(&flow->done, __ATOMIC_ACQUIRE);
}

/* The first flow, from `from` on, of a peer that has not done its part; NULL: there is none. Any
 * part of a message may be the last one: a peer may be gone between the parts. */
static const struct tt_device_flow *next_missing(const struct tt_group_exchange *exchange,
                                                 const struct tt_fabric *fabric, uint32_t from)
{
    struct tt_device_exchange *table = exchange->table;
    for (uint32_t i = from; table && i < table->nflows; i++) {
        const struct tt_device_flow *flow = &tt_device_flows(table)[i];
        if (flow->peer != (uint32_t)fabric->rank && !is_done(flow)) return flow;
    }
    return NULL;
}

/* The first flow with another peer or direction: the parts of messages follow one another. */
static uint32_t after(const struct tt_group_exchange *exchange, const struct tt_device_flow *flow)
{
    struct tt_device_exchange *table = exchange->table;
    const struct tt_device_flow *flows = tt_device_flows(table);
    uint32_t i = (uint32_t)(flow - flows) + 1;
    while (i < table->nflows && flows[i].part) i++;
    return i;
}

/* Whether the flow's next message waits for an earlier call of this rank. */
static bool is_behind(const struct tt_group_exchange *exchange, const struct tt_device_flow *flow)
{
    bool waits = false;
    for (int i = 0; i < exchange->ncalls; i++) {
        const struct tt_exchange_call *call = &exchange->calls[i];
        if (call->peer != (int)flow->peer || call->sends != (bool)flow->outgoing || !call->turn)
            continue;
        if (call->is_granted) return false;
        waits = true;
    }
    return waits;
}

bool tt_exchange_is_behind(const struct tt_group_exchange *exchange, const struct tt_fabric *fabric)
{
    const struct tt_device_flow *flow = next_missing(exchange, fabric, 0);
    if (!flow) return false;
    for (; flow; flow = next_missing(exchange, fabric, after(exchange, flow)))
        if (!is_behind(exchange, flow)) return false;
    return true;
}

/* Whether a message is in the host's link from the peer: it was sent from memory of the host. */
static bool has_sent_on_host(struct tt_fabric *fabric, int peer)
{
    struct tt_message message;
    struct tt_link *link = tt_fabric_rx(fabric, peer, tt_fabric_p2p_channel(fabric));
    return link->ops->peek(link, &message) == TT_OK;
}

void tt_exchange_missing(const struct tt_group_exchange *exchange, struct tt_fabric *fabric,
                         char *text, size_t size)
{
    const struct tt_device_flow *flow = next_missing(exchange, fabric, 0);
    size_t used = 0;
    int n = 0;
    text[0] = '\0';
    for (; flow && used < size; flow = next_missing(exchange, fabric, after(exchange, flow))) {
        char name[128];
        if (n++ >= MOST_LISTED) continue;
        tt_fabric_name_rank(fabric, (int)flow->peer, name, sizeof name);
        if (is_behind(exchange, flow)) {
            used += (size_t)snprintf(text + used, size - used,
                                     "; its messages %s %s wait for an earlier %s of this rank",
                                     flow->outgoing ? "to" : "from", name,
                                     flow->outgoing ? "send" : "receive");
            continue;
        }
        const bool elsewhere = !flow->outgoing && !tt_fabric_is_relayed(fabric, (int)flow->peer) &&
                               has_sent_on_host(fabric, (int)flow->peer);
        used += (size_t)snprintf(text + used, size - used, "; %s has not yet %s%s", name,
                                 flow->outgoing ? "received all that this rank sends"
                                                : "sent all that this rank receives",
                                 elsewhere ? " on a GPU, but something in memory of the host" : "");
    }
    if (n > MOST_LISTED && used < size)
        snprintf(text + used, size - used, "; %d more have not", n - MOST_LISTED);
}

tt_status tt_exchange_mismatch(const struct tt_group_exchange *exchange, struct tt_fabric *fabric,
                               const struct tt_device_report *report)
{
    const struct tt_device_flow *flow = &tt_device_flows(exchange->table)[report->step];
    char sender[128], receiver[128];
    tt_fabric_name_rank(fabric, (int)flow->peer, sender, sizeof sender);
    tt_fabric_name_rank(fabric, fabric->rank, receiver, sizeof receiver);
    if (flow->sent == UINT64_MAX)
        return tt_fabric_fail(fabric, TT_ERR_USAGE,
                              "%s receives %llu bytes from %s, whose next message is a "
                              "collective's: issue sends, receives and collectives in the same "
                              "order on both",
                              receiver, (unsigned long long)flow->wanted, sender);
    return tt_fabric_fail(fabric, TT_ERR_USAGE,
                          "%s sends %llu bytes, %s receives %llu bytes: give both the same count",
                          sender, (unsigned long long)flow->sent, receiver,
                          (unsigned long long)flow->wanted);
}

static bool is_gone(const struct tt_fabric *fabric, int peer)
{
    /* release: tt_fabric_leave, tt_fabric_abort */
    const uint32_t state =
        atomic_load_explicit(&tt_fabric_record(fabric, peer)->state, memory_order_acquire);
    return state == TT_RANK_LEFT || state == TT_RANK_ABORTED || tt_fabric_lost(fabric, peer) ||
           tt_fabric_is_dead(fabric, peer);
}

static tt_status fail_gone(struct tt_fabric *fabric, int peer)
{
    /* release: tt_fabric_leave, tt_fabric_abort */
    const uint32_t state =
        atomic_load_explicit(&tt_fabric_record(fabric, peer)->state, memory_order_acquire);
    const bool left = state == TT_RANK_LEFT, aborted = state == TT_RANK_ABORTED;
    const char *lost = tt_fabric_lost(fabric, peer);
    if (lost && !left && !aborted) return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s", lost);
    char name[128];
    tt_fabric_name_rank(fabric, peer, name, sizeof name);
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s %s", name,
                          aborted ? "aborted the communicator"
                          : left  ? tt_fabric_how_left(fabric, peer)
                                  : tt_fabric_how_dead(fabric, peer));
}

/* A rank that is gone and has not done its part: the one whose time runs, if it is such a rank; -1:
 * there is none. */
static int find_gone(const struct tt_group_exchange *exchange, struct tt_fabric *fabric,
                     const struct tt_exchange_grace *grace)
{
    const struct tt_device_flow *flow = next_missing(exchange, fabric, 0);
    int gone = -1;
    for (; flow; flow = next_missing(exchange, fabric, after(exchange, flow))) {
        const int peer = (int)flow->peer;
        /* What a rank without a GPU has sent stays in its link until the kernel has begun. */
        const bool has_come =
            !flow->outgoing && tt_fabric_is_relayed(fabric, peer) && has_sent_on_host(fabric, peer);
        if (has_come || !is_gone(fabric, peer)) continue;
        if (grace->until_ns && peer == grace->peer) return peer;
        if (gone < 0) gone = peer;
    }
    return gone;
}

tt_status tt_exchange_check(const struct tt_group_exchange *exchange, struct tt_fabric *fabric,
                            struct tt_exchange_grace *grace)
{
    const int gone = find_gone(exchange, fabric, grace);
    if (gone < 0)
        *grace = (struct tt_exchange_grace){.until_ns = 0};
    else if (!grace->until_ns || gone != grace->peer)
        *grace = (struct tt_exchange_grace){tt_deadline_ns(GONE_MS), gone};
    return gone >= 0 && tt_expired(grace->until_ns) ? fail_gone(fabric, gone) : TT_OK;
}
