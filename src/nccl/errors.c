/* Version, results and sentences. A refusal of the face has a sentence of the face; everything else
 * has tutti's, which names the function by NCCL's name. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/face.h"

/* Programs decide by this number what they may call. */
enum { REPORTED_VERSION = 23007 };

_Static_assert((int)ncclNumResults == (int)tuttiNumResults, "the results have the same values");

/* Of this thread. */
static _Thread_local struct {
    bool is_own; /* `text` is the last error, else tutti has it */
    char text[1024];
} last;

ncclResult_t tt_face_failed(tuttiResult_t result)
{
    last.is_own = false;
    return (ncclResult_t)result;
}

ncclResult_t tt_face_refuse(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last.text, sizeof last.text, format, arguments);
    va_end(arguments);
    last.is_own = true;
    tt_face_fail_group(result);
    return result;
}

ncclResult_t pncclGetVersion(int *version)
{
    if (!version) return tt_face_refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = REPORTED_VERSION;
    return ncclSuccess;
}

/* The texts are NCCL's: programs compare them. */
const char *pncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case ncclTimeout:
        return "timeout";
    default:
        return "unknown result code";
    }
}

const char *pncclGetLastError(ncclComm_t comm)
{
    static const char ours[] = "tutti", theirs[] = "nccl";
    const size_t length = sizeof ours - 1;
    if (last.is_own) return last.text;
    const char *text = tuttiGetLastError(tt_face_comm(comm));
    const bool names_function =
        !strncmp(text, ours, length) && isupper((unsigned char)text[length]);
    if (!names_function) return text;
    snprintf(last.text, sizeof last.text, "%s%s", theirs, text + length);
    return last.text;
}

void pncclResetDebugInit(void)
{
    ncclResetDebugInitInternal();
}

void ncclResetDebugInitInternal(void) {}

#define TT_IN_ERRORS TT_FACE_TWIN
#include "nccl/names_table.h"
