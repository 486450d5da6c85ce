/* Records what instructions give on this GPU: explicit outputs for edge operands, and sums over
 * random operands and, for one operand of at most 32 bits, over all of them.
 *
 * A sum is the sum of mix64(mix64(i) ^ output(i)) modulo 2^64. Operands of the grid: all
 * combinations of the edges, the last operand fastest. Random operands: fill_random of values.cu.
 * `values --ptx FOLDER` only writes the PTX, without a GPU. */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { RANDOM = 1 << 20, CHUNK = 1 << 24, MOST_GRID = 1 << 16, EXPLICIT = 256, TEXT = 1 << 20 };

static const uint64_t edges_f[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x807fffff, 0x00800000, 0x7f800000,
    0xff800000, 0x7fc00000, 0xff812345, 0x7f7fffff, 0x3f800001, 0x4b800001, 0x3effffff, 0x33800000,
    0x00400000, 0x80800001, 0x40490fdb, 0xc2c80000, 0x477fe000, 0x477ff000, 0x38800000, 0x33000001,
    0x4f000000, 0xcf000001, 0x4f800000, 0x5f000000, 0xdf000001, 0x3f000000, 0x3fc00000, 0x43e00001};
static const uint64_t edges_d[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000,
    0x0000000000000001, 0x800fffffffffffff, 0x0010000000000000, 0x7ff0000000000000,
    0xfff0000000000000, 0x7ff8000000000000, 0xfff0000012345678, 0x7fefffffffffffff,
    0x3ff0000000000001, 0x3ff0000010000000, 0x3ff0000030000000, 0x47efffffe0000000,
    0x47effffff0000000, 0x3810000000000000, 0x36a0000000000000, 0x3690000000000001,
    0x40effe0000000000, 0x40f0000000000000, 0x41e0000000000000, 0xc1e0000000200000,
    0x43e0000000000000, 0x3fe0000000000000, 0x3ff8000000000000, 0xc3e0000000000001};
static const uint64_t edges_h[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x83ff, 0x0400, 0x7c00,
                                   0xfc00, 0x7e00, 0xfd23, 0x7bff, 0x3c01, 0x3bff, 0x6400, 0x3800,
                                   0x0200, 0x8401, 0x5b00, 0xdc00, 0x4248, 0x7800, 0x1400, 0x3e00};
static const uint64_t edges_b[] = {0x0000, 0x8000, 0x3f80, 0xbf80, 0x0001, 0x807f, 0x0080, 0x7f80,
                                   0xff80, 0x7fc0, 0xff81, 0x7f7f, 0x3f81, 0x3f7f, 0x4b80, 0x3f00,
                                   0x0040, 0x8081, 0x4049, 0xc2c8, 0x4f00, 0xcf01, 0x3380, 0x3fc0};
static const uint64_t edges_w[] = {0x3c000000, 0x80003c01, 0x7bff0001, 0x7c0083ff,
                                   0x7e00fc00, 0xfd237bff, 0x0400bc00, 0x64003800,
                                   0x3bff0200, 0x5b008401, 0x00000000, 0x14003e00};
static const uint64_t edges_x[] = {0x3f800000, 0x80003f81, 0x7f7f0001, 0x7f80807f,
                                   0x7fc0ff80, 0xff817f7f, 0x0080bf80, 0x4b803f00,
                                   0x3f7f0040, 0x40498081, 0x00000000, 0x33803fc0};
static const uint64_t edges_r[] = {
    0,          1,  2,          0xffffffff, 0x80000000, 0x7fffffff, 31,         32,
    33,         63, 0x00010000, 0x0000ffff, 0x12345678, 0x89abcdef, 0xffff8000, 0x00000100,
    0x00007fff, 5,  0x01010101, 0xff00ff00, 64,         255,        0x00800001, 0xff7fffff};
static const uint64_t edges_l[] = {0,
                                   1,
                                   0xffffffffffffffff,
                                   0x8000000000000000,
                                   0x7fffffffffffffff,
                                   0x100000000,
                                   0xffffffff,
                                   0x80000000,
                                   0xffffffff80000000,
                                   0x123456789abcdef0,
                                   0x0020000000000001,
                                   0x0000000001000001,
                                   63,
                                   64,
                                   0xfffffffffffffffe,
                                   0xfedcba9876543210};
static const uint64_t edges_s[] = {0,  1,  2,  0xffff, 0x8000, 0x7fff,
                                   15, 16, 17, 0x1234, 0xff80, 255};
static const uint64_t edges_e[] = {0x0000, 0x8001, 0x7f7e, 0xff78, 0x3c3d, 0x7c7b, 0x0207, 0xfefd};

