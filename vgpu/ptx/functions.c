/* Functions and kernels: heads of .entry and .func, and the statements of their bodies. */
#include <vgpu/ptx/calls.h>
#include <vgpu/ptx/reader.h>

#include <string.h>

static uint32_t function_add(struct vg_reader *r, const struct vg_token *name)
{
    struct vg_module *module = r->module;
    const uint32_t n = module->nfunctions;
    module->functions =
        vg_ptx_room(r, module->functions, n, &r->functions_room, sizeof *module->functions);
    r->routines = vg_ptx_room(r, r->routines, n, &r->routines_room, sizeof *r->routines);
    vg_ptx_symbol_add(r, name, VG_SYMBOL_FUNCTION)->number = n;
    module->functions[n] = (struct vg_function){.name = vg_ptx_text(r, name->text, name->length)};
    r->routines[n] = (struct vg_routine){.line = name->line};
    module->nfunctions++;
    return n;
}

static bool same_prototype(const struct vg_prototype *a, const struct vg_prototype *b)
{
    if (a->nparams != b->nparams || a->nresults != b->nresults) return false;
    for (uint32_t i = 0; i < a->nparams + a->nresults; i++)
        if (a->params[i].size != b->params[i].size) return false;
    return true;
}

/* The function of the name, new or declared before. */
static uint32_t function_of(struct vg_reader *r, const struct vg_token *name, bool kernel,
                            const struct vg_prototype *prototype)
{
    const struct vg_symbol *symbol = vg_ptx_symbol_find(r, name, NULL);
    const bool known = symbol && symbol->kind == VG_SYMBOL_FUNCTION;
    const uint32_t number = known ? symbol->number : function_add(r, name);
    struct vg_function *function = &r->module->functions[number];
    if (known &&
        (function->kernel != kernel || !same_prototype(&r->routines[number].prototype, prototype)))
        vg_ptx_fail(r, name->line, "expected the parameters of line %u, found others of '%.*s'",
                    symbol->line, VG_NAMED(*name));
    function->kernel = kernel;
    function->params = prototype->params;
    function->nparams = prototype->nparams;
    function->nresults = prototype->nresults;
    function->param_bytes = prototype->param_bytes;
    r->routines[number].prototype = *prototype;
    return number;
}

static void sizes(struct vg_reader *r, uint32_t out[3])
{
    for (unsigned i = 0; i < 3; i++) out[i] = 1;
    for (unsigned i = 0; i < 3; i++) {
        out[i] = (uint32_t)vg_ptx_integer(r, "a number of threads", 1, INT32_MAX);
        if (i == 2 || !vg_ptx_accept(r, ',')) break;
    }
}

static uint32_t bounded(uint64_t product)
{
    return product > UINT32_MAX ? UINT32_MAX : (uint32_t)product;
}

/* Directives between a function's head and its body. */
static void performance_read(struct vg_reader *r, struct vg_function *function)
{
    for (;;) {
        uint32_t n[3];
        if (vg_ptx_accept_word(r, ".maxntid")) {
            sizes(r, n);
            const uint32_t two = bounded((uint64_t)n[0] * n[1]);
            function->max_threads = bounded((uint64_t)two * n[2]);
        } else if (vg_ptx_accept_word(r, ".reqntid")) {
            sizes(r, n);
            memcpy(function->required, n, sizeof n);
        } else if (vg_ptx_accept_word(r, ".minnctapersm")) {
            function->min_blocks = (uint32_t)vg_ptx_integer(r, "a number of blocks", 0, INT32_MAX);
        } else if (vg_ptx_accept_word(r, ".maxnctapersm") || vg_ptx_accept_word(r, ".maxnreg") ||
                   vg_ptx_accept_word(r, ".maxclusterrank") ||
                   vg_ptx_accept_word(r, ".abi_preserve") ||
                   vg_ptx_accept_word(r, ".abi_preserve_control")) {
            vg_ptx_integer(r, "a number", 0, INT32_MAX);
        } else if (vg_ptx_is_word(&r->token, ".reqnctapercluster") ||
                   vg_ptx_is_word(&r->token, ".explicitcluster") ||
                   vg_ptx_is_word(&r->token, ".blocksareclusters")) {
            if (!function->unsupported)
                function->unsupported = vg_ptx_unsupported_text(r, r->token);
            const bool counted = vg_ptx_is_word(&r->token, ".reqnctapercluster");
            vg_ptx_next(r);
            if (counted) sizes(r, n);
        } else if (vg_ptx_is_word(&r->token, ".pragma")) {
            vg_ptx_skip_statement(r);
        } else if (!vg_ptx_accept_word(r, ".noreturn")) {
            return;
        }
    }
}

