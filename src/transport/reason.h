/* Why a rank leaves: the failure of another communicator of its process, shortly before, and that
 * the process exits. */
#ifndef TT_TRANSPORT_REASON_H
#define TT_TRANSPORT_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
