/* What an activation is: a function of one number, and its derivative. Each is a file of this
 * folder, with its formula at the top (relu.c is the shortest), and a line of activation_table.h.
 */
#ifndef TR_ACTIVATION_H
#define TR_ACTIVATION_H

#include "tensor_type.h"

enum tr_activation_kind {
#define ACTIVATION(NAME, name) TR_##NAME,
#include "activation_table.h"
    TR_NUM_ACTIVATIONS
};

struct tr_activation {
    /* y[n] = the function at x[n]; NaN stays NaN */
    void (*forward)(struct tr_data *y, const struct tr_data *x, long n);
    /* dx[n] = dy[n] * the derivative at x[n]; dx may be dy */
    void (*backward)(struct tr_data *dx, const struct tr_data *dy, const struct tr_data *x, long n);
};

#endif
