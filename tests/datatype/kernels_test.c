/* Every instruction set, with and without non-temporal stores, against the scalar reference
 * without, bit for bit. */
#include "datatype/kernels.h"

#include <stdio.h>
#include <string.h>

#include "datatype/convert.h"
#include "reference.h"
#include "shim.h"

enum { MAX_SRC = 9, MAX_COUNT = 5000, ROOM = MAX_COUNT * 8 + 256, GUARD = 0x5a };

static char inputs[MAX_SRC][ROOM], work[MAX_SRC][ROOM], expected[ROOM], got[ROOM];

/* What one comparison does; printed when it fails. */
struct trial {
    struct tt_reduction reduction;
    int nsrc;
    int alias; /* the source that is dst, or none: -1 */
    bool raw[MAX_SRC];
    size_t count;
    unsigned flags;
    size_t dst_shift, src_shift[MAX_SRC];
};

/* Elements whose sums and products meet every special case. */
static void fill_special(enum tt_type type, char *to, size_t nbytes, uint64_t *seed)
{
    static const uint32_t f32[] = {0,          0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
                                   0xff800000, 0x7fc00000, 0xffc12345, 0x7f812345, 1,
                                   0x807fffff, 0x7f7fffff, 0xff7fffff, 0x00800000, 0x3f8fffff};
    static const uint64_t f64[] = {0,
                                   0x8000000000000000,
                                   0x3ff0000000000000,
                                   0x7ff0000000000000,
                                   0xfff0000000000000,
                                   0x7ff8000000000000,
                                   0xfff8000000012345,
                                   0x7ff0000000012345,
                                   1,
                                   0x7fefffffffffffff,
                                   0xffefffffffffffff,
                                   0xbff8000000000001};
    for (size_t i = 0; i + 8 <= nbytes; i += 8) {
        uint64_t bits = random_next(seed);
        const uint64_t pick = bits >> 40;
        if (type == TT_FLOAT64)
            bits = f64[pick % (sizeof f64 / sizeof f64[0])];
        else if (type == TT_FLOAT32)
            bits = f32[pick % 15] | (uint64_t)f32[(pick >> 8) % 15] << 32;
        else
            bits &= 0x80c180ff01007f83; /* small numbers, limits, zeros */
        memcpy(to + i, &bits, 8);
    }
}

static void fill(enum tt_type type, char *to, size_t nbytes, uint64_t *seed)
{
    const bool special = random_next(seed) % 3 == 0, near_one = random_next(seed) % 2;
    if (special) {
        fill_special(type, to, nbytes, seed);
        return;
    }
    for (size_t i = 0; i + 8 <= nbytes; i += 8) {
        uint64_t bits = random_next(seed);
        /* Exponents near each other, so that sums round rather than absorb. */
        if (type == TT_FLOAT32 && near_one) bits = (bits & 0x81ffffff81ffffff) | 0x3e0000003e000000;
        if (type == TT_FLOAT64 && near_one) bits = (bits & 0x803fffffffffffff) | 0x3fc0000000000000;
        memcpy(to + i, &bits, 8);
    }
}

static void draw(struct trial *trial, enum tt_type type, enum tt_op op, size_t count,
                 uint64_t *seed)
{
    *trial = (struct trial){.reduction = {.type = type, .op = op}, .count = count};
    trial->nsrc = 1 + (int)(random_next(seed) % MAX_SRC);
    if (random_next(seed) % 3 == 0) trial->nsrc = 2; /* two to two have kernels of their own */
    trial->reduction.nranks = 1 + (int)(random_next(seed) % (random_next(seed) % 2 ? 9 : 100000));
    trial->flags = random_next(seed) % 2 ? TT_FINISH : 0;
    const uint64_t raw = random_next(seed) % 3 ? random_next(seed) : 0;
    if (random_next(seed) % 3 == 0) trial->flags |= TT_NONTEMPORAL;
    trial->alias = (int)(random_next(seed) % (unsigned)(2 * trial->nsrc)) - trial->nsrc;
    if (trial->alias < -1) trial->alias = -1;
    fill(type, trial->reduction.scalar, 8, seed);
    trial->dst_shift = random_next(seed) % 70;
    for (int s = 0; s < trial->nsrc; s++) {
        trial->src_shift[s] = random_next(seed) % 70;
        trial->raw[s] = raw >> s & 1;
        fill(type, inputs[s], count * tt_type_size(type) + 8, seed);
    }
}

