/* Tests of the config table: defaults, environment, settings file and complaints. */
#include "base/config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

/* Sets or, with NULL, unsets a variable and reads all again. */
static void with(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
    tt_config_reload();
}

/* Sets the variable, and gives what went to stderr meanwhile. */
static void with_stderr(const char *name, const char *value, char *text, size_t size)
{
    FILE *file = tmpfile();
    text[0] = '\0';
    if (!file) {
        tt_test_fail(__FILE__, __LINE__, "no temporary file");
        return;
    }
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    with(name, value);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* Makes a settings file and lets it be read; the caller forgets it again. */
static void use_file(char *path, const char *text, char *said, size_t size)
{
    const int fd = mkstemp(path);
    const size_t length = strlen(text);
    CHECK(fd >= 0 && write(fd, text, length) == (ssize_t)length);
    close(fd);
    with_stderr("TUTTI_CONF_FILE", path, said, size);
}

static void forget_file(const char *path)
{
    unlink(path);
    with("TUTTI_CONF_FILE", NULL);
}

static bool parses(const struct tt_config_row *row)
{
    const char *text = row->fallback;
    char *end;
    int64_t value;
    if (!strcmp(row->type, "STRING")) return true;
    if (!strcmp(row->type, "SIZE")) return tt_parse_size(text, &value) == 0;
    if (!strcmp(row->type, "BOOL")) return !strcmp(text, "0") || !strcmp(text, "1");
    if (!strcmp(row->type, "AUTO")) return strstr("auto 0 1", text) != NULL;
    if (!strcmp(row->type, "REQUIRE")) return strstr("require 0 1", text) != NULL;
    if (!strcmp(row->type, "LEVEL")) return strstr("NONE WARN INFO", text) != NULL;
    if (strcmp(row->type, "INT") != 0 || !text[0]) return false;
    (void)strtoll(text, &end, 10);
    return *end == '\0';
}

TEST(config, every_row_has_a_type_a_default_that_parses_and_a_sentence)
{
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        CHECK_MESSAGE(parses(row), "%s: the default '%s' is no %s", row->name, row->fallback,
                      row->type);
        CHECK_MESSAGE(!strncmp(row->name, "TUTTI_", 6), "%s does not begin with TUTTI_", row->name);
        const size_t length = strlen(row->sentence);
        CHECK_MESSAGE(length > 10 && row->sentence[length - 1] == '.', "%s: '%s' is no sentence",
                      row->name, row->sentence);
        CHECK_MESSAGE(!strpbrk(row->sentence, "|\n"),
                      "%s: the docs' table cannot hold the sentence", row->name);
        for (int other = 0; other < key; other++)
            CHECK_MESSAGE(strcmp(row->name, tt_config_row((enum tt_config_key)other)->name) != 0,
                          "%s is there twice", row->name);
    }
}

TEST(config, defaults_hold_without_anything_set)
{
    with("TUTTI_SLOT_BYTES", NULL);
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOT_BYTES), 128 << 10);
    CHECK_STR(tt_config_string(TT_CONFIG_SLOT_BYTES), "128K");
    CHECK_STR(tt_config_source(TT_CONFIG_SLOT_BYTES), "default");
    with("TUTTI_HOST_ID", NULL);
    CHECK_STR(tt_config_string(TT_CONFIG_HOST_ID), "");
}

TEST(config, the_environment_is_read_and_named_as_the_source)
{
    with("TUTTI_SLOT_BYTES", "1M");
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOT_BYTES), 1 << 20);
    CHECK_STR(tt_config_string(TT_CONFIG_SLOT_BYTES), "1M");
    CHECK_STR(tt_config_source(TT_CONFIG_SLOT_BYTES), "environment");
    with("TUTTI_SLOT_BYTES", NULL);
    with("TUTTI_LOG", "info");
    CHECK_EQ(tt_config_int(TT_CONFIG_LOG), 2);
    with("TUTTI_LOG", NULL);
}

