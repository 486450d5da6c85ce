/* Bootstrap: how ranks find each other, and how they gather small messages before there are links.
 *
 * A rank shows up at the root's address, learns where its parent in a tree of fan-out 8 listens,
 * and from then on talks to its parent and children only. Every connection first proves that it
 * knows the unique id's key, both ways. */
#ifndef TT_BOOTSTRAP_BOOTSTRAP_H
#define TT_BOOTSTRAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A unique id as it travels; fits tuttiUniqueId (128 bytes). */
struct tt_unique_id {
    uint32_t magic, version;
    uint8_t key[32];     /* secret of this communicator's bootstrap (libsodium) */
    uint8_t address[28]; /* struct sockaddr_in or sockaddr_in6 of the root's listener */
    uint32_t address_bytes;
    uint32_t flags;    /* TT_ID_... */
    uint32_t nports;   /* the root listens at one of so many, from that of address on; 0 means 1 */
    uint64_t sequence; /* TT_ID_AWAIT: drawn by rank 0's process, for this communicator; else 0 */
    uint8_t base[32];  /* TT_ID_AWAIT: from it and the sequence comes the key */
    uint8_t reserved[8];
};

enum {
    /* The root may not listen yet (env://, tcp://): try again until the deadline. */
    TT_ID_AWAIT = 1,
    /* All ranks are on this host: listen on the loopback interface only. */
    TT_ID_LOCAL = 2,
    /* Holds no address: NCCL_COMM_ID does (tt_unique_id_settle). */
    TT_ID_BY_SETTING = 4,
    /* Sequence and key are not known yet: each rank takes those of the root that it meets at the
     * address. The ids of TT_ID_AWAIT begin so, other than in rank 0's process. */
    TT_ID_UNMET = 8,
};

/* One rank's place in the tree. Owned by its creator, freed by tt_bootstrap_destroy. Used by one
 * thread at a time. */
struct tt_bootstrap;

/* Makes an id and a listening root, served by a thread of this process until all ranks have come or
 * the init deadline passes; the thread frees itself. Until a rank comes, one thread waits for those
 * of all ids, each of which takes a descriptor. TT_ERR_SYSTEM names what the OS refused. */
TT_NODISCARD tt_status tt_unique_id_create(struct tt_unique_id *id);

/* Closes the listener of an id of this process to which no rank has come: at once, or within 0.5 s
 * where somebody has connected. Nothing happens to an id to which a rank has come, or whose root
 * tells ranks of a failure, or that is of another process. Any thread. */
void tt_unique_id_drop(const struct tt_unique_id *id);
/* This rank of this process, of nranks, does not join, because of the thread's last error, which is
 * kept. The id's root tells that to all ranks that have come to it or come within 2 s, and listens
 * no longer. A root of this process to which no rank has come yet waits for one, and forgets the
 * failure if this rank joins after all (tt_unique_id_settle). Takes at most a second or so, which
 * is for a root of another process. Nothing happens where the id is none. Any thread. */
void tt_unique_id_fail(const struct tt_unique_id *id, int rank, int nranks, tt_status status);

/* Whether NCCL_COMM_ID says where the ranks meet; then every rank may make a unique id of its own.
 * It holds no address until tt_unique_id_settle. */
bool tt_unique_id_is_set(void);
void tt_unique_id_set(struct tt_unique_id *id);

/* This rank is about to join. Gives an id of tt_unique_id_set its address and key, for this rank,
 * as tcp:// does; rank 0 begins to listen. Other ids stay as they are. TT_ERR_USAGE: NCCL_COMM_ID
 * is not set here. */
TT_NODISCARD tt_status tt_unique_id_settle(struct tt_unique_id *id, int rank, int nranks,
                                           int64_t deadline_ns);

/* Joins; returns when all nranks have come and the tree stands. deadline_ns: absolute
 * (base/clock.h). TT_ERR_TIMEOUT lists the ranks that did not come (first 16); TT_ERR_USAGE when
 * two ranks give the same number or different nranks. */
TT_NODISCARD tt_status tt_bootstrap_create(struct tt_bootstrap **bootstrap,
                                           const struct tt_unique_id *id, int rank, int nranks,
                                           int64_t deadline_ns);

/* The deadline of the init as all ranks have it (within what a message takes): the earliest that a
 * rank gave to tt_bootstrap_create. */
int64_t tt_bootstrap_deadline(const struct tt_bootstrap *bootstrap);
/* The key that all ranks have, which tt_bootstrap_create's id may lack (TT_ID_UNMET). The
 * bootstrap's. */
const uint8_t *tt_bootstrap_key(const struct tt_bootstrap *bootstrap);

/* all[r*nbytes ..] = rank r's mine, on every rank. Collective; nbytes <= 64 KiB and the same
 * everywhere. Up the tree and down again. A rank that disappears is TT_ERR_REMOTE, one that is late
 * TT_ERR_TIMEOUT; both name it on every rank. So that they do, a rank waits beyond the deadline for
 * those that are nearer to the late one, a second for each level of the tree. */
TT_NODISCARD tt_status tt_bootstrap_allgather(struct tt_bootstrap *bootstrap, const void *mine,
                                              void *all, size_t nbytes, int64_t deadline_ns);
/* Counts of connections opened and accepted, bytes sent and received, the handshakes included. */
struct tt_bootstrap_counts {
    uint64_t connections, messages, nbytes;
};
struct tt_bootstrap_counts tt_bootstrap_counts(const struct tt_bootstrap *bootstrap);
void tt_bootstrap_destroy(struct tt_bootstrap *bootstrap);

/* How the ranks of a launcher find rank 0 when nobody set MASTER_ADDR (bootstrap/place.h). */
enum tt_place_source {
    TT_PLACE_FROM_NONE,
    TT_PLACE_FROM_PMI,
    TT_PLACE_FROM_PMIX,
    TT_PLACE_FROM_SLURM
};

/* Whether variables of a launcher that tutti does not use say that this process is one of several.
 * The text says which, and what to set. */
bool tt_launcher_find_unknown(char *text, size_t size);

/* The launcher's view: which process of how many, from the variables of the first launcher in the
 * table of launcher.c that set its own. Without any: 0 of 1, with a warning under one that is not
 * in the table. What it does not say about the host is Slurm's, when that counts the same ranks,
 * else all ranks are on one. TT_ERR_ARGUMENT names a variable that is no number, out of range or
 * missing. */
struct tt_launcher {
    int rank, nranks, local_rank, local_nranks;
    enum tt_place_source sources[2]; /* in the order in which they are tried */
    const char *found;               /* "srun", "none"; static */
};
TT_NODISCARD tt_status tt_launcher_detect(struct tt_launcher *launcher);

/* The unique id for a method: "env://" (MASTER_ADDR:MASTER_PORT, without them the launcher's own
 * means), "tcp://host:port", "file:///path". Process rank 0 makes what the others find: it listens
 * at that address, or writes the id (mode 0600, written aside and renamed). Others compute the id
 * or wait for the file until the deadline. The key of env and tcp is TUTTI_JOB_KEY, else what rank
 * 0 passed on through PMI or PMIx, else derived from the address and the job's name, which are
 * public (then only a guard against accidents: process 0 warns once in its log). A leftover file of
 * an earlier job whose root is gone is recognised and waited past. */
TT_NODISCARD tt_status tt_unique_id_from_method(struct tt_unique_id *id, const char *method,
                                                const struct tt_launcher *launcher,
                                                int64_t deadline_ns);

#endif
