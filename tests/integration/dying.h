/* Ranks that die while others wait for living ones. */
#ifndef TT_TESTS_INTEGRATION_DYING_H
#define TT_TESTS_INTEGRATION_DYING_H

#include "tutti.h"

/* Called by each of at least three ranks. The calls have no deadline but the communicator's. how:
 *   exec     rank 1 becomes another program
 *   cascade  the last rank kills itself; rank 1 hears of that in a part of the communicator, and
 *            ends its process; then the others make a call
 * Gives the result of the last call in *result. Returns NULL, or what was wrong. */
const char *dying(tuttiComm_t comm, const char *how, tuttiResult_t *result);

#endif