TEST(config, bad_values_are_reported_and_the_default_holds)
{
    static const struct {
        enum tt_config_key key;
        const char *value, *expected;
    } bad[] = {
        {TT_CONFIG_LOG, "trace", "NONE, WARN or INFO"},
        {TT_CONFIG_TIMEOUT_MS, "soon", "a whole number"},
        {TT_CONFIG_TIMEOUT_MS, "10s", "a whole number"},
        {TT_CONFIG_TIMEOUT_MS, "99999999999999999999", "a whole number"},
        {TT_CONFIG_SLOTS, "1.5", "a whole number"},
        {TT_CONFIG_SLOT_BYTES, "-1", "a size"},
        {TT_CONFIG_SLOT_BYTES, "12Q", "a size"},
        {TT_CONFIG_SLOT_BYTES, "9223372036854775807K", "a size"},
        {TT_CONFIG_LOG, "LOUD", "NONE, WARN or INFO"},
    };
    char said[1024];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct tt_config_row *row = tt_config_row(bad[i].key);
        with(row->name, NULL);
        const int64_t fallback = tt_config_int(bad[i].key);
        with_stderr(row->name, bad[i].value, said, sizeof said);
        CHECK_MESSAGE(strstr(said, row->name) && strstr(said, bad[i].value) &&
                          strstr(said, bad[i].expected) && strstr(said, row->fallback),
                      "%s=%s was reported as: %s", row->name, bad[i].value, said);
        CHECK_EQ(tt_config_int(bad[i].key), fallback);
        CHECK_STR(tt_config_source(bad[i].key), "default");
        with(row->name, NULL);
    }
}

TEST(config, the_usual_words_turn_a_setting_on_and_off)
{
    static const char *const on[] = {"1", "true", "yes", "on", "TRUE", "Yes", "oN"};
    static const char *const off[] = {"0", "false", "no", "off", "False", "NO", "OFF"};
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        if (strcmp(row->type, "BOOL") != 0 && strcmp(row->type, "AUTO") != 0 &&
            strcmp(row->type, "REQUIRE") != 0)
            continue;
        for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
            with(row->name, on[i]);
            CHECK_MESSAGE(tt_config_int((enum tt_config_key)key) == 1, "%s=%s", row->name, on[i]);
            with(row->name, off[i]);
            CHECK_MESSAGE(tt_config_int((enum tt_config_key)key) == 0, "%s=%s", row->name, off[i]);
            CHECK_STR(tt_config_source((enum tt_config_key)key), "environment");
        }
        with(row->name, NULL);
    }
    with("TUTTI_ZEROCOPY", "AUTO");
    CHECK_EQ(tt_config_int(TT_CONFIG_ZEROCOPY), -1);
    with("TUTTI_ZEROCOPY", NULL);
    CHECK_EQ(tt_config_int(TT_CONFIG_ZEROCOPY), -1);
    with("TUTTI_DEVICE_KERNELS", "Require");
    CHECK_EQ(tt_config_int(TT_CONFIG_DEVICE_KERNELS), TT_CONFIG_REQUIRE);
    with("TUTTI_DEVICE_KERNELS", "auto");
    CHECK_EQ(tt_config_int(TT_CONFIG_DEVICE_KERNELS), 1);
    with("TUTTI_DEVICE_KERNELS", NULL);
}

TEST(config, a_file_turns_a_setting_on_with_the_same_words)
{
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024];
    use_file(path, "TUTTI_ENCRYPT=Yes\n", said, sizeof said);
    CHECK_STR(said, "");
    CHECK_EQ(tt_config_int(TT_CONFIG_ENCRYPT), 1);
    forget_file(path);
}

TEST(config, a_file_is_read_with_comments_and_named_as_the_source)
{
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024];
    use_file(path, "# a comment\n\n  TUTTI_SLOTS=16\r\nTUTTI_WAIT=spin", said, sizeof said);
    CHECK_STR(said, "");
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 16);
    CHECK_STR(tt_config_source(TT_CONFIG_SLOTS), path);
    CHECK_STR(tt_config_string(TT_CONFIG_WAIT), "spin");
    forget_file(path);
    CHECK_STR(tt_config_source(TT_CONFIG_SLOTS), "default");
}

