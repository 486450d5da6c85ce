/* Tests of the trainer's options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "machine.h"
#include "options_file.h"
#include "place.h"
#include "setup.h"
#include "shim.h"

/* Parses one line of arguments; the error is in tr_error(). */
static tr_status parse(struct tr_config *config, const char *a, const char *b)
{
    char program[] = "tutti-train", one[256], two[256];
    snprintf(one, sizeof one, "%s", a);
    snprintf(two, sizeof two, "%s", b ? b : "");
    char *argv[] = {program, one, two, NULL};
    tr_config_init(config);
    return tr_config_parse(config, b ? 3 : 2, argv);
}

TEST(config, every_default_is_a_valid_value)
{
    struct tr_config config;
    tr_config_init(&config);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const struct tr_option *option = tr_config_option(id);
        CHECK_MESSAGE(tr_config_set(&config, option->name, option->initial, TR_FROM_DEFAULT) ==
                          TR_OK,
                      "%s: %s", option->name, tr_error());
    }
    CHECK(tr_config_check(&config) == TR_OK);
}

TEST(config, both_ways_of_writing_an_option_work)
{
    struct tr_config config;
    CHECK(parse(&config, "--width=96", NULL) == TR_OK && config.width == 96);
    CHECK(parse(&config, "--width", "64") == TR_OK && config.width == 64);
    CHECK(parse(&config, "--micro_batch=3", NULL) == TR_OK && config.micro_batch == 3);
    CHECK(parse(&config, "--data", "a b") == TR_OK && !strcmp(config.data, "a b"));
    CHECK(parse(&config, "--help", NULL) == TR_OK && config.help);
}

TEST(config, bad_options_are_named_with_what_was_expected)
{
    static const struct {
        const char *argument, *says;
    } cases[] = {
        {"--widht=4", "--width"},
        {"--lr=fast", "not a number"},
        {"--every=0x10", "--every=0x10: not a number; expected a decimal one"},
        {"--lr=0x1p-9", "--lr=0x1p-9: not a number; expected a decimal one"},
        {"--every= 16", "--every= 16: not a number; expected a decimal one"},
        {"--lr=1e999", "not a number"},
        {"--lr=1e-400", "--lr=1e-400: too near to 0"},
        {"--lr=nan", "not a number"},
        {"--layers=2.5", "not a whole number"},
        {"--layers=0", "1 to 1000"},
        {"--beta1=-1", "out of range"},
        {"--steps", "missing"},
        {"text.txt", "unexpected argument"},
        {"--heads=", "not a number"},
        {"--model=bert", "--model=bert: expected one of gpt2|llama"},
        {"--tied=yes", "auto|on|off"},
        {"--activation=tanh", "--activation=tanh: expected one of auto|gelu|relu"},
        {"--tp=0", "1 to 1024"},
        {"--beta2=1", "0 to 0.9999999"},
        {"--context=0", "1 to 1048576"},
        {"--bucket-kib=5e6", "1 to 4194304"},
        {"--seed=-1", "0 to 1e+15"},
        {"--plan=1", "--plan takes no value"},
        {"--help=x", "--help takes no value"},
        {"--config=", "--config is empty"},
        {"--=3", "no option -- (--help lists them all)"},
        {"--colour=3", "no option --colour (--help lists them all)"},
        {"--device=cpu", "no option --device (--help lists them all)"},
        {"--epoch=2", "did you mean --epochs?"},
        {"--learning=2", "no option --learning (--help lists them all)"},
        {"--warm-up=2", "did you mean --warmup?"},
        {"--num-layers=2", "did you mean --layers?"},
        {"--xp=2", "no option --xp (--help lists them all)"},
        {"--config=/nonexistent.json", "/nonexistent.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        CHECK_MESSAGE(parse(&config, cases[i].argument, NULL) < 0, "%s was taken",
                      cases[i].argument);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].argument, tr_error());
    }
}

