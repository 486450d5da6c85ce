/* Tokens of PTX text.
 *
 * A word is an identifier: a name, an opcode, a register (%r1, %tid). A dotted word is a directive
 * or a modifier with its dot (.reg, .shared::cta, .L1::evict_last). Marks are single characters;
 * the parser puts `<<` and its like together by `glued`. */
#ifndef VGPU_PTX_LEXER_H
#define VGPU_PTX_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vg_token_kind {
    VG_TOKEN_END,
    VG_TOKEN_WORD,
    VG_TOKEN_DOTTED,
    VG_TOKEN_INTEGER,
    VG_TOKEN_F32,    /* 0f and 8 digits: integer holds the bits */
    VG_TOKEN_F64,    /* 0d and 16 digits, or a decimal fraction: integer holds the bits */
    VG_TOKEN_STRING, /* text is what stands between the quotes */
    VG_TOKEN_MARK,
    VG_TOKEN_BAD /* wrong says why */
};

struct vg_token {
    enum vg_token_kind kind;
    bool glued; /* nothing stands between it and the token before */
    uint32_t line, length;
    const char *text;
    uint64_t integer;
    bool is_unsigned; /* suffix U, or above INT64_MAX */
    const char *wrong;
};

struct vg_lexer {
    const char *at, *end;
    uint32_t line, comment; /* comment: where the last one begins */
};

struct vg_token vg_ptx_lexer_next(struct vg_lexer *lexer);

#endif
