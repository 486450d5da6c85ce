/* Malformed texts: each is refused with its line, and the words name what is wrong. */
#include <shim.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/ptx/testing.h>

/* Texts of whole modules. */
static const struct {
    const char *text, *line, *words;
} modules[] = {
    {"", "line 1:", ".version"},
    {".target sm_90\n", "line 1:", ".version"},
    {".version nine\n", "line 1:", "version of PTX"},
    {".version 4.0\n.target sm_90\n", "line 1:", "from 6.0 to 9.9"},
    {".version 9.0\n.address_size 64\n", "line 2:", ".target"},
    {".version 9.0\n.target 90\n", "line 2:", "a target such as sm_75"},
    {".version 9.0\n.target sm_90\n.address_size 32\n", "line 3:", "address size of 64"},
    {HEAD "garbage\n", "line 4:", "'garbage'"},
    {HEAD ".globl .u32 x;\n", "line 4:", "'.globl'"},
    {HEAD "/* no end\n\n", "line 4:", "'*/'"},
    {HEAD ".file 1 \"a.cu\n", "line 4:", "string's end"},
    {HEAD ".file x \"a.cu\"\n", "line 4:", "a file's number"},
    {HEAD "#define X\n", "line 4:", "'#'"},
    {HEAD ".global .u32 x\n.global .u32 y;\n", "line 5:", "';'"},
    {HEAD ".global .u32 x;\n.global .u32 x;\n", "line 5:", "declared in line 4"},
    {HEAD ".global .pred x;\n", "line 4:", "'.pred'"},
    {HEAD ".global .u33 x;\n", "line 4:", "'.u33'"},
    {HEAD ".global .align 3 .u32 x;\n", "line 4:", "power of two"},
    {HEAD ".global .u32 x[4] = {1, 2, 3, 4, 5};\n", "line 4:", "no more values"},
    {HEAD ".global .u32 x[99999999][99999999];\n", "line 4:", "elements"},
    {HEAD ".global .u32 x = 1.5;\n", "line 4:", "floating-point"},
    {HEAD ".global .u64 x = nothing;\n", "line 4:", "'nothing'"},
    {HEAD ".global .u64 x = 1 / 0;\n", "line 4:", "divisor"},
    {HEAD ".global .u32 x = 0x;\n", "line 4:", "digits"},
    {HEAD ".global .f32 x = 0f3F80;\n", "line 4:", "8 hexadecimal digits"},
    {HEAD ".global .u64 x = 99999999999999999999;\n", "line 4:", "below 2^64"},
    {HEAD ".global .u32 x = (1 + 2;\n", "line 4:", "')'"},
    {HEAD ".local .u32 x;\n", "line 4:", "inside of a function"},
    {HEAD ".entry k\n", "line 5:", "'{' or ';'"},
    {HEAD ".entry k(.reg .u32 x) {}\n", "line 4:", ".param"},
    {HEAD ".entry k(.param .u32) {}\n", "line 4:", "variable's name"},
    {HEAD ".entry (.param .u32 r) k() {}\n", "line 4:", "no results"},
    {HEAD ".entry k() {\n", "line 5:", "'}' at the end"},
    {HEAD ".entry k() { ret; }\n.entry k() { ret; }\n", "line 5:", "one body"},
    {HEAD ".func f(.param .b32 a);\n.func f(.param .b64 a) { ret; }\n", "line 5:", "'f'"},
    {HEAD ".entry k() .maxntid 0 { ret; }\n", "line 4:", "number of threads"},
    {HEAD ".section .debug_str {\n.b8 1\n", "line 6:", "'}'"},
    {HEAD ".loc 1 x 3\n", "line 4:", "a line"},
};

