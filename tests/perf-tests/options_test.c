/* Tests of the perf tests' command line. */
#include "common/options.h"
#include "common/values.h"

#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MAX_WORDS 32

static const struct perf_collective all_reduce = {
    .name = "all_reduce", .collective = tuttiCollAllReduce, .reduces = true};
static const struct perf_collective sendrecv = {.name = "sendrecv",
                                                .collective = PERF_NO_COLLECTIVE};

static char error_text[512];

/* Parses a command line of words separated by single spaces. */
static enum perf_parse parse(struct perf_options *options, const struct perf_collective *collective,
                             const char *line, FILE *out)
{
    static char words[512]; /* options keep pointers into it */
    char *arguments[MAX_WORDS] = {"perf"};
    int count = 1;
    snprintf(words, sizeof(words), "%s", line);
    char *word = strtok(words, " ");
    for (; word != NULL && count < MAX_WORDS - 1; word = strtok(NULL, " ")) {
        arguments[count++] = word;
    }
    CHECK_MESSAGE(word == NULL, "'%s' has more than %d words", line, MAX_WORDS - 2);
    error_text[0] = '\0';
    return perf_options_parse(options, collective, count, arguments, out, error_text,
                              sizeof(error_text));
}

TEST(perf_options, defaults_are_those_of_nccl_tests)
{
    struct perf_options options;
    REQUIRE(parse(&options, &all_reduce, "", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.threads, 1);
    CHECK_EQ(options.ranks_per_thread, 1);
    CHECK_EQ(options.min_bytes, 32 << 20);
    CHECK_EQ(options.max_bytes, 32 << 20);
    CHECK_EQ(options.iterations, 20);
    CHECK_EQ(options.warmup, 1);
    CHECK_EQ(options.check, 1);
    CHECK_EQ(options.root, 0);
    CHECK_STR(perf_types[options.type].name, "float");
    CHECK_STR(perf_ops[options.op].name, "sum");
    CHECK_EQ(options.average, PERF_AVERAGE_MEAN);
    CHECK(!options.own_streams);
    CHECK(options.min_bandwidth < 0);
}

TEST(perf_options, every_option_is_taken)
{
    struct perf_options options;
    REQUIRE(parse(&options, &all_reduce, "-t 2 -g 3 -b 4K -e 1.5M -f 2 -n 7 -m 2 -w 0", stdout) ==
            PERF_PARSE_RUN);
    CHECK_EQ(options.threads * options.ranks_per_thread, 6);
    CHECK_EQ(options.min_bytes, 4096);
    CHECK_EQ(options.max_bytes, 1536 * 1024);
    CHECK_EQ(options.aggregate, 2);
    REQUIRE(parse(&options, &all_reduce, "-N 0 -p 1 -c 0 -o all -d all -r -1 -z 3", stdout) ==
            PERF_PARSE_RUN);
    CHECK_EQ(options.op, PERF_ALL);
    CHECK_EQ(options.type, PERF_ALL);
    CHECK_EQ(options.root, PERF_ALL);
    CHECK_EQ(options.blocking, PERF_BLOCKING_OUTER);
    CHECK(options.parallel_init);
    REQUIRE(parse(&options, &all_reduce, "-y 0 -T 5 -C 1 -S 1 -J x.json -a 3", stdout) ==
            PERF_PARSE_RUN);
    CHECK(options.own_streams && options.cpu_time && options.timestamps);
    CHECK_STR(options.json_path, "x.json");
    REQUIRE(parse(&options, &all_reduce, "-R 2 -M 1 -u 3 -I 1 -K 2 --transport cma", stdout) ==
            PERF_PARSE_RUN);
    CHECK(options.tutti_memory && options.memory_report && options.per_iteration);
    CHECK_STR(options.transport, "cma");
    REQUIRE(parse(&options, &all_reduce, "--stream=own --memory tutti --rotate 1M --align 1",
                  stdout) == PERF_PARSE_RUN);
    CHECK(options.own_streams && options.tutti_memory);
    REQUIRE(parse(&options, &all_reduce, "--seed 16 --min-bw 2.5 --algorithm ring", stdout) ==
            PERF_PARSE_RUN);
    CHECK_EQ(options.seed, 16);
    CHECK_STR(options.algorithm, "ring");
    CHECK(options.min_bandwidth == 2.5);
    REQUIRE(parse(&options, &all_reduce, "--hogs 2 --work 100", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.hogs, 2);
    CHECK_EQ(options.work_us, 100);
}

TEST(perf_options, gpus_have_streams_unless_told_otherwise)
{
    struct perf_options options;
    REQUIRE(parse(&options, &all_reduce, "--device host", stdout) == PERF_PARSE_RUN);
    CHECK(!options.on_gpus && !options.own_streams);
    REQUIRE(parse(&options, &all_reduce, "--device cuda -R 1", stdout) == PERF_PARSE_RUN);
    CHECK(options.on_gpus && options.own_streams);
    REQUIRE(parse(&options, &all_reduce, "--stream null --device cuda", stdout) == PERF_PARSE_RUN);
    CHECK(options.on_gpus && !options.own_streams);
    REQUIRE(parse(&options, &all_reduce, "-G 3 --device cuda", stdout) == PERF_PARSE_RUN);
    CHECK(options.graphs == 3 && options.ignored == 0);
    REQUIRE(parse(&options, &all_reduce, "-y 1 --device cuda", stdout) == PERF_PARSE_RUN);
    CHECK(!options.own_streams);
}

TEST(perf_options, options_of_gpus_are_noted)
{
    struct perf_options options;
    REQUIRE(parse(&options, &all_reduce, "-G 3 -V 16", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.ignored, 1 << 0 | 1 << 3);
}

TEST(perf_options, errors_name_the_value_and_what_is_allowed)
{
    static const char *const cases[][2] = {
        {"-g 0", "-g: '0' is not a whole number from 1 to 4096"},
        {"-t 2x", "-t: '2x' is not a whole number from 1 to 4096"},
        {"-n 0", "-n: '0' is not a whole number from 1 to 1073741823"},
        {"-c -1", "-c: '-1' is not a whole number from 0 up"},
        {"-b 4T", "-b: '4T' is no size: give bytes, or a number with K, M or G"},
        {"-b 64M",
         "-b: the smallest size, 67108864 bytes, is above the largest, 33554432: set -e too"},
        {"-i 0", "-i: a step of 0 never reaches the largest size"},
        {"-r -2", "-r: '-2' is not a whole number from -1 up"},
        {"-z 4", "-z: '4' is not a whole number from 0 to 3"},
        {"-K 1", "-K: only the per-iteration columns skip iterations: set -I 1 too"},
        {"-I 1 -n 5 -K 5", "-K: skipping 5 of 5 iterations leaves none"},
        {"--hogs many", "--hogs: 'many' is not a whole number from 0 to 1024"},
        {"--hogs 1025", "--hogs: '1025' is not a whole number from 0 to 1024"},
        {"--work -1", "--work: '-1' is not a whole number from 0 to 10000000"},
        {"--work 5 -C 1", "--work: each iteration is waited for, so there is no time without the "
                          "wait: leave out -C"},
        {"--work 5 -G 2 --device cuda",
         "--work: in a graph nobody computes between iterations: leave out -G"},
        {"-o xor", "-o: 'xor' is no operation; use sum prod"},
        {"-d fp32", "-d: 'fp32' is no type; use int8"},
        {"-o band", "-o: band takes integers only, not float: set -d"},
        {"--transport ip", "--transport: 'ip' is unknown; use one of shm window cma tcp rdma"},
        {"--memory gpu", "--memory: 'gpu' is unknown; use one of malloc tutti"},
        {"--device gpu", "--device: 'gpu' is unknown; use one of host cuda"},
        {"--device cuda --transport shm", "--transport: 'shm' is a way between memory of the host"},
        {"--device cuda --memory tutti", "--memory: tuttiMemAlloc gives memory of the host"},
        {"--device cuda -R 2", "-R: tuttiMemAlloc gives memory of the host"},
        {"--device cuda -G 1 --stream null", "-G: streams are captured: leave out --stream null"},
        {"--device cuda -G 1 -z 2", "-G: in a graph nobody waits for a single call"},
        {"--device cuda -G 1 -I 1", "-G: in a graph nobody waits for a single call"},
        {"--stream 1", "--stream: '1' is unknown; use one of null own"},
        {"--min-bw fast", "--min-bw: 'fast' is no bandwidth in GB/s"},
        {"--min-bw 0x1", "--min-bw: '0x1' is no bandwidth in GB/s"},
        {"--seed 0x1", "--seed: '0x1' is not a whole number from 0 up"},
        {"-b 0x10", "-b: '0x10' is no size"},
        {"--seed -1", "--seed: '-1' is not a whole number from 0 up"},
        {"--seed \t-1", "--seed: '\t-1' is not a whole number from 0 up"},
        {"--seed \t1", "--seed: '\t1' is not a whole number from 0 up"},
        {"--seed +1", "--seed: '+1' is not a whole number from 0 up"},
        {"--seed 1k", "--seed: '1k' is not a whole number from 0 up"},
        {"--seed 18446744073709551616",
         "--seed: '18446744073709551616' is not a whole number from 0 up"},
        {"--algorithm best", "--algorithm: all_reduce has no 'best'; use one of "},
        {"--bogus", "'--bogus' is no option"},
        {"-q", "-q is no option"},
        {"-n", "'-n' lacks its value"},
        {"8", "'8' is no option"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct perf_options options;
        enum perf_parse parsed = parse(&options, &all_reduce, cases[i][0], stdout);
        CHECK_MESSAGE(parsed == PERF_PARSE_USAGE, "'%s' was taken", cases[i][0]);
        CHECK_MESSAGE(strncmp(error_text, cases[i][1], strlen(cases[i][1])) == 0,
                      "'%s': got \"%s\", expected \"%s\"", cases[i][0], error_text, cases[i][1]);
    }
}

TEST(perf_options, a_seed_is_decimal_whatever_zeros_it_begins_with)
{
    struct perf_options options;
    REQUIRE(parse(&options, &all_reduce, "--seed 010", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.seed, 10);
    REQUIRE(parse(&options, &all_reduce, "--seed 18446744073709551615", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.seed, UINT64_MAX);
}

TEST(perf_options, sends_and_receives_have_no_algorithms)
{
    struct perf_options options;
    CHECK_EQ(parse(&options, &sendrecv, "--algorithm ring", stdout), PERF_PARSE_USAGE);
    CHECK_STR(error_text, "--algorithm: sendrecv is made of sends and receives and has none");
}

TEST(perf_options, an_operation_does_not_matter_where_nothing_is_reduced)
{
    struct perf_options options;
    CHECK_EQ(parse(&options, &sendrecv, "-o band -d float", stdout), PERF_PARSE_RUN);
}

TEST(perf_options, help_lists_the_algorithms)
{
    char *text = NULL;
    size_t nbytes = 0;
    FILE *out = open_memstream(&text, &nbytes);
    struct perf_options options;
    CHECK_EQ(parse(&options, &all_reduce, "--help", out), PERF_PARSE_DONE);
    fclose(out);
    CHECK(strncmp(text, "usage: all_reduce_perf", 22) == 0);
    CHECK(strstr(text, "\nAlgorithms: ") != NULL && strstr(text, " ring") != NULL);
    free(text);
}

static int count_sizes(const char *line, size_t *last)
{
    struct perf_options options;
    if (parse(&options, &all_reduce, line, stdout) != PERF_PARSE_RUN) return -1;
    size_t size = options.min_bytes;
    int count = 1;
    while (perf_options_next_size(&options, &size)) count++;
    *last = size;
    return count;
}

TEST(perf_options, sizes_go_up_by_factor_or_step_to_the_largest)
{
    size_t last = 0;
    CHECK_EQ(count_sizes("-b 8 -e 1M -f 8", &last), 6);
    CHECK_EQ(last, 262144);
    CHECK_EQ(count_sizes("-b 8 -e 32 -i 8", &last), 4);
    CHECK_EQ(last, 32);
    CHECK_EQ(count_sizes("-b 0 -e 8 -f 2", &last), 5);
    CHECK_EQ(last, 8);
    CHECK_EQ(count_sizes("-b 4 -e 4", &last), 1);
}

TEST(perf_options, sizes_are_binary)
{
    size_t nbytes = 0;
    CHECK(perf_parse_size("4", &nbytes) && nbytes == 4);
    CHECK(perf_parse_size("2k", &nbytes) && nbytes == 2048);
    CHECK(perf_parse_size("1.5M", &nbytes) && nbytes == 1572864);
    CHECK(perf_parse_size("3G", &nbytes) && nbytes == UINT64_C(3) << 30);
    CHECK(!perf_parse_size("", &nbytes));
    CHECK(!perf_parse_size("-4", &nbytes));
    CHECK(!perf_parse_size("4KB", &nbytes));
    CHECK(!perf_parse_size("1e300", &nbytes));
}

TEST(perf_options, blocks_are_spread_where_each_rank_has_a_count)
{
    static const struct perf_collective gatherv = {
        .name = "gatherv", .collective = tuttiCollGather, .gets_blocks = true, .uneven = true};
    struct perf_options options;
    REQUIRE(parse(&options, &gatherv, "", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.spread, PERF_LINEAR);
    REQUIRE(parse(&options, &gatherv, "--spread one", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.spread, PERF_ONE);
    REQUIRE(parse(&options, &gatherv, "--spread even", stdout) == PERF_PARSE_RUN);
    CHECK_EQ(options.spread, PERF_EVEN);
    CHECK_EQ(parse(&options, &gatherv, "--spread wide", stdout), PERF_PARSE_USAGE);
    CHECK_EQ(parse(&options, &all_reduce, "--spread one", stdout), PERF_PARSE_USAGE);
    CHECK(strstr(error_text, "all alike"));
}
