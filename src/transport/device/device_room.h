/* Links between the ranks of a host that have GPUs: device memory of each rank, shared with the
 * ranks that send to it: by its address inside a process, by CUDA's IPC between processes.
 * The ends of links with ranks of other hosts begin zeroed; they may be bound to other memory.
 *
 * Creation, in steps between which the caller exchanges offers and statuses, so that all ranks fail
 * together: offer, connect, (agree,) destroy after all ranks have stopped using the links. */
#ifndef TT_TRANSPORT_DEVICE_ROOM_H
#define TT_TRANSPORT_DEVICE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/status.h"
#include "transport/device/end.h"

struct tt_device_room;

/* Bytes of device memory of a rank, and of one slot and the lines of one message. */
enum { TT_DEVICE_BUDGET = 256 << 20, TT_DEVICE_LEAST_BYTES = 1024 };

struct tt_device_room_config {
    int gpu;
    int rank, nranks, nchannels; /* channels: of two ranks, as end.h counts them */
    size_t nslots, slot_bytes, line_bytes;
    uint64_t process_id; /* random, one per process: equal means same address space */
    uint64_t id;         /* of the ranks of this host, the same on all of them */
    /* Borrowed; NULL: all ranks are of one host. A rank without a GPU counts as alone on its host
     */
    const struct tt_hosts *hosts;
    bool one_process; /* all ranks are in this process: the memory is not opened to others */
};

/* What the other ranks must know; travels through bootstrap. Plain data. */
struct tt_device_offer {
    int32_t gpu; /* number in its process; -1: this rank has no GPU */
    /* Filled in by the caller: */
    int32_t capacity; /* blocks of a kernel that the GPU runs at the same time for this process */
    int32_t uses_mps; /* the process is a client of NVIDIA's MPS */
    int32_t takes_slots; /* its devices to other hosts use memory of the GPU in place */
    uint64_t opener;     /* a number of the thread that makes the rank, in its process */
    uint32_t nslots, slot_bytes, line_bytes, nchannels;
    uint64_t process_id;
    uint8_t uuid[16]; /* of the GPU */
    uint64_t memory;  /* address of the rank's memory in its process */
    uint64_t nbytes;
    uint8_t handle[64]; /* CUipcMemHandle */
};

/* Allocates this rank's memory: the slots, lines, heads, notes of what it receives, the tails
 * of what it sends, and its table of ends. With n = (ranks of the host - 1) * nchannels links in
 * each direction that is n * (nslots * (slot_bytes + line_bytes + 32) + 256) + nranks * nchannels *
 * 128
 *     + nchannels * nslots * slot_bytes (places for meetings)
 * bytes and roundings. Where that exceeds TT_DEVICE_BUDGET, slots and lines are made smaller, down
 * to TT_DEVICE_LEAST_BYTES, and then fewer, down to 2 (on all ranks alike: by these numbers, of the
 * host with most ranks). USAGE: a setting is impossible. SYSTEM: out of device memory (says what
 * for, how much, how much is free). */
TT_NODISCARD tt_status tt_device_room_offer(struct tt_device_room **room,
                                            const struct tt_device_room_config *config,
                                            struct tt_device_offer *mine);
/* Opens the memory of all others of this host: offers[nranks]. USAGE: a rank of this host has no
 * GPU, two ranks' settings differ (names both), or a GPU cannot access a peer's memory (names
 * both). After a failure only destroy may follow. */
TT_NODISCARD tt_status tt_device_room_connect(struct tt_device_room *room,
                                              const struct tt_device_offer *offers);
/* The test of the mappings, after connect and before the links are used. Each rank stores words to
 * its own memory and, by the address that its kernels use, to that of each rank on another GPU or
 * in another process. When all ranks have done so, each loads what the others stored to its memory,
 * and, by these addresses, what they stored to their own: a word of each channel in both
 * directions. tt_device_room_probes fills probes[0 .. its result) for one of the two; at most
 * tt_device_room_most_probes(), 0: there is nothing to test. */
size_t tt_device_room_most_probes(const struct tt_device_room *room);
size_t tt_device_room_probes(const struct tt_device_room *room, bool loads,
                             struct tt_device_probe *probes);
/* After the probes of the second kind were loaded. USAGE: a word is wrong; the text names both
 * ranks and GPUs, how they are connected, where the word lies, what it is, and what to do. */
TT_NODISCARD tt_status tt_device_room_check_probes(const struct tt_device_room *room,
                                                   const struct tt_device_probe *probes);
const struct tt_device_links *tt_device_room_links(const struct tt_device_room *room);
/* How many ranks have the same GPU as this one, in all processes, with this one. */
int tt_device_room_sharers(const struct tt_device_room *room);
/* "device memory", "device memory by IPC", "peer access to GPU 1", "peer access to GPU 1 by IPC" (a
 * number in the peer's process), "pinned memory" (of another host): how messages reach a peer. */
void tt_device_room_describe(const struct tt_device_room *room, int peer, char *text, size_t size);
/* How far the peer's GPU is from this rank's (enum tt_distance). */
int tt_device_room_distance(const struct tt_device_room *room, int peer);
/* Bytes of device memory held. */
size_t tt_device_room_bytes(const struct tt_device_room *room);
/* Closes the others' memory and frees its own; nobody may use it any more. NULL is allowed. */
void tt_device_room_destroy(struct tt_device_room *room);

#endif
