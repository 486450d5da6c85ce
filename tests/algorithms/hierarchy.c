/* Algorithms made of two others: proved, and counted. */
#include <inttypes.h>
#include <string.h>

#include "shim.h"
#include "each.h"

enum { NPLACEMENTS = sizeof placements / sizeof *placements };

/* An algorithm on a placement. Owned by who placed it. */
struct placed {
    struct tt_hosts *hosts;
    struct tt_steps steps;
};

/* False, and nothing made, where the algorithm cannot be there. */
static bool place(struct placed *placed, const struct tt_algorithm *algorithm,
                  const char *placement)
{
    placed->hosts = hosts_of(placement);
    if (!placed->hosts) return false;
    placed->steps = (struct tt_steps){.algorithm = algorithm,
                                      .shape = {.collective = algorithm->collective,
                                                .nranks = placed->hosts->nranks,
                                                .hosts = placed->hosts}};
    if (!tt_refusal(algorithm, &placed->steps.shape)) return true;
    tt_hosts_destroy(placed->hosts);
    return false;
}

/* For all roots; false when a proof finds it not direct_safe. */
static bool prove_roots(const struct tt_steps *steps, const char *placement)
{
    const size_t counts[] = {37, 0, 1};
    struct tt_steps rooted = *steps;
    const bool has_root = tt_collective_has_root(steps->shape.collective);
    bool direct_safe = true;
    for (int root = 0; root < (has_root ? steps->shape.nranks : 1); root++)
        for (int k = 0; k < 3; k++) {
            struct tt_verify_report report = {.text = ""};
            rooted.shape.root = root;
            CHECK_MESSAGE(tt_verify(&rooted, counts[k], &report) == TT_OK,
                          "%s:%s on %s, root %d, count %zu: %s",
                          tt_collective_name(steps->shape.collective), steps->algorithm->name,
                          placement, root, counts[k], report.text);
            direct_safe = direct_safe && report.direct_safe;
            if (report.any_count) break;
        }
    return direct_safe;
}

TEST(hierarchy, every_pair_is_proved_on_every_placement_and_direct_safe_as_it_says)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each_pair(i)) != NULL && !tt_test_failed(); i++) {
        bool direct_safe = true;
        int nplacements = 0;
        for (int p = 0; p < NPLACEMENTS; p++) {
            struct placed placed;
            if (!place(&placed, algorithm, placements[p])) continue;
            direct_safe &= prove_roots(&placed.steps, placements[p]);
            nplacements++;
            tt_hosts_destroy(placed.hosts);
        }
        CHECK_MESSAGE(nplacements > 0 && direct_safe == algorithm->direct_safe,
                      "%s:%s on %d placements says direct_safe %d, is %d",
                      tt_collective_name(algorithm->collective), algorithm->name, nplacements,
                      algorithm->direct_safe, direct_safe);
    }
}
