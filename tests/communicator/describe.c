/* tuttiDescribe, and the docs made from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "schedule/schedule.h"
#include "shim.h"
#include "tutti.h"

struct lines {
    int count;
    char text[65536];
};

static void collect(void *arg, const char *line)
{
    struct lines *lines = arg;
    const size_t used = strlen(lines->text);
    CHECK_MESSAGE(!strchr(line, '\n'), "a line with a newline: %s", line);
    snprintf(lines->text + used, sizeof lines->text - used, "%s\n", line);
    lines->count++;
}

/* Static, so that a test need not hold 64 KiB; cleared first. */
static const struct lines *described(tuttiDescribe_t what, tuttiComm_t comm)
{
    static struct lines lines;
    lines = (struct lines){0};
    CHECK_EQ(tuttiDescribe(what, comm, collect, &lines), tuttiSuccess);
    return &lines;
}

TEST(describe, an_unknown_thing_is_an_argument_error_that_lists_what_there_is)
{
    struct lines lines = {0};
    CHECK_EQ(tuttiDescribe((tuttiDescribe_t)9, NULL, collect, &lines), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL),
                 "what = 9 is unknown; expected tuttiDescribeTopology (0) to "
                 "tuttiDescribeNcclSettings (8)"));
    CHECK_EQ(tuttiDescribe((tuttiDescribe_t)-1, NULL, collect, &lines), tuttiInvalidArgument);
    CHECK_EQ(lines.count, 0);
}

TEST(describe, no_function_to_emit_is_an_argument_error)
{
    CHECK_EQ(tuttiDescribe(tuttiDescribeCpu, NULL, NULL, NULL), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "emit is NULL"));
}

TEST(describe, links_need_a_communicator)
{
    struct lines lines = {0};
    CHECK_EQ(tuttiDescribe(tuttiDescribeLinks, NULL, collect, &lines), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "comm is NULL"));
    CHECK_EQ(lines.count, 0);
}

TEST(describe, every_setting_is_shown_with_value_and_source)
{
    setenv("TUTTI_SLOTS", "16", 1);
    tt_config_reload();
    const struct lines *lines = described(tuttiDescribeConfig, NULL);
    CHECK_EQ(lines->count, 2 * TT_CONFIG_COUNT);
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        CHECK(strstr(lines->text, tt_config_row((enum tt_config_key)key)->name));
        CHECK(strstr(lines->text, tt_config_row((enum tt_config_key)key)->sentence));
    }
    CHECK(strstr(lines->text, "TUTTI_SLOTS=16  (environment)\n"));
    CHECK(strstr(lines->text, "TUTTI_WAIT=auto  (default)\n"));
    unsetenv("TUTTI_SLOTS");
    tt_config_reload();
}

TEST(describe, the_jobs_key_is_not_shown)
{
    setenv("TUTTI_JOB_KEY", "0123456789abcdef", 1);
    tt_config_reload();
    const struct lines *lines = described(tuttiDescribeConfig, NULL);
    CHECK(!strstr(lines->text, "0123456789abcdef"));
    CHECK(strstr(lines->text, "TUTTI_JOB_KEY=(secret)  (environment)"));
    unsetenv("TUTTI_JOB_KEY");
    tt_config_reload();
}

