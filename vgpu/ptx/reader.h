/* The reader's own structures: what is known while a text is read.
 *
 * An error ends the reading by a jump out of vg_ptx_read's own frame (vg_ptx_fail): all memory is
 * the arena's, so nothing has to be undone on the way.
 *
 * While a function is read, its instructions are drafts: their operands are numbers of virtual
 * registers or of the module's constants. registers.c gives units to the registers at the
 * function's end. */
#ifndef VGPU_PTX_READER_H
#define VGPU_PTX_READER_H

#include <setjmp.h>
#include <string.h>

#include <vgpu/code.h>
#include <vgpu/ptx/arena.h>
#include <vgpu/ptx/lexer.h>

/* An operand of a draft: the number of a register, VG_DRAFT_CONSTANT + a constant's first unit, or
 * VG_DRAFT_NONE. */
#define VG_DRAFT_NONE UINT32_MAX
#define VG_DRAFT_CONSTANT UINT32_C(0x80000000)

enum {
    VG_MAX_REGISTERS = 1 << 20, /* virtual ones, of a function */
    VG_MAX_ELEMENTS = 8,        /* of a vector operand */
    VG_MAX_MODIFIERS = 24,
    VG_MAX_OPERANDS = 10,
    VG_MAX_DEPTH = 64, /* of parentheses in an expression, of scopes */
    VG_BUCKETS = 4096
};

struct vg_draft {
    struct vg_instr in;
    uint32_t guard, dst[4], src[5];
    struct vg_frame_variable *frame; /* its offset is added to imm at the function's end */
};

/* A .local or .param variable of a function's body. */
struct vg_frame_variable {
    uint32_t size, align, offset;
    uint32_t scope; /* of the function's body, in which it lies: 1, 2, ...; 0: none */
    bool placed, param;
    struct vg_frame_variable *inside; /* offset counts from this one's */
};

/* A .shared variable, of the module or of a function. */
struct vg_shared {
    uint64_t size, offset;
    uint32_t align;
    uint32_t owner;    /* the function; VG_NO_OWNER: the module */
    uint32_t variable; /* index in the module's variables; UINT32_MAX: a function's */
    bool dynamic;      /* extern .shared x[] */
};
#define VG_NO_OWNER UINT32_MAX
/* For %.*s: at most 60 characters of a token, symbol or shape. */
#define VG_NAMED(named) (int)((named).length < 60 ? (named).length : 60), (named).text

/* A constant that is the address of a shared variable, filled in when the layout is known. */
struct vg_shared_use {
    uint32_t constant, shared, owner;
    enum vg_type type;
    int64_t addend;
};

enum vg_symbol_kind {
    VG_SYMBOL_REGISTER,
    VG_SYMBOL_RANGE,    /* %r<n>: number is the first register, count how many */
    VG_SYMBOL_VECTOR,   /* .reg .v4: number is the first register, count how many */
    VG_SYMBOL_VARIABLE, /* number: in the module's variables */
    VG_SYMBOL_SHARED,
    VG_SYMBOL_FRAME,
    VG_SYMBOL_PARAM, /* of the running function: number is the parameter */
    VG_SYMBOL_FUNCTION,
    VG_SYMBOL_LABEL,     /* number: the instruction */
    VG_SYMBOL_TARGETS,   /* .branchtargets: number is the first, count how many */
    VG_SYMBOL_PROTOTYPE, /* .callprototype, .calltargets */
    VG_SYMBOL_KINDS
};

struct vg_symbol {
    const char *name;
    uint32_t length, depth, line;
    enum vg_symbol_kind kind;
    uint32_t number, count;
    struct vg_frame_variable *frame;
    struct vg_prototype *prototype;
    struct vg_symbol *next, *older; /* of the same bucket; of the same scope */
};

/* A use of a label that is resolved when its scope ends. */
struct vg_label_use {
    const char *name;
    uint32_t length, line;
    bool table; /* place is in the module's targets, else among the drafts */
    uint32_t place;
};

/* What a call passes: of a function or .callprototype. */
struct vg_prototype {
    struct vg_param *params; /* inputs, then results; offsets as in struct vg_function */
    uint32_t nparams, nresults, param_bytes;
};

struct vg_names {
    struct vg_symbol *symbols;
    uint32_t first_use; /* of the label uses that this scope or an inner one has made */
};

