/* The compact form of PTX: the reader (ptx/) writes it, the machine (machine/) runs it.
 *
 * Registers. A warp keeps its registers as arrays over its 32 lanes. A *unit* is 32 lanes of 4
 * bytes (128 bytes). A register of 8, 16 or 32 bits takes one unit (the unused upper bits are
 * zero), one of 64 bits two units (32 lanes of 8 bytes), one of 128 bits four (32 lanes of the low
 * 8 bytes, then 32 lanes of the high ones). An operand is the index of its first unit in the
 * function's frame; with VG_CONSTANT set, in the module's constants, which have the same shape: an
 * immediate is a register that nobody writes. A predicate is a bit a lane, in an array of 32-bit
 * masks.
 *
 * A unit holds registers of one width only: lanes at different places of the code keep different
 * registers in it. The unused upper bits of a unit are zero: who writes the register keeps that. A
 * destination shares no unit with a source unless both are the same register, or the instruction's
 * operands all have the same width.
 *
 * Sources: PTX ISA 9.0, chapters 4 (syntax), 5 (state spaces, types), 9 (instructions). */
#ifndef VGPU_CODE_H
#define VGPU_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VG_LANES = 32, VG_UNIT_BYTES = 128 };
enum { VG_NONE = 0xffff, VG_CONSTANT = 0x8000 };

enum vg_type {
    VG_PRED,
    VG_B8,
    VG_B16,
    VG_B32,
    VG_B64,
    VG_B128,
    VG_U8,
    VG_U16,
    VG_U32,
    VG_U64,
    VG_S8,
    VG_S16,
    VG_S32,
    VG_S64,
    VG_F16,
    VG_F16X2,
    VG_BF16,
    VG_BF16X2,
    VG_F32,
    VG_F64,
    VG_TF32,
    VG_E4M3,
    VG_E5M2,
    VG_E4M3X2,
    VG_E5M2X2,
    VG_U16X2,
    VG_S16X2,
    VG_TYPES
};

/* Bytes of a value of the type. */
static inline uint32_t vg_type_bytes(uint8_t type)
{
    switch (type) {
    case VG_B8:
    case VG_U8:
    case VG_S8:
    case VG_E4M3:
    case VG_E5M2:
        return 1;
    case VG_B16:
    case VG_U16:
    case VG_S16:
    case VG_F16:
    case VG_BF16:
    case VG_E4M3X2:
    case VG_E5M2X2:
        return 2;
    case VG_B64:
    case VG_U64:
    case VG_S64:
    case VG_F64:
        return 8;
    case VG_B128:
        return 16;
    default:
        return 4;
    }
}

/* What an instruction does. Operands: dst[] and src[] in the order of the manual's syntax;
 * differences are said here. */
