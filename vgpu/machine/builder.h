/* Small programs for the tests of the machine, built instruction by instruction, and a GPU with one
 * buffer to run them on. */
#ifndef VGPU_MACHINE_BUILDER_H
#define VGPU_MACHINE_BUILDER_H

#include <vgpu/machine.h>

enum { B_CODE = 256, B_FUNCTIONS = 8, B_CONSTANTS = 256, B_OUTPUT = 1 << 20, B_TEXT = 4096 };
#define B_ADDRESS UINT64_C(0x700000000000)

/* Where b_kernel leaves what kernels begin with; free registers begin at R. */
enum { OUT = 0, TID = 2, CTA = 3, GLOBAL = 4, LANE = 5, MINE = 6, R = 8 };

struct builder {
    struct vg_module module;
    struct vg_function functions[B_FUNCTIONS];
    struct vg_instr code[B_FUNCTIONS][B_CODE];
    uint32_t constants[B_CONSTANTS][VG_LANES];
    uint32_t targets[64];
    struct vg_place places[4];
    const char *files[1];
    struct vg_function *f; /* that instructions are added to */
    /* what it runs on */
    struct vg_machine_settings settings;
    struct vg_gpu gpu;
    struct vg_regions regions;
    struct vg_region buffer;
    uint32_t *out; /* the buffer's bytes */
    struct vg_machine *machine;
    char text[B_TEXT]; /* fault, description or print */
    char printed[B_TEXT];
    enum vg_fault fault;
    struct vg_machine_counts counts;
    struct vgpu_traffic traffic;
    struct vg_model_counts model_counts;
    uint32_t shared, local, steps;
    bool cooperative, for_host;
    /* What runs instead of the module above: a module that was read. */
    struct vg_module *ran;
    const struct vg_function *kernel;
    const void *params;
};

struct builder *b_create(void);
void b_destroy(struct builder *b);
/* Begins a function; the first is the kernel, which gets the buffer's address as its parameter and
 * begins by computing OUT, TID, CTA, GLOBAL, LANE and MINE = OUT + 4 * GLOBAL. */
uint32_t b_function(struct builder *b, const char *name);
void b_kernel(struct builder *b);

uint16_t b_k(struct builder *b, uint32_t value);   /* a constant of 32 bits */
uint16_t b_k64(struct builder *b, uint64_t value); /* of 64 */
struct vg_instr *b_add(struct builder *b, enum vg_op op, enum vg_type type);
struct vg_instr *b_alu(struct builder *b, enum vg_op op, enum vg_type type, uint16_t d, uint16_t a,
                       uint16_t c);
void b_mov(struct builder *b, uint16_t d, uint16_t a);
void b_setp(struct builder *b, enum vg_compare compare, uint16_t p, uint16_t a, uint16_t c);
void b_special(struct builder *b, uint16_t d, enum vg_special which);
struct vg_instr *b_ld(struct builder *b, enum vg_type type, enum vg_space space, uint16_t d,
                      uint16_t address, int64_t imm);
struct vg_instr *b_st(struct builder *b, enum vg_type type, enum vg_space space, uint16_t address,
                      int64_t imm, uint16_t value);
struct vg_instr *b_atom(struct builder *b, enum vg_atom mode, enum vg_type type,
                        enum vg_space space, uint16_t d, uint16_t address, uint16_t value);
void b_guard(struct vg_instr *in, uint16_t p, bool negated);
/* A branch to be landed later, or to a place that exists. */
struct vg_instr *b_bra(struct builder *b, uint16_t p, bool negated);
void b_land(struct builder *b, struct vg_instr *branch);
uint32_t b_here(const struct builder *b);
void b_exit(struct builder *b);
void b_result(struct builder *b, uint16_t value); /* out[GLOBAL] = value; exit */
struct vg_instr *b_sync(struct builder *b, uint16_t number, uint16_t count);

/* Runs the kernel to its end, to a fault or until it waits; the result's text is in b->text. */
enum vg_progress b_run(struct builder *b, uint32_t nblocks, uint32_t nthreads);

#endif
