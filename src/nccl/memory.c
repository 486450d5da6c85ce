/* Memory, registrations and pre-multiplied sums. */
#include "nccl/face.h"

ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    if (!ptr) return tt_face_refuse(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    if (!size) { /* as cudaMalloc has it */
        *ptr = NULL;
        return ncclSuccess;
    }
    return tt_face_end(tuttiDeviceMemAlloc(ptr, size, TUTTI_DEVICE_CURRENT));
}

ncclResult_t pncclMemFree(void *ptr)
{
    return ptr ? tt_face_end(tuttiMemFree(ptr)) : ncclSuccess;
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return tt_face_end(tuttiCommRegister(tt_face_comm(comm), buff, size, handle));
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return handle ? tt_face_end(tuttiCommDeregister(tt_face_comm(comm), handle)) : ncclSuccess;
}

/* There are no windows yet. A NULL is what NCCL gives where memory cannot be symmetric: programs
 * then use the memory without a window. */
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                     int winFlags)
{
    static const char function[] = "ncclCommWindowRegister";
    (void)buff, (void)size, (void)winFlags;
    if (!win)
        return tt_face_fail_group(tt_face_refuse(ncclInvalidArgument, "%s: win is NULL", function));
    *win = NULL;
    return tt_face_fail_group(tt_face_end_as(function, tuttiCommCheck(tt_face_comm(comm))));
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    (void)comm;
    if (!win) return ncclSuccess;
    return tt_face_refuse(ncclInvalidArgument,
                          "ncclCommWindowDeregister: win is %p: this library has made no window",
                          (void *)win);
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    static const char function[] = "ncclRedOpCreatePreMulSum";
    tuttiRedOp_t made;
    ncclResult_t refused = tt_face_check_type(function, datatype);
    if (!refused && !op) refused = tt_face_refuse(ncclInvalidArgument, "%s: op is NULL", function);
    if (refused) return refused;
    const tuttiResult_t result =
        tuttiRedOpCreatePreMulSum(&made, scalar, (tuttiDataType_t)datatype,
                                  (tuttiScalarResidence_t)residence, tt_face_comm(comm));
    if (!result) *op = (ncclRedOp_t)made;
    return tt_face_end(result);
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return tt_face_end(tuttiRedOpDestroy((tuttiRedOp_t)op, tt_face_comm(comm)));
}

#define TT_IN_MEMORY TT_FACE_TWIN
#include "nccl/names_table.h"
