/* Every algorithm, proved by verify. tutti-plan does the same for more ranks and counts. */
#include "shim.h"
#include "each.h"

/* Proves one shape; *direct_safe becomes false when the proof says so. */
static void prove(const struct tt_algorithm *algorithm, int nranks, int root, size_t count,
                  bool *direct_safe)
{
    const struct tt_steps steps = {.algorithm = algorithm,
                                   .shape = shape_of(algorithm, nranks, root)};
    struct tt_verify_report report = {.text = ""};
    const tt_status status = tt_verify(&steps, count, &report);
    CHECK_MESSAGE(status == TT_OK, "%s:%s, %d ranks, root %d, count %zu: %s",
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, root, count,
                  report.text);
    if (status == TT_OK && !report.direct_safe) *direct_safe = false;
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
        bool direct_safe = true;
        for (int nranks = 1; nranks <= 17; nranks++)
            prove(algorithm, nranks, rooted(algorithm) ? nranks / 3 : 0, (size_t)nranks + 1,
                  &direct_safe);
        CHECK_MESSAGE(direct_safe == algorithm->direct_safe, "%s:%s says direct_safe %d, is %d",
                      tt_collective_name(algorithm->collective), algorithm->name,
                      algorithm->direct_safe, direct_safe);
    }
}

TEST(algorithms, every_root_will_do)
{
    const struct tt_algorithm *algorithm;
    bool direct_safe = true;
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int nranks = 1; nranks <= 9 && rooted(algorithm); nranks++)
            for (int root = 0; root < nranks; root++)
                prove(algorithm, nranks, root, 10, &direct_safe);
}

TEST(algorithms, any_count_will_do)
{
    const struct tt_algorithm *algorithm;
    bool direct_safe = true;
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int nranks = 1; nranks <= 8; nranks += 1 + nranks / 3) {
            const size_t counts[] = {0, 1, (size_t)nranks - 1, (size_t)nranks, 1000};
            for (int k = 0; k < 5; k++) prove(algorithm, nranks, 0, counts[k], &direct_safe);
        }
}