/* Runs the trial on fresh copies of the inputs; the result and a guard around it go to `out`. */
static void perform(const struct trial *trial, const struct tt_kernels *kernels, unsigned flags,
                    char *out)
{
    const size_t nbytes = trial->count * tt_type_size(trial->reduction.type);
    const void *src[MAX_SRC];
    memset(out, GUARD, nbytes + 160);
    char *dst = out + trial->dst_shift;
    for (int s = 0; s < trial->nsrc; s++) {
        char *at = work[s] + trial->src_shift[s];
        if (s == trial->alias) at = dst;
        memcpy(at, inputs[s], nbytes);
        src[s] = at;
    }
    const struct tt_target target = {.data = dst, .nontemporal = flags & TT_NONTEMPORAL};
    const struct tt_sources sources = {src, trial->raw, trial->nsrc};
    tt_reduce_to_with(kernels, &trial->reduction, &target, 1, &sources, trial->count,
                      flags & ~(unsigned)TT_NONTEMPORAL);
}

/* Whether a fold reaches ntargets, in a drawn order: `out`, which may be a source, and others.
 * Where `out` is a source, the first of the others is the next source, if there is one. */
static bool reaches_all(const struct trial *trial, const struct tt_kernels *kernels, int ntargets)
{
    static char others[2][ROOM];
    const size_t nbytes = trial->count * tt_type_size(trial->reduction.type);
    const size_t drawn = trial->count + trial->dst_shift;
    const int out = (int)(drawn / 8) % ntargets, kinds = trial->flags & TT_NONTEMPORAL ? 8 : 1;
    const int second = trial->alias < 0 ? -1 : trial->alias + 1;
    struct tt_target targets[3];
    const void *src[MAX_SRC];
    for (int t = 0, other = 0; t < ntargets; t++)
        targets[t] = (struct tt_target){.data = t == out ? got + trial->dst_shift
                                                         : others[other++] + 3 + trial->dst_shift,
                                        .nontemporal = drawn % (size_t)kinds >> t & 1};
    memset(others, GUARD, sizeof others);
    memset(got, GUARD, nbytes + 160);
    for (int s = 0; s < trial->nsrc; s++) {
        char *at = s == trial->alias ? got + trial->dst_shift
                   : s == second     ? others[0] + 3 + trial->dst_shift
                                     : work[s] + trial->src_shift[s];
        memcpy(at, inputs[s], nbytes);
        src[s] = at;
    }
    const struct tt_sources sources = {src, trial->raw, trial->nsrc};
    tt_reduce_to_with(kernels, &trial->reduction, targets, ntargets, &sources, trial->count,
                      trial->flags & ~(unsigned)TT_NONTEMPORAL);
    bool right = true;
    for (int t = 0; t < ntargets; t++) {
        const char *to = targets[t].data;
        right = right && memcmp(to, expected + trial->dst_shift, nbytes) == 0 &&
                (t == out && trial->dst_shift == 0 ? true : to[-1] == GUARD) && to[nbytes] == GUARD;
    }
    return right;
}

static bool same(const struct trial *trial, const struct tt_kernels *kernels)
{
    const size_t size = tt_type_size(trial->reduction.type), nbytes = trial->count * size;
    perform(trial, &tt_kernels_scalar, trial->flags & ~(unsigned)TT_NONTEMPORAL, expected);
    perform(trial, kernels, trial->flags, got);
    for (size_t i = 0; i < nbytes + 160; i++) {
        const bool inside = i - trial->dst_shift < nbytes;
        if (!inside && expected[i] != GUARD) {
            tt_test_fail(__FILE__, __LINE__, "scalar %s wrote %zu of %zu bytes past its result",
                         tt_type_name(trial->reduction.type), i, nbytes);
            return false;
        }
    }
    if (memcmp(expected, got, nbytes + 160) == 0) {
        if (reaches_all(trial, kernels, 2) && reaches_all(trial, kernels, 3)) return true;
        tt_test_fail(__FILE__, __LINE__,
                     "%s %s %s: nsrc %d count %zu flags %u alias %d dst+%zu: another result to "
                     "several targets",
                     kernels->name, tt_type_name(trial->reduction.type),
                     tt_op_name(trial->reduction.op), trial->nsrc, trial->count, trial->flags,
                     trial->alias, trial->dst_shift);
        return false;
    }
    size_t at = 0;
    while (expected[at] == got[at]) at++;
    const long long element = ((long long)at - (long long)trial->dst_shift) / (long long)size;
    tt_test_fail(__FILE__, __LINE__,
                 "%s %s %s: nsrc %d count %zu flags %u alias %d dst+%zu: element %lld differs "
                 "(byte %#x, scalar %#x)",
                 kernels->name, tt_type_name(trial->reduction.type),
                 tt_op_name(trial->reduction.op), trial->nsrc, trial->count, trial->flags,
                 trial->alias, trial->dst_shift, element, got[at] & 255, expected[at] & 255);
    return false;
}

