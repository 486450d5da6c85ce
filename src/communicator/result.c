/* Maps statuses to tuttiResult_t, and gives error texts to the user. */
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "base/status.h"
#include "base/thread.h"
#include "carrier/carried.h"
#include "communicator/calling.h"

static tuttiResult_t code_of(tt_status status)
{
    switch (status) {
    case TT_OK:
        return tuttiSuccess;
    case TT_IN_PROGRESS:
        return tuttiInProgress;
    case TT_ERR_DEVICE:
        return tuttiUnhandledDeviceError;
    case TT_ERR_SYSTEM:
        return tuttiSystemError;
    case TT_ERR_ARGUMENT:
        return tuttiInvalidArgument;
    case TT_ERR_USAGE:
        return tuttiInvalidUsage;
    case TT_ERR_REMOTE:
        return tuttiRemoteError;
    case TT_ERR_TIMEOUT:
        return tuttiTimeout;
    default:
        return tuttiInternalError;
    }
}

tt_status tt_status_of(tuttiResult_t result)
{
    for (tt_status status = TT_IN_PROGRESS; status >= TT_ERR_TIMEOUT; status--)
        if (code_of(status) == result) return status;
    return TT_ERR_INTERNAL;
}

/* An argument error of a function that several entry points share does not name the one called. */
static void name_function(const char *function)
{
    const char *text = tt_last_error();
    char name[64], named[TT_ERROR_TEXT];
    const size_t length = tt_rename_for_user(name, sizeof name, function);
    if (!strncmp(text, name, length) && text[length] == ':') return;
    snprintf(named, sizeof named, "%s: %.*s", name, (int)(sizeof named - length - 3), text);
    tt_set_last_error(named);
}

tuttiResult_t tt_result(const char *function, tt_status status)
{
    if (status == TT_ERR_ARGUMENT && function) name_function(function);
    return code_of(status);
}

tt_status tt_check_refusal(tuttiResult_t result, const char *text)
{
    if (result > tuttiSuccess && result < tuttiNumResults && result != tuttiInProgress && text)
        return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "result %d with text %s: expected an error and a text",
                   (int)result, text ? text : "NULL");
}

tuttiResult_t tuttiRefuse(tuttiResult_t result, const char *text)
{
    const tt_status status = tt_check_refusal(result, text);
    return status ? tt_result(__func__, status)
                  : tt_result(NULL, tt_fail(tt_status_of(result), "%s", text));
}

tuttiResult_t tuttiGetVersion(int *version)
{
    if (!version)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiGetVersion: version is NULL"));
    *version = TUTTI_VERSION_CODE;
    return tuttiSuccess;
}

const char *tuttiGetErrorString(tuttiResult_t result)
{
    switch (result) {
    case tuttiSuccess:
        return "no error";
    case tuttiUnhandledDeviceError:
        return "a device call failed";
    case tuttiSystemError:
        return "the operating system refused something";
    case tuttiInternalError:
        return "internal error: a bug in tutti";
    case tuttiInvalidArgument:
        return "invalid argument";
    case tuttiInvalidUsage:
        return "invalid usage, or ranks that disagree";
    case tuttiRemoteError:
        return "another rank died, left or aborted";
    case tuttiInProgress:
        return "in progress";
    case tuttiTimeout:
        return "a deadline passed";
    default:
        return "unknown result code";
    }
}

/* Of a communicator that has ended, the failure that it had: an error of this function would
 * replace the one that is asked for. */
const char *tuttiGetLastError(tuttiComm_t comm)
{
    static _Thread_local char text[TT_ERROR_TEXT]; /* the communicator may end while it is read */
    char ended[TT_ERROR_TEXT];
    if (comm && tt_comm_try_to_ask(comm)) {
        tt_rename_for_user(text, sizeof text, tt_fabric_failure_text(comm->core.fabric));
        tt_core_leave_call(&comm->core);
    } else {
        tt_comm_removed_failure(comm, ended, sizeof ended);
        tt_rename_for_user(text, sizeof text, ended);
    }
    return text[0] ? text : tt_last_error();
}

tuttiResult_t tuttiCommSetTimeout(tuttiComm_t comm, int timeoutMs)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    if (timeoutMs < 0)
        status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommSetTimeout: timeoutMs is %d: give 0 or more",
                         timeoutMs);
    else
        atomic_store_explicit(&comm->core.engine.timeout_ms, timeoutMs, memory_order_relaxed);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

/* A watchdog asks while nothing else does. A child made by fork has neither the connections nor the
 * threads, and what it found would be the failure of the ranks that share the segment. */
static void look(tuttiComm_t comm)
{
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    if (carried && carried->look) carried->look(&comm->core);
    tt_engine_look(&comm->core.engine);
}

tuttiResult_t tuttiCommCheckRank(tuttiComm_t comm, int rank)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    if (rank < 0 || rank >= comm->core.nranks)
        status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommCheckRank: rank %d is none of 0 to %d", rank,
                         comm->core.nranks - 1);
    else if (tt_comm_is_inherited(comm))
        status = tt_comm_find_for_calls(comm); /* fails, and says why */
    else
        status = tt_engine_check_rank(&comm->core.engine, rank);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *result)
{
    TT_CANCELS_WAIT;
    if (!result)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT, "tuttiCommGetAsyncError: result is NULL"));
    const tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    if (!tt_comm_is_inherited(comm)) look(comm);
    *result = code_of(tt_fabric_check(comm->core.fabric));
    /* The caller may abort without asking for the text, as PyTorch's watchdog does. */
    if (*result) tt_fabric_log_failure(comm->core.fabric);
    tt_core_leave_call(&comm->core);
    return tuttiSuccess;
}
