/* Shows control characters of an argument as escapes, in the errors of the tools. */
#ifndef TUTTI_TOOLS_ESCAPE_H
#define TUTTI_TOOLS_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/* Copies text to `to`, with "\x0d" for a carriage return. What does not fit is left out. Returns
 * to. */
static inline const char *escape_controls(char *to, size_t size, const char *text)
{
    size_t used = 0;
    to[0] = '\0';
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const char *format = c < 0x20 || c == 0x7f ? "\\x%02x" : "%c";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        const int length = snprintf(to + used, size - used, format, c);
#pragma GCC diagnostic pop
        if (length < 0 || used + (size_t)length >= size) break;
        used += (size_t)length;
    }
    to[used] = '\0';
    return to;
}

#endif
