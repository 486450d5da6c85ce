/* Tests of the cut of layers into pipeline stages. */
#include <stddef.h>

#include "parallel/stages.h"
#include "shim.h"

/* The smallest largest cost of all cuts of `left` layers over the stages from `stage` on. */
static double best_cut(const struct tr_stage_costs *costs, int nstages, int stage, int left)
{
    if (stage == nstages - 1) return tr_stage_cost(costs, nstages, stage, left);
    double best = 1e30;
    for (int n = 1; n <= left - (nstages - 1 - stage); ++n) {
        const double here = tr_stage_cost(costs, nstages, stage, n);
        const double rest = best_cut(costs, nstages, stage + 1, left - n);
        const double most = here > rest ? here : rest;
        if (most < best) best = most;
    }
    return best;
}

TEST(stages, no_cut_has_a_smaller_largest_cost)
{
    static const struct tr_stage_costs costs[] = {
        {1, 0, 0}, {1, 1, 0}, {1, 0, 1}, {2, 1, 7}, {3, 8, 2}, {1, 0.5, 100}, {0.7, 0.1, 1.9}};
    for (size_t c = 0; c < sizeof costs / sizeof *costs; ++c) {
        for (int nlayers = 1; nlayers <= 12; ++nlayers) {
            for (int nstages = 1; nstages <= nlayers; ++nstages) {
                int first[13];
                REQUIRE(tr_stages_assign(nlayers, nstages, &costs[c], first) == TR_OK);
                CHECK_EQ(first[0], 0);
                CHECK_EQ(first[nstages], nlayers);
                double most = 0;
                for (int s = 0; s < nstages; ++s) {
                    const int count = first[s + 1] - first[s];
                    CHECK(count >= 1);
                    const double cost = tr_stage_cost(&costs[c], nstages, s, count);
                    if (cost > most) most = cost;
                }
                CHECK(most <= best_cut(&costs[c], nstages, 0, nlayers) * (1 + 1e-12));
            }
        }
    }
}

TEST(stages, uneven_layers_go_where_the_others_are_cheap)
{
    static const struct {
        int nlayers, nstages;
        struct tr_stage_costs costs;
        int first[5];
    } cases[] = {
        {5, 2, {1, 0, 0}, {0, 2, 5}},           {5, 2, {1, 0, 1}, {0, 3, 5}},
        {5, 2, {1, 1, 0}, {0, 2, 5}},           {7, 4, {1, 0, 0}, {0, 1, 3, 5, 7}},
        {8, 4, {1, 0, 0}, {0, 2, 4, 6, 8}},     {12, 4, {10, 1, 30}, {0, 3, 7, 11, 12}},
        {5, 4, {1, 100, 100}, {0, 1, 2, 4, 5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        int first[5];
        REQUIRE(tr_stages_assign(cases[i].nlayers, cases[i].nstages, &cases[i].costs, first) ==
                TR_OK);
        for (int s = 0; s <= cases[i].nstages; ++s)
            CHECK_MESSAGE(first[s] == cases[i].first[s],
                          "case %zu: stage %d begins at %d, expected %d", i, s, first[s],
                          cases[i].first[s]);
    }
}

TEST(stages, impossible_numbers_are_errors_that_say_what_works)
{
    int first[9];
    CHECK(tr_stages_assign(5, 8, &(struct tr_stage_costs){1, 0, 0}, first) == TR_FAILED);
    CHECK_STR(tr_error(), "--pp=8 with --layers=5: every pipeline stage needs at least one layer; "
                          "take --pp=5 or less, or --layers=8 or more");
    CHECK(tr_stages_assign(5, 0, &(struct tr_stage_costs){1, 0, 0}, first) == TR_FAILED);
    CHECK_STR(tr_error(), "5 layers on 0 pipeline stages: both must be at least 1");
    CHECK(tr_stages_assign(5, 2, &(struct tr_stage_costs){0, 0, 0}, first) == TR_FAILED);
    CHECK_STR(tr_error(),
              "costs of a layer 0, the embedding 0 and the head 0: expected a layer above "
              "0 and the others at least 0");
}
