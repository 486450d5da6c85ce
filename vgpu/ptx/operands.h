/* Operands as they stand in the text, before an instruction's form says what they must be. */
#ifndef VGPU_PTX_OPERANDS_H
#define VGPU_PTX_OPERANDS_H

#include <vgpu/ptx/reader.h>

enum vg_operand_kind {
    VG_OPERAND_REGISTER,
    VG_OPERAND_NUMBER,
    VG_OPERAND_SPECIAL, /* number: enum vg_special, or VG_SPECIALS + a constant's value */
    VG_OPERAND_SINK,    /* _ */
    VG_OPERAND_SYMBOL,  /* with addend */
    VG_OPERAND_NAME,    /* of no declared thing: a label that follows, or a mistake */
    VG_OPERAND_VECTOR,
    VG_OPERAND_ADDRESS /* [base + addend]: elements[0] is the base */
};

struct vg_operand {
    enum vg_operand_kind kind;
    struct vg_token token; /* the first one */
    bool negated;
    uint32_t number; /* of the register, the special register */
    enum vg_type type;
    struct vg_value value;
    const struct vg_symbol *symbol;
    int64_t addend;
    struct vg_operand *elements; /* of a vector, an address */
    uint32_t nelements;
    struct vg_operand *pair; /* p|q */
};

/* The operands up to ';', which is skipped. Returns how many. */
uint32_t vg_ptx_operands_read(struct vg_reader *r, struct vg_operand operands[VG_MAX_OPERANDS]);
void vg_ptx_operand_read(struct vg_reader *r, struct vg_operand *operand);
_Noreturn void vg_ptx_operand_wrong(struct vg_reader *r, const struct vg_operand *operand,
                                    const char *opcode, const char *expected);

/* An instruction that is being lowered. */
struct vg_lowering {
    struct vg_draft draft;
    const char *opcode; /* for errors */
    uint32_t ndst, nsrc;
    /* Registers wider than the instruction's type: written from the register before by a CVT that
     * follows the instruction. */
    struct {
        uint32_t wide, narrow;
        enum vg_type wide_type, narrow_type;
    } after[8];
    uint32_t nafter;
    uint32_t high_dst[4], high_src[4]; /* elements 4 to 7 of a vector of 8 */
    bool hint;                         /* .L2::cache_hint: a policy operand follows */
    bool evicts;                       /* .L2::evict_first: only of vectors of 256 bits */
    bool specials;                     /* special registers may be sources */
    bool symbols;                      /* addresses of variables may be sources */
    bool refused;                      /* an operand is right, but not supported */
};

/* The operand as a source or destination of the type; a wider register is taken in where `wide`.
 * Special registers and addresses are put into new registers before the instruction. */
uint32_t vg_ptx_source(struct vg_reader *r, struct vg_lowering *low,
                       const struct vg_operand *operand, enum vg_type type, bool wide);
uint32_t vg_ptx_destination(struct vg_reader *r, struct vg_lowering *low,
                            const struct vg_operand *operand, enum vg_type type, bool wide);
/* [address]: sets src[0], imm, frame and flags. */
void vg_ptx_address(struct vg_reader *r, struct vg_lowering *low, const struct vg_operand *operand);
/* [address] of global memory as a register or constant of 64 bits. */
uint32_t vg_ptx_global_address(struct vg_reader *r, struct vg_lowering *low,
                               const struct vg_operand *operand);
/* A generic address in a register of 32 or 64 bits. */
uint32_t vg_ptx_generic_address(struct vg_reader *r, struct vg_lowering *low,
                                const struct vg_operand *operand);
/* Adds the draft and what follows it. */
void vg_ptx_lowered(struct vg_reader *r, struct vg_lowering *low);
/* %tid.x; false: there is no such special register. */
bool vg_ptx_special_named(const struct vg_token *name, const struct vg_token *part,
                          uint32_t *number, enum vg_type *type);

#endif
