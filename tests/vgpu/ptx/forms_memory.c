/* Forms: loads, stores, atomics (9.7.9, 9.7.13), asynchronous copies and mbarriers. */
#include <vgpu/ptx/forms.h>

#define TYPES "t:b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
#define EVICT                                                                                      \
    " -:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate?"      \
    " -:L2::evict_normal|L2::evict_first|L2::evict_last?"
#define HINT " h:L2::cache_hint?"
#define FETCH " -:L2::64B|L2::128B|L2::256B?"
#define VECTOR " v:v2|v4? " TYPES
#define SHARED "shared|shared::cta"
#define LOADED " p:global|" SHARED "|local|const|param|param::entry|param::func?"
#define STORED " p:global|" SHARED "|local|param|param::func?"
#define STRONG " p:global|" SHARED "?"
#define ANY_SCOPE " S:cta|cluster|gpu|sys"
#define ATOMIC "o:relaxed|acquire|release|acq_rel? S:cta|cluster|gpu|sys? p:global|" SHARED "? "
#define REDUCE "o:relaxed|release? S:cta|cluster|gpu|sys? p:global|" SHARED "? "
#define ATOMICS(name, op, how, operands)                                                           \
    {name, op, 0, 0, how "A:and|or|xor" HINT " t:b32|b64", operands},                              \
        {name, op, 0, 0, how "A:add" HINT " t:u32|s32|u64|s64|f32|f64", operands},                 \
        {name, op, 0, 0, how "A:add f:noftz?" HINT " t:f16|f16x2|bf16|bf16x2", operands},          \
        {name, op, 0, 0, how "A:inc|dec" HINT " t:u32", operands},                                 \
    {                                                                                              \
        name, op, 0, 0, how "A:min|max" HINT " t:u32|s32|u64|s64", operands                        \
    }
#define BARRIER " p:" SHARED "? t:b64"
#define ARRIVES " o:release|relaxed? S:cta|cluster?"
#define WAITS " o:acquire|relaxed? S:cta|cluster?"

const struct vg_form vg_ptx_forms_memory[] = {
    {"ld", VG_LD, 0, 0, "o:weak?" LOADED EVICT HINT FETCH VECTOR, "v m h"},
    {"ld", VG_LD, 0, 0, "o:weak?" LOADED " -:ca|cg|cs|lu|cv" HINT FETCH VECTOR, "v m h"},
    {"ld", VG_LD, 0, 0, "y:volatile" LOADED FETCH VECTOR, "v m"},
    {"ld", VG_LD, 0, 0, "o:relaxed|acquire" ANY_SCOPE STRONG EVICT HINT FETCH VECTOR, "v m h"},
    {"ld", VG_LD, 0, 0, "-:mmio o:relaxed S:sys p:global? " TYPES, "v m"},
    {"ld", VG_LD, 0, 0, "p:global -:ca|cg|cs? f:nc" EVICT HINT FETCH VECTOR, "v m h"},
    {"ldu", VG_LD, 0, 0, "p:global?" VECTOR, "v m"},
    {"st", VG_ST, 0, 0, "o:weak?" STORED EVICT HINT VECTOR, "m V h"},
    {"st", VG_ST, 0, 0, "o:weak?" STORED " -:wb|cg|cs|wt" HINT VECTOR, "m V h"},
    {"st", VG_ST, 0, 0, "y:volatile" STORED VECTOR, "m V"},
    {"st", VG_ST, 0, 0, "o:relaxed|release" ANY_SCOPE STRONG EVICT HINT VECTOR, "m V h"},
    {"st", VG_ST, 0, 0, "-:mmio o:relaxed S:sys p:global? " TYPES, "m V"},
    ATOMICS("atom", VG_ATOM, ATOMIC, "d m a h"),
    {"atom", VG_ATOM, 0, 0, ATOMIC "A:exch" HINT " t:b32|b64|b128", "d m a h"},
    {"atom", VG_ATOM, 0, 0, ATOMIC "A:cas" HINT " t:b16|b32|b64|b128", "d m a a h"},
    ATOMICS("red", VG_RED, REDUCE, "m a h"),
    {"prefetch", VG_PREFETCH, 0, 0, "p:global|local? -:L1|L2", "m"},
    {"prefetch", VG_PREFETCH, 0, 0, "p:global -:L2::evict_last|L2::evict_normal", "m"},
    {"prefetchu", VG_PREFETCH, 0, 0, "-:L1", "m"},
    {"applypriority", VG_PREFETCH, 0, 0, "p:global? -:L2::evict_normal", "m i"},
    {"cp", VG_CP_ASYNC, 0, 0, "-:async -:ca|cg p:" SHARED " -:global" HINT FETCH, "m g n c? h"},
    {"cp", VG_CP_ASYNC_COMMIT, 0, 0, "-:async -:commit_group", ""},
    {"cp", VG_CP_ASYNC_WAIT, 0, 0, "-:async -:wait_group", "i"},
    {"cp", VG_CP_ASYNC_WAIT, 0, VG_ALL_GROUPS, "-:async -:wait_all", ""},
    {"cp", VG_CP_ASYNC_MBARRIER, 0, 0, "-:async -:mbarrier -:arrive f:noinc?" BARRIER, "m"},
    {"mbarrier", VG_MBARRIER_INIT, 0, 0, "-:init" BARRIER, "m u"},
    {"mbarrier", VG_MBARRIER_INVAL, 0, 0, "-:inval" BARRIER, "m"},
    {"mbarrier", VG_MBARRIER_EXPECT, 0, 0, "-:expect_tx o:relaxed? S:cta|cluster?" BARRIER, "m u"},
    {"mbarrier", VG_MBARRIER_ARRIVE, 0, 0, "-:arrive" ARRIVES BARRIER, "X m u?"},
    {"mbarrier", VG_MBARRIER_ARRIVE, 0, 0, "-:arrive f:noComplete" ARRIVES BARRIER, "X m u"},
    {"mbarrier", VG_MBARRIER_EXPECT, 1, 0, "-:arrive -:expect_tx" ARRIVES BARRIER, "X m u"},
    {"mbarrier", VG_MBARRIER_ARRIVE_DROP, 0, 0, "-:arrive_drop" ARRIVES BARRIER, "X m u?"},
    {"mbarrier", VG_MBARRIER_ARRIVE_DROP, 0, 0, "-:arrive_drop f:noComplete" ARRIVES BARRIER,
     "X m u"},
    {"mbarrier", VG_MBARRIER_TEST_WAIT, 0, 0, "-:test_wait" WAITS BARRIER, "p m U"},
    {"mbarrier", VG_MBARRIER_TEST_WAIT, 0, 0, "-:test_wait f:parity" WAITS BARRIER, "p m u"},
    {"mbarrier", VG_MBARRIER_TRY_WAIT, 0, 0, "-:try_wait" WAITS BARRIER, "p m U u?"},
    {"mbarrier", VG_MBARRIER_TRY_WAIT, 0, 0, "-:try_wait f:parity" WAITS BARRIER, "p m u u?"},
    {"mbarrier", VG_MBARRIER_PENDING, 0, 0, "-:pending_count t:b64", "x a"},
    {0},
};
