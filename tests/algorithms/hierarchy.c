/* Algorithms made of two others: proved, and counted. */
#include <inttypes.h>
#include <string.h>

#include "shim.h"
#include "each.h"

enum { NPLACEMENTS = sizeof placements / sizeof *placements };

/* Calls `visit` with every pair that can work on a placement, on every placement. */
static void visit_all(void (*visit)(const struct tt_steps *steps, const char *placement))
{
    const struct tt_algorithm *algorithm;
    for (int p = 0; p < NPLACEMENTS && !tt_test_failed(); p++) {
        struct tt_hosts *hosts = hosts_of(placements[p]);
        REQUIRE(hosts != NULL);
        for (int i = 0; (algorithm = each_pair(i)) != NULL && !tt_test_failed(); i++) {
            const struct tt_steps steps = {.algorithm = algorithm,
                                           .shape = {.collective = algorithm->collective,
                                                     .nranks = hosts->nranks,
                                                     .hosts = hosts}};
            if (!tt_refusal(algorithm, &steps.shape)) visit(&steps, placements[p]);
        }
        tt_hosts_destroy(hosts);
    }
}

static void prove(const struct tt_steps *steps, const char *placement)
{
    const size_t counts[] = {37, 0, 1};
    struct tt_steps rooted = *steps;
    const bool has_root = tt_collective_has_root(steps->shape.collective);
    for (int root = 0; root < (has_root ? steps->shape.nranks : 1); root++)
        for (int k = 0; k < 3; k++) {
            struct tt_verify_report report = {.text = ""};
            rooted.shape.root = root;
            CHECK_MESSAGE(tt_verify(&rooted, counts[k], &report) == TT_OK,
                          "%s:%s on %s, root %d, count %zu: %s",
                          tt_collective_name(steps->shape.collective), steps->algorithm->name,
                          placement, root, counts[k], report.text);
            if (report.any_count) break;
        }
}

TEST(hierarchy, every_pair_is_proved_on_every_placement)
{
    visit_all(prove);
}