/* What the options (at most three) mean for a number of ranks. */
static tr_status set_up(int nranks, const char *a, const char *b, const char *c,
                        struct tr_setup *setup)
{
    struct tr_config config;
    const char *const arguments[] = {a, b, c};
    tr_config_init(&config);
    for (int i = 0; i < 3; ++i) {
        char program[] = "tutti-train", one[64];
        if (!arguments[i]) continue;
        snprintf(one, sizeof one, "%s", arguments[i]);
        char *argv[] = {program, one, NULL};
        TR_TRY(tr_config_parse(&config, 2, argv));
    }
    return tr_setup_of(&config, nranks, setup);
}

TEST(setup, axes_take_the_ranks_that_there_are)
{
    static const struct {
        int nranks;
        const char *a, *b, *c;
        int size[TR_NUM_AXES];
        enum tr_sharding sharding;
    } cases[] = {
        {1, NULL, NULL, NULL, {1, 1, 1, 1, 1, 1}, TR_DDP},
        {6, NULL, NULL, NULL, {1, 6, 1, 1, 1, 1}, TR_DDP},
        {8, "--tp=2", "--pp=2", NULL, {2, 2, 1, 1, 1, 2}, TR_DDP},
        {8, "--fsdp=4", NULL, NULL, {1, 2, 4, 1, 1, 1}, TR_ZERO3},
        {8, "--zero=3", NULL, NULL, {1, 1, 8, 1, 1, 1}, TR_ZERO3},
        {8, "--zero=3", "--fsdp=8", NULL, {1, 1, 8, 1, 1, 1}, TR_ZERO3},
        {8, "--zero=3", "--ring=8", NULL, {1, 1, 1, 8, 1, 1}, TR_ZERO3},
        {8, "--zero=2", "--ulysses=2", NULL, {1, 4, 1, 1, 2, 1}, TR_ZERO2},
        {4, "--zero=1", "--dp=4", "--reduce=last", {1, 4, 1, 1, 1, 1}, TR_ZERO1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_setup setup;
        CHECK_MESSAGE(set_up(cases[i].nranks, cases[i].a, cases[i].b, cases[i].c, &setup) == TR_OK,
                      "case %zu: %s", i, tr_error());
        for (int axis = 0; axis < TR_NUM_AXES; ++axis)
            CHECK_MESSAGE(setup.size[axis] == cases[i].size[axis], "case %zu: %s is %d", i,
                          tr_axis_names[axis], setup.size[axis]);
        CHECK_EQ(setup.engine.sharding, cases[i].sharding);
    }
}

TEST(setup, mixes_that_have_no_meaning_are_named_with_what_works)
{
    static const struct {
        int nranks;
        const char *a, *b, *c, *says;
    } cases[] = {
        {8, "--tp=3", NULL, NULL, "nearest numbers of ranks that work are 6 and 9"},
        {2, "--tp=4", NULL, NULL, "--tp=4 are 4 ranks, but there are 2; start 4"},
        {8, "--dp=3", "--tp=2", NULL, "--dp=3 x --tp=2 are 6 ranks, but there are 8; start 6"},
        {8, "--dp=3", "--tp=2", NULL, "or take --dp=4"},
        {8, "--zero=1", "--fsdp=2", NULL, "take --zero=1 with --fsdp=1"},
        {8, "--zero=2", "--fsdp=2", NULL, "or --fsdp=2 without --zero"},
        {8, "--zero=3", "--fsdp=2", NULL, "--zero=3 without --fsdp (as --fsdp=8)"},
        {8, "--reduce=each", NULL, NULL, "--reduce=last"},
        {8, "--reduce=each", "--zero=1", NULL, "ZeRO-1 keeps whole gradients"},
        {8, "--reshard=always", "--zero=2", NULL, "ZeRO-2 keeps whole weights"},
        {8, "--reshard=sometimes", NULL, NULL, "--reshard=sometimes: expected one of auto|always"},
        {8, "--zero=4", NULL, NULL, "--zero=4: out of range, expected 0 to 3"},
        {8, "--dp=-1", NULL, NULL, "--dp=-1: out of range"},
        {8, "--batch=1048576", "--context=1048576", "--width=65536", "make one of them smaller"},
        {1, "--vocabulary=16777216", "--context=1048576", "--batch=1048576", "too large"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_setup setup;
        CHECK_MESSAGE(set_up(cases[i].nranks, cases[i].a, cases[i].b, cases[i].c, &setup) < 0,
                      "%s was taken", cases[i].a);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "case %zu: %s", i, tr_error());
    }
}

TEST(setup, an_error_says_which_options_are_those_of_the_checkpoint)
{
    struct tr_config config;
    struct tr_setup setup;
    REQUIRE(parse(&config, "--tp=2", NULL) == TR_OK);
    REQUIRE(tr_config_set(&config, "pp", "2", TR_FROM_CHECKPOINT) == TR_OK);
    REQUIRE(tr_config_set(&config, "zero", "3", TR_FROM_CHECKPOINT) == TR_OK);
    REQUIRE(tr_config_set(&config, "ring", "1", TR_FROM_CHECKPOINT) == TR_OK);
    CHECK(tr_setup_of(&config, 8, &setup) == TR_OK);
    CHECK(tr_setup_of(&config, 2, &setup) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "(the checkpoint brought --pp=2 --zero=3; "), "%s",
                  tr_error());
}

