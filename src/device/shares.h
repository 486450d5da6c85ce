/* Shares of a GPU: how many blocks of threads each rank of this process may have there at the same
 * time, and in which order kernels run that have one share between them.
 *
 * Kernels of a collective wait for one another, so all of them must be resident. Each rank of a
 * communicator therefore has a share, blocks that are taken at init. While there is room, a
 * communicator's ranks get shares of their own, of at most half of it, and on a large GPU less than
 * what the next ones of eight communicators need: their kernels run beside all others. Where there
 * is none, each rank joins the share of another communicator's rank: the kernels of a share run one
 * after the other, in the order of their launches (an event that each one waits for and records).
 *
 *     blocks 0, 1    rank 0 of A, rank 0 of C    A's and B's calls run side by side,
 *     blocks 2, 3    rank 1 of A, rank 1 of C    those of A and C take turns
 *     blocks 4, 5    rank 0 of B
 *     blocks 6, 7    rank 1 of B
 *
 * So kernels that are launched can always be resident, once those before them in their shares have
 * ended. These end if all ranks call the communicators that take turns in the same order. Which
 * share a rank joins: that of the same rank of the communicator it was split from; else one whose
 * rank was opened by the same thread, which knows the order of both.
 *
 * Every function may be called by any thread. Errors: DEVICE of the driver, unless said otherwise.
 */
#ifndef TT_DEVICE_SHARES_H
#define TT_DEVICE_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "driver/context.h"

/* Captures of a share that are remembered: those that go on at the same time. */
enum { TT_MOST_CAPTURES = 64 };
/* Kernels that a GPU runs at the same time, since compute capability 5.0 (docs/cuda-measured.md).
 */
enum { TT_MOST_KERNELS = 128 };

/* Freed with its last user. */
struct tt_share {
    /* immutable once made */
    struct tt_context *context;
    void *stream, *last; /* the first user's: a stream, and the event of its last launch */
    int nblocks, rank;
    uint64_t opener, communicator;
    pthread_mutex_t lock;
    pthread_cond_t released; /* broadcast whenever `nholds` falls */
    _Atomic int nlost;       /* users with kernels that `order` and `last` do not follow */
    /* guarded by lock */
    void *order;        /* event of the last kernel; NULL: one user, without graphs */
    int nholds;         /* no order begins meanwhile */
    unsigned ncaptures; /* in all; the last ones are kept: */
    struct {
        uint64_t id;
        void *last; /* node */
    } captures[TT_MOST_CAPTURES];
    /* guarded by the lock of shares.c */
    int nusers;
    uint64_t joined; /* the communicator that joined last */
    struct tt_share *next;
};

/* The ranks of one communicator in this process on one GPU. Freed with its last member, perhaps
 * long after the communicator: when no kernel and no graph has what it left. */
struct tt_share_team {
    uint64_t id;           /* of the request */
    uint64_t communicator; /* a number of its own */
    int nblocks;           /* of the share of each rank; 0: they join shares */
    int nunused, nmembers; /* shares that no rank has taken yet; ranks that are here */
    struct tt_share_team *next;
};

/* Of a GPU. Guarded by the lock of shares.c. */
struct tt_shares {
    int capacity; /* blocks that are resident at the same time; set by the owner */
    /* For this process, as far as its communicators know; 0: all of them */
    int most, most_kernels;
    int taken, nkernels; /* blocks; shares, of which each may have a kernel */
    uint64_t ncommunicators;
    struct tt_share_team *teams;
    struct tt_share *list; /* the newest first */
};

struct tt_share_request {
    struct tt_context *context;
    void *stream;       /* the rank's own */
    void *last;         /* the event that the rank records after each of its launches */
    uint64_t team;      /* the same for the communicator's ranks in this process; no other
                         * communicator has or had it */
    int rank;           /* in the communicator */
    int least, wanted;  /* blocks; least <= wanted */
    int nranks;         /* of the communicator: kernels of all may run on this GPU at one time */
    int nteam;          /* of the `nranks`, those in this process; they share its part of the GPU */
    int capacity;       /* of the GPU, for the process that may use least of it */
    uint64_t opener;    /* the thread */
    int place, nopened; /* this rank among those of the team that the thread opens, and these */
    struct tt_share *parent; /* of the same rank of the parent communicator; NULL: none */
};

/* What a rank has. */
struct tt_share_place {
    struct tt_share *share;
    struct tt_share_team *team;
    bool takes_turns; /* the share is another communicator's */
    bool is_lost;     /* it is counted in `nlost` */
};

/* USAGE: no room, and no share to join; or communicators of this process hold more than its part.
 */
TT_NODISCARD tt_status tt_share_open(struct tt_shares *shares,
                                     const struct tt_share_request *request,
                                     struct tt_share_place *place);
/* After the rank's last kernel. Does nothing where place->share is NULL. */
void tt_share_close(struct tt_shares *shares, struct tt_share_place *place);

/* From now on the share's kernels have an order: needed by those that the host does not launch.
 * DEVICE: it is lost. */
TT_NODISCARD tt_status tt_share_begin_order(struct tt_share *share);
bool tt_share_has_order(struct tt_share *share);

/* While the share's user launches a kernel on another one's stream, which no order would see:
 * between these none begins, who wants one waits. False: it has begun already. */
bool tt_share_hold(struct tt_share *share);
void tt_share_release(struct tt_share *share);

/* Between these a kernel is launched on the stream: after the share's kernels before, and before
 * those behind. end: also after a launch that failed. */
TT_NODISCARD tt_status tt_share_begin(struct tt_share *share, void *stream);
TT_NODISCARD tt_status tt_share_end(struct tt_share_place *place, void *stream);
/* The driver did not record the end of a kernel: none of others begins until this place is closed.
 * In between, or while the share is held. */
void tt_share_lose_order(struct tt_share_place *place);

/* The last node that the share has in this capture; NULL: none, or TT_MOST_CAPTURES others have got
 * nodes since. */
void *tt_share_captured(struct tt_share *share, uint64_t capture);
void tt_share_capture(struct tt_share *share, uint64_t capture, void *node);

#endif