TEST(config, the_environment_wins_over_the_file)
{
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024];
    setenv("TUTTI_SLOTS", "4", 1);
    use_file(path, "TUTTI_SLOTS=16\n", said, sizeof said);
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 4);
    CHECK_STR(tt_config_source(TT_CONFIG_SLOTS), "environment");
    unsetenv("TUTTI_SLOTS");
    forget_file(path);
}

TEST(config, unknown_names_and_bad_values_in_a_file_are_reported_with_its_path)
{
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024];
    use_file(path, "TUTTI_TYPO=1\nno equals sign\nTUTTI_SLOTS=many\nTUTTI_WAIT=yield\n", said,
             sizeof said);
    CHECK(strstr(said, path));
    CHECK(strstr(said, "'TUTTI_TYPO' is not a setting"));
    CHECK(strstr(said, "'no equals sign' is not a setting"));
    CHECK(strstr(said, "TUTTI_SLOTS=many"));
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 0);
    CHECK_STR(tt_config_string(TT_CONFIG_WAIT), "yield");
    forget_file(path);
}

TEST(config, a_variable_that_is_no_setting_is_reported)
{
    static const char *const others[] = {"TUTTI_TEST_SEED", "TUTTI_ROOT", "TUTTI_CONF_FILE",
                                         "TUTTI_SLOTS", "TUTT_SLOT"};
    char said[1024];
    with_stderr("TUTTI_TIMEOUTMS", "3", said, sizeof said);
    CHECK(strstr(said, "TUTTI_TIMEOUTMS is not a setting and has no effect"));
    with("TUTTI_TIMEOUTMS", NULL);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *before = getenv(others[i]);
        char *kept = before ? strdup(before) : NULL;
        with_stderr(others[i], strcmp(others[i], "TUTTI_CONF_FILE") ? "4" : "/dev/null", said,
                    sizeof said);
        CHECK_STR(said, "");
        with(others[i], kept);
        free(kept);
    }
}

TEST(config, an_empty_value_counts_as_unset)
{
    char said[256];
    with_stderr("TUTTI_TIMEOUT_MS", "", said, sizeof said);
    CHECK_STR(said, "");
    CHECK_EQ(tt_config_int(TT_CONFIG_TIMEOUT_MS), 600000);
    CHECK_STR(tt_config_source(TT_CONFIG_TIMEOUT_MS), "default");
    with("TUTTI_TIMEOUT_MS", NULL);
}

TEST(config, a_named_file_that_is_not_there_is_reported)
{
    char said[256];
    with_stderr("TUTTI_CONF_FILE", "/nonexistent/tutti.conf", said, sizeof said);
    CHECK(strstr(said, "TUTTI_CONF_FILE=/nonexistent/tutti.conf cannot be read"));
    with("TUTTI_CONF_FILE", NULL);
}

/* Lets `path` be read as the user's file; then no communicator is made, and why. */
static void check_refused(const char *path, const char *expected)
{
    char said[1024];
    with_stderr("TUTTI_CONF_FILE", path, said, sizeof said);
    CHECK_MESSAGE(strstr(said, path) && strstr(said, expected), "expected %s, %s; said: %s", path,
                  expected, said);
    CHECK_MESSAGE(tt_config_check() == TT_ERR_ARGUMENT, "%s: a communicator may be made", path);
    CHECK_MESSAGE(strstr(tt_last_error(), expected), "%s", tt_last_error());
    with("TUTTI_CONF_FILE", NULL);
    CHECK_EQ(tt_config_check(), TT_OK);
}

TEST(config, what_is_no_regular_file_is_not_read)
{
    char folder[] = "/tmp/tutti-config-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    REQUIRE(mkfifo(path, 0600) == 0);
    check_refused(path, "it is a pipe");
    const int writer = open(path, O_RDWR | O_CLOEXEC); /* it has an end, and something in it */
    CHECK_EQ(write(writer, "TUTTI_SLOTS=16\n", 15), 15);
    check_refused(path, "it is a pipe");
    close(writer);
    check_refused(folder, "it is a folder");
    check_refused("/dev/zero", "it is a device");
    unlink(path);
    rmdir(folder);
}

