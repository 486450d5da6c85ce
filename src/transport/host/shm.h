/* The link between two ranks of a host: slots in the host segment, and references to memory that
 * the receiver can address. */
#ifndef TT_TRANSPORT_SHM_H
#define TT_TRANSPORT_SHM_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/link.h"
#include "transport/host/segment.h"

struct tt_host_room;
enum { TT_CMA_MIN_BYTES = 256 * 1024 };

/* One end; which half is used depends on the end. Owned by the fabric. */
struct tt_shm_link {
    struct tt_link link;
    struct tt_host_room *room;
    int place;                 /* of the peer */
    struct tt_link_area *area; /* NULL: not opened yet */
    struct tt_flag *flags;     /* [flag_mask + 1]; of message n: (n - 1) & flag_mask */
    char *slots;               /* [nslots] */
    uint32_t flag_mask, nslots;
    uint64_t next; /* number of the message to publish, or to look at; from 1 */
    /* sender */
    uint64_t taken;      /* the receiver's counter when last read */
    uint64_t in_slots;   /* bit n mod 64: message n lies, or lay, in a slot */
    uint32_t slot;       /* the next one to fill */
    uint32_t slots_used; /* by messages that are not known to be released */
    bool same_process;
};

/* Opens this rank's end of the link to (outgoing) or from the rank at a place of this host. */
void tt_shm_open(struct tt_shm_link *link, struct tt_host_room *room, int place, int channel,
                 bool outgoing);

#endif