enum vg_op {
    /* integer; MUL, MAD: mode is an enum vg_mul, type that of the sources (of the product's half)
     */
    VG_ADD,
    VG_SUB,
    VG_MUL,
    VG_MAD,
    VG_MUL24,
    VG_MAD24,
    VG_SAD,
    VG_DIV,
    VG_REM,
    VG_ABS,
    VG_NEG,
    VG_MIN,
    VG_MAX,
    VG_POPC,
    VG_CLZ,
    VG_BFIND,
    VG_FNS,
    VG_BREV,
    VG_BFE,
    VG_BFI,
    VG_SZEXT,
    VG_BMSK,
    VG_DP4A,
    VG_DP2A,
    /* floating point: also ADD, SUB, MUL, DIV, ABS, NEG, MIN, MAX */
    VG_FMA,
    VG_TESTP,
    VG_COPYSIGN,
    VG_RCP,
    VG_SQRT,
    VG_RSQRT,
    VG_SIN,
    VG_COS,
    VG_LG2,
    VG_EX2,
    VG_TANH,
    /* compare and choose. SETP: type is the operands', dst[0] and dst[1] (or VG_NONE) predicates,
     * src[2] the predicate to combine with. SET: type is the result's, type2 the operands', src[2]
     * as for SETP. SELP: src[2] the predicate. SLCT: type2 is that of src[2]. */
    VG_SET,
    VG_SETP,
    VG_SELP,
    VG_SLCT,
    /* bits; LOP3: mode is the table; with combine dst[1] is the predicate and src[3] the one to
     * combine with, dst[0] may be VG_NONE */
    VG_AND,
    VG_OR,
    VG_XOR,
    VG_NOT,
    VG_CNOT,
    VG_LOP3,
    VG_SHF,
    VG_SHL,
    VG_SHR,
    /* data; CVT: count is the bytes of the destination's register where that is wider than the type
     * (its sign or zeros extend the value), else 0; CVT_PACK: count is the bits of a piece, mode 1:
     * the pieces are signed; two sources: src[0] gives the high half. PACK: dst[0] from count
     * sources of type2; UNPACK: count destinations of type2 from src[0]; SPECIAL: imm is an enum
     * vg_special; ADDRESS_LOCAL: dst[0] = the thread's frame in local memory + imm, as an address
     * of that space */
    VG_MOV,
    VG_PACK,
    VG_UNPACK,
    VG_SPECIAL,
    VG_ADDRESS_LOCAL,
    VG_PRMT,
    VG_CVT,
    VG_CVT_PACK,
    VG_CVTA,
    VG_CVTA_TO,
    VG_ISSPACEP,
    VG_ALLOCA,
    VG_STACKSAVE,
    VG_STACKRESTORE,
    /* memory: the address is src[0] + imm. LD: dst[0..count); ST: src[1..1+count); ATOM, RED: mode
     * is an enum vg_atom, src[1] the operand, src[2] the second one of CAS. count > 1: a vector
     * access, count scalar accesses. In the space VG_PARAM_SPACE of a kernel or function the
     * address is imm alone (an offset in its parameters). src[0] VG_NONE: the address is imm (in
     * VG_LOCAL an offset in the function's frame). type2 is the type of the address register,
     * VG_B32 or VG_B64. LD of VG_S8 and VG_S16 extends the sign to 32 bits, of other types zeros;
     * what is wider or narrower the reader makes with a CVT. CP_ASYNC: src[0] + imm is the shared
     * address, src[1] the global one, src[2] the bytes to read or VG_NONE, count the bytes to
     * write, mode 1: the last source is a predicate that ignores the read. LD, ST: compare: of what
     * the address must be a multiple where that is more than the bytes of the access, or 0 (a
     * vector of 256 bits is two accesses; the first one has it). */
    VG_LD,
    VG_ST,
    VG_ATOM,
    VG_RED,
    VG_PREFETCH,
    VG_CP_ASYNC,
    VG_CP_ASYNC_COMMIT,
    VG_CP_ASYNC_WAIT,
    VG_CP_ASYNC_MBARRIER,
    VG_MBARRIER_INIT,
    VG_MBARRIER_INVAL,
    VG_MBARRIER_ARRIVE,
    VG_MBARRIER_ARRIVE_DROP,
    VG_MBARRIER_TEST_WAIT,
    VG_MBARRIER_TRY_WAIT,
    VG_MBARRIER_PENDING,
    VG_MBARRIER_EXPECT,
    /* control: target is an index into the function's code; BRX: src[0] indexes targets[target ..
     * target+imm). CALL: target is the index of the callee's function; src[0] its address for an
     * indirect call (target VG_INDIRECT). imm: where the parameters lie in the caller's frame of
     * local memory, inputs then results, with the offsets of the callee's params: the callee's
     * VG_PARAM_SPACE is that piece of the caller's frame. */
    VG_BRA,
    VG_BRX,
    VG_CALL,
    VG_RET,
    VG_EXIT,
    VG_TRAP,
    VG_BRKPT,
    VG_NOP,
    VG_NANOSLEEP,
    /* together: BAR_*: src[0] the barrier's number, src[1] its count of threads or VG_NONE;
     * BAR_RED: mode is an enum vg_reduce, dst[0] a predicate (AND, OR) or a register (POPC), src[2]
     * a predicate. VG_ALIGNED: bar and barrier.aligned. Of a warp: VOTE: dst[0], src[0] the
     * predicate, src[1] the lanes' mask; MATCH: dst[0], dst[1] the predicate of MATCH_ALL, src[0],
     * src[1] the mask; REDUX: dst[0], src[0], src[1] the mask; SHFL: dst[0], dst[1] the predicate
     * or VG_NONE, src[0] to src[2], src[3] the mask; ELECT: dst[0], dst[1] the predicate, src[0]
     * the mask; WARP_SYNC: src[0]. */
    VG_BAR_SYNC,
    VG_BAR_ARRIVE,
    VG_BAR_RED,
    VG_WARP_SYNC,
    VG_FENCE,
    VG_FENCE_ALIAS, /* fence.proxy.alias */
    VG_VOTE,
    VG_MATCH_ANY,
    VG_MATCH_ALL,
    VG_ACTIVEMASK,
    VG_REDUX,
    VG_SHFL,
    VG_ELECT,
    /* printf and assert are calls of vprintf and __assertfail: the reader makes them of CALL, with
     * the same imm. Results lie behind the inputs (vprintf's at 16). */
    VG_PRINTF,
    VG_ASSERTFAIL,
    VG_UNSUPPORTED, /* imm: index into the module's texts; the kernel that holds it fails when it is
                       launched */
    VG_OPS
};

