/* Tests of the schedules of the learning rate: those of DeepSpeed against its own numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optim/rate.h"
#include "shim.h"

/* A row of rates_deepspeed_table.h: the options of those that follow, or a step. */
struct row {
    const char *options;
    int64_t step;
    double lr, beta1;
};

static const struct row rows[] = {
#define CASE(options) {options, 0, 0, 0},
#define AT(step, lr, beta1) {NULL, step, lr, beta1},
#include "rates_deepspeed_table.h"
};

/* Sets the options of one line. */
static void set(struct tr_config *config, const char *line)
{
    char copy[256], *rest;
    char *argv[16] = {copy};
    int n = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    tr_config_init(config);
    REQUIRE(tr_config_set(config, "lr", "0.004", TR_FROM_COMMAND_LINE) == TR_OK);
    REQUIRE(tr_config_set(config, "steps", "60", TR_FROM_COMMAND_LINE) == TR_OK);
    CHECK_MESSAGE(tr_config_parse(config, n, argv) == TR_OK, "%s: %s", line, tr_error());
    CHECK_MESSAGE(tr_config_check(config) == TR_OK, "%s: %s", line, tr_error());
}

static double rate(const struct tr_config *config, int64_t step, int64_t total, double seconds)
{
    const struct tr_rate_at at = {step, total, seconds};
    return tr_rate_of(config, &at);
}

TEST(rate, schedules_of_deepspeed_have_its_numbers)
{
    struct tr_config config;
    const char *options = "";
    int steps = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        if (rows[i].options) {
            options = rows[i].options;
            set(&config, options);
            continue;
        }
        const struct tr_rate_at at = {rows[i].step, config.steps, 0};
        const double lr = tr_rate_of(&config, &at), beta1 = tr_rate_beta1(&config, &at);
        CHECK_MESSAGE(fabs(lr - rows[i].lr) <= 1e-12 * rows[i].lr,
                      "%s: step %lld: %.17g, not %.17g", options, (long long)at.step, lr,
                      rows[i].lr);
        /* At step 0 DeepSpeed's OneCycle has its lowest beta1, and from step 1 on the highest. */
        if (at.step > 0)
            CHECK_MESSAGE(fabs(beta1 - rows[i].beta1) <= 1e-12, "%s: step %lld: beta1 %g, not %g",
                          options, (long long)at.step, beta1, rows[i].beta1);
        ++steps;
    }
    CHECK(steps > 300);
}

TEST(rate, beta1_stays_for_optimizers_without_one)
{
    struct tr_config config;
    const struct tr_rate_at top = {20, 60, 0};
    set(&config, "--schedule=one-cycle --cycle-up=20");
    CHECK(fabs(tr_rate_beta1(&config, &top) - 0.8) < 1e-12);
    set(&config, "--schedule=one-cycle --cycle-up=20 --optimizer=muon");
    CHECK(tr_rate_beta1(&config, &top) == 0.9);
    set(&config, "--schedule=one-cycle --cycle-up=20 --beta1=0.5");
    CHECK(tr_rate_beta1(&config, &top) == 0.5);
}

TEST(rate, plain_schedules_rise_then_follow_their_curve)
{
    static const struct {
        const char *options;
        double at[5]; /* after 5, 10, 60, 100 and 110 of 110 steps, of --lr */
    } cases[] = {{"--schedule=cosine", {0.6, 1, 0.55, 0.122025, 0.1}},
                 {"--schedule=constant", {0.6, 1, 1, 1, 1}},
                 {"--schedule=linear", {0.6, 1, 0.55, 0.19, 0.1}},
                 {"--schedule=wsd --cooldown=0.2", {0.6, 1, 1, 0.55, 0.1}},
                 {"--schedule=wsd --cooldown=0", {0.6, 1, 1, 1, 1}}};
    static const int64_t steps[5] = {5, 10, 60, 100, 110};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        struct tr_config config;
        set(&config, cases[i].options);
        config.lr = 1;
        config.min_lr = 0.1;
        config.warmup = 10;
        for (int k = 0; k < 5; ++k) {
            const double lr = rate(&config, steps[k], 110, 0);
            CHECK_MESSAGE(fabs(lr - cases[i].at[k]) < 1e-6, "%s: step %lld: %g, not %g",
                          cases[i].options, (long long)steps[k], lr, cases[i].at[k]);
        }
    }
}

/* Half of the time is over, whatever the number of steps. */
TEST(rate, a_time_budget_takes_schedules_to_their_end)
{
    struct tr_config config;
    set(&config, "--schedule=cosine --seconds=10 --warmup=5");
    for (config.schedule = 0; config.schedule < TR_NUM_RATES; ++config.schedule) {
        const double half = rate(&config, 100, 0, 5), end = rate(&config, 100, 0, 50);
        const bool falls = config.schedule == TR_RATE_COSINE || config.schedule == TR_RATE_LINEAR ||
                           config.schedule == TR_RATE_WARMUP_DECAY ||
                           config.schedule == TR_RATE_WARMUP_COSINE;
        CHECK_MESSAGE(!falls || (half > 0.4 * config.lr && half < 0.6 * config.lr),
                      "schedule %d: %g", (int)config.schedule, half);
        CHECK_MESSAGE(!falls || end <= config.lr * config.min_lr * 1.000001, "schedule %d: %g",
                      (int)config.schedule, end);
    }
    set(&config, "--schedule=wsd --seconds=10");
    CHECK(rate(&config, 100, 0, 7.9) == config.lr);
    CHECK(fabs(rate(&config, 100, 0, 10) - config.lr * config.min_lr) < 1e-12);
}

/* What is said at the start of a run of `total` steps. */
static void notes(const char *options, int64_t total, char text[512])
{
    struct tr_config config;
    set(&config, options);
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tr_rate_print_notes(&config, total, file);
    rewind(file);
    text[fread(text, 1, 511, file)] = 0;
    fclose(file);
}

TEST(rate, a_warm_up_as_long_as_the_run_is_said)
{
    char text[512];
    notes("--warmup=50", 10, text);
    CHECK_STR(text, "note: --warmup=50 is longer than the run of 10 steps: the learning rate rises "
                    "to 0.0008 at its last step and never falls; --lr is 0.004\n");
    notes("--warmup=10", 10, text);
    CHECK(strstr(text, "--warmup=10 is as long as the run of 10 steps") != NULL);
    notes("--warmup=9", 10, text);
    CHECK_STR(text, "");
    notes("--warmup=9 --seconds=5", 0, text);
    CHECK_STR(text, "");
    notes("--warmup=50 --schedule=one-cycle", 10, text);
    CHECK_STR(text, "");
    notes("--schedule=lr-range-test --seconds=5", 0, text);
    CHECK(strstr(text, "--schedule=lr-range-test counts steps") != NULL);
}

TEST(rate, options_that_do_not_fit_are_refused)
{
    struct tr_config config;
    set(&config, "--schedule=cosine --warmup=0");
    config.schedule = TR_RATE_WARMUP_DECAY;
    CHECK(tr_config_check(&config) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "--schedule=warmup-decay-lr --warmup=0"), "%s", tr_error());
    set(&config, "--schedule=one-cycle --cycle-beta1=0.6 --beta1=0.6");
    config.beta1 = 0.5;
    CHECK(tr_config_check(&config) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "--cycle-beta1=0.6 exceeds --beta1=0.5"), "%s", tr_error());
}
