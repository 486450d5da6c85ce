/* Forms: floating point (9.7.3 to 9.7.5), comparison and selection (9.7.6, 9.7.7). */
#include <vgpu/ptx/forms.h>

#define RND "r:rn|rz|rm|rp"
#define HALF "t:f16|f16x2"
#define BHALF "t:bf16|bf16x2"
#define HALVES "t:f16|f16x2|bf16|bf16x2"
#define REAL "c:eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
#define SIMPLE "u16|u32|u64|s16|s32|s64|b16|b32|b64|f32|f64"

#define ARITHMETIC(name, op)                                                                       \
    {name, op, 0, 0, RND "? f:ftz? f:sat? t:f32", "d a a"},                                        \
        {name, op, 0, 0, RND "? t:f64", "d a a"},                                                  \
        {name, op, 0, 0, "r:rn? f:ftz? f:sat? " HALF, "d a a"},                                    \
    {                                                                                              \
        name, op, 0, 0, "r:rn? " BHALF, "d a a"                                                    \
    }
#define SETS(compare, ftz, types)                                                                  \
    {"set", VG_SET, 0, 0, compare " k:and|or|xor" ftz " " types, "d s s q"},                       \
    {                                                                                              \
        "set", VG_SET, 0, 0, compare ftz " " types, "d s s"                                        \
    }
#define SETPS(compare, ftz, types, result)                                                         \
    {"setp", VG_SETP, 0, 0, compare " k:and|or|xor" ftz " " types, result " a a q"},               \
    {                                                                                              \
        "setp", VG_SETP, 0, 0, compare ftz " " types, result " a a"                                \
    }
/* Two sums, products, ... in the halves of 64 bits; max of three numbers. */
#define PAIRS(name, op, operands)                                                                  \
    {                                                                                              \
        name, op, 0, 0, RND "? f:ftz? F:f32x2", operands                                           \
    }
#define EXTREME(name, op)                                                                          \
    {name, op, 0, 0, "f:ftz? f:NaN? f:xorsign -:abs t:f32|f16|f16x2", "d a a"},                    \
        {name, op, 0, 0, "f:NaN? f:xorsign -:abs " BHALF, "d a a"},                                \
        {name, op, 0, 0, "f:ftz? f:NaN? t:f32", "d a a 3?"},                                       \
        {name, op, 0, 0, "f:ftz? f:NaN? t:f16|f16x2", "d a a"},                                    \
        {name, op, 0, 0, "t:f64", "d a a"},                                                        \
    {                                                                                              \
        name, op, 0, 0, "f:NaN? " BHALF, "d a a"                                                   \
    }

