/* Derives from a layout which part of a tensor a rank has and how its gradient is completed. */
#include "layout.h"

const struct tr_layout tr_layout_batch = {.axis = {[TR_DP] = {TR_SHARD, 0}}};

struct tr_layout tr_layout_gradient(struct tr_layout weight, struct tr_layout batch)
{
    struct tr_layout gradient = weight;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (weight.axis[axis].placement == TR_REPLICATE && batch.axis[axis].placement == TR_SHARD)
            gradient.axis[axis].placement = TR_PARTIAL;
    return gradient;
}

bool tr_layout_is(const struct tr_layout *layout, enum tr_axis axis, enum tr_placement placement)
{
    return layout->axis[axis].placement == placement;
}

void tr_layout_slice(long n, int parts, int part, long *first, long *count)
{
    const long each = n / parts, more = n % parts;
    *first = part * each + (part < more ? part : more);
    *count = each + (part < more);
}
