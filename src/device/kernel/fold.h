/* What the kernels' folds are of: the reduction of a call. Plain data. */
#ifndef TT_DEVICE_KERNEL_FOLD_H
#define TT_DEVICE_KERNEL_FOLD_H

#include <stdint.h>

#include "datatype/datatype.h"

struct tt_fold {
    uint64_t scalar;   /* TT_PREMUL_SUM: the bytes of one element, from the first on; others 0 */
    uint32_t type, op; /* of tt_type, tt_op */
    int32_t nranks;    /* TT_AVG divides by this; >= 1 */
    uint32_t size;     /* bytes of an element */
};

#endif
