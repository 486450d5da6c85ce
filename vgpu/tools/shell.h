/* Commands as a shell runs them, for tests of programs: their output and their status. */
#ifndef VGPU_TOOLS_SHELL_H
#define VGPU_TOOLS_SHELL_H

#include <shim.h>
#include <stdbool.h>

/* Runs the command in the folder vgpu/example of the source. The exit status, or -1. Its output,
 * both streams, is what vt_output returns until the next command. */
int vt_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *vt_output(void);
bool vt_output_has(const char *text);

/* A path in a folder that is removed when the test program ends; valid until the next call. */
const char *vt_temporary(const char *name);
void vt_write_file(const char *path, const char *text);

#define CHECK_HAS(text)                                                                            \
    CHECK_MESSAGE(vt_output_has(text), "\"%s\" is not in:\n%s", text, vt_output())

#endif