static bool compare_pair(const struct tt_kernels *kernels, enum tt_type type, enum tt_op op,
                         uint64_t *seed)
{
    static const size_t large[] = {127, 255, 256, 257, 511, 1000, 2049, 4099, MAX_COUNT};
    struct trial trial;
    for (size_t count = 0; count <= 70; count++) {
        for (int round = 0; round < 4; round++) {
            draw(&trial, type, op, count, seed);
            if (!same(&trial, kernels)) return false;
        }
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        draw(&trial, type, op, large[i], seed);
        if (!same(&trial, kernels)) return false;
    }
    return true;
}

static void compare_all(int index)
{
    bool runs = false;
    const struct tt_kernels *kernels = tt_kernels_get(index, &runs);
    if (!kernels) SKIP("this build has no such instruction set");
    if (!runs) SKIP("this CPU has no such instruction set");
    uint64_t seed = 20240607;
    printf("%s: seed %llu\n", kernels->name, (unsigned long long)seed);
    for (int type = 0; type < TT_NTYPES; type++)
        for (int op = 0; op < TT_NOPS; op++)
            if (tt_op_supports((enum tt_op)op, (enum tt_type)type) &&
                !compare_pair(kernels, (enum tt_type)type, (enum tt_op)op, &seed))
                return;
}

TEST(kernels, scalar_gives_the_same_bits_to_one_target_and_to_several)
{
    compare_all(0);
}

TEST(kernels, avx2_gives_the_bits_of_scalar_for_every_type_and_operation)
{
    compare_all(1);
}

TEST(kernels, avx512_gives_the_bits_of_scalar_for_every_type_and_operation)
{
    compare_all(2);
}

/* 65536 elements: each value of a 16-bit type, or each pair of values of an 8-bit type. */
static void compare_exhaustively(int index)
{
    static uint16_t a[65536], b[65536], x[65536], y[65536];
    static const enum tt_op ops[] = {TT_SUM, TT_PROD, TT_MAX, TT_MIN, TT_AVG};
    bool runs = false;
    const struct tt_kernels *kernels = tt_kernels_get(index, &runs);
    if (!kernels) SKIP("this build has no such instruction set");
    if (!runs) SKIP("this CPU has no such instruction set");
    uint64_t seed = 7;
    for (int type = 0; type < TT_NTYPES; type++) {
        const size_t size = tt_type_size((enum tt_type)type);
        if (size > 2) continue;
        for (unsigned round = 0; round < (size == 1 ? 1 : 24); round++) {
            const uint16_t other = (uint16_t)random_next(&seed);
            for (unsigned i = 0; i < 65536; i++) {
                if (size == 1) {
                    ((uint8_t *)a)[i] = (uint8_t)(i >> 8);
                    ((uint8_t *)b)[i] = (uint8_t)i;
                } else {
                    a[i] = (uint16_t)i;
                    b[i] = round % 2 ? other : (uint16_t)random_next(&seed);
                }
            }
            for (int o = 0; o < 5; o++) {
                const struct tt_reduction reduction = {
                    .type = (enum tt_type)type, .op = ops[o], .nranks = 3};
                const void *src[] = {a, b};
                tt_reduce_with(&tt_kernels_scalar, &reduction, x, src, 2, 65536, 0);
                tt_reduce_with(kernels, &reduction, y, src, 2, 65536, 0);
                CHECK_MESSAGE(memcmp(x, y, 65536 * size) == 0, "%s %s %s differs from scalar",
                              kernels->name, tt_type_name((enum tt_type)type), tt_op_name(ops[o]));
            }
        }
    }
}

TEST(kernels, avx2_gives_the_bits_of_scalar_for_every_small_value)
{
    compare_exhaustively(1);
}

