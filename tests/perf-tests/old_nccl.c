/* A library with the names of NCCL 2.27 that does nothing, for the test that the perf tests say
 * what they cannot do with it. */
#include "nccl.h"

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22703;
    return ncclSuccess;
}

/* An id that is not one of tutti's. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    *id = (ncclUniqueId){{1}};
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    (void)result;
    return "an error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

/* No test gets so far that it calls one of these, so their parameters do not matter. */
#define UNUSED(name) __asm__(".globl nccl" #name "\n.set nccl" #name ", ncclGroupEnd");
UNUSED(CommInitRank)
UNUSED(CommDestroy)
UNUSED(CommAbort)
UNUSED(CommGetAsyncError)
UNUSED(CommRegister)
UNUSED(CommDeregister)
UNUSED(RedOpCreatePreMulSum)
UNUSED(RedOpDestroy)
UNUSED(AllReduce)
UNUSED(Broadcast)
UNUSED(Reduce)
UNUSED(AllGather)
UNUSED(ReduceScatter)
UNUSED(Send)
UNUSED(Recv)