struct edges {
    char letter;
    const uint64_t *values;
    unsigned number;
};
#define EDGES(letter)                                                                              \
    {                                                                                              \
#letter[0], edges_##letter, sizeof edges_##letter / sizeof *edges_##letter                 \
    }
static const struct edges all_edges[] = {EDGES(f), EDGES(d), EDGES(h), EDGES(b), EDGES(w),
                                         EDGES(x), EDGES(r), EDGES(l), EDGES(s), EDGES(e)};

static const struct edges *edges_of(char letter)
{
    const struct edges *edges = all_edges;
    while (edges->letter != letter) edges++;
    return edges;
}

static CUdeviceptr out_memory, in_memory[3], sum_memory;
static CUfunction fill_numbers, fill_random, sum_outputs, errors;

static void launch(CUfunction function, unsigned nblocks, void **arguments)
{
    CHECK(cu.LaunchKernel(function, nblocks, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
}

static void compute(CUfunction kernel, uint32_t n)
{
    launch(kernel, (n + 255) / 256,
           (void *[]){&out_memory, &in_memory[0], &in_memory[1], &in_memory[2], &n});
}

static uint64_t sum_of(int nbytes, uint32_t first, uint32_t n)
{
    uint64_t sum = 0;
    CHECK(cu.MemcpyHtoD(sum_memory, &sum, 8));
    launch(sum_outputs, 1024, (void *[]){&out_memory, &nbytes, &first, &n, &sum_memory});
    CHECK(cu.MemcpyDtoH(&sum, sum_memory, 8));
    return sum;
}

static void store(char *to, int nbytes, uint64_t value)
{
    memcpy(to, &value, (size_t)nbytes);
}

/* Operands of the grid, on the device; returns their number, a multiple of 32: filled up from the
 * beginning, so that warps are whole. */
static uint32_t fill_grid(const char *in)
{
    const size_t nin = strlen(in);
    unsigned lengths[3] = {1, 1, 1};
    uint32_t n = 1;
    for (size_t k = 0; k < nin; k++) {
        lengths[k] = edges_of(in[k])->number;
        if (nin == 3 && lengths[k] > 16) lengths[k] = 16;
        n *= lengths[k];
    }
    const uint32_t padded = (n + 31) / 32 * 32;
    for (size_t k = 0; k < nin; k++) {
        const int nbytes = operand_bytes(in[k]);
        char *operands = calloc(padded, (size_t)nbytes);
        unsigned below = 1;
        for (size_t m = k + 1; m < nin; m++) below *= lengths[m];
        for (uint32_t i = 0; i < padded; i++)
            store(operands + i * (size_t)nbytes, nbytes,
                  edges_of(in[k])->values[i % n / below % lengths[k]]);
        CHECK(cu.MemcpyHtoD(in_memory[k], operands, (size_t)padded * (size_t)nbytes));
        free(operands);
    }
    return padded;
}

static void print_explicit(int nbytes, uint32_t n)
{
    static uint64_t room[EXPLICIT];
    const char *bytes = (const char *)room;
    if (n > EXPLICIT) n = EXPLICIT;
    CHECK(cu.MemcpyDtoH(room, out_memory, (size_t)n * (size_t)nbytes));
    printf(", \"outputs\": \"");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t value = 0;
        memcpy(&value, bytes + i * (size_t)nbytes, (size_t)nbytes);
        printf("%s%llx", i ? " " : "", (unsigned long long)value);
    }
    printf("\"");
}

static const char *const functions[] = {"rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos", "tanh"};

/* Sums over all operands of 16 or 32 bits, for each of 256 (or one) parts of them. */
static void print_all(CUfunction kernel, const char *name, char in, int nbytes)
{
    const int in_bytes = operand_bytes(in);
    if (in_bytes == 2) {
        uint16_t *all = malloc(65536 * 2);
        for (unsigned i = 0; i < 65536; i++) all[i] = (uint16_t)i;
        CHECK(cu.MemcpyHtoD(in_memory[0], all, 65536 * 2));
        free(all);
        compute(kernel, 65536);
        printf(", \"sum_of_all\": \"%016llx\"", (unsigned long long)sum_of(nbytes, 0, 65536));
        return;
    }
    int function = -1;
    for (int f = 0; f < 8; f++)
        if (strstr(name, ".approx") && !strncmp(name, functions[f], strlen(functions[f])) &&
            name[strlen(functions[f])] == '.')
            function = f;
    uint64_t worst[2] = {0, 0};
    float most = 3.4028235e38f;
    const CUdeviceptr worst_memory = sum_memory + 64;
    if (function == 5 || function == 6) most = 3.14159265f;
    CHECK(cu.MemcpyHtoD(worst_memory, worst, 16));
    printf(", \"sums_of_all\": \"");
    for (unsigned part = 0; part < 256; part++) {
        uint32_t first = part << 24, n = CHUNK;
        launch(fill_numbers, CHUNK / 256, (void *[]){&in_memory[0], &first, &n});
        compute(kernel, n);
        printf("%s%016llx", part ? " " : "", (unsigned long long)sum_of(nbytes, first, n));
        if (function >= 0)
            launch(errors, 1024,
                   (void *[]){&out_memory, &function, &first, &n, &most, (void *)&worst_memory});
    }
    printf("\"");
    if (function < 0) return;
    double values[2];
    CHECK(cu.MemcpyDtoH(values, worst_memory, 16));
    row_number("most_ulps", values[0]);
    row_number("most_absolute", values[1]);
}

static void print_row(CUfunction kernel, const char *name, const struct family *family)
{
    const size_t nin = strlen(family->in);
    const char out = *family->out == 'm' ? *family->in : *family->out;
    const int nbytes = operand_bytes(out);
    row_begin("values", name);
    row_text("out", family->out);
    row_text("in", family->in);
    const uint32_t n = fill_grid(family->in);
    compute(kernel, n);
    row_number("grid", n);
    printf(", \"sum_of_grid\": \"%016llx\"", (unsigned long long)sum_of(nbytes, 0, n));
    print_explicit(nbytes, n);
    for (uint32_t k = 0; k < nin; k++) {
        int in_bytes = operand_bytes(family->in[k]), near = family->in[k];
        uint32_t many = RANDOM;
        launch(fill_random, RANDOM / 256, (void *[]){&in_memory[k], &in_bytes, &near, &k, &many});
    }
    compute(kernel, RANDOM);
    printf(", \"sum_of_random\": \"%016llx\"", (unsigned long long)sum_of(nbytes, 0, RANDOM));
    if (nin == 1 && operand_bytes(*family->in) <= 4) print_all(kernel, name, *family->in, nbytes);
    CHECK(cu.CtxSynchronize());
    row_end();
}

static char *family_ptx(const struct family *family)
{
    char *ptx = malloc(TEXT), text[512];
    size_t length = (size_t)snprintf(ptx, TEXT, ".version 8.6\n.target sm_90\n.address_size 64\n");
    for (int m = 0; family_member(family, m, text, sizeof text); m++)
        length += values_ptx(text, family->out, family->in, m, ptx + length, TEXT - length);
    return ptx;
}

static void write_ptx(const char *folder)
{
    for (size_t f = 0; f < nfamilies; f++) {
        char path[4096], *ptx = family_ptx(&families[f]);
        snprintf(path, sizeof path, "%s/values%03zu.ptx", folder, f);
        FILE *file = fopen(path, "w");
        if (!file) die("%s cannot be written", path);
        fputs(ptx, file);
        fclose(file);
        free(ptx);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "--ptx")) {
        write_ptx(argv[2]);
        return 0;
    }
    driver_open(true);
    CUmodule helpers = load_module("values.fatbin");
    fill_numbers = get_function(helpers, "fill_numbers");
    fill_random = get_function(helpers, "fill_random");
    sum_outputs = get_function(helpers, "sum_outputs");
    errors = get_function(helpers, "errors");
    out_memory = device_alloc((size_t)CHUNK * 8);
    for (int k = 0; k < 3; k++) in_memory[k] = device_alloc((size_t)CHUNK * 8);
    sum_memory = device_alloc(4096);
    for (size_t e = 0; e < sizeof all_edges / sizeof *all_edges; e++) {
        row_begin("values", "edges");
        printf(", \"letter\": \"%c\", \"values\": \"", all_edges[e].letter);
        for (unsigned i = 0; i < all_edges[e].number; i++)
            printf("%s%llx", i ? " " : "", (unsigned long long)all_edges[e].values[i]);
        printf("\"");
        row_end();
    }
    for (size_t f = 0; f < nfamilies; f++) {
        char *ptx = family_ptx(&families[f]), text[512];
        CUmodule module;
        const CUresult result = cu.ModuleLoadDataEx(&module, ptx, 0, NULL, NULL);
        for (int m = 0; family_member(&families[f], m, text, sizeof text); m++) {
            char name[16];
            snprintf(name, sizeof name, "k%d", m);
            if (result == CUDA_SUCCESS) {
                print_row(get_function(module, name), text, &families[f]);
            } else {
                row_begin("values", text);
                row_result("result", result);
                row_end();
            }
        }
        if (result == CUDA_SUCCESS) CHECK(cu.ModuleUnload(module));
        free(ptx);
    }
    return 0;
}
