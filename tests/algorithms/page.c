/* docs/algorithms.md is made from the code: from the formulas, and from the comments that open the
 * algorithms' files. This test makes the page and compares. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "each.h"

static const char introduction[] =
    "# Algorithms\n\n"
    "- **Which algorithm does a call take?** A cost model (`src/algorithms/cost.c`) chooses; "
    "`tutti-info --costs` prints its choices. `TUTTI_ALGORITHM=ring`\n"
    "  forces one.\n"
    "- **Which are there?** The tables below, one for each collective; `tutti-plan list` names "
    "all. A `meet` needs all ranks on one host. On several hosts there\n"
    "  is also, for every two of these algorithms, `X/Y`: X among the ranks of each host, Y "
    "between hosts ([below](#hierarchyc)).\n"
    "- **What does each rank do?** Every algorithm is a pure function of collective, number of "
    "ranks, root, rank, channel and index that says what one step is:\n"
    "  it takes data from ranks and from this rank's buffers, copies or folds it, keeps it and "
    "sends it on. `tutti-plan print all_reduce:ring --ranks 4` prints\n"
    "  the steps; `tutti-plan` also counts and proves them for any number of ranks. Below the "
    "tables stand idea, drawing, formulas and source of each.\n\n"
    "This page is made from the code by `tests/algorithms/page.c`; change the code, run the "
    "tests, and copy the page that they name.\n\n"
    "The columns of the tables are for 8 ranks, in units of the data of one rank's larger "
    "buffer. Tests compare the formulas with what the steps count.\n\n"
    "- **steps**: most steps of any rank on a channel.\n"
    "- **depth**: messages (or meetings) on the longest chain of dependences.\n"
    "- **sent**: most data that any rank sends; what goes to two ranks counts twice.\n"
    "- **reduced**: most data that any rank reads to reduce it; each of the sources counts.\n"
    "- **scratch**: most memory that any rank needs beside the buffers of the call, if nothing "
    "is cut. Executors cut calls into rounds, so it does not grow with\n"
    "  the data.\n"
    "- **message**: the largest message.\n"
    "- **by reference**: a receiver that can address the sender's memory may read a message "
    "there: the sender's later steps leave it unchanged until then, even\n"
    "  in place.\n"
    "- **counts**: blocks may have different lengths, so that calls with a count for each rank "
    "(`tuttiAllGatherV`, `tuttiReduceScatterV`, `tuttiGatherV`,\n"
    "  `tuttiScatterV`) use it; proved for any counts.\n"
    "- **rank order**: every element is folded in one step, in rank order from rank 0 on; a "
    "deterministic communicator uses only these; proved.\n";

static const char *const files[] = {
    "naive",         "ring",     "parallel",  "recursive_halving", "recursive_doubling",
    "tree",          "pat",      "bruck",     "recursive",         "parameter_server",
    "direct",        "binomial", "chain",     "scatter_allgather", "all_to_all",
    "dissemination", "meet",     "hierarchy",
};

/* A share of the data, in as few digits as it takes. */
static void put_share(FILE *page, uint64_t blocks, double block)
{
    fprintf(page, " %.4g |", (double)blocks * block);
}

/* Whether calls of the collective may have a count for each rank. */
static bool has_counts(enum tt_collective collective)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)); i++)
        if (algorithm->uneven) return true;
    return false;
}

static void put_row(FILE *page, const struct tt_algorithm *algorithm)
{
    const struct tt_shape shape = shape_of(algorithm, 8, 0);
    const struct tt_formula formula = tt_formula_of(algorithm, &shape);
    const int nblocks = tt_nblocks(algorithm, &shape);
    const double slot = nblocks > 0 ? 1.0 / nblocks : 0;
    const double block = slot / tt_nchannels(algorithm, &shape);
    fprintf(page, "| %s | %s | %" PRIu64 " | %" PRIu64 " |", algorithm->name, algorithm->summary,
            formula.steps, formula.depth);
    put_share(page, formula.sent, block);
    put_share(page, formula.reduced, block);
    put_share(page, formula.scratch, slot);
    put_share(page, formula.message, block);
    fprintf(page, " %s |", algorithm->one_host ? "" : algorithm->direct_safe ? "yes" : "no");
    if (has_counts(algorithm->collective)) fprintf(page, " %s |", algorithm->uneven ? "yes" : "no");
    if (tt_collective_reduces(algorithm->collective))
        fprintf(page, " %s |", algorithm->in_rank_order ? "yes" : "no");
    fputs("\n", page);
}

static void put_table(FILE *page, enum tt_collective collective)
{
    fprintf(page,
            "\n## %s\n\n"
            "| name | | steps | depth | sent | reduced | scratch | message | by reference |%s%s\n"
            "|---|---|---|---|---|---|---|---|---|%s%s\n",
            tt_collective_name(collective), has_counts(collective) ? " counts |" : "",
            tt_collective_reduces(collective) ? " rank order |" : "",
            has_counts(collective) ? "---|" : "", tt_collective_reduces(collective) ? "---|" : "");
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)) && !algorithm->parts; i++)
        put_row(page, algorithm);
}

/* The comment that opens a file, without its stars. */
static bool put_comment(FILE *page, const char *file)
{
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/src/algorithms/%s.c", TUTTI_SOURCE_DIR, file);
    FILE *source = fopen(path, "r");
    if (!source) return false;
    fprintf(page, "\n## %s.c\n\n```\n", file);
    bool more = true;
    while (more && fgets(line, sizeof line, source)) {
        char *text = line[0] == '/' ? line + 3 : line[2] == '\n' ? line + 2 : line + 3;
        char *end = strstr(text, " */");
        more = !end;
        if (end) strcpy(end, "\n");
        fputs(text, page);
    }
    fputs("```\n", page);
    fclose(source);
    return true;
}

/* The page that the code makes; freed by the caller. */
static char *make_page(void)
{
    char *text = NULL;
    size_t size;
    FILE *page = open_memstream(&text, &size);
    if (!page) return NULL;
    fputs(introduction, page);
    for (int i = 0; i < TT_NCOLLECTIVES; i++) put_table(page, (enum tt_collective)i);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK_MESSAGE(put_comment(page, files[i]), "no src/algorithms/%s.c", files[i]);
    fclose(page);
    return text;
}

static char *read_page(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    if (getdelim(&text, &size, '\0', file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

TEST(page, is_what_the_code_makes)
{
    char *expected = make_page();
    REQUIRE(expected != NULL);
    char *page = read_page(TUTTI_SOURCE_DIR "/docs/algorithms.md");
    const bool same = page && strcmp(page, expected) == 0;
    if (!same) {
        FILE *made = fopen(TUTTI_BINARY_DIR "/algorithms.md", "w");
        if (made) fputs(expected, made);
        if (made) fclose(made);
    }
    free(page);
    free(expected);
    CHECK_MESSAGE(same, "docs/algorithms.md is not what the code makes; copy %s/algorithms.md",
                  TUTTI_BINARY_DIR);
}

/* Every file that defines an algorithm is on the page: its name is in table.c's list. */
TEST(page, shows_every_algorithm)
{
    char *page = read_page(TUTTI_SOURCE_DIR "/docs/algorithms.md");
    REQUIRE(page != NULL);
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++) {
        char cell[256];
        snprintf(cell, sizeof cell, "| %s | %s |", algorithm->name, algorithm->summary);
        CHECK_MESSAGE(strstr(page, cell) != NULL, "%s:%s is missing",
                      tt_collective_name(algorithm->collective), algorithm->name);
    }
    free(page);
}
