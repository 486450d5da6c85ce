#include "base/status.h"
#include "communicator/communicator.h"

tuttiResult_t tt_result(tt_status status)
{
    switch (status) {
    case TT_OK:
        return tuttiSuccess;
    case TT_IN_PROGRESS:
        return tuttiInProgress;
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

tuttiResult_t tuttiGetVersion(int *version)
{
    if (!version) return tt_result(tt_fail(TT_ERR_ARGUMENT, "tuttiGetVersion: version is NULL"));
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

const char *tuttiGetLastError(tuttiComm_t comm)
{
    if (comm && tt_comm_check_handle(comm) == TT_OK) {
        const char *text = tt_fabric_failure_text(comm->fabric);
        if (text[0]) return text;
    }
    return tt_last_error();
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *result)
{
    tt_status status = tt_comm_check_handle(comm);
    if (status) return tt_result(status);
    if (!result)
        return tt_result(tt_fail(TT_ERR_ARGUMENT, "tuttiCommGetAsyncError: result is NULL"));
    tt_engine_look(&comm->engine); /* a watchdog asks while nothing else does */
    *result = tt_result(tt_fabric_check(comm->fabric));
    return tuttiSuccess;
}
