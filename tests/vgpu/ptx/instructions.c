/* Reads an instruction: guard, opcode, modifiers, operands; finds its form and lowers it. */
#include <vgpu/ptx/instructions.h>

#include <stdio.h>
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

/* Whether the modifier is one of the words of a slot, which end at a blank or '?'. */
static bool in_slot(const char *words, size_t length, const struct vg_token *modifier)
{
    const char *end = words + length;
    while (words < end) {
        const char *bar = memchr(words, '|', (size_t)(end - words));
        const char *stop = bar ? bar : end;
        if ((size_t)(stop - words) == modifier->length - 1 &&
            memcmp(words, modifier->text + 1, modifier->length - 1) == 0)
            return true;
        words = stop + 1;
    }
    return false;
}

/* What a word sets. */
static void apply(struct vg_lowering *low, char class, const struct vg_token *modifier)
{
    struct vg_instr *in = &low->draft.in;
    enum vg_type type;
    if (class == 't' || class == 's') {
        if (!vg_ptx_type_named(modifier->text, modifier->length, &type)) return;
        if (class == 't')
            in->type = (uint8_t)type;
        else
            in->type2 = (uint8_t)type;
        return;
    }
    if (class == 'b') { /* .u8: 8 bits, and whether they are signed */
        in->count = (uint8_t)(modifier->length == 4 ? 16 : modifier->text[2] - '0');
        in->mode = modifier->text[1] == 's';
        return;
    }
    if (class == 'y') { /* volatile */
        in->order = VG_RELAXED;
        in->scope = VG_SCOPE_SYS;
        return;
    }
    const struct vg_word *word = vg_ptx_word_find(class, modifier->text + 1, modifier->length - 1);
    if (!word) return;
    const uint8_t value = (uint8_t)word->value;
    if (class == 'r') in->round = value;
    if (class == 'c') in->compare = value;
    if (class == 'k') in->combine = value;
    if (class == 'f') in->flags |= (uint32_t)word->value;
    if (class == 'o') in->order = value;
    if (class == 'S') in->scope = value;
    if (class == 'p') in->space = value;
    if (class == 'v') in->count = value;
    if (class == 'h') low->hint = true;
    if (strchr("MARVHPE", class)) in->mode = value;
}

/* Whether the modifiers are those of the form. ptxas takes them in any order but for two types:
 * each slot takes the first modifier that fits. *far: the first modifier that no slot takes; *slot:
 * what was expected.
 */
static bool matches(const struct vg_form *form, const struct vg_opcode *opcode,
                    struct vg_lowering *low, uint32_t *far, const char **slot)
{
    uint32_t used = 0, first = 0, after_type = 0;
    const char *at = form->modifiers, *missing = NULL;
    while (*at && !missing) {
        const size_t length = strcspn(at + 2, " ?");
        const bool optional = at[2 + length] == '?';
        const bool type = *at == 't' || *at == 's';
        uint32_t n = type ? after_type : 0;
        while (n < opcode->nmodifiers &&
               ((used >> n & 1) || !in_slot(at + 2, length, &opcode->modifiers[n])))
            n++;
        if (n == opcode->nmodifiers) {
            if (!optional) missing = at + 2;
        } else {
            if (low) apply(low, *at, &opcode->modifiers[n]);
            used |= 1u << n;
            if (type) after_type = n + 1;
        }
        at += 2 + length + optional;
        while (*at == ' ') at++;
    }
    while (used >> first & 1) first++;
    if (!missing && first == opcode->nmodifiers) return true;
    if (first >= *far) {
        *far = first;
        *slot = missing;
    }
    return false;
}

static const struct vg_form *const tables[] = {vg_ptx_forms_integer, vg_ptx_forms_float,
                                               vg_ptx_forms_data, vg_ptx_forms_memory,
                                               vg_ptx_forms_together};

