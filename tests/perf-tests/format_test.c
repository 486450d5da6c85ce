/* Tests of the perf tests' table. */
#include "common/report.h"

#include <stdlib.h>
#include <string.h>

#include "shim.h"

static const struct perf_collective fake = {.name = "fake", .collective = PERF_NO_COLLECTIVE};

/* A report into memory; *text belongs to the caller once the report's stream is closed. */
static struct perf_report report_into(struct perf_options *options, char **text, size_t *nbytes)
{
    char *arguments[] = {"fake_perf", NULL};
    char error[256];
    FILE *out = open_memstream(text, nbytes);
    struct perf_report report = {0};
    perf_options_parse(options, &fake, 1, arguments, out, error, sizeof(error));
    perf_report_open(&report, out, options, &fake, 1, arguments);
    return report;
}

static void check_number(double value, int width, const char *want)
{
    char got[32];
    perf_format_number(got, value, width);
    CHECK_STR(got, want);
}

TEST(perf_format, numbers_lose_decimals_before_they_outgrow_their_column)
{
    check_number(0, 7, "0.00");
    check_number(9.876, 7, "9.88");
    check_number(9999.99, 7, "9999.99");
    check_number(12345.67, 7, "12345.7");
    check_number(123456.7, 7, "123457");
    check_number(1234567.8, 7, "1234568");
    check_number(12345678.0, 7, "1.2e+07");
    check_number(999.99, 6, "999.99");
    check_number(9999.94, 6, "9999.9");
    check_number(123456, 6, "123456");
    check_number(1234567, 6, "1e+06");
}

TEST(perf_format, a_row_has_the_columns_of_nccl_tests)
{
    char *text = NULL;
    size_t nbytes = 0;
    struct perf_options options;
    struct perf_report report = report_into(&options, &text, &nbytes);
    struct perf_layout layout = {.count = 256, .send = 256, .recv = 256};
    struct perf_side side = {
        .available = true, .seconds = 1.25e-6, .algbw = 0.8192, .busbw = 1.2288, .checked = true};
    struct perf_side missing = {0};
    perf_report_row_begin(&report, &layout, &perf_types[perf_type_find("float")], &perf_ops[0], -1);
    perf_report_side(&report, false, &side);
    side.wrong = 1234567;
    perf_report_side(&report, true, &side);
    perf_report_row_end(&report);
    perf_report_row_begin(&report, &layout, &perf_types[perf_type_find("float")], NULL, 3);
    side.checked = false;
    perf_report_side(&report, false, &side);
    perf_report_side(&report, true, &missing);
    perf_report_row_end(&report);
    fclose(report.out);
    CHECK_STR(text, "        1024           256     float     sum      -1"
                    "     1.25    0.82    1.23       0"
                    "     1.25    0.82    1.23  1.23457e+06\n"
                    "        1024           256     float    none       3"
                    "     1.25    0.82    1.23     N/A"
                    "      N/A     N/A     N/A     N/A\n");
    free(text);
}

TEST(perf_format, headings_stand_over_their_columns)
{
    char *text = NULL;
    size_t nbytes = 0;
    struct perf_options options;
    struct perf_report report = report_into(&options, &text, &nbytes);
    struct perf_layout layout = {.count = 1, .send = 1, .recv = 1};
    struct perf_side side = {.available = true, .checked = true};
    perf_report_head(&report, NULL, 0, 0);
    perf_report_row_begin(&report, &layout, &perf_types[0], &perf_ops[0], 0);
    perf_report_side(&report, false, &side);
    perf_report_side(&report, true, &side);
    perf_report_row_end(&report);
    fclose(report.out);
    const char *heading =
        strstr(text, "#       size         count      type   redop    root     time");
    REQUIRE(heading != NULL);
    const char *units = strchr(heading, '\n') + 1;
    const char *row = strchr(units, '\n') + 1;
    CHECK_EQ(strcspn(heading, "\n"), strcspn(row, "\n"));
    CHECK_EQ(strcspn(units, "\n"), strcspn(row, "\n"));
    CHECK(strncmp(text, "# tutti-perf version 0.1.0 ", 27) == 0);
    CHECK(strstr(text, "\n# Collective test starting: fake_perf\n# nThread 1 nGpus 1 minBytes "
                       "33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 1 iters: 20 "
                       "agg iters: 1 validation: 1 graph: 0 unalign: 0\n") != NULL);
    free(text);
}

TEST(perf_format, the_foot_says_what_failed)
{
    char *text = NULL;
    size_t nbytes = 0;
    struct perf_options options;
    struct perf_report report = report_into(&options, &text, &nbytes);
    CHECK(perf_report_foot(&report, 0, 12.5, NULL));
    options.min_bandwidth = 10;
    CHECK(perf_report_foot(&report, 2, 9.0, NULL));
    CHECK(!perf_report_foot(&report, 0, 8.9, NULL));
    CHECK(perf_report_close(&report, "rank 1 died"));
    fclose(report.out);
    CHECK_STR(text, "# Out of bounds values : 0 OK\n"
                    "# Avg bus bandwidth    : 12.5 \n"
                    "#\n# Collective test concluded: fake_perf\n"
                    "# Out of bounds values : 2 FAILED\n"
                    "# Avg bus bandwidth    : 9 OK\n"
                    "#\n# Collective test concluded: fake_perf\n"
                    "# Out of bounds values : 0 OK\n"
                    "# Avg bus bandwidth    : 8.9 FAILED\n"
                    "#\n# Collective test concluded: fake_perf\n"
                    "\n# error: rank 1 died\n");
    free(text);
}
