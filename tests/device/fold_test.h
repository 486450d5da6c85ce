/* What the host and the kernels of fold_test share. */
#ifndef DEVICE_FOLD_TEST_H
#define DEVICE_FOLD_TEST_H

#include <stdint.h>

#include "device/kernel/fold.h"

enum { FOLD_SOURCES = 9, FOLD_TARGETS = 3 };

/* A pass, by a block of its own. Addresses of the device. */
struct fold_case {
    struct tt_fold fold;
    uint64_t sources[FOLD_SOURCES], targets[FOLD_TARGETS];
    uint64_t scalar; /* where it lies; 0: in fold */
    uint64_t count;
    uint32_t raw; /* a bit for each source */
    uint32_t finish;
    uint32_t nsources, ntargets;
};

struct fold_params {
    const struct fold_case *cases;
};

#endif
