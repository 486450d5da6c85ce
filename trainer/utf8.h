/* Which bytes are a character of UTF-8. */
#ifndef TR_UTF8_H
#define TR_UTF8_H

#include <stddef.h>

/* The bytes, 1 to 4, of the character that text[n] begins with, n at least 1; 0 when it begins with
 * none, or with a part of one. */
int tr_utf8_length(const unsigned char *text, size_t n);

#endif
