/* Makes text safe to show: a value with a control character, as from a file with DOS line ends,
 * must be seen as it is, and must not move a terminal's cursor. */
#ifndef TT_BASE_ESCAPE_H
#define TT_BASE_ESCAPE_H

#include <stddef.h>

/* Copies `from`, which may be `to`'s own text only if that holds no control character. Control
 * characters become "\r", "\n", "\t" or "\x1b". Writes at most size bytes, the last of them 0; what
 * does not fit is left out. Returns the length. */
size_t tt_escape(char *to, size_t size, const char *from);

#endif
