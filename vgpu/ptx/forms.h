/* The forms of instructions: which modifiers and operands exist, after chapter 9 of the manual.
 *
 * A form's modifiers are slots in the manual's order, with a blank between them. A slot is a class,
 * ':' and the words that may stand there with '|' between them; with '?' at its end it may be
 * missing. '^' before it: the word stands behind those of the slots before and in front of all
 * others; '>': somewhere behind the word of the slot before; without them in any place, but a
 * second type behind the first. The class says what the word sets:
 * - t type, s type2, r round, c compare, k combine, o order, S scope, p space, v count;
 * - M A R V H P E: mode, as enum vg_mul, vg_atom, vg_reduce, vg_vote, vg_shuffle, vg_prmt,
 * vg_testp;
 * - f a flag, y volatile, b the pieces of cvt.pack, h cache hint (an operand follows), F a second
 * f32 for each of two halves of 64 bits, '-' nothing.
 *
 * A form's operands, with a blank between them, '?' at the end: it may be missing:
 * - written: d register of the type, D of type2, w of twice the type's width, x of u32, X of b64,
 *   p a predicate, e of the type or wider, v a vector of count elements (or wider);
 * - read: a of the type, s of type2, W of twice the width, u of u32, U of b64, E of type2 or wider,
 * V a vector, q a predicate or its negation, Q a predicate, C as a, or a variable's address;
 * - constants are checked where the operand is one: k from 0 to 255, B a barrier's number, N a
 * number of threads, A the same and not 0, y 0 or 1, o not 0;
 * - Y a register of the type, K a generic address of 32 or 64 bits;
 * - always constants: i for imm, l lop3's table, L 128, t 0 to 15, T 16 bits, G a power of two,
 * R a multiple of 8 from 24 to 256;
 * - m an address, h the policy of a cache hint if there is one, z a source that only is checked: a
 * constant or register of b64, Z of f32;
 * - of cp.async: g the global address, n the size (M: 16), c how much of that is read;
 * - d|p, p|p: the second one may be missing; d&p: it must not. */
#ifndef VGPU_PTX_FORMS_H
#define VGPU_PTX_FORMS_H

#include <stdint.h>

#include <vgpu/code.h>

struct vg_form {
    const char *name;
    uint8_t op, mode;
    uint32_t flags;
    const char *modifiers, *operands;
};

/* The tables end with a form without a name. */
extern const struct vg_form vg_ptx_forms_integer[], vg_ptx_forms_float[], vg_ptx_forms_data[],
    vg_ptx_forms_memory[], vg_ptx_forms_together[];

struct vg_word {
    char class;
    const char *word;
    int value;
};
/* What a word sets in a slot of the class; NULL: the class has no such word. */
const struct vg_word *vg_ptx_word_find(char class, const char *word, uint32_t length);

/* Instructions that exist but are not supported: "wgmma", "cp.async.bulk". */
extern const char *const vg_ptx_unsupported[];

#endif
