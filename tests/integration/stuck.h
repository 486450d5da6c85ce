/* A rank that ends, or stops, in the middle of a copy to another rank's buffer. */
#ifndef TT_TESTS_INTEGRATION_STUCK_H
#define TT_TESTS_INTEGRATION_STUCK_H

#include "tutti.h"

/* Called by each of two or three ranks: an all-reduce in which rank 1 writes to the buffers of the
 * others; of two ranks it is an express call. In mid-copy rank 1 kills itself (how: "die"), or
 * stops itself and goes on when it is continued ("stop", "wait"). The others check, when the call
 * has ended, how far it has come: with "wait" to the end. Gives the call's result in *result.
 * Returns NULL, or what was wrong. */
const char *stuck(tuttiComm_t comm, const char *how, tuttiResult_t *result);

#endif
