/* Ranks that die while others wait for living ones. */
#ifndef TT_TESTS_INTEGRATION_DYING_H
#define TT_TESTS_INTEGRATION_DYING_H

#include "tutti.h"

/* Called by each of at least three ranks. The calls have no deadline but the communicator's. how:
 *   idle     after a call of all, rank 0 makes no call, and the last rank waits to be killed; the
 *            others make a call of all
 *   cold     the same without a call before
 *   inside   like idle, but the last rank makes the call, too, and is killed in it
 *   first    like inside, without a call before
 *   late     rank 0 and the last rank come to the call only after 8 s, and the result is right
 *   root     rank 1 waits for its sum; the last rank has done its part and exits at once; rank 0
 *            comes after 8 s, and the result is right
 *   stopped  rank 1 is done and exits at once; rank 0 stops in the middle, until
 *            it is continued; the last rank waits for rank 0, and the result is right
 *   exec     rank 1 becomes another program
 *   cascade  the last rank kills itself; rank 1 hears of that in a part of the communicator, and
 *            ends its process; then the others make a call
 * Gives the result of the last call in *result. Returns NULL, or what was wrong. */
const char *dying(tuttiComm_t comm, const char *how, tuttiResult_t *result);

#endif
