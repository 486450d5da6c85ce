/* Reads an instruction: guard, opcode, modifiers, operands; finds its form and lowers it. */
#include <vgpu/ptx/instructions.h>

#include <string.h>

struct vg_draft vg_ptx_draft_make(const struct vg_reader *r, uint32_t line, uint32_t guard)
{
    struct vg_draft draft = {
        .in = {.line = line, .place = r->place, .round = VG_ROUND_NONE, .guard = VG_NONE},
        .guard = guard};
    for (unsigned i = 0; i < 4; i++) draft.dst[i] = VG_DRAFT_NONE;
    for (unsigned i = 0; i < 5; i++) draft.src[i] = VG_DRAFT_NONE;
    return draft;
}

struct vg_draft *vg_ptx_draft_add(struct vg_reader *r, const struct vg_draft *draft)
{
    r->drafts = vg_ptx_room(r, r->drafts, r->ndrafts, &r->drafts_room, sizeof *r->drafts);
    r->drafts[r->ndrafts] = *draft;
    return &r->drafts[r->ndrafts++];
}

static enum vg_type wider(enum vg_type type)
{
    return type == VG_U16 ? VG_U32 : type == VG_S16 ? VG_S32 : type == VG_U32 ? VG_U64 : VG_S64;
}

static void put_source(struct vg_lowering *low, uint32_t source)
{
    low->draft.src[low->nsrc++] = source;
}

/* A source or its negation. */
static uint32_t predicate_source(struct vg_reader *r, struct vg_lowering *low,
                                 const struct vg_operand *operand, bool negatable)
{
    struct vg_operand plain = *operand;
    if (negatable && operand->negated) {
        low->draft.in.flags |= VG_SOURCE_NOT;
        plain.negated = false;
    }
    return vg_ptx_source(r, low, &plain, VG_PRED, false);
}

/* A load of .s8 or .s16 extends the sign to 32 bits. Where a register has another width, it loads
 * the bits, and the sign is extended afterwards. */
static void load_unsigned(struct vg_instr *in, enum vg_type type, const struct vg_operand *elements,
                          uint32_t count)
{
    if (type != VG_S8 && type != VG_S16) return;
    for (uint32_t i = 0; i < count; i++)
        if (elements[i].kind == VG_OPERAND_REGISTER && vg_ptx_type_bytes(elements[i].type) != 4)
            in->type = type == VG_S8 ? VG_U8 : VG_U16;
}

/* A vector's elements, or one. */
static void elements(struct vg_reader *r, struct vg_lowering *low, const struct vg_operand *operand,
                     bool write)
{
    struct vg_instr *in = &low->draft.in;
    const enum vg_type type = (enum vg_type)in->type;
    const uint32_t count = in->count ? in->count : 1;
    const struct vg_operand *elements = operand, *first = NULL;
    if (in->count) {
        if (operand->kind != VG_OPERAND_VECTOR || operand->nelements != count)
            vg_ptx_operand_wrong(r, operand, low->opcode,
                                 count == 2   ? "a vector of 2 elements"
                                 : count == 4 ? "a vector of 4 elements"
                                              : "a vector of 8 elements");
        elements = operand->elements;
    } else if (operand->kind == VG_OPERAND_VECTOR) {
        vg_ptx_operand_wrong(r, operand, low->opcode, "no vector");
    }
    if (write) load_unsigned(in, type, elements, count);
    if (elements->kind == VG_OPERAND_SINK && count == 1)
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register");
    for (uint32_t i = 0; i < count; i++) {
        if (elements[i].kind == VG_OPERAND_REGISTER && first &&
            vg_ptx_type_bytes(elements[i].type) != vg_ptx_type_bytes(first->type))
            vg_ptx_operand_wrong(r, &elements[i], low->opcode, "elements of one width");
        if (elements[i].kind == VG_OPERAND_REGISTER) first = &elements[i];
        uint32_t *place = write   ? (i < 4 ? &low->draft.dst[i] : &low->high_dst[i - 4])
                          : i < 4 ? &low->draft.src[low->nsrc++]
                                  : &low->high_src[i - 4];
        *place = write ? vg_ptx_destination(r, low, &elements[i], type, true)
                       : vg_ptx_source(r, low, &elements[i], type, true);
    }
    if (write && !first)
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register among the elements");
    if (write) low->ndst = count < 4 ? count : 4;
    in->count = (uint8_t)count;
}

