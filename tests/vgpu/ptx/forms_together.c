/* Forms: what threads do together (9.7.13, 9.7.14): barriers, fences, votes, shuffles. */
#include <vgpu/ptx/forms.h>

/* The machine has one proxy: these fences have nothing to order. */
#define PROXY "-:alias|async -:global|shared::cta|shared::cluster?"
#define SCOPES "S:cta|cluster|gpu|sys"

const struct vg_form vg_ptx_forms_together[] = {
    {"bar", VG_WARP_SYNC, 0, 0, "-:warp -:sync", "u"},
    {"bar", VG_BAR_SYNC, 0, VG_ALIGNED, "-:cta? -:sync", "u u?"},
    {"bar", VG_BAR_ARRIVE, 0, VG_ALIGNED, "-:cta? -:arrive", "u u"},
    {"bar", VG_BAR_RED, 0, VG_ALIGNED, "-:cta? -:red R:popc t:u32", "d u u? q"},
    {"bar", VG_BAR_RED, 0, VG_ALIGNED, "-:cta? -:red R:and|or t:pred", "d u u? q"},
    {"barrier", VG_BAR_SYNC, 0, 0, "-:cta? -:sync f:aligned?", "u u?"},
    {"barrier", VG_BAR_ARRIVE, 0, 0, "-:cta? -:arrive f:aligned?", "u u"},
    {"barrier", VG_BAR_RED, 0, 0, "-:cta? -:red R:popc f:aligned? t:u32", "d u u? q"},
    {"barrier", VG_BAR_RED, 0, 0, "-:cta? -:red R:and|or f:aligned? t:pred", "d u u? q"},
    {"membar", VG_FENCE, 0, 0, "S:cta|gl|sys", ""},
    {"membar", VG_NOP, 0, 0, "-:proxy " PROXY, ""},
    {"fence", VG_FENCE, 0, 0, "o:sc|acq_rel|acquire|release? " SCOPES, ""},
    {"fence", VG_NOP, 0, 0, "-:proxy " PROXY, ""},
    {"fence", VG_FENCE, 0, 0, "-:mbarrier_init o:release S:cluster", ""},
    {"vote", VG_VOTE, 0, 0, "-:sync V:all|any|uni t:pred", "d q u"},
    {"vote", VG_VOTE, 0, 0, "-:sync V:ballot t:b32", "d q u"},
    {"match", VG_MATCH_ANY, 0, 0, "-:any -:sync t:b32|b64", "x a u"},
    {"match", VG_MATCH_ALL, 0, 0, "-:all -:sync t:b32|b64", "x|p a u"},
    {"activemask", VG_ACTIVEMASK, 0, 0, "t:b32", "d"},
    {"redux", VG_REDUX, 0, 0, "-:sync R:add|min|max t:u32|s32", "d a u"},
    {"redux", VG_REDUX, 0, 0, "-:sync R:and|or|xor t:b32", "d a u"},
    {"shfl", VG_SHFL, 0, 0, "-:sync H:up|down|bfly|idx t:b32", "d|p a u u u"},
    {"elect", VG_ELECT, 0, 0, "-:sync", "x|p u"},
    {0},
};
