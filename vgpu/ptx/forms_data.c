/* Forms: moves and conversions (9.7.9), control (9.7.12) and what remains. */
#include <vgpu/ptx/forms.h>

#define INTS "u8|u16|u32|u64|s8|s16|s32|s64"
#define WORDS "u16|u32|u64|s16|s32|s64"
#define INTEGRAL "r:rni|rzi|rmi|rpi"
/* Policies of caches: nothing here has a cache, each is 0. */
#define PRIMARY "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
#define SECONDARY "L2::evict_first|L2::evict_unchanged"
#define RND "r:rn|rz|rm|rp"

const struct vg_form vg_ptx_forms_data[] = {
    {"prmt", VG_PRMT, VG_PRMT_INDEX, 0, "t:b32 P:f4e|b4e|rc8|ecl|ecr|rc16?", "d a a a"},
    {"cvt", VG_CVT, 0, 0, "f:sat? t:" INTS " s:" INTS, "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL " f:sat? t:" INTS " s:f16|f64", "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL " f:ftz? f:sat? t:" INTS " s:f32", "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL " t:" WORDS " s:bf16", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:sat? t:f16|f64 s:" INTS, "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:ftz? f:sat? t:f32 s:" INTS, "e E"},
    {"cvt", VG_CVT, 0, 0, RND " t:bf16 s:" WORDS, "e s"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL "? f:sat? t:f16 s:f16", "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL "? f:sat? t:f64 s:f64", "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL "? f:ftz? f:sat? t:f32 s:f32", "e E"},
    {"cvt", VG_CVT, 0, 0, INTEGRAL "? t:bf16 s:bf16", "e E"},
    {"cvt", VG_CVT, 0, 0, RND "? t:f16|f64 s:bf16", "e E"},
    {"cvt", VG_CVT, 0, 0, RND "? t:bf16 s:f16", "e E"},
    {"cvt", VG_CVT, 0, 0, RND "? f:ftz? t:f32 s:bf16", "e E"},
    {"cvt", VG_CVT, 0, 0, "f:ftz? f:sat? t:f32 s:f16", "e E"},
    {"cvt", VG_CVT, 0, 0, "f:ftz? f:sat? t:f64 s:f32", "e E"},
    {"cvt", VG_CVT, 0, 0, "f:sat? t:f64 s:f16", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:ftz? f:sat? t:f16 s:f32", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:ftz? f:sat? t:f32 s:f64", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:sat? t:f16 s:f64", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " f:ftz? t:bf16 s:f32", "e E"},
    {"cvt", VG_CVT, 0, 0, RND " t:bf16 s:f64", "e E"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu t:f16|bf16 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu? f:satfinite? t:f16x2|bf16x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:satfinite f:relu t:f16x2|bf16x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rna|rn|rz f:satfinite? f:relu? t:tf32 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn|rz f:relu f:satfinite? t:tf32 s:f32", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:satfinite f:relu? t:e4m3x2|e5m2x2 s:f32", "d s s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:satfinite f:relu? t:e4m3x2|e5m2x2 s:f16x2|bf16x2", "d s"},
    {"cvt", VG_CVT, 0, 0, "r:rn f:relu? t:f16x2|bf16x2 s:e4m3x2|e5m2x2", "d s"},
    {"cvt", VG_CVT_PACK, 0, 0, "^-:pack -:sat b:u16|s16 >t:s32", "d a a"},
    {"cvt", VG_CVT_PACK, 0, 0, "^-:pack -:sat b:u8|s8|u4|s4|u2|s2 >t:s32 s:b32", "d a a s"},
    {"cvta", VG_CVTA, 0, 0, "p:global|shared|shared::cta|local|const|param|param::entry t:u32|u64",
     "d C"},
    {"cvta", VG_CVTA_TO, 0, 0,
     "^-:to p:global|shared|shared::cta|local|const|param|param::entry t:u32|u64", "d a"},
    {"isspacep", VG_ISSPACEP, 0, 0,
     "p:global|shared|shared::cta|shared::cluster|local|const|param|param::entry", "p K"},
    {"alloca", VG_ALLOCA, 0, 0, "t:u32|u64", "d a G?"},
    {"stacksave", VG_STACKSAVE, 0, 0, "t:u32|u64", "d"},
    {"stackrestore", VG_STACKRESTORE, 0, 0, "t:u32|u64", "Y"},
    {"ret", VG_RET, 0, 0, "-:uni?", ""},
    {"exit", VG_EXIT, 0, 0, "", ""},
    {"trap", VG_TRAP, 0, 0, "", ""},
    {"brkpt", VG_BRKPT, 0, 0, "", ""},
    {"pmevent", VG_NOP, 0, 0, "", "t"},
    {"pmevent", VG_NOP, 0, 0, "-:mask", "T"},
    {"nanosleep", VG_NANOSLEEP, 0, 0, "t:u32", "a"},
    {"setmaxnreg", VG_NOP, 0, 0, "^-:inc|dec -:sync -:aligned t:u32|s32", "R"},
    {"createpolicy", VG_MOV, 0, 0, "^-:fractional -:" PRIMARY " -:" SECONDARY "? t:b64", "X Z?"},
    {"createpolicy", VG_MOV, 0, 0, "^-:range p:global? -:" PRIMARY " -:" SECONDARY "? t:b64",
     "X m u u"},
    {"createpolicy", VG_MOV, 0, 0, "^-:cvt -:L2 t:b64", "X z"},
    {"griddepcontrol", VG_NOP, 0, 0, "-:launch_dependents|wait", ""},
    {0},
};
