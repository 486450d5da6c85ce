/* kernels.cu, compiled by nvcc, against what the host computes. In ./check for one target;
 * VGPU_COMPILED=all: for compute_75 to compute_100, with -G too; VGPU_COMPILED=FILE: that PTX. */
#include <math.h>
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vgpu/session/session.h>

enum { THREADS = 128, BLOCKS = 2, N = THREADS * BLOCKS, IN = 4 * N, OUT = 24 * N };

static uint32_t input[IN];
typedef void expect(uint32_t *out);

static void block_reduce(uint32_t *out)
{
    for (int i = 0; i < N; i++) out[i / THREADS] += input[i];
}

static void block_scan(uint32_t *out)
{
    for (int i = 0; i < N; i++) out[i] = i % THREADS ? out[i - 1] + input[i - 1] : 0;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void block_sort(uint32_t *out)
{
    memcpy(out, input, N * sizeof *out);
    for (int b = 0; b < BLOCKS; b++) qsort(out + b * THREADS, THREADS, sizeof *out, ascending);
}

static void warp_scan(uint32_t *out)
{
    for (int i = 0; i < N; i++) out[i] = input[i] + (i % 32 ? out[i - 1] : 0);
}

static void block_load_store(uint32_t *out)
{
    for (uint32_t i = 0; i < IN; i++) out[i] = input[i] + i % 4;
}

static void groups(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        out[i] = 16 + 3;
        for (int k = 0; k < 16; k++) out[i] += input[i / 16 * 16 + k];
        int first = i / 32 * 32;
        while (first % THREADS % 3 != 0) first++;
        if (i == first) out[i] += 1000;
    }
}

static void libcu_atomics(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        out[0] += input[i];
        out[1] = input[i] > out[1] ? input[i] : out[1];
    }
    out[2] = 2 * N;
    out[3] = N;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* To as many bits behind the first one, ties to even. */
static float rounded(float x, int nbits)
{
    if (x == 0) return x;
    int exponent;
    const float fraction = frexpf(x, &exponent);
    return ldexpf(nearbyintf(ldexpf(fraction, nbits + 1)), exponent - nbits - 1);
}

static void halves(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        const float x = (float)(input[i] % 64) * 0.25f, h = 2 * x + 0.5f;
        out[4 * i] = bits_of(h);
        out[4 * i + 1] = bits_of((h + 1) * (h - 1));
        out[4 * i + 2] = bits_of(rounded(x + 1, 7));
        out[4 * i + 3] = bits_of(rounded(x, 3));
    }
}

static void virtuals(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        const uint32_t x = input[i] % 100;
        out[i] = x * (input[i] % 3 == 0 ? x : 7);
    }
}

static void recursion(uint32_t *out)
{
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t n = input[i] % 4;
        out[i] = i % 3 == 0 ? n + 1 : i % 3 == 1 ? n + 2 : 2 * n + 3;
    }
}

static void pointers(uint32_t *out)
{
    for (int i = 0; i < N; i++) out[i] = input[i] & 1 ? 0u - input[i] : 2 * input[i];
}

static uint32_t reversed(uint32_t x)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}

static void switches(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        uint32_t x = input[i];
        for (int k = 0; k < 4; k++) {
            const uint32_t next[9] = {x / 2 + 1,
                                      x ^ 0x55,
                                      x * 3 + 1,
                                      reversed(x),
                                      x - 11,
                                      x + (x >> 3),
                                      (uint32_t)__builtin_popcount(x) + 77,
                                      ~x,
                                      x << 1 | 1};
            x = next[x % 9];
        }
        out[i] = x;
    }
}

static void structs(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        for (uint32_t k = 0; k < 37; k++)
            out[i] = out[i] * 31 + input[i] + (k + 37 - input[i] % 37) % 37;
    }
}

static void ones(uint32_t *out)
{
    for (int i = 0; i < N; i++) out[i] = 1;
}

