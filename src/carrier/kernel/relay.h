/* Relays: the links of a rank on a GPU with ranks without one. Such a link is the ordinary one of
 * the two ranks on the same channel. Its end at the rank without a GPU is the host's, which knows
 * nothing of kernels. At the other rank the kernel has an end in pinned memory
 * (transport/device/end.h), and who moves is the other party there:
 *
 *   kernel -> slots, head | who moves -> messages -> the host
 *   kernel <- slots, head | who moves <- messages <- the host
 *
 * The host of this rank may use the same link, for a call on memory of the host. So messages are
 * moved only for calls that have begun, as many as these have: a call of the host finds the link
 * where the kernel before it has left it, and what is of a later call waits in the link.
 *
 * Nothing here waits. One thread at a time: who has entered the engine. */
#ifndef TT_CARRIER_KERNEL_RELAY_H
#define TT_CARRIER_KERNEL_RELAY_H

#include "carrier/kernel/bridge.h"

/* The relays of a rank. */
struct tt_relays;

/* The end of a link, as this rank has it. */
struct tt_relay_place {
    int peer, channel;
    bool outgoing;
};

TT_NODISCARD tt_status tt_relays_create(struct tt_relays **relays,
                                        const struct tt_bridge_shape *shape);
/* The memory of the ends is the caller's. NULL is allowed. */
void tt_relays_destroy(struct tt_relays *relays);

/* Whether the end is bound. */
bool tt_relays_has(const struct tt_relays *relays, const struct tt_relay_place *place);
/* Lays an end out in memory, which is tt_bridge_bytes, zeroed: *end is for the kernels. */
void tt_relays_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory,
                   struct tt_device_end *end);
/* Binds an end as it was laid out to the ordinary link. The last channel is of exchanges. SYSTEM:
 * out of memory, and nothing is bound. */
TT_NODISCARD tt_status tt_relays_bind(struct tt_relays *relays, const struct tt_relay_place *place,
                                      struct tt_link *link, const struct tt_device_end *laid);
/* Messages of a kernel's link that hold a send of so many bytes. */
uint64_t tt_relay_messages(const struct tt_bridge_shape *shape, size_t nbytes);
/* A call has begun that has so many messages on the link, which is bound. */
void tt_relays_grant(struct tt_relays *relays, const struct tt_relay_place *place,
                     uint64_t nmessages);
/* Whether all messages of calls that have begun are moved. */
bool tt_relays_have_moved(const struct tt_relays *relays, const struct tt_relay_place *place);
/* Moves what can be moved. TT_OK: something was; TT_IN_PROGRESS: nothing; else a link has failed,
 * or a rank has sent what kernels do not take. */
tt_status tt_relays_move(struct tt_relays *relays);
/* Whether what kernels have published can be moved and is not, or is not yet on its way. */
bool tt_relays_have_work(const struct tt_relays *relays);
/* Whether all messages of the collectives, or exchanges, that have begun are on their way. */
bool tt_relays_have_sent(const struct tt_relays *relays, bool of_exchanges);

#endif
