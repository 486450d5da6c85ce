/* What an H100 computed (vgpu/probes/values, docs/cuda-measured.md) is what the handlers
 * compute, bit for bit; the approximations stay within the manual's bounds. A million random
 * operands are given to every eighth instruction (every 64th under AddressSanitizer), with
 * VGPU_VALUES=all to each (two minutes);
 * VGPU_VALUES_PARTS=256 gives all operands of 32 bits (hours), VGPU_VALUES_ONLY=text takes the
 * instructions whose names hold the text. */
#include <math.h>
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/compute/compute.h>
#include <vgpu/compute/lanes.h>
#include <vgpu/compute/named.h>

#ifdef __SANITIZE_ADDRESS__
enum { RANDOM_EVERY = 64 };
#else
enum { RANDOM_EVERY = 8 };
#endif

static uint32_t frame[32][VG_LANES] __attribute__((aligned(128)));

struct setting {
    vg_compute *compute;
    struct vg_instr in;
    const struct vg_row *row;
    uint64_t outputs[VG_LANES];
};

static void put(unsigned unit, unsigned lane, unsigned nbytes, uint64_t value)
{
    if (nbytes == 8)
        ((vg_u64 *)(void *)frame[unit])[lane] = value;
    else
        frame[unit][lane] = (uint32_t)value;
}

static void run(struct setting *s)
{
    struct vg_registers registers = {.frame = frame};
    s->compute(&registers, &s->in, UINT32_MAX);
    const unsigned nbytes = vg_letter_bytes(s->row->out);
    for (unsigned lane = 0; lane < VG_LANES; lane++) {
        s->outputs[lane] = nbytes == 8 ? ((vg_u64 *)(void *)frame[0])[lane] : frame[0][lane];
        if (nbytes == 2) s->outputs[lane] &= 0xffff;
    }
}

enum source { GRID, RANDOM, ALL };

static void compare(const struct setting *s, unsigned i, uint64_t output, unsigned *wrong)
{
    const char *in = s->row->in;
    if (i >= s->row->noutputs || output == s->row->outputs[i] || (*wrong)++ >= 3) return;
    uint64_t operands[3] = {0};
    for (unsigned k = 0; in[k]; k++) operands[k] = vg_grid_operand(in, k, i);
    tt_test_fail(__FILE__, __LINE__, "%s of %llx, %llx, %llx is %llx, an H100 gives %llx",
                 s->row->name, (unsigned long long)operands[0], (unsigned long long)operands[1],
                 (unsigned long long)operands[2], (unsigned long long)output,
                 (unsigned long long)s->row->outputs[i]);
}

static uint64_t sum_over(struct setting *s, enum source source, uint32_t first, uint32_t n,
                         unsigned *wrong)
{
    const char *in = s->row->in;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i += VG_LANES) {
        for (unsigned k = 0; in[k]; k++) {
            const unsigned nbytes = vg_letter_bytes(in[k]);
            for (unsigned lane = 0; lane < VG_LANES; lane++) {
                const uint32_t at = first + i + lane;
                const uint64_t value = source == GRID     ? vg_grid_operand(in, k, at)
                                       : source == RANDOM ? vg_random_operand(in[k], k, at)
                                                          : at;
                put(4 + 4 * k, lane, nbytes, value);
            }
        }
        run(s);
        for (unsigned lane = 0; lane < VG_LANES; lane++) {
            sum += vg_mix(vg_mix(first + i + lane) ^ s->outputs[lane]);
            if (source == GRID) compare(s, i + lane, s->outputs[lane], wrong);
        }
    }
    return sum;
}

struct totals {
    unsigned exact, approximate, skipped;
    uint64_t checks;
};

static bool is_approximate(const struct vg_instr *in)
{
    return in->flags & (VG_APPROX | VG_FULL);
}

static void sums(struct setting *s, struct totals *totals)
{
    const struct vg_row *row = s->row;
    unsigned wrong = 0;
    CHECK_MESSAGE(sum_over(s, GRID, 0, row->grid, &wrong) == row->sum_of_grid,
                  "%s: the grid differs", row->name);
    totals->checks += row->grid;
    if (getenv("VGPU_VALUES") || totals->exact % RANDOM_EVERY == 0) {
        CHECK_MESSAGE(sum_over(s, RANDOM, 0, 1 << 20, NULL) == row->sum_of_random,
                      "%s: random operands differ", row->name);
        totals->checks += 1 << 20;
    }
    if (row->has_all) {
        CHECK_MESSAGE(sum_over(s, ALL, 0, 65536, NULL) == row->sum_of_all,
                      "%s: all operands differ", row->name);
        totals->checks += 65536;
    }
    const char *wanted = getenv("VGPU_VALUES_PARTS");
    const unsigned parts = wanted ? (unsigned)atoi(wanted) : 0;
    for (unsigned part = 0; row->has_parts && part < parts; part++) {
        CHECK_MESSAGE(sum_over(s, ALL, part << 24, 1 << 24, NULL) == row->sums_of_all[part],
                      "%s: operands %02x000000 to %02xffffff differ", row->name, part, part);
        totals->checks += 1 << 24;
    }
}

/* The exact function of a float, for those of one operand that are worth a bound. */
static double exactly(enum vg_op op, double x)
{
    switch (op) {
    case VG_RCP:
        return 1 / x;
    case VG_SQRT:
        return sqrt(x);
    case VG_RSQRT:
        return 1 / sqrt(x);
    case VG_SIN:
        return sin(x);
    case VG_COS:
        return cos(x);
    case VG_LG2:
        return log2(x);
    case VG_EX2:
        return exp2(x);
    default:
        return tanh(x);
    }
}

