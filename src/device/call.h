/* What the host gives to the kernel that runs collectives, and what the kernel reports. Plain data.
 * Compiles as C17, C++17 and CUDA.
 *
 * A call is a program and its binding (program/program.h) with buffers in device memory. Block b of
 * a call runs part b of the binding: channel b % nchannels of copy b / nchannels. One launch may
 * run calls of several ranks of a GPU. */
#ifndef TT_DEVICE_CALL_H
#define TT_DEVICE_CALL_H

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>

#include "device/kernel/fold.h"
#include "program/program.h"
#include "transport/device/end.h"

enum {
    TT_DEVICE_THREADS = 512,      /* of a block */
    TT_WARP = 32,                 /* threads */
    TT_DEVICE_MOST_CALLS = 8,     /* in one launch: they travel as the kernel's parameter */
    TT_DEVICE_MOST_PEERS = 64,    /* of one step; ranks of a meeting */
    TT_DEVICE_MOST_CHANNELS = 2,  /* of a program; so many blocks can run one copy of any */
    TT_DEVICE_MOST_ENDS = 256,    /* of one channel of a program */
    TT_DEVICE_MOST_COPIED = 40960 /* bytes of a program that is copied to shared memory; a longer
                                   * one is read where it lies */
};

enum tt_device_protocol {
    TT_PROTOCOL_SLOTS, /* a message is copied into a slot, or is a reference; head publishes it */
    TT_PROTOCOL_LINES, /* a message is lines; nothing else publishes it. Only where all pieces of a
                        * round fit line_bytes at both ends */
    TT_NPROTOCOLS
};

/* Why a call ended without its result. */
enum tt_device_failure {
    TT_DEVICE_FINE,
    TT_DEVICE_ABORTED,   /* the host said so */
    TT_DEVICE_MISMATCH,  /* the message of `peer` belongs to another call */
    TT_DEVICE_IMPOSSIBLE /* the program is none that the kernel runs: the host should have refused
                            it */
};

/* A program as kernels read it: memory of the device, or that the device can read, 16-byte aligned.
 * A link stands in the program's table once a use; its end has one counter, so each channel has a
 * list of its ends without repetition. The memory begins with uint16_t [nlinks], the place of each
 * link's end in its channel's list; further on are the lists and the program. */
struct tt_device_program {
    const char *memory;
    uint32_t ends_at; /* bytes; uint32_t [firsts[nchannels]]: tt_device_end_at() of copy 0; copy k
                       * is k * nchannels channels further on. A channel with meetings has all
                       * ends: of rank r, also of this one, the incoming at 2 * r, the outgoing at
                       * 2 * r + 1 */
    uint32_t program_at, nbytes; /* bytes before the program, of all: multiples of 16 */
    uint32_t nchannels;
    uint32_t firsts[TT_DEVICE_MOST_CHANNELS + 1]; /* where each channel's list begins */
    uint32_t unused;
};

/* Device memory of one rank. Owner: the kernels that run its calls, one after the other. */
struct tt_device_state {
    uint64_t nended;    /* calls that have ended since the communicator was made */
    uint64_t nreplayed; /* of them those of graphs that have a program and did not fail */
    uint64_t last;      /* the number of the last call that has ended and was none of a graph */
    uint64_t verdict;   /* of call n, counted from 1 as they end, by its first block: 2 * n + 1: it
                         * runs; 2 * n: it ends at once. Nobody resets it */
    uint32_t ended;     /* blocks of the present call that have ended */
    uint32_t failure;   /* enum tt_device_failure: the first of the communicator; later calls end at
                         * once */
};

