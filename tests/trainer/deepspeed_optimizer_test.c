/* Tests of the section `optimizer` of DeepSpeed's configuration. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "options_file.h"
#include "setup.h"
#include "shim.h"

/* The file is read. With one more argument (NULL: none) its options are refused with an error that
 * has `says`; NULL: they are taken. */
static void check_refusal(const char *text, const char *argument, const char *says)
{
    struct tr_config config;
    char program[] = "tutti-train", copy[64];
    char *argv[] = {program, copy, NULL};
    CHECK_MESSAGE(read_text(&config, text) == TR_OK, "%s: %s", text, tr_error());
    snprintf(copy, sizeof copy, "%s", argument ? argument : "");
    if (argument) CHECK_EQ(tr_config_parse(&config, 2, argv), TR_OK);
    const bool is_refused = tr_config_check(&config) < 0;
    CHECK_MESSAGE(is_refused == (says != NULL), "%s %s: %s", text, copy,
                  is_refused ? tr_error() : "was taken");
    CHECK_MESSAGE(!is_refused || !says || strstr(tr_error(), says), "%s", tr_error());
}

TEST(deepspeed, a_parameter_that_the_optimizer_does_not_have_is_refused)
{
    static const struct {
        const char *type, *pair;
        bool is_own;
    } cases[] = {
        {"SGD", "\"momentum\": 0.9", true},       {"SGD", "\"betas\": [0.9, 0.95]", false},
        {"SGD", "\"eps\": 1e-8", false},          {"SGD", "\"nesterov\": false", true},
        {"Adam", "\"betas\": [0.9, 0.95]", true}, {"Adam", "\"momentum\": 0.9", false},
        {"AdamW", "\"nesterov\": false", false},  {"AdamW", "\"max_coeff\": 5", false},
        {"Lamb", "\"max_coeff\": 5", true},       {"Lamb", "\"momentum\": 0.9", false},
        {"Muon", "\"momentum\": 0.9", true},      {"Muon", "\"min_coeff\": 0.1", false},
        {"Muon", "\"nesterov\": false", true},    {"SGD", "\"betas\": \"auto\"", true},
        {"Unknown", "\"betas\": 3", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        char text[256], says[128];
        snprintf(text, sizeof text,
                 "{\"optimizer\": {\"params\": {\"lr\": 0.01,\n%s}, \"type\": \"%s\"}}",
                 cases[i].pair, cases[i].type);
        snprintf(says, sizeof says, "%s has no such parameter", cases[i].type);
        const tr_status status = read_text(&config, text);
        CHECK_MESSAGE((status == TR_OK) == cases[i].is_own, "%s: %s", text, tr_error());
        if (status == TR_OK || !strcmp(cases[i].type, "Unknown")) continue;
        CHECK_MESSAGE(strstr(tr_error(), says) && strstr(tr_error(), ":2: \"optimizer.params."),
                      "%s: %s", text, tr_error());
    }
}

TEST(deepspeed, muon_without_a_learning_rate_is_refused)
{
    static const struct {
        const char *text, *argument;
        bool is_refused;
    } cases[] = {
        {"}", NULL, true},
        {", \"params\": {\"lr\": \"auto\"}}", NULL, true},
        {", \"params\": {\"lr\": 0.01}}", NULL, false},
        {"}, \"lr\": 0.01", NULL, false},
        {"}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.01}}", NULL,
         false},
        {"}", "--lr=0.02", false},
        {"}", "--optimizer=adamw", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char text[256];
        snprintf(text, sizeof text, "{\"optimizer\": {\"type\": \"Muon\"%s}", cases[i].text);
        check_refusal(text, cases[i].argument,
                      cases[i].is_refused ? "Muon without a learning rate" : NULL);
    }
}

/* As torch.optim.AdamW, Adam and DeepSpeed's own Adam and Lamb have. */
TEST(deepspeed, torch_adam_has_the_decay_of_torch)
{
    static const struct {
        const char *text;
        double decay;
    } cases[] = {
        {"\"Adam\", \"params\": {\"torch_adam\": true}", 0.01},
        {"\"AdamW\", \"params\": {\"torch_adam\": true, \"adam_w_mode\": false}", 0.01},
        {"\"Adam\", \"params\": {\"torch_adam\": true, \"adam_w_mode\": false}", 0},
        {"\"Adam\", \"params\": {\"torch_adam\": true, \"weight_decay\": 0.5}", 0.5},
        {"\"Adam\", \"params\": {\"torch_adam\": false}", 0},
        {"\"Lamb\", \"params\": {\"torch_adam\": true}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        char text[256];
        snprintf(text, sizeof text, "{\"optimizer\": {\"type\": %s}}", cases[i].text);
        CHECK_MESSAGE(read_text(&config, text) == TR_OK, "%s: %s", text, tr_error());
        CHECK(fabs(config.decay - cases[i].decay) < 1e-12);
    }
}

/* Decay that is left open is tutti-train's own, 0.1. */
TEST(deepspeed, a_decay_that_is_not_decoupled_is_refused)
{
    static const struct {
        const char *text, *argument;
        bool is_refused;
    } cases[] = {
        {"\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}", NULL, true},
        {"\"params\": {\"adam_w_mode\": false, \"weight_decay\": \"auto\"}", NULL, true},
        {"\"params\": {\"adam_w_mode\": false}", NULL, true},
        {"\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.0}", NULL, false},
        {"\"params\": {\"adam_w_mode\": true, \"weight_decay\": 0.1}", NULL, false},
        {"\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}", "--optimizer=sgd", false},
        {"\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}", NULL,
         true},
        {"\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}",
         "--optimizer=muon", false},
        {"\"type\": \"auto\", \"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}", NULL,
         true},
        {"\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}", NULL,
         false},
        {"\"type\": \"Muon\", \"params\": {\"adam_w_mode\": false, \"lr\": 1, \"weight_decay\": "
         "0.1}",
         NULL, false},
        {"\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"weight_decay\": 0.1}", NULL, true},
        {"\"type\": \"SGD\", \"params\": {\"momentum\": 0.9}", NULL, false},
        {"\"type\": \"SGD\", \"params\": {\"weight_decay\": 0.1}", NULL, false},
        {"\"type\": \"SGD\", \"params\": {\"weight_decay\": 0.1}", "--momentum=0.9", true},
        {"\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"weight_decay\": 0.1}",
         "--optimizer=adamw", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char text[256];
        snprintf(text, sizeof text, "{\"optimizer\": {%s}}", cases[i].text);
        check_refusal(text, cases[i].argument, cases[i].is_refused ? "decoupled" : NULL);
    }
}

/* Its default in DeepSpeed is 0; another source may say otherwise later. */
TEST(deepspeed, adam_without_a_decay_is_taken_and_one_that_comes_from_elsewhere_refused)
{
    static const char *const texts[] = {
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}",
        "{\"optimizer\": {\"params\": {\"adam_w_mode\": false}, \"type\": \"Adam\"}}",
        "{\"optimizer\": {\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0}}}",
        ("{\"decay\": 0.3, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": "
         "false}}}")};
    struct tr_config config;
    for (int i = 0; i < 4; ++i) {
        CHECK_MESSAGE(read_text(&config, texts[i]) == TR_OK, "%s: %s", texts[i], tr_error());
        CHECK(i == 3 || (config.decay == 0 && tr_config_check(&config) == TR_OK));
        if (i < 3) REQUIRE(tr_config_set(&config, "decay", "0.3", TR_FROM_COMMAND_LINE) == TR_OK);
        CHECK_MESSAGE(tr_config_check(&config) < 0, "%s", texts[i]);
        CHECK_MESSAGE(strstr(tr_error(), ":1: \"optimizer.params.adam_w_mode\": false: ") &&
                          strstr(tr_error(), "--decay is 0.3; set adam_w_mode to true"),
                      "%s", tr_error());
        REQUIRE(tr_config_set(&config, "decay", "0", TR_FROM_COMMAND_LINE) == TR_OK);
        CHECK(tr_config_check(&config) == TR_OK);
    }
}

/* The lowest rates of a file are learning rates, those of the options shares of --lr. */