static void wide_integers(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        const uint32_t v = input[i];
        const uint64_t x = (uint64_t)v << 29 | v;
        const __int128 y = (__int128)x * x + 12345;
        const uint64_t both = (uint64_t)7 << 32 | v;
        uint32_t mixed = 0;
        for (int k = 0; k < 4; k++)
            mixed |= (uint32_t)(both >> ((0x6152 >> 4 * k & 7) * 8) & 255) << 8 * k;
        out[2 * i] = (uint32_t)(y >> 64) + (uint32_t)(x / (v | 1)) +
                     (uint32_t)((uint64_t)v * 77 >> 32) + (x ? (uint32_t)__builtin_clzll(x) : 64);
        out[2 * i + 1] = (uint32_t)(y / 1000003) + (uint32_t)(x % 1009) +
                         (uint32_t)__builtin_ffs((int)v) + mixed;
    }
}

static void votes(uint32_t *out)
{
    for (int i = 0; i < N; i++) {
        const uint32_t *warp = input + i / 32 * 32;
        uint32_t x = warp[i % 32 ^ 5], seven = 0, small = 1;
        for (int k = 0; k < 32; k++) {
            x += (uint32_t)(warp[k] % 3 == 0) + (uint32_t)(warp[k] % 4 == input[i] % 4) + warp[k];
            seven |= warp[k] == 7;
            small &= warp[k] < 5000;
        }
        out[i] = x + seven + 2 * small;
    }
}

static const struct {
    const char *name;
    expect *expect;
} kernels[] = {
    {"block_reduce", block_reduce},
    {"block_scan", block_scan},
    {"block_sort", block_sort},
    {"warp_scan", warp_scan},
    {"groups", groups},
    {"block_load_store", block_load_store},
    {"libcu_atomics", libcu_atomics},
    {"halves", halves},
    {"virtuals", virtuals},
    {"recursion", recursion},
    {"pointers", pointers},
    {"switches", switches},
    {"structs", structs},
    {"prints", ones},
    {"wide_integers", wide_integers},
    {"votes", votes},
};

static struct vs_session *session_open(const char *path)
{
    char error[512] = "";
    size_t nbytes = 0;
    const struct vg_machine_settings settings = {.seed = 1};
    char *text = vs_read_file(path, &nbytes);
    struct vs_session *s = text ? vs_open(&settings, text, nbytes, error) : NULL;
    CHECK_MESSAGE(s, "%s: %s", path, text ? error : "cannot be read");
    free(text);
    return s;
}

/* Runs a kernel of a new session; the session, or NULL after a failed check. */
static struct vs_session *run(const char *path, const char *kernel, struct vg_region **out)
{
    struct vs_session *s = session_open(path);
    if (!s) return NULL;
    struct vg_region *in = vs_buffer(s, sizeof input, "in", false);
    *out = vs_buffer(s, OUT * sizeof(uint32_t), "out", false);
    if (!in || !*out) abort();
    memcpy(in->bytes, input, sizeof input);
    const uint64_t params[2] = {(*out)->address, in->address};
    const int status = vs_launch(s, kernel, BLOCKS, THREADS, 0, params);
    CHECK_MESSAGE(status == 0 && s->races == 0, "%s of %s: %s", kernel, path, s->report);
    return s;
}

static void check_values(const char *path)
{
    static uint32_t expected[OUT];
    for (unsigned k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        struct vg_region *out;
        struct vs_session *s = run(path, kernels[k].name, &out);
        if (!s) return;
        memset(expected, 0, sizeof expected);
        kernels[k].expect(expected);
        const uint32_t *found = (const uint32_t *)(const void *)out->bytes;
        unsigned i = 0;
        while (i < OUT && found[i] == expected[i]) i++;
        CHECK_MESSAGE(i == OUT, "%s of %s: out[%u] is %u, expected %u", kernels[k].name, path, i,
                      found[i < OUT ? i : 0], expected[i < OUT ? i : 0]);
        if (!strcmp(kernels[k].name, "prints"))
            CHECK_MESSAGE(strstr(s->report, "0: nil  0.00 0 %\n") &&
                              strstr(s->report, "1: one  1.50 -5 %\n"),
                          "%s", s->report);
        vs_close(s);
    }
}

