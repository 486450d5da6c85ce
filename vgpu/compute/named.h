/* For the tests: makes an instruction of its name, and reads the results that an H100 gave. */
#ifndef VGPU_NAMED_H
#define VGPU_NAMED_H

#include <stdbool.h>

#include <vgpu/code.h>

/* The instruction of a name without operands ("add.rz.ftz.f32"); its operands lie in fixed units:
 * dst[0] at 0, src[k] at 4 + 4 k. false: unknown. */
bool vg_named(const char *name, struct vg_instr *in);

/* A row of vgpu/probes/results/h100-values.json.xz. */
struct vg_row {
    char name[96], out, in[4];
    unsigned grid;
    uint64_t sum_of_grid, sum_of_random, sum_of_all; /* sum_of_all: of 16-bit operands, else 0 */
    uint64_t outputs[256];
    unsigned noutputs;
    uint64_t sums_of_all[256]; /* of 32-bit operands, by their highest byte */
    bool has_all, has_parts;
};

/* Calls back for each row that has a sum; the number of rows, -1: the file cannot be read. */
int vg_rows(void (*row)(void *arg, const struct vg_row *row), void *arg);
/* Operand k of the grid, and of the random ones, of a letter (see vgpu/probes/values.h). */
uint64_t vg_grid_operand(const char *in, unsigned k, unsigned i);
uint64_t vg_random_operand(char letter, unsigned k, unsigned i);
unsigned vg_letter_bytes(char letter);
uint64_t vg_mix(uint64_t value);

#endif
