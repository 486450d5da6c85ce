/* Ranks that abort, end or stop while others still need them, or not. */
#ifndef TT_TESTS_INTEGRATION_LEAVING_H
#define TT_TESTS_INTEGRATION_LEAVING_H

#include "tutti.h"

/* `rounds` times: splits all ranks off, reduces among them, and aborts at once. Returns NULL, or
 * what was wrong. */
const char *abort_done(tuttiComm_t comm, int rounds);
/* `rounds` times: splits all ranks off, splits them once more, aborts the parent at once, and
 * reduces among the last ones. Returns NULL, or what was wrong. */
const char *abort_parent(tuttiComm_t comm, int rounds);
/* Of three ranks: the last one's process is gone after a barrier (how: "exits", "vanishes" without
 * running what exit runs, or "aborts" before). The others see no error until a call needs it, and
 * then its name soon. Returns NULL, or what was wrong; destroys comm. */
const char *gone(tuttiComm_t comm, const char *how);
/* The last rank stops before its second call, until it is continued; the others wait for it, in
 * their threads (how: "caller") or on streams ("stream", "both": with another call behind). Returns
 * NULL, or what was wrong. */
const char *late(tuttiComm_t comm, const char *how);
/* A call without a stream follows one that is queued in a stream, on rank 0 behind a function that
 * takes half a second. Returns NULL, or what was wrong. */
const char *behind(tuttiComm_t comm);

#endif