const struct vg_form vg_ptx_forms_float[] = {
    ARITHMETIC("add", VG_ADD),
    ARITHMETIC("sub", VG_SUB),
    ARITHMETIC("mul", VG_MUL),
    PAIRS("add", VG_ADD, "2 2 2"),
    PAIRS("sub", VG_SUB, "2 2 2"),
    PAIRS("mul", VG_MUL, "2 2 2"),
    {"fma", VG_FMA, 0, 0, RND " f:ftz? F:f32x2", "2 2 2 2"},
    {"fma", VG_FMA, 0, 0, RND " f:ftz? f:sat? t:f32", "d a a a"},
    {"fma", VG_FMA, 0, 0, RND " t:f64", "d a a a"},
    {"fma", VG_FMA, 0, 0, "r:rn f:ftz? f:sat|relu? " HALF, "d a a a"},
    {"fma", VG_FMA, 0, 0, "r:rn f:relu? " BHALF, "d a a a"},
    {"mad", VG_FMA, 0, 0, RND " f:ftz? f:sat? t:f32", "d a a a"},
    {"mad", VG_FMA, 0, 0, RND " t:f64", "d a a a"},
    {"div", VG_DIV, 0, 0, "f:approx f:ftz? t:f32", "d a a"},
    {"div", VG_DIV, 0, 0, "^f:full f:ftz? t:f32", "d a a"},
    {"div", VG_DIV, 0, 0, RND " f:ftz? t:f32", "d a a"},
    {"div", VG_DIV, 0, 0, RND " t:f64", "d a a"},
    {"abs", VG_ABS, 0, 0, "f:ftz? t:f32|f16|f16x2", "d a"},
    {"abs", VG_ABS, 0, 0, "t:f64|bf16|bf16x2", "d a"},
    {"neg", VG_NEG, 0, 0, "f:ftz? t:f32|f16|f16x2", "d a"},
    {"neg", VG_NEG, 0, 0, "t:f64|bf16|bf16x2", "d a"},
    EXTREME("min", VG_MIN),
    EXTREME("max", VG_MAX),
    {"rcp", VG_RCP, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"rcp", VG_RCP, 0, 0, RND " f:ftz? t:f32", "d a"},
    {"rcp", VG_RCP, 0, 0, RND " f:ftz? t:f64", "d a"},
    {"rcp", VG_RCP, 0, 0, "f:approx f:ftz t:f64", "d a"},
    {"sqrt", VG_SQRT, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"sqrt", VG_SQRT, 0, 0, RND " f:ftz? t:f32", "d a"},
    {"sqrt", VG_SQRT, 0, 0, RND " t:f64", "d a"},
    {"rsqrt", VG_RSQRT, 0, 0, "f:approx f:ftz? t:f32|f64", "d a"},
    {"sin", VG_SIN, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"cos", VG_COS, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"lg2", VG_LG2, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"ex2", VG_EX2, 0, 0, "f:approx f:ftz? t:f32", "d a"},
    {"ex2", VG_EX2, 0, 0, "f:approx " HALF, "d a"},
    {"ex2", VG_EX2, 0, 0, "f:approx f:ftz " BHALF, "d a"},
    {"tanh", VG_TANH, 0, 0, "f:approx t:f32|f16|f16x2|bf16|bf16x2", "d a"},
    {"copysign", VG_COPYSIGN, 0, 0, "t:f32|f64", "d a a"},
    {"testp", VG_TESTP, 0, 0, "E:finite|infinite|number|notanumber|normal|subnormal t:f32|f64",
     "p a"},
    SETS("c:eq|ne", "", "t:u32|s32|f32|f16|bf16 s:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"),
    SETS("c:lt|le|gt|ge", "", "t:u32|s32|f32|f16|bf16 s:u16|u32|u64|s16|s32|s64|f32|f64"),
    SETS("c:lo|ls|hi|hs", "", "t:u32|s32|f32|f16|bf16 s:u16|u32|u64"),
    SETS("c:equ|neu|ltu|leu|gtu|geu|num|nan", "", "t:u32|s32|f32|f16|bf16 s:f32|f64"),
    SETS(REAL, " f:ftz", "t:u32|s32|f32|f16 s:f32"),
    SETS(REAL, " f:ftz?", "t:u32|s32|u16|s16|f16 s:f16"),
    SETS(REAL, "", "t:bf16 s:f16"),
    SETS(REAL, "", "t:u32|s32|u16|s16|bf16 s:bf16"),
    SETS(REAL, " f:ftz?", "t:u32|s32|f16x2 s:f16x2"),
    SETS(REAL, "", "t:u32|s32|bf16x2 s:bf16x2"),
    SETPS("c:eq|ne", "", "t:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64", "p|p"),
    SETPS("c:lt|le|gt|ge", "", "t:u16|u32|u64|s16|s32|s64|f32|f64", "p|p"),
    SETPS("c:lo|ls|hi|hs", "", "t:u16|u32|u64", "p|p"),
    SETPS("c:equ|neu|ltu|leu|gtu|geu|num|nan", "", "t:f32|f64", "p|p"),
    SETPS(REAL, " f:ftz", "t:f32", "p|p"),
    SETPS(REAL, " f:ftz?", "t:f16", "p"),
    SETPS(REAL, "", "t:bf16", "p"),
    SETPS(REAL, " f:ftz?", "t:f16x2", "p|p"),
    SETPS(REAL, "", "t:bf16x2", "p|p"),
    {"selp", VG_SELP, 0, 0, "t:" SIMPLE, "d a a Q"},
    {"slct", VG_SLCT, 0, 0, "t:" SIMPLE " s:s32|f32", "d a a s"},
    {"slct", VG_SLCT, 0, 0, "f:ftz t:" SIMPLE " s:f32", "d a a s"},
    {0},
};
