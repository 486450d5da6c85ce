/* Reads decimal numbers of the tools' options. */
#ifndef TUTTI_TOOLS_DECIMAL_H
#define TUTTI_TOOLS_DECIMAL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether the whole text is a decimal number, such as 0.5 or 1e3, which goes to *value. What strtod
 * takes besides is not: hexadecimal, blanks, inf, nan. */
static inline bool read_decimal(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && text[strspn(text, "+-.0123456789eE")] == '\0';
}

#endif
