/* Planted mistakes (mistakes.cu, *.cuh): each is reported, at the right line, and its correct twin
 * is silent, whatever the seed. VGPU_SEEDS asks for more seeds than 20 (4 under AddressSanitizer),
 * VGPU_ONLY=text for kernels whose names hold it. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/session/session.h>

#define FOLDER TUTTI_SOURCE_DIR "/vgpu/mistakes/"
enum { KERNELS = 80, LINES = 6, N = 1000 };
#ifdef __SANITIZE_ADDRESS__ /* slower */
enum { SEEDS = 4 };
#else
enum { SEEDS = 20 };
#endif

struct kernel {
    char name[64], kind[16];
    unsigned nblocks, nthreads, dynamic_shared, lines[LINES], nlines;
    const char *file; /* that holds it */
};

static const char *const files[] = {"block.cuh", "flags.cuh", "grid.cuh", "addresses.cuh"};
enum { FILES = sizeof files / sizeof *files };

static struct kernel kernels[KERNELS];
static unsigned nkernels;

/* Reads the comments of a file: how each kernel is launched and which lines are marked. */
static bool read_file(const char *name)
{
    char path[256], line[1024], mark[64];
    snprintf(path, sizeof path, FOLDER "%s", name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    struct kernel next = {.file = name};
    for (unsigned number = 1; fgets(line, sizeof line, file) && nkernels < KERNELS; number++) {
        sscanf(line, "//: %u %u %u %15s", &next.nblocks, &next.nthreads, &next.dynamic_shared,
               next.kind);
        if (sscanf(line, "KERNEL(%63[a-z_])", next.name) == 1) kernels[nkernels++] = next;
        const char *at = strstr(line, "// @");
        if (!at || sscanf(at, "// @%63[a-z_]", mark) != 1 || !nkernels) continue;
        struct kernel *k = &kernels[nkernels - 1];
        CHECK_MESSAGE(!strcmp(mark, k->name), "line %u marks %s in %s", number, mark, k->name);
        if (k->nlines < LINES) k->lines[k->nlines++] = number;
    }
    fclose(file);
    return true;
}

static bool read_kernels(void)
{
    nkernels = 0;
    for (unsigned i = 0; i < FILES; i++)
        if (!read_file(files[i])) return false;
    return nkernels > 0;
}

static enum vg_fault fault_of(const char *kind)
{
    if (!strcmp(kind, "address")) return VG_FAULT_ADDRESS;
    if (!strcmp(kind, "misaligned")) return VG_FAULT_MISALIGNED;
    if (!strcmp(kind, "undefined")) return VG_FAULT_UNDEFINED;
    return strcmp(kind, "barrier") ? VG_FAULT_NONE : VG_FAULT_BARRIER;
}

static bool names_line(const struct kernel *k, const char *report)
{
    for (unsigned i = 0; i < k->nlines; i++) {
        char text[48];
        const int n = snprintf(text, sizeof text, "%s:%u", k->file, k->lines[i]);
        for (const char *at = strstr(report, text); at; at = strstr(at + 1, text))
            if (at[n] < '0' || at[n] > '9') return true;
    }
    return k->nlines == 0;
}

struct result {
    bool reported, right_line, silent;
    char report[2048];
};

static int run(const struct kernel *k, const char *ptx, size_t nbytes, uint64_t seed,
               struct result *result)
{
    const struct vg_machine_settings settings = {.seed = seed,
                                                 .shuffled_blocks = !strstr(k->name, "resident"),
                                                 .strict_vectors = true,
                                                 .check_undefined = true};
    char error[512];
    struct vs_session *s = vs_open(&settings, ptx, nbytes, error);
    if (!s) {
        tt_test_fail(__FILE__, __LINE__, "%s", error);
        return -1;
    }
    struct vg_region *out = vs_buffer(s, 65536, "out", false),
                     *flags = vs_buffer(s, 4096, "flags", false);
    struct vg_region *in = vs_buffer(s, N * 4, "in", false), *good = vs_buffer(s, 4, "good", false);
    for (uint32_t i = 0; i < N; i++) memcpy(in->bytes + i * 4, &i, 4);
    const struct {
        uint64_t out, flags, in;
        uint32_t n, unused;
        uint64_t good;
    } params = {out->address, flags->address, in->address, N, 0, good->address};
    const int status = vs_launch(s, k->name, k->nblocks, k->nthreads, k->dynamic_shared, &params);
    uint32_t is_good;
    memcpy(&is_good, good->bytes, 4);
    const bool is_value = !strcmp(k->kind, "wrong");
    result->silent = status == 0 && s->races == 0 && (!is_value || is_good);
    result->reported = !result->silent;
    if (fault_of(k->kind)) result->reported = status == 1 && s->fault == fault_of(k->kind);
    if (!strcmp(k->kind, "wait")) result->reported = s->waits || s->fault == VG_FAULT_BARRIER;
    result->right_line = result->reported && names_line(k, s->report);
    snprintf(result->report, sizeof result->report, "%.2000s", s->report);
    vs_close(s);
    return status;
}

static bool wanted(const struct kernel *k)
{
    const char *only = getenv("VGPU_ONLY");
    return !only || strstr(k->name, only);
}

static unsigned seeds(void)
{
    const char *text = getenv("VGPU_SEEDS");
    return text ? (unsigned)atoi(text) : SEEDS;
}

TEST(vgpu_mistakes, planted_mistakes_are_reported_at_their_lines)
{
    size_t nbytes;
    char *ptx = vs_read_file(FOLDER "wrong.ptx", &nbytes);
    REQUIRE(ptx && read_kernels());
    printf("%-40s %-12s of %u seeds: reported, at the right line\n", "mistake", "kind", seeds());
    for (unsigned i = 0; i < nkernels; i++) {
        const struct kernel *k = &kernels[i];
        if (!wanted(k)) continue;
        unsigned reported = 0, right = 0;
        struct result result = {0};
        for (uint64_t seed = 1; seed <= seeds(); seed++) {
            run(k, ptx, nbytes, seed, &result);
            reported += result.reported;
            right += result.right_line;
        }
        printf("%-40s %-12s %u %u\n", k->name, k->kind, reported, right);
        CHECK_MESSAGE(right > 0, "%s: %u reports, none names a marked line; the last run said:\n%s",
                      k->name, reported, result.report);
    }
    CHECK(nkernels >= 40);
    free(ptx);
}

TEST(vgpu_mistakes, the_correct_twins_are_silent)
{
    size_t nbytes;
    char *ptx = vs_read_file(FOLDER "right.ptx", &nbytes);
    REQUIRE(ptx && read_kernels());
    for (unsigned i = 0; i < nkernels; i++)
        for (uint64_t seed = 1; seed <= seeds() && wanted(&kernels[i]); seed++) {
            struct result result = {0};
            run(&kernels[i], ptx, nbytes, seed, &result);
            CHECK_MESSAGE(result.silent, "%s, seed %llu:\n%s", kernels[i].name,
                          (unsigned long long)seed, result.report);
            if (!result.silent) break;
        }
    free(ptx);
}
