/* Files of constants of the cost model: what is read, what is refused, and that a file that was
 * written gives the same constants again. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "algorithms/costs.h"
#include "each.h"
#include "shim.h"

static char path[] = "/tmp/tutti-costs-XXXXXX";

/* A file with these bytes at `path`. */
static void make(const char *bytes, size_t nbytes)
{
    strcpy(path, "/tmp/tutti-costs-XXXXXX");
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes);
    close(fd);
}

static tt_status read_text(const char *text, struct tt_costs *costs)
{
    make(text, strlen(text));
    const tt_status status = tt_costs_read(path, costs);
    unlink(path);
    return status;
}

static bool equal(const struct tt_costs *a, const struct tt_costs *b)
{
    for (int i = 0; i < TT_NCOSTS; i++)
        if (a->at[i].value != b->at[i].value) return false;
    return true;
}

TEST(cost_file, replaces_what_it_names_and_leaves_the_rest_as_shipped)
{
    struct tt_costs costs, expected = tt_shipped_costs;
    REQUIRE(read_text("# of a machine\n\n link=0.5 # us\r\n\tbyte_sent  =  1.5e-4\nnet_link = 12\n",
                      &costs) == TT_OK);
    expected.at[TT_COST_LINK].value = 0.5;
    expected.at[TT_COST_BYTE_SENT].value = 1.5e-4;
    expected.at[TT_COST_NET_LINK].value = 12;
    CHECK(equal(&costs, &expected));
    CHECK(tt_costs_checksum(&costs) == tt_costs_checksum(&expected));
    CHECK(tt_costs_checksum(&costs) != tt_costs_checksum(&tt_shipped_costs));
}

TEST(cost_file, without_a_path_or_a_line_there_are_the_shipped_constants)
{
    struct tt_costs costs = {.at = {{.name = NULL}}};
    CHECK(tt_costs_read("", &costs) == TT_OK);
    CHECK(equal(&costs, &tt_shipped_costs));
    costs = (struct tt_costs){.at = {{.name = NULL}}};
    CHECK(read_text("", &costs) == TT_OK);
    CHECK(equal(&costs, &tt_shipped_costs));
}

TEST(cost_file, every_constant_counts_in_the_checksum)
{
    for (int i = 0; i < TT_NCOSTS; i++) {
        struct tt_costs costs = tt_shipped_costs;
        costs.at[i].value += 1e-9;
        CHECK_MESSAGE(tt_costs_checksum(&costs) != tt_costs_checksum(&tt_shipped_costs),
                      "constant %d does not count", i);
    }
}