enum vg_special {
    VG_TID_X,
    VG_TID_Y,
    VG_TID_Z,
    VG_NTID_X,
    VG_NTID_Y,
    VG_NTID_Z,
    VG_CTAID_X,
    VG_CTAID_Y,
    VG_CTAID_Z,
    VG_NCTAID_X,
    VG_NCTAID_Y,
    VG_NCTAID_Z,
    VG_LANEID,
    VG_WARPID,
    VG_NWARPID,
    VG_SMID,
    VG_NSMID,
    VG_GRIDID,
    VG_WORKSPACE_HI, /* %envreg1 and %envreg2: where a cooperative grid's workspace lies, */
    VG_WORKSPACE_LO, /* which cooperative groups use; 0 in other grids */
    VG_LANEMASK_EQ,
    VG_LANEMASK_LE,
    VG_LANEMASK_LT,
    VG_LANEMASK_GE,
    VG_LANEMASK_GT,
    VG_CLOCK,
    VG_CLOCK_HI,
    VG_CLOCK64,
    VG_GLOBALTIMER,
    VG_GLOBALTIMER_LO,
    VG_GLOBALTIMER_HI,
    VG_DYNAMIC_SMEM_SIZE,
    VG_TOTAL_SMEM_SIZE,
    VG_SPECIALS
};

