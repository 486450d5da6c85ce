/* Random numbers of tests, and their seed: printed, and taken from TUTTI_TEST_SEED. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ranks.h"

uint64_t test_seed(void)
{
    const char *text = getenv("TUTTI_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t drawn = ((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec * 1000003u) % 1000000u;
    const uint64_t seed = text ? strtoull(text, NULL, 10) : drawn;
    printf("seed %llu (TUTTI_TEST_SEED=%llu repeats it)\n", (unsigned long long)seed,
           (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int random_below(uint64_t *state, int n)
{
    return (int)(next_random(state) % (uint64_t)n);
}
