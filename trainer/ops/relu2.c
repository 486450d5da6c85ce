/* Squared ReLU (So et al., "Primer", 2021): x^2 where x is above 0, else 0. */
#include "activate.h"

INLINE lanes relu2(lanes x)
{
    return choose(x <= splat(0), splat(0), x * x);
}

INLINE lanes derivative(lanes x)
{
    return choose(x <= splat(0), splat(0), x + x);
}

TR_ACTIVATION(relu2, relu2, derivative)
