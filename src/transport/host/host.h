/* The room of the ranks of one host: the segment they share, the links in it, and the memory of
 * the others that this rank reads in place. */
#ifndef TT_TRANSPORT_HOST_HOST_H
#define TT_TRANSPORT_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/host/fdpass.h"
#include "transport/host/segment.h"
#include "transport/room.h"
#include "transport/window.h"

struct tt_shm_link;
struct tt_known_windows;

/* A rank of this host. */
struct tt_host_member {
    int rank, pid;
    bool same_process; /* as this rank */
    uint64_t probe;    /* the value of a word that a rank which may read this one's memory finds */
    struct tt_fd_address fd_address;
};

struct tt_host_config {
    uint64_t secret;     /* the communicator's: comes with each descriptor */
    uint64_t segment_id; /* random, of this host's segment */
    bool allow_window, allow_cma, force_cma;
    int nlocal, local;                    /* number of ranks of this host, and place of this one */
    const struct tt_host_member *members; /* [nlocal] by place, copied */
    const int32_t *place_of;              /* [nranks], borrowed: the place of a rank of this host */
};

/* Embedded in the fabric. */
struct tt_host_room {
    /* immutable after attach */
    const struct tt_room_context *context; /* borrowed */
    struct tt_host_config config;
    struct tt_segment *segment;
    int fd_socket; /* descriptors come here */

    /* owner: the thread that runs this rank's work */
    struct tt_shm_link *links;    /* [2][nlocal][TT_NCHANNELS]: outgoing, incoming; opened at first
                                   * use */
    struct tt_window_map windows; /* of the other ranks, as mapped here */
    struct tt_known_windows *known; /* [nlocal], made at first use: own windows that the other ranks
                                     * have been sent */
};

/* The room takes over fd_socket, also on failure; tt_host_fini ends it in every case. */
TT_NODISCARD tt_status tt_host_init(struct tt_host_room *room,
                                    const struct tt_room_context *context,
                                    const struct tt_host_config *config, int fd_socket);
/* By the rank at place 0: creates the segment. */
TT_NODISCARD tt_status tt_host_create(struct tt_host_room *room,
                                      const struct tt_segment_layout *layout);
/* Passes the segment to the other processes, or finds or receives it. The ranks of several
 * processes do this at the same time. */
TT_NODISCARD tt_status tt_host_attach(struct tt_host_room *room, int64_t deadline_ns);
/* After all have attached: finds out whose memory may be read. */
void tt_host_finish(struct tt_host_room *room);
void tt_host_fini(struct tt_host_room *room);

/* This rank's end of the link to or from a rank of this host. */
struct tt_link *tt_host_tx(struct tt_host_room *room, int peer, int channel);
struct tt_link *tt_host_rx(struct tt_host_room *room, int peer, int channel);

/* Whether the rank at a place may read this rank's memory with a system call. */
bool tt_host_may_read(const struct tt_host_room *room, int place);
/* Makes sure that the rank at a place has been sent the window's descriptor. False: it cannot be
 * now. */
bool tt_host_introduce(struct tt_host_room *room, int place, const struct tt_window *window);
/* "self", "shm + window", ... */
const char *tt_host_describe(const struct tt_host_room *room, int peer);

#endif
