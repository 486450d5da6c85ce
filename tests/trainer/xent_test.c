/* Cross-entropy, whole and over a vocabulary in ranges, in each build that this processor can run,
 * against the plain formula in double. */
#include <math.h>
#include <string.h>

#include "ops_check.h"
#include "shim.h"

enum { ROWS = 7 };
static const float weight[ROWS] = {1, 0, 1, 0.5f, 1, 0, 2};

/* Targets at both ends, at the cuts and, where the weight is 0, outside. */
static void make_targets(int32_t *targets, long n)
{
    const int32_t at[ROWS] = {
        0, -1, (int32_t)n - 1, (int32_t)n / 2, 17 % (int32_t)n, 2147483647, 128 % (int32_t)n};
    memcpy(targets, at, sizeof at);
}

/* The loss; *gradient becomes the gradient. Rows of weight 0 are not looked at. */
static double plain_loss(double *gradient, const float *logits, const int32_t *targets, long n)
{
    double total = 0;
    for (long r = 0; r < ROWS; ++r) {
        if (weight[r] == 0) continue;
        const float *x = logits + r * n;
        double most = -INFINITY, sum = 0;
        for (long i = 0; i < n; ++i) most = fmax(most, (double)x[i]);
        for (long i = 0; i < n; ++i) sum += exp((double)x[i] - most);
        total += (double)weight[r] * (log(sum) + most - (double)x[targets[r]]);
        for (long i = 0; i < n; ++i)
            gradient[r * n + i] =
                (double)weight[r] * (exp((double)x[i] - most) / sum - (i == targets[r]));
    }
    return total;
}

/* The three parts over ranges that end at cuts[0 .. n-1], combined as ranks would. */
static double loss_in_ranges(const struct tr_backend *ops, float *logits, const int32_t *targets,
                             const long *cuts, int ncuts)
{
    enum { MOST = 4 };
    const long n = cuts[ncuts - 1];
    float *part[MOST], most[MOST][ROWS], sum[MOST][ROWS], right[MOST][ROWS];
    for (int c = 0; c < ncuts; ++c) {
        const long first = c ? cuts[c - 1] : 0, count = cuts[c] - first;
        part[c] = zeros(ROWS * count);
        for (long r = 0; r < ROWS; ++r)
            memcpy(part[c] + r * count, logits + r * n + first, (size_t)count * sizeof *logits);
        ops->xent_max(most[c], data_of(part[c]), ROWS, count);
    }
    for (int c = 1; c < ncuts; ++c)
        for (long r = 0; r < ROWS; ++r) most[0][r] = fmaxf(most[0][r], most[c][r]);
    for (int c = 0; c < ncuts; ++c) {
        const long first = c ? cuts[c - 1] : 0, count = cuts[c] - first;
        ops->xent_exp(sum[c], right[c], data_of(part[c]), most[0], targets, first, ROWS, count);
    }
    for (int c = 1; c < ncuts; ++c) {
        for (long r = 0; r < ROWS; ++r) {
            sum[0][r] += sum[c][r];
            right[0][r] += right[c][r];
        }
    }
    double loss = 0;
    for (int c = 0; c < ncuts; ++c) {
        const long first = c ? cuts[c - 1] : 0, count = cuts[c] - first;
        double here = 0;
        ops->xent_finish(data_of(part[c]), &here, sum[0], right[0], most[0], weight, targets, first,
                         ROWS, count);
        CHECK(c == 0 || here == loss); /* every range adds the same */
        loss = here;
        for (long r = 0; r < ROWS; ++r)
            memcpy(logits + r * n + first, part[c] + r * count, (size_t)count * sizeof *logits);
    }
    return loss;
}

static void check_loss(const struct tr_backend *ops, long n, float scale)
{
    int32_t targets[ROWS];
    make_targets(targets, n);
    float *logits = some(ROWS * n, scale, 1);
    for (long i = 0; i < n; ++i) logits[n + i] = NAN; /* row 1 has weight 0 */
    double *expected = wide_zeros(ROWS * n);
    const double loss = plain_loss(expected, logits, targets, n);
    float *whole = copy_of(logits, ROWS * n), *one = copy_of(logits, ROWS * n);
    double got = 0;
    ops->loss(data_of(whole), &got, weight, targets, ROWS, n);
    CHECK_MESSAGE(fabs(got - loss) < 1e-6 * fmax(loss, 1), "%g, expected %g", got, loss);
    CHECK(difference(whole, expected, ROWS * n) < 1e-6);
    for (long i = 0; i < n; ++i) CHECK(whole[n + i] == 0 && whole[5 * n + i] == 0);

    CHECK(loss_in_ranges(ops, one, targets, &n, 1) == got);
    CHECK(same_bits(one, whole, ROWS * n));
    const long cuts[][3] = {{(n + 1) / 2, n, n}, {n / 3, n - 1, n}, {0, n, n}, {n, n, n}};
    for (int k = 0; k < 4; ++k) {
        for (int ncuts = 2; ncuts <= 3; ++ncuts) {
            if (cuts[k][ncuts - 1] != n) continue;
            float *cut = copy_of(logits, ROWS * n);
            const double sum = loss_in_ranges(ops, cut, targets, cuts[k], ncuts);
            CHECK(fabs(sum - got) < 1e-6 * fmax(loss, 1));
            CHECK(difference(cut, expected, ROWS * n) < 1e-6);
        }
    }
    free_all();
}

TEST(ops, loss_matches_the_plain_formula_whole_and_in_uneven_ranges)
{
    FOR_EACH_BUILD(ops)
    {
        check_loss(ops, 257, 4);
        check_loss(ops, 257, 60);
        for (const long *n = odd_sizes; *n; ++n) check_loss(ops, *n, 3);
    }
}

TEST(ops, the_loss_is_added_to_what_is_there_or_left_out)
{
    FOR_EACH_BUILD(ops)
    {
        const int32_t targets[2] = {0, 1};
        float logits[3][6];
        double once = 0, twice = 0;
        for (int i = 0; i < 18; ++i) logits[i / 6][i % 6] = (float)(i % 6);
        ops->loss(data_of(logits[0]), &once, weight, targets, 2, 3);
        twice = once;
        ops->loss(data_of(logits[1]), &twice, weight, targets, 2, 3);
        ops->loss(data_of(logits[2]), NULL, weight, targets, 2, 3);
        CHECK(once > 0 && twice == 2 * once);
        CHECK(same_bits(logits[0], logits[2], 6));
    }
}

TEST(ops, loss_of_logits_that_are_not_numbers_is_not_a_number)
{
    FOR_EACH_BUILD(ops)
    {
        const float ones[2] = {1, 1};
        const int32_t targets[2] = {0, 1};
        float logits[2][3] = {{1, 2, 3}, {1, NAN, 3}};
        double loss = 0, other = 0;
        ops->loss(data_of(logits[0]), &loss, ones, targets, 2, 3);
        CHECK(isnan(loss));
        float infinite[2][3] = {{1, 2, INFINITY}, {1, 2, 3}};
        ops->loss(data_of(infinite[0]), &other, ones, targets, 2, 3);
        CHECK(isnan(other));
    }
}
