/* Why a rank leaves: the failure of another communicator of its process, shortly before. */
#ifndef TT_TRANSPORT_REASON_H
#define TT_TRANSPORT_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT_REASON_TEXT = 512 };

/* A communicator of this process has failed. The text is copied, its end is cut off when long; that
 * a rank has left is left out, and is no failure alone: the reason that it gave is noted for it.
 * "": the failures so far are forgotten. */
void tt_reason_note(const char *failure);
/* Whether one has failed within the last half minute and since `since_ns` (tt_now_ns); the text of
 * the latest. */
bool tt_reason_recent(int64_t since_ns, char text[TT_REASON_TEXT]);

/* "has left: it destroyed its communicator, after another one of its process had failed (ranks
 * as numbered there): ...".
 * reason NULL or "": without the end. */
void tt_reason_describe(const char *reason, char *text, size_t size);

#endif
