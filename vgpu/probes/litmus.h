/* Litmus tests as text, and the PTX that is made from them. */
#ifndef GPU_PROBES_LITMUS_H
#define GPU_PROBES_LITMUS_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_ROLES = 4, MOST_OPS = 6, MOST_FIELDS = 6 };

/* One litmus test. `text` has the roles, separated by |, and their operations in program order:
 *   W x 1   store 1 in x, as a flag        w x 1   the same, as data
 *   R x     load x, as a flag              r x     the same, as data
 *   A x     atomic add of 1 to x           F       the variant's fence, if it has one
 * Variables are x, y, z and begin with 0. The outcome is the values loaded, in the order of the
 * text, then, with `final`, the last values of the variables. */
struct litmus_test {
    const char *name, *text;
    bool final;
};
extern const struct litmus_test litmus_tests[];
extern const size_t litmus_ntests;

/* What the letters become. "%s" is the scope. */
struct litmus_variant {
    const char *name;
    const char *data_store, *data_load, *flag_store, *flag_load, *add, *fence;
    bool scoped;
};
extern const struct litmus_variant litmus_variants[];
extern const size_t litmus_nvariants;
extern const char *const litmus_scopes[3];

/* A test as read. */
struct litmus_shape {
    int nroles, nloads, nvariables;
};
struct litmus_shape litmus_shape(const struct litmus_test *test);

/* The PTX of the kernel `name` for one variant and scope; returns its length. Parameters:
 *   u64 memory, u64 out, u64 counter, u32 mask, u32 stride, u32 odd, u32 apart, u32 same, u32
 * jitter, u32 nrounds. Blocks of 384 threads; their number is a multiple of 12. */
size_t litmus_ptx(const struct litmus_test *test, const struct litmus_variant *variant,
                  const char *scope, const char *name, char *text, size_t size);
extern const char litmus_header[];

#endif
