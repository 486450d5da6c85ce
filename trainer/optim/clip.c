/* The norm of all gradients, and the factor that brings it down to the limit. */
#include "optim.h"

#include <math.h>

double tr_clip_norm(const struct tr_ops *ops, const struct tr_params *params,
                    const float *gradients, double scale)
{
    /* The summed gradients are replicated over every axis there is, so the local sum is the global
     * one. */
    return scale * sqrt(ops->sum_of_squares(gradients, params->total));
}

double tr_clip_coefficient(double norm, double most)
{
    return most > 0 && norm > most ? most / (norm + 1e-6) : 1;
}
