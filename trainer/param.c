/* Registers parameters, fills them with their first values, and takes checksums. */
#include "param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

int tr_param_add(struct tr_params *params, const char *name, long rows, long cols, float mean,
                 float deviation)
{
    struct tr_param *items = realloc(params->items, sizeof *items * (size_t)(params->n + 1));
    if (!items) return -1;
    params->items = items;
    struct tr_param *param = &items[params->n];
    *param = (struct tr_param){
        .ndim = cols ? 2 : 1,
        .shape = {rows, cols},
        .count = (size_t)rows * (size_t)(cols ? cols : 1),
        .offset = params->total,
        .decay = cols != 0,
        .mean = mean,
        .deviation = deviation,
    };
    snprintf(param->name, sizeof param->name, "%s", name);
    params->total += (param->count + 15) / 16 * 16;
    params->count += param->count;
    return params->n++;
}

void tr_params_fini(struct tr_params *params)
{
    free(params->items);
    *params = (struct tr_params){0};
}

void tr_params_initialize(const struct tr_params *params, float *weights, uint64_t seed)
{
    for (int p = 0; p < params->n; ++p) {
        const struct tr_param *param = &params->items[p];
        const uint32_t stream = (uint32_t)tr_checksum(param->name, strlen(param->name));
        float *w = weights + param->offset;
        for (size_t i = 0; i < param->count; ++i) {
            const double noise =
                param->deviation != 0 ? tr_random_normal(seed, TR_RANDOM_WEIGHTS, stream, i) : 0;
            w[i] = (float)(param->mean + param->deviation * noise);
        }
    }
}

uint64_t tr_checksum(const void *bytes, size_t nbytes)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0x9E3779B97F4A7C15u ^ nbytes;
    while (nbytes) {
        uint64_t word = 0;
        const size_t n = nbytes < 8 ? nbytes : 8;
        memcpy(&word, at, n);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        at += n;
        nbytes -= n;
    }
    return hash;
}