/* What the reader knows of a function besides struct vg_function. */
struct vg_routine {
    struct vg_prototype prototype;
    bool defined, declared, taken; /* taken: its address is used */
    uint32_t *callees;
    uint32_t ncallees, callees_room;
    bool indirect; /* it calls by address */
    uint32_t line;
};

struct vg_reader {
    jmp_buf out;
    char *error;
    struct vg_arena *arena;
    struct vg_lexer lexer;
    struct vg_token token; /* the next one */
    struct vg_module *module;
    struct vg_symbol *buckets[VG_BUCKETS];
    struct vg_names scopes[VG_MAX_DEPTH];
    uint32_t depth; /* 0: the module's scope */

    struct vg_routine *routines; /* of each function of the module */
    uint32_t routines_room, functions_room, variables_room, targets_room, constants_room;
    uint32_t fixups_room, places_room, files_room, texts_room;
    struct vg_opcode_set *known; /* match.c: opcodes that were read; freed with the reader */
    void *constant_table;        /* constants.c: finds a constant that is there already */
    uint32_t constant_table_room, constant_table_used;
    struct vg_shared *shared;
    uint32_t nshared, shared_room;
    struct vg_shared_use *shared_uses;
    uint32_t nshared_uses, shared_uses_room;

    /* the running function */
    uint32_t function;       /* VG_NO_OWNER: none */
    uint8_t *register_types; /* enum vg_type */
    uint32_t nregisters, registers_room;
    struct vg_draft *drafts;
    uint32_t ndrafts, drafts_room;
    struct vg_label_use *uses;
    uint32_t nuses, uses_room;
    struct vg_frame_variable **frames;
    uint32_t nframes, frames_room;
    uint32_t nscopes;    /* of the body, not counting those inside of one */
    void *units;         /* allocate.c: freed when the text has been read */
    uint32_t place;      /* of .loc */
    uint32_t last_label; /* the instruction that the last label names */
    struct vg_debug *debug;
};

static inline uint32_t vg_ptx_scope(const struct vg_reader *r)
{
    return r->depth > 1 ? r->nscopes : 0;
}

/* reader.c */
_Noreturn void vg_ptx_fail(struct vg_reader *r, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "line N: expected EXPECTED, found TOKEN". */
_Noreturn void vg_ptx_unexpected(struct vg_reader *r, const char *expected);
void *vg_ptx_alloc(struct vg_reader *r, size_t nbytes);
/* The array with room for one more; *room counts elements. */
void *vg_ptx_room(struct vg_reader *r, void *array, uint32_t n, uint32_t *room, size_t element);
const char *vg_ptx_text(struct vg_reader *r, const char *text, size_t length);
void vg_ptx_next(struct vg_reader *r);
static inline bool vg_ptx_is(const struct vg_reader *r, char mark)
{
    return r->token.kind == VG_TOKEN_MARK && *r->token.text == mark;
}
bool vg_ptx_accept(struct vg_reader *r, char mark);
void vg_ptx_expect(struct vg_reader *r, char mark, const char *where);
static inline bool vg_ptx_is_word(const struct vg_token *token, const char *word)
{
    return (token->kind == VG_TOKEN_WORD || token->kind == VG_TOKEN_DOTTED) &&
           strlen(word) == token->length && memcmp(token->text, word, token->length) == 0;
}
/* FNV-1a, with its upper half in the lower bits, too: for tables by names. */
static inline uint32_t vg_ptx_hash(const char *text, uint32_t length)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash ^ hash >> 15;
}
bool vg_ptx_accept_word(struct vg_reader *r, const char *word); /* a word or a dotted word */
struct vg_token vg_ptx_expect_name(struct vg_reader *r, const char *what);
/* Skips to behind the next ';'. */
void vg_ptx_skip_statement(struct vg_reader *r);
/* Skips the operands of an instruction that nobody knows, and its ';': brackets must close, and
 * something must stand between commas. */
void vg_ptx_skip_operands(struct vg_reader *r);

/* symbols.c */
struct vg_symbol *vg_ptx_symbol_add(struct vg_reader *r, const struct vg_token *name,
                                    enum vg_symbol_kind kind);
/* The innermost one of the name, or NULL; %r12 finds the range %r. index: the register. */
struct vg_symbol *vg_ptx_symbol_find(struct vg_reader *r, const struct vg_token *name,
                                     uint32_t *index);
