/* Every algorithm, proved by verify. tutti-plan does the same for more ranks and counts. */
#include "shim.h"
#include "each.h"

/* What holds for all shapes that were proved. */
struct found {
    bool direct_safe, in_rank_order;
};

/* Proves one shape; what the proof denies becomes false in *found. */
static void prove(const struct tt_algorithm *algorithm, int nranks, int root, size_t count,
                  struct found *found)
{
    const struct tt_steps steps = {.algorithm = algorithm,
                                   .shape = shape_of(algorithm, nranks, root)};
    struct tt_verify_report report = {.text = ""};
    const tt_status status = tt_verify(&steps, count, &report);
    CHECK_MESSAGE(status == TT_OK, "%s:%s, %d ranks, root %d, count %zu: %s",
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, root, count,
                  report.text);
    if (status == TT_OK && !report.direct_safe) found->direct_safe = false;
    if (status == TT_OK && !report.in_rank_order) found->in_rank_order = false;
    CHECK_MESSAGE(status != TT_OK || report.post_safe, "%s:%s, %d ranks, root %d: %s",
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, root,
                  report.post);
}

static bool rooted(const struct tt_algorithm *algorithm)
{
    return tt_collective_has_root(algorithm->collective);
}

TEST(algorithms, every_one_is_proved_and_direct_safe_as_it_says)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++) {
        struct found found = {true, true};
        for (int nranks = 1; nranks <= 17; nranks++)
            prove(algorithm, nranks, rooted(algorithm) ? nranks / 3 : 0, (size_t)nranks + 1,
                  &found);
        CHECK_MESSAGE(found.direct_safe == algorithm->direct_safe,
                      "%s:%s says direct_safe %d, is %d", tt_collective_name(algorithm->collective),
                      algorithm->name, algorithm->direct_safe, found.direct_safe);
    }
}

TEST(algorithms, every_one_folds_in_rank_order_exactly_where_it_says_so)
{
    const struct tt_algorithm *algorithm;
    int number = 0;
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++) {
        if (!tt_collective_reduces(algorithm->collective)) continue;
        struct found found = {true, true};
        for (int nranks = 1; nranks <= 12; nranks++)
            for (int root = 0; root < (rooted(algorithm) ? nranks : 1); root++)
                prove(algorithm, nranks, root, (size_t)nranks + 1, &found);
        CHECK_MESSAGE(found.in_rank_order == algorithm->in_rank_order,
                      "%s:%s says in_rank_order %d, is %d",
                      tt_collective_name(algorithm->collective), algorithm->name,
                      algorithm->in_rank_order, found.in_rank_order);
        number += found.in_rank_order;
    }
    CHECK(number > 5);
}

TEST(algorithms, every_root_will_do)
{
    const struct tt_algorithm *algorithm;
    struct found found = {true, true};
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int nranks = 1; nranks <= 9 && rooted(algorithm); nranks++)
            for (int root = 0; root < nranks; root++) prove(algorithm, nranks, root, 10, &found);
}

TEST(algorithms, any_count_will_do)
{
    const struct tt_algorithm *algorithm;
    struct found found = {true, true};
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int nranks = 1; nranks <= 8; nranks += 1 + nranks / 3) {
            const size_t counts[] = {0, 1, (size_t)nranks - 1, (size_t)nranks, 1000};
            for (int k = 0; k < 5; k++) prove(algorithm, nranks, 0, counts[k], &found);
        }
}