/* Constants that ptxas checks. */
static void check_constant(struct vg_reader *r, const struct vg_lowering *low, char kind,
                           const struct vg_operand *operand)
{
    const uint64_t n = operand->value.bits;
    const char *expected = NULL;
    if (operand->kind != VG_OPERAND_NUMBER) return;
    if (kind == 'k' && n > 255) expected = "a number from 0 to 255";
    if (kind == 'B' && n > 15) expected = "a barrier's number, 0 to 15";
    if ((kind == 'N' || kind == 'A') && n % 32 != 0) expected = "whole warps: a multiple of 32";
    if (kind == 'o' && (n == 0 || n > UINT32_MAX)) expected = "a number from 1";
    if (kind == 'A' && n == 0) expected = "a number that is not 0";
    if (kind == 'y' && n > 1) expected = "a parity, 0 or 1";
    if (kind == 'l' && n > 255 && n != UINT64_MAX) expected = "a table from 0 to 255";
    if (kind == 'L' && n != 128) expected = "128";
    if (kind == 't' && n > 15) expected = "a number from 0 to 15";
    if (kind == 'T' && n > 65535) expected = "a mask of 16 bits";
    if (kind == 'G' && (n == 0 || (n & (n - 1)) || n > 4096)) expected = "a power of two";
    if (kind == 'R' && (n % 8 != 0 || n < 24 || n > 256))
        expected = "a multiple of 8 from 24 to 256";
    if (kind == 'n' && n != 4 && n != 8 && n != 16) expected = "a size of 4, 8 or 16";
    if (kind == 'M' && n != 16) expected = "a size of 16";
    if (kind == 'c' && n > low->draft.in.count) expected = "at most what is written";
    if (expected) vg_ptx_operand_wrong(r, operand, low->opcode, expected);
}

/* A constant and nothing else. */
static void constant_operand(struct vg_reader *r, struct vg_lowering *low, char kind,
                             const struct vg_operand *operand)
{
    struct vg_instr *in = &low->draft.in;
    if (operand->kind != VG_OPERAND_NUMBER || operand->value.kind == VG_VALUE_F32 ||
        operand->value.kind == VG_VALUE_F64)
        vg_ptx_operand_wrong(r, operand, low->opcode, "a constant");
    if (kind == 'l')
        in->mode = (uint8_t)operand->value.bits;
    else if (kind == 'n' || kind == 'M')
        in->count = (uint8_t)operand->value.bits;
    else if (kind == 'i' || kind == 'G')
        in->imm = (int64_t)operand->value.bits;
}

static void source_operand(struct vg_reader *r, struct vg_lowering *low, char kind,
                           const struct vg_operand *operand)
{
    struct vg_instr *in = &low->draft.in;
    const enum vg_type type = (enum vg_type)in->type, type2 = (enum vg_type)in->type2;
    check_constant(r, low, kind, operand);
    switch (kind) {
    case 'C':
        low->symbols = true;
        if (operand->kind == VG_OPERAND_SYMBOL &&
            vg_ptx_symbol_space(r, operand->symbol) != in->space)
            vg_ptx_operand_wrong(r, operand, low->opcode, "a variable of the state space");
        put_source(low, vg_ptx_source(r, low, operand, type, false));
        break;
    case 'a':
        put_source(low, vg_ptx_source(r, low, operand, type, false));
        break;
    case 's':
        put_source(low, vg_ptx_source(r, low, operand, type2, false));
        break;
    case 'E':
        put_source(low, vg_ptx_source(r, low, operand, type2, true));
        break;
    case 'W':
        put_source(low, vg_ptx_source(r, low, operand, wider(type), false));
        break;
    case 'u':
    case 'k':
    case 'B':
    case 'N':
    case 'A':
    case 'y':
    case 'o':
        put_source(low, vg_ptx_source(r, low, operand, VG_U32, false));
        break;
    case 'Y':
        if (operand->kind != VG_OPERAND_REGISTER)
            vg_ptx_operand_wrong(r, operand, low->opcode, "a register");
        put_source(low, vg_ptx_source(r, low, operand, type, false));
        break;
    case 'K':
        put_source(low, vg_ptx_generic_address(r, low, operand));
        break;
    case 'U':
        put_source(low, vg_ptx_source(r, low, operand, VG_U64, false));
        break;
    case 'q':
    case 'Q':
        put_source(low, predicate_source(r, low, operand, kind == 'q'));
        break;
    case 'V':
        elements(r, low, operand, false);
        break;
    case 'm':
        vg_ptx_address(r, low, operand);
        break;
    case 'h':
    case 'z':
        vg_ptx_source(r, low, operand, VG_U64, false);
        break;
    case 'Z':
        vg_ptx_source(r, low, operand, VG_F32, false);
        break;
    case 'g':
        put_source(low, vg_ptx_global_address(r, low, operand));
        break;
    case 'c':
        in->mode = operand->kind == VG_OPERAND_REGISTER && operand->type == VG_PRED;
        put_source(low, vg_ptx_source(r, low, operand, in->mode ? VG_PRED : VG_U32, false));
        break;
    default:
        constant_operand(r, low, kind, operand);
    }
}

