/* The instructions whose values the probe `values` records, and the PTX that computes them. */
#ifndef GPU_PROBES_VALUES_H
#define GPU_PROBES_VALUES_H

#include <stddef.h>

/* A family of instructions. `pattern` has choices in braces: "add{.rn,.rz}{,.ftz}.f32"; a text
 * without a blank gets its operands in the order d, a, b, c; one with a blank names them itself as
 * $d, $a, $b, $c, and may use the registers $t (32 bits), $u (64), $f, $g (fp32), $v, $w (fp64),
 * $p (predicate), $m (the address of memory that begins as $a) and $n (of a shared word).
 * Letters of `out` and of `in`, one an operand:
 *   f  fp32      d  fp64      h  fp16      b  bf16      w  two fp16     x  two bf16
 *   r  32 bits   l  64 bits   s  16 bits   e  two fp8   m  a word of memory, which begins as $a
 * An instruction of a warp: thread i of the table is lane i % 32. */
struct family {
    const char *pattern, *out, *in;
};
extern const struct family families[];
extern const size_t nfamilies;

/* The member `number` of the family; false past the end. */
int family_member(const struct family *family, int number, char *text, size_t size);
/* PTX of a kernel `k`: u64 out, a, b, c; u32 n. */
size_t values_ptx(const char *text, const char *out, const char *in, int number, char *ptx,
                  size_t size);
/* Bytes of an operand. */
int operand_bytes(char letter);

#endif