TEST(setup, what_is_left_open_follows_from_the_model)
{
    struct tr_setup setup;
    REQUIRE(set_up(1, "--width=192", NULL, NULL, &setup) == TR_OK);
    CHECK(setup.engine.model.tied && setup.engine.model.hidden == 768);
    CHECK_EQ(setup.engine.model.kv_heads, setup.engine.model.heads);
    REQUIRE(set_up(1, "--model=llama", "--width=200", "--kv-heads=1", &setup) == TR_OK);
    CHECK(!setup.engine.model.tied);
    CHECK_EQ(setup.engine.model.hidden, 544);
    CHECK_EQ(setup.engine.model.kv_heads, 1);
    REQUIRE(set_up(1, "--model=llama", "--tied=on", "--hidden=7", &setup) == TR_OK);
    CHECK(setup.engine.model.tied && setup.engine.model.hidden == 7);
    REQUIRE(set_up(1, "--model=gpt2", NULL, NULL, &setup) == TR_OK);
    CHECK(setup.engine.model.activation == TR_GELU);
    REQUIRE(set_up(1, "--model=gpt2", "--activation=relu2", NULL, &setup) == TR_OK);
    CHECK(setup.engine.model.activation == TR_RELU2);
}

TEST(config, an_activation_is_refused_where_the_mlp_has_a_gate)
{
    struct tr_config config;
    REQUIRE(parse(&config, "--model=llama", "--activation=gelu") == TR_OK);
    CHECK(tr_config_check(&config) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "--activation=gelu: the MLP of Llama has a gate"), "%s",
                  tr_error());
    REQUIRE(parse(&config, "--model=llama", "--activation=auto") == TR_OK);
    CHECK(tr_config_check(&config) == TR_OK);
}

