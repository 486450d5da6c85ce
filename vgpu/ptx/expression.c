/* Constant expressions: C's operators on 64-bit integers; of fractions only a sign and casts. */
#include <vgpu/ptx/reader.h>

#include <string.h>

static struct vg_value ternary(struct vg_reader *r, unsigned depth);

static bool is_real(struct vg_value value)
{
    return value.kind == VG_VALUE_F32 || value.kind == VG_VALUE_F64;
}

static struct vg_value primary(struct vg_reader *r, unsigned depth)
{
    const struct vg_token token = r->token;
    struct vg_value value = {.bits = token.integer};
    if (depth > VG_MAX_DEPTH) vg_ptx_unexpected(r, "an expression that is not so deep");
    if (token.kind == VG_TOKEN_INTEGER) {
        value.kind = token.is_unsigned ? VG_VALUE_UNSIGNED : VG_VALUE_SIGNED;
    } else if (token.kind == VG_TOKEN_F32) {
        value.kind = VG_VALUE_F32;
    } else if (token.kind == VG_TOKEN_F64) {
        value.kind = VG_VALUE_F64;
    } else if (vg_ptx_is_word(&token, "WARP_SZ")) {
        value.kind = VG_VALUE_SIGNED;
        value.bits = VG_LANES;
    } else {
        vg_ptx_unexpected(r, "a constant");
    }
    vg_ptx_next(r);
    return value;
}

static struct vg_value unary(struct vg_reader *r, unsigned depth)
{
    if (depth > VG_MAX_DEPTH) vg_ptx_unexpected(r, "an expression that is not so deep");
    if (vg_ptx_accept(r, '(')) {
        const bool to_signed = vg_ptx_is_word(&r->token, ".s64");
        if (to_signed || vg_ptx_is_word(&r->token, ".u64")) {
            vg_ptx_next(r);
            vg_ptx_expect(r, ')', "behind the cast");
            struct vg_value value = unary(r, depth + 1);
            if (is_real(value)) vg_ptx_unexpected(r, "an integer before");
            value.kind = to_signed ? VG_VALUE_SIGNED : VG_VALUE_UNSIGNED;
            return value;
        }
        const struct vg_value value = ternary(r, depth + 1);
        vg_ptx_expect(r, ')', "at the expression's end");
        return value;
    }
    if (vg_ptx_accept(r, '+')) return unary(r, depth + 1);
    if (vg_ptx_accept(r, '-')) {
        struct vg_value value = unary(r, depth + 1);
        if (value.kind == VG_VALUE_F32)
            value.bits ^= UINT64_C(1) << 31;
        else if (value.kind == VG_VALUE_F64)
            value.bits ^= UINT64_C(1) << 63;
        else
            value.bits = 0 - value.bits;
        return value;
    }
    const bool invert = vg_ptx_is(r, '~');
    if (invert || vg_ptx_is(r, '!')) {
        vg_ptx_next(r);
        struct vg_value value = unary(r, depth + 1);
        if (is_real(value)) vg_ptx_unexpected(r, "an integer before");
        value.bits = invert ? ~value.bits : !value.bits;
        return value;
    }
    return primary(r, depth);
}

/* Operators of two operands; a longer one stands before its beginning. */
static const struct {
    char text[3];
    unsigned char level;
} operators[] = {
    {"||", 1}, {"&&", 2}, {"<<", 8}, {">>", 8}, {"<=", 7}, {">=", 7},
    {"==", 6}, {"!=", 6}, {"|", 3},  {"^", 4},  {"&", 5},  {"<", 7},
    {">", 7},  {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10},
};

/* Which operator the next tokens are, or -1. The lexer's text behind the first mark is looked at:
 * two marks make one operator only without blanks. */
static int operator_here(const struct vg_reader *r)
{
    if (r->token.kind != VG_TOKEN_MARK || strchr(",;]})", *r->token.text)) return -1;
    for (unsigned i = 0; i < sizeof operators / sizeof *operators; i++) {
        const char *text = operators[i].text;
        if (*text != *r->token.text) continue;
        if (!text[1] || (r->lexer.at < r->lexer.end && *r->lexer.at == text[1])) return (int)i;
    }
    return -1;
}

