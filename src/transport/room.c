/* How a room fails the communicator of the rank that it works for. */
#include "transport/room.h"

#include <stdarg.h>
#include <stdio.h>

tt_status tt_room_fail(const struct tt_room_context *context, int code, const char *format, ...)
{
    char text[TT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return context->events->fail(context->owner, code, text);
}
