/* Reads operands, and makes sources, destinations and addresses of them. */
#include <vgpu/ptx/operands.h>

#include <stdio.h>
#include <string.h>

void vg_ptx_operand_wrong(struct vg_reader *r, const struct vg_operand *operand, const char *opcode,
                          const char *expected)
{
    vg_ptx_fail(r, operand->token.line, "%.60s: expected %s, found '%.*s'", opcode, expected,
                VG_NAMED(operand->token));
}

/* {%r1, _, 3} */
static void vector_read(struct vg_reader *r, struct vg_operand *operand)
{
    vg_ptx_next(r);
    operand->kind = VG_OPERAND_VECTOR;
    operand->elements = vg_ptx_alloc(r, VG_MAX_ELEMENTS * sizeof *operand->elements);
    do {
        if (operand->nelements == VG_MAX_ELEMENTS) vg_ptx_unexpected(r, "at most 8 elements");
        if (vg_ptx_is(r, '{') || vg_ptx_is(r, '[')) vg_ptx_unexpected(r, "an element of a vector");
        vg_ptx_operand_read(r, &operand->elements[operand->nelements++]);
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, '}', "at the vector's end");
}

/* [base], [base + 4], [base + -4] */
static void address_read(struct vg_reader *r, struct vg_operand *operand)
{
    vg_ptx_next(r);
    operand->kind = VG_OPERAND_ADDRESS;
    operand->nelements = 1;
    operand->elements = vg_ptx_alloc(r, sizeof *operand->elements);
    if (vg_ptx_is(r, '{') || vg_ptx_is(r, '[')) vg_ptx_unexpected(r, "an address");
    vg_ptx_operand_read(r, operand->elements);
    if (vg_ptx_is(r, '+') || vg_ptx_is(r, '-'))
        operand->elements->addend += vg_ptx_integer(r, "an offset", INT64_MIN, INT64_MAX);
    vg_ptx_expect(r, ']', "at the address's end");
}

/* The registers of %v, declared with .v2 or .v4. */
static void vector_of(struct vg_reader *r, struct vg_operand *operand)
{
    const struct vg_symbol *symbol = operand->symbol;
    const struct vg_token part = r->token;
    static const char letters[] = "xyzwrgba";
    const char *letter = part.length == 2 ? memchr(letters, part.text[1], 8) : NULL;
    if (part.kind == VG_TOKEN_DOTTED && part.glued && letter) {
        const uint32_t element = (uint32_t)(letter - letters) & 3;
        if (element >= symbol->count) vg_ptx_unexpected(r, "an element that the vector has");
        vg_ptx_next(r);
        operand->kind = VG_OPERAND_REGISTER;
        operand->number = symbol->number + element;
        operand->type = r->register_types[operand->number];
        return;
    }
    operand->kind = VG_OPERAND_VECTOR;
    operand->nelements = symbol->count;
    operand->elements = vg_ptx_alloc(r, symbol->count * sizeof *operand->elements);
    for (uint32_t i = 0; i < symbol->count; i++)
        operand->elements[i] = (struct vg_operand){.kind = VG_OPERAND_REGISTER,
                                                   .token = operand->token,
                                                   .number = symbol->number + i,
                                                   .type = r->register_types[symbol->number]};
}

/* %tid as a vector. */
static bool special_vector(struct vg_reader *r, struct vg_operand *operand,
                           const struct vg_token *name)
{
    static const char *const parts[] = {".x", ".y", ".z", ".w"};
    struct vg_operand element = {.kind = VG_OPERAND_SPECIAL, .token = *name};
    operand->elements = vg_ptx_alloc(r, 4 * sizeof *operand->elements);
    for (unsigned i = 0; i < 4; i++) {
        const struct vg_token part = {.text = parts[i], .length = 2};
        if (!vg_ptx_special_named(name, &part, &element.number, &element.type)) return false;
        operand->elements[i] = element;
    }
    operand->kind = VG_OPERAND_VECTOR;
    operand->nelements = 4;
    return true;
}

