/* Many ranks as threads of one process. */
#ifndef TT_TESTS_INTEGRATION_CROWD_H
#define TT_TESTS_INTEGRATION_CROWD_H

#include "tutti.h"

/* Each of nranks threads makes a communicator and calls the collective ("all_reduce", "all_gather"
 * or "all_to_all") with one double. The result of the first that fails, with its error on stderr
 * ("ERROR ..."); tuttiInternalError for a wrong result. */
tuttiResult_t crowd(int nranks, const char *collective);

#endif
