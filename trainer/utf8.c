/* Finds the length of a character by its first byte, and checks the others. */
#include "utf8.h"

int tr_utf8_length(const unsigned char *text, size_t n)
{
    const unsigned char first = text[0];
    if (first < 0x80) return 1;
    const int nbytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || (size_t)nbytes > n) return 0;
    for (int i = 1; i < nbytes; ++i)
        if ((text[i] & 0xC0) != 0x80) return 0;
    /* Longer than need be; halves of UTF-16 pairs; above U+10FFFF. */
    if ((first == 0xE0 && text[1] < 0xA0) || (first == 0xED && text[1] >= 0xA0) ||
        (first == 0xF0 && text[1] < 0x90) || (first == 0xF4 && text[1] >= 0x90))
        return 0;
    return nbytes;
}