static void name_read(struct vg_reader *r, struct vg_operand *operand)
{
    uint32_t index;
    const struct vg_token name = r->token;
    const struct vg_symbol *symbol = vg_ptx_symbol_find(r, &name, &index);
    vg_ptx_next(r);
    operand->symbol = symbol;
    if (!symbol) {
        struct vg_token part = r->token;
        const bool dotted = part.kind == VG_TOKEN_DOTTED && part.glued;
        operand->kind = VG_OPERAND_NAME;
        if (vg_ptx_is_word(&name, "_")) {
            operand->kind = VG_OPERAND_SINK;
        } else if (vg_ptx_special_named(&name, dotted ? &part : NULL, &operand->number,
                                        &operand->type)) {
            operand->kind = VG_OPERAND_SPECIAL;
            if (dotted) vg_ptx_next(r);
        } else if (*name.text == '%' && !dotted && special_vector(r, operand, &name)) {
            operand->kind = VG_OPERAND_VECTOR;
        } else if (vg_ptx_is_word(&name, "%is_explicit_cluster")) {
            operand->kind = VG_OPERAND_SPECIAL;
            operand->number = VG_SPECIALS;
            operand->type = VG_PRED;
        }
    } else if (symbol->kind == VG_SYMBOL_REGISTER || symbol->kind == VG_SYMBOL_RANGE) {
        operand->kind = VG_OPERAND_REGISTER;
        operand->number = index;
        operand->type = r->register_types[index];
    } else if (symbol->kind == VG_SYMBOL_VECTOR) {
        vector_of(r, operand);
    } else {
        operand->kind = VG_OPERAND_SYMBOL;
        if (vg_ptx_is(r, '+') || (vg_ptx_is(r, '-')))
            operand->addend = vg_ptx_integer(r, "an offset", INT64_MIN, INT64_MAX);
    }
}

void vg_ptx_operand_read(struct vg_reader *r, struct vg_operand *operand)
{
    *operand = (struct vg_operand){.kind = VG_OPERAND_NUMBER, .token = r->token};
    if (vg_ptx_is(r, '{')) {
        vector_read(r, operand);
    } else if (vg_ptx_is(r, '[')) {
        address_read(r, operand);
    } else if (r->token.kind == VG_TOKEN_WORD && !vg_ptx_is_word(&r->token, "WARP_SZ")) {
        name_read(r, operand);
    } else if (vg_ptx_is(r, '!')) {
        struct vg_lexer ahead = r->lexer;
        if (vg_ptx_lexer_next(&ahead).kind == VG_TOKEN_WORD) {
            vg_ptx_next(r);
            operand->token = r->token;
            name_read(r, operand);
            operand->negated = true;
        } else {
            operand->value = vg_ptx_expression(r);
        }
    } else if (r->token.kind == VG_TOKEN_END || vg_ptx_is(r, ';') || vg_ptx_is(r, ',')) {
        vg_ptx_unexpected(r, "an operand");
    } else {
        operand->value = vg_ptx_expression(r);
    }
    if (operand->kind != VG_OPERAND_NUMBER && vg_ptx_accept(r, '|')) {
        operand->pair = vg_ptx_alloc(r, sizeof *operand->pair);
        if (r->token.kind != VG_TOKEN_WORD) vg_ptx_unexpected(r, "a predicate behind '|'");
        *operand->pair = (struct vg_operand){.token = r->token};
        name_read(r, operand->pair);
    }
}

uint32_t vg_ptx_operands_read(struct vg_reader *r, struct vg_operand operands[VG_MAX_OPERANDS])
{
    uint32_t n = 0;
    if (vg_ptx_is(r, '}')) vg_ptx_unexpected(r, "';' behind the instruction");
    if (vg_ptx_accept(r, ';')) return 0;
    do {
        if (n == VG_MAX_OPERANDS) vg_ptx_unexpected(r, "fewer operands before");
        vg_ptx_operand_read(r, &operands[n++]);
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ';', "behind the instruction");
    return n;
}

static uint32_t temporary(struct vg_reader *r, enum vg_type type)
{
    return vg_ptx_register_add(r, type);
}