/* Statements of a kernel; the first line is line 9. */
static const struct {
    const char *text, *line, *words;
} statements[] = {
    {"frob.u32 %r1, , %r2;", "line 9:", "an operand"},
    {"frob.u32 %r1, [%r2;", "line 9:", "the bracket's end"},
    {"frob.u32 %r1, [%r2};", "line 9:", "the bracket's end"},
    {"frob.u32 %r1, %r2);", "line 9:", "';'"},
    {"frob.u32 %r1, ;", "line 9:", "an operand"},
    {"frob.u32 %r1, %r2 .u32;", "line 9:", "an operand or ';'"},
    {"add.frob.u99 %r1, ();", "line 9:", "an operand"},
    {"add.pack.u32 %r1, %r2, %r3;", "line 9:", "'.pack'"},
    {"add %r1, %r2, %r3;", "line 9:", "found no more modifiers"},
    {"add.u32.u32 %r1, %r2, %r3;", "line 9:", "no more modifiers"},
    {"add.u32.sat %r1, %r2, %r3;", "line 9:", "add.u32.sat"},
    {"add.u32 %r1, %r2;", "line 9:", "expected 3 operands, found 2"},
    {"add.u32 %r1, %r2, %r3, %r4;", "line 9:", "expected 3 operands, found 4"},
    {"add.u32 %r1, %r2, %rd3;", "line 9:", "'%rd3'"},
    {"add.u32 %r1, %r2, %f3;", "line 9:", "'%f3'"},
    {"add.f32 %f1, %f2, %d3;", "line 9:", "'%d3'"},
    {"add.f32 %f1, %f2, 1;", "line 9:", "found an integer"},
    {"add.u32 %r1, %r2, 1.5;", "line 9:", "floating-point"},
    {"add.u32 %r1, %r2, %r9;", "line 9:", "'%r9'"},
    {"add.u32 %x, %r2, %r3;", "line 9:", "declared register"},
    {"add.u32 5, %r2, %r3;", "line 9:", "register of type .u32"},
    {"add.u32 %r1, %r2, {%r3, %r4};", "line 9:", "'{'"},
    {"add.u32 %r1, %r2, [%rd1];", "line 9:", "'['"},
    {"add.u32 %r1, %r2, !%p1;", "line 9:", "'%p1'"},
    {"add.u32 %r1, %r2, ;", "line 9:", "expected an operand"},
    {"add.u32 %r1, %r2, %r3\nadd.u32 %r1, %r2, %r3;", "line 10:", "';'"},
    {"\nmov.u32 %r1;", "line 10:", "expected 2 operands"},
    {"mov %r1, %r2;", "line 9:", "one type"},
    {"mov.u32 %r1, %tid;", "line 9:", "mov.u32"},
    {"mov.u32 %r1, %tid.q;", "line 9:", "'.q'"},
    {"mov.u32 %r1, %nothing;", "line 9:", "'%nothing'"},
    {"mov.b64 %rd1, {%r1, %r2, %r3};", "line 9:", "2 or 4 elements"},
    {"mov.b64 %rd1, {%r1, %rd2};", "line 9:", "'%rd2'"},
    {"bra nowhere;", "line 9:", "'nowhere'"},
    {"bra;", "line 9:", "a label"},
    {"L: nanosleep.u32 1;\nL: ret;", "line 10:", "declared in line 9"},
    {"{ M: ret; }\nbra M;", "line 10:", "'M'"},
    {"@%r1 ret;", "line 9:", "'%r1'"},
    {"@%p9 ret;", "line 9:", "'%p9'"},
    {"@5 ret;", "line 9:", "a predicate behind '@'"},
    {"ld.global.u32 %r1, %rd1;", "line 9:", "an address in [ ]"},
    {"ld.global.u32 %r1, [%rd1;", "line 9:", "']'"},
    {"ld.global.u32 %r1, [%f1];", "line 9:", "'%f1'"},
    {"ld.global.u32 %r1, [buf];", "line 9:", "state space"},
    {"ld.global.u32 %r1, [none];", "line 9:", "'none'"},
    {"ld.global.v2.u32 %r1, [%rd1];", "line 9:", "a vector of 2 elements"},
    {"ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];", "line 9:", "a vector of 2 elements"},
    {"ld.relaxed.global.u32 %r1, [%rd1];", "line 9:", "found '.global'"},
    {"ld.global.u64 %r1, [%rd1];", "line 9:", "'%r1'"},
    {"st.acquire.gpu.u32 [%rd1], %r1;", "line 9:", "'.acquire'"},
    {"atom.global.add.b32 %r1, [%rd1], 1;", "line 9:", "atom.global.add.b32"},
    {"atom.global.cas.b32 %r1, [%rd1], 1;", "line 9:", "expected 4 operands, found 3"},
    {"setp.eq.u32 %r1, %r2, %r3;", "line 9:", "'%r1'"},
    {"setp.full.u32 %p1, %r2, %r3;", "line 9:", "'.full'"},
    {"setp.equ.u32 %p1, %r2, %r3;", "line 9:", "setp.equ.u32"},
    {"cvt.f32.f64 %f1, %d1;", "line 9:", "cvt.f32.f64"},
    {"cvt.rn.f64.f32 %d1, %f1;", "line 9:", "cvt.rn.f64.f32"},
    {"cvt.sat.u32.u16 %r1, %rs1;", "line 9:", "no .sat"},
    {"ld.v2.b128 {%q1, %q2}, [%rd1];", "line 9:", "at most 16 bytes"},
    {"ld.shared.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%r1];", "line 9:", "at most 16 bytes"},
    {"ld.v2.u8 {%rs1, %r2}, [%rd1];", "line 9:", "elements of one width"},
    {"add.u32 _, %r2, %r3;", "line 9:", "a register, found '_'"},
    {"add.u32 %r1, %tid.x, 1;", "line 9:", "moved to one first"},
    {"add.u64 %rd1, buf, 1;", "line 9:", "moved to a register first"},
    {"add.f16 %rs1, %rs2, 1;", "line 9:", "no constants"},
    {"bar.sync 16;", "line 9:", "0 to 15"},
    {"bar.sync 0, 33;", "line 9:", "whole warps"},
    {"mul.u32.lo %r1, %r2, %r3;", "line 9:", "mul.u32.lo"},
    {"elect.sync %r1, -1;", "line 9:", "second result"},
    {"st.param.u64 [out], %rd1;", "line 9:", "state space"},
    {"lop3.b32 %r1, %r2, %r3, %r4, 256;", "line 9:", "from 0 to 255"},
    {"cp.async.ca.shared.global [%r1], [%rd1], 5;", "line 9:", "4, 8 or 16"},
    {"call nothing;", "line 9:", "'nothing'"},
    {"call (%r1), %rd1, (%r2);", "line 9:", ".callprototype"},
    {"call (%r1), k, (%r2);", "line 9:", "no kernel"},
    {"brx.idx %r1, L;", "line 9:", "'L'"},
    {"vote.all.pred %p1, %p2;", "line 9:", "'.all'"},
    {".reg .b32 %r<4>;", "line 9:", "declared in line 5"},
    {".reg .b33 %x;", "line 9:", "'.b33'"},
    {".reg .b32 %y<9999999>;", "line 9:", "a number of registers"},
    {".branchtargets A;", "line 9:", "an instruction"},
    {"{ add.u32 %r1, %r2, %r3;", "line 11:", "'}' at the end"},
    {"wgmma.fence", "line 10:", "';'"},
    {"ret", "line 10:", "';'"},
};