enum vg_space { VG_GENERIC, VG_GLOBAL, VG_SHARED, VG_LOCAL, VG_CONST, VG_PARAM_SPACE };
/* VOLATILE is RELAXED at scope .sys whose number of accesses is kept; MMIO likewise. */
enum vg_order { VG_WEAK, VG_RELAXED, VG_ACQUIRE, VG_RELEASE, VG_ACQ_REL, VG_SC };
enum vg_scope { VG_SCOPE_NONE, VG_SCOPE_CTA, VG_SCOPE_CLUSTER, VG_SCOPE_GPU, VG_SCOPE_SYS };
enum vg_atom {
    VG_ATOM_EXCH,
    VG_ATOM_CAS,
    VG_ATOM_ADD,
    VG_ATOM_INC,
    VG_ATOM_DEC,
    VG_ATOM_MIN,
    VG_ATOM_MAX,
    VG_ATOM_AND,
    VG_ATOM_OR,
    VG_ATOM_XOR
};
enum vg_round { VG_RN, VG_RZ, VG_RM, VG_RP, VG_RNA, VG_RNI, VG_RZI, VG_RMI, VG_RPI, VG_ROUND_NONE };
/* EQ to GE signed or ordered; LO to HS unsigned; EQU to GEU unordered; NUM, NAN. */
enum vg_compare {
    VG_EQ,
    VG_NE,
    VG_LT,
    VG_LE,
    VG_GT,
    VG_GE,
    VG_LO,
    VG_LS,
    VG_HI,
    VG_HS,
    VG_EQU,
    VG_NEU,
    VG_LTU,
    VG_LEU,
    VG_GTU,
    VG_GEU,
    VG_NUM,
    VG_NAN
};
enum vg_bool { VG_BOOL_NONE, VG_BOOL_AND, VG_BOOL_OR, VG_BOOL_XOR };
enum vg_mul { VG_MUL_LO, VG_MUL_HI, VG_MUL_WIDE };
enum vg_reduce {
    VG_REDUCE_AND,
    VG_REDUCE_OR,
    VG_REDUCE_XOR,
    VG_REDUCE_POPC,
    VG_REDUCE_ADD,
    VG_REDUCE_MIN,
    VG_REDUCE_MAX
};
enum vg_vote { VG_VOTE_ALL, VG_VOTE_ANY, VG_VOTE_UNI, VG_VOTE_BALLOT };
enum vg_shuffle { VG_SHFL_UP, VG_SHFL_DOWN, VG_SHFL_BFLY, VG_SHFL_IDX };
enum vg_prmt {
    VG_PRMT_INDEX,
    VG_PRMT_F4E,
    VG_PRMT_B4E,
    VG_PRMT_RC8,
    VG_PRMT_ECL,
    VG_PRMT_ECR,
    VG_PRMT_RC16
};
enum vg_testp { VG_FINITE, VG_INFINITE, VG_NUMBER, VG_NOTANUMBER, VG_NORMAL, VG_SUBNORMAL };

enum vg_flags {
    VG_GUARD_NOT = 1,  /* @!p */
    VG_SOURCE_NOT = 2, /* the last predicate among the sources is negated: setp ... , !q */
    VG_FTZ = 4,
    VG_SAT = 8, /* .sat: to [0,1] of floats, clamping of integers; .satfinite too */
    VG_APPROX = 16,
    VG_FULL = 32,         /* div.full */
    VG_PROPAGATE = 64,    /* .NaN of min, max; */
    VG_CARRY_IN = 128,    /* addc, subc, madc */
    VG_CARRY_OUT = 256,   /* .cc */
    VG_CLAMP = 512,       /* .clamp of shf, bmsk, szext; otherwise .wrap */
    VG_SHIFT_LEFT = 1024, /* shf.l */
    VG_ABS_FLAG = 2048,   /* .abs, .xorsign and their like: .xorsign.abs of min, max */
    VG_RELU = 4096,
    VG_NC = 8192,        /* ld.global.nc */
    VG_NOFTZ = 16384,    /* .noftz of atom.add */
    VG_SHIFTAMT = 32768, /* bfind.shiftamt */
    VG_NO_COMPLETE = 65536,
    VG_PARITY = 131072,       /* mbarrier ... .parity */
    VG_ALL_GROUPS = 262144,   /* cp.async.wait_all */
    VG_HIGH_HALF = 524288,    /* dp2a.hi */
    VG_B128_ATOMIC = 1048576, /* one scalar access of 16 bytes */
    VG_ALIGNED = 2097152      /* bar, barrier.aligned */
};

#define VG_INDIRECT UINT32_MAX

struct vg_instr;

/* The registers of the warp as an instruction sees them. */
struct vg_registers {
    uint32_t (*frame)[VG_LANES];           /* units of the running function's frame */
    const uint32_t (*constants)[VG_LANES]; /* of the image */
    uint32_t *predicates;                  /* of the frame: a mask of lanes each */
    uint32_t carry;                        /* a bit a lane: CC.CF */
};

/* Computes the instruction in the lanes of the mask; other lanes keep what they have. */
typedef void vg_compute(struct vg_registers *registers, const struct vg_instr *in, uint32_t lanes);