/* Ours and an H100's explicit outputs of an approximation of one fp32 operand: both within 2^-10 of
 * the exact value, where neither is small, and both infinite, NaN or zero together. The manual's
 * bounds are 2^-20 and smaller except tanh's 2^-11. */
static void approximate(struct setting *s)
{
    const struct vg_row *row = s->row;
    if (strcmp(row->in, "f") != 0 || row->out != 'f') return;
    for (unsigned i = 0; i < row->noutputs; i++) {
        put(4, i % VG_LANES, 4, vg_grid_operand(row->in, 0, i));
        if (i % VG_LANES != VG_LANES - 1) continue;
        run(s);
        for (unsigned lane = 0; lane < VG_LANES; lane++) {
            const uint64_t theirs = row->outputs[i - (VG_LANES - 1) + lane],
                           operand = frame[4][lane];
            const double ours = (double)vg_float32((uint32_t)s->outputs[lane]);
            const double other = (double)vg_float32((uint32_t)theirs),
                         x = (double)vg_float32((uint32_t)operand);
            const bool same =
                s->outputs[lane] == theirs || fabs(ours - other) <= fabs(other) * 0x1p-10 + 0x1p-20;
            const bool far = (s->in.op == VG_SIN || s->in.op == VG_COS) && fabs(x) > 100;
            CHECK_MESSAGE(same || far, "%s of %llx is %llx, an H100 gives %llx (exactly %g)",
                          row->name, (unsigned long long)operand,
                          (unsigned long long)s->outputs[lane], (unsigned long long)theirs,
                          exactly(s->in.op, x));
        }
    }
}

static void check_row(void *arg, const struct vg_row *row)
{
    struct totals *totals = arg;
    struct setting s = {.row = row};
    const char *only = getenv("VGPU_VALUES_ONLY");
    if (only && !strstr(row->name, only)) return;
    if (strchr(row->name, ' ') || row->out == 'm' || !vg_named(row->name, &s.in)) {
        totals->skipped++;
        return;
    }
    const bool narrow = s.in.type == VG_S8 || s.in.type == VG_S16;
    if (s.in.op == VG_CVT && narrow) s.in.count = (uint8_t)vg_letter_bytes(row->out);
    s.compute = vg_compute_find(&s.in);
    CHECK_MESSAGE(s.compute, "nobody computes %s", row->name);
    if (!s.compute) return;
    if (is_approximate(&s.in)) {
        totals->approximate++;
        approximate(&s);
        return;
    }
    totals->exact++;
    sums(&s, totals);
}

TEST(vgpu_compute, gives_the_bits_that_an_h100_gives)
{
    struct totals totals = {0};
    const int rows = vg_rows(check_row, &totals);
    if (rows < 0) SKIP("xz is not here: the values of an H100 cannot be read");
    printf("%d instructions: %u compared bit for bit (%llu results), %u approximate, %u of other "
           "folders\n",
           rows, totals.exact, (unsigned long long)totals.checks, totals.approximate,
           totals.skipped);
    CHECK(getenv("VGPU_VALUES_ONLY") || totals.exact > 500);
}

static uint32_t packed(unsigned bits, bool is_signed, uint32_t a, uint32_t b, uint32_t c)
{
    const struct vg_instr in = {
        .op = VG_CVT_PACK, .count = (uint8_t)bits, .mode = is_signed, .src = {4, 8, 12}};
    struct vg_registers registers = {.frame = frame};
    put(4, 3, 4, a);
    put(8, 3, 4, b);
    put(12, 3, 4, c);
    vg_compute_find (&in)(&registers, &in, 8);
    return frame[0][3];
}

/* The values of the manual's pseudo-code, by hand. */
TEST(vgpu_compute, packs_integers_as_the_manual_says)
{
    CHECK_EQ(packed(16, true, 40000, (uint32_t)-40000, 9), 0x7fff8000);
    CHECK_EQ(packed(16, false, 70000, (uint32_t)-1, 9), 0xffff0000);
    CHECK_EQ(packed(8, true, 200, (uint32_t)-3, 0x1234), 0x12347ffd);
    CHECK_EQ(packed(8, false, 200, 300, 0xabcd1234), 0x1234c8ff);
    CHECK_EQ(packed(4, false, 20, 5, 0x11), 0x11f5);
    CHECK_EQ(packed(2, true, (uint32_t)-9, 1, 3), 0x39);
}

static uint32_t computed(enum vg_op op, enum vg_type type, uint32_t flags, uint32_t a, uint32_t b)
{
    const struct vg_instr in = {
        .op = (uint8_t)op, .type = (uint8_t)type, .flags = flags, .src = {4, 8, 12}};
    struct vg_registers registers = {.frame = frame};
    put(4, 3, 4, a);
    put(8, 3, 4, b);
    vg_compute_find (&in)(&registers, &in, 8);
    return frame[0][3];
}

TEST(vgpu_compute, relu_gives_nothing_below_zero)
{
    CHECK_EQ(computed(VG_MIN, VG_S16X2, 0, 0xfffe0005, 0x0003fff0), 0xfffefff0);
    CHECK_EQ(computed(VG_MIN, VG_S16X2, VG_RELU, 0xfffe0005, 0x00030007), 0x00000005);
    CHECK_EQ(computed(VG_MAX, VG_S16X2, VG_RELU, 0xfffefff5, 0x0003fff0), 0x00030000);
    CHECK_EQ(computed(VG_MIN, VG_S32, VG_RELU, (uint32_t)-4, 9), 0);
    CHECK_EQ(computed(VG_MAX, VG_S32, VG_RELU, (uint32_t)-4, 9), 9);
    CHECK_EQ(computed(VG_MAX, VG_S32, VG_RELU, (uint32_t)-4, (uint32_t)-9), 0);
}
