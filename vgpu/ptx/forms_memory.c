/* Forms: loads, stores, atomics (9.7.9, 9.7.13), asynchronous copies and mbarriers. Which sizes a
 * vector may have depends on its type and space: finish.c. */
#include <vgpu/ptx/forms.h>

#define TYPES "t:b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
#define L1 "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
#define L2 " 2:L2::evict_normal|L2::evict_first|L2::evict_last?"
#define HINT " h:L2::cache_hint?"
#define FETCH " -:L2::64B|L2::128B|L2::256B?"
#define VECTOR " v:v2|v4|v8? " TYPES
#define SHARED "shared|shared::cta"
#define LOADED " p:" SHARED "|local|const|param|param::entry|param::func"
#define STORED " p:" SHARED "|local|param|param::func"
#define ANY_SCOPE " S:cta|cluster|gpu|sys"
#define ATOMIC "o:relaxed|acquire|release|acq_rel? S:cta|cluster|gpu|sys? "
#define REDUCE "o:relaxed|release? S:cta|cluster|gpu|sys? "
#define SPACE "p:global|" SHARED "? "
#define HALVES "t:f16|f16x2|bf16|bf16x2"
#define ATOMICS(name, op, how, operands, vector)                                                   \
    {name, op, 0, 0, how SPACE "A:and|or|xor" HINT " t:b32|b64", operands},                        \
        {name, op, 0, 0, how SPACE "A:add" HINT " t:u32|s32|u64|f32|f64", operands},               \
        {name, op, 0, 0, how SPACE "A:add f:noftz" HINT " " HALVES, operands},                     \
        {name, op, 0, 0, how SPACE "A:inc|dec" HINT " t:u32", operands},                           \
        {name, op, 0, 0, how SPACE "A:min|max" HINT " t:u32|s32|u64|s64", operands},               \
        {name, op, 0, 0, how "p:global? A:add" HINT " v:v2|v4 t:f32", vector},                     \
        {name, op, 0, 0, how "p:global? A:add|min|max f:noftz" HINT " v:v2|v4 " HALVES, vector},   \
    {                                                                                              \
        name, op, 0, 0, how "p:global? A:add|min|max f:noftz" HINT " v:v8 t:f16|bf16", vector      \
    }
#define BARRIER " p:" SHARED "? t:b64"
/* An order needs a scope and a scope an order. */
#define ORDERED(op, mode, before, orders, operands)                                                \
    {"mbarrier", op, mode, 0, before BARRIER, operands},                                           \
    {                                                                                              \
        "mbarrier", op, mode, 0, before " o:" orders " S:cta|cluster" BARRIER, operands            \
    }
#define RELEASES "release|relaxed"
#define ACQUIRES "acquire|relaxed"

