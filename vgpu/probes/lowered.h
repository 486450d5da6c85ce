/* What the host and the kernel of the probe `lowered` share: ranks of one GPU, their links, the
 * protocols. Compiles as C17 and CUDA. */
#ifndef GPU_PROBES_LOWERED_H
#define GPU_PROBES_LOWERED_H

#include <stdint.h>

#include "program/program.h"

/* How a message crosses a link. */
enum protocol {
    SLOTS,    /* copied into a slot; the counter of messages is the flag */
    DIRECT,   /* by reference where the sent data lies in one piece of memory, else as SLOTS */
    LINES8,   /* lines of 8 bytes: 4 of data, 4 of flag, one access of 8 bytes */
    LINES16,  /* lines of 16 bytes: 8 of data, 8 of flag, one b128 access */
    LINES16D, /* lines of 16 bytes: 12 of data, 4 of flag, one b128 access */
    NPROTOCOLS
};

enum { MOST_PEERS = 8, MOST_ENDS = 32, DEPTH = 4, THREADS = 512 };

/* Elements of 4 bytes in a line, and bytes of a line. */
TT_INLINE uint32_t line_elements(int protocol)
{
    return protocol == LINES8 ? 1 : protocol == LINES16 ? 2 : 3;
}
TT_INLINE uint32_t line_bytes(int protocol)
{
    return protocol == LINES8 ? 8 : 16;
}

/* One end of a link, on one channel of one copy. head and tail count messages for ever. */
struct link_end {
    char *slots;          /* [DEPTH][slot_bytes] */
    uint64_t *references; /* [DEPTH]: memory of the sender; 0: the message is in the slot */
    uint32_t *head;       /* messages that were sent; written by the sender */
    uint32_t *tail;       /* messages that were taken; written by the receiver */
    uint32_t count;       /* of this end; kept from launch to launch */
    uint32_t known_tail;  /* outgoing: as last read */
    uint32_t outgoing, unused;
};

/* One rank. ends: [copies][nends]; end_of: [nlinks], the end of each entry of the program's table
 * of links. */
struct rank_view {
    const struct tt_program *program;
    const struct tt_binding *binding;
    const char *input; /* less binding->skipped */
    char *output, *scratch;
    struct link_end *ends;
    const uint16_t *end_of;
    uint32_t nends;
    uint32_t slot_bytes;
};

#endif
