/* The module's constants: every immediate is kept once, spread over the lanes like a register. */
#include <vgpu/ptx/reader.h>

#include <string.h>

/* What makes two constants the same. */
struct vg_constant_key {
    uint64_t low, high;
    uint32_t nunits, owner; /* owner: the function, for dynamic shared memory; else VG_NO_OWNER */
    uint32_t symbol;        /* of an address; UINT32_MAX: a number */
    uint32_t kind;          /* 0 number, 1 variable or function, 2 generic address, 3 shared */
    uint32_t type;
};

struct entry {
    struct vg_constant_key key;
    uint32_t unit; /* + 1; 0: free */
};

static uint32_t hash_of(const struct vg_constant_key *key)
{
    uint64_t hash = key->low * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= (hash >> 29) + key->high * 31 + key->symbol * UINT64_C(0xD6E8FEB86659FD93);
    hash = (hash ^ key->nunits ^ key->kind * 8u ^ key->owner) * UINT64_C(0xD6E8FEB86659FD93);
    return (uint32_t)(hash >> 32);
}

static bool same(const struct vg_constant_key *a, const struct vg_constant_key *b)
{
    return a->low == b->low && a->high == b->high && a->nunits == b->nunits &&
           a->owner == b->owner && a->symbol == b->symbol && a->kind == b->kind &&
           (a->kind != 3 || a->type == b->type);
}

static struct entry *place_of(struct entry *table, uint32_t room, const struct vg_constant_key *key)
{
    uint32_t at = hash_of(key) & (room - 1);
    while (table[at].unit && !same(&table[at].key, key)) at = (at + 1) & (room - 1);
    return &table[at];
}

static void grow(struct vg_reader *r)
{
    const uint32_t room = r->constant_table_room ? r->constant_table_room * 2 : 256;
    struct entry *table = vg_ptx_alloc(r, room * sizeof *table), *old = r->constant_table;
    for (uint32_t i = 0; i < r->constant_table_room; i++)
        if (old[i].unit) *place_of(table, room, &old[i].key) = old[i];
    r->constant_table = table;
    r->constant_table_room = room;
}

static uint32_t add_units(struct vg_reader *r, const struct vg_constant_key *key)
{
    struct vg_module *module = r->module;
    const uint32_t first = module->nconstants;
    if (first + key->nunits > VG_CONSTANT - 1)
        vg_ptx_fail(r, r->token.line, "expected at most %d units of constants in a module",
                    VG_CONSTANT - 1);
    for (uint32_t i = 0; i < key->nunits; i++) {
        module->constants = vg_ptx_room(r, module->constants, module->nconstants,
                                        &r->constants_room, sizeof *module->constants);
        memset(module->constants[module->nconstants++], 0, VG_UNIT_BYTES);
    }
    for (uint32_t lane = 0; lane < VG_LANES; lane++) {
        uint32_t low[2] = {(uint32_t)key->low, (uint32_t)(key->low >> 32)};
        uint32_t high[2] = {(uint32_t)key->high, (uint32_t)(key->high >> 32)};
        uint32_t *unit = module->constants[first];
        if (key->nunits == 1) unit[lane] = low[0];
        if (key->nunits >= 2) memcpy(unit + 2 * lane, low, sizeof low);
        if (key->nunits == 4) memcpy(module->constants[first + 2] + 2 * lane, high, sizeof high);
    }
    return first;
}

/* The constant of the key; *fresh: it is new. */
static uint32_t find(struct vg_reader *r, const struct vg_constant_key *key, bool *fresh)
{
    if (r->constant_table_used * 2 >= r->constant_table_room) grow(r);
    struct entry *entry = place_of((struct entry *)r->constant_table, r->constant_table_room, key);
    *fresh = entry->unit == 0;
    if (*fresh) {
        *entry = (struct entry){.key = *key, .unit = add_units(r, key) + 1};
        r->constant_table_used++;
    }
    return entry->unit - 1;
}

uint32_t vg_ptx_constant(struct vg_reader *r, enum vg_type type, uint64_t low, uint64_t high)
{
    bool fresh;
    const struct vg_constant_key key = {.low = low,
                                        .high = high,
                                        .nunits = vg_ptx_type_units(type),
                                        .owner = VG_NO_OWNER,
                                        .symbol = UINT32_MAX};
    return VG_DRAFT_CONSTANT | find(r, &key, &fresh);
}

uint32_t vg_ptx_constant_variable(struct vg_reader *r, enum vg_type type, uint32_t symbol,
                                  int64_t addend, bool generic)
{
    bool fresh;
    const struct vg_constant_key key = {.low = (uint64_t)addend,
                                        .nunits = vg_ptx_type_units(type),
                                        .owner = VG_NO_OWNER,
                                        .symbol = symbol,
                                        .kind = generic ? 2 : 1};
    const uint32_t unit = find(r, &key, &fresh);
    if (fresh) {
        struct vg_module *module = r->module;
        module->fixups = vg_ptx_room(r, module->fixups, module->nfixups, &r->fixups_room,
                                     sizeof *module->fixups);
        module->fixups[module->nfixups++] =
            (struct vg_fixup){.offset = unit,
                              .symbol = symbol,
                              .addend = addend,
                              .generic = generic,
                              .nbytes = (uint8_t)vg_ptx_type_bytes(type)};
    }
    return VG_DRAFT_CONSTANT | unit;
}

uint32_t vg_ptx_constant_shared(struct vg_reader *r, enum vg_type type, uint32_t shared,
                                int64_t addend)
{
    bool fresh;
    const struct vg_constant_key key = {.low = (uint64_t)addend,
                                        .nunits = vg_ptx_type_units(type),
                                        .owner = r->function,
                                        .symbol = shared,
                                        .kind = 3,
                                        .type = type};
    const uint32_t unit = find(r, &key, &fresh);
    if (fresh) {
        r->shared_uses = vg_ptx_room(r, r->shared_uses, r->nshared_uses, &r->shared_uses_room,
                                     sizeof *r->shared_uses);
        r->shared_uses[r->nshared_uses++] = (struct vg_shared_use){.constant = unit,
                                                                   .shared = shared,
                                                                   .owner = r->function,
                                                                   .type = type,
                                                                   .addend = addend};
    }
    return VG_DRAFT_CONSTANT | unit;
}
