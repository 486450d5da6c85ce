/* Chooses the build of the operations (plain x86-64, AVX2 or AVX-512) that this processor runs. */
#include "backend.h"

#include <string.h>

extern const struct tr_backend tr_backend_baseline;

const struct tr_rule *tr_optimizer_rule(const struct tr_optimizer *how)
{
    return how->rule ? how->rule : tr_backend_baseline.optimizers[how->kind];
}

size_t tr_attention_scratch(const struct tr_attention *shape)
{
    const long keys = shape->keys < TR_ATTENTION_KEYS ? shape->keys : TR_ATTENTION_KEYS;
    return (size_t)(2 * TR_ATTENTION_QUERIES * keys); /* scores and their gradient */
}

#if defined(__x86_64__)
extern const struct tr_backend tr_backend_v3, tr_backend_v4;

static int runs_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static int runs_v4(void)
{
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static const struct tr_backend *const backends[] = {&tr_backend_baseline, &tr_backend_v3,
                                                    &tr_backend_v4};

const struct tr_backend *tr_backend_choose(const char *name)
{
    const int any = !name[0];
    if ((any || !strcmp(name, "v4")) && runs_v4()) return &tr_backend_v4;
    if ((any || !strcmp(name, "v3")) && runs_v3()) return &tr_backend_v3;
    if (any || !strcmp(name, "baseline")) return &tr_backend_baseline;
    return NULL;
}
#else
static const struct tr_backend *const backends[] = {&tr_backend_baseline};

const struct tr_backend *tr_backend_choose(const char *name)
{
    return !name[0] || !strcmp(name, "baseline") ? &tr_backend_baseline : NULL;
}
#endif

int tr_backend_level(const struct tr_backend *backend)
{
    int level = 0;
    while (backends[level] != backend) ++level;
    return level;
}

const struct tr_backend *tr_backend_at(int level)
{
    return backends[level];
}