TEST(kernels, avx512_gives_the_bits_of_scalar_for_every_small_value)
{
    compare_exhaustively(2);
}

/* Quotients fall near every tie, subnormal ones too. */
TEST(kernels, averages_of_every_small_value_round_alike)
{
    static uint16_t a[65536], x[65536], y[65536];
    static const enum tt_type types[] = {TT_FLOAT16, TT_BFLOAT16, TT_FLOAT8E4M3, TT_FLOAT8E5M2,
                                         TT_INT16,   TT_UINT16,   TT_INT8,       TT_UINT8};
    for (unsigned i = 0; i < 65536; i++) a[i] = (uint16_t)i;
    const void *src[] = {a};
    for (int index = 1; index <= 2; index++) {
        bool runs = false;
        const struct tt_kernels *kernels = tt_kernels_get(index, &runs);
        if (!kernels || !runs) SKIP("this build or CPU lacks AVX2 or AVX-512");
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            for (int nranks = 1; nranks < 20; nranks++) {
                const struct tt_reduction reduction = {types[t], TT_AVG, nranks, {0}};
                tt_reduce_with(&tt_kernels_scalar, &reduction, x, src, 1, 65536,
                               TT_RAW | TT_FINISH);
                tt_reduce_with(kernels, &reduction, y, src, 1, 65536, TT_RAW | TT_FINISH);
                CHECK_MESSAGE(memcmp(x, y, 65536 * tt_type_size(types[t])) == 0,
                              "%s %s / %d differs from scalar", kernels->name,
                              tt_type_name(types[t]), nranks);
            }
        }
    }
}

/* Whether a copy of nbytes from `shift` bytes after a cache line to `at` after one is right, and
 * changes nothing else. */
static bool copies(void (*copy)(void *dst, const void *src, size_t nbytes), size_t nbytes,
                   size_t shift, size_t at)
{
    enum { MOST = 3000 };
    static _Alignas(64) char from[MOST + 64], to[MOST + 192];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (char)(i * 7 + i / 256);
    memset(to, GUARD, sizeof to);
    copy(to + 64 + at, from + shift, nbytes);
    for (size_t i = 0; i < 64 + at; i++)
        if (to[i] != GUARD) return false;
    for (size_t i = 64 + at + nbytes; i < sizeof to; i++)
        if (to[i] != GUARD) return false;
    return memcmp(to + 64 + at, from + shift, nbytes) == 0;
}

TEST(kernels, each_set_copies_every_length_from_and_to_every_misalignment)
{
    static const size_t lengths[] = {0,   1,   63,  64,  65,   255,  256,  257, 319,
                                     320, 321, 511, 512, 1000, 1024, 2047, 3000};
    for (int index = 0; index <= 2; index++) {
        bool runs = false;
        const struct tt_kernels *kernels = tt_kernels_get(index, &runs);
        if (!kernels || !runs) SKIP("this build or CPU lacks AVX2 or AVX-512");
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (size_t shift = 0; shift < 64; shift += 1 + shift % 5)
                for (size_t at = 0; at < 64; at += 1 + at % 3) {
                    CHECK_MESSAGE(copies(kernels->copy, lengths[i], shift, at),
                                  "%s: copy of %zu bytes, %zu to %zu", kernels->name, lengths[i],
                                  shift, at);
                    CHECK_MESSAGE(copies(kernels->stream, lengths[i], shift, at),
                                  "%s: stream of %zu bytes, %zu to %zu", kernels->name, lengths[i],
                                  shift, at);
                }
        kernels->fence();
    }
}

TEST(kernels, a_mask_chooses_no_better_set_and_a_wrong_one_is_ignored)
{
    CHECK_STR(tt_kernels_choose("scalar")->name, "scalar");
    const struct tt_kernels *best = tt_kernels_choose("");
    CHECK(tt_kernels_choose("avx512") == best);
    CHECK(tt_kernels_choose("sse9") == best);
    bool runs = false;
    const struct tt_kernels *avx2 = tt_kernels_get(1, &runs);
    if (!avx2 || !runs) SKIP("this CPU has no AVX2");
    CHECK(tt_kernels_choose("avx2") == avx2);
    CHECK(strstr(tt_isa_found(), "avx2") != NULL);
    CHECK(tt_kernels_get(-1, &runs) == NULL && tt_kernels_get(3, &runs) == NULL);
}
