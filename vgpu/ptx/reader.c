/* vg_ptx_read: the module's directives, errors, and what the other files of the reader share. */
#include <vgpu/ptx/reader.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 256 };

void vg_ptx_fail(struct vg_reader *r, uint32_t line, const char *format, ...)
{
    char text[ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
    snprintf(r->error, ERROR_BYTES, "line %u: %.230s", line, text);
    longjmp(r->out, 1);
}

void vg_ptx_unexpected(struct vg_reader *r, const char *expected)
{
    const struct vg_token *token = &r->token;
    if (token->kind == VG_TOKEN_END)
        vg_ptx_fail(r, token->line, "expected %s, found the text's end", expected);
    const int length = token->length < 60 ? (int)token->length : 60;
    vg_ptx_fail(r, token->line, "expected %s, found '%.*s'", expected, length, token->text);
}

void *vg_ptx_alloc(struct vg_reader *r, size_t nbytes)
{
    void *at = vg_ptx_arena_alloc(r->arena, nbytes);
    if (!at) vg_ptx_fail(r, r->token.line, "no memory for %zu bytes, expected some", nbytes);
    return at;
}

void *vg_ptx_room(struct vg_reader *r, void *array, uint32_t n, uint32_t *room, size_t element)
{
    if (n < *room) return array;
    if (*room >= UINT32_MAX / 2) vg_ptx_fail(r, r->token.line, "expected a smaller module");
    const uint32_t more = *room ? *room * 2 : 16;
    void *larger = vg_ptx_alloc(r, more * element);
    if (n) memcpy(larger, array, n * element);
    *room = more;
    return larger;
}

const char *vg_ptx_text(struct vg_reader *r, const char *text, size_t length)
{
    char *copy = vg_ptx_alloc(r, length + 1);
    memcpy(copy, text, length);
    return copy;
}

void vg_ptx_next(struct vg_reader *r)
{
    r->token = vg_ptx_lexer_next(&r->lexer);
    if (r->token.kind == VG_TOKEN_BAD) vg_ptx_unexpected(r, r->token.wrong + strlen("expected "));
}

bool vg_ptx_accept(struct vg_reader *r, char mark)
{
    if (!vg_ptx_is(r, mark)) return false;
    vg_ptx_next(r);
    return true;
}

void vg_ptx_expect(struct vg_reader *r, char mark, const char *where)
{
    if (vg_ptx_accept(r, mark)) return;
    char expected[96];
    snprintf(expected, sizeof expected, "'%c' %s", mark, where);
    vg_ptx_unexpected(r, expected);
}

bool vg_ptx_accept_word(struct vg_reader *r, const char *word)
{
    if (!vg_ptx_is_word(&r->token, word)) return false;
    vg_ptx_next(r);
    return true;
}

struct vg_token vg_ptx_expect_name(struct vg_reader *r, const char *what)
{
    if (r->token.kind != VG_TOKEN_WORD) vg_ptx_unexpected(r, what);
    const struct vg_token name = r->token;
    vg_ptx_next(r);
    return name;
}

void vg_ptx_skip_statement(struct vg_reader *r)
{
    uint32_t braces = 0;
    while (braces || !vg_ptx_is(r, ';')) {
        if (r->token.kind == VG_TOKEN_END || (vg_ptx_is(r, '}') && !braces))
            vg_ptx_unexpected(r, "';'");
        braces += vg_ptx_is(r, '{');
        braces -= vg_ptx_is(r, '}');
        vg_ptx_next(r);
    }
    vg_ptx_next(r);
}

void vg_ptx_skip_operands(struct vg_reader *r)
{
    char open[VG_MAX_DEPTH];
    uint32_t depth = 0;
    bool operand = vg_ptx_is(r, ';'); /* something stands before the ',' or the end */
    for (; depth || !vg_ptx_is(r, ';'); vg_ptx_next(r)) {
        const char mark = r->token.kind == VG_TOKEN_MARK ? *r->token.text : '\0';
        const bool closes = mark && strchr(")]}", mark);
        if (r->token.kind == VG_TOKEN_END || mark == ';' || (closes && !depth))
            vg_ptx_unexpected(r, depth ? "the bracket's end" : "';'");
        if (closes && mark != open[--depth]) vg_ptx_unexpected(r, "the bracket's end");
        if ((closes || mark == ',') && !operand) vg_ptx_unexpected(r, "an operand");
        if (mark && strchr("([{", mark)) {
            if (depth == VG_MAX_DEPTH) vg_ptx_unexpected(r, "fewer brackets");
            open[depth++] = mark == '(' ? ')' : mark == '[' ? ']' : '}';
        }
        operand = mark != ',' && !(mark && strchr("([{", mark));
        if (r->token.kind == VG_TOKEN_DOTTED && !r->token.glued)
            vg_ptx_unexpected(r, "an operand or ';'");
    }
    if (!operand) vg_ptx_unexpected(r, "an operand");
    vg_ptx_next(r);
}

/* 9.0 */
static void version_read(struct vg_reader *r)
{
    vg_ptx_next(r);
    const struct vg_token *token = &r->token;
    unsigned major = 0, minor = 0;
    if (token->kind != VG_TOKEN_F64 || token->length > 5)
        vg_ptx_unexpected(r, "a version of PTX such as 9.0");
    const char *at = token->text;
    for (; *at != '.' && *at >= '0' && *at <= '9'; at++) major = major * 10 + (unsigned)(*at - '0');
    if (*at == '.' && at + 2 == token->text + token->length) minor = (unsigned)(at[1] - '0');
    r->module->version = major * 10 + minor;
    if (r->module->version < 60 || r->module->version > 99)
        vg_ptx_unexpected(r, "a version of PTX from 6.0 to 9.9");
    vg_ptx_next(r);
}

/* sm_90a, texmode_independent, debug */
static void target_read(struct vg_reader *r)
{
    vg_ptx_next(r);
    do {
        const struct vg_token name = vg_ptx_expect_name(r, "a target such as sm_75");
        if (name.length < 4 || memcmp(name.text, "sm_", 3) != 0) continue;
        unsigned target = 0;
        for (uint32_t i = 3; i < name.length && i < 6; i++)
            if (name.text[i] >= '0' && name.text[i] <= '9')
                target = target * 10 + (unsigned)(name.text[i] - '0');
        r->module->target = target;
    } while (vg_ptx_accept(r, ','));
    if (r->module->target < 30) vg_ptx_unexpected(r, "a target such as sm_75 before");
}

static void header_read(struct vg_reader *r)
{
    if (!vg_ptx_is_word(&r->token, ".version")) vg_ptx_unexpected(r, "the directive .version");
    version_read(r);
    if (!vg_ptx_is_word(&r->token, ".target")) vg_ptx_unexpected(r, "the directive .target");
    target_read(r);
    if (vg_ptx_accept_word(r, ".address_size")) vg_ptx_integer(r, "an address size of 64", 64, 64);
}

static void module_directive(struct vg_reader *r)
{
    struct vg_declaration how = {.space = VG_GENERIC};
    for (;;) {
        if (vg_ptx_accept_word(r, ".visible")) {
            how.visible = true;
        } else if (vg_ptx_accept_word(r, ".extern")) {
            how.external = true;
        } else if (vg_ptx_accept_word(r, ".weak") || vg_ptx_accept_word(r, ".common")) {
            how.visible = how.weak = true;
        } else {
            break;
        }
    }
    if (vg_ptx_is_word(&r->token, ".entry") || vg_ptx_is_word(&r->token, ".func")) {
        vg_ptx_function_read(r, how);
    } else if (vg_ptx_is_space(&r->token, &how.space)) {
        vg_ptx_variable_read(r, how);
    } else if (vg_ptx_is_word(&r->token, ".file")) {
        vg_ptx_debug_file(r);
    } else if (vg_ptx_is_word(&r->token, ".section")) {
        vg_ptx_debug_section(r);
    } else if (vg_ptx_is_word(&r->token, ".loc")) {
        vg_ptx_debug_loc(r);
    } else if (vg_ptx_is_word(&r->token, ".pragma") || vg_ptx_is_word(&r->token, ".alias")) {
        vg_ptx_skip_statement(r);
    } else {
        vg_ptx_unexpected(r, "a directive of the module");
    }
}

static void module_read(struct vg_reader *r)
{
    vg_ptx_next(r);
    header_read(r);
    while (r->token.kind != VG_TOKEN_END)
        if (!vg_ptx_accept(r, ';')) module_directive(r);
    vg_ptx_layout(r);
    vg_ptx_debug_finish(r);
}

/* What is needed while a text is read only. NULL is allowed. */
static void reader_destroy(struct vg_reader *r)
{
    if (!r) return;
    free(r->known);
    free(r->units);
    free(r);
}

int vg_ptx_read(const char *text, size_t nbytes, struct vg_module **module, char error[256])
{
    struct vg_arena *arena = vg_ptx_arena_create();
    struct vg_reader *r = calloc(1, sizeof *r);
    struct vg_module *read = arena && r ? vg_ptx_arena_alloc(arena, sizeof *read) : NULL;
    if (!read) {
        snprintf(error, ERROR_BYTES, "line 1: no memory to read PTX, expected some");
        reader_destroy(r);
        vg_ptx_arena_destroy(arena);
        return -1;
    }
    read->arena = arena;
    r->arena = arena;
    r->error = error;
    r->module = read;
    r->lexer = (struct vg_lexer){.at = text, .end = text + nbytes, .line = 1};
    r->function = VG_NO_OWNER;
    r->place = UINT32_MAX;
    if (setjmp(r->out) != 0) {
        reader_destroy(r);
        vg_ptx_arena_destroy(arena);
        return -1;
    }
    vg_ptx_debug_init(r);
    module_read(r);
    reader_destroy(r);
    *module = read;
    return 0;
}

void vg_module_destroy(struct vg_module *module)
{
    if (module) vg_ptx_arena_destroy(module->arena);
}
