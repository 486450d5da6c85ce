/* Tests of DeepSpeed's configuration files: ten and more of the shapes that people have, their
 * numbers changed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "deepspeed.h"
#include "options_file.h"
#include "setup.h"
#include "shim.h"

static tr_status read_file(struct tr_config *config, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/tests/trainer/deepspeed/%s", name);
    return tr_config_read_json(config, path);
}

TEST(deepspeed, files_that_people_have_set_what_they_say)
{
    static const struct {
        const char *file, *values; /* options as "name=value name=value" */
        int nranks;
        long batch, micro_batch;
    } cases[] = {
        {"images_adam.json",
         "optimizer=adamw lr=0.002 beta1=0.92 beta2=0.995 schedule=one-cycle min-lr=0.1 "
         "cycle-up=300 "
         "cycle-up-stairs=150 cycle-decay-steps=300 cycle-decay=0.002 cycle-beta1=0.82 eps=1e-7 "
         "decay=2e-6 zero=0 clip=0 "
         "log-every=70 accumulate=3",
         4, 24, 2},
        {"stages.json", "optimizer=adamw lr=0.003 beta2=0.98 eps=1e-9 decay=0 pp=2 log-every=25", 4,
         96, 4},
        {"finetune_zero2.json",
         "optimizer=adamw schedule=warmup-lr warmup-type=log zero=2 bucket-kib=1171875 "
         "log-every=1500",
         2, 16, 8},
        {"finetune_zero3.json",
         "lr=5e-5 schedule=warmup-decay-lr start-lr=0.2 warmup=70 warmup-type=linear steps=700 "
         "beta1=0.8 beta2=0.99 decay=2e-7 zero=3 clip=0.7 accumulate=2",
         4, 24, 3},
        {"generator.json", "lr=0.0004 beta1=0.6 beta2=0.99 decay=0 clip=0", 2, 48, 8},
        {"commented.json",
         "optimizer=muon lr=0.03 momentum=0.9 decay=0.05 adjust-lr=original tp=2 ulysses=2 "
         "layers=3 heads=8",
         8, 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        struct tr_setup setup;
        char text[512], *rest = text;
        tr_config_init(&config);
        REQUIRE(read_file(&config, cases[i].file) == TR_OK);
        tr_config_resolve(&config);
        snprintf(text, sizeof text, "%s", cases[i].values);
        for (char *pair; (pair = strsep(&rest, " "));) {
            char *value = strchr(pair, '='), is[TR_TEXT_BYTES];
            *value++ = 0;
            const int id = tr_config_find(pair);
            REQUIRE(id >= 0);
            tr_config_value(&config, id, is);
            CHECK_MESSAGE(!strcmp(is, value) || strtod(is, NULL) == strtod(value, NULL),
                          "%s: %s is %s, expected %s", cases[i].file, pair, is, value);
            CHECK_MESSAGE(tr_config_given(&config, id), "%s: %s", cases[i].file, pair);
        }
        CHECK_MESSAGE(tr_setup_of(&config, cases[i].nranks, &setup) == TR_OK, "%s: %s",
                      cases[i].file, tr_error());
        CHECK_EQ(setup.engine.batch, cases[i].batch);
        CHECK_EQ(setup.engine.micro_batch, cases[i].micro_batch);
    }
}

TEST(deepspeed, what_cannot_be_honoured_is_refused_with_its_line_and_the_reason)
{
    static const struct {
        const char *file, *says;
    } cases[] = {
        {"large_batch_lamb.json",
         ":11: \"optimizer.params.bias_correction\": false: expected true"},
        {"one_bit.json",
         ":7: \"optimizer.type\": \"OneBitAdam\": expected one of adam, adamw, lamb, sgd, muon"},
        {"nvme.json", ":13: \"zero_optimization.offload_optimizer.device\": \"nvme\": expected"},
        {"misspelt.json", ":6: no key of DeepSpeed's zero_optimization.stage3_param_persitence_"
                          "threshold that is known; did you mean "
                          "\"stage3_param_persistence_threshold\"?"},
        {"tuning.json", ":7: \"autotuning.enabled\": true: expected false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        tr_config_init(&config);
        CHECK_MESSAGE(read_file(&config, cases[i].file) < 0, "%s was taken", cases[i].file);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].file, tr_error());
    }
}

