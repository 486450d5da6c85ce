/* Types, operations, and the reduction kernels. The values of tt_type and tt_op are tutti.h's. */
#ifndef TT_DATATYPE_DATATYPE_H
#define TT_DATATYPE_DATATYPE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum tt_type {
    TT_INT8,
    TT_UINT8,
    TT_INT32,
    TT_UINT32,
    TT_INT64,
    TT_UINT64,
    TT_FLOAT16,
    TT_FLOAT32,
    TT_FLOAT64,
    TT_BFLOAT16,
    TT_FLOAT8E4M3,
    TT_FLOAT8E5M2,
    TT_INT16,
    TT_UINT16,
    TT_NTYPES
};

enum tt_op {
    TT_SUM = 0,
    TT_PROD = 1,
    TT_MAX = 2,
    TT_MIN = 3,
    TT_AVG = 4,
    TT_PREMUL_SUM = 5, /* public handles >= tuttiFirstDynamicRedOp map to this plus a scalar */
    TT_BIT_AND = 16,
    TT_BIT_OR = 17,
    TT_BIT_XOR = 18,
    TT_LOGICAL_AND = 19,
    TT_LOGICAL_OR = 20,
    TT_LOGICAL_XOR = 21,
    TT_NOPS = 22
};

/* Bytes of one element; 0 for a value that is no type. */
size_t tt_type_size(enum tt_type type);
/* "float", "bfloat16", ... as nccl-tests prints them; "?" for no type. Static storage. */
const char *tt_type_name(enum tt_type type);
/* "sum", "prod", ...; "?" for no operation. */
const char *tt_op_name(enum tt_op op);
/* Whether the operation is defined for the type: bitwise and logical operations need an integer
 * type. False for unknown values. */
bool tt_op_supports(enum tt_op op, enum tt_type type);
static inline bool tt_type_is_float(enum tt_type type)
{
    return type >= TT_FLOAT16 && type <= TT_FLOAT8E5M2;
}
/* Whether TT_FINISH changes the result: averages of integers divide, logical operations give 0 or
 * 1. */
static inline bool tt_op_finishes(enum tt_op op, enum tt_type type)
{
    return (op == TT_AVG && !tt_type_is_float(type)) || op >= TT_LOGICAL_AND;
}
/* Whether raw sources are changed before they are folded (struct tt_sources). */
static inline bool tt_op_changes_raw(enum tt_op op, enum tt_type type)
{
    return op == TT_PREMUL_SUM || (op == TT_AVG && tt_type_is_float(type));
}

/* The type, operation and parameters of one call's reduction. Plain data. */
struct tt_reduction {
    enum tt_type type;
    enum tt_op op;
    int nranks;                /* TT_AVG divides by this; >= 1 */
    alignas(8) char scalar[8]; /* TT_PREMUL_SUM: one element of `type` */
};

/* What one pass folds, from left to right. A raw source is a rank's contribution as the caller of
 * the collective gave it. Before it is folded, TT_PREMUL_SUM multiplies it by the scalar, and
 * TT_AVG of floats divides it by nranks (16- and 8-bit floats are multiplied by 1 / nranks in
 * fp32). The product or quotient is rounded to the type, so it does not matter which rank makes it.
 */
struct tt_sources {
    const void *const *data; /* [number] */
    const bool *raw;         /* [number]; NULL: none is */
    int number;              /* >= 1 */
};

enum tt_reduce_flags {
    /* Of tt_reduce: the only source is raw. */
    TT_RAW = 1,
    /* The result is complete: TT_AVG of integers divides it by nranks. */
    TT_FINISH = 2,
    /* The result will not be read soon: stores go past the caches. */
    TT_NONTEMPORAL = 4,
};

/* dst[i] = src[0][i] op src[1][i] op ..., folded left to right, in one pass; nsrc >= 1, dst may be
 * any of the sources (same address) and overlaps no other. Pointers need no alignment. 16- and
 * 8-bit floats are widened to fp32, folded in fp32 and rounded once (to nearest even) at the end of
 * the pass. Rounding makes no infinity of an average: where a sum of finite numbers, or its
 * rounding to the type, would be infinite, it is the largest finite number. Same bits on every ISA.
 */
void tt_reduce(const struct tt_reduction *reduction, void *dst, const void *const *src, int nsrc,
               size_t count, unsigned flags);

/* One of the places where a result is stored. */
struct tt_target {
    void *data;
    bool nontemporal; /* store past the caches, as TT_NONTEMPORAL */
};

/* Folds the sources, as tt_reduce, to several targets at once, through the first-level cache: the
 * sources are read once, a block of at most 8 KiB of all of them before that block of any target is
 * written. So a target may be the same memory as a source, at the same address or mapped twice.
 * ntargets >= 1; flags: TT_FINISH or 0. */
void tt_reduce_to(const struct tt_reduction *reduction, const struct tt_target *targets,
                  int ntargets, const struct tt_sources *sources, size_t count, unsigned flags);

/* Copies src to several targets, of which one may be src itself. Reads src once for each target
 * that stays in the caches, and once for all others. */
void tt_copy_to(const struct tt_target *targets, int ntargets, const void *src, size_t nbytes);

/* Copies nbytes that do not overlap. With nontemporal the stores go past the caches; a fence before
 * the return makes a later release store publish them. */
void tt_copy(void *dst, const void *src, size_t nbytes, bool nontemporal);
/* Whether tt_copy uses the CPU's instruction for strings (rep movsb), as on CPUs of Intel. */
bool tt_has_fast_rep_movsb(void);
/* As tt_copy, of short messages, to memory that another core has read and reads again, or that this
 * core has in its cache: never by rep movsb. */
void tt_copy_shared(void *dst, const void *src, size_t nbytes);
/* Whether the instruction set in use has such stores; else tt_copy does the same in both ways. */
bool tt_copies_past_caches(void);

enum { TT_FEW_BYTES = 512 };
/* Copies nbytes that do not overlap, most often few. */
static inline void tt_copy_short(void *dst, const void *src, size_t nbytes)
{
    if (nbytes < TT_FEW_BYTES)
        memcpy(dst, src, nbytes);
    else
        tt_copy(dst, src, nbytes, false);
}

/* As tt_copy_short, with tt_copy_shared. */
static inline void tt_copy_short_shared(void *dst, const void *src, size_t nbytes)
{
    if (nbytes < TT_FEW_BYTES)
        memcpy(dst, src, nbytes);
    else
        tt_copy_shared(dst, src, nbytes);
}

/* The instruction set in use: "scalar", "avx2" or "avx512". Static storage. */
const char *tt_isa_in_use(void);
/* The CPU's features that kernels use or could use, separated by blanks. Static storage. */
const char *tt_isa_found(void);

#endif
