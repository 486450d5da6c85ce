/* Declarations of variables: their type, name and dimensions, and what they are initialised with.
 */
#include <vgpu/ptx/reader.h>

#include <string.h>

enum { MAX_VARIABLE = 1 << 28, MAX_ALIGN = 1 << 12 };

bool vg_ptx_is_space(const struct vg_token *token, enum vg_space *space)
{
    static const struct {
        const char *word;
        enum vg_space space;
    } spaces[] = {{".global", VG_GLOBAL},
                  {".const", VG_CONST},
                  {".shared", VG_SHARED},
                  {".local", VG_LOCAL},
                  {".param", VG_PARAM_SPACE}};
    for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (vg_ptx_is_word(token, spaces[i].word)) {
            *space = spaces[i].space;
            return true;
        }
    return false;
}

void vg_ptx_shape_type(struct vg_reader *r, struct vg_shape *shape)
{
    shape->elements = 1;
    for (;;) {
        if (vg_ptx_accept_word(r, ".align")) {
            shape->align = (uint32_t)vg_ptx_integer(r, "an alignment", 1, MAX_ALIGN);
            if (shape->align & (shape->align - 1)) vg_ptx_unexpected(r, "a power of two before");
        } else if (vg_ptx_accept_word(r, ".v2")) {
            shape->elements = 2;
        } else if (vg_ptx_accept_word(r, ".v4")) {
            shape->elements = 4;
        } else if (vg_ptx_accept_word(r, ".ptr")) { /* .param .u64 .ptr .global .align 8 p */
            enum vg_space space;
            if (vg_ptx_is_space(&r->token, &space)) vg_ptx_next(r);
            if (vg_ptx_accept_word(r, ".align")) vg_ptx_integer(r, "an alignment", 1, MAX_ALIGN);
            return;
        } else if (r->token.kind == VG_TOKEN_DOTTED &&
                   vg_ptx_type_named(r->token.text, r->token.length, &shape->type)) {
            vg_ptx_next(r);
            if (!vg_ptx_is_word(&r->token, ".ptr")) break;
        } else if (vg_ptx_accept_word(r, ".attribute")) {
            vg_ptx_expect(r, '(', "behind .attribute");
            while (!vg_ptx_accept(r, ')')) {
                shape->managed |= vg_ptx_is_word(&r->token, ".managed");
                if (r->token.kind == VG_TOKEN_END) vg_ptx_unexpected(r, "')'");
                vg_ptx_next(r);
            }
        } else {
            vg_ptx_unexpected(r, "a type");
        }
    }
}

void vg_ptx_shape_name(struct vg_reader *r, struct vg_shape *shape)
{
    shape->name = vg_ptx_expect_name(r, "a variable's name");
    shape->count = 1;
    shape->open = false;
    for (bool first = true; vg_ptx_accept(r, '['); first = false) {
        if (first && vg_ptx_accept(r, ']')) {
            shape->open = true;
            continue;
        }
        const uint64_t n = (uint64_t)vg_ptx_integer(r, "an array's size", 0, MAX_VARIABLE);
        shape->count *= n;
        if (shape->count > MAX_VARIABLE)
            vg_ptx_fail(r, shape->name.line,
                        "expected an array of at most %d elements, found '%.*s'", MAX_VARIABLE,
                        VG_NAMED(shape->name));
        vg_ptx_expect(r, ']', "behind the array's size");
    }
    const uint32_t bytes = vg_ptx_type_bytes(shape->type) * shape->elements;
    if (shape->align < bytes && shape->align == 0) shape->align = bytes;
    if (!bytes)
        vg_ptx_fail(r, shape->name.line, "expected a type of a variable, found '.pred' of '%.*s'",
                    VG_NAMED(shape->name));
}

/* What an initialiser fills. */
struct filling {
    struct vg_variable *variable;
    const struct vg_shape *shape;
    uint64_t at, room;
    uint32_t fixups_room;
};