const struct vg_form vg_ptx_forms_memory[] = {
    {"ld", VG_LD, 0, 0, "o:weak? p:global? -:ca|cg|cs|lu|cv|" L1 "?" L2 HINT FETCH VECTOR, "v m h"},
    {"ld", VG_LD, 0, 0, "o:weak?" LOADED " -:ca|cg|cs|lu|cv?" VECTOR, "v m"},
    {"ld", VG_LD, 0, 0, "y:volatile p:global?" FETCH VECTOR, "v m"},
    {"ld", VG_LD, 0, 0, "y:volatile p:" SHARED VECTOR, "v m"},
    {"ld", VG_LD, 0, 0, "o:relaxed|acquire" ANY_SCOPE " p:global? -:" L1 "?" L2 HINT FETCH VECTOR,
     "v m h"},
    {"ld", VG_LD, 0, 0, "o:relaxed|acquire" ANY_SCOPE " p:" SHARED VECTOR, "v m"},
    {"ld", VG_LD, 0, 0, "-:mmio o:relaxed S:sys p:global? " TYPES, "v m"},
    {"ld", VG_LD, 0, 0, "p:global -:ca|cg|cs|" L1 "? f:nc" L2 HINT FETCH VECTOR, "v m h"},
    {"ldu", VG_LD, 0, 0, "p:global?" VECTOR, "v m"},
    {"st", VG_ST, 0, 0, "o:weak? p:global? -:wb|cg|cs|wt|" L1 "?" L2 HINT VECTOR, "m V h"},
    {"st", VG_ST, 0, 0, "o:weak?" STORED " -:wb|cg|cs|wt?" VECTOR, "m V"},
    {"st", VG_ST, 0, 0, "y:volatile p:global|" SHARED "?" VECTOR, "m V"},
    {"st", VG_ST, 0, 0, "o:relaxed|release" ANY_SCOPE " p:global? -:" L1 "?" L2 HINT VECTOR,
     "m V h"},
    {"st", VG_ST, 0, 0, "o:relaxed|release" ANY_SCOPE " p:" SHARED VECTOR, "m V"},
    {"st", VG_ST, 0, 0, "-:mmio o:relaxed S:sys p:global? " TYPES, "m V"},
    ATOMICS("atom", VG_ATOM, ATOMIC, "d m a h", "v m V h"),
    {"atom", VG_ATOM, 0, 0, ATOMIC SPACE "A:exch" HINT " t:b32|b64|b128", "d m a h"},
    {"atom", VG_ATOM, 0, 0, ATOMIC SPACE "A:cas" HINT " t:b16|b32|b64|b128", "d m a a h"},
    ATOMICS("red", VG_RED, REDUCE, "m a h", "m V h"),
    {"prefetch", VG_PREFETCH, 0, 0, "p:global|local? -:L1|L2", "m"},
    {"prefetch", VG_PREFETCH, 0, 0, "p:global? -:L2::evict_last|L2::evict_normal", "m"},
    {"prefetchu", VG_PREFETCH, 1, 0, "-:L1", "m"},
    {"applypriority", VG_PREFETCH, 0, 0, "p:global? -:L2::evict_normal", "m L"},
    {"discard", VG_PREFETCH, 0, 0, "p:global? -:L2", "m L"},
    {"cp", VG_CP_ASYNC, 0, 0, "^-:async -:ca p:" SHARED " >-:global" HINT FETCH, "m g n c? h"},
    {"cp", VG_CP_ASYNC, 0, 0, "^-:async -:cg p:" SHARED " >-:global" HINT FETCH, "m g M c? h"},
    {"cp", VG_CP_ASYNC_COMMIT, 0, 0, "^-:async ^-:commit_group", ""},
    {"cp", VG_CP_ASYNC_WAIT, 0, 0, "^-:async ^-:wait_group", "i"},
    {"cp", VG_CP_ASYNC_WAIT, 0, VG_ALL_GROUPS, "^-:async ^-:wait_all", ""},
    {"cp", VG_CP_ASYNC_MBARRIER, 0, 0, "^-:async ^-:mbarrier ^-:arrive f:noinc?" BARRIER, "m"},
    {"mbarrier", VG_MBARRIER_INIT, 0, 0, "^-:init" BARRIER, "m u"},
    {"mbarrier", VG_MBARRIER_INVAL, 0, 0, "^-:inval" BARRIER, "m"},
    ORDERED(VG_MBARRIER_EXPECT, 0, "^-:expect_tx", "relaxed", "m u"),
    ORDERED(VG_MBARRIER_ARRIVE, 0, "^-:arrive", RELEASES, "X m o?"),
    ORDERED(VG_MBARRIER_ARRIVE, 0, "^-:arrive f:noComplete", RELEASES, "X m o"),
    ORDERED(VG_MBARRIER_EXPECT, 1, "^-:arrive ^-:expect_tx", RELEASES, "X m u"),
    ORDERED(VG_MBARRIER_ARRIVE_DROP, 0, "^-:arrive_drop", RELEASES, "X m o?"),
    ORDERED(VG_MBARRIER_ARRIVE_DROP, 0, "^-:arrive_drop f:noComplete", RELEASES, "X m o"),
    ORDERED(VG_MBARRIER_TEST_WAIT, 0, "^-:test_wait", ACQUIRES, "p m U"),
    ORDERED(VG_MBARRIER_TEST_WAIT, 0, "^-:test_wait ^f:parity", ACQUIRES, "p m y"),
    ORDERED(VG_MBARRIER_TRY_WAIT, 0, "^-:try_wait", ACQUIRES, "p m U u?"),
    ORDERED(VG_MBARRIER_TRY_WAIT, 0, "^-:try_wait ^f:parity", ACQUIRES, "p m y u?"),
    {"mbarrier", VG_MBARRIER_PENDING, 0, 0, "^-:pending_count t:b64", "x U"},
    {0},
};
