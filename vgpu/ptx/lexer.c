/* Cuts PTX text into tokens. Comments are those of C and C++; a byte of zero ends the text. */
#include <vgpu/ptx/lexer.h>

#include <stdlib.h>
#include <string.h>

/* What names are made of; anything else is 0. */
enum { DIGIT = 1, LETTER, SIGN };
static const unsigned char kinds[256] = {['0' ... '9'] = DIGIT,
                                         ['a' ... 'z'] = LETTER,
                                         ['A' ... 'Z'] = LETTER,
                                         ['_'] = SIGN,
                                         ['$'] = SIGN};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return kinds[(unsigned char)c] == LETTER;
}

static bool is_name(char c)
{
    return kinds[(unsigned char)c] != 0;
}

static int digit_value(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* Blanks and comments. False: a comment does not end. */
static bool skip_blanks(struct vg_lexer *lexer)
{
    const char *at = lexer->at, *end = lexer->end;
    bool ended = true;
    while (at < end && *at) {
        if (*at == '\n') {
            lexer->line++;
            at++;
        } else if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\f' || *at == '\v') {
            at++;
        } else if (*at == '/' && end - at > 1 && at[1] == '/') {
            while (at < end && *at && *at != '\n') at++;
        } else if (*at == '/' && end - at > 1 && at[1] == '*') {
            lexer->comment = lexer->line;
            at += 2;
            while (at < end && *at && !(*at == '*' && end - at > 1 && at[1] == '/')) {
                if (*at == '\n') lexer->line++;
                at++;
            }
            ended = at < end && *at;
            if (!ended) break;
            at += 2;
        } else {
            break;
        }
    }
    lexer->at = at;
    return ended;
}

static void bad(struct vg_token *token, const char *wrong)
{
    token->kind = VG_TOKEN_BAD;
    token->wrong = wrong;
}

/* 0f3F800000 and 0d3FF0000000000000. */
static void hex_float(struct vg_lexer *lexer, struct vg_token *token, int ndigits)
{
    const char *at = lexer->at + 2;
    int n = 0;
    for (; at < lexer->end && digit_value(*at) < 16; at++, n++)
        token->integer = token->integer << 4 | (uint64_t)digit_value(*at);
    token->kind = ndigits == 8 ? VG_TOKEN_F32 : VG_TOKEN_F64;
    if (n != ndigits || (at < lexer->end && is_name(*at)))
        bad(token, ndigits == 8 ? "expected 8 hexadecimal digits behind 0f"
                                : "expected 16 hexadecimal digits behind 0d");
    lexer->at = at;
}

static void decimal_float(struct vg_lexer *lexer, struct vg_token *token, size_t length)
{
    char text[128];
    if (length >= sizeof text) {
        bad(token, "expected a number of at most 127 characters");
        return;
    }
    memcpy(text, lexer->at, length);
    text[length] = '\0';
    char *end;
    const double value = strtod(text, &end);
    token->kind = VG_TOKEN_F64;
    memcpy(&token->integer, &value, sizeof value);
    if (*end != '\0') bad(token, "expected a number");
    lexer->at += length;
}

/* How many characters a decimal fraction or a number with an exponent has; 0: it is an integer. */
static size_t fraction_length(const struct vg_lexer *lexer)
{
    const char *at = lexer->at, *end = lexer->end;
    bool fraction = false;
    while (at < end && is_digit(*at)) at++;
    if (at < end && *at == '.') {
        fraction = true;
        at++;
        while (at < end && is_digit(*at)) at++;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *digits = at + 1;
        if (digits < end && (*digits == '+' || *digits == '-')) digits++;
        if (digits < end && is_digit(*digits)) {
            fraction = true;
            for (at = digits; at < end && is_digit(*at);) at++;
        }
    }
    return fraction ? (size_t)(at - lexer->at) : 0;
}

