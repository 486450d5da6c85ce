/* ReLU: x where it is above 0, else 0. The derivative at 0 is 0. */
#include "activate.h"

INLINE lanes relu(lanes x)
{
    return choose(x <= splat(0), splat(0), x);
}

INLINE lanes derivative(lanes x)
{
    return choose(x <= splat(0), splat(0), splat(1));
}

TR_ACTIVATION(relu, relu, derivative)
