/* Records and logs a failure with its text, one text a thread. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "base/log.h"
#include "base/names.h"

static _Thread_local char last_error[TT_ERROR_TEXT];

tt_status tt_fail_at(const char *file, int line, int code, const char *format, ...)
{
    char text[TT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tt_set_last_error(text);
    if (tt_log_level() >= TT_LOG_WARN) tt_log(TT_LOG_WARN, file, line, "%s", last_error);
    return code;
}

tt_status tt_fail_errno_at(const char *file, int line, int error, const char *format, ...)
{
    char text[TT_ERROR_TEXT / 2];
    char reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
#ifdef __GLIBC__
    const char *words = strerror_r(error, reason, sizeof reason);
#else
    const char *words = strerror_r(error, reason, sizeof reason) ? "unknown error" : reason;
#endif
    return tt_fail_at(file, line, TT_ERR_SYSTEM, "%s: %s (errno %d)", text, words, error);
}

const char *tt_last_error(void)
{
    return last_error;
}

void tt_set_last_error(const char *text)
{
    char shown[TT_ERROR_TEXT]; /* text may be last_error */
    tt_escape(shown, sizeof shown, text);
    tt_rename_for_user(last_error, sizeof last_error, shown);
}
