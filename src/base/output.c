/* Formats one line and hands it to the caller's function. */
#include "base/output.h"

#include <stdarg.h>
#include <stdio.h>

void tt_say(const struct tt_output *output, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    output->emit(output->arg, line);
}