static struct vg_draft before(struct vg_reader *r, const struct vg_lowering *low, enum vg_op op,
                              enum vg_type type)
{
    struct vg_draft draft = vg_ptx_draft_make(r, low->draft.in.line, low->draft.guard);
    draft.in.flags = low->draft.in.flags & VG_GUARD_NOT;
    draft.in.op = (uint8_t)op;
    draft.in.type = (uint8_t)type;
    return draft;
}

/* A register with the operand's value as the type needs it. */
static uint32_t convert(struct vg_reader *r, const struct vg_lowering *low, uint32_t from,
                        enum vg_type from_type, enum vg_type type)
{
    struct vg_draft draft = before(r, low, VG_CVT, type);
    draft.in.type2 = (uint8_t)from_type;
    draft.dst[0] = temporary(r, type);
    draft.src[0] = from;
    vg_ptx_draft_add(r, &draft);
    return draft.dst[0];
}

static enum vg_type plain(uint32_t bytes)
{
    return bytes == 1 ? VG_U8 : bytes == 2 ? VG_U16 : bytes == 4 ? VG_U32 : VG_U64;
}

static uint32_t special_source(struct vg_reader *r, struct vg_lowering *low,
                               const struct vg_operand *operand, enum vg_type type)
{
    const uint32_t bytes = vg_ptx_type_bytes(type);
    struct vg_draft draft = before(r, low, VG_SPECIAL, operand->type);
    if (operand->type == VG_PRED || type > VG_S64 || !low->specials ||
        ((bytes != 2 || low->draft.in.op == VG_CVT) && bytes != vg_ptx_type_bytes(operand->type)))
        vg_ptx_operand_wrong(r, operand, low->opcode,
                             "a register or a constant (a special register is moved to one first)");
    draft.in.imm = operand->number;
    draft.dst[0] = temporary(r, operand->type);
    if (operand->number >= VG_SPECIALS) {
        draft.in.op = VG_MOV;
        draft.in.imm = 0;
        draft.src[0] = vg_ptx_constant(r, operand->type, operand->number - VG_SPECIALS, 0);
    }
    vg_ptx_draft_add(r, &draft);
    if (bytes == vg_ptx_type_bytes(operand->type)) return draft.dst[0];
    return convert(r, low, draft.dst[0], operand->type, plain(bytes));
}

/* The address of a symbol as a number. */
static uint32_t symbol_source(struct vg_reader *r, struct vg_lowering *low,
                              const struct vg_operand *operand, enum vg_type type)
{
    const struct vg_symbol *symbol = operand->symbol;
    const uint32_t bytes = vg_ptx_type_bytes(type);
    struct vg_draft draft = before(r, low, VG_ADDRESS_LOCAL, type);
    if ((bytes != 8 && bytes != 4) || !low->symbols)
        vg_ptx_operand_wrong(r, operand, low->opcode,
                             "a register or a constant (an address is moved to a register first)");
    switch (symbol->kind) {
    case VG_SYMBOL_VARIABLE:
        return vg_ptx_constant_variable(r, type, symbol->number, operand->addend, false);
    case VG_SYMBOL_FUNCTION:
        r->routines[symbol->number].taken = true;
        return vg_ptx_constant_variable(r, type, symbol->number | VG_FUNCTION_SYMBOL,
                                        operand->addend, false);
    case VG_SYMBOL_SHARED:
        return vg_ptx_constant_shared(r, type, symbol->number, operand->addend);
    case VG_SYMBOL_FRAME:
        draft.dst[0] = temporary(r, type);
        draft.in.imm = operand->addend;
        draft.frame = symbol->frame;
        vg_ptx_draft_add(r, &draft);
        return draft.dst[0];
    case VG_SYMBOL_PARAM:
        return vg_ptx_constant(
            r, type,
            (uint64_t)(r->routines[r->function].prototype.params[symbol->number].offset +
                       operand->addend),
            0);
    default:
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register, a constant or a variable");
    }
}

/* A new predicate that is false, or true. */
static uint32_t constant_predicate(struct vg_reader *r, const struct vg_lowering *low, bool value)
{
    struct vg_draft draft = before(r, low, VG_SETP, VG_U32);
    draft.in.compare = value ? VG_EQ : VG_NE;
    draft.dst[0] = temporary(r, VG_PRED);
    draft.src[0] = draft.src[1] = vg_ptx_constant(r, VG_U32, 0, 0);
    vg_ptx_draft_add(r, &draft);
    return draft.dst[0];
}

