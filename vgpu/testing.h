/* What tests of several parts of the virtual GPU have in common. */
#ifndef VGPU_TESTING_H
#define VGPU_TESTING_H

#include <shim.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes that the process has in memory. */
static inline size_t resident(void)
{
    unsigned long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &pages) == 2);
    if (file != NULL) fclose(file);
    return pages << 12;
}

#endif
