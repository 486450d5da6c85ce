/* Tests of DeepSpeed's configuration files: ten and more of the shapes that people have, their
 * numbers changed. */
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

static tr_status read_text(struct tr_config *config, const char *text)
{
    tr_config_init(config);
    return read_json(config, text);
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
        {"generator.json", "lr=0.0004 beta1=0.6 beta2=0.99 decay=0", 2, 48, 8},
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
        {"one_bit.json", ":7: \"optimizer.type\": \"OneBitAdam\": expected one of Adam"},
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
        {"{\"train_batch_size\": [3]}", "expected one number"},
        {"{\"train_batch_size\": {\"a\": 3}}", "expected a value, not an object"},
        {"{\"train_batch_size\": \"many\"}", "not a number"},
        {"{\"train_batch_size\": 0}", "out of range"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9]}}}", "two numbers"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, null]}}}",
         "not a number"},
        {"{\"optimizer\": {\"type\": 3}}", "expected one of Adam"},
        {"{\"optimizer\": {\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}}}",
         "decoupled"},
        {"{\"scheduler\": {\"type\": \"Cosine\"}}", "expected one of WarmupLR"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 0.1}}}",
         "the scheduler has no such parameter"},
        {"{\"scheduler\": {\"params\": {\"warmup_num_steps\": 10}}}", "expected a scheduler.type"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 2, "
         "\"warmup_max_lr\": 1}}}",
         "out of range"},
        {"{\"zero_optimization\": {\"stage\": 4}}", "0 to 3"},
        {"{\"zero_optimization\": {\"reduce_bucket_size\": -1}}", "at least 1"},
        {"{\"zero_optimization\": {\"reduce_bucket_size\": 1e300}}", "out of range"},
        {"{\"compression_training\": {\"weight_quantization\": {\"a\": 1}}}", "compression"},
        {"{\"gradient_clipping\": 1 /* \n}", "a comment begins here and does not end"},
        {"{\"a.b\": 1}", "a.b"},
        {"{\"\": 1}", "no option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        CHECK_MESSAGE(read_text(&config, cases[i].text) < 0, "%s was taken", cases[i].text);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].text, tr_error());
    }
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