TEST(deepspeed, bad_files_are_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"train_batch_sise\": 3}", "did you mean \"train_batch_size\"?"},
        {"{\"train_batch_size\": 3,\n\"train_batch_size\": 3}",
         ":2: \"train_batch_size\" is given twice, in line 1, too"},
        {"{\"fp16\": true}", "\"fp16\": true: expected an object"},
        {"{\"bf16\": {\"enabled\": true}}", "expected false: tutti-train trains in 32 bits"},
        {"{\"train_batch_size\": [3]}", "\"train_batch_size\": [3]: expected a whole number"},
        {"{\"train_batch_size\": {\"a\": 3}}", "expected a value, not an object"},
        {"{\"train_batch_size\": \"many\"}", "expected a whole number"},
        {"{\"train_batch_size\": 0}", "out of range"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9]}}}", "two numbers"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, null]}}}",
         "two numbers"},
        {"{\"optimizer\": {\"type\": 3}}", "expected one of adam"},
        {"{\"optimizer\": {\"type\": \"Adam\\u0000x\"}}", "a zero byte in the text"},
        {"{\"scheduler\": {\"type\": \"Cosine\"}}", "expected one of WarmupLR"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 0.1}}}",
         "the scheduler has no such parameter"},
        {"{\"scheduler\": {\"params\": {\"warmup_num_steps\": 10}}}", "expected a scheduler.type"},
        {"{\"zero_optimization\": {\"stage\": 4}}", "0 to 3"},
        {"{\"zero_optimization\": {\"reduce_bucket_size\": -1}}", "at least 1"},
        {"{\"zero_optimization\": {\"reduce_bucket_size\": 1e300}}", "out of range"},
        {"{\"compression_training\": {\"weight_quantization\": {\"a\": 1}}}", "compression"},
        {"{\"gradient_clipping\": 1 /* \n}", "a comment begins here and does not end"},
        {"{\"a.b\": 1}", ":1: \"a.b\": a key with a dot"},
        {"{\n\"optimizer.params.lr\": 1}", ":2: \"optimizer.params.lr\": a key with a dot"},
        {"{\"zero_optimization\": {\"offload_param.device\": \"cpu\"}}", "a key with a dot"},
        {"{\"lr\\u0000x\": 1}", "\"lr\\u0000x\": a key with a zero byte"},
        {"{\"lr\": 1,\n\"l\\u0072\": 2}", ":2: \"lr\" is given twice, in line 1, too"},
        {"{\n\"train_batch_si\\u007ae\": \"x\"}", ":2: \"train_batch_size\": \"x\": expected"},
        {"{\n\n\"wi\\u0064ht\": 3}", ":3: no option"},
        {"{\"data\": true}", "\"data\": expected a number or a string"},
        {"{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_max_lr\": 1}}}",
         "\"scheduler.type\": \"OneCycle\": needs scheduler.params.cycle_min_lr"},
        {"{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1}}}",
         "needs scheduler.params.cycle_max_lr"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
         "needs scheduler.params.total_num_steps"},
        {"{\"scheduler\": {\"type\": \"WarmupCosineLR\"}}",
         "needs scheduler.params.total_num_steps"},
        {"{\"\": 1}", "no option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        CHECK_MESSAGE(read_text(&config, cases[i].text) < 0, "%s was taken", cases[i].text);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].text, tr_error());
    }
}

/* Longer than any name that it could be compared with, letter by letter. */
TEST(deepspeed, a_key_of_a_megabyte_is_like_no_other)
{
    enum { LETTERS = 1000000 };
    struct tr_config config;
    char *text = malloc(LETTERS + 8), *key = text ? text + 2 : NULL;
    REQUIRE(text);
    memcpy(text, "{\"", 2);
    memset(key, 'l', LETTERS);
    memcpy(key + LETTERS, "\": 1}", 6);
    CHECK(read_text(&config, text) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "lll") && !strstr(tr_error(), "did you mean"), "%s",
                  tr_error());
    key[LETTERS] = 0;
    CHECK_EQ(tr_config_distance(key, "layers"), 100);
    free(text);
}

