/* Tests of the trainer's options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
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
        {"--lr=1e999", "not a number"},
        {"--lr=nan", "not a number"},
        {"--layers=2.5", "not a whole number"},
        {"--layers=0", "1 to 1000"},
        {"--beta1=-1", "out of range"},
        {"--steps", "missing"},
        {"text.txt", "unexpected argument"},
        {"--heads=", "not a number"},
        {"--config=/nonexistent.json", "/nonexistent.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tr_config config;
        CHECK_MESSAGE(parse(&config, cases[i].argument, NULL) < 0, "%s was taken",
                      cases[i].argument);
        CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s: %s", cases[i].argument, tr_error());
    }
}

TEST(config, width_must_be_divisible_by_heads)
{
    struct tr_config config;
    REQUIRE(parse(&config, "--heads=5", NULL) == TR_OK);
    CHECK(tr_config_check(&config) < 0);
    CHECK(strstr(tr_error(), "--heads=5") != NULL);
}

/* Writes text to a file and reads it as options. */
static tr_status read_json(struct tr_config *config, const char *text)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    const tr_status status = tr_config_read_json(config, path);
    unlink(path);
    return status;
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
        {"{\n\"layers\": 3,\n\"widht\": 32}", ":3: no option --widht; did you mean --width"},
        {"{\"layers\": [3]}", "expected a number or a string"},
        {"{\"layers\": 3", "not a JSON object"},
        {"[1]", "not a JSON object"},
        {"{\"layers\": \"many\"}", "not a number"},
        {"{\"layers\": null}", "expected a number or a string"},
        {"", "not a JSON object"},
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
    char *json = tr_config_to_json(&saved);
    REQUIRE(json != NULL);
    REQUIRE(parse(&config, "--batch=5", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") == TR_OK);
    CHECK_EQ(config.width, 64);
    CHECK_EQ(config.batch, 5);
    CHECK_EQ(config.every, 0);
    CHECK(config.lr == saved.lr);
    REQUIRE(parse(&config, "--width=96", NULL) == TR_OK);
    CHECK(tr_config_restore(&config, json, "file") < 0);
    CHECK(strstr(tr_error(), "--width=96") && strstr(tr_error(), "width 64"));
    free(json);
}