static void put(struct vg_reader *r, struct filling *filling, uint64_t bits, uint32_t bytes)
{
    if (filling->at + bytes > filling->room) {
        if (!filling->shape->open)
            vg_ptx_unexpected(r, "no more values than the variable holds before");
        const uint64_t room = filling->room ? filling->room * 2 : 64;
        if (room > MAX_VARIABLE) vg_ptx_unexpected(r, "a smaller variable before");
        unsigned char *larger = vg_ptx_alloc(r, room);
        if (filling->at) memcpy(larger, filling->variable->bytes, filling->at);
        filling->variable->bytes = larger;
        filling->room = room;
    }
    memcpy(filling->variable->bytes + filling->at, &bits, bytes);
    filling->at += bytes;
}

/* x, x+4, generic(x), generic(x)+4. */
static void put_address(struct vg_reader *r, struct filling *filling, uint32_t bytes)
{
    struct vg_variable *variable = filling->variable;
    struct vg_fixup fixup = {.offset = filling->at};
    fixup.generic = vg_ptx_is_word(&r->token, "generic");
    if (fixup.generic) {
        vg_ptx_next(r);
        vg_ptx_expect(r, '(', "behind generic");
    }
    const struct vg_token name = vg_ptx_expect_name(r, "a variable's name");
    const struct vg_symbol *symbol = vg_ptx_symbol_find(r, &name, NULL);
    if (!symbol || (symbol->kind != VG_SYMBOL_VARIABLE && symbol->kind != VG_SYMBOL_FUNCTION) ||
        bytes != 8)
        vg_ptx_fail(r, name.line,
                    "expected the name of a global variable or function, found '%.*s'",
                    VG_NAMED(name));
    fixup.symbol = symbol->number;
    if (symbol->kind == VG_SYMBOL_FUNCTION) {
        r->routines[symbol->number].taken = true;
        fixup.symbol |= VG_FUNCTION_SYMBOL;
    }
    if (fixup.generic) vg_ptx_expect(r, ')', "behind generic(...");
    if (vg_ptx_is(r, '+') || vg_ptx_is(r, '-'))
        fixup.addend = vg_ptx_integer(r, "an offset", INT64_MIN, INT64_MAX);
    variable->fixups =
        vg_ptx_room(r, variable->fixups, variable->nfixups, &filling->fixups_room, sizeof fixup);
    variable->fixups[variable->nfixups++] = fixup;
    put(r, filling, 0, bytes);
}

static void fill(struct vg_reader *r, struct filling *filling, unsigned depth)
{
    const enum vg_type type = filling->shape->type;
    const uint32_t bytes = vg_ptx_type_bytes(type);
    if (depth > 16) vg_ptx_unexpected(r, "fewer nested braces");
    if (vg_ptx_accept(r, '{')) {
        if (vg_ptx_accept(r, '}')) return;
        do fill(r, filling, depth + 1);
        while (vg_ptx_accept(r, ','));
        vg_ptx_expect(r, '}', "at the initialiser's end");
    } else if (r->token.kind == VG_TOKEN_WORD && !vg_ptx_is_word(&r->token, "WARP_SZ")) {
        put_address(r, filling, bytes);
    } else if (bytes > 8) {
        vg_ptx_unexpected(r, "a variable of at most 64 bits with an initialiser");
    } else {
        const uint32_t line = r->token.line;
        put(r, filling, vg_ptx_type_bits(r, line, type, vg_ptx_expression(r)), bytes);
    }
}

static void initialise(struct vg_reader *r, struct vg_variable *variable,
                       const struct vg_shape *shape)
{
    struct filling filling = {.variable = variable, .shape = shape, .room = variable->size};
    variable->bytes = vg_ptx_alloc(r, variable->size ? variable->size : 1);
    fill(r, &filling, 0);
    if (shape->open) variable->size = filling.at;
}