static void number(struct vg_lexer *lexer, struct vg_token *token)
{
    const char *at = lexer->at, *end = lexer->end;
    const char second = end - at > 1 ? at[1] : '\0';
    int base = 10;
    if (*at == '0' && (second == 'f' || second == 'F')) {
        hex_float(lexer, token, 8);
        return;
    }
    if (*at == '0' && (second == 'd' || second == 'D')) {
        hex_float(lexer, token, 16);
        return;
    }
    if (*at == '0' && (second == 'x' || second == 'X')) {
        base = 16;
        at += 2;
    } else if (*at == '0' && (second == 'b' || second == 'B')) {
        base = 2;
        at += 2;
    } else {
        const size_t length = fraction_length(lexer);
        if (length) {
            decimal_float(lexer, token, length);
            return;
        }
        if (*at == '0') base = 8;
    }
    const char *first = at;
    token->kind = VG_TOKEN_INTEGER;
    for (; at < end && digit_value(*at) < base; at++) {
        const uint64_t digit = (uint64_t)digit_value(*at);
        if (token->integer > (UINT64_MAX - digit) / (uint64_t)base)
            bad(token, "expected an integer below 2^64");
        token->integer = token->integer * (uint64_t)base + digit;
    }
    if (at == first) bad(token, "expected digits");
    token->is_unsigned = token->integer > INT64_MAX;
    if (at < end && (*at == 'U' || *at == 'u')) {
        token->is_unsigned = true;
        at++;
    }
    if (at < end && is_name(*at)) bad(token, "expected a number");
    while (at < end && is_name(*at)) at++;
    lexer->at = at;
}

static void string(struct vg_lexer *lexer, struct vg_token *token)
{
    const char *at = lexer->at + 1;
    while (at < lexer->end && *at && *at != '"' && *at != '\n') {
        if (*at == '\\' && lexer->end - at > 1 && at[1] != '\n' && at[1]) at++;
        at++;
    }
    token->kind = VG_TOKEN_STRING;
    token->text++;
    token->length = (uint32_t)(at - token->text);
    if (at >= lexer->end || *at != '"') {
        bad(token, "expected '\"' at the string's end");
        token->text--;
        lexer->at = at;
        return;
    }
    lexer->at = at + 1;
}

struct vg_token vg_ptx_lexer_next(struct vg_lexer *lexer)
{
    const char *before = lexer->at;
    struct vg_token token = {.kind = VG_TOKEN_END, .line = lexer->line};
    const bool ended = skip_blanks(lexer);
    const char *at = lexer->at, *end = lexer->end;
    token.text = at;
    token.glued = at == before;
    if (!ended) {
        bad(&token, "expected '*/' at the comment's end");
        token.text = "/*";
        token.line = lexer->comment;
        token.length = 2;
        return token;
    }
    token.line = lexer->line;
    if (at >= end || !*at) return token;
    const char next = end - at > 1 ? at[1] : '\0';
    if (is_digit(*at)) {
        number(lexer, &token);
    } else if (*at == '"') {
        string(lexer, &token);
        return token;
    } else if (is_letter(*at) || ((*at == '_' || *at == '$' || *at == '%') && is_name(next)) ||
               *at == '_') {
        token.kind = VG_TOKEN_WORD;
        for (at++; at < end && is_name(*at);) at++;
        lexer->at = at;
    } else if (*at == '.' && is_name(next)) {
        token.kind = VG_TOKEN_DOTTED;
        for (at++; at < end && (is_name(*at) ||
                                (*at == ':' && end - at > 2 && at[1] == ':' && is_name(at[2])) ||
                                (*at == ':' && at[-1] == ':'));)
            at++;
        lexer->at = at;
    } else {
        token.kind = VG_TOKEN_MARK;
        lexer->at = at + 1;
        if (!strchr(",;[]{}():+-*/%!~<>=&|^?@", *at)) bad(&token, "expected PTX");
    }
    token.length = (uint32_t)(lexer->at - token.text);
    return token;
}
