/* The closed forms against what the steps count. */
#include <inttypes.h>

#include "shim.h"
#include "each.h"

static void same(const struct tt_algorithm *algorithm, int nranks, const char *what,
                 uint64_t formula, uint64_t counted)
{
    CHECK_MESSAGE(formula == counted, "%s:%s, %d ranks: %s is %" PRIu64 ", by formula %" PRIu64,
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, what, counted,
                  formula);
}

static void compare(const struct tt_algorithm *algorithm, int nranks)
{
    const int root = tt_collective_has_root(algorithm->collective) ? nranks / 2 : 0;
    const struct tt_steps steps = {.algorithm = algorithm,
                                   .shape = shape_of(algorithm, nranks, root)};
    struct tt_formula counted;
    REQUIRE(tt_count(&steps, &counted) == TT_OK);
    const struct tt_formula formula = tt_formula_of(algorithm, &steps.shape);
    same(algorithm, nranks, "steps", formula.steps, counted.steps);
    same(algorithm, nranks, "depth", formula.depth, counted.depth);
    same(algorithm, nranks, "sent", formula.sent, counted.sent);
    same(algorithm, nranks, "reduced", formula.reduced, counted.reduced);
    same(algorithm, nranks, "scratch", formula.scratch, counted.scratch);
    same(algorithm, nranks, "message", formula.message, counted.message);
}

TEST(formulas, are_what_the_steps_count_for_1_to_33_ranks)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 1; nranks <= 33; nranks++) compare(algorithm, nranks);
}

TEST(formulas, are_what_the_steps_count_for_more_ranks)
{
    const int numbers[] = {64, 100, 128, 257};
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int k = 0; k < 4; k++) compare(algorithm, numbers[k]);
}
