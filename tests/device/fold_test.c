/* The folds of kernels against tt_reduce on the host, bit for bit, on the virtual GPU: the code for
 * sm_75, sm_80 and sm_90, which convert small floats in three ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datatype/datatype.h"
#include "fold_test.h"
#include "shim.h"
#include <vgpu/session/session.h>

enum { DATA = 8 << 20, CASES = 512, PAIRS = 65536 };

static const int architectures[] = {75, 80, 90};

/* A GPU with memory for data and cases; expected: what data shall be after the launch. */
struct bench {
    struct vs_session *session;
    struct vg_region *data, *cases;
    unsigned char *expected;
    struct fold_case *list;
    int ncases;
    size_t used; /* bytes of data */
    uint64_t seed;
};

static uint64_t draw(struct bench *bench)
{
    uint64_t z = bench->seed += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static size_t below(struct bench *bench, size_t n)
{
    return (size_t)(draw(bench) % n);
}

/* strict: vector accesses are several steps, which others come between. */
static bool open_bench(struct bench *bench, int architecture, uint64_t seed, bool strict)
{
    char path[512], error[512];
    size_t nbytes;
    *bench = (struct bench){.seed = seed};
    snprintf(path, sizeof path, "%s/fold_test_%d.ptx", TT_KERNELS, architecture);
    char *ptx = vs_read_file(path, &nbytes);
    if (!ptx) {
        tt_test_fail(__FILE__, __LINE__, "%s cannot be read", path);
        return false;
    }
    const struct vg_machine_settings settings = {
        .seed = seed, .shuffled_blocks = true, .strict_vectors = strict};
    bench->session = vs_open(&settings, ptx, nbytes, error);
    free(ptx);
    if (!bench->session) {
        tt_test_fail(__FILE__, __LINE__, "%s: %s", path, error);
        return false;
    }
    bench->data = vs_buffer(bench->session, DATA, "data", false);
    bench->cases = vs_buffer(bench->session, CASES * sizeof *bench->list, "cases", false);
    bench->expected = malloc(DATA);
    if (!bench->data || !bench->cases || !bench->expected) abort();
    bench->list = (struct fold_case *)(void *)bench->cases->bytes;
    return true;
}

static void close_bench(struct bench *bench)
{
    free(bench->expected);
    vs_close(bench->session);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

/* Special values as often as others: zeros, infinities, NaN with payloads, subnormals, values that
 * overflow, of every float type. */
static void fill(struct bench *bench, char *to, size_t nbytes, size_t element)
{
    for (size_t i = 0; i < nbytes; i += element) {
        uint64_t bits = draw(bench);
        const uint64_t signs = 0x8080808080808080;
        switch (draw(bench) % 12) {
        case 0:
            bits &= signs;
            break;
        case 1: /* infinity or NaN */
            bits |= 0x7f7f7f7f7f7f7f7f;
            break;
        case 2: /* infinities of two formats */
            bits = element == 8   ? (bits & (1ull << 63)) | 0x7ff0000000000000
                   : element == 4 ? (bits & 0x80000000) | 0x7f800000
                                  : (bits & signs) | (bits & 256 ? 0x7c007c7c : 0x7f807f80);
            break;
        case 3: /* subnormal, or small */
            bits &= 0x8007000f80038007 | (bits & 0xff);
            break;
        case 4: /* large and finite */
            bits = (bits & 0x807f00ff807f00ff) | 0x7f6f7b007f007a00;
            break;
        case 5:
        case 6:
        case 7: /* of one magnitude */
            bits = (bits & 0x800fffff80ffffff) | 0x3fe000003f000000;
            break;
        default:
            break;
        }
        memcpy(to + i, &bits, element);
    }
}

/* What tt_reduce makes of the case in `expected`, whose data are as they will be before the launch.
 */
static void expect(struct bench *bench, const struct fold_case *at)
{
    const struct tt_fold *fold = &at->fold;
    static char out[PAIRS * 8];
    struct tt_reduction reduction = {
        .type = (enum tt_type)fold->type, .op = (enum tt_op)fold->op, .nranks = (int)fold->nranks};
    const void *sources[FOLD_SOURCES];
    bool raw[FOLD_SOURCES];
    memcpy(reduction.scalar, &fold->scalar, sizeof reduction.scalar);
    if (at->scalar)
        memcpy(reduction.scalar, bench->expected + (at->scalar - bench->data->address),
               fold->element);
    for (uint32_t s = 0; s < at->nsources; s++)
        sources[s] = bench->expected + (at->sources[s] - bench->data->address);
    for (uint32_t s = 0; s < at->nsources; s++) raw[s] = at->raw >> s & 1;
    tt_reduce_to(&reduction, &(struct tt_target){.data = out}, 1,
                 &(struct tt_sources){sources, raw, (int)at->nsources}, at->count,
                 at->finish ? TT_FINISH : 0);
    for (uint32_t t = 0; t < at->ntargets; t++)
        memcpy(bench->expected + (at->targets[t] - bench->data->address), out,
               at->count * fold->element);
}

/* Takes an area that ends `after` bytes behind nbytes, from `shift` bytes on. */
static uint64_t take(struct bench *bench, size_t nbytes, size_t shift)
{
    const size_t at = bench->used + shift;
    bench->used = (at + nbytes + 31) / 16 * 16;
    if (bench->used + 64 > DATA) abort();
    return bench->data->address + at;
}

static unsigned char *host_of(struct bench *bench, uint64_t address)
{
    return bench->data->bytes + (address - bench->data->address);
}

static void begin_cases(struct bench *bench)
{
    memset(bench->data->bytes, 0x5a, bench->used);
    bench->ncases = 0;
    bench->used = 64;
}

static struct fold_case *add_case(struct bench *bench, enum tt_type type, enum tt_op op)
{
    if (bench->ncases == CASES) abort();
    struct fold_case *at = &bench->list[bench->ncases++];
    *at = (struct fold_case){
        .fold = {.type = type, .op = op, .element = (uint32_t)tt_type_size(type), .nranks = 1},
        .nsources = 1,
        .ntargets = 1};
    fill(bench, (char *)&at->fold.scalar, at->fold.element, at->fold.element);
    return at;
}

/* Where a case's memory lies within 16 bytes. */
enum placing { SAME, ELEMENTS, BYTES, NPLACINGS };

static size_t shift_of(struct bench *bench, enum placing placing, size_t element, size_t same)
{
    return placing == SAME       ? same
           : placing == ELEMENTS ? element * below(bench, 16 / element)
                                 : below(bench, 16);
}

static void place(struct bench *bench, struct fold_case *at, enum placing placing)
{
    const size_t element = at->fold.element, nbytes = at->count * element;
    const size_t same = element * below(bench, 16 / element);
    for (uint32_t s = 0; s < at->nsources; s++) {
        at->sources[s] = take(bench, nbytes, shift_of(bench, placing, element, same));
        fill(bench, (char *)host_of(bench, at->sources[s]), nbytes, element);
    }
    for (uint32_t t = 0; t < at->ntargets; t++)
        at->targets[t] = take(bench, nbytes, shift_of(bench, placing, element, same));
    if (below(bench, 3) == 0) at->targets[0] = at->sources[below(bench, at->nsources)];
}

/* ---- Running -------------------------------------------------------------------------------- */

static void show_difference(struct bench *bench, int architecture, size_t byte)
{
    const uint64_t address = bench->data->address + byte;
    for (int i = 0; i < bench->ncases; i++) {
        const struct fold_case *at = &bench->list[i];
        const uint32_t element = at->fold.element;
        for (uint32_t t = 0; t < at->ntargets; t++) {
            if (address < at->targets[t] || address >= at->targets[t] + at->count * element)
                continue;
            const size_t index = (size_t)(address - at->targets[t]) / element;
            uint64_t got = 0, expected = 0;
            memcpy(&got, host_of(bench, at->targets[t]) + index * element, element);
            memcpy(&expected,
                   bench->expected + (at->targets[t] - bench->data->address) + index * element,
                   element);
            tt_test_fail(__FILE__, __LINE__,
                         "sm_%d, %s %s of %u sources, %u targets, count %llu, nranks %u, scalar "
                         "%#llx, raw %#x finish %u: element %zu is %#llx, the host "
                         "has %#llx",
                         architecture, tt_op_name((enum tt_op)at->fold.op),
                         tt_type_name((enum tt_type)at->fold.type), at->nsources, at->ntargets,
                         (unsigned long long)at->count, at->fold.nranks,
                         (unsigned long long)at->fold.scalar, at->raw, at->finish, index,
                         (unsigned long long)got, (unsigned long long)expected);
            return;
        }
    }
    tt_test_fail(__FILE__, __LINE__, "sm_%d: byte %zu of no target was written", architecture,
                 byte);
}

/* Runs the cases, a block each, and compares all memory. */
static bool run(struct bench *bench, int architecture, const char *kernel, uint32_t nthreads)
{
    struct vs_session *session = bench->session;
    const struct fold_params params = {(const struct fold_case *)(uintptr_t)bench->cases->address};
    bench->used += 64; /* what follows the last area */
    memcpy(bench->expected, bench->data->bytes, bench->used);
    for (int i = 0; i < bench->ncases; i++) expect(bench, &bench->list[i]);
    vg_model_forget(vg_machine_model(session->machine), bench->data);
    vg_model_forget(vg_machine_model(session->machine), bench->cases);
    const int status = vs_launch(session, kernel, (uint32_t)bench->ncases, nthreads, 0, &params);
    if (status || session->races) {
        tt_test_fail(__FILE__, __LINE__, "sm_%d: %s", architecture, session->report);
        return false;
    }
    if (!memcmp(bench->expected, bench->data->bytes, bench->used)) return true;
    for (size_t i = 0; i < bench->used; i++)
        if (bench->expected[i] != bench->data->bytes[i]) {
            show_difference(bench, architecture, i);
            return false;
        }
    return true;
}

/* Calls body for every type and operation that there is, on each architecture. */
static void each_pair(bool (*body)(struct bench *bench, int architecture, enum tt_type type,
                                   enum tt_op op))
{
    for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
        struct bench bench;
        if (!open_bench(&bench, architectures[a], 1 + a, true)) return;
        bool go = true;
        for (int type = 0; type < TT_NTYPES; type++)
            for (int op = 0; op < TT_NOPS; op++)
                if (go && tt_op_supports((enum tt_op)op, (enum tt_type)type))
                    go = body(&bench, architectures[a], (enum tt_type)type, (enum tt_op)op);
        close_bench(&bench);
    }
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void draw_changes(struct bench *bench, struct fold_case *at)
{
    static const uint32_t nranks[] = {1, 2, 3, 5, 7, 8, 10, 13, 1000, 65537, 16777217, 0x7fffffff};
    at->fold.nranks = nranks[below(bench, sizeof nranks / sizeof *nranks)];
    at->finish = (uint32_t)below(bench, 2);
    at->raw = (uint32_t)below(bench, (size_t)1 << at->nsources);
}

/* 32 threads: from 2,048 bytes on, several loads of each thread are on their way at once, and from
 * 4,096 on that happens twice, where addresses are alike. Sources are folded in groups of two or
 * four; the first group has the rest. */
static bool check_passes(struct bench *bench, int architecture, enum tt_type type, enum tt_op op)
{
    enum { MOST_ALWAYS = 4 }; /* besides, one number above */
    const size_t element = tt_type_size(type), lengths[] = {1, 33, 400, 2300, 4500};
    begin_cases(bench);
    for (uint32_t n = 1; n <= MOST_ALWAYS + 1; n++)
        for (int length = -1; length < 5; length++)
            for (enum placing placing = SAME; placing < (length < 4 ? NPLACINGS : 1); placing++) {
                struct fold_case *at = add_case(bench, type, op);
                at->nsources =
                    n <= MOST_ALWAYS ? n : n + (uint32_t)below(bench, FOLD_SOURCES - MOST_ALWAYS);
                at->ntargets = 1 + (uint32_t)below(bench, FOLD_TARGETS);
                at->count = length < 0 ? 0 : lengths[length] / element + below(bench, 3);
                draw_changes(bench, at);
                place(bench, at, placing);
                if (below(bench, 4)) continue;
                at->scalar = take(bench, element, below(bench, 16));
                fill(bench, (char *)host_of(bench, at->scalar), element, element);
            }
    return run(bench, architecture, "run_passes", 32);
}

TEST(fold, every_type_and_operation_has_the_hosts_bits)
{
    each_pair(check_passes);
}

static bool check_lines(struct bench *bench, int architecture, enum tt_type type, enum tt_op op)
{
    begin_cases(bench);
    for (uint32_t n = 1; n <= FOLD_SOURCES; n++)
        for (int i = 0; i < 3; i++) {
            struct fold_case *at = add_case(bench, type, op);
            at->nsources = n;
            at->count = 100 * 8 / tt_type_size(type);
            draw_changes(bench, at);
            at->raw &= 0 - at->raw; /* one source, or none */
            for (uint32_t s = 0; s < n; s++) {
                at->sources[s] = take(bench, 800, 0);
                fill(bench, (char *)host_of(bench, at->sources[s]), 800, at->fold.element);
            }
            at->targets[0] = take(bench, 800, 0);
        }
    return run(bench, architecture, "run_lines", 32);
}

TEST(fold, lines_have_the_hosts_bits)
{
    each_pair(check_lines);
}

/* All pairs of 8 bits; of 16 bits each value with another one. */
static bool check_pairs(struct bench *bench, int architecture, enum tt_type type, enum tt_op op)
{
    const size_t element = tt_type_size(type);
    if (element > 2 || op >= TT_BIT_AND) return true;
    begin_cases(bench);
    struct fold_case *at = add_case(bench, type, op);
    at->nsources = 2;
    at->count = PAIRS;
    at->finish = 1;
    at->raw = 1;
    at->fold.nranks = 3;
    at->sources[0] = take(bench, PAIRS * element, 0);
    at->sources[1] = take(bench, PAIRS * element, 0);
    at->targets[0] = take(bench, PAIRS * element, 0);
    unsigned char *a = host_of(bench, at->sources[0]), *b = host_of(bench, at->sources[1]);
    fill(bench, (char *)b, PAIRS * element, element);
    for (unsigned i = 0; i < PAIRS; i++) {
        a[i * element] = (unsigned char)i;
        if (element == 1) b[i] = (unsigned char)(i >> 8);
        if (element == 2) a[2 * i + 1] = (unsigned char)(i >> 8);
    }
    return run(bench, architecture, "run_passes", 512);
}

TEST(fold, every_8_and_16_bit_value_has_the_hosts_bits)
{
    each_pair(check_pairs);
}

/* ---- How much a pass executes --------------------------------------------------------------- */

struct row {
    enum tt_type type;
    int architecture;
    uint32_t nsources;
    double least; /* of a thread for 16 bytes: loads, stores, conversions and steps of the fold */
    double most;  /* that the test allows: of PTX, where names of registers change by instructions
                   * that  ptxas leaves out */
};

/* Instructions for 16 bytes of result more: of a pass of 512 KiB less one of half of it. */
static double count_instructions(const struct row *row)
{
    struct bench bench;
    uint64_t before[3];
    if (!open_bench(&bench, row->architecture, 1, false)) return 0;
    for (int i = 0; i < 3; i++) {
        struct vg_machine_counts counts;
        begin_cases(&bench);
        struct fold_case *at = add_case(&bench, row->type, TT_SUM);
        at->nsources = row->nsources;
        at->count = (i == 1 ? 262144 : 524288) / tt_type_size(row->type);
        for (uint32_t s = 0; s < row->nsources; s++)
            at->sources[s] = take(&bench, at->count * tt_type_size(row->type), 0);
        at->targets[0] = take(&bench, at->count * tt_type_size(row->type), 0);
        run(&bench, row->architecture, "run_passes", 512);
        vg_machine_count(bench.session->machine, &counts);
        before[i] = counts.instructions;
    }
    close_bench(&bench);
    const double half = (double)(before[1] - before[0]), whole = (double)(before[2] - before[1]);
    return (whole - half) / (262144.0 / 16);
}

TEST(fold, passes_execute_few_instructions_for_16_bytes)
{
    static const struct row rows[] = {
        {TT_FLOAT32, 75, 1, 2, 6},       {TT_INT32, 75, 2, 7, 13},
        {TT_FLOAT32, 75, 2, 7, 30},      {TT_FLOAT32, 90, 2, 7, 30},
        {TT_FLOAT32, 90, 3, 12, 43},     {TT_FLOAT32, 90, 8, 37, 76},
        {TT_FLOAT64, 90, 2, 5, 20},      {TT_BFLOAT16, 75, 2, 31, 118},
        {TT_BFLOAT16, 80, 2, 31, 83},    {TT_BFLOAT16, 90, 2, 31, 61},
        {TT_FLOAT16, 75, 2, 31, 74},     {TT_FLOAT16, 90, 2, 31, 65},
        {TT_FLOAT8E4M3, 75, 2, 75, 660}, {TT_FLOAT8E4M3, 90, 2, 75, 144},
    };
    printf("instructions of a thread for 16 bytes of a sum: type, sources, sm, executed, least\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double n = count_instructions(&rows[i]);
        printf("%10s %u sm_%d %6.1f %4.0f\n", tt_type_name(rows[i].type), rows[i].nsources,
               rows[i].architecture, n, rows[i].least);
        CHECK_MESSAGE(n <= rows[i].most, "%s, %u sources, sm_%d: %.1f instructions, at most %.0f",
                      tt_type_name(rows[i].type), rows[i].nsources, rows[i].architecture, n,
                      rows[i].most);
    }
}
