/* Host names to addresses, under a deadline. */
#ifndef TT_NET_RESOLVE_H
#define TT_NET_RESOLVE_H

#include <stdint.h>

#include "base/status.h"
#include "net/socket.h"

/* The address (port 0) of a host's name, or of an address as text; IPv4 where there is a choice, so
 * that all ranks choose alike. `of` says in errors where the name came from. A name is looked up by
 * a thread of its own, because getaddrinfo cannot be interrupted: TT_ERR_TIMEOUT when the deadline
 * (absolute, base/clock.h) comes first; the thread then ends when getaddrinfo does, and frees what
 * it has. TT_ERR_SYSTEM when the name is unknown. Any thread. */
TT_NODISCARD tt_status tt_resolve_host(struct tt_address *address, const char *host, const char *of,
                                       int64_t deadline_ns);

#endif
