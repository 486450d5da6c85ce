/* Groups: what a thread holds back until the group's end: inits and splits, calls, and the ends of
 * communicators. */
#ifndef TT_COMMUNICATOR_GROUP_H
#define TT_COMMUNICATOR_GROUP_H

#include "communicator/communicator.h"

bool tt_in_group(void);
/* TT_ERR_USAGE: this thread's open group holds a call on the stream, or one with a buffer that
 * begins in the memory; `function` would take that away from it. */
TT_NODISCARD tt_status tt_group_check_stream(const char *function, tuttiStream_t stream);
TT_NODISCARD tt_status tt_group_check_memory(const char *function, const void *memory,
                                             size_t nbytes);
void tt_group_start(void);
/* tuttiGroupEnd. is_users: the user's group, which counts; else one that a call is made of. */
tuttiResult_t tt_group_end(bool is_users);
/* tt_result, for a call that a group may hold: a failure is remembered, so that the group's end
 * fails too. */
tuttiResult_t tt_group_result(const char *function, tt_status status);

/* Runs the call, queues it in its stream, or keeps it for the end of the group. A binding with a
 * table of blocks is the call's from here on, also when it fails. */
TT_NODISCARD tt_status tt_issue(struct tt_pending_call *pending);

/* A communicator to be made: now, or at the end of the group together with the others. */
struct tt_pending_init {
    /* By the calling thread; NULL: as tuttiCommInitRank. */
    tt_status (*make)(const struct tt_pending_init *init);
    /* With `make`, in place of it: other ranks may wait, and this one does not begin. Tells them,
     * and waits for none. Keeps the last error, which says why. */
    void (*give_up)(const struct tt_pending_init *init, tt_status status);
    tuttiComm_t *comm;
    tuttiComm_t parent;  /* from which it is split; NULL: it is not, and has an id */
    uint64_t number;     /* of the parent: another may be made at its address meanwhile */
    bool holds_parent;   /* calls of the group do: the parent's end waits for the group */
    bool repeats_parent; /* a split before it has the parent, and its thread makes this one */
    struct tt_unique_id id;
    bool drops_id;    /* no other rank will use it: it is dropped unless the communicator is made */
    int rank, nranks; /* of a split: in the parent */
    uint8_t parent_key[TT_KEY_BYTES]; /* of a split: which ranks have one parent */
    int color, key;                   /* of a split */
    tt_status status; /* of a split: why this rank cannot take part; the others must learn that */
    struct tt_comm_config config;
};
TT_NODISCARD tt_status tt_issue_init(struct tt_pending_init *init);
/* Notes of each split whether the parent is that of one of the calls, which are held. */
void tt_init_hold_parents(struct tt_pending_init *inits, int ninits,
                          const struct tt_pending_call *calls, int ncalls);
/* Makes several communicators of this thread at once, each in a thread of its own; those that are
 * split from one parent in one thread, one after the other; one that fails fails the parent, as
 * tt_init_refuse does, if there is another one behind it. All are made or none is. */
TT_NODISCARD tt_status tt_init_together(struct tt_pending_init *inits, int ninits);
/* These ranks do not join, because of the thread's last error, which is kept, with this status:
 * tells the other ranks of their ids, fails the parents of the splits unless the splits are of all
 * ranks of the parent, so that none waits, and ends what listens for the ids that no other rank
 * will use. Waits at most briefly for the root of an id in another process, and for no other rank.
 */
void tt_init_refuse(struct tt_pending_init *inits, int ninits, tt_status status);
/* Whether this thread's open group holds inits with the id: then it is dropped with them. */
bool tt_group_drops_id(const struct tt_unique_id *id);
/* Whether the process can have as many threads, by what the system says. */
TT_NODISCARD tt_status tt_init_check_number(int ninits);

/* The end of a communicator, or that it is finalized: now, or at the end of the group, after its
 * calls. */
struct tt_pending_end {
    /* By the calling thread. begin: what the end does without waiting, before any end of the group
     * waits; NULL: nothing. Where it fails there is no end. */
    tt_status (*begin)(struct tt_pending_end *pending);
    tt_status (*end)(struct tt_pending_end *pending);
    tuttiComm_t comm;
    uint64_t number;    /* of the communicator: another may be made at its address meanwhile */
    unsigned endings;   /* since begin: in what it was before (TT_COMM_ENDS); 0: its end is ours */
    tt_status refused;  /* by begin */
    bool needs_success; /* false: it is run also where the group has failed */
};
TT_NODISCARD tt_status tt_issue_end(struct tt_pending_end *end);

#endif
