/* What the folds of a call have in common. Plain data. */
#ifndef TT_DEVICE_KERNEL_FOLD_H
#define TT_DEVICE_KERNEL_FOLD_H

#include <stdint.h>

#include "datatype/datatype.h"

struct tt_fold {
    uint32_t type, op; /* of tt_type, tt_op */
    uint32_t element;  /* bytes */
    uint32_t nranks;   /* TT_AVG divides by this; >= 1 */
    uint64_t scalar;   /* TT_PREMUL_SUM: the bytes of one element, from the first on */
};

/* Of a pass: whether a source is raw (struct tt_sources), and whether the result is complete. */
struct tt_fold_changes {
    bool raw, finish;
};

#endif
