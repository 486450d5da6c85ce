/* Version, results and sentences. A refusal of the face has a sentence of the face; everything else
 * has tutti's, which names the function by NCCL's name. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/face.h"

/* Programs decide by this number what they may call. */
enum { REPORTED_VERSION = 23007 };

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

_Static_assert((int)ncclNumResults == (int)tuttiNumResults, "the results have the same values");

/* Of this thread. */
static _Thread_local struct {
    bool is_own;          /* `text` is the last error, else tutti has it */
    const char *function; /* by which tutti's text begins; NULL: the name that tutti has for it */
    char text[1024];
} last;

ncclResult_t tt_face_end_as(const char *function, tuttiResult_t result)
{
    if (!result) return ncclSuccess;
    last.is_own = false;
    last.function = function;
    return (ncclResult_t)result;
}

ncclResult_t tt_face_failed(tuttiResult_t result)
{
    return tt_face_end_as(NULL, result);
}

ncclResult_t tt_face_end_call_as(const char *function, tuttiResult_t result)
{
    const ncclResult_t ended = tt_face_end_as(function, result);
    if (ended) tt_face_note_failure(ended);
    return ended;
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

/* A text of tutti's with NCCL's names, in last.text. */
static void translate(const char *text)
{
    static const struct {
        const char *ours, *theirs;
    } names[] = {{"tutti", "nccl"}, {"TUTTI_SPLIT_", "NCCL_SPLIT_"}};
    size_t used = 0;
    const size_t word = strspn(text, LETTERS);
    if (last.function && text[word] == ':') {
        used = (size_t)snprintf(last.text, sizeof last.text, "%s", last.function);
        text += word;
    }
    for (bool begins = true; *text && used < sizeof last.text - 1;) {
        const char *copied = text;
        size_t length = 1;
        for (size_t i = 0; begins && i < sizeof names / sizeof names[0]; i++) {
            const size_t ours = strlen(names[i].ours);
            if (strncmp(text, names[i].ours, ours) != 0 || !isupper((unsigned char)text[ours]))
                continue;
            copied = names[i].theirs;
            length = ours;
        }
        begins = !isalnum((unsigned char)*text);
        used += (size_t)snprintf(last.text + used, sizeof last.text - used, "%.*s",
                                 copied == text ? 1 : (int)strlen(copied), copied);
        text += length;
    }
    last.text[used < sizeof last.text ? used : sizeof last.text - 1] = '\0';
}

/* A copy: programs read it also after they have destroyed the communicator. */
const char *pncclGetLastError(ncclComm_t comm)
{
    if (!last.is_own) translate(tuttiGetLastError(tt_face_comm(comm)));
    return last.text;
}

void pncclResetDebugInit(void)
{
    ncclResetDebugInitInternal();
}

void ncclResetDebugInitInternal(void) {}

#define TT_IN_ERRORS TT_FACE_TWIN
#include "nccl/names_table.h"