TEST(config, dev_null_is_an_empty_file)
{
    char said[256];
    with_stderr("TUTTI_CONF_FILE", "/dev/null", said, sizeof said);
    CHECK_STR(said, "");
    CHECK_EQ(tt_config_check(), TT_OK);
    with("TUTTI_CONF_FILE", NULL);
}

TEST(config, a_file_of_another_user_is_not_read)
{
    if (geteuid()) SKIP("only root can give a file away");
    char folder[] = "/tmp/tutti-config-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/settings", folder);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && chown(path, 48213, 48213) == 0);
    close(fd);
    check_refused(path, "belongs to uid 48213");
    unlink(path);
    rmdir(folder);
}

/* Of a comment as long as the line buffer was, the tail is no setting. */
TEST(config, lines_may_be_long)
{
    enum { LONG = 5000 };
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024], text[3 * LONG] = "#";
    for (int i = 0; i < 1022; i++) strcat(text, "x");
    strcat(text, "TUTTI_SLOTS=16\nTUTTI_SOCKET_INTERFACE=");
    const size_t begin = strlen(text);
    while (strlen(text) < begin + LONG) strcat(text, "eth1234567,");
    use_file(path, text, said, sizeof said);
    CHECK_STR(said, "");
    CHECK_STR(tt_config_source(TT_CONFIG_SLOTS), "default");
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), text + begin);
    forget_file(path);
}

TEST(config, a_line_with_a_zero_byte_is_reported)
{
    static const char text[] = "TUTTI_SLOTS=16\0\nTUTTI_WAIT=spin\n";
    char path[] = "/tmp/tutti-config-XXXXXX", said[1024];
    const int fd = mkstemp(path);
    CHECK_EQ(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    with_stderr("TUTTI_CONF_FILE", path, said, sizeof said);
    CHECK_MESSAGE(strstr(said, "a line with a zero byte is not read: 'TUTTI_SLOTS=16'"), "%s",
                  said);
    CHECK_STR(tt_config_source(TT_CONFIG_SLOTS), "default");
    CHECK_STR(tt_config_string(TT_CONFIG_WAIT), "spin");
    forget_file(path);
}

TEST(config, a_path_that_is_too_long_is_not_cut)
{
    char path[2 * 4096] = "/tmp", said[2 * 4096];
    while (strlen(path) < 4096) strcat(path, "/.");
    with_stderr("TUTTI_CONF_FILE", path, said, sizeof said);
    CHECK(strstr(said, "its path is too long"));
    CHECK_EQ(tt_config_check(), TT_ERR_ARGUMENT);
    with("TUTTI_CONF_FILE", NULL);
}

TEST(config, a_launchers_variable_is_passed_through)
{
    setenv("TUTTI_TEST_VARIABLE", "x", 1);
    CHECK_STR(tt_environment("TUTTI_TEST_VARIABLE"), "x");
    unsetenv("TUTTI_TEST_VARIABLE");
    CHECK(!tt_environment("TUTTI_TEST_VARIABLE"));
}

TEST(parse_size, suffixes_are_binary)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"64", 64},
                {"32K", 32768},
                {"32k", 32768},
                {"1M", 1 << 20},
                {"2G", 2ll << 30},
                {"1KB", 1024},
                {"7b", 7},
                {"8589934591G", 8589934591ll << 30},
                {"9223372036854775807", INT64_MAX}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = -1;
        CHECK_MESSAGE(tt_parse_size(good[i].text, &value) == 0, "'%s' is a size", good[i].text);
        CHECK_EQ(value, good[i].value);
    }
}

TEST(parse_size, what_is_no_size_leaves_the_value_alone)
{
    static const char *const bad[] = {"",    "K",   "-1",          "1T",
                                      "1 K", "1KK", "0x10",        "1.5M",
                                      "abc", "1M1", "8589934592G", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value = 77;
        CHECK_MESSAGE(tt_parse_size(bad[i], &value) == -1, "'%s' is no size", bad[i]);
        CHECK_EQ(value, 77);
    }
}