static void label_read(struct vg_reader *r, const struct vg_token *name)
{
    vg_ptx_next(r); /* ':' */
    if (vg_ptx_is_word(&r->token, ".branchtargets")) {
        vg_ptx_branchtargets_read(r, name);
    } else if (vg_ptx_is_word(&r->token, ".calltargets")) {
        vg_ptx_symbol_add(r, name, VG_SYMBOL_PROTOTYPE);
        vg_ptx_calltargets_read(r, r->scopes[r->depth].symbols);
    } else if (vg_ptx_is_word(&r->token, ".callprototype")) {
        struct vg_symbol *symbol = vg_ptx_symbol_add(r, name, VG_SYMBOL_PROTOTYPE);
        struct vg_token unnamed;
        vg_ptx_next(r);
        symbol->prototype = vg_ptx_alloc(r, sizeof *symbol->prototype);
        vg_ptx_prototype_read(r, symbol->prototype, &unnamed, NULL);
        while (vg_ptx_accept_word(r, ".noreturn")) {
        }
        vg_ptx_expect(r, ';', "behind .callprototype");
    } else {
        vg_ptx_symbol_add(r, name, VG_SYMBOL_LABEL)->number = r->ndrafts;
        r->last_label = r->ndrafts;
    }
}

/* True: it was one. */
static bool body_directive(struct vg_reader *r)
{
    enum vg_space space;
    if (r->token.kind != VG_TOKEN_DOTTED) return false;
    if (vg_ptx_is_word(&r->token, ".loc")) {
        vg_ptx_debug_loc(r);
    } else if (vg_ptx_is_word(&r->token, ".reg")) {
        vg_ptx_registers_read(r);
    } else if (vg_ptx_is_space(&r->token, &space)) {
        vg_ptx_variable_read(r, (struct vg_declaration){.space = space});
    } else if (vg_ptx_is_word(&r->token, ".extern")) {
        vg_ptx_next(r);
        vg_ptx_variable_read(r, (struct vg_declaration){.external = true});
    } else if (vg_ptx_is_word(&r->token, ".file")) {
        vg_ptx_debug_file(r);
    } else if (vg_ptx_is_word(&r->token, ".pragma")) {
        vg_ptx_skip_statement(r);
    } else {
        return false;
    }
    return true;
}

static void body_read(struct vg_reader *r)
{
    const uint32_t outside = r->depth - 1;
    const uint32_t line = r->token.line;
    for (;;) {
        if (vg_ptx_accept(r, '{')) {
            vg_ptx_scope_open(r);
        } else if (vg_ptx_is(r, '}')) {
            vg_ptx_scope_close(r);
            vg_ptx_next(r);
            if (r->depth == outside) return;
        } else if (r->token.kind == VG_TOKEN_END) {
            vg_ptx_fail(r, r->token.line,
                        "expected '}' at the end of the function that begins in line %u, found the "
                        "text's end",
                        line);
        } else if (!vg_ptx_accept(r, ';') && !body_directive(r)) {
            vg_ptx_statement_read(r);
        }
    }
}

void vg_ptx_statement_read(struct vg_reader *r)
{
    if (r->token.kind == VG_TOKEN_WORD && r->lexer.at < r->lexer.end && *r->lexer.at != '.') {
        struct vg_lexer ahead = r->lexer;
        const struct vg_token second = vg_ptx_lexer_next(&ahead);
        if (second.kind == VG_TOKEN_MARK && *second.text == ':') {
            const struct vg_token name = r->token;
            vg_ptx_next(r);
            label_read(r, &name);
            return;
        }
    }
    vg_ptx_instruction_read(r);
}

static void names_add(struct vg_reader *r, const struct vg_prototype *prototype,
                      const struct vg_token *names)
{
    for (uint32_t i = 0; i < prototype->nparams + prototype->nresults; i++)
        if (!vg_ptx_is_word(&names[i], "_"))
            vg_ptx_symbol_add(r, &names[i], VG_SYMBOL_PARAM)->number = i;
}