static const struct vg_form *find_form(struct vg_reader *r, const struct vg_opcode *opcode)
{
    bool known = false;
    uint32_t far = 0;
    const char *slot = NULL;
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct vg_form *form = tables[i]; form->name; form++) {
            if (*form->name != *opcode->name.text || !vg_ptx_is_word(&opcode->name, form->name))
                continue;
            known = true;
            if (matches(form, opcode, NULL, &far, &slot)) return form;
        }
    if (vg_ptx_is_unsupported(opcode)) return NULL;
    if (!known)
        vg_ptx_fail(r, opcode->name.line, "expected an instruction, found '%.*s'",
                    VG_NAMED(opcode->name));
    char expected[100];
    if (slot)
        snprintf(expected, sizeof expected, "'.%.*s'", (int)strcspn(slot, " ?"), slot);
    else
        snprintf(expected, sizeof expected, "no more modifiers");
    if (far >= opcode->nmodifiers)
        vg_ptx_fail(r, opcode->name.line, "%.60s: expected %s, found no more modifiers",
                    opcode->text, expected);
    vg_ptx_fail(r, opcode->name.line, "%.60s: expected %s, found '%.*s'", opcode->text, expected,
                VG_NAMED(opcode->modifiers[far]));
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
    const struct vg_operand *elements = operand;
    if (in->count) {
        if (operand->kind != VG_OPERAND_VECTOR || operand->nelements != count)
            vg_ptx_operand_wrong(r, operand, low->opcode,
                                 count == 2 ? "a vector of 2 elements" : "a vector of 4 elements");
        elements = operand->elements;
    } else if (operand->kind == VG_OPERAND_VECTOR) {
        vg_ptx_operand_wrong(r, operand, low->opcode, "no vector");
    }
    if (write) load_unsigned(in, type, elements, count);
    for (uint32_t i = 0; i < count; i++) {
        if (write)
            low->draft.dst[low->ndst++] = vg_ptx_destination(r, low, &elements[i], type, true);
        else
            put_source(low, vg_ptx_source(r, low, &elements[i], type, true));
    }
    in->count = (uint8_t)count;
}

static void source_operand(struct vg_reader *r, struct vg_lowering *low, char kind,
                           const struct vg_operand *operand)
{
    struct vg_instr *in = &low->draft.in;
    const enum vg_type type = (enum vg_type)in->type, type2 = (enum vg_type)in->type2;
    switch (kind) {
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
        put_source(low, vg_ptx_source(r, low, operand, VG_U32, false));
        break;
    case 'S':
        put_source(low, vg_ptx_shift(r, low, operand));
        break;
    case 'U':
        put_source(low, vg_ptx_source(r, low, operand, VG_B64, false));
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
        vg_ptx_source(r, low, operand, VG_B64, false);
        break;
    case 'g':
        put_source(low, vg_ptx_global_address(r, low, operand));
        break;
    case 'c':
        in->mode = operand->kind == VG_OPERAND_REGISTER && operand->type == VG_PRED;
        put_source(low, vg_ptx_source(r, low, operand, in->mode ? VG_PRED : VG_U32, false));
        break;
    default: /* i, l, n */
        if (operand->kind != VG_OPERAND_NUMBER)
            vg_ptx_operand_wrong(r, operand, low->opcode, "a constant");
        if (kind == 'l' && operand->value.bits > 255)
            vg_ptx_operand_wrong(r, operand, low->opcode, "a table from 0 to 255");
        if (kind == 'n' && operand->value.bits != 4 && operand->value.bits != 8 &&
            operand->value.bits != 16)
            vg_ptx_operand_wrong(r, operand, low->opcode, "a size of 4, 8 or 16");
        if (kind == 'l')
            in->mode = (uint8_t)operand->value.bits;
        else if (kind == 'n')
            in->count = (uint8_t)operand->value.bits;
        else
            in->imm = (int64_t)operand->value.bits;
    }
}

static void destination_operand(struct vg_reader *r, struct vg_lowering *low, char kind, bool pair,
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
    if (kind == 'X') wanted = VG_B64;
    if (kind == 'p') wanted = VG_PRED;
    if (operand->pair && !pair)
        vg_ptx_operand_wrong(r, operand->pair, low->opcode, "no second result");
    low->draft.dst[low->ndst++] = vg_ptx_destination(r, low, operand, wanted, kind == 'e');
    if (operand->pair)
        low->draft.dst[low->ndst++] = vg_ptx_destination(r, low, operand->pair, VG_PRED, false);
}