TEST(config, an_activation_belongs_to_the_checkpoint)
{
    struct tr_config saved, config;
    REQUIRE(parse(&saved, "--model=gpt2", NULL) == TR_OK);
    tr_config_resolve(&saved);
    char *json = tr_config_to_json(&saved);
    REQUIRE(json && strstr(json, "\"activation\":\"gelu\""));
    REQUIRE(parse(&config, "--activation=auto", NULL) == TR_OK);
    CHECK_MESSAGE(tr_config_restore(&config, json, "file") == TR_OK, "%s", tr_error());
    REQUIRE(parse(&config, "--activation=relu", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    CHECK_MESSAGE(strstr(tr_error(), "file was written with --activation=gelu"), "%s", tr_error());
    /* A checkpoint of a version that did not have the option. */
    CHECK(tr_config_restore(&config, "{\"model\":\"gpt2\"}", "file") < 0);
    CHECK_MESSAGE(strstr(tr_error(), "file was written with --activation=gelu"), "%s", tr_error());
    REQUIRE(parse(&config, "--activation=gelu", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, "{\"model\":\"gpt2\"}", "file") == TR_OK);
    free(json);
}

/* Of each thread beyond the first at least its room for scores. */
TEST(setup, the_memory_of_a_rank_counts_its_threads)
{
    static const char *const threads[] = {"--threads=1", "--threads=5"};
    const double room = TR_ATTENTION_ROOM * sizeof(float);
    uint64_t needed[2] = {0};
    double resident[2] = {0};
    for (int i = 0; i < 2; ++i) {
        struct tr_setup setup;
        struct tr_resident parts;
        REQUIRE(set_up(1, threads[i], NULL, NULL, &setup) == TR_OK);
        REQUIRE(tr_setup_memory(&setup, 0, &needed[i]) == TR_OK);
        REQUIRE(tr_setup_resident(&setup, 0, &parts) == TR_OK);
        resident[i] = tr_resident_sum(&parts);
    }
    CHECK((double)(needed[1] - needed[0]) >= 4 * room);
    CHECK(resident[1] - resident[0] >= 4 * room);
    CHECK(resident[1] - resident[0] == (double)(needed[1] - needed[0]));
}

TEST(setup, a_model_that_does_not_fit_its_ranks_is_refused)
{
    static const struct {
        struct tr_model_size size;
        int tp;
        const char *says;
    } cases[] = {
        {{TR_GPT2, 1, 5, 5, 192, 64, 256, 8, true, TR_GELU}, 1, "that do are 4 and 6"},
        {{TR_GPT2, 1, 6, 4, 192, 64, 256, 8, true, TR_GELU}, 1, "nearest that do are 3 and 6"},
        {{TR_LLAMA, 1, 4, 4, 12, 64, 256, 8, true, TR_GELU}, 1, "widths that work are 8 and 16"},
        {{TR_LLAMA, 1, 4, 4, 4, 64, 256, 8, true, TR_GELU}, 1, "the nearest width that works is 8"},
        {{TR_GPT2, 1, 6, 6, 192, 64, 256, 8, true, TR_GELU},
         4,
         "values of --tp that do are 3 and 6"},
        {{TR_GPT2, 1, 12, 4, 192, 64, 256, 8, true, TR_GELU}, 6, "--tp=6 and --kv-heads=4"},
        {{TR_GPT2, 1, 4, 4, 192, 3, 256, 8, true, TR_GELU}, 4, "--hidden=3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_model model;
        CHECK(tr_model_init(&model, &cases[i].size, tr_backend_choose(""), cases[i].tp, 0, 1) < 0);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "case %zu: %s", i, tr_error());
        tr_model_fini(&model);
        CHECK(tr_model_check(&cases[i].size, cases[i].tp) < 0);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "case %zu: %s", i, tr_error());
    }
}

TEST(place, ranks_are_ordered_by_host_and_blocks_that_cross_hosts_are_found)
{
    static const int cyclic[6] = {0, 1, 0, 1, 0, 1}, blocks[6] = {0, 0, 0, 1, 1, 1};
    int order[6], first;
    REQUIRE(tr_place_order(cyclic, 6, order));
    static const int expected[6] = {0, 2, 4, 1, 3, 5};
    for (int i = 0; i < 6; ++i) CHECK_EQ(order[i], expected[i]);
    CHECK(!tr_place_order(blocks, 6, order));
    CHECK(tr_place_fits(blocks, 6, 3, &first));
    CHECK(!tr_place_fits(blocks, 6, 2, &first));
    CHECK_EQ(first, 2);
}

/* A file below a folder, with the folders above it. */
static void put_file(const char *root, const char *name, const char *text)
{
    char command[512];
    snprintf(command, sizeof command, "mkdir -p $(dirname %s/%s) && printf -- '%s' >%s/%s", root,
             name, text, root, name);
    CHECK(system(command) == 0);
}

TEST(machine, memory_of_host_and_control_groups_is_read)
{
    char root[] = "/tmp/tutti-limits-XXXXXX", command[64];
    struct tr_machine limits;
    REQUIRE(mkdtemp(root) != NULL);
    tr_machine_read(root, &limits);
    CHECK(limits.host == UINT64_MAX && limits.ngroups == 0);
    put_file(root, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 7 kB\nSwapTotal: 24 kB\n");
    put_file(root, "proc/self/cgroup", "4:cpu:/x\n3:memory:/old/task\n0::/new/task\n");
    tr_machine_read(root, &limits);
    CHECK_EQ(limits.host, 1024 * 1024);
    CHECK_EQ(limits.ngroups, 0);
    put_file(root, "sys/fs/cgroup/new/task/memory.max", "max\n");
    put_file(root, "sys/fs/cgroup/new/memory.max", "5000\n");
    tr_machine_read(root, &limits);
    REQUIRE(limits.ngroups == 1);
    CHECK_EQ(limits.groups[0].limit, 5000);
    const uint64_t above = limits.groups[0].id;
    put_file(root, "sys/fs/cgroup/new/task/memory.max", "7000\n");
    tr_machine_read(root, &limits);
    REQUIRE(limits.ngroups == 2);
    CHECK_EQ(limits.groups[0].limit, 7000);
    CHECK(limits.groups[1].id == above && limits.groups[0].id != above);
    put_file(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n");
    tr_machine_read(root, &limits);
    REQUIRE(limits.ngroups == 3);
    CHECK_EQ(limits.groups[0].limit, 4000); /* of the line that comes first */
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

/* Four ranks of a host: two in one group of a job's, one in another, one outside the job. */
TEST(machine, needs_of_the_ranks_in_a_control_group_are_added_up)
{
    enum { JOB = 7, TASK_A, TASK_B };
    const uint64_t gib = 1 << 30;
    struct tr_machine inside = {
        .host = 100 * gib, .groups = {{TASK_A, 7 * gib}, {JOB, 9 * gib}}, .ngroups = 2};
    struct tr_need needs[4] = {tr_machine_need(&inside, 3 * gib),
                               tr_machine_need(&inside, 3 * gib),
                               {.nbytes = 3 * gib, .groups = {TASK_B, JOB}},
                               {.nbytes = 3 * gib}};
    CHECK_MESSAGE(tr_machine_check(&inside, 0, needs, 4, 0) == TR_OK, "%s", tr_error());
    inside.groups[1].limit = 9 * gib - 1; /* none of them exceeds that alone */
    CHECK(tr_machine_check(&inside, 0, needs, 4, 0) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "rank 0 needs 3.0 GiB of memory, of 3 ranks in its control "
                                     "group 9.0 GiB, and there are 9.0 GiB in its control group"),
                  "%s", tr_error());
    inside.groups[0].limit = 5 * gib;
    CHECK(tr_machine_check(&inside, 1, needs, 4, 1) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "of 2 ranks in its control group 6.0 GiB"), "%s", tr_error());
    const struct tr_machine outside = {.host = 11 * gib};
    CHECK(tr_machine_check(&outside, 3, needs, 4, 3) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "of 4 ranks on its host 12.0 GiB"), "%s", tr_error());
    CHECK(tr_machine_check(&outside, 3, needs, 3, 0) == TR_OK);
    const struct tr_machine tight = {.host = gib};
    CHECK(tr_machine_check(&tight, 3, needs, 1, 0) < 0);
    CHECK_MESSAGE(!strstr(tr_error(), "ranks on"), "%s", tr_error());
}

TEST(machine, cores_and_quotas_of_processor_time_are_read)
{
    char root[] = "/tmp/tutti-limits-XXXXXX", command[256];
    struct tr_machine limits;
    REQUIRE(mkdtemp(root) != NULL);
    put_file(root, "proc/self/cgroup", "4:cpu,cpuacct:/old/task\n3:cpuset:/x\n0::/new/task\n");
    tr_machine_read(root, &limits);
    CHECK(limits.cores.count >= 1 && limits.cores.set != 0 && limits.cores.group == 0);
    put_file(root, "sys/fs/cgroup/new/task/cpu.max", "max 100000\n");
    put_file(root, "sys/fs/cgroup/new/cpu.max", "250000 100000\n");
    put_file(root, "sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "-1\n");
    put_file(root, "sys/fs/cgroup/cpu/old/cpu.cfs_period_us", "100000\n");
    tr_machine_read(root, &limits);
    CHECK(limits.cores.group != 0 && limits.cores.quota == 2.5);
    put_file(root, "sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "150000\n");
    tr_machine_read(root, &limits);
    CHECK(limits.cores.quota == 1.5);
    /* Core 0 has all of them. */
    snprintf(command, sizeof command,
             "d=%s/sys/devices/system/cpu; seq -f $d/cpu%%g/topology 0 1023 | xargs mkdir -p; "
             "for t in $d/cpu*/topology; do echo 0-1023 >$t/thread_siblings_list; done",
             root);
    CHECK(system(command) == 0);
    tr_machine_read(root, &limits);
    CHECK_EQ(limits.cores.count, 1);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

/* Ranks that may use the same processors divide them; each takes one thread at least. */
TEST(machine, ranks_divide_the_cores_that_they_share)
{
    enum { ALL = 5, FIRST_HALF, SECOND_HALF, JOB };
    struct tr_machine limits = {.cores = {.count = 16, .set = ALL}};
    struct tr_need needs[5] = {
        {.set = ALL}, {.set = ALL}, {.set = ALL}, {.set = ALL}, {.set = ALL}};
    CHECK_EQ(tr_machine_threads(&limits, needs, 1, 0), 16);
    CHECK_EQ(tr_machine_threads(&limits, needs, 5, 4), 3);
    limits.cores.count = 2;
    CHECK_EQ(tr_machine_threads(&limits, needs, 5, 0), 1);
    const struct tr_need halves[4] = {
        {.set = FIRST_HALF}, {.set = SECOND_HALF}, {.set = FIRST_HALF}, {.set = SECOND_HALF}};
    limits.cores = (struct tr_cores){.count = 8, .set = SECOND_HALF};
    CHECK_EQ(tr_machine_threads(&limits, halves, 4, 3), 4);
    /* A container of a quota, in which two of the ranks are. */
    limits.cores = (struct tr_cores){.count = 16, .set = ALL, .group = JOB, .quota = 6.5};
    needs[0].group = needs[1].group = JOB;
    CHECK_EQ(tr_machine_threads(&limits, needs, 1, 0), 6);
    CHECK_EQ(tr_machine_threads(&limits, needs, 2, 0), 3);
    CHECK_EQ(tr_machine_threads(&limits, needs, 3, 0), 3);
    limits.cores.quota = 0.5;
    CHECK_EQ(tr_machine_threads(&limits, needs, 2, 0), 1);
}

TEST(config, json_is_read_and_the_command_line_wins)
{
    struct tr_config config;
    REQUIRE(parse(&config, "--layers=7", NULL) == TR_OK);
    CHECK(read_json(&config, "{\"layers\": 3, \"width\": 32, \"lr\": 1e-3, \"data\": \"x\"}") ==
          TR_OK);
    CHECK_EQ(config.layers, 7);
    CHECK_EQ(config.width, 32);
    CHECK(config.lr == 1e-3);
    CHECK_STR(config.data, "x");
}

TEST(config, json_errors_name_the_line)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\n\"layers\": 3,\n\"widht\": 32}", ":3: no option and no key of DeepSpeed's called "
                                              "widht that is known; did you mean --width?"},
        {"{\"device\": 1}", "called device that is known (--help"}, /* not --reduce */
        {"{\"layers\": [3]}", "expected a number or a string"},
        {"{\"layers\": 3", "not a JSON object"},
        {"[1]", "not a JSON object"},
        {"{\"layers\": \"many\"}", "not a number"},
        {"{\"layers\": \"0x2\"}", "not a number"},
        {"{\n\"batch\": 99999999999999999999}",
         ":2: \"batch\": 99999999999999999999: out of range"},
        {"{\"batch\": -9223372036854775809}", "-9223372036854775809: out of range"},
        {"{\"lr\": 0.1,\n\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.2}}}",
         ":2: \"optimizer.params.lr\" is --lr, which \"lr\" in line 1 gives another value"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.2}}, \"lr\": 0.1}",
         "\"lr\" is --lr, which \"optimizer.params.lr\" in line 1"},
        {"{\"zero\": 1, \"zero_optimization\": {\"stage\": 2}}", "is --zero"},
        {"{\"micro-batch\": 1, \"micro_batch\": 2}", "is --micro-batch"},
        {"{\"micro-batch\": 1, \"train_micro_batch_size_per_gpu\": 2}", "is --micro-batch"},
        {"", "not a JSON object"},
        {"{\"data\": \"a\\u0000b\"}", "zero byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        tr_config_init(&config);
        CHECK_MESSAGE(read_json(&config, cases[i].text) < 0, "%s was taken", cases[i].text);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].text, tr_error());
    }
}

