/* The room of the ranks of one host: the segment they share, the links in it, and the memory of
 * the others that this rank reads in place. */
#ifndef TT_TRANSPORT_HOST_HOST_H
#define TT_TRANSPORT_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "transport/host/fdpass.h"
#include "transport/host/segment.h"
#include "transport/host/sleep.h"
#include "transport/room.h"
#include "transport/window.h"

struct tt_shown_window;

/* A rank of this host. */
struct tt_host_member {
    int rank, pid;
    bool same_process;   /* as this rank */
    uint64_t process_id; /* as tt_pid_watch_get takes it */
    uint64_t probe; /* the value of a word that a rank which may read this one's memory finds */
    struct tt_fd_address fd_address;
};

struct tt_host_config {
    uint64_t secret;     /* the communicator's: comes with each descriptor */
    uint64_t segment_id; /* random, of this host's segment */
    bool allow_window, allow_cma;
    bool oversubscribed;                  /* ranks of this host share cores */
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
    int spare;     /* tt_fdpass_reserve, until the segment has been passed; or -1 */
    uid_t user;    /* whose this process was at init: from others peers take no descriptor */
    int npassed;   /* at place 0: the places before this one have been passed the segment */

    struct tt_sleep sleep; /* has a lock of its own */

    /* owner: the thread that runs this rank's work */
    struct tt_shm_link *links;     /* [2][nlocal][nchannels]: outgoing, incoming; opened at first
                                    * use */
    struct tt_shared_store store;  /* how this rank stores what others read */
    uint64_t nreleased;            /* messages that this rank has released */
    struct tt_shown_window *shown; /* [nshown]: windows of this rank, by index */
    uint32_t nshown;
    uint64_t nlosses;              /* tt_window_losses, when the freed ones were last noted there */
    uint64_t nchanges;             /* tt_window_changes, when these were found: */
    struct tt_memory recent[2];    /* the last two windows that buffers lay in; no bytes: none */
    uint32_t ntaken;               /* the record's nshown when their descriptors were taken */
    struct tt_window_map *windows; /* [nlocal], made at first use: those of the other ranks */
    tt_status shortage;            /* why a window of another rank was not mapped, the latest */
    char shortage_text[256];
};

/* One end of a link: slots in the segment, and references to memory that the receiver can address.
 * The outgoing end uses the members under `sender`, the incoming end those under `receiver`. */
struct tt_shm_link {
    struct tt_link link;
    struct tt_host_room *room;
    int place;                 /* of the peer */
    struct tt_link_area *area; /* NULL: not opened yet */
    struct tt_sleep *sleep;    /* of this rank */
    struct tt_flag *flags;     /* [flag_mask + 1]; of message n: (n - 1) & flag_mask */
    char *slots;               /* [nslots] */
    uint32_t flag_mask, nslots;
    uint64_t next; /* number of the message to publish, or to look at; from 1 */
    /* sender */
    uint64_t taken;        /* the receiver's counter when last read */
    uint64_t in_slots;     /* bit n mod 64: message n is the last one put into its slot */
    uint32_t slot;         /* the next one to fill */
    uint32_t slots_used;   /* by messages that are not known to be released */
    uint32_t last_slot;    /* the one filled last */
    uint32_t nsharing;     /* messages that were put into last_slot */
    uint64_t shared_end;   /* where the next message of last_slot would lie among the slots */
    uint64_t last_in_slot; /* the number of the last message of last_slot */
    uint64_t released;     /* the room's nreleased when this rank last sent over this link */
    uint64_t awaited;      /* the last reference, or first message of a slot */
    bool claimed;          /* the next message goes to the receiver's post */
    bool same_process;
    /* receiver */
    uint64_t posted; /* number of the message that was posted last, 0: none */
    void *posted_to;
};

/* host.c. The room takes over fd_socket, also on failure; tt_host_fini ends it in every case. */
TT_NODISCARD tt_status tt_host_init(struct tt_host_room *room,
                                    const struct tt_room_context *context,
                                    const struct tt_host_config *config, int fd_socket);
/* By the rank at place 0: creates the segment, and passes it to the other processes as far as that
 * is possible at once. When one may not have it, this fails: all ranks learn that before they
 * attach. */
TT_NODISCARD tt_status tt_host_create(struct tt_host_room *room,
                                      const struct tt_segment_layout *layout);
/* Passes the segment to the processes that do not have it yet, or finds or receives it. The ranks
 * of several processes do this at the same time. TT_ERR_REMOTE: the process has died that passes
 * it. */
TT_NODISCARD tt_status tt_host_attach(struct tt_host_room *room, int64_t deadline_ns);
/* After all have attached: finds out whose memory may be read. */
void tt_host_finish(struct tt_host_room *room);
void tt_host_fini(struct tt_host_room *room);
/* Bytes of memory held, with this rank's share of the segment, which takes pages only where it is
 * touched. By the thread that runs this rank's work. */
size_t tt_host_bytes(const struct tt_host_room *room);

/* This rank's end of the link to or from a rank of this host. */
struct tt_link *tt_host_tx(struct tt_host_room *room, int peer, int channel);
struct tt_link *tt_host_rx(struct tt_host_room *room, int peer, int channel);

/* Whether the rank at a place may read this rank's memory with a system call. */
bool tt_host_may_read(const struct tt_host_room *room, int place);
/* "self", "shm + window", ... */
const char *tt_host_describe(const struct tt_host_room *room, int peer);

/* windows.c. Finds the window in which a buffer of this rank lies. */
void tt_host_find_memory(struct tt_host_room *room, const void *data, size_t nbytes,
                         struct tt_memory *memory);
/* Passes the buffer's window, if any, to the rank at a place, unless that has been done. */
void tt_host_introduce(struct tt_host_room *room, int place, const struct tt_memory *memory);
/* Whether the rank at a place knows the buffer's window, and [data, data + nbytes) lies in it. */
bool tt_host_is_known(const struct tt_host_room *room, int place, const struct tt_memory *memory,
                      const void *data, size_t nbytes);
/* Where a window of the rank at a place is mapped. TT_ERR_INTERNAL: it was not passed. */
TT_NODISCARD tt_status tt_host_find_window(struct tt_host_room *room, int place, uint64_t name,
                                           char **base, size_t *nbytes);
void tt_host_windows_fini(struct tt_host_room *room);
size_t tt_host_windows_bytes(const struct tt_host_room *room);

/* shm.c. Where [offset, offset + nbytes) of a window of the link's peer is mapped. */
TT_NODISCARD tt_status tt_shm_find_in_window(struct tt_shm_link *shm, uint64_t window,
                                             uint64_t offset, size_t nbytes, char **data);
static inline struct tt_shm_link *tt_shm_of(struct tt_link *link)
{
    return (struct tt_shm_link *)link->end;
}
/* posts.c */
extern const struct tt_post_ops tt_shm_posts;

/* shm.c: opens this rank's end of the link to (outgoing) or from the rank at a place. */
void tt_shm_open(struct tt_shm_link *link, struct tt_host_room *room, int place, int channel,
                 bool outgoing);

#endif
