/* PTX's types: names, sizes, values. */
#include <vgpu/ptx/reader.h>

#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
    char family; /* b: bits, i: integer, f: floating point, p: predicate, x: packed */
} types[VG_TYPES] = {
    [VG_PRED] = {".pred", 0, 'p'},     [VG_B8] = {".b8", 1, 'b'},
    [VG_B16] = {".b16", 2, 'b'},       [VG_B32] = {".b32", 4, 'b'},
    [VG_B64] = {".b64", 8, 'b'},       [VG_B128] = {".b128", 16, 'b'},
    [VG_U8] = {".u8", 1, 'i'},         [VG_U16] = {".u16", 2, 'i'},
    [VG_U32] = {".u32", 4, 'i'},       [VG_U64] = {".u64", 8, 'i'},
    [VG_S8] = {".s8", 1, 'i'},         [VG_S16] = {".s16", 2, 'i'},
    [VG_S32] = {".s32", 4, 'i'},       [VG_S64] = {".s64", 8, 'i'},
    [VG_F16] = {".f16", 2, 'h'},       [VG_F16X2] = {".f16x2", 4, 'x'},
    [VG_BF16] = {".bf16", 2, 'x'},     [VG_BF16X2] = {".bf16x2", 4, 'x'},
    [VG_F32] = {".f32", 4, 'f'},       [VG_F64] = {".f64", 8, 'f'},
    [VG_TF32] = {".tf32", 4, 'x'},     [VG_E4M3] = {".e4m3", 1, 'x'},
    [VG_E5M2] = {".e5m2", 1, 'x'},     [VG_E4M3X2] = {".e4m3x2", 2, 'x'},
    [VG_E5M2X2] = {".e5m2x2", 2, 'x'}, [VG_U16X2] = {".u16x2", 4, 'x'},
    [VG_S16X2] = {".s16x2", 4, 'x'},
};

bool vg_ptx_type_named(const char *word, size_t length, enum vg_type *type)
{
    for (unsigned i = 0; i < VG_TYPES; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, word, length) == 0) {
            *type = (enum vg_type)i;
            return true;
        }
    return false;
}

const char *vg_ptx_type_name(enum vg_type type)
{
    return types[type].name;
}

uint32_t vg_ptx_type_bytes(enum vg_type type)
{
    return types[type].bytes;
}

uint32_t vg_ptx_type_units(enum vg_type type)
{
    return types[type].bytes <= 4 ? 1 : types[type].bytes / 4;
}

bool vg_ptx_type_fits(enum vg_type wanted, enum vg_type given)
{
    if (types[wanted].bytes != types[given].bytes) return false;
    const char a = types[wanted].family, b = types[given].family;
    if (a == 'p' || b == 'p') return a == b;
    if (a == 'b' || b == 'b') return true;
    if (a == 'x') return b == 'x' || wanted == VG_TF32;
    return a == b;
}

bool vg_ptx_type_fits_wide(enum vg_type wanted, enum vg_type given)
{
    if (types[given].bytes < types[wanted].bytes || !types[wanted].bytes) return false;
    const char a = types[wanted].family, b = types[given].family;
    return a == 'b' ? b != 'p' : b == 'b' || (a == 'i' && b == 'i');
}

bool vg_ptx_type_is_half(enum vg_type type)
{
    return type == VG_F16 || type == VG_F16X2 || type == VG_BF16 || type == VG_BF16X2 ||
           type == VG_U16X2 || type == VG_S16X2 || type == VG_E4M3X2 || type == VG_E5M2X2;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double vg_ptx_value_double(struct vg_value value)
{
    double wide;
    float narrow;
    const uint32_t low = (uint32_t)value.bits;
    switch (value.kind) {
    case VG_VALUE_F32:
        memcpy(&narrow, &low, sizeof narrow);
        return (double)narrow;
    case VG_VALUE_F64:
        memcpy(&wide, &value.bits, sizeof wide);
        return wide;
    case VG_VALUE_SIGNED:
        return (double)(int64_t)value.bits;
    default:
        return (double)value.bits;
    }
}

uint64_t vg_ptx_type_bits(struct vg_reader *r, uint32_t line, enum vg_type type,
                          struct vg_value value)
{
    const bool real = value.kind == VG_VALUE_F32 || value.kind == VG_VALUE_F64;
    const double wide = vg_ptx_value_double(value);
    uint64_t bits = value.bits;
    if (type == VG_F32 && (real || value.bits == 0)) {
        bits = value.kind == VG_VALUE_F32 ? value.bits : float_bits((float)wide);
    } else if (type == VG_F64 && (real || value.bits == 0)) {
        memcpy(&bits, &wide, sizeof wide);
    } else if (real && !(type == VG_B32 && value.kind == VG_VALUE_F32) &&
               !(type == VG_B64 && value.kind == VG_VALUE_F64)) {
        vg_ptx_fail(r, line, "expected a constant of type %s, found a floating-point constant",
                    vg_ptx_type_name(type));
    } else if (type == VG_F32 || type == VG_F64) {
        vg_ptx_fail(r, line, "expected a constant of type %s, found an integer",
                    vg_ptx_type_name(type));
    }
    const uint32_t bytes = types[type].bytes;
    return bytes && bytes < 8 ? bits & ((UINT64_C(1) << bytes * 8) - 1) : bits;
}