/* !p of an instruction that has no flag for it. */
static uint32_t negation(struct vg_reader *r, struct vg_lowering *low,
                         const struct vg_operand *operand)
{
    struct vg_operand plain_operand = *operand;
    plain_operand.negated = false;
    const uint32_t predicate = vg_ptx_source(r, low, &plain_operand, VG_PRED, false);
    struct vg_draft draft = before(r, low, VG_NOT, VG_PRED);
    draft.dst[0] = temporary(r, VG_PRED);
    draft.src[0] = predicate;
    vg_ptx_draft_add(r, &draft);
    return draft.dst[0];
}

static uint32_t number_source(struct vg_reader *r, const struct vg_lowering *low,
                              const struct vg_operand *operand, enum vg_type type)
{
    const bool whole =
        operand->value.kind == VG_VALUE_SIGNED || operand->value.kind == VG_VALUE_UNSIGNED;
    if (type == VG_PRED && whole) return constant_predicate(r, low, operand->value.bits);
    if (type == VG_PRED || vg_ptx_type_is_half(type) || (!whole && low->draft.in.op == VG_REDUX))
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register: the type has no constants");
    if (whole && (type == VG_F32 || type == VG_F64))
        vg_ptx_fail(r, operand->token.line, "expected a constant of type %s, found an integer",
                    vg_ptx_type_name(type));
    const uint64_t bits = vg_ptx_type_bits(r, operand->token.line, type, operand->value);
    const bool minus = operand->value.kind == VG_VALUE_SIGNED && (int64_t)bits < 0;
    return vg_ptx_constant(r, type, bits, minus ? UINT64_MAX : 0);
}

uint32_t vg_ptx_source(struct vg_reader *r, struct vg_lowering *low,
                       const struct vg_operand *operand, enum vg_type type, bool wide)
{
    char expected[96];
    snprintf(expected, sizeof expected, "a register or constant of type %s",
             vg_ptx_type_name(type));
    if (operand->pair || (operand->negated && type != VG_PRED))
        vg_ptx_operand_wrong(r, operand, low->opcode, expected);
    if (operand->negated) return negation(r, low, operand);
    const uint32_t bytes = vg_ptx_type_bytes(type), given = vg_ptx_type_bytes(operand->type);
    switch (operand->kind) {
    case VG_OPERAND_REGISTER:
        if (vg_ptx_type_fits(type, operand->type)) return operand->number;
        if (!wide || !vg_ptx_type_fits_wide(type, operand->type))
            vg_ptx_operand_wrong(r, operand, low->opcode, expected);
        low->refused |= given == 16 || type > VG_S64;
        return given <= 4 || low->refused ? operand->number
                                          : convert(r, low, operand->number, VG_U64, plain(bytes));
    case VG_OPERAND_NUMBER:
        return number_source(r, low, operand, type);
    case VG_OPERAND_SPECIAL:
        if (type == VG_PRED && operand->type == VG_PRED) return constant_predicate(r, low, false);
        return special_source(r, low, operand, type);
    case VG_OPERAND_SYMBOL:
        return symbol_source(r, low, operand, type);
    case VG_OPERAND_NAME:
        vg_ptx_operand_wrong(r, operand, low->opcode, "a declared name");
    default:
        vg_ptx_operand_wrong(r, operand, low->opcode, expected);
    }
}

