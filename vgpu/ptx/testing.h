/* What the reader's tests share. */
#ifndef VGPU_PTX_TESTING_H
#define VGPU_PTX_TESTING_H

#include <vgpu/code.h>

/* Lines 1 to 3 of every text of the tests. */
#define HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"
/* Lines 4 to 8: a kernel with registers; its statements begin in line 9. */
#define KERNEL                                                                                     \
    HEAD ".visible .entry k(.param .u64 out, .param .align 8 .b8 s[24]) {\n"                       \
         ".reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"                \
         ".reg .f32 %f<8>; .reg .f64 %d<8>; .reg .b128 %q<4>;\n"                                   \
         ".shared .align 16 .b8 buf[64];\n"                                                        \
         ".local .align 8 .b8 stack[32];\n"
#define END "ret;\n}\n"

/* The module of the text, or NULL after a failed check. The text is copied to memory of its own
 * size, so that a sanitizer sees who reads beyond it. */
struct vg_module *vg_test_read(const char *text);
/* A new string with the file's bytes; NULL: it cannot be read. */
char *vg_test_file(const char *path, size_t *nbytes);

#endif
