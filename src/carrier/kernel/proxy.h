/* The proxy: the thread of a communicator that moves messages over the bridges and relays of its
 * kernels (bridge.h, relay.h). It moves only while nobody else has entered the engine, never calls
 * the driver, and looks at no deadline: the attendant does.
 *
 * An end takes memory (ends.h) when the first call that uses it is issued. */
#ifndef TT_CARRIER_KERNEL_PROXY_H
#define TT_CARRIER_KERNEL_PROXY_H

#include "carrier/carrier.h"
#include "carrier/kernel/ends.h"
#include "carrier/kernel/relay.h"
#include "transport/device/device_room.h"

struct tt_proxy;

/* For a communicator whose fabric has a channel for bridges, and knows whether its ranks are mixed.
 * The room and the ends are borrowed. offers: [nranks]. */
TT_NODISCARD tt_status tt_proxy_create(struct tt_proxy **proxy, struct tt_comm_core *comm,
                                       struct tt_device_room *room, struct tt_ends *ends,
                                       const struct tt_device_offer *offers);
/* How kernels reach other hosts, as the ranks' offers say: the same on every rank. NULL is allowed.
 */
enum tt_bridge_way tt_proxy_way(const struct tt_proxy *proxy);
/* The ends of bridges that so many copies of a program use. By the issuing thread. SYSTEM: out of
 * memory, or of threads. */
TT_NODISCARD tt_status tt_proxy_bind_program(struct tt_proxy *proxy,
                                             const struct tt_program *program, int copies);
/* The ends of bridges and relays among these uses, of which no two are equal and some may be of
 * ranks that reach this one's device memory. By the issuing thread. */
TT_NODISCARD tt_status tt_proxy_bind(struct tt_proxy *proxy, const struct tt_relay_place *uses,
                                     int nuses);
/* A collective has begun, in its turn: what it has on relays may be moved. By who has entered the
 * engine. */
void tt_proxy_grant_program(struct tt_proxy *proxy, const struct tt_program *program,
                            const struct tt_binding *binding);
/* A message to, or from, a rank without a GPU has its turn, and may be moved. By who has entered
 * the engine. */
void tt_proxy_grant_send(struct tt_proxy *proxy, int peer, bool outgoing, size_t nbytes);
/* Whether all such messages so far are moved. */
bool tt_proxy_has_moved(const struct tt_proxy *proxy, int peer, bool outgoing);
/* A call is going to be launched. Any thread. */
void tt_proxy_wake(struct tt_proxy *proxy);
/* No call comes any more. */
void tt_proxy_end(struct tt_proxy *proxy);
/* After tt_proxy_end: whether the rank, of another host or without a GPU, has taken all that this
 * one has sent, or is gone. */
bool tt_proxy_has_ended(struct tt_proxy *proxy, int rank);
/* Whether all that kernels had published is on its way which was marked (bridge.h): at the first
 * look, with *has_marked false. By who has entered the engine. */
bool tt_proxy_has_sent(struct tt_proxy *proxy, enum tt_bridge_mark mark, bool *has_marked);
/* Whether all collectives of replays that have ended are on their way: counts in the fabric how
 * many are, which other hosts are told. By who has entered the engine, while kernels may run. */
bool tt_proxy_has_sent_replays(struct tt_proxy *proxy);
/* Nothing is moved any more when this returns. NULL is allowed. */
void tt_proxy_stop(struct tt_proxy *proxy);
/* Stops, and frees. NULL is allowed. */
void tt_proxy_destroy(struct tt_proxy *proxy);

#endif
