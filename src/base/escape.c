/* Shows control characters of ASCII, and those of Latin-1 in UTF-8, as escapes. */
#include "base/escape.h"

#include <string.h>

/* The escape of the character at `from`, and the bytes that it stands for; 0: it is no control
 * character. */
static size_t control_at(const char *from, char escape[5])
{
    static const char digits[] = "0123456789abcdef", controls[] = "\r\n\t";
    const unsigned char first = (unsigned char)from[0], second = (unsigned char)from[1];
    const int is_latin = first == 0xc2 && second >= 0x80 && second < 0xa0;
    const unsigned char code = is_latin ? second : first;
    if (!is_latin && first >= 0x20 && first != 0x7f) return 0;
    const char *named = code ? strchr(controls, code) : NULL;
    escape[0] = '\\';
    if (named) {
        escape[1] = "rnt"[named - controls];
        escape[2] = '\0';
    } else {
        escape[1] = 'x';
        escape[2] = digits[code >> 4];
        escape[3] = digits[code & 15];
        escape[4] = '\0';
    }
    return is_latin ? 2 : 1;
}

size_t tt_escape(char *to, size_t size, const char *from)
{
    size_t used = 0;
    while (*from && used + 1 < size) {
        char escape[5] = {*from, '\0'};
        const size_t nbytes = control_at(from, escape);
        const size_t length = strlen(escape);
        if (used + length >= size) break;
        memmove(to + used, escape, length);
        used += length;
        from += nbytes ? nbytes : 1;
    }
    if (size) to[used] = '\0';
    return used;
}
