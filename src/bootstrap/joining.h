/* Shared by the files that join the tree only: what one rank needs while it joins.
 *
 *   reach_root.c  finds the root, reports to it, waits for its answer
 *   tree.c        connects to the parent, accepts the children
 */
#ifndef TT_BOOTSTRAP_JOINING_H
#define TT_BOOTSTRAP_JOINING_H

#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/notice.h"
#include "bootstrap/tree.h"
#include "net/handshake.h"

struct tt_acceptor;

enum { TT_PAUSE_US = 20000 /* the longest between two attempts to connect */ };

struct tt_joining {
    struct tt_bootstrap *bootstrap;
    struct tt_unique_id *id; /* the bootstrap's */
    bool takes_any;          /* its sequence and key are those of the root that was last met */
    struct tt_address root;
    int port;     /* of the root, or the first at which it may be */
    int listener; /* -1: has no children, or not open yet */
    /* takes the children's connections; stays until the root knows how joining ended, since the
     * children whose connections its end closes would report that first */
    struct tt_acceptor *acceptor;
    struct tt_address mine;
    int64_t deadline_ns; /* this rank's own until the root has answered, then the earliest of all */
    /* the connection to the root; fd -1: closed */
    int root_fd;
    bool known; /* the root has heard of us, and asked us to come again */
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
};

static inline int64_t tt_later(int64_t deadline_ns, int64_t ms)
{
    return deadline_ns > INT64_MAX - ms * 1000000 ? INT64_MAX : deadline_ns + ms * 1000000;
}

void tt_joining_pause(int64_t us);
/* Waits until something can be received from fd, or the deadline; `say` is called each time the log
 * is to say for whom the rank waits. */
void tt_joining_await(struct tt_joining *joining, int fd, int64_t deadline_ns,
                      void (*say)(struct tt_joining *joining, const struct tt_notice *notice));
void tt_joining_count_handshake(struct tt_bootstrap *bootstrap);

/* Finds the root and reports to it; returns when all ranks have, with the root's answer. A rank
 * that cannot join itself tells the root, which tells all. */
TT_NODISCARD tt_status tt_joining_show_up(struct tt_joining *joining);
/* This rank has failed before the root had heard of it: tells the root why, if that is soon there.
 * Keeps the thread's last error. */
void tt_joining_tell_root(struct tt_joining *joining, tt_status status);
/* Tells a root of this process why this rank has failed, without a connection: the rank may have
 * been unable to make one. */
void tt_joining_tell_own_root(struct tt_joining *joining, tt_status status);
void tt_joining_leave_root(struct tt_joining *joining);

#endif
