/* For LD_PRELOAD: an all-reduce that leaves out its last element, for the test that a check of the
 * results on a GPU notices it. */
#include <dlfcn.h>

#include "tutti.h"

typedef tuttiResult_t all_reduce(const void *, void *, size_t, tuttiDataType_t, tuttiRedOp_t,
                                 tuttiComm_t, tuttiStream_t);

tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                             tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                             tuttiStream_t stream)
{
    all_reduce *real;
    *(void **)&real = dlsym(RTLD_NEXT, "tuttiAllReduce");
    const size_t few = count > 1 ? count - 1 : count; /* the test's own sums have one */
    return real(sendbuff, recvbuff, few, datatype, op, comm, stream);
}