/* libdevice's functions are right to a few units of the last place of a float. */
static void check_math(const char *path)
{
    struct vg_region *out;
    struct vs_session *s = run(path, "math", &out);
    if (!s) return;
    for (int i = 0; i < N; i++) {
        const double d = 0.1 + (double)(input[i] % 1000) * 0.01;
        const double x = (double)(0.1f + (float)(input[i] % 1000) * 0.01f);
        const double expected[24] = {sin(x),
                                     cos(x),
                                     exp(x),
                                     log(x),
                                     pow(x, (double)1.7f),
                                     tanh(x),
                                     erf(x),
                                     atan2(x, 2),
                                     cbrt(x),
                                     sqrt(x),
                                     fmod(x, (double)0.3f),
                                     lgamma(x),
                                     sin(d),
                                     exp(d),
                                     log(d),
                                     pow(d, 1.7),
                                     tanh(d),
                                     erf(d),
                                     atan2(d, 2),
                                     cbrt(d),
                                     fmod(d, 0.3),
                                     sqrt(d),
                                     1 / d,
                                     tgamma(d)};
        for (int k = 0; k < 24; k++) {
            float found;
            memcpy(&found, out->bytes + ((size_t)i * 24 + (size_t)k) * 4, 4);
            const double error = fabs((double)found - expected[k]);
            CHECK_MESSAGE(error <= 1e-6 * fabs(expected[k]) + 4e-7,
                          "%s: function %d of %g: %g, expected %g", path, k, d, (double)found,
                          expected[k]);
        }
    }
    vs_close(s);
}

/* malloc and free of kernels have no heap: the kernel says so, and the others run. */
static void check_heap(const char *path)
{
    struct vs_session *s = session_open(path);
    if (!s) return;
    CHECK_EQ(vs_launch(s, "heap", BLOCKS, THREADS, 0, (uint64_t[2]){0}), -1);
    CHECK_MESSAGE(strstr(s->report, "malloc") && strstr(s->report, "not supported"), "%s",
                  s->report);
    vs_close(s);
}

static void check_file(const char *path)
{
    for (uint32_t i = 0; i < IN; i++) input[i] = (i * 2654435761u >> 7) % 5003;
    check_values(path);
    check_math(path);
    check_heap(path);
}

TEST(vgpu_compiled, kernels_that_nvcc_made_give_what_the_host_computes)
{
    static const char *const targets[] = {"90 -O3", "75 -O3 -lineinfo", "80 -G", "89 -O3",
                                          "90 -G",  "100 -O3"};
    const char *all = getenv("VGPU_COMPILED");
    if (all && strcmp(all, "all") != 0) {
        check_file(all);
        return;
    }
    const char *nvcc = system("command -v nvcc >/dev/null") == 0       ? "nvcc"
                       : access("/usr/local/cuda/bin/nvcc", X_OK) == 0 ? "/usr/local/cuda/bin/nvcc"
                                                                       : NULL;
    if (!nvcc) SKIP("no nvcc in PATH or /usr/local/cuda/bin");
    for (unsigned i = 0; i < (all ? sizeof targets / sizeof *targets : 1); i++) {
        char path[] = "/tmp/vgpu_compiled_XXXXXX", command[1024];
        const int fd = mkstemp(path);
        REQUIRE(fd >= 0);
        close(fd);
        snprintf(command, sizeof command,
                 "%s -ptx -std=c++17 -fmad=false -w -o %s -arch=compute_%s " TUTTI_SOURCE_DIR
                 "/vgpu/compiled/kernels.cu",
                 nvcc, path, targets[i]);
        CHECK_MESSAGE(system(command) == 0, "%s fails", command);
        check_file(path);
        unlink(path);
    }
}
