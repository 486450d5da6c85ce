/* Names: one table of all scopes, the innermost declaration of a name first; labels, which may be
 * used before they are declared. */
#include <vgpu/ptx/reader.h>

#include <string.h>

static uint32_t hash_of(const char *text, uint32_t length)
{
    return vg_ptx_hash(text, length) % VG_BUCKETS;
}

static struct vg_symbol *find(struct vg_reader *r, const char *text, uint32_t length)
{
    struct vg_symbol *symbol = r->buckets[hash_of(text, length)];
    while (symbol && (symbol->length != length || memcmp(symbol->name, text, length) != 0))
        symbol = symbol->next;
    return symbol;
}

struct vg_symbol *vg_ptx_symbol_add(struct vg_reader *r, const struct vg_token *name,
                                    enum vg_symbol_kind kind)
{
    const struct vg_symbol *other = find(r, name->text, name->length);
    if (other && other->depth == r->depth)
        vg_ptx_fail(r, name->line, "expected a new name, found '%.*s', declared in line %u",
                    VG_NAMED(*name), other->line);
    struct vg_symbol *symbol = vg_ptx_alloc(r, sizeof *symbol);
    struct vg_symbol **bucket = &r->buckets[hash_of(name->text, name->length)];
    *symbol = (struct vg_symbol){.name = name->text,
                                 .length = name->length,
                                 .line = name->line,
                                 .depth = r->depth,
                                 .kind = kind,
                                 .next = *bucket,
                                 .older = r->scopes[r->depth].symbols};
    *bucket = symbol;
    r->scopes[r->depth].symbols = symbol;
    return symbol;
}

struct vg_symbol *vg_ptx_symbol_find(struct vg_reader *r, const struct vg_token *name,
                                     uint32_t *index)
{
    struct vg_symbol *symbol = find(r, name->text, name->length);
    uint32_t length = name->length;
    while (length > 0 && name->text[length - 1] >= '0' && name->text[length - 1] <= '9') length--;
    if (index) *index = symbol ? symbol->number : 0;
    if (symbol && symbol->kind == VG_SYMBOL_RANGE) symbol = NULL; /* %r alone is none of %r<4> */
    if (symbol || length == name->length || name->length - length > 7) return symbol;
    if (name->text[length] == '0' && name->length - length > 1) return NULL;
    uint32_t number = 0;
    for (uint32_t i = length; i < name->length; i++)
        number = number * 10 + (uint32_t)(name->text[i] - '0');
    symbol = find(r, name->text, length);
    if (!symbol || symbol->kind != VG_SYMBOL_RANGE || number >= symbol->count) return NULL;
    if (index) *index = symbol->number + number;
    return symbol;
}

void vg_ptx_scope_open(struct vg_reader *r)
{
    if (r->depth + 1 >= VG_MAX_DEPTH)
        vg_ptx_fail(r, r->token.line, "expected at most %d nested scopes", VG_MAX_DEPTH);
    r->depth++;
    r->nscopes += r->depth == 2;
    r->scopes[r->depth] = (struct vg_names){.symbols = NULL, .first_use = r->nuses};
}

static void resolve(struct vg_reader *r, const struct vg_label_use *use, uint32_t target)
{
    if (use->table)
        r->module->targets[use->place] = target;
    else
        r->drafts[use->place].in.target = target;
}

void vg_ptx_scope_close(struct vg_reader *r)
{
    const struct vg_names *scope = &r->scopes[r->depth];
    uint32_t kept = scope->first_use;
    for (uint32_t i = scope->first_use; i < r->nuses; i++) {
        const struct vg_label_use use = r->uses[i];
        const struct vg_symbol *label = find(r, use.name, use.length);
        if (label && label->kind == VG_SYMBOL_LABEL && label->depth == r->depth)
            resolve(r, &use, label->number);
        else if (r->depth == 1)
            vg_ptx_fail(r, use.line, "expected a label of the function, found '%.*s'",
                        use.length < 60 ? (int)use.length : 60, use.name);
        else
            r->uses[kept++] = use;
    }
    r->nuses = kept;
    for (struct vg_symbol *symbol = scope->symbols; symbol; symbol = symbol->older)
        r->buckets[hash_of(symbol->name, symbol->length)] = symbol->next;
    r->depth--;
}

void vg_ptx_label_use(struct vg_reader *r, const struct vg_token *name, bool table, uint32_t place)
{
    r->uses = vg_ptx_room(r, r->uses, r->nuses, &r->uses_room, sizeof *r->uses);
    r->uses[r->nuses++] = (struct vg_label_use){.name = name->text,
                                                .length = name->length,
                                                .line = name->line,
                                                .table = table,
                                                .place = place};
}

enum vg_space vg_ptx_symbol_space(const struct vg_reader *r, const struct vg_symbol *symbol)
{
    switch (symbol->kind) {
    case VG_SYMBOL_VARIABLE:
        return (enum vg_space)r->module->variables[symbol->number].space;
    case VG_SYMBOL_SHARED:
        return VG_SHARED;
    case VG_SYMBOL_FRAME:
        return symbol->frame->param ? VG_PARAM_SPACE : VG_LOCAL;
    case VG_SYMBOL_PARAM:
        return VG_PARAM_SPACE;
    default:
        return VG_GENERIC;
    }
}
