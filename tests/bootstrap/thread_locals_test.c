/* A program with so many thread-local variables that they do not fit a stack of the usual size:
 * each thread's stack has a copy. */
#include <string.h>

#include "base/sanitizers.h"
#include "shim.h"
#include "tutti.h"

/* Sanitizers take more of a stack than the library has beside. */
#if defined TT_ADDRESS_SANITIZER || defined TT_THREAD_SANITIZER
enum { LARGE = 1200000 };
#else
enum { LARGE = 14 << 20 };
#endif
static _Thread_local char large[LARGE];

TEST(thread_locals, a_communicator_begins_in_a_program_with_large_ones)
{
    enum { NRANKS = 2 };
    tuttiComm_t comms[NRANKS];
    memset(large, 1, sizeof large);
    const tuttiResult_t result = tuttiCommInitAll(comms, NRANKS, NULL);
    CHECK_MESSAGE(!result && large[sizeof large - 1], "%s", tuttiGetLastError(NULL));
    for (int i = 0; !result && i < NRANKS; i++) CHECK_EQ(tuttiCommAbort(comms[i]), tuttiSuccess);
}
