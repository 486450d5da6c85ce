/* Declarations of registers. */
#include <vgpu/ptx/reader.h>

#include <string.h>

uint32_t vg_ptx_register_add(struct vg_reader *r, enum vg_type type)
{
    if (r->nregisters >= VG_MAX_REGISTERS)
        vg_ptx_fail(r, r->token.line, "expected at most %d registers in a function",
                    VG_MAX_REGISTERS);
    r->register_types =
        vg_ptx_room(r, r->register_types, r->nregisters, &r->registers_room, sizeof(uint8_t));
    r->register_types[r->nregisters] = (uint8_t)type;
    return r->nregisters++;
}

static void add(struct vg_reader *r, const struct vg_token *name, enum vg_type type,
                enum vg_symbol_kind kind, uint32_t count)
{
    struct vg_symbol *symbol = vg_ptx_symbol_add(r, name, kind);
    symbol->number = r->nregisters;
    symbol->count = count;
    for (uint32_t i = 0; i < count; i++) vg_ptx_register_add(r, type);
}

void vg_ptx_registers_read(struct vg_reader *r)
{
    enum vg_type type;
    uint32_t elements = 1;
    vg_ptx_next(r);
    if (vg_ptx_accept_word(r, ".v2")) elements = 2;
    if (vg_ptx_accept_word(r, ".v4")) elements = 4;
    if (r->token.kind != VG_TOKEN_DOTTED ||
        !vg_ptx_type_named(r->token.text, r->token.length, &type) ||
        (type > VG_S64 && type != VG_F16 && type != VG_F16X2 && type != VG_F32 && type != VG_F64))
        vg_ptx_unexpected(r, "a type of registers");
    vg_ptx_next(r);
    do {
        const struct vg_token name = vg_ptx_expect_name(r, "a register's name");
        if (vg_ptx_accept(r, '<')) {
            const uint64_t count = r->token.integer;
            if (r->token.kind != VG_TOKEN_INTEGER || count > VG_MAX_REGISTERS)
                vg_ptx_unexpected(r, "a number of registers");
            vg_ptx_next(r);
            vg_ptx_expect(r, '>', "behind the number of registers");
            add(r, &name, type, VG_SYMBOL_RANGE, (uint32_t)count);
        } else {
            add(r, &name, type, elements > 1 ? VG_SYMBOL_VECTOR : VG_SYMBOL_REGISTER, elements);
        }
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ';', "behind the registers");
}