struct vg_instr {
    vg_compute
        *compute; /* set when the module is loaded; NULL: an instruction of the machine itself */
    uint8_t op, type, type2; /* type2: the source's type of CVT, SET, SLCT, MUL24...; the operand's
                                of SHFL is type */
    uint8_t round, compare, combine; /* enum vg_round, vg_compare, vg_bool */
    uint8_t mode; /* enum vg_mul, vg_atom, vg_reduce, vg_vote, vg_shuffle, vg_prmt, vg_testp; LOP3:
                     the table */
    uint8_t order, scope, space;
    uint8_t count;  /* of a vector */
    uint16_t guard; /* predicate, or VG_NONE */
    uint16_t dst[4];
    uint16_t src[5];
    uint32_t flags; /* enum vg_flags */
    uint32_t target;
    int64_t imm;
    uint32_t line;  /* of the PTX text */
    uint32_t place; /* index into the module's places (source line), or UINT32_MAX */
};

/* A line of the source (.loc), with the call that it was inlined into. */
struct vg_place {
    uint32_t file, line, column;
    uint32_t inlined_at;  /* index of a place, or UINT32_MAX */
    const char *function; /* the inlined function's name, or NULL */
};

struct vg_param {
    uint32_t offset, size, align;
};

struct vg_function {
    const char *name;
    bool kernel;
    struct vg_instr *code;
    uint32_t ninstrs;
    uint32_t nunits, npredicates; /* of a frame */
    struct vg_param
        *params; /* of a kernel or function; the result's parameters follow the inputs' */
    uint32_t nparams, nresults;
    uint32_t param_bytes; /* all parameters, inputs then results */
    uint32_t local_bytes; /* frame in local memory: .local and .param variables */
    uint32_t
        shared_bytes; /* static shared memory; the dynamic follows, aligned to 16 or as it asks */
    uint32_t max_threads, required[3],
        min_blocks; /* .maxntid, .reqntid, .minnctapersm; 0: not given */
    uint32_t nbarriers;
    const char *unsupported; /* the first unsupported instruction and its line, or NULL */
};

/* A variable of .global or .const: its bytes, and the addresses of others in it. */
struct vg_fixup {
    uint64_t offset; /* in the variable's bytes, or the index of a constant's first unit */
    uint32_t symbol; /* index of a variable; of a function + VG_FUNCTION_SYMBOL */
    int64_t addend;
    bool generic;   /* generic(symbol) */
    uint8_t nbytes; /* of the address: 4 or 8 (0: 8) */
};
#define VG_FUNCTION_SYMBOL 0x80000000u

struct vg_variable {
    const char *name;
    uint8_t space; /* VG_GLOBAL, VG_CONST, VG_SHARED (module's scope) */
    bool external, visible, managed;
    uint64_t size;
    uint32_t align;
    unsigned char *bytes; /* NULL: zero */
    struct vg_fixup *fixups;
    uint32_t nfixups;
    uint64_t offset; /* of a shared variable: its place in the block's shared memory */
};

struct vg_module {
    unsigned version, target; /* 90 for 9.0; 75 for sm_75 */
    struct vg_function *functions;
    struct vg_variable *variables;
    uint32_t nfunctions, nvariables;
    uint32_t *targets; /* of BRX */
    uint32_t ntargets;
    uint32_t (*constants)[VG_LANES]; /* units */
    uint32_t nconstants;
    struct vg_fixup *fixups; /* constants that are addresses of variables */
    uint32_t nfixups;
    struct vg_place *places;
    const char **files;
    uint32_t nplaces, nfiles;
    const char **texts; /* of unsupported instructions */
    uint32_t ntexts;
    void *arena; /* owns all of the above */
};

/* Reads PTX text. 0 and *module, which vg_module_destroy frees; -1 and error, which names the line,
 * else. */
int vg_ptx_read(const char *text, size_t nbytes, struct vg_module **module, char error[256]);
void vg_module_destroy(struct vg_module *module);

#endif
