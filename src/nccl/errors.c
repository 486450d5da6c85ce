/* Version, results and sentences, which tutti keeps. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/face.h"

/* Programs decide by this number what they may call. */
enum { REPORTED_VERSION = 23007 };

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

_Static_assert((int)ncclNumResults == (int)tuttiNumResults, "the results have the same values");

/* Of this thread's last error: the function by which the text begins; NULL: the one in the text. */
static _Thread_local const char *name_in_last_error;

ncclResult_t tt_face_end_as(const char *function, tuttiResult_t result)
{
    if (result) name_in_last_error = function;
    return (ncclResult_t)result;
}

ncclResult_t tt_face_failed(tuttiResult_t result)
{
    return tt_face_end_as(NULL, result);
}

ncclResult_t tt_face_refuse(ncclResult_t result, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_face_failed(tuttiRefuse((tuttiResult_t)result, text));
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

/* A copy: programs read it also after they have destroyed the communicator. */
const char *pncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char text[1024];
    const char *last = tuttiGetLastError(tt_face_comm(comm));
    const size_t word = strspn(last, LETTERS);
    const bool is_named = name_in_last_error && last[word] == ':';
    snprintf(text, sizeof text, "%s%s", is_named ? name_in_last_error : "",
             last + (is_named ? word : 0));
    return text;
}

void pncclResetDebugInit(void)
{
    ncclResetDebugInitInternal();
}

void ncclResetDebugInitInternal(void) {}

#define TT_IN_ERRORS TT_FACE_TWIN
#include "nccl/names_table.h"