static void refuse(const char *text, const char *line, const char *words)
{
    struct vg_module *module = NULL;
    char error[256] = "";
    const size_t nbytes = strlen(text);
    char *copy = malloc(nbytes + !nbytes);
    REQUIRE(copy);
    memcpy(copy, text, nbytes);
    const int result = vg_ptx_read(copy, nbytes, &module, error);
    free(copy);
    if (result == 0) vg_module_destroy(module);
    CHECK_MESSAGE(result == -1, "%s is taken", text);
    CHECK_MESSAGE(strncmp(error, line, strlen(line)) == 0 && strstr(error, words) &&
                      strstr(error, "expected") && strstr(error, "found"),
                  "%s: \"%s\", expected \"%s\", \"%s\", \"expected\" and \"found\"", text, error,
                  line, words);
}

TEST(vgpu_ptx_malformed, a_module_is_refused_with_its_line)
{
    for (unsigned i = 0; i < sizeof modules / sizeof *modules; i++)
        refuse(modules[i].text, modules[i].line, modules[i].words);
}

TEST(vgpu_ptx_malformed, a_statement_is_refused_with_its_line)
{
    for (unsigned i = 0; i < sizeof statements / sizeof *statements; i++) {
        char text[2048];
        strcpy(text, KERNEL);
        strcat(text, statements[i].text);
        strcat(text, "\n}\n");
        refuse(text, statements[i].line, statements[i].words);
    }
}

TEST(vgpu_ptx_malformed, every_truncation_of_a_kernel_is_refused_or_read)
{
    static const char text[] = KERNEL "@!%p1 add.f32 %f1, %f2, 0f3F800000; // comment\n"
                                      "ld.global.v2.u32 {%r1, _}, [%rd1+4]; L: bra L;\n" END;
    for (size_t n = 0; n < sizeof text; n++) {
        struct vg_module *module;
        char error[256] = "";
        char *copy = malloc(n + !n);
        REQUIRE(copy);
        memcpy(copy, text, n);
        if (vg_ptx_read(copy, n, &module, error) == 0)
            vg_module_destroy(module);
        else
            CHECK_MESSAGE(strncmp(error, "line ", 5) == 0, "\"%s\" for %zu bytes", error, n);
        free(copy);
    }
}
