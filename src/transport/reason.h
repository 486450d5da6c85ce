/* Why a rank leaves: the failure of another communicator of its process, shortly before, and that
 * the process exits. */
#ifndef TT_TRANSPORT_REASON_H
#define TT_TRANSPORT_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum { TT_REASON_TEXT = 512 };
/* The first character of the reason of a rank that leaves because its process exits. */
#define TT_REASON_EXITS '!'

/* A communicator of this process has failed. The text is copied, its end is cut off when long; that
 * a rank has left is left out, and is no failure alone: the reason that it gave is noted for it.
 * "": the failures so far are forgotten. */
void tt_reason_note(const char *failure);
/* Whether one has failed within the last half minute and since `since_ns` (tt_now_ns); the text of
 * the latest. */
bool tt_reason_recent(int64_t since_ns, char text[TT_REASON_TEXT]);

/* Where one rank of this process tells the ranks of its host when its process has heard of a
 * failure. Owned by the fabric, from tt_reason_enlist to tt_reason_delist. */
struct tt_reason_place {
    _Atomic int64_t *failed_ns; /* of the rank's record (host/segment.h); NULL: not listed */
    pid_t process;
    struct tt_reason_place *next;
};
void tt_reason_enlist(struct tt_reason_place *place, _Atomic int64_t *failed_ns);
/* The place may never have been listed. */
void tt_reason_delist(struct tt_reason_place *place);
/* A communicator of this process has failed: all ranks of the process tell that they know of a
 * failure. */
void tt_reason_tell(void);

/* The failure in a reason; "": none. */
static inline const char *tt_reason_failure(const char *reason)
{
    return reason + (reason[0] == TT_REASON_EXITS);
}
/* How a rank has left that gave this reason, without the failure: "has left: it destroyed its
 * communicator". */
const char *tt_reason_how_left(const char *reason);
/* tt_reason_how_left, and ", after another one of its process had failed (ranks as numbered there):
 * ..." where there is a failure. */
void tt_reason_describe(const char *reason, char *text, size_t size);

#endif
