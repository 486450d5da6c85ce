/* The conformance table: the probe `calls` (vgpu/probes) on this libcuda.so.1, compared with
 * what an H100's driver returned (vgpu/probes/results/h100.json). Rows that may differ stand in
 * conformance_differs.txt, with the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { MOST_ROWS = 4096, TEXT = 256 };

struct row {
    char situation[TEXT], call[TEXT], value[TEXT];
    unsigned nth; /* of its situation and call */
    bool matched;
};

struct rows {
    struct row at[MOST_ROWS];
    unsigned n;
};

static struct rows theirs, ours, differs;

/* The value of a key in a line of JSON, which holds no escapes: a string or a number. */
static bool field(const char *line, const char *key, char value[TEXT])
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\": ", key);
    const char *at = strstr(line, pattern);
    if (!at) return false;
    at += strlen(pattern);
    const size_t length = *at == '"' ? strcspn(++at, "\"") : strcspn(at, ",}");
    snprintf(value, TEXT, "%.*s", (int)length, at);
    return true;
}

static unsigned times(const struct rows *rows, const struct row *row)
{
    unsigned n = 1;
    for (unsigned i = 0; i < rows->n; i++)
        n += !strcmp(rows->at[i].situation, row->situation) && !strcmp(rows->at[i].call, row->call);
    return n;
}

static void add_line(struct rows *rows, const char *line)
{
    char probe[TEXT];
    struct row *row = &rows->at[rows->n];
    if (!field(line, "probe", probe) || strcmp(probe, "calls") != 0 || rows->n == MOST_ROWS) return;
    if (!field(line, "name", row->situation)) return;
    if (!field(line, "call", row->call) && !field(line, "value_of", row->call)) return;
    if (!field(line, "result", row->value) && !field(line, "value", row->value)) return;
    row->nth = times(rows, row);
    row->matched = false;
    rows->n++;
}

static bool read_rows(struct rows *rows, FILE *from)
{
    char line[4 * TEXT];
    if (!from) return false;
    rows->n = 0;
    while (fgets(line, sizeof line, from)) add_line(rows, line);
    return rows->n != 0;
}

/* The next column of a line; the columns are divided by " | ". */
static void column(char **rest, char value[TEXT])
{
    char *begin = *rest, *end = begin ? strstr(begin, " | ") : NULL;
    snprintf(value, TEXT, "%.*s", end ? (int)(end - begin) : 0, begin ? begin : "");
    *rest = end ? end + 3 : NULL;
}

/* SITUATION | CALL | NTH | OURS | REASON; # begins a comment. OURS: "missing" for a row that is not
 * there. NTH with a ? behind it: the row may also agree. */
static bool read_differs(void)
{
    char line[4 * TEXT], nth[TEXT];
    FILE *from = fopen(TUTTI_SOURCE_DIR "/vgpu/driver/conformance_differs.txt", "r");
    if (!from) return false;
    differs.n = 0;
    while (fgets(line, sizeof line, from)) {
        char *rest = line;
        if (*line == '#' || *line == '\n' || differs.n == MOST_ROWS) continue;
        struct row *row = &differs.at[differs.n++];
        column(&rest, row->situation);
        column(&rest, row->call);
        column(&rest, nth);
        column(&rest, row->value);
        row->nth = (unsigned)strtoul(nth, NULL, 10);
        row->matched = strchr(nth, '?') != NULL;
        if (!rest || strlen(rest) < 4) {
            fprintf(stderr, "%s, %s: no reason is given\n", row->situation, row->call);
            fclose(from);
            return false;
        }
    }
    fclose(from);
    return true;
}

static struct row *find(struct rows *rows, const struct row *like)
{
    for (unsigned i = 0; i < rows->n; i++)
        if (rows->at[i].nth == like->nth && !strcmp(rows->at[i].situation, like->situation) &&
            !strcmp(rows->at[i].call, like->call))
            return &rows->at[i];
    return NULL;
}

static bool run_probe(void)
{
    FILE *from = popen("exec env LD_LIBRARY_PATH=" VGPU_LIBRARY " " VGPU_PROBES "/calls", "r");
    const bool read = read_rows(&ours, from);
    return from && pclose(from) == 0 && read;
}

/* Whether the row that differs, or is missing, may. */
static bool may_differ(const struct row *row, const char *value)
{
    struct row *listed = find(&differs, row);
    if (!listed || strcmp(listed->value, value) != 0) return false;
    listed->matched = true;
    return true;
}

TEST(vgpu_conformance, calls_return_what_an_h100_returned)
{
    REQUIRE(read_rows(&theirs, fopen(TUTTI_SOURCE_DIR "/vgpu/probes/results/h100.json", "r")));
    REQUIRE(read_differs());
    REQUIRE(run_probe());
    unsigned agree = 0, listed = 0;
    for (unsigned i = 0; i < theirs.n; i++) {
        const struct row *row = &theirs.at[i];
        struct row *own = find(&ours, row);
        const char *value = own ? own->value : "missing";
        if (own) own->matched = true;
        if (own && !strcmp(value, row->value))
            agree++;
        else if (may_differ(row, value))
            listed++;
        else
            tt_test_fail(__FILE__, __LINE__, "%s: %s (%u): H100 %s, here %s", row->situation,
                         row->call, row->nth, row->value, value);
    }
    for (unsigned i = 0; i < ours.n; i++)
        if (!ours.at[i].matched && !may_differ(&ours.at[i], ours.at[i].value))
            tt_test_fail(__FILE__, __LINE__, "%s: %s (%u): the H100 has no such row, here %s",
                         ours.at[i].situation, ours.at[i].call, ours.at[i].nth, ours.at[i].value);
    for (unsigned i = 0; i < differs.n; i++)
        CHECK_MESSAGE(differs.at[i].matched, "conformance_differs.txt: %s | %s | %u | %s: not so",
                      differs.at[i].situation, differs.at[i].call, differs.at[i].nth,
                      differs.at[i].value);
    printf("%u of %u rows agree with an H100; %u differ as conformance_differs.txt says\n", agree,
           theirs.n, listed);
    CHECK_EQ(theirs.n, 1446);
}
