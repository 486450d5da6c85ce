/* The probe `shared` (vgpu/probes) on this libcuda.so.1: two processes that share memory, of
 * which one is killed or fails, see what they saw on an H100 (vgpu/probes/results/h100.json). Rows
 * of times are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shim.h>

enum { MOST_ROWS = 128, TEXT = 160 };

struct rows {
    struct row {
        char what[2 * TEXT + 2], value[TEXT];
    } at[MOST_ROWS];
    unsigned n;
};

/* The value of a key in a line of JSON without escapes. */
static bool field(const char *line, const char *key, char value[TEXT])
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\": ", key);
    const char *at = strstr(line, pattern);
    if (at == NULL) return false;
    at += strlen(pattern);
    const size_t length = *at == '"' ? strcspn(++at, "\"") : strcspn(at, ",}");
    snprintf(value, TEXT, "%.*s", (int)length, at);
    return true;
}

/* What the kernels do takes a time of the virtual GPU's own: whether one still runs when the host
 * asks depends on the host's speed, and so does the number of turns. */
static bool depends_on_speed(const char *what)
{
    return strstr(what, "cuStreamQuery") != NULL || strstr(what, "round trips") != NULL;
}

static void add_line(struct rows *rows, const char *line)
{
    char name[TEXT], call[TEXT], probe[TEXT];
    struct row *row = &rows->at[rows->n];
    if (!field(line, "probe", probe) || strcmp(probe, "shared") != 0 || rows->n == MOST_ROWS ||
        !field(line, "name", name) || (!field(line, "call", call) && !field(line, "what", call)))
        return;
    if (!field(line, "result", row->value) && !field(line, "done", row->value) &&
        !field(line, "bytes", row->value) && !field(line, "value", row->value))
        return;
    snprintf(row->what, sizeof row->what, "%s: %s", name, call);
    if (!depends_on_speed(row->what)) rows->n++;
}

/* Up to the rows of the probe with MPS, whose name some of its rows lack. */
static bool read_rows(struct rows *rows, FILE *from)
{
    char line[1024];
    rows->n = 0;
    while (from != NULL && fgets(line, sizeof line, from) != NULL &&
           strstr(line, "\"shared, MPS\"") == NULL)
        add_line(rows, line);
    return rows->n > 0;
}

/* Takes the row away, so that one that comes twice is looked for twice. */
static bool take(struct rows *rows, const struct row *row)
{
    for (unsigned i = 0; i < rows->n; i++) {
        if (strcmp(rows->at[i].what, row->what) != 0 || strcmp(rows->at[i].value, row->value) != 0)
            continue;
        rows->at[i] = rows->at[--rows->n];
        return true;
    }
    return false;
}

TEST(shared_rows, of_two_processes_are_those_of_an_h100)
{
    static struct rows theirs, ours;
    if (tt_test_sanitized())
        SKIP("the rows do not depend on a sanitizer, which takes 20 s for them");
    FILE *file = fopen(TUTTI_SOURCE_DIR "/vgpu/probes/results/h100.json", "r");
    REQUIRE(read_rows(&theirs, file));
    fclose(file);
    /* Its faults are meant: VGPU_EXIT=0 keeps their processes' status. */
    FILE *probe = popen("exec env VGPU_EXIT=0 LD_LIBRARY_PATH=" TUTTI_BINARY_DIR
                        "/vgpu " TUTTI_BINARY_DIR "/vgpu/probes/shared",
                        "r");
    REQUIRE(read_rows(&ours, probe));
    CHECK_EQ(pclose(probe), 0);
    CHECK_EQ(theirs.n, 50);
    for (unsigned i = 0; i < theirs.n; i++)
        CHECK_MESSAGE(take(&ours, &theirs.at[i]), "no row says %s: %s", theirs.at[i].what,
                      theirs.at[i].value);
    for (unsigned i = 0; i < ours.n; i++)
        CHECK_MESSAGE(false, "the H100 has no row that says %s: %s", ours.at[i].what,
                      ours.at[i].value);
}
