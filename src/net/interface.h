/* The network interfaces of this host, and which of them lead to other hosts. */
#ifndef TT_NET_INTERFACE_H
#define TT_NET_INTERFACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "net/socket.h"

enum { TT_MAX_INTERFACES = 8, TT_INTERFACE_NAME = 16 };

/* One address of an interface. Plain data. */
struct tt_interface {
    char name[TT_INTERFACE_NAME];
    struct tt_address address; /* port 0; never link-local; nbytes 0: it has none */
    uint32_t prefix;           /* bits of its subnet */
    uint32_t mtu, mbit;        /* as the kernel says; 0: unknown */
    bool running;              /* up, and the link is */
    bool loopback;
    bool container; /* the host's end of a container engine's network: the same on every host */
};

/* What is used between hosts: an address of each chosen interface, the best first. Plain data. */
struct tt_interfaces {
    int number; /* 0: there is none, nor was one asked for */
    struct tt_interface chosen[TT_MAX_INTERFACES];
    struct tt_address loopback; /* nbytes 0: none */
};

/* All there are, the fastest first, then by name, an interface's IPv4 addresses before its IPv6
 * ones. One without an address has one entry. The caller frees *list. TT_ERR_SYSTEM. */
TT_NODISCARD tt_status tt_interfaces_list(struct tt_interface **list, int *number);

/* Picks from a list ordered as above, at most one address an interface: those that `names`
 * (TUTTI_SOCKET_INTERFACE) allows and have an address of `family` (TUTTI_SOCKET_FAMILY); loopback
 * and container interfaces only when named. TT_ERR_ARGUMENT when a setting is malformed or asks
 * for something that is not there, with a list of what is. */
TT_NODISCARD tt_status tt_interfaces_select(struct tt_interfaces *interfaces,
                                            const struct tt_interface *list, int number,
                                            const char *names, const char *family);

/* The two together, with the settings in force. */
TT_NODISCARD tt_status tt_interfaces_choose(struct tt_interfaces *interfaces);

/* Whether there is what the settings ask for; fails like tt_interfaces_choose. */
TT_NODISCARD tt_status tt_interfaces_check(void);

/* The address at which other ranks reach this host, port 0: of the first that was chosen, else
 * loopback. Fails like tt_interfaces_choose. */
TT_NODISCARD tt_status tt_address_of_host(struct tt_address *address);

/* Whether a list of names ("eth,ib0": these and what begins so; "=eth0,ib0": just these; "^eth1",
 * "^=eth1": all others; "": all) allows this one. */
bool tt_names_allow(const char *names, const char *name);

#endif
