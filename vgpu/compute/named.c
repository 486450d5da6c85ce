/* The names of instructions, for the tests: op, modifiers and types between dots. */
#include <vgpu/compute/named.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *word;
    int value;
};

static const struct word ops[] = {
    {"add", VG_ADD},
    {"sub", VG_SUB},
    {"mul", VG_MUL},
    {"mad", VG_MAD},
    {"mul24", VG_MUL24},
    {"mad24", VG_MAD24},
    {"sad", VG_SAD},
    {"div", VG_DIV},
    {"rem", VG_REM},
    {"abs", VG_ABS},
    {"neg", VG_NEG},
    {"min", VG_MIN},
    {"max", VG_MAX},
    {"popc", VG_POPC},
    {"clz", VG_CLZ},
    {"bfind", VG_BFIND},
    {"fns", VG_FNS},
    {"brev", VG_BREV},
    {"bfe", VG_BFE},
    {"szext", VG_SZEXT},
    {"bmsk", VG_BMSK},
    {"dp4a", VG_DP4A},
    {"dp2a", VG_DP2A},
    {"fma", VG_FMA},
    {"copysign", VG_COPYSIGN},
    {"rcp", VG_RCP},
    {"sqrt", VG_SQRT},
    {"rsqrt", VG_RSQRT},
    {"sin", VG_SIN},
    {"cos", VG_COS},
    {"lg2", VG_LG2},
    {"ex2", VG_EX2},
    {"tanh", VG_TANH},
    {"set", VG_SET},
    {"slct", VG_SLCT},
    {"and", VG_AND},
    {"or", VG_OR},
    {"xor", VG_XOR},
    {"not", VG_NOT},
    {"cnot", VG_CNOT},
    {"shf", VG_SHF},
    {"shl", VG_SHL},
    {"shr", VG_SHR},
    {"prmt", VG_PRMT},
    {"cvt", VG_CVT},
};
static const struct word types[] = {
    {"b16", VG_B16},     {"b32", VG_B32},   {"b64", VG_B64},       {"u8", VG_U8},
    {"u16", VG_U16},     {"u32", VG_U32},   {"u64", VG_U64},       {"s8", VG_S8},
    {"s16", VG_S16},     {"s32", VG_S32},   {"s64", VG_S64},       {"f16", VG_F16},
    {"f16x2", VG_F16X2}, {"bf16", VG_BF16}, {"bf16x2", VG_BF16X2}, {"f32", VG_F32},
    {"f64", VG_F64},     {"tf32", VG_TF32}, {"e4m3x2", VG_E4M3X2}, {"e5m2x2", VG_E5M2X2},
};
static const struct word rounds[] = {{"rn", VG_RN},   {"rz", VG_RZ},   {"rm", VG_RM},
                                     {"rp", VG_RP},   {"rna", VG_RNA}, {"rni", VG_RNI},
                                     {"rzi", VG_RZI}, {"rmi", VG_RMI}, {"rpi", VG_RPI}};
static const struct word flags[] = {
    {"ftz", VG_FTZ},
    {"sat", VG_SAT},
    {"satfinite", VG_SAT},
    {"approx", VG_APPROX},
    {"full", VG_FULL},
    {"NaN", VG_PROPAGATE},
    {"relu", VG_RELU},
    {"clamp", VG_CLAMP},
    {"shiftamt", VG_SHIFTAMT},
    {"xorsign", VG_ABS_FLAG},
    {"l", VG_SHIFT_LEFT},
    {"wrap", 0},
    {"r", 0},
    {"abs", 0},
};
static const struct word compares[] = {
    {"eq", VG_EQ},   {"ne", VG_NE},   {"lt", VG_LT},   {"le", VG_LE},   {"gt", VG_GT},
    {"ge", VG_GE},   {"equ", VG_EQU}, {"neu", VG_NEU}, {"ltu", VG_LTU}, {"leu", VG_LEU},
    {"gtu", VG_GTU}, {"geu", VG_GEU}, {"num", VG_NUM}, {"nan", VG_NAN}};
static const struct word muls[] = {{"lo", VG_MUL_LO}, {"hi", VG_MUL_HI}, {"wide", VG_MUL_WIDE}};
static const struct word prmts[] = {{"f4e", VG_PRMT_F4E}, {"b4e", VG_PRMT_B4E},
                                    {"rc8", VG_PRMT_RC8}, {"ecl", VG_PRMT_ECL},
                                    {"ecr", VG_PRMT_ECR}, {"rc16", VG_PRMT_RC16}};

#define LOOK(table, word) look(table, sizeof(table) / sizeof *(table), word)

static int look(const struct word *table, size_t n, const char *word)
{
    for (size_t k = 0; k < n; k++)
        if (!strcmp(table[k].word, word)) return table[k].value;
    return -1;
}

/* One modifier; the first type is type, the second type2. */
static bool modify(struct vg_instr *in, const char *word, unsigned *ntypes)
{
    int value;
    if ((value = LOOK(types, word)) >= 0) {
        if (*ntypes == 0)
            in->type = in->type2 = (uint8_t)value;
        else
            in->type2 = (uint8_t)value;
        return ++*ntypes <= 2;
    }
    if (in->op == VG_SET && (value = LOOK(compares, word)) >= 0)
        return in->compare = (uint8_t)value, true;
    if (in->op == VG_DP2A && !strcmp(word, "hi")) return in->flags |= VG_HIGH_HALF, true;
    if (in->op == VG_PRMT && (value = LOOK(prmts, word)) >= 0)
        return in->mode = (uint8_t)value, true;
    if ((value = LOOK(muls, word)) >= 0) return in->mode = (uint8_t)value, true;
    if ((value = LOOK(rounds, word)) >= 0) return in->round = (uint8_t)value, true;
    if ((value = LOOK(flags, word)) >= 0) return in->flags |= (uint32_t)value, true;
    return false;
}

bool vg_named(const char *name, struct vg_instr *in)
{
    char text[96], *rest = text;
    unsigned ntypes = 0;
    snprintf(text, sizeof text, "%s", name);
    const char *word = strsep(&rest, ".");
    const int op = LOOK(ops, word);
    if (op < 0) return false;
    *in = (struct vg_instr){.op = (uint8_t)op, .round = VG_ROUND_NONE, .guard = VG_NONE};
    while (rest)
        if (!modify(in, strsep(&rest, "."), &ntypes)) return false;
    for (unsigned k = 0; k < 4; k++) in->dst[k] = VG_NONE;
    in->dst[0] = 0;
    for (unsigned k = 0; k < 5; k++) in->src[k] = (uint16_t)(4 + 4 * k);
    return ntypes > 0;
}
