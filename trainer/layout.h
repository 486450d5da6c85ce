/* Where a tensor lives on the mesh: for each axis Replicate, Shard(dim) or Partial. Everything that
 * must be reduced, clipped or saved is derived from this; nothing is flagged by hand. */
#ifndef TR_LAYOUT_H
#define TR_LAYOUT_H

#include <stdbool.h>

/* From the outermost (ranks far apart) to the innermost (neighbours). */
enum tr_axis { TR_PP, TR_DP, TR_FSDP, TR_RING, TR_ULYSSES, TR_TP, TR_NUM_AXES };

enum tr_placement {
    TR_REPLICATE, /* every rank of the axis has all of it */
    TR_SHARD,     /* cut along dimension `dim` */
    TR_PARTIAL    /* every rank has a summand; the sum over the axis is the tensor */
};

struct tr_layout {
    struct {
        enum tr_placement placement;
        int dim;
    } axis[TR_NUM_AXES];
};

/* The layout of the activations: sequences are cut along dp, everything else is replicated. */
extern const struct tr_layout tr_layout_batch;

/* What backward leaves in the gradient of a weight: a weight that is replicated over an axis along
 * which the batch is cut has seen only its part of the batch there, so its gradient is Partial. */
struct tr_layout tr_layout_gradient(struct tr_layout weight, struct tr_layout batch);

bool tr_layout_is(const struct tr_layout *layout, enum tr_axis axis, enum tr_placement placement);

/* The balanced cut of n items over `parts`: the first n % parts get one more. */
void tr_layout_slice(long n, int parts, int part, long *first, long *count);

#endif
