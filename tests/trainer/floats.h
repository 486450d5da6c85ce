/* Between tensors of TR_FP32 and their floats, which tests read and write. */
#ifndef TT_TESTS_TRAINER_FLOATS_H
#define TT_TESTS_TRAINER_FLOATS_H

#include <stdint.h>

#include "../../trainer/ops/tensor_type.h"

static inline struct tr_data *data_of(const float *floats)
{
    return (struct tr_data *)(uintptr_t)floats;
}

static inline float *floats_of(const struct tr_data *data)
{
    return (float *)(uintptr_t)data;
}

#endif