TEST(deepspeed, a_file_with_a_zero_byte_is_refused)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    static const char text[] = "{\"layers\": 3\n}\n\0, \"layers\": 4}";
    struct tr_config config;
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(fd);
    tr_config_init(&config);
    CHECK(tr_config_read_json(&config, path) < 0);
    CHECK_MESSAGE(strstr(tr_error(), ":3: a zero byte"), "%s", tr_error());
    unlink(path);
}

TEST(config, no_note_is_lost_however_many_there_are)
{
    struct tr_config config;
    FILE *out = tmpfile();
    int lines = 0, number = 0;
    tr_config_init(&config);
    for (int i = 1; i <= 3000; ++i) tr_config_note(&config, "note: %d\n", i);
    tr_config_print_notes(&config, out);
    rewind(out);
    while (fscanf(out, "note: %d\n", &number) == 1) lines += number == lines + 1;
    CHECK_EQ(lines, 3000);
    fclose(out);
    tr_config_fini(&config);
}

TEST(deepspeed, what_has_no_effect_is_said_in_a_line_each_and_what_is_off_is_not)
{
    struct tr_config config;
    REQUIRE(read_text(&config, "{\n\"zero_optimization\": {\"stage\": 2,\n\"overlap_comm\": true,"
                               "\n\"round_robin_gradients\": false},\n\"aio\": {\"queue_depth\": "
                               "8},\n\"gradient_clipping\": \"auto\"}") == TR_OK);
    CHECK(strstr(config.notes, ":3: zero_optimization.overlap_comm has no effect: "));
    CHECK(!strstr(config.notes, "round_robin"));
    CHECK(strstr(config.notes, ":5: aio.queue_depth has no effect: "));
    CHECK(strstr(config.notes, ":6: gradient_clipping is \"auto\": "));
    CHECK_EQ(config.source[TR_OPTION_clip], TR_FROM_DEFAULT);
}

TEST(deepspeed, comments_and_last_commas_are_passed_over_and_texts_keep_theirs)
{
    struct tr_config config;
    REQUIRE(read_text(&config, "\xEF\xBB\xBF{ # one, }\n\"data\": \"a//b#c, }\", // \"x\"\n"
                               "\"layers\": /* 7 */ 3, /* end */ }\n# after\n") == TR_OK);
    CHECK_STR(config.data, "a//b#c, }");
    CHECK_EQ(config.layers, 3);
}