TEST(cost_file, a_line_that_is_wrong_is_named)
{
    static const struct {
        const char *text, *line, *complaint;
    } bad[] = {
        {"link = 0.5\nlonk = 1\n", "line 2", "there is no constant 'lonk'"},
        {"step = 1\n", "line 1", "there is no constant 'step'"},
        {"= 1\n", "line 1", "there is no constant ''"},
        {"# x\n\nlink 0.5\n", "line 3", "there is no '=' in 'link 0.5'"},
        {"link =\n", "line 1", "there is no value for 'link'"},
        {"link = # 1\n", "line 1", "there is no value for 'link'"},
        {"link = 0\n", "line 1", "the value is '0'"},
        {"link = -1\n", "line 1", "the value is '-1'"},
        {"link = nan\n", "line 1", "the value is 'nan'"},
        {"link = inf\n", "line 1", "the value is 'inf'"},
        {"link = 1e999\n", "line 1", "the value is '1e999'"},
        {"link = 1e7\n", "line 1", "the value is '1e7'"},
        {"link = 0x1p-3\n", "line 1", "the value is '0x1p-3'"},
        {"link = 0,5\n", "line 1", "the value is '0,5'"},
        {"link = 1 2\n", "line 1", "the value is '1 2'"},
        {"link = 1us\n", "line 1", "the value is '1us'"},
        {"link = 1 = 2\n", "line 1", "the value is '1 = 2'"},
        {"link = 1\nnet_link = 12", "line 2", "ends without a newline"},
        {"link = 1\naction = 2\nlink = 1\n", "line 3", "an earlier line has the constant 'link'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tt_costs costs = tt_shipped_costs;
        CHECK_MESSAGE(read_text(bad[i].text, &costs) == TT_ERR_ARGUMENT, "accepted: %s",
                      bad[i].text);
        const char *error = tt_last_error();
        CHECK_MESSAGE(strstr(error, bad[i].line) && strstr(error, bad[i].complaint) &&
                          strstr(error, path) && strstr(error, "TUTTI_COST_FILE="),
                      "the error of %s was: %s", bad[i].text, error);
        CHECK(equal(&costs, &tt_shipped_costs));
    }
}

TEST(cost_file, a_line_too_long_and_a_zero_byte_are_refused)
{
    struct tt_costs costs;
    char text[TT_COST_LINE + 16] = "link = 1 #";
    memset(text + strlen(text), 'x', TT_COST_LINE - strlen(text));
    text[TT_COST_LINE] = '\n';
    CHECK(read_text(text, &costs) == TT_OK);
    text[TT_COST_LINE] = 'x';
    CHECK(read_text(text, &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "line 1 has 257 bytes"));
    make("link = 1\n\0\n", 11);
    CHECK(tt_costs_read(path, &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "line 2 has a zero byte"));
    unlink(path);
}

TEST(cost_file, what_is_no_file_of_constants_is_refused)
{
    struct tt_costs costs;
    CHECK(tt_costs_read("/nonexistent/costs", &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "/nonexistent/costs cannot be read: No such file"));
    CHECK(tt_costs_read("/dev/zero", &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it is a device"));
    CHECK(tt_costs_read("/tmp", &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it is a folder"));
    make("", 0);
    unlink(path);
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK(tt_costs_read(path, &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it is a pipe"));
    unlink(path);
    char *large = malloc(TT_COST_FILE_BYTES + 1);
    REQUIRE(large);
    memset(large, '\n', TT_COST_FILE_BYTES + 1);
    make(large, TT_COST_FILE_BYTES + 1);
    CHECK(tt_costs_read(path, &costs) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "more than 65536 bytes"));
    unlink(path);
    make(large, TT_COST_FILE_BYTES);
    CHECK(tt_costs_read(path, &costs) == TT_OK);
    unlink(path);
    free(large);
}

TEST(cost_file, that_others_may_write_is_refused)
{
    struct tt_costs costs;
    make("link = 1\n", 9);
    REQUIRE(chmod(path, 0666) == 0);
    CHECK(tt_costs_read(path, &costs) == TT_ERR_ARGUMENT);
    CHECK_MESSAGE(strstr(tt_last_error(), "the file of constants /tmp/tutti-costs-") &&
                      strstr(tt_last_error(), "chmod go-w"),
                  "%s", tt_last_error());
    unlink(path);
}

TEST(cost_file, numbers_have_a_point_in_every_locale)
{
    struct tt_costs costs;
    char *before = strdup(setlocale(LC_NUMERIC, NULL));
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    bool is_set = false;
    for (int i = 0; i < 4 && !is_set; i++) is_set = setlocale(LC_NUMERIC, names[i]);
    CHECK(read_text("link = 0.25\n", &costs) == TT_OK);
    CHECK(costs.at[TT_COST_LINK].value == 0.25);
    setlocale(LC_NUMERIC, before);
    free(before);
    if (!is_set) SKIP("no locale with a decimal comma is installed: read with the default one");
}

static void write_line(void *file, const char *line)
{
    fprintf(file, "%s\n", line);
}

TEST(cost_file, what_was_written_is_read_again)
{
    struct tt_costs costs = tt_shipped_costs, again;
    for (int i = 0; i < TT_NCOSTS; i++)
        if (costs.at[i].name) costs.at[i].value = 0.125 * (i + 1);
    make("", 0);
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    tt_costs_print(&costs, write_line, file);
    REQUIRE(fclose(file) == 0);
    CHECK(tt_costs_read(path, &again) == TT_OK);
    CHECK(equal(&costs, &again));
    unlink(path);
}

/* Where links cost next to nothing, nobody meets. */
TEST(cost_file, the_constants_of_a_setting_decide_the_choice)
{
    struct tt_costs costs = tt_shipped_costs;
    costs.at[TT_COST_LINK].value = costs.at[TT_COST_ACTION].value = 1e-6;
    costs.at[TT_COST_MEETING].value = 100;
    struct tt_setting setting = {.one_host = true, .meet_bytes = 32 << 10, .slot_bytes = 128 << 10};
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    CHECK_STR(tt_choose(&shape, &setting, 8)->name, "meet");
    setting.costs = &costs;
    CHECK(!tt_choose(&shape, &setting, 8)->one_host);
    setting.costs = &tt_shipped_costs;
    CHECK_STR(tt_choose(&shape, &setting, 8)->name, "meet");
}
