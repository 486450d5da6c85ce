/* The probe `blocking` (vgpu/probes) on this libcuda.so.1: which calls return while a kernel
 * waits, and which kernels run side by side, compared with what an H100 did. Times are not
 * compared. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 3, MOST_ROWS = 256, TEXT = 160, RUNNING = 128, KERNELS = 160 };

/* The row's texts that say what was asked, and those that say what happened. */
struct row {
    char question[4 * TEXT], answer[2 * TEXT];
    int kernels, in_vain; /* of rows about many kernels; else 0 */
};

struct rows {
    struct row at[MOST_ROWS];
    unsigned n;
};

static struct rows theirs, ours;

/* The value of a key in a line of JSON without escapes, or "". */
static const char *field(const char *line, const char *key, char value[TEXT])
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\": ", key);
    const char *at = strstr(line, pattern);
    value[0] = '\0';
    if (at == NULL) return value;
    at += strlen(pattern);
    const size_t length = *at == '"' ? strcspn(++at, "\"") : strcspn(at, ",}");
    snprintf(value, TEXT, "%.*s", (int)length, at);
    return value;
}

static void add(struct rows *rows, const char *line)
{
    char a[TEXT], b[TEXT], c[TEXT], d[TEXT], e[TEXT];
    struct row *row = &rows->at[rows->n];
    if (strstr(line, "{\"probe\": \"blocking\"") == NULL || rows->n == MOST_ROWS) return;
    snprintf(row->question, sizeof row->question, "%s, %s%s%s%s", field(line, "name", a),
             field(line, "call", b), field(line, "streams", c),
             field(line, "CUDA_DEVICE_MAX_CONNECTIONS", d), field(line, "kernels_ran_before", e));
    snprintf(row->answer, sizeof row->answer, "%s %s%s%s", field(line, "result", a),
             field(line, "returns", b), field(line, "turns_of_200", c), field(line, "mode", d));
    row->kernels = atoi(field(line, "kernels", a));
    row->in_vain = atoi(field(line, "waited_in_vain", b));
    rows->n++;
}

static bool read_rows(struct rows *rows, FILE *from)
{
    char line[1024];
    if (from == NULL) return false;
    while (fgets(line, sizeof line, from) != NULL) add(rows, line);
    return true;
}

/* Of 160 kernels that wait for the last one, 32 at least wait in vain, for the last one begins when
 * as many have given up. Which others have by then depends on the seed. */
static bool agree(const struct row *a, const struct row *b)
{
    if (strcmp(a->question, b->question) != 0 || strcmp(a->answer, b->answer) != 0) return false;
    if (a->kernels != b->kernels) return false;
    if (a->kernels <= RUNNING) return a->in_vain == b->in_vain;
    return b->in_vain >= KERNELS - RUNNING && b->in_vain < KERNELS - 1;
}

TEST(vgpu_blocking, calls_return_and_kernels_run_beside_others_as_on_an_h100)
{
    FILE *results = fopen(TUTTI_SOURCE_DIR "/vgpu/probes/results/h100.json", "r");
    REQUIRE(read_rows(&theirs, results));
    fclose(results);
    CHECK_EQ(theirs.n, 119);
    bool agreed[MOST_ROWS] = {false};
    /* The probe says by the clock whether a call returns while a kernel waits: where other programs
     * take the processor, a call that does return may look as if it did not. */
    for (unsigned turn = 0, nagreed = 0; turn < TURNS && nagreed < theirs.n; turn++) {
        nagreed = 0;
        ours.n = 0;
        /* Without the memory model, for the probe's kernels race. */
        FILE *probe = popen(
            "exec env LD_LIBRARY_PATH=" VGPU_LIBRARY " VGPU_MODEL=0 " VGPU_PROBES "/blocking", "r");
        REQUIRE(read_rows(&ours, probe));
        CHECK_EQ(pclose(probe), 0);
        REQUIRE(ours.n == theirs.n);
        for (unsigned i = 0; i < theirs.n; i++) {
            agreed[i] = agreed[i] || agree(&theirs.at[i], &ours.at[i]);
            nagreed += agreed[i];
        }
    }
    for (unsigned i = 0; i < theirs.n; i++)
        CHECK_MESSAGE(agreed[i], "H100: %s: %s, %d of %d kernels in vain\nhere: %s: %s, %d of %d",
                      theirs.at[i].question, theirs.at[i].answer, theirs.at[i].in_vain,
                      theirs.at[i].kernels, ours.at[i].question, ours.at[i].answer,
                      ours.at[i].in_vain, ours.at[i].kernels);
}