/* The state space of a variable; VG_GENERIC: it is none. */
enum vg_space vg_ptx_symbol_space(const struct vg_reader *r, const struct vg_symbol *symbol);
void vg_ptx_scope_open(struct vg_reader *r);
void vg_ptx_scope_close(struct vg_reader *r);
void vg_ptx_label_use(struct vg_reader *r, const struct vg_token *name, bool table, uint32_t place);

/* expression.c */
struct vg_value {
    enum { VG_VALUE_SIGNED, VG_VALUE_UNSIGNED, VG_VALUE_F32, VG_VALUE_F64 } kind;
    uint64_t bits;
};
struct vg_value vg_ptx_expression(struct vg_reader *r);
int64_t vg_ptx_integer(struct vg_reader *r, const char *what, int64_t least, int64_t most);
double vg_ptx_value_double(struct vg_value value);

/* types.c */
bool vg_ptx_type_named(const char *word, size_t length, enum vg_type *type);
const char *vg_ptx_type_name(enum vg_type type);
uint32_t vg_ptx_type_bytes(enum vg_type type); /* 0: predicate */
uint32_t vg_ptx_type_units(enum vg_type type);
/* Halves of 16 bits, or two of them: no constant is of such a type. */
bool vg_ptx_type_is_half(enum vg_type type);
/* The value's bits as the type holds it. */
uint64_t vg_ptx_type_bits(struct vg_reader *r, uint32_t line, enum vg_type type,
                          struct vg_value value);
/* Whether a register of the type may be an operand of an instruction's type. */
bool vg_ptx_type_fits(enum vg_type wanted, enum vg_type given);
/* vg_ptx_type_fits where the register may be wider: ld, st, cvt. */
bool vg_ptx_type_fits_wide(enum vg_type wanted, enum vg_type given);

/* constants.c */
uint32_t vg_ptx_constant(struct vg_reader *r, enum vg_type type, uint64_t low, uint64_t high);
uint32_t vg_ptx_constant_variable(struct vg_reader *r, enum vg_type type, uint32_t symbol,
                                  int64_t addend, bool generic);
uint32_t vg_ptx_constant_shared(struct vg_reader *r, enum vg_type type, uint32_t shared,
                                int64_t addend);

/* variables.c */
struct vg_declaration {
    enum vg_space space;
    bool external, visible, managed, weak;
};
bool vg_ptx_is_space(const struct vg_token *token, enum vg_space *space);
/* .shared .align 4 .b8 x[16] = {...}, y; from the space on. */
void vg_ptx_variable_read(struct vg_reader *r, struct vg_declaration how);
struct vg_shape {
    enum vg_type type;
    uint32_t align, elements; /* elements of a vector */
    uint64_t count;           /* of all dimensions */
    bool open, managed;       /* open: the first dimension is empty */
    struct vg_token name;
};
/* .align 4 .v4 .b8, and then the name with its dimensions. */
void vg_ptx_shape_type(struct vg_reader *r, struct vg_shape *shape);
void vg_ptx_shape_name(struct vg_reader *r, struct vg_shape *shape);

/* functions.c */
void vg_ptx_function_read(struct vg_reader *r, struct vg_declaration how);
/* A label with its directive, or an instruction. */
void vg_ptx_statement_read(struct vg_reader *r);

/* registers.c */
void vg_ptx_registers_read(struct vg_reader *r); /* .reg .b32 %r<10>, %p; */
uint32_t vg_ptx_register_add(struct vg_reader *r, enum vg_type type);

/* prototypes.c */
/* [(results)] name [(inputs)], where name is '_' in a .callprototype. names: of each parameter, may
 * be NULL. */
void vg_ptx_prototype_read(struct vg_reader *r, struct vg_prototype *prototype,
                           struct vg_token *name, struct vg_token **names);

/* instructions.c */
void vg_ptx_instruction_read(struct vg_reader *r);
struct vg_draft *vg_ptx_draft_add(struct vg_reader *r, const struct vg_draft *draft);
struct vg_draft vg_ptx_draft_make(const struct vg_reader *r, uint32_t line, uint32_t guard);

/* allocate.c */
void vg_ptx_registers_allocate(struct vg_reader *r, struct vg_function *function);

/* layout.c */
void vg_ptx_layout(struct vg_reader *r);

/* debug.c */
void vg_ptx_debug_init(struct vg_reader *r);
void vg_ptx_debug_file(struct vg_reader *r);
void vg_ptx_debug_loc(struct vg_reader *r);
void vg_ptx_debug_section(struct vg_reader *r);
void vg_ptx_debug_finish(struct vg_reader *r);

#endif
