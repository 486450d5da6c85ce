/* Expands the families of instructions and makes a kernel of each instruction. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "values.h"

/* Replaces the braces by the choices that `number` stands for; what is left of number is returned.
 */
static int expand(const char *pattern, int number, char *text, size_t size)
{
    size_t length = 0;
    while (*pattern && length + 1 < size) {
        if (*pattern != '{') {
            text[length++] = *pattern++;
            continue;
        }
        const char *end = strchr(pattern, '}'), *at = pattern + 1;
        int nchoices = 1;
        for (const char *c = at; c < end; c++) nchoices += *c == ',';
        for (int skip = number % nchoices; skip; skip--) at = strchr(at, ',') + 1;
        number /= nchoices;
        while (*at != ',' && *at != '}' && length + 1 < size) text[length++] = *at++;
        pattern = end + 1;
    }
    text[length] = 0;
    return number;
}

int family_member(const struct family *family, int number, char *text, size_t size)
{
    return expand(family->pattern, number, text, size) == 0;
}

int operand_bytes(char letter)
{
    return strchr("dl", letter) ? 8 : strchr("hbse", letter) ? 2 : 4;
}

struct writer {
    char *text;
    size_t size, length;
};

static void put(struct writer *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    to->length += (size_t)vsnprintf(to->text + to->length, to->size - to->length, format, list);
    va_end(list);
}

/* The instruction with registers for its operands. */
static void put_instruction(struct writer *to, const char *text, size_t nin)
{
    put(to, "    ");
    if (!strchr(text, ' ')) {
        put(to, "%s %%d", text);
        for (size_t i = 0; i < nin; i++) put(to, ", %%%c", (int)('a' + i));
        put(to, ";\n");
        return;
    }
    for (; *text; text++) {
        if (*text != '$')
            put(to, "%c", *text);
        else if (text[1] == 'p')
            put(to, "%%pred");
        else if (text[1] == 'm')
            put(to, "%%at");
        else if (text[1] == 'n')
            put(to, "%%shared");
        else
            put(to, "%%%c", text[1]);
        if (*text == '$') text++;
    }
    put(to, ";\n");
}

size_t values_ptx(const char *text, const char *out, const char *in, int number, char *ptx,
                  size_t size)
{
    struct writer to = {.text = ptx, .size = size};
    const size_t nin = strlen(in);
    const char result = *out == 'm' ? *in : *out;
    put(&to,
        ".visible .entry k%d(.param .u64 po, .param .u64 pa, .param .u64 pb, .param .u64 pc, "
        ".param .u32 pn)\n{\n"
        "    .shared .align 8 .b32 cells[256];\n"
        "    .reg .u64 %%base, %%offset, %%at, %%u;\n    .reg .u32 %%i, %%j, %%k, %%n, %%shared;"
        " .reg .b32 %%t; .reg .f32 %%f, %%g; .reg .f64 %%v, %%w;\n    .reg .pred %%out, %%pred;\n  "
        "  .reg .b%d %%d;\n",
        number, operand_bytes(result) * 8);
    for (size_t i = 0; i < nin; i++)
        put(&to, "    .reg .b%d %%%c;\n", operand_bytes(in[i]) * 8, (int)('a' + i));
    put(&to, "    mov.u32 %%i, %%ctaid.x;\n    mov.u32 %%j, %%ntid.x;\n    mov.u32 %%k, %%tid.x;\n"
             "    mad.lo.u32 %%i, %%i, %%j, %%k;\n    ld.param.u32 %%n, [pn];\n"
             "    setp.ge.u32 %%out, %%i, %%n;\n    @%%out ret;\n    mov.u32 %%shared, cells;\n"
             "    mad.lo.u32 %%shared, %%k, 4, %%shared;\n");
    for (size_t i = 0; i < nin; i++)
        put(&to,
            "    ld.param.u64 %%base, [p%c];\n    mul.wide.u32 %%offset, %%i, %d;\n"
            "    add.u64 %%base, %%base, %%offset;\n    ld.global.b%d %%%c, [%%base];\n",
            (int)('a' + i), operand_bytes(in[i]), operand_bytes(in[i]) * 8, (int)('a' + i));
    put(&to,
        "    ld.param.u64 %%base, [po];\n    mul.wide.u32 %%offset, %%i, %d;\n"
        "    add.u64 %%at, %%base, %%offset;\n",
        operand_bytes(result));
    if (*out == 'm') put(&to, "    st.global.b%d [%%at], %%a;\n", operand_bytes(result) * 8);
    put_instruction(&to, text, nin);
    if (*out != 'm') put(&to, "    st.global.b%d [%%at], %%d;\n", operand_bytes(result) * 8);
    put(&to, "    ret;\n}\n");
    return to.length;
}
