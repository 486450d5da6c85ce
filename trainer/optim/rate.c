/* Chooses the schedule of the learning rate, checks its options, and says what a user may not
 * expect of it. */
#include "rate.h"

enum { STEPS, CLOCK };

static const struct rule {
    double (*rate)(const struct tr_config *config, const struct tr_rate_at *at);
    const char *name;
    int follows;
} rules[TR_NUM_RATES] = {
#define RATE(NAME, function, name_, follows_)                                                      \
    [TR_RATE_##NAME] = {tr_rate_##function, name_, follows_},
#include "rate_table.h"
};

double tr_rate_of(const struct tr_config *config, const struct tr_rate_at *at)
{
    return rules[config->schedule].rate(config, at);
}

static bool is_deepspeed_warmup(const struct tr_config *config)
{
    return config->schedule == TR_RATE_WARMUP || config->schedule == TR_RATE_WARMUP_DECAY ||
           config->schedule == TR_RATE_WARMUP_COSINE;
}

tr_status tr_rate_check(const struct tr_config *config)
{
    if (is_deepspeed_warmup(config) && !config->warmup)
        return tr_fail("--schedule=%s --warmup=0: it needs a warm-up of 1 step or more; "
                       "--schedule=constant, linear and cosine do without",
                       rules[config->schedule].name);
    if (config->schedule == TR_RATE_ONE_CYCLE && config->cycle_beta1 > config->beta1 &&
        config->source[TR_OPTION_cycle_beta1] > TR_FROM_CHECKPOINT)
        return tr_fail("--cycle-beta1=%g exceeds --beta1=%g, from which beta1 falls to it",
                       config->cycle_beta1, config->beta1);
    return TR_OK;
}

void tr_rate_print_notes(const struct tr_config *config, int64_t total, FILE *out)
{
    const bool steps = rules[config->schedule].follows == STEPS;
    if (!steps && total && config->warmup >= total) {
        const struct tr_rate_at last = {.step = total - 1, .total = total};
        fprintf(
            out,
            "note: --warmup=%lld is %s the run of %lld step%s: the learning rate rises to %.3g at "
            "its last step and never falls; --lr is %.3g\n",
            (long long)config->warmup, config->warmup > total ? "longer than" : "as long as",
            (long long)total, total == 1 ? "" : "s", tr_rate_of(config, &last), config->lr);
    }
    if (steps && config->seconds > 0)
        fprintf(out,
                "note: --schedule=%s counts steps: with --seconds its learning rate does not "
                "follow the clock\n",
                rules[config->schedule].name);
}
