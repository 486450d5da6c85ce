/* Forms: moves and conversions (9.7.9), control (9.7.12) and what remains. */
#include <vgpu/ptx/forms.h>

#define INTS "u8|u16|u32|u64|s8|s16|s32|s64"
#define FLOATS "f16|bf16|f32|f64"
#define RND "r:rn|rz|rm|rp"

const struct vg_form vg_ptx_forms_data[] = {
    {"prmt", VG_PRMT, VG_PRMT_INDEX, 0, "t:b32 P:f4e|b4e|rc8|ecl|ecr|rc16?", "d a a u"},
    {"cvt", VG_CVT, 0, 0, "f:sat? t:" INTS " s:" INTS, "e E"},
    {"cvt", VG_CVT, 0, 0, "r:rni|rzi|rmi|rpi? f:ftz? f:sat? t:" INTS " s:" FLOATS, "e E"},
    {"cvt", VG_CVT, 0, 0, RND "? f:sat? t:" FLOATS " s:" INTS, "e E"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz|rm|rp|rni|rzi|rmi|rpi? f:ftz? f:sat? t:" FLOATS " s:" FLOATS,
     "e E"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu t:f16|bf16 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu? f:satfinite? t:f16x2|bf16x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:satfinite f:relu t:f16x2|bf16x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rna|rn|rz f:satfinite? f:relu? t:tf32 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu f:satfinite? t:tf32 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:satfinite f:relu? t:e4m3x2|e5m2x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:satfinite f:relu? t:e4m3x2|e5m2x2 s:f16x2|bf16x2", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:relu? t:f16x2|bf16x2 s:e4m3x2|e5m2x2", "d s"},
    {"cvt", VG_CVT_PACK, 0, 0, "-:pack -:sat b:u16|s16 t:s32", "d a a"},
    {"cvt", VG_CVT_PACK, 0, 0, "-:pack -:sat b:u8|s8|u4|s4|u2|s2 t:s32 s:b32", "d a a s"},
    {"cvta", VG_CVTA, 0, 0, "p:global|shared|shared::cta|local|const|param|param::entry t:u32|u64",
     "d a"},
    {"cvta", VG_CVTA_TO, 0, 0,
     "-:to p:global|shared|shared::cta|local|const|param|param::entry t:u32|u64", "d a"},
    {"isspacep", VG_ISSPACEP, 0, 0, "p:global|shared|shared::cta|local|const|param|param::entry",
     "p U"},
    {"alloca", VG_ALLOCA, 0, 0, "t:u32|u64|b32|b64", "d a i?"},
    {"stacksave", VG_STACKSAVE, 0, 0, "t:u32|u64|b32|b64", "d"},
    {"stackrestore", VG_STACKRESTORE, 0, 0, "t:u32|u64|b32|b64", "a"},
    {"ret", VG_RET, 0, 0, "-:uni?", ""},
    {"exit", VG_EXIT, 0, 0, "", ""},
    {"trap", VG_TRAP, 0, 0, "", ""},
    {"brkpt", VG_BRKPT, 0, 0, "", ""},
    {"pmevent", VG_NOP, 0, 0, "-:mask?", "i"},
    {"nanosleep", VG_NANOSLEEP, 0, 0, "t:u32", "a"},
    {"griddepcontrol", VG_NOP, 0, 0, "-:launch_dependents|wait", ""},
    {0},
};