/* Where '_' may stand: for a result beside which there is another one, and for what the memory
 * held. */
static bool may_sink(const struct vg_instr *in, const struct vg_operand *operand)
{
    if (in->op == VG_ATOM) return !vg_ptx_type_is_half((enum vg_type)in->type);
    return in->op == VG_MBARRIER_ARRIVE || in->op == VG_MBARRIER_ARRIVE_DROP ||
           in->op == VG_MBARRIER_EXPECT || in->op == VG_LOP3 || in->op == VG_SETP ||
           (operand->pair && in->op != VG_SHFL);
}

/* pair: '|' a second result may stand there, '&' it must, 0. */
static void destination_operand(struct vg_reader *r, struct vg_lowering *low, char kind, char pair,
                                const struct vg_operand *operand)
{
    const enum vg_type type = (enum vg_type)low->draft.in.type;
    enum vg_type wanted = type;
    if (kind == 'v') {
        elements(r, low, operand, true);
        return;
    }
    if (kind == 'D') wanted = (enum vg_type)low->draft.in.type2;
    if (kind == 'w') wanted = wider(type);
    if (kind == 'x') wanted = VG_U32;
    if (kind == 'X') wanted = VG_U64;
    if (kind == 'p') wanted = VG_PRED;
    if (operand->pair && !pair)
        vg_ptx_operand_wrong(r, operand->pair, low->opcode, "no second result");
    if (!operand->pair && pair == '&')
        vg_ptx_operand_wrong(r, operand, low->opcode, "a second result behind '|'");
    if (operand->kind == VG_OPERAND_SINK && !may_sink(&low->draft.in, operand))
        vg_ptx_operand_wrong(r, operand, low->opcode, "a register");
    low->draft.dst[low->ndst++] = vg_ptx_destination(r, low, operand, wanted, kind == 'e');
    if (operand->pair)
        low->draft.dst[low->ndst++] = vg_ptx_destination(r, low, operand->pair, VG_PRED, false);
}

/* The length of the first word; a blank or the end follows each. */
static size_t word_length(const char *words)
{
    size_t length = 0;
    while (words[length] && words[length] != ' ') length++;
    return length;
}

/* How many operands a form has from here on, at least and at most. */
static void count_operands(const char *spec, bool hint, uint32_t *least, uint32_t *most)
{
    *least = *most = 0;
    while (*spec) {
        const size_t length = word_length(spec);
        const uint32_t one = *spec != 'h' || hint;
        *most += one;
        if (spec[length - 1] != '?') *least += one;
        spec += length + (spec[length] == ' ');
    }
}

static void check_count(struct vg_reader *r, const struct vg_lowering *low, const char *spec,
                        uint32_t n)
{
    uint32_t least, most;
    count_operands(spec, low->hint, &least, &most);
    if (n < least || n > most)
        vg_ptx_fail(r, low->draft.in.line, "%.60s: expected %u operands, found %u", low->opcode,
                    n < least ? least : most, n);
}

/* max of three: max of two, and that with the third one. */
static void third_operand(struct vg_reader *r, struct vg_lowering *low,
                          const struct vg_operand *operand)
{
    const enum vg_type type = (enum vg_type)low->draft.in.type;
    const uint32_t third = vg_ptx_source(r, low, operand, type, false), to = low->draft.dst[0];
    low->draft.dst[0] = vg_ptx_register_add(r, type);
    vg_ptx_draft_add(r, &low->draft);
    low->draft.src[0] = low->draft.dst[0];
    low->draft.src[1] = third;
    low->draft.dst[0] = to;
}

/* Puts the operands where the form wants them. One that may be missing is there when more operands
 * are left than must follow. */
static void place_operands(struct vg_reader *r, struct vg_lowering *low, const char *spec,
                           const struct vg_operand *operands, uint32_t n)
{
    uint32_t least = 0, most, used = 0;
    check_count(r, low, spec, n);
    while (*spec) {
        const size_t length = word_length(spec);
        const bool optional = spec[length - 1] == '?';
        const char pair = length >= 3 ? spec[1] : '\0';
        const char kind = *spec;
        spec += length + (spec[length] == ' ');
        if (kind == 'h' && !low->hint) continue;
        if (optional) count_operands(spec, low->hint, &least, &most);
        if (optional && n - used <= least)
            low->nsrc += !strchr("iGZ3", kind);
        else if (kind == '3')
            third_operand(r, low, &operands[used++]);
        else if (strchr("dDwxXpev", kind))
            destination_operand(r, low, kind, pair, &operands[used++]);
        else
            source_operand(r, low, kind, &operands[used++]);
    }
}

