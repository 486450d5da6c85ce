/* The inverse of tr_param_put, which only tests need. */
#ifndef TT_TESTS_TRAINER_PARAM_GET_H
#define TT_TESTS_TRAINER_PARAM_GET_H

#include "../../trainer/param.h"

struct param_get {
    const struct tr_backend *backend;
    const float *range;
    float *whole;
};

static inline void param_get_run(void *arg, struct tr_run run)
{
    const struct param_get *get = arg;
    get->backend->read(get->whole + run.global, get->range + run.range, run.count * sizeof(float));
}

/* Copies this rank's [first, first + count) of the unit of the tensor to the global tensor
 * whole[shape]; only what both hold. */
static inline void param_get(const struct tr_params *params, const struct tr_param *param,
                             float *whole, const float *range, size_t first, size_t count)
{
    struct param_get get = {params->backend, range, whole};
    tr_param_each_run(params, param, first, count, param_get_run, &get);
}

#endif