TEST(config, a_checkpoint_brings_its_options_and_refuses_another_model)
{
    struct tr_config saved, config;
    REQUIRE(parse(&saved, "--lr=0.0123456789", NULL) == TR_OK);
    saved.width = 64;
    saved.every = 9;
    saved.threads = 3; /* of another machine */
    char *json = tr_config_to_json(&saved);
    REQUIRE(json != NULL);
    REQUIRE(parse(&config, "--batch=5", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") == TR_OK);
    CHECK_EQ(config.width, 64);
    CHECK_EQ(config.batch, 5);
    CHECK_EQ(config.every, 0);
    CHECK_EQ(config.threads, 0);
    CHECK(config.lr == saved.lr);
    REQUIRE(parse(&config, "--width=96", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    CHECK(strstr(tr_error(), "--width=96") && strstr(tr_error(), "--width=64"));
    free(json);
}

/* Of --steps, which is how a run goes on, and of what changes no result there is no note. */
TEST(config, what_a_resumed_run_does_otherwise_than_its_checkpoint_is_noted)
{
    static const struct {
        const char *argument, *file, *notes;
    } cases[] = {
        {"--schedule=linear", "{}", "note: --schedule=linear; the checkpoint has cosine\n"},
        {"--lr=0.01", "{}", "note: --lr=0.01; the checkpoint has 0.003\n"},
        {"--lr=0.003", "{\"schedule\": \"cosine\"}", ""},
        {"--batch=8", "{\"beta1\": 0.8}",
         "note: --batch=8; the checkpoint has 16\nnote: --beta1=0.8; the checkpoint has 0.9\n"},
        {"--lr=0.01",
         "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.0015, "
         "\"cycle_max_lr\": 0.02}}, \"cycle-down-stairs\": -1}",
         "note: --lr=0.01; the checkpoint has 0.003\n"
         "note: --min-lr=0.15; the checkpoint has 0.05\n"
         "note: --schedule=one-cycle; the checkpoint has cosine\n"},
        {"--steps=9", "{\"micro-batch\": 2, \"data\": \"x\", \"tp\": 2}", ""},
        {"--accumulate=2", "{}", ""},
        {"--micro-batch=2", "{\"accumulate\": 3}", ""}, /* which gives way */
        {"--accumulate=3", "{}",
         "note: --accumulate=3 makes a step of 24 sequences; the checkpoint has 16\n"},
    };
    struct tr_config saved;
    REQUIRE(parse(&saved, "--lr=0.003", "--steps=5") == TR_OK);
    char *json = tr_config_to_json(&saved);
    REQUIRE(json != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        struct tr_config config;
        struct tr_setup setup;
        REQUIRE(parse(&config, cases[i].argument, NULL) == TR_OK);
        REQUIRE(read_json(&config, cases[i].file) == TR_OK);
        REQUIRE(tr_setup_resume(&config, json, "file") == TR_OK);
        REQUIRE(tr_setup_of(&config, (int)config.tp, &setup) == TR_OK);
        tr_setup_adopt(&config, &setup);
        CHECK_STR(config.notes, cases[i].notes);
        CHECK_EQ(config.batch, setup.engine.batch);
        CHECK_EQ(tr_config_given(&config, TR_OPTION_accumulate),
                 !strncmp(cases[i].argument, "--ac", 4));
    }
    free(json);
}

TEST(config, an_option_left_open_means_the_same_for_a_checkpoint)
{
    struct tr_config saved, config;
    REQUIRE(parse(&saved, "--hidden=100", "--tied=on") == TR_OK);
    saved.kv_heads = saved.heads;
    char *json = tr_config_to_json(&saved);
    REQUIRE(json != NULL);
    REQUIRE(parse(&config, "--kv-heads=0", "--tied=auto") == TR_OK);
    CHECK_MESSAGE(tr_config_restore(&config, json, "file") == TR_OK, "%s", tr_error());
    CHECK_EQ(config.hidden, 100);
    REQUIRE(parse(&config, "--hidden=0", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    CHECK_MESSAGE(strstr(tr_error(), "--hidden=0 (768), but file was written with --hidden=100"),
                  "%s", tr_error());
    REQUIRE(parse(&config, "--tied=off", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    free(json);
}

TEST(config, a_checkpoint_of_another_optimizer_is_refused)
{
    struct tr_config saved, config;
    REQUIRE(parse(&saved, "--optimizer=adamw", NULL) == TR_OK);
    char *json = tr_config_to_json(&saved);
    REQUIRE(json != NULL);
    REQUIRE(parse(&config, "--optimizer=sgd", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    CHECK_MESSAGE(strstr(tr_error(), "file was written with --optimizer=adamw"), "%s", tr_error());
    free(json);
}

/* Momentum 0 keeps no running mean of SGD's, and none of Muon's matrices. */
TEST(setup, a_momentum_that_keeps_other_states_than_the_checkpoint_is_refused)
{
    static const struct {
        const char *optimizer, *saved, *given, *says;
    } cases[] = {{"--optimizer=sgd", "0.9", "--momentum=0", "--momentum=0,"},
                 {"--optimizer=sgd", "0", "--momentum=0.5", "--momentum=0.5,"},
                 {"--optimizer=muon", "0.9", "--momentum=0", "--momentum=0,"},
                 {"--optimizer=muon", "0", "--momentum=0.5", "--momentum=0.5,"},
                 {"--optimizer=sgd", "0.9", "--momentum=0.5", NULL},
                 {"--optimizer=sgd", "0", "--momentum=0", NULL},
                 {"--optimizer=adamw", "0.9", "--momentum=0", NULL},
                 {"--optimizer=lamb", "0", "--momentum=0.5", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        struct tr_config saved, config;
        REQUIRE(parse(&saved, cases[i].optimizer, NULL) == TR_OK);
        REQUIRE(tr_config_set(&saved, "momentum", cases[i].saved, TR_FROM_COMMAND_LINE) == TR_OK);
        char *json = tr_config_to_json(&saved);
        REQUIRE(json != NULL);
        REQUIRE(parse(&config, cases[i].given, NULL) == TR_OK);
        const tr_status status = tr_setup_resume(&config, json, "file");
        CHECK_MESSAGE((status < 0) == (cases[i].says != NULL), "%zu: %s", i, tr_error());
        if (cases[i].says && status < 0)
            CHECK_MESSAGE(strstr(tr_error(), cases[i].says) &&
                              strstr(tr_error(), "file was written with --momentum="),
                          "%zu: %s", i, tr_error());
        free(json);
    }
}

TEST(config, null_is_as_if_the_key_were_not_there_and_equal_values_may_stand_twice)
{
    struct tr_config config;
    tr_config_init(&config);
    const int64_t layers = config.layers;
    CHECK_EQ(read_json(&config, "{\"layers\": null, \"zero\": \"1\", \"batch\": 8, "
                                "\"zero_optimization\": {\"stage\": 1}, "
                                "\"train_batch_size\": 8.0}"),
             TR_OK);
    CHECK(config.layers == layers && config.zero == 1 && config.batch == 8);
}