/* Variables of .local and .param get their places in the thread's frame. Those of a scope end with
 * it, so all scopes of the body begin at the same place, behind what is in none. */
static void frame_layout(struct vg_reader *r, struct vg_function *function)
{
    uint64_t at = 0, behind = 0, most = 0;
    for (uint32_t i = 0, scope = 0; i < 2 * r->nframes; i++) {
        struct vg_frame_variable *frame = r->frames[i % r->nframes];
        const bool first = i < r->nframes; /* those in no scope, then the others */
        if (frame->inside || (frame->scope == 0) != first) continue;
        if (frame->scope != scope) at = behind;
        scope = frame->scope;
        at = (at + frame->align - 1) & ~(uint64_t)(frame->align - 1);
        frame->offset = (uint32_t)at;
        at += frame->size;
        if (first) behind = at;
        if (at > most) most = at;
        if (at > INT32_MAX)
            vg_ptx_fail(r, r->token.line, "expected at most %d bytes of local memory in '%.60s'",
                        INT32_MAX, function->name);
    }
    function->local_bytes = (uint32_t)((most + 15) & ~UINT64_C(15));
    for (uint32_t i = 0; i < r->nframes; i++)
        if (r->frames[i]->inside) r->frames[i]->offset += r->frames[i]->inside->offset;
    for (uint32_t i = 0; i < r->ndrafts; i++)
        if (r->drafts[i].frame) r->drafts[i].in.imm += r->drafts[i].frame->offset;
}

/* The end of the body is a return. */
static void end_code(struct vg_reader *r)
{
    const struct vg_draft *last = r->ndrafts ? &r->drafts[r->ndrafts - 1] : NULL;
    if (last && last->guard == VG_DRAFT_NONE && r->last_label != r->ndrafts &&
        (last->in.op == VG_RET || last->in.op == VG_EXIT || last->in.op == VG_BRA))
        return;
    struct vg_draft end = vg_ptx_draft_make(r, r->token.line, VG_DRAFT_NONE);
    end.in.op = VG_RET;
    vg_ptx_draft_add(r, &end);
}

static void definition_read(struct vg_reader *r, uint32_t number,
                            const struct vg_prototype *prototype, const struct vg_token *names)
{
    r->function = number;
    r->nregisters = r->ndrafts = r->nuses = r->nframes = r->nscopes = 0;
    r->place = UINT32_MAX;
    r->last_label = UINT32_MAX;
    r->routines[number].defined = true;
    vg_ptx_scope_open(r);
    names_add(r, prototype, names);
    vg_ptx_next(r); /* '{' */
    body_read(r);
    end_code(r);
    struct vg_function *function = &r->module->functions[number];
    frame_layout(r, function);
    vg_ptx_registers_allocate(r, function);
    r->function = VG_NO_OWNER;
    r->place = UINT32_MAX;
}

void vg_ptx_function_read(struct vg_reader *r, struct vg_declaration how)
{
    struct vg_prototype prototype = {.nparams = 0};
    struct vg_token name, *names;
    const bool kernel = vg_ptx_is_word(&r->token, ".entry");
    vg_ptx_next(r);
    while (vg_ptx_accept_word(r, ".noreturn")) {
    }
    if (vg_ptx_is_word(&r->token, ".attribute")) { /* .attribute(.unified(...)) */
        while (!vg_ptx_accept(r, ')'))
            if (r->token.kind == VG_TOKEN_END)
                vg_ptx_unexpected(r, "')'");
            else
                vg_ptx_next(r);
        vg_ptx_accept(r, ')');
    }
    vg_ptx_prototype_read(r, &prototype, &name, &names);
    if (kernel && prototype.nresults)
        vg_ptx_fail(r, name.line, "expected no results of a kernel, found some of '%.*s'",
                    VG_NAMED(name));
    const uint32_t number = function_of(r, &name, kernel, &prototype);
    performance_read(r, &r->module->functions[number]);
    if (vg_ptx_accept(r, ';')) return;
    if (!vg_ptx_is(r, '{')) vg_ptx_unexpected(r, "'{' or ';' behind the function's head");
    if (how.external || r->routines[number].defined)
        vg_ptx_fail(r, name.line, "expected one body of a function, found another one of '%.*s'",
                    VG_NAMED(name));
    definition_read(r, number, &prototype, names);
}