static void module_variable(struct vg_reader *r, struct vg_declaration how,
                            const struct vg_shape *shape, uint64_t size)
{
    struct vg_symbol *symbol = vg_ptx_symbol_find(r, &shape->name, NULL);
    struct vg_module *module = r->module;
    if (!symbol || symbol->kind != VG_SYMBOL_VARIABLE || symbol->depth != r->depth ||
        !module->variables[symbol->number].external) {
        module->variables = vg_ptx_room(r, module->variables, module->nvariables,
                                        &r->variables_room, sizeof *module->variables);
        symbol = vg_ptx_symbol_add(r, &shape->name, VG_SYMBOL_VARIABLE);
        symbol->number = module->nvariables++;
    }
    struct vg_variable variable = {.name = vg_ptx_text(r, shape->name.text, shape->name.length),
                                   .space = (uint8_t)how.space,
                                   .external = how.external,
                                   .visible = how.visible,
                                   .managed = how.managed,
                                   .size = size,
                                   .align = shape->align};
    if (vg_ptx_accept(r, '=')) initialise(r, &variable, shape);
    module->variables[symbol->number] = variable;
}

static void shared_variable(struct vg_reader *r, struct vg_declaration how,
                            const struct vg_shape *shape, uint64_t size)
{
    struct vg_symbol *symbol = vg_ptx_symbol_add(r, &shape->name, VG_SYMBOL_SHARED);
    r->shared = vg_ptx_room(r, r->shared, r->nshared, &r->shared_room, sizeof *r->shared);
    symbol->number = r->nshared;
    struct vg_shared shared = {.size = size,
                               .align = shape->align,
                               .owner = r->function,
                               .variable = UINT32_MAX,
                               .dynamic = how.external};
    if (r->function == VG_NO_OWNER && !how.external) {
        struct vg_module *module = r->module;
        module->variables = vg_ptx_room(r, module->variables, module->nvariables,
                                        &r->variables_room, sizeof *module->variables);
        shared.variable = module->nvariables;
        module->variables[module->nvariables++] =
            (struct vg_variable){.name = vg_ptx_text(r, shape->name.text, shape->name.length),
                                 .space = VG_SHARED,
                                 .visible = how.visible,
                                 .size = size,
                                 .align = shape->align};
    }
    r->shared[r->nshared++] = shared;
}

static void frame_variable(struct vg_reader *r, struct vg_declaration how,
                           const struct vg_shape *shape, uint64_t size)
{
    if (r->function == VG_NO_OWNER)
        vg_ptx_fail(r, shape->name.line,
                    "expected .local and .param inside of a function, found '%.*s'",
                    VG_NAMED(shape->name));
    struct vg_symbol *symbol = vg_ptx_symbol_add(r, &shape->name, VG_SYMBOL_FRAME);
    struct vg_frame_variable *frame = vg_ptx_alloc(r, sizeof *frame);
    *frame = (struct vg_frame_variable){.size = (uint32_t)size,
                                        .align = shape->align,
                                        .scope = vg_ptx_scope(r),
                                        .param = how.space == VG_PARAM_SPACE};
    symbol->frame = frame;
    r->frames = vg_ptx_room(r, r->frames, r->nframes, &r->frames_room, sizeof(void *));
    r->frames[r->nframes++] = frame;
}

void vg_ptx_variable_read(struct vg_reader *r, struct vg_declaration how)
{
    struct vg_shape shape = {.type = VG_PRED};
    if (!vg_ptx_is_space(&r->token, &how.space)) vg_ptx_unexpected(r, "a state space");
    vg_ptx_next(r);
    vg_ptx_shape_type(r, &shape);
    how.managed = shape.managed;
    do {
        vg_ptx_shape_name(r, &shape);
        const uint64_t size =
            shape.open ? 0 : shape.count * vg_ptx_type_bytes(shape.type) * shape.elements;
        if (how.space == VG_SHARED)
            shared_variable(r, how, &shape, size);
        else if (how.space == VG_LOCAL || how.space == VG_PARAM_SPACE)
            frame_variable(r, how, &shape, size);
        else
            module_variable(r, how, &shape, size);
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ';', "behind the variable");
}