uint32_t vg_ptx_destination(struct vg_reader *r, struct vg_lowering *low,
                            const struct vg_operand *operand, enum vg_type type, bool wide)
{
    char expected[96];
    snprintf(expected, sizeof expected, "a register of type %s", vg_ptx_type_name(type));
    if (operand->kind == VG_OPERAND_SINK) return temporary(r, type); /* nobody reads the register */
    if (operand->kind == VG_OPERAND_NAME)
        vg_ptx_operand_wrong(r, operand, low->opcode, "a declared register");
    if (operand->kind != VG_OPERAND_REGISTER || operand->negated)
        vg_ptx_operand_wrong(r, operand, low->opcode, expected);
    if (vg_ptx_type_fits(type, operand->type)) return operand->number;
    const uint32_t bytes = vg_ptx_type_bytes(type), given = vg_ptx_type_bytes(operand->type);
    if (!wide || !vg_ptx_type_fits_wide(type, operand->type) || low->nafter == 8)
        vg_ptx_operand_wrong(r, operand, low->opcode, expected);
    if (given == 16 || type > VG_S64) { /* nobody writes it so, though ptxas takes it */
        low->refused = true;
        return operand->number;
    }
    if (low->draft.in.op == VG_CVT) {
        low->draft.in.count = (uint8_t)given;
        return operand->number;
    }
    const bool is_signed = type == VG_S8 || type == VG_S16 || type == VG_S32;
    if (given == 4 && low->draft.in.type == (uint8_t)type) return operand->number;
    if (given <= 4 && !is_signed) return operand->number;
    const uint32_t narrow = temporary(r, type);
    low->after[low->nafter].wide = operand->number;
    low->after[low->nafter].narrow = narrow;
    low->after[low->nafter].wide_type = !is_signed   ? plain(given)
                                        : given == 2 ? VG_S16
                                        : given == 4 ? VG_S32
                                                     : VG_S64;
    low->after[low->nafter++].narrow_type = is_signed ? type : plain(bytes);
    return narrow;
}

/* The elements 4 to 7 of a vector of 8: an access of their own behind that of the first four, as a
 * vector access is several scalar ones. */
static void high_half(struct vg_reader *r, struct vg_lowering *low)
{
    struct vg_draft *draft = &low->draft;
    const uint32_t bytes = vg_ptx_type_bytes((enum vg_type)draft->in.type);
    draft->in.count = 4;
    draft->in.compare = (uint8_t)(8 * bytes);
    if (draft->src[0] < VG_DRAFT_CONSTANT) { /* the first elements may be in its place */
        const enum vg_type type = draft->in.type2 == VG_B32 ? VG_B32 : VG_B64;
        struct vg_draft move = before(r, low, VG_MOV, type);
        move.dst[0] = temporary(r, type);
        move.src[0] = draft->src[0];
        vg_ptx_draft_add(r, &move);
        draft->src[0] = move.dst[0];
    }
    vg_ptx_draft_add(r, draft);
    draft->in.imm += 4 * bytes;
    draft->in.compare = 0;
    for (unsigned i = 0; i < 4; i++) {
        if (draft->dst[i] != VG_DRAFT_NONE) draft->dst[i] = low->high_dst[i];
        if (draft->src[i + 1] != VG_DRAFT_NONE) draft->src[i + 1] = low->high_src[i];
    }
}

void vg_ptx_lowered(struct vg_reader *r, struct vg_lowering *low)
{
    const uint8_t op = low->draft.in.op;
    const bool memory = op == VG_LD || op == VG_ST || op == VG_ATOM || op == VG_RED;
    if (memory && low->draft.in.count == 8) high_half(r, low);
    vg_ptx_draft_add(r, &low->draft);
    for (uint32_t i = 0; i < low->nafter; i++) {
        struct vg_draft draft = before(r, low, VG_CVT, low->after[i].wide_type);
        draft.in.type2 = (uint8_t)low->after[i].narrow_type;
        draft.dst[0] = low->after[i].wide;
        draft.src[0] = low->after[i].narrow;
        vg_ptx_draft_add(r, &draft);
    }
}

