/* Forms: what threads do together (9.7.13, 9.7.14): barriers, fences, votes, shuffles. */
#include <vgpu/ptx/forms.h>

#define SCOPES "S:cta|cluster|gpu|sys"

#define BARRIERS(name, flags, aligned)                                                             \
    {name, VG_BAR_SYNC, 0, flags, "^-:cta? -:sync" aligned, "B N?"},                               \
        {name, VG_BAR_ARRIVE, 0, flags, "^-:cta? ^-:arrive" aligned, "B A"},                       \
        {name, VG_BAR_RED, 0, flags, "^-:cta? ^-:red R:popc" aligned " t:u32", "d B N? q"},        \
    {                                                                                              \
        name, VG_BAR_RED, 0, flags, "^-:cta? ^-:red R:and|or" aligned " t:pred", "d B N? q"        \
    }

const struct vg_form vg_ptx_forms_together[] = {
    {"bar", VG_WARP_SYNC, 0, 0, "^-:warp ^-:sync", "u"},
    BARRIERS("bar", VG_ALIGNED, ""),
    BARRIERS("barrier", 0, " f:aligned?"),
    {"membar", VG_FENCE, 0, 0, "S:cta|gl|sys", ""},
    {"membar", VG_FENCE_ALIAS, 0, 0, "^-:proxy -:alias", ""},
    {"fence", VG_FENCE, 0, 0, "o:sc|acq_rel|acquire|release? " SCOPES, ""},
    {"fence", VG_FENCE_ALIAS, 0, 0, "^-:proxy -:alias", ""},
    /* Asynchronous copies run as accesses of the generic proxy: nothing to order. */
    {"fence", VG_NOP, 0, 0, "^-:proxy -:async -:global|shared::cta|shared::cluster?", ""},
    {"fence", VG_FENCE, 0, 0, "-:mbarrier_init o:release S:cluster", ""},
    {"vote", VG_VOTE, 0, 0, "-:sync V:all|any|uni t:pred", "d q u"},
    {"vote", VG_VOTE, 0, 0, "-:sync V:ballot t:b32", "d q u"},
    {"match", VG_MATCH_ANY, 0, 0, "-:any -:sync t:b32|b64", "x a u"},
    {"match", VG_MATCH_ALL, 0, 0, "-:all -:sync t:b32|b64", "x|p a u"},
    {"activemask", VG_ACTIVEMASK, 0, 0, "t:b32", "d"},
    {"redux", VG_REDUX, 0, 0, "-:sync R:add|min|max t:u32|s32", "d a u"},
    {"redux", VG_REDUX, 0, 0, "-:sync R:and|or|xor t:b32", "d a u"},
    {"shfl", VG_SHFL, 0, 0, "-:sync H:up|down|bfly|idx t:b32", "d|p a a a u"},
    {"elect", VG_ELECT, 0, 0, "-:sync", "x&p u"},
    {0},
};