/* @p, @!p */
static uint32_t guard_read(struct vg_reader *r, bool *negated)
{
    uint32_t number;
    vg_ptx_next(r);
    *negated = vg_ptx_accept(r, '!');
    const struct vg_token name = vg_ptx_expect_name(r, "a predicate behind '@'");
    const struct vg_symbol *symbol = vg_ptx_symbol_find(r, &name, &number);
    if (!symbol || (symbol->kind != VG_SYMBOL_REGISTER && symbol->kind != VG_SYMBOL_RANGE) ||
        r->register_types[number] != VG_PRED)
        vg_ptx_fail(r, name.line, "expected a declared predicate behind '@', found '%.*s'",
                    VG_NAMED(name));
    return number;
}

static void opcode_read(struct vg_reader *r, struct vg_opcode *opcode)
{
    size_t length = 0;
    opcode->nmodifiers = 0;
    opcode->name = vg_ptx_expect_name(r, "an instruction");
    while (r->token.kind == VG_TOKEN_DOTTED && r->token.glued) {
        if (opcode->nmodifiers == VG_MAX_MODIFIERS) vg_ptx_unexpected(r, "fewer modifiers before");
        opcode->modifiers[opcode->nmodifiers++] = r->token;
        length = (size_t)(r->token.text + r->token.length - opcode->name.text);
        vg_ptx_next(r);
    }
    if (length < opcode->name.length) length = opcode->name.length;
    opcode->length = (uint32_t)length;
    if (length >= sizeof opcode->text) length = sizeof opcode->text - 1;
    memcpy(opcode->text, opcode->name.text, length);
    opcode->text[length] = '\0';
}

/* Notes that the instruction is not supported: the kernel that reaches it fails when launched. */
static void unsupported(struct vg_reader *r, struct vg_lowering *low)
{
    struct vg_module *module = r->module;
    struct vg_function *function = &module->functions[r->function];
    const struct vg_token token = {
        .text = low->opcode, .length = (uint32_t)strlen(low->opcode), .line = low->draft.in.line};
    module->texts = vg_ptx_room(r, module->texts, module->ntexts, &r->texts_room, sizeof(char *));
    struct vg_draft draft = vg_ptx_draft_make(r, low->draft.in.line, low->draft.guard);
    draft.in.flags = low->draft.in.flags & VG_GUARD_NOT;
    draft.in.op = VG_UNSUPPORTED;
    draft.in.imm = module->ntexts;
    module->texts[module->ntexts] = vg_ptx_unsupported_text(r, token);
    if (!function->unsupported) function->unsupported = module->texts[module->ntexts];
    module->ntexts++;
    vg_ptx_draft_add(r, &draft);
}

void vg_ptx_instruction_read(struct vg_reader *r)
{
    struct vg_opcode opcode;
    struct vg_operand operands[VG_MAX_OPERANDS];
    const uint32_t line = r->token.line;
    uint32_t guard = VG_DRAFT_NONE;
    bool negated = false;
    if (vg_ptx_is(r, '@')) guard = guard_read(r, &negated);
    opcode_read(r, &opcode);
    struct vg_lowering low = {.draft = vg_ptx_draft_make(r, line, guard), .opcode = opcode.text};
    if (negated) low.draft.in.flags |= VG_GUARD_NOT;
    if (vg_ptx_special_read(r, &opcode, &low)) return;
    const struct vg_form *form = vg_ptx_form_apply(r, &opcode, &low);
    if (!form) {
        vg_ptx_skip_operands(r);
        unsupported(r, &low);
        return;
    }
    low.specials = form->op == VG_CVT && low.draft.in.type2 <= VG_S64;
    const uint32_t n = vg_ptx_operands_read(r, operands);
    if (*form->operands == '2') {
        check_count(r, &low, form->operands, n);
        vg_ptx_finish(r, &opcode, &low);
        vg_ptx_pairs_lower(r, &low, operands, n);
        return;
    }
    place_operands(r, &low, form->operands, operands, n);
    vg_ptx_finish(r, &opcode, &low);
    if (low.refused)
        unsupported(r, &low);
    else
        vg_ptx_lowered(r, &low);
}
