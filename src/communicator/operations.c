/* Pre-multiplied sums: operations that a communicator makes for its user. */
#include <string.h>

#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/request.h"
#include "driver/driver.h"

/* Whether the host can read a scalar. Where no driver answers, no memory is a GPU's. */
static tt_status check_readable(const void *scalar)
{
    struct tt_pointer found;
    if (!tt_driver_is_in_use() || tt_driver_pointer(scalar, &found)) return TT_OK;
    if (found.kind != TT_POINTER_DEVICE) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "tuttiRedOpCreatePreMulSum: the scalar %p is memory of GPU %d, which the host "
                   "cannot read: pass tuttiScalarDevice, or a scalar in memory of the host",
                   scalar, found.gpu);
}

/* The handles of a communicator's operations. Another communicator of the process has others, but
 * for those that are OP_RANGES apart. */
static int first_op(const struct tuttiComm *comm)
{
    enum { OP_RANGES = (tuttiMaxRedOp - tuttiFirstDynamicRedOp) / TT_MAX_DYNAMIC_OPS };
    const int range = (int)((comm->number - 1) % OP_RANGES);
    return tuttiFirstDynamicRedOp + range * TT_MAX_DYNAMIC_OPS;
}

struct tt_dynamic_op *tt_comm_find_op(tuttiComm_t comm, int op)
{
    const int64_t slot = (int64_t)op - first_op(comm);
    const bool is_own = slot >= 0 && slot < TT_MAX_DYNAMIC_OPS;
    return is_own && comm->dynamic_ops[slot].used ? &comm->dynamic_ops[slot] : NULL;
}

static tt_status create_op(tuttiRedOp_t *op, const void *scalar, tuttiDataType_t type,
                           tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    if (!op || !scalar)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiRedOpCreatePreMulSum: op %p, scalar %p: neither may be NULL",
                       (void *)op, scalar);
    if ((int)type < 0 || type >= tuttiNumTypes)
        return tt_fail(TT_ERR_ARGUMENT, "type %d is none of 0 to %d", (int)type, tuttiNumTypes - 1);
    if (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate)
        return tt_fail(TT_ERR_ARGUMENT, "scalar residence %d is neither 0 (device) nor 1 (host)",
                       (int)residence);
    if (residence == tuttiScalarHostImmediate) TT_TRY(check_readable(scalar));
    int slot = 0;
    while (slot < TT_MAX_DYNAMIC_OPS && comm->dynamic_ops[slot].used) slot++;
    if (slot == TT_MAX_DYNAMIC_OPS)
        return tt_fail(TT_ERR_USAGE, "communicator %s has %d operations already: destroy some",
                       comm->core.name, TT_MAX_DYNAMIC_OPS);
    struct tt_dynamic_op *made = &comm->dynamic_ops[slot];
    *made = (struct tt_dynamic_op){.used = true, .type = (enum tt_type)type};
    if (residence == tuttiScalarDevice)
        made->pointer = scalar;
    else
        memcpy(made->scalar, scalar, tt_type_size(made->type));
    *op = (tuttiRedOp_t)(first_op(comm) + slot);
    return TT_OK;
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t type,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter(comm);
    if (status) return tt_result(__func__, status);
    status = create_op(op, scalar, type, residence, comm);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

static tt_status destroy_op(int op, tuttiComm_t comm)
{
    struct tt_dynamic_op *made = tt_comm_find_op(comm, op);
    if (!made)
        return tt_fail(TT_ERR_ARGUMENT,
                       "operation %d was not made on communicator %s, or destroyed", op,
                       comm->core.name);
    made->used = false;
    return TT_OK;
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    status = destroy_op((int)op, comm);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}
