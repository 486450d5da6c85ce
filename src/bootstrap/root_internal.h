/* Shared by the files behind bootstrap/root.h only: one root, and the roots of this process.
 *
 *   root.c        the life of a root: its thread, the deadline, the end
 *   root_hello.c  ranks that come, and their answers
 *   roots.c       the roots of this process, and who waits for their end
 *   idle.c        unique ids to which no rank has come yet
 */
#ifndef TT_BOOTSTRAP_ROOT_INTERNAL_H
#define TT_BOOTSTRAP_ROOT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bootstrap/notice.h"
#include "bootstrap/root.h"
#include "bootstrap/tree.h"
#include "net/acceptor.h"

enum tt_member_state {
    TT_MEMBER_ABSENT,
    TT_MEMBER_WAITING, /* for its answer, connected */
    TT_MEMBER_AWAY,    /* has come, and will come again for its answer */
    TT_MEMBER_LINKING, /* answered, still connected: it has yet to find its place in the tree */
    TT_MEMBER_DONE,
};

struct tt_member {
    struct tt_greeting greeting;
    struct tt_hello hello;
    int fd; /* owned; WAITING and LINKING only */
    enum tt_member_state state;
};

enum { TT_MOST_TOLD = 1024 };

struct tt_root {
    /* owner: its thread */
    struct tt_acceptor *acceptor;
    struct tt_unique_id id;
    char *path;                /* NULL: no file */
    struct tt_member *members; /* nranks of them; NULL until the first has come */
    int nranks, ncame;
    int room; /* connections that may be held at a time */
    int nheld, naway;
    int64_t start_ns, deadline_ns;
    struct tt_notice notice; /* about ranks that have not come */
    tt_status status;        /* what everyone will be answered */
    bool is_late; /* the failure is that ranks have not come: nobody waits for them any more */
    char text[TT_WIRE_TEXT];
    int most_claimed; /* the most ranks that a rank says there are */
    struct {
        int32_t rank;
        uint64_t self;
    } told[TT_MOST_TOLD]; /* ranks that are no members and were answered the failure */
    int ntold;

    /* immutable while it is among the roots of this process */
    pid_t process;
    int port;

    /* guarded by the lock of roots.c */
    struct tt_root *next;
    struct tt_report report; /* of a rank of this process that cannot join; status 0: none */

    /* atomic */
    _Atomic bool has_failed; /* by its thread: it only answers the failure */
    _Atomic bool listens;    /* by its thread */
    _Atomic bool sends_on;   /* by its thread: ranks that have connected may await the next root */
    _Atomic bool makes_way;  /* by others: it is to stop listening */
    _Atomic bool is_dropped; /* by others: it is to end if no rank has come */
    _Atomic bool hurries;    /* by others: it is to end as soon as the ranks know of the failure */
};

/* root.c: makes a root, which takes the listener over on success; serves it and frees it; starts a
 * thread that can do that (0, or an errno). */
TT_NODISCARD tt_status tt_root_make(struct tt_root **root, int listener,
                                    const struct tt_unique_id *id, const char *path,
                                    int64_t deadline_ns);
void tt_root_serve(struct tt_root *root);
/* roots.c: closes the listener. By the root's thread. */
void tt_root_stop_listening(struct tt_root *root);
int tt_root_start_thread(void *(*run)(void *), void *argument);

/* root_hello.c: sets the failure that all ranks are answered. Returns the status. */
tt_status tt_root_fail(struct tt_root *root, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
extern const struct tt_acceptor_events tt_root_events;
/* Answers all connected ranks, and keeps their connections if there is no failure. Those of this
 * process come last: it may end as soon as they know of a failure. */
void tt_root_answer_all(struct tt_root *root);
/* After a failure: whether ranks are expected that do not know of it. */
bool tt_root_awaits_anyone(const struct tt_root *root);

/* roots.c: enters and removes a root. Should the process end after a failure of a root that is
 * entered, or while one sends ranks on to the next root, it waits a little until the root has
 * answered. */
void tt_roots_enter(struct tt_root *root);
void tt_roots_remove(struct tt_root *root);
/* roots.c: tt_root_tell, if a rank has come to the id. Then what the root was told, if its status
 * is not 0. */
bool tt_roots_tell(const struct tt_unique_id *id, const struct tt_report *report);
/* roots.c: tt_unique_id_drop, where somebody has connected who may have been no rank. */
void tt_roots_drop(const struct tt_unique_id *id);
struct tt_report tt_roots_report(struct tt_root *root);
/* roots.c: keeps why the id's root has failed, for tt_root_cause; the first cause of the last such
 * id. */
void tt_roots_keep_cause(const struct tt_unique_id *id, tt_status status, const char *text);

#endif