/* How many operands a form has from here on, at least and at most. */
static void count_operands(const char *spec, bool hint, uint32_t *least, uint32_t *most)
{
    *least = *most = 0;
    while (*spec) {
        const size_t length = strcspn(spec, " ");
        const uint32_t one = *spec != 'h' || hint;
        *most += one;
        if (spec[length - 1] != '?') *least += one;
        spec += length + (spec[length] == ' ');
    }
}

/* Puts the operands where the form wants them. One that may be missing is there when more operands
 * are left than must follow. */
static void place_operands(struct vg_reader *r, struct vg_lowering *low, const char *spec,
                           const struct vg_operand *operands, uint32_t n)
{
    uint32_t least, most, used = 0;
    count_operands(spec, low->hint, &least, &most);
    if (n < least || n > most)
        vg_ptx_fail(r, low->draft.in.line, "%.60s: expected %u operands, found %u", low->opcode,
                    n < least ? least : most, n);
    while (*spec) {
        const size_t length = strcspn(spec, " ");
        const bool pair = length >= 3 && spec[1] == '|', optional = spec[length - 1] == '?';
        const char kind = *spec;
        spec += length + (spec[length] == ' ');
        if (kind == 'h' && !low->hint) continue;
        count_operands(spec, low->hint, &least, &most);
        if (optional && n - used <= least)
            low->nsrc += kind != 'i';
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
    opcode->name = vg_ptx_expect_name(r, "an instruction");
    while (r->token.kind == VG_TOKEN_DOTTED && r->token.glued) {
        if (opcode->nmodifiers == VG_MAX_MODIFIERS) vg_ptx_unexpected(r, "fewer modifiers before");
        opcode->modifiers[opcode->nmodifiers++] = r->token;
        length = (size_t)(r->token.text + r->token.length - opcode->name.text);
        vg_ptx_next(r);
    }
    if (length < opcode->name.length) length = opcode->name.length;
    if (length >= sizeof opcode->text) length = sizeof opcode->text - 1;
    memcpy(opcode->text, opcode->name.text, length);
    opcode->text[length] = '\0';
}

static void unsupported(struct vg_reader *r, struct vg_lowering *low)
{
    struct vg_module *module = r->module;
    struct vg_function *function = &module->functions[r->function];
    const struct vg_token token = {
        .text = low->opcode, .length = (uint32_t)strlen(low->opcode), .line = low->draft.in.line};
    vg_ptx_skip_statement(r);
    module->texts = vg_ptx_room(r, module->texts, module->ntexts, &r->texts_room, sizeof(char *));
    low->draft.in.op = VG_UNSUPPORTED;
    low->draft.in.imm = module->ntexts;
    module->texts[module->ntexts] = vg_ptx_unsupported_text(r, token);
    if (!function->unsupported) function->unsupported = module->texts[module->ntexts];
    module->ntexts++;
    vg_ptx_draft_add(r, &low->draft);
}

void vg_ptx_instruction_read(struct vg_reader *r)
{
    struct vg_opcode opcode = {.nmodifiers = 0};
    struct vg_operand operands[VG_MAX_OPERANDS];
    const uint32_t line = r->token.line;
    uint32_t guard = VG_DRAFT_NONE;
    bool negated = false;
    if (vg_ptx_is(r, '@')) guard = guard_read(r, &negated);
    opcode_read(r, &opcode);
    struct vg_lowering low = {.draft = vg_ptx_draft_make(r, line, guard), .opcode = opcode.text};
    if (negated) low.draft.in.flags |= VG_GUARD_NOT;
    if (vg_ptx_special_read(r, &opcode, &low)) return;
    const struct vg_form *form = find_form(r, &opcode);
    if (!form) {
        unsupported(r, &low);
        return;
    }
    uint32_t far = 0;
    const char *slot = NULL;
    low.draft.in.op = form->op;
    low.draft.in.mode = form->mode;
    low.draft.in.flags |= form->flags;
    matches(form, &opcode, &low, &far, &slot);
    const uint32_t n = vg_ptx_operands_read(r, operands);
    place_operands(r, &low, form->operands, operands, n);
    vg_ptx_finish(r, &opcode, &low);
    vg_ptx_lowered(r, &low);
}
