/* Included before a file of the trainer (tensors.sh): from here on a float is a number of the
 * backend's, such as a master, as elements of tensors (struct tr_data) are. A pointer to floats can
 * be moved and passed on; what it points to cannot be read, computed with or assigned to, nor given
 * to functions that do. */
#ifndef TT_TESTS_HOUSE_TENSORS_H
#define TT_TESTS_HOUSE_TENSORS_H

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti.h"

struct element {
    const char bytes[4];
};
#define float struct element
struct tr_data;

/* function, or what cannot be called where p points to elements. */
#define REFUSE(p, function)                                                                        \
    _Generic((p), float * : (int)0, const float * : (int)0, struct tr_data * : (int)0,             \
             const struct tr_data * : (int)0, default : function)
#define memset(to, value, n) REFUSE(to, memset)(to, value, n)
#define memcpy(to, from, n)                                                                        \
    _Generic((to), float * : (int)0, struct tr_data * : (int)0, default : REFUSE(from, memcpy))(   \
        to, from, n)
#define memmove(to, from, n)                                                                       \
    _Generic((to), float * : (int)0, struct tr_data * : (int)0, default : REFUSE(from, memmove))(  \
        to, from, n)
#define memcmp(a, b, n) REFUSE(a, REFUSE(b, memcmp))(a, b, n)

#endif