/* Of the three sizes, which are given where, and what follows on 4 ranks of sequences. */
TEST(deepspeed, the_third_of_batch_micro_batch_and_accumulation_follows_from_two)
{
    static const struct {
        const char *text, *argument;
        long batch, micro_batch;
        const char *says;
    } cases[] = {
        {"{\"train_batch_size\": 48, \"gradient_accumulation_steps\": 3}", NULL, 48, 4, NULL},
        {"{\"train_micro_batch_size_per_gpu\": 5, \"gradient_accumulation_steps\": 3}", NULL, 60, 5,
         NULL},
        {"{\"train_micro_batch_size_per_gpu\": 5}", NULL, 20, 5, NULL},
        {"{\"train_batch_size\": 48, \"train_micro_batch_size_per_gpu\": 4, "
         "\"gradient_accumulation_steps\": 3}",
         NULL, 48, 4, NULL},
        {"{\"train_batch_size\": 50, \"train_micro_batch_size_per_gpu\": 4, "
         "\"gradient_accumulation_steps\": 3}",
         NULL, 0, 0, "--batch=50 is not --micro-batch=4 x --accumulate=3 x 4 ranks"},
        {"{\"train_batch_size\": 50, \"gradient_accumulation_steps\": 3}", NULL, 0, 0,
         "--batch=50 cannot be divided by --accumulate=3 x 4"},
        {"{\"train_micro_batch_size_per_gpu\": 60000, \"gradient_accumulation_steps\": 100}", NULL,
         0, 0, "24000000 sequences a step"},
        /* The command line wins over the file. */
        {"{\"train_micro_batch_size_per_gpu\": 5}", "--batch=64", 64, 5, NULL},
        {"{\"train_batch_size\": 48, \"train_micro_batch_size_per_gpu\": 4}", "--accumulate=6", 48,
         2, NULL},
        {"{\"gradient_accumulation_steps\": 3, \"train_batch_size\": 48}", "--micro-batch=2", 48, 2,
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        struct tr_setup setup;
        char program[] = "tutti-train", argument[64];
        char *argv[] = {program, argument, NULL};
        snprintf(argument, sizeof argument, "%s", cases[i].argument ? cases[i].argument : "");
        REQUIRE(read_text(&config, cases[i].text) == TR_OK);
        if (cases[i].argument) REQUIRE(tr_config_parse(&config, 2, argv) == TR_OK);
        const tr_status status = tr_setup_of(&config, 4, &setup);
        if (cases[i].says) {
            CHECK_MESSAGE(status < 0 && strstr(tr_error(), cases[i].says), "%s: %s", cases[i].text,
                          tr_error());
            continue;
        }
        CHECK_MESSAGE(status == TR_OK, "%s: %s", cases[i].text, tr_error());
        CHECK_EQ(setup.engine.batch, cases[i].batch);
        CHECK_EQ(setup.engine.micro_batch, cases[i].micro_batch);
    }
}

/* What the file says under an option's own name holds, in any order; "": an error, since another
 * key says otherwise. */
TEST(deepspeed, an_option_under_its_own_name_wins_over_what_deepspeed_takes_for_a_missing_key)
{
    static const struct {
        const char *own, *other, *value;
    } cases[] = {
        {"\"decay\": 0.25", "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}",
         "0.25"},
        {"\"lr\": 0.25", "\"optimizer\": {\"type\": \"Lamb\"}", "0.25"},
        {"\"momentum\": 0.5", "\"optimizer\": {\"type\": \"SGD\"}", "0.5"},
        {"\"adjust-lr\": \"spectral-unclamped\"",
         "\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.01}}", "spectral-unclamped"},
        {"\"beta1\": 0.5", "\"optimizer\": {\"type\": \"Adam\"}", "0.5"},
        {"\"clip\": 0.5", "\"optimizer\": {\"type\": \"Adam\"}", "0.5"},
        {"\"beta1\": 0.5", "\"optimizer\": {\"params\": {\"betas\": [0.5, 0.9]}}", "0.5"},
        {"\"beta1\": 0.5", "\"optimizer\": {\"params\": {\"betas\": [0.9, 0.9]}}", ""},
        {"\"beta2\": 0.5", "\"optimizer\": {\"params\": {\"betas\": [0.9, 0.9]}}", ""},
        {"\"accumulate\": 4", "\"train_micro_batch_size_per_gpu\": 2", "4"},
        {"\"batch\": 8", "\"train_micro_batch_size_per_gpu\": 2", "8"},
        {"\"warmup\": 9", "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}", "9"},
        {"\"warmup\": 9",
         "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 9.0}}", "9"},
        {"\"warmup\": 9",
         "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 8}}", ""},
        {"\"steps\": 9", "\"scheduler\": {\"type\": \"WarmupDecayLR\"}", "9"},
        {"\"steps\": 3",
         "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 7}}", ""},
        {"\"min_lr\": 0.25",
         "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 7}}",
         "0.25"},
        {"\"start-lr\": 0.25",
         "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.001}}", ""},
        {"\"start-lr\": 0",
         "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.0}}", "0"},
        {"\"start-lr\": 0.25",
         "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0}}", ""},
        {"\"schedule\": \"cosine\"", "\"scheduler\": {\"type\": \"WarmupLR\"}", ""},
        {"\"bucket-kib\": 8", "\"zero_optimization\": {\"reduce_bucket_size\": 1024}", ""},
        {"\"bucket-kib\": 4", "\"zero_optimization\": {\"reduce_bucket_size\": 1024}", "4"},
        {"\"nesterov\": \"on\"", "\"optimizer\": {\"params\": {\"nesterov\": false}}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        for (int turn = 0; turn < 2; ++turn) {
            struct tr_config config;
            char text[256], name[32], is[TR_TEXT_BYTES], says[96];
            snprintf(text, sizeof text, "{%s, %s}", turn ? cases[i].other : cases[i].own,
                     turn ? cases[i].own : cases[i].other);
            snprintf(name, sizeof name, "%.*s", (int)strcspn(cases[i].own + 1, "\""),
                     cases[i].own + 1);
            const tr_status status = read_text(&config, text);
            tr_config_value(&config, tr_config_find(name), is);
            if (cases[i].value[0]) {
                CHECK_MESSAGE(status == TR_OK, "%s: %s", text, tr_error());
                CHECK_MESSAGE(!strcmp(is, cases[i].value), "%s: %s", text, is);
                continue;
            }
            snprintf(says, sizeof says, "which \"%s\" in line 1 gives another value", name);
            CHECK_MESSAGE(status < 0 && strstr(tr_error(), says), "%s: %s", text,
                          status < 0 ? tr_error() : "was taken");
        }
}

/* A value of another JSON type than the key's, which json-c would convert. */
TEST(deepspeed, a_value_of_another_type_is_refused_with_what_was_expected)
{
    static const struct {
        const char *section, *key, *value, *expected;
    } cases[] = {
        {"", "train_batch_size", "\"16\"", "a whole number"},
        {"", "train_batch_size", "true", "a whole number"},
        {"", "train_batch_size", "16.5", "a whole number"},
        {"", "train_micro_batch_size_per_gpu", "\"4\"", "a whole number"},
        {"", "gradient_accumulation_steps", "true", "a whole number"},
        {"", "gradient_clipping", "\"1.0\"", "a number"},
        {"pipeline", "stages", "\"1\"", "a whole number"},
        {"zero_optimization", "stage", "\"2\"", "a whole number"},
        {"zero_optimization", "reduce_bucket_size", "true", "a whole number"},
        {"zero_optimization", "reduce_bucket_size", "\"5e8\"", "a whole number"},
        {"zero_optimization", "reduce_bucket_size", "4096.5", "a whole number"},
        {"zero_optimization", "zero_hpz_partition_size", "true", "1: "},
        {"zero_optimization", "zero_quantized_weights", "\"false\"", "false: "},
        {"zero_optimization", "grad_accum_dtype", "32", "fp32: "},
        {"fp16", "enabled", "\"false\"", "false: "},
        {"fp16", "enabled", "0", "false: "},
        {"optimizer.params", "lr", "\"1e-3\"", "a number"},
        {"optimizer.params", "betas", "[0.9,\"0.99\"]", "two numbers"},
        {"optimizer.params", "betas", "[false,0.99]", "two numbers"},
        {"optimizer.params", "adam_w_mode", "\"false\"", "true or false"},
        {"optimizer.params", "adam_w_mode", "1", "true or false"},
        {"optimizer.params", "nesterov", "\"false\"", "true or false"},
        {"optimizer.params", "dampening", "false", "0: "},
        {"WarmupLR", "warmup_min_lr", "\"0.0001\"", "a number"},
        {"WarmupLR", "warmup_min_lr", "false", "a number"},
        {"WarmupLR", "warmup_max_lr", "\"0.01\"", "a number"},
        {"WarmupLR", "warmup_num_steps", "\"10\"", "a whole number"},
        {"WarmupLR", "warmup_type", "true", "a text"},
        {"WarmupCosineLR", "total_num_steps", "true", "a whole number"},
        {"WarmupCosineLR", "total_num_steps", "0", "a number of steps, at least 1"},
        {"WarmupDecayLR", "total_num_steps", "-3", "a number of steps, at least 1"},
        {"OneCycle", "cycle_min_lr", "\"0.0001\"", "a number"},
        {"OneCycle", "cycle_min_lr", "[0.1]", "a number"},
        {"LRRangeTest", "lr_range_test_staircase", "\"true\"", "true or false"},
        {"LRRangeTest", "lr_range_test_staircase", "1", "true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        char text[256], pair[96], says[128];
        const char *section = cases[i].section;
        snprintf(pair, sizeof pair, "\"%s\": %s", cases[i].key, cases[i].value);
        if (!section[0])
            snprintf(text, sizeof text, "{%s}", pair);
        else if (!strcmp(section, "optimizer.params"))
            snprintf(text, sizeof text, "{\"optimizer\": {\"params\": {%s}}}", pair);
        else if (strstr(section, "LR") || strstr(section, "Cycle"))
            snprintf(text, sizeof text, "{\"scheduler\": {\"type\": \"%s\", \"params\": {%s}}}",
                     section, pair);
        else
            snprintf(text, sizeof text, "{\"%s\": {%s}}", section, pair);
        snprintf(says, sizeof says, "%s: expected %s", pair + 1, cases[i].expected);
        CHECK_MESSAGE(read_text(&config, text) < 0, "%s was taken", text);
        CHECK_MESSAGE(strstr(tr_error(), says), "%s: %s, expected %s", text, tr_error(), says);
    }
}

/* A rate that the command line, a scheduler or an own key gives is one for all tensors. */
TEST(deepspeed, a_lowest_rate_is_a_share_of_the_lr_that_counts_wherever_it_is_given)
{
    static const char warmup[] =
        "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.0001}}, "
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001}}}";
    static const char cycle[] = "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                                "{\"cycle_min_lr\": 0.0001, \"cycle_max_lr\": 0.001}}}";
    static const struct {
        const char *text, *argument;
        double start, lowest; /* shares; 0.05 is the default of --min-lr */
        const char *says;
    } cases[] = {
        {warmup, "--seed=1", 0.1, 0.05, NULL},
        {warmup, "--lr=0.01", 0.01, 0.05, NULL},
        {warmup, "--lr=0.0001", 1, 0.05, NULL},
        {warmup, "--start-lr=0.5", 0.5, 0.05, NULL},
        {warmup, "--lr=0.00001", 0, 0,
         ":1: \"scheduler.params.warmup_min_lr\": 0.0001: expected 0 to --lr=1e-05"},
        {cycle, "--seed=1", 0, 0.1, NULL},
        {cycle, "--lr=0.002", 0, 0.05, NULL},
        {cycle, "--min-lr=0.3", 0, 0.3, NULL},
        {cycle, "--lr=0", 0, 0, "\"scheduler.params.cycle_min_lr\": 0.0001: expected 0 to --lr=0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        for (int last = 0; last < 2; ++last) {
            struct tr_config config;
            tr_config_init(&config);
            if (!last) REQUIRE(parse_one(&config, cases[i].argument) == TR_OK);
            REQUIRE(read_json(&config, cases[i].text) == TR_OK);
            if (last) REQUIRE(parse_one(&config, cases[i].argument) == TR_OK);
            const tr_status status = tr_config_check(&config);
            if (cases[i].says) {
                CHECK_MESSAGE(status < 0 && strstr(tr_error(), cases[i].says), "%zu: %s", i,
                              tr_error());
                continue;
            }
            CHECK_MESSAGE(status == TR_OK, "%zu: %s", i, tr_error());
            tr_config_resolve(&config);
            CHECK(fabs(config.start_lr - cases[i].start) < 1e-15);
            CHECK(fabs(config.min_lr - cases[i].lowest) < 1e-15);
        }
    }
}

TEST(deepspeed, a_lowest_rate_is_a_share_of_the_checkpoints_lr_and_gives_way_to_a_later_file)
{
    static const char lowest[] = "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                                 "{\"warmup_min_lr\": 0.0001}}}";
    struct tr_config saved, config, other;
    tr_config_init(&saved);
    REQUIRE(parse_one(&saved, "--lr=0.01") == TR_OK);
    char *json = tr_config_to_json(&saved);
    REQUIRE(json && read_text(&config, lowest) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") == TR_OK);
    free(json);
    tr_config_resolve(&config);
    CHECK(fabs(config.start_lr - 0.01) < 1e-15);
    REQUIRE(read_text(&config, lowest) == TR_OK);
    REQUIRE(read_json(&config, "{\"start-lr\": 0.25}") == TR_OK);
    tr_config_resolve(&config);
    CHECK(fabs(config.start_lr - 0.25) < 1e-15);
    /* Ranks must have the same. */
    REQUIRE(read_text(&config, lowest) == TR_OK && read_text(&other, lowest) == TR_OK);
    CHECK(tr_config_checksum(&config) == tr_config_checksum(&other));
    other.start_rate.rate = 0.0002;
    CHECK(tr_config_checksum(&config) != tr_config_checksum(&other));
}
