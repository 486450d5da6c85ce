/* The functions that exist so that programs find them, and fail with CUDA_ERROR_NOT_SUPPORTED. They
 * are weak: a file that has the function takes its place. Arguments do not matter, so cuda.h is not
 * included. */
#include <stdio.h>

enum { NOT_SUPPORTED = 801 };

static int refuse(const char *name, int *said)
{
    if (!*said) fprintf(stderr, "vgpu: WARN: %s is not supported by the virtual GPU\n", name);
    *said = 1;
    return NOT_SUPPORTED;
}

#define REFUSED(name)                                                                              \
    __attribute__((weak, visibility("default"))) int name(void);                                   \
    int name(void)                                                                                 \
    {                                                                                              \
        static int said;                                                                           \
        return refuse(#name, &said);                                                               \
    }
#include "refused_table.h"