/* Pinned host memory of one rank, mapped. All accesses of the kernel are of scope .sys. */
struct tt_device_report {
    /* Written by the host: 1: every wait ends; a rank that has sent references waits until nobody
     * reads its memory; 2 or 3: that wait ends too. In a cache line of its own */
    uint64_t abort;
    uint64_t closed; /* written by the host, of calls of graphs that begin later: 1: those with a
                      * program end at once; 2: all do */
    uint64_t unused[4];
    /* Of a failure, written by the kernel before `failure`: `captured` of the call that failed;
     * and `ended` before it: these calls have their results. If `replay` is 0, the next one failed
     */
    uint64_t replay, sound;
    /* Calls that have begun, ended, also those of graphs; written by the kernel */
    uint64_t nbegun, nended;
    uint32_t failure; /* enum tt_device_failure; written once, by the first block that fails */
    int32_t peer;     /* of the failure: a rank, or for whom was waited; -1: none */
    uint32_t channel, step; /* of the failure */
    /* The number of the last call that has begun, ended; calls of graphs leave them as they are */
    uint64_t begun, ended;
    /* Of graphs: twice the calls that have a program, have ended and did not fail, and 1 while one
     * with a program runs: one word, which is read whole */
    uint64_t replays;
    uint64_t captured; /* of the last call that has begun, as in the call */
};
static_assert(sizeof(struct tt_device_report) == 128, "two cache lines");

/* ---- Sends and receives -------------------------------------------------------------------------
 *
 * The sends and receives of a group are one call, an exchange. In place of a program it has flows.
 * A flow moves one part of each message to, or from, one peer, message after message; part 0 of
 * every message, and part p of those with more than p parts. All flows of a call move side by side,
 * also those that share a block: flow i is block i % nblocks's. So no flow waits for another.
 *
 * An exchange, and behind it its flows and messages, is memory that the device can read. */

enum {
    TT_DEVICE_MOST_FLOWS = 128, /* of a block */
    TT_DEVICE_PART_UNIT = 512,  /* parts of a message begin at multiples of it */
    TT_FLOW_PIECE = 1 << 20     /* bytes that a flow copies in one turn at most: others wait */
};

/* The signature of the messages of exchanges; no other call has this bit. */
#define TT_DEVICE_EXCHANGE_BIT (1u << 31)

/* Stands where the distance to the peer's address would: the peer has not opened that memory. */
#define TT_NOT_OPENED UINT64_MAX

/* A send, a receive, or both: a message to oneself. */
struct tt_device_transfer {
    char *data;         /* what is sent, or where it goes */
    const char *source; /* of a message to oneself: what is sent; else NULL */
    uint64_t nbytes;
    uint64_t nparts; /* the same at both ends, if nbytes is: >= 1 */
    uint64_t opened; /* of a send: plus the address at which it lies, that at which the peer reads
                      * it; or TT_NOT_OPENED */
};

struct tt_device_flow {
    uint32_t peer;
    uint32_t outgoing; /* 1: sends; of messages to oneself: 0 */
    uint32_t end;      /* tt_device_end_at(); UINT32_MAX: messages to oneself */
    uint32_t part;
    uint32_t first, number; /* of the messages with this peer: transfers first, first + 1, ... */
    uint32_t done; /* written by the kernel, scope .sys: 1: all are moved, and what was sent is
                    * received; a call of a graph begins with 0 */
    uint32_t unused;
    uint64_t sent, wanted; /* written by the kernel, before a MISMATCH whose step is the flow: bytes
                            * that the peer sends, UINT64_MAX: its message is another call's; that
                            * this rank receives */
};

struct tt_device_exchange {
    uint32_t nflows, ntransfers;
    uint64_t closed; /* of a call of a graph, written by the host: 1: it ends at once when it begins
                      * later, because a peer has left */
};

TT_INLINE struct tt_device_flow *tt_device_flows(struct tt_device_exchange *exchange)
{
    return (struct tt_device_flow *)(exchange + 1);
}
TT_INLINE struct tt_device_transfer *tt_device_transfers(struct tt_device_exchange *exchange)
{
    return (struct tt_device_transfer *)(tt_device_flows(exchange) + exchange->nflows);
}

