/* The schedules of DeepSpeed's configuration files. Step n of an optimizer has the rate that
 * DeepSpeed 0.19 has set when it takes its step n: the schedulers move on behind the step, so that
 * a warm-up is one step behind and its first two steps have the lowest rate.
 * Which options its keys set is in deepspeed.c.
 *
 * Test  tests/trainer/rate_test.c, against numbers of DeepSpeed's own. */
#include <math.h>

#include "../ops/optimizer.h"
#include "rate.h"

enum { LOG, LINEAR }; /* the places of --warmup-type's choices */

/* ---- Warm-ups ---------------------------------------------------------------------------------
 */

/* A warm-up of 1 step takes 2: the logarithm of 1 is 0. */
static int64_t warmup_steps(const struct tr_config *config)
{
    return config->warmup > 2 ? config->warmup : 2;
}

/* How far the warm-up is, 0 to 1. */
static double warmth(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double done = at->step > 0 ? (double)(at->step - 1) : 0,
                 all = (double)warmup_steps(config);
    return config->warmup_type == LOG ? log(done + 1) / log(all) : done / all;
}

static bool is_warm(const struct tr_config *config, const struct tr_rate_at *at)
{
    return at->step - 1 >= warmup_steps(config);
}

static double warming(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double start = config->lr * config->start_lr;
    return start + (config->lr - start) * warmth(config, at);
}

/* The progress behind a warm-up of at least two steps, when `step` steps are done. */
static double progress_of(const struct tr_config *config, int64_t step, const struct tr_rate_at *at)
{
    struct tr_config longer = *config;
    longer.warmup = warmup_steps(config);
    if (longer.seconds <= 0 && at->total <= longer.warmup) return 1;
    return tr_rate_progress(&longer, step, at);
}

double tr_rate_warmup_lr(const struct tr_config *config, const struct tr_rate_at *at)
{
    return is_warm(config, at) ? config->lr : warming(config, at);
}

double tr_rate_warmup_decay_lr(const struct tr_config *config, const struct tr_rate_at *at)
{
    if (!is_warm(config, at)) return warming(config, at);
    const double start = config->lr * config->start_lr;
    return start + (config->lr - start) * (1 - progress_of(config, at->step - 1, at));
}

double tr_rate_warmup_cosine_lr(const struct tr_config *config, const struct tr_rate_at *at)
{
    if (at->step == 0) return 0; /* as DeepSpeed's, also with --start-lr */
    if (!is_warm(config, at)) return warming(config, at);
    const double share = (1 + cos(3.14159265358979323846 * progress_of(config, at->step, at))) / 2;
    return config->lr * (config->min_lr + (1 - config->min_lr) * share);
}

/* ---- OneCycle ---------------------------------------------------------------------------------
 */

static int64_t cycle_down(const struct tr_config *config)
{
    return config->cycle_down ? config->cycle_down : config->cycle_up;
}

/* Steps behind the cycle, 0 while it lasts. */
static int64_t behind_cycle(const struct tr_config *config, int64_t step)
{
    const int64_t all = config->cycle_up + cycle_down(config);
    return step > all ? step - all : 0;
}

/* The height within the cycle, 0 to 1; a number of stairs holds it for as many parts of a half. */
static double cycle_height(const struct tr_config *config, int64_t step)
{
    const int64_t up = config->cycle_up, down = cycle_down(config), at = step % (up + down);
    const bool rises = at <= up;
    const int64_t way = rises ? at : up + down - at, length = rises ? up : down;
    int64_t stairs = rises ? config->cycle_up_stairs : config->cycle_down_stairs;
    if (stairs < 0) stairs = config->cycle_up_stairs;
    if (!stairs) return (double)way / (double)length;
    return floor((double)way * (double)stairs / (double)length) / (double)stairs;
}

double tr_rate_one_cycle(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double lowest = config->lr * config->min_lr;
    const int64_t behind = behind_cycle(config, at->step);
    if (!behind) return lowest + (config->lr - lowest) * cycle_height(config, at->step);
    if (!config->cycle_decay_steps) return lowest;
    const double intervals = (double)behind / (double)config->cycle_decay_steps;
    return lowest / (1 + config->cycle_decay * intervals);
}

double tr_rate_beta1(const struct tr_config *config, const struct tr_rate_at *at)
{
    const bool has = config->optimizer == TR_ADAMW || config->optimizer == TR_LAMB;
    if (config->schedule != TR_RATE_ONE_CYCLE || !has || config->cycle_beta1 > config->beta1)
        return config->beta1;
    if (behind_cycle(config, at->step)) return config->beta1;
    return config->beta1 - (config->beta1 - config->cycle_beta1) * cycle_height(config, at->step);
}

/* ---- LRRangeTest ------------------------------------------------------------------------------
 */

double tr_rate_range_test(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double intervals = (double)at->step / (double)config->range_steps;
    return config->lr *
           (1 + config->range_rate * (config->range_staircase ? floor(intervals) : intervals));
}
