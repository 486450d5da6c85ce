/* Finds the form of an instruction by its modifiers, and what each of them sets. */
#include <vgpu/ptx/instructions.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (class == 'F') { /* f32x2 */
        in->type = VG_F32;
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
    if (class == '2') low->evicts = true;
    if (strchr("MARVHPE", class)) in->mode = value;
}

/* A slot of a form's modifiers. */
struct slot {
    char place, class; /* place: '^', '>' or ' ' */
    bool optional;
    const char *words;
    size_t length;
};

/* The slot at *at; *at goes on to the next one. */
static struct slot slot_read(const char **at)
{
    struct slot slot = {.place = ' '};
    if (**at == '^' || **at == '>') slot.place = *(*at)++;
    slot.class = **at;
    slot.words = *at + 2;
    slot.length = strcspn(slot.words, " ?");
    *at = slot.words + slot.length;
    slot.optional = **at == '?';
    *at += slot.optional;
    while (**at == ' ') ++*at;
    return slot;
}

/* Whether the modifiers are those of the form. Like ptxas it takes most in any order: each slot
 * takes the first modifier that fits. *far: the first modifier that no slot takes; *slot: what was
 * expected. */
static bool form_matches(const struct vg_form *form, const struct vg_opcode *opcode,
                         struct vg_lowering *low, uint32_t *far, const char **expected)
{
    uint32_t used = 0, first = 0, after_type = 0, before = 0;
    const char *at = form->modifiers, *missing = NULL;
    while (*at && !missing) {
        const struct slot slot = slot_read(&at);
        const bool type = slot.class == 't' || slot.class == 's';
        uint32_t n = slot.place == '>' ? before : type ? after_type : 0;
        while (used >> first & 1) first++;
        if (slot.place == '^') n = first;
        while (n < opcode->nmodifiers &&
               ((used >> n & 1) || !in_slot(slot.words, slot.length, &opcode->modifiers[n])))
            n = slot.place == '^' ? opcode->nmodifiers : n + 1;
        if (n >= opcode->nmodifiers) {
            if (!slot.optional) missing = slot.words;
        } else {
            if (low) apply(low, slot.class, &opcode->modifiers[n]);
            used |= 1u << n;
            before = n + 1;
            if (type) after_type = n + 1;
        }
    }
    while (used >> first & 1) first++;
    if (!missing && first == opcode->nmodifiers) return true;
    if (first >= *far) {
        *far = first;
        *expected = missing;
    }
    return false;
}

static const struct vg_form *const tables[] = {vg_ptx_forms_integer, vg_ptx_forms_float,
                                               vg_ptx_forms_data, vg_ptx_forms_memory,
                                               vg_ptx_forms_together};

/* Whether a form of any instruction has the modifier. */
static bool is_known(const struct vg_token *modifier)
{
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct vg_form *form = tables[i]; form->name; form++)
            for (const char *at = form->modifiers; *at;) {
                const struct slot slot = slot_read(&at);
                if (in_slot(slot.words, slot.length, modifier)) return true;
            }
    return vg_ptx_is_word(modifier, ".uni") || vg_ptx_is_word(modifier, ".idx");
}

/* An instruction that the tables do not know may be one of a later PTX: it is not refused before it
 * is to run. What they know in another form is wrong, unless the text is of a later version, or of
 * a later architecture, which has forms that the tables lack. */
static bool is_later(const struct vg_reader *r, const struct vg_opcode *opcode, bool named)
{
    if (!named || r->module->version > VG_PTX_VERSION || r->module->target > VG_PTX_TARGET)
        return true;
    for (uint32_t i = 0; i < opcode->nmodifiers; i++)
        if (!is_known(&opcode->modifiers[i])) return true;
    return false;
}

static const struct vg_form *form_find(struct vg_reader *r, const struct vg_opcode *opcode)
{
    bool named = false;
    uint32_t far = 0;
    const char *slot = NULL;
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct vg_form *form = tables[i]; form->name; form++) {
            if (*form->name != *opcode->name.text || !vg_ptx_is_word(&opcode->name, form->name))
                continue;
            named = true;
            if (form_matches(form, opcode, NULL, &far, &slot)) return form;
        }
    if (vg_ptx_is_unsupported(opcode) || is_later(r, opcode, named)) return NULL;
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

/* What the form and the modifiers of an opcode set. A text has few opcodes, which it repeats. */
struct vg_opcode_set {
    const char *text; /* of the opcode, in the PTX */
    uint32_t length;
    const struct vg_form *form; /* NULL: the place is free */
    struct vg_instr in;
    bool hint, evicts;
};
enum { KNOWN = 1024 };

/* Where the opcode is, or would be; another one may be there. The table, of 96 KiB, is not kept
 * with the module. */
static struct vg_opcode_set *place_of(struct vg_reader *r, const struct vg_opcode *opcode)
{
    if (!r->known) r->known = calloc(KNOWN, sizeof *r->known);
    if (!r->known)
        vg_ptx_fail(r, opcode->name.line, "no memory for %zu bytes, expected some",
                    KNOWN * sizeof *r->known);
    return &r->known[vg_ptx_hash(opcode->name.text, opcode->length) % KNOWN];
}

const struct vg_form *vg_ptx_form_apply(struct vg_reader *r, const struct vg_opcode *opcode,
                                        struct vg_lowering *low)
{
    struct vg_opcode_set *known = place_of(r, opcode);
    struct vg_instr *in = &low->draft.in;
    const struct vg_instr given = *in;
    if (!known->form || known->length != opcode->length ||
        memcmp(known->text, opcode->name.text, opcode->length) != 0) {
        uint32_t far = 0;
        const char *slot = NULL;
        const struct vg_form *form = form_find(r, opcode);
        if (!form) return NULL;
        struct vg_lowering set = {.draft = vg_ptx_draft_make(r, 0, VG_DRAFT_NONE)};
        set.draft.in.op = form->op;
        set.draft.in.mode = form->mode;
        set.draft.in.flags = form->flags;
        form_matches(form, opcode, &set, &far, &slot);
        *known = (struct vg_opcode_set){.text = opcode->name.text,
                                        .length = opcode->length,
                                        .form = form,
                                        .in = set.draft.in,
                                        .hint = set.hint,
                                        .evicts = set.evicts};
    }
    *in = known->in;
    in->flags |= given.flags;
    in->line = given.line;
    in->place = given.place;
    low->hint = known->hint;
    low->evicts = known->evicts;
    return known->form;
}
