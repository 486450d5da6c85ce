/* Runs every litmus test in every variant, scope and placement many millions of times and prints
 * how often each outcome came. `litmus --ptx FOLDER` only writes the PTX, without a GPU. */
#include "litmus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { THREADS = 384, ROUNDS = 8, BINS = 4096, TEXT = 1 << 20, MOST_STRIDE = 64 };

struct grid {
    unsigned nblocks, ninstances;
    CUdeviceptr memory, out, counter, bins;
    CUfunction tally;
};

static const unsigned strides[] = {4, 64, 32, 8};

static void name_of(char *name, size_t size, size_t variant, int scope)
{
    snprintf(name, size, "v%zu_%d", variant, scope);
}

/* All variants of a test in one module. */
static char *module_text(const struct litmus_test *test)
{
    char *text = malloc(TEXT), name[32];
    size_t length = (size_t)snprintf(text, TEXT, "%s", litmus_header);
    for (size_t v = 0; v < litmus_nvariants; v++)
        for (int scope = 0; scope < (litmus_variants[v].scoped ? 3 : 1); scope++) {
            name_of(name, sizeof name, v, scope);
            length += litmus_ptx(test, &litmus_variants[v], litmus_scopes[scope], name,
                                 text + length, TEXT - length);
        }
    return text;
}

static void run_once(const struct grid *grid, const struct litmus_test *test, CUfunction kernel,
                     unsigned same, unsigned seed)
{
    const struct litmus_shape shape = litmus_shape(test);
    unsigned mask = 1, stride = strides[seed % 4], odd = (unsigned)mix64(seed) | 1;
    while (mask < grid->ninstances * (unsigned)shape.nvariables) mask *= 2;
    mask--;
    unsigned apart = 1 + (unsigned)shape.nroles * (unsigned)(mix64(seed + 1) % 5);
    if (same) apart = 1 + (unsigned)shape.nroles * (unsigned)(mix64(seed + 1) % 2);
    if (same && (apart * (unsigned)(shape.nroles - 1)) % 12 == 0) apart = 1;
    unsigned jitter = seed / 4 % 3 == 0 ? 0 : seed / 4 % 3 == 1 ? 15 : 127;
    unsigned nrounds = ROUNDS, nloads = (unsigned)shape.nloads,
             nvariables = (unsigned)shape.nvariables, final = test->final,
             ninstances = grid->ninstances;
    CHECK(cu.MemsetD32Async(grid->memory, 0, (size_t)(mask + 1) * stride * ROUNDS / 4, NULL));
    CHECK(cu.MemsetD32Async(grid->counter, 0, 1, NULL));
    CHECK(cu.LaunchCooperativeKernel(kernel, grid->nblocks, 1, 1, THREADS, 1, 1, 0, NULL,
                                     (void *[]){(void *)&grid->memory, (void *)&grid->out,
                                                (void *)&grid->counter, &mask, &stride, &odd,
                                                &apart, &same, &jitter, &nrounds}));
    CHECK(
        cu.LaunchKernel(grid->tally, 64, ROUNDS, 1, 256, 1, 1, 0, NULL,
                        (void *[]){(void *)&grid->out, (void *)&grid->memory, &nloads, &nvariables,
                                   &final, &mask, &stride, &odd, &ninstances, (void *)&grid->bins},
                        NULL));
}

static void print_outcomes(const struct grid *grid, const struct litmus_test *test,
                           const char *variant, const char *scope, bool same)
{
    static unsigned long long bins[BINS];
    const struct litmus_shape shape = litmus_shape(test);
    const int nfields = shape.nloads + (test->final ? shape.nvariables : 0);
    CHECK(cu.MemcpyDtoH(bins, grid->bins, sizeof bins));
    row_begin("litmus", test->name);
    row_text("test", test->text);
    row_text("variant", variant);
    row_text("scope", scope);
    row_text("placement", same ? "same block" : "different blocks");
    printf(", \"outcomes\": {");
    const char *comma = "";
    for (int bin = 0; bin < BINS; bin++) {
        if (!bins[bin]) continue;
        printf("%s\"", comma);
        comma = ", ";
        for (int i = 0; i < nfields; i++) {
            if (test->final && i == shape.nloads) putchar(':');
            putchar('0' + (bin >> 2 * (nfields - 1 - i) & 3));
        }
        printf("\": %llu", bins[bin]);
    }
    putchar('}');
    row_end();
}

int main(int argc, char **argv)
{
    const unsigned nlaunches = argc > 1 && atoi(argv[1]) > 0 ? (unsigned)atoi(argv[1]) : 24;
    if (argc > 2 && !strcmp(argv[1], "--ptx")) {
        for (size_t t = 0; t < litmus_ntests; t++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/litmus%zu.ptx", argv[2], t);
            FILE *file = fopen(path, "w");
            if (!file) die("%s cannot be written", path);
            fputs(module_text(&litmus_tests[t]), file);
            fclose(file);
        }
        return 0;
    }
    driver_open(true);
    struct grid grid = {.nblocks = (unsigned)nprocessors() * 4 / 12 * 12};
    grid.ninstances = grid.nblocks * THREADS;
    grid.memory = device_alloc((size_t)4 * 262144 * MOST_STRIDE * ROUNDS);
    grid.out = device_alloc((size_t)grid.ninstances * ROUNDS * 4 * 4);
    grid.counter = device_alloc(4096);
    grid.bins = device_alloc(sizeof(unsigned long long) * BINS);
    grid.tally = get_function(load_module("litmus.fatbin"), "tally");
    for (size_t t = 0; t < litmus_ntests; t++) {
        char *text = module_text(&litmus_tests[t]);
        CUmodule module = load_ptx(text);
        for (size_t v = 0; v < litmus_nvariants; v++)
            for (int scope = 0; scope < (litmus_variants[v].scoped ? 3 : 1); scope++)
                for (unsigned same = 0; same < 2; same++) {
                    char name[32];
                    name_of(name, sizeof name, v, scope);
                    CUfunction kernel = get_function(module, name);
                    CHECK(cu.MemsetD8(grid.bins, 0, sizeof(unsigned long long) * BINS));
                    for (unsigned i = 0; i < nlaunches; i++)
                        run_once(&grid, &litmus_tests[t], kernel, same, i);
                    CHECK(cu.CtxSynchronize());
                    print_outcomes(&grid, &litmus_tests[t], litmus_variants[v].name,
                                   litmus_variants[v].scoped ? litmus_scopes[scope] : "none", same);
                }
        CHECK(cu.ModuleUnload(module));
        free(text);
    }
    return 0;
}