TEST(describe, the_settings_page_of_the_docs_is_up_to_date)
{
    char page[32768];
    FILE *file = fopen(TUTTI_SOURCE_DIR "/docs/config.md", "r");
    REQUIRE(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    const struct lines *lines = described(tuttiDescribeConfigMarkdown, NULL);
    CHECK_EQ(lines->count, 2 + TT_CONFIG_COUNT);
    CHECK_MESSAGE(
        strstr(page, lines->text),
        "docs/config.md: replace its table by what `tutti-info --config-markdown` prints");
}

/* Whether a line of the page's table has both. */
static bool has_row(const char *page, const char *variable, const char *setting)
{
    char quoted[2][80];
    snprintf(quoted[0], sizeof quoted[0], "`%s`", variable);
    snprintf(quoted[1], sizeof quoted[1], "`%s`", setting);
    for (const char *line = strstr(page, "\n| `"); line; line = strstr(line + 1, "\n| `")) {
        const size_t length = strcspn(line + 1, "\n");
        const char *found[2] = {strstr(line, quoted[0]), strstr(line, quoted[1])};
        if (found[0] && found[0] < line + length && found[1] && found[1] < line + length)
            return true;
    }
    return false;
}

TEST(describe, the_page_of_nccls_variables_has_a_row_for_each_that_sets_something)
{
    static char page[32768];
    FILE *file = fopen(TUTTI_SOURCE_DIR "/docs/nccl-settings.md", "r");
    REQUIRE(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        for (const char *at = row->nccl; *at;) {
            char variable[64];
            const size_t length = strcspn(at, ",");
            snprintf(variable, sizeof variable, "%.*s", (int)length, at);
            CHECK_MESSAGE(has_row(page, variable, row->name),
                          "docs/nccl-settings.md: no row has %s and %s", variable, row->name);
            at += length + (at[length] == ',');
        }
    }
}

TEST(describe, nccls_variables_are_listed_with_what_they_set)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_PSK", "0123456789abcdef0123456789abcdef", 1);
    tt_config_reload_with_nccl(true);
    const struct lines *lines = described(tuttiDescribeNcclSettings, NULL);
    CHECK(strstr(lines->text, "NCCL_SOCKET_IFNAME=lo (environment): TUTTI_SOCKET_INTERFACE=lo "
                              "(NCCL_SOCKET_IFNAME, environment); "));
    CHECK(strstr(lines->text, "NCCL_PSK=(secret) (environment): TUTTI_ENCRYPT=1 "));
    CHECK(strstr(lines->text, "NCCL_CONF_FILE: honoured: "));
    CHECK(strstr(lines->text, "NCCL_BUFFSIZE: without effect: "));
    int index = 0;
    for (const char *name; (name = tuttiNcclSettingName(index)); index++) {
        char value[64];
        CHECK_EQ(tuttiGetNcclSetting(name, value, sizeof value), tuttiSuccess);
        CHECK(strstr(lines->text, name));
    }
    CHECK_EQ(lines->count, index);
    CHECK(!tuttiNcclSettingName(-1));
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_PSK");
    tt_config_reload_with_nccl(false);
    CHECK(!strstr(described(tuttiDescribeNcclSettings, NULL)->text, "NCCL_SOCKET_IFNAME=lo"));
}

static int is_given(const char *name)
{
    int given = -1;
    CHECK_EQ(tuttiIsSettingGiven(name, &given), tuttiSuccess);
    return given;
}

TEST(describe, a_setting_is_given_by_its_own_name_or_by_nccls)
{
    setenv("TUTTI_LATE_MS", "0", 1); /* as by default */
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    tt_config_reload();
    CHECK_EQ(is_given("TUTTI_LATE_MS"), 1);
    CHECK_EQ(is_given("TUTTI_SOCKET_INTERFACE"), 0);
    tt_config_reload_with_nccl(true);
    CHECK_EQ(is_given("TUTTI_SOCKET_INTERFACE"), 1);
    unsetenv("TUTTI_LATE_MS");
    unsetenv("NCCL_SOCKET_IFNAME");
    tt_config_reload_with_nccl(false);
    CHECK_EQ(is_given("TUTTI_LATE_MS"), 0);
    CHECK_EQ(is_given("TUTTI_SOCKET_INTERFACE"), 0);
}

TEST(describe, there_are_as_many_gpus_as_are_listed)
{
    int count = -1, nlines = 0;
    CHECK_EQ(tuttiGetDeviceCount(&count), tuttiSuccess);
    const char *text = described(tuttiDescribeGpus, NULL)->text;
    for (const char *at = text; (at = strstr(at, "GPU ")); at++)
        nlines += at == text || at[-1] == '\n';
    CHECK_EQ(count, nlines);
}

TEST(describe, topology_and_cpu_say_something)
{
    const struct lines *lines = described(tuttiDescribeTopology, NULL);
    CHECK(strstr(lines->text, "source: ") && strstr(lines->text, "package 0"));
    lines = described(tuttiDescribeCpu, NULL);
    CHECK(strstr(lines->text, "features found: ") && strstr(lines->text, "reductions use: "));
}

TEST(describe, xml_comes_line_by_line)
{
    struct lines *lines = calloc(1, sizeof *lines);
    REQUIRE(lines);
    const tuttiResult_t result = tuttiDescribe(tuttiDescribeTopologyXml, NULL, collect, lines);
    if (result == tuttiSuccess)
        CHECK(strstr(lines->text, "</topology>\n"));
    else
        CHECK(strstr(tuttiGetLastError(NULL), "without it")); /* built without hwloc */
    free(lines);
}

TEST(describe, costs_show_a_choice_for_every_collective)
{
    const struct lines *lines = described(tuttiDescribeCosts, NULL);
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        CHECK(strstr(lines->text, tt_collective_name((enum tt_collective)c)));
    CHECK(strstr(lines->text, "choices for 2 ranks on this host:"));
}

TEST(describe, a_communicators_links_and_choices_are_shown)
{
    tuttiComm_t comms[2] = {NULL, NULL};
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    CHECK(described(tuttiDescribeLinks, comms[0])->count >= 1);
    const struct lines *lines = described(tuttiDescribeCosts, comms[1]);
    CHECK(strstr(lines->text, "choices for 2 ranks of this communicator:"));
    CHECK(!strchr(lines->text, '?'));
    for (int rank = 0; rank < 2; rank++) CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
}
