/* Philox4x32-10 and what is drawn with it: uniform numbers, permutations. */
#include "random.h"

void tr_random_words(uint64_t seed, enum tr_purpose purpose, uint32_t stream, uint64_t index,
                     uint32_t out[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, (uint32_t)purpose};
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ key[0], (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ c[3] ^ key[1], (uint32_t)p0};
        for (int i = 0; i < 4; ++i) c[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) out[i] = c[i];
}

/* 53 bits of two words, in [0, 1). */
static double unit(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32 | low)) >> 11) * 0x1p-53;
}

double tr_random_uniform(uint64_t seed, enum tr_purpose purpose, uint32_t stream, uint64_t index)
{
    uint32_t w[4];
    tr_random_words(seed, purpose, stream, index, w);
    return unit(w[0], w[1]);
}

uint64_t tr_random_permute(uint64_t seed, uint32_t stream, uint64_t index, uint64_t n)
{
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) ++half;
    const uint64_t mask = half < 32 ? ((uint64_t)1 << half) - 1 : 0xffffffffu;
    do {
        uint64_t left = index >> half & mask, right = index & mask;
        for (uint64_t round = 0; round < 6; ++round) {
            uint32_t w[4];
            tr_random_words(seed, TR_RANDOM_ORDER, stream, round << 32 | right, w);
            const uint64_t mixed = left ^ (w[0] & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}