/* Bytes of a part of a message, and where it begins. */
TT_INLINE uint64_t tt_device_part(const struct tt_device_transfer *transfer, uint32_t part,
                                  uint64_t *begin)
{
    const uint64_t nbytes = transfer->nbytes, unit = TT_DEVICE_PART_UNIT;
    *begin = 0;
    if (transfer->nparts == 1) return nbytes;
    const uint64_t most = (nbytes / transfer->nparts + unit) / unit * unit;
    *begin = most * part < nbytes ? most * part : nbytes;
    return nbytes - *begin < most ? nbytes - *begin : most;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* One rank's call. Blocks copy it by 16 bytes. */
struct tt_device_call {
    struct tt_device_program program;
    struct tt_binding binding;         /* with a table of blocks: as if that lay right behind it */
    const struct tt_own_block *blocks; /* the table, memory that the device can read; NULL: none */
    char *origin[3]; /* INPUT, OUTPUT: where element 0 of the global naming would lie; SCRATCH */
    /* INPUT, OUTPUT: as a transfer's `opened`, for each rank; memory that the device can read.
     * NULL: for nobody */
    const uint64_t *opened[2];
    struct tt_device_exchange *exchange; /* NULL: the call has a program; else it has none */
    struct tt_device_links links;
    struct tt_device_state *state;
    struct tt_device_report *report;
    const void *scalar; /* of a pre-multiplied sum, memory that the device can read; NULL: fold has
                         * its bytes */
    struct tt_fold fold;
    uint64_t reference_bytes; /* messages of at least so many bytes are sent by reference, where
                               * they can be */
    uint32_t protocol;        /* enum tt_device_protocol */
    uint32_t signature;       /* of the call, without its turn */
    uint32_t first_block, nblocks;
    uint32_t follows; /* 1: runs when the call before it in the launch has ended, on the same blocks
                       * from first_block on; that is the same rank's and has a number */
    uint32_t table_bytes; /* of `blocks` */
    uint64_t number;   /* of calls that are launched directly: 1, 2, ... in the order in which they
                        * run; of calls of graphs: 0 */
    uint64_t captured; /* which call of a graph it is, by the host's count, from 1; 0: it is none */
};
static_assert(sizeof(struct tt_device_call) % 16 == 0, "copied by 16 bytes");

/* The parameter of the kernel tutti_run. The runs (tt_device_run_end) have their blocks in the
 * order of their calls. */
struct tt_device_batch {
    alignas(16) uint32_t ncalls;
    uint32_t nthreads; /* of each block: a multiple of 32; 0: TT_DEVICE_THREADS */
    int32_t priority;  /* of the launch, as CUDA has it: the lower the more urgent; 0: ordinary */
    uint32_t nprobes;  /* where ncalls is 0: what the launch does */
    struct tt_device_probe *probes;
    uint64_t loads; /* of the probes: 1: loads each word, 0: stores it */
    struct tt_device_call calls[TT_DEVICE_MOST_CALLS];
};
static_assert(sizeof(struct tt_device_batch) <= 4096, "a kernel's parameters");

/* The run of calls that begins at `first`: those behind it that follow. It ends before this one. */
TT_INLINE uint32_t tt_device_run_end(const struct tt_device_batch *batch, uint32_t first)
{
    uint32_t end = first < batch->ncalls ? first + 1 : first;
    while (end < batch->ncalls && batch->calls[end].follows) end++;
    return end;
}

/* Blocks of a run: as many as any of its calls has. */
TT_INLINE uint32_t tt_device_run_blocks(const struct tt_device_batch *batch, uint32_t first,
                                        uint32_t end)
{
    uint32_t most = 0;
    for (uint32_t c = first; c < end; c++)
        if (batch->calls[c].nblocks > most) most = batch->calls[c].nblocks;
    return most;
}

#endif
