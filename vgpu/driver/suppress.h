/* Suppressions: reports that are not made. A file of lines
 *
 *     KIND KERNEL PLACE      # a comment
 *
 * KIND is that of the report (race, fault, deadlock, stall, leak) or *. KERNEL and PLACE are
 * patterns of a shell: a line holds when the report names a kernel that KERNEL matches and, for
 * that kernel, a place FILE:LINE (PTX:LINE without -lineinfo) that PLACE matches, as a whole or
 * from the last slash on. A PLACE of * also holds for a report without a place. */
#ifndef VGPU_DRIVER_SUPPRESS_H
#define VGPU_DRIVER_SUPPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { VD_NAMED = 32 };

/* The kernels and places that a report names: the text is that of the machine (machine/fault.c). */
struct vd_named {
    struct {
        char kernel[128], place[256]; /* place: "" when the kernel has none */
    } at[VD_NAMED];
    unsigned n;
};
void vd_named_find(const char *text, struct vd_named *named);

/* Reads the file. -1: error names the line and what was expected. */
int vd_suppress_read(const char *path, char error[512]);
/* Whether a line holds; it is counted. */
bool vd_suppressed(const char *kind, const struct vd_named *named);
/* How often each line held. */
void vd_suppress_print(FILE *to);

#endif