/* A symbol as the base of an address. */
static void symbol_address(struct vg_reader *r, struct vg_lowering *low,
                           const struct vg_operand *base)
{
    struct vg_instr *in = &low->draft.in;
    const struct vg_symbol *symbol = base->symbol;
    const bool generic = in->space == VG_GENERIC;
    in->imm = base->addend;
    if (symbol->kind == VG_SYMBOL_VARIABLE &&
        (in->space == r->module->variables[symbol->number].space ||
         (generic && r->module->variables[symbol->number].space == VG_GLOBAL))) {
        low->draft.src[0] = vg_ptx_constant_variable(r, VG_U64, symbol->number, 0, generic);
    } else if (symbol->kind == VG_SYMBOL_SHARED &&
               (in->space == VG_SHARED || (generic && (in->op != VG_PREFETCH || !in->mode)))) {
        in->space = VG_SHARED;
        low->draft.src[0] = vg_ptx_constant_shared(r, VG_U32, symbol->number, 0);
        in->type2 = VG_B32;
    } else if (symbol->kind == VG_SYMBOL_FRAME &&
               (in->space == (symbol->frame->param ? VG_PARAM_SPACE : VG_LOCAL) ||
                (generic && !symbol->frame->param))) {
        in->space = VG_LOCAL;
        low->draft.frame = symbol->frame;
    } else if (symbol->kind == VG_SYMBOL_PARAM && in->space == VG_PARAM_SPACE &&
               (in->op != VG_ST || symbol->number >= r->routines[r->function].prototype.nparams)) {
        in->imm += r->routines[r->function].prototype.params[symbol->number].offset;
    } else {
        vg_ptx_operand_wrong(r, base, low->opcode, "a variable of the instruction's state space");
    }
}

void vg_ptx_address(struct vg_reader *r, struct vg_lowering *low, const struct vg_operand *operand)
{
    struct vg_instr *in = &low->draft.in;
    if (operand->kind != VG_OPERAND_ADDRESS)
        vg_ptx_operand_wrong(r, operand, low->opcode, "an address in [ ]");
    const struct vg_operand *base = operand->elements;
    in->type2 = VG_B64;
    if (base->kind == VG_OPERAND_SYMBOL) {
        symbol_address(r, low, base);
    } else if (base->kind == VG_OPERAND_NUMBER && in->space == VG_LOCAL) {
        in->imm = base->addend;
        low->draft.src[0] = vg_ptx_source(r, low, base, VG_U64, false);
    } else if (base->kind == VG_OPERAND_REGISTER && vg_ptx_type_fits(VG_B64, base->type) &&
               base->type != VG_F64) {
        in->imm = base->addend;
        low->draft.src[0] = base->number;
    } else if (base->kind == VG_OPERAND_REGISTER && vg_ptx_type_fits(VG_B32, base->type) &&
               base->type != VG_F32) {
        in->imm = base->addend;
        low->draft.src[0] = base->number;
        in->type2 = VG_B32;
    } else {
        vg_ptx_operand_wrong(r, base, low->opcode, "a register of 64 bits with an address");
    }
    if (low->nsrc == 0) low->nsrc = 1;
}

uint32_t vg_ptx_global_address(struct vg_reader *r, struct vg_lowering *low,
                               const struct vg_operand *operand)
{
    if (operand->kind != VG_OPERAND_ADDRESS)
        vg_ptx_operand_wrong(r, operand, low->opcode, "an address in [ ]");
    const struct vg_operand *base = operand->elements;
    low->symbols = true;
    if (base->kind == VG_OPERAND_SPECIAL)
        vg_ptx_operand_wrong(r, base, low->opcode, "a register of 64 bits with an address");
    if (base->kind != VG_OPERAND_REGISTER || !base->addend)
        return vg_ptx_source(r, low, base, VG_U64, false);
    struct vg_draft draft = before(r, low, VG_ADD, VG_U64);
    draft.dst[0] = temporary(r, VG_U64);
    draft.src[0] = vg_ptx_source(r, low, base, VG_U64, false);
    draft.src[1] = vg_ptx_constant(r, VG_U64, (uint64_t)base->addend, 0);
    vg_ptx_draft_add(r, &draft);
    return draft.dst[0];
}

uint32_t vg_ptx_generic_address(struct vg_reader *r, struct vg_lowering *low,
                                const struct vg_operand *operand)
{
    if (operand->kind != VG_OPERAND_REGISTER || !vg_ptx_type_fits(VG_U32, operand->type))
        return vg_ptx_source(r, low, operand, VG_U64, false);
    return convert(r, low, vg_ptx_source(r, low, operand, VG_U32, false), VG_U32, VG_U64);
}