static uint64_t compute(struct vg_reader *r, const char *text, bool is_unsigned, uint64_t a,
                        uint64_t b)
{
    const int64_t sa = (int64_t)a, sb = (int64_t)b;
    const bool less = is_unsigned ? a < b : sa < sb;
    switch (text[0]) {
    case '|':
        return text[1] ? a || b : a | b;
    case '&':
        return text[1] ? a && b : a & b;
    case '^':
        return a ^ b;
    case '=':
        return a == b;
    case '!':
        return a != b;
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '<':
        if (text[1] == '<') return b < 64 ? a << b : 0;
        return text[1] ? less || a == b : less;
    case '>':
        if (text[1] == '>' && b > 63) return !is_unsigned && sa < 0 ? UINT64_MAX : 0;
        if (text[1] == '>') return is_unsigned ? a >> b : (uint64_t)(sa >> b);
        return text[1] ? !less : !less && a != b;
    default:
        if (b == 0) vg_ptx_unexpected(r, "a divisor other than 0 before");
        if (is_unsigned) return text[0] == '/' ? a / b : a % b;
        if (sb == -1) return text[0] == '/' ? 0 - a : 0;
        return (uint64_t)(text[0] == '/' ? sa / sb : sa % sb);
    }
}

static struct vg_value binary(struct vg_reader *r, unsigned least, unsigned depth)
{
    struct vg_value left = unary(r, depth);
    for (;;) {
        const int found = operator_here(r);
        if (found < 0 || operators[found].level < least) return left;
        vg_ptx_next(r);
        if (operators[found].text[1]) vg_ptx_next(r);
        const struct vg_value right = binary(r, operators[found].level + 1u, depth + 1);
        if (is_real(left) || is_real(right))
            vg_ptx_unexpected(r, "integers around an operator before");
        const bool is_unsigned = left.kind == VG_VALUE_UNSIGNED || right.kind == VG_VALUE_UNSIGNED;
        const bool shift = operators[found].level == 8;
        left.bits =
            compute(r, operators[found].text, shift ? left.kind == VG_VALUE_UNSIGNED : is_unsigned,
                    left.bits, right.bits);
        if (operators[found].level < 3 || operators[found].level == 6 ||
            operators[found].level == 7)
            left.kind = VG_VALUE_SIGNED;
        else if (!shift && is_unsigned)
            left.kind = VG_VALUE_UNSIGNED;
    }
}

static struct vg_value ternary(struct vg_reader *r, unsigned depth)
{
    const struct vg_value value = binary(r, 1, depth);
    if (!vg_ptx_accept(r, '?')) return value;
    const struct vg_value yes = ternary(r, depth + 1);
    vg_ptx_expect(r, ':', "of the conditional expression");
    const struct vg_value no = ternary(r, depth + 1);
    return value.bits ? yes : no;
}

struct vg_value vg_ptx_expression(struct vg_reader *r)
{
    return ternary(r, 0);
}

int64_t vg_ptx_integer(struct vg_reader *r, const char *what, int64_t least, int64_t most)
{
    const struct vg_token token = r->token;
    if (token.kind != VG_TOKEN_INTEGER && !vg_ptx_is(r, '(') && !vg_ptx_is(r, '-') &&
        !vg_ptx_is(r, '+') && !vg_ptx_is(r, '~') && !vg_ptx_is_word(&token, "WARP_SZ"))
        vg_ptx_unexpected(r, what);
    const struct vg_value value = vg_ptx_expression(r);
    const int64_t integer = (int64_t)value.bits;
    if (is_real(value) || (value.kind == VG_VALUE_UNSIGNED && integer < 0) || integer < least ||
        integer > most)
        vg_ptx_fail(r, token.line, "expected %s, found '%.*s'", what, VG_NAMED(token));
    return integer;
}
