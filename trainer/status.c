/* Keeps the text of each thread's last error. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[2048];

tr_status tr_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return TR_FAILED;
}

const char *tr_error(void)
{
    return last_error;
}
