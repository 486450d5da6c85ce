/* Random numbers that a seed decides: splitmix64. */
#ifndef VGPU_RANDOM_H
#define VGPU_RANDOM_H

#include <stdint.h>

/* The next number; *state begins with the seed. */
static inline uint64_t vg_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
