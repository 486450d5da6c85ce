/* The factor that brings a gradient's norm down to the limit. */
#include "optim.h"

double tr_clip_coefficient(double norm, double most)
{
    return most > 0 && norm > most ? most / (norm + 1e-6) : 1;
}
