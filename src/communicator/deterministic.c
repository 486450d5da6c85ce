/* The deterministic mode of a communicator: which algorithms it may use, and what that costs. */
#include <stdio.h>

#include "base/log.h"
#include "communicator/communicator.h"

/* Lists the algorithms that fold in rank order and, with a shape, can run on its hosts. */
static void list(enum tt_collective collective, const struct tt_shape *shape, char *text,
                 size_t size)
{
    const struct tt_algorithm *algorithm;
    size_t used = 0;
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)) != NULL && used < size; i++) {
        if (!algorithm->in_rank_order || (shape && tt_refusal(algorithm, shape))) continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", algorithm->name);
    }
}

tt_status tt_comm_check_order(const struct tt_algorithm *algorithm, bool deterministic)
{
    char names[256];
    if (!algorithm || tt_order_fits(algorithm, deterministic)) return TT_OK;
    list(algorithm->collective, NULL, names, sizeof names);
    return tt_fail(TT_ERR_USAGE,
                   "%s:%s is forced on a deterministic communicator, but does not fold in rank "
                   "order: force one of %s, or none",
                   tt_collective_name(algorithm->collective), algorithm->name, names);
}

/* How many times as long as the free choice the deterministic one takes, by the cost model. */
static double slowdown(const struct tt_shape *shape, const struct tt_setting *setting,
                       size_t nbytes)
{
    struct tt_setting free_choice = *setting;
    free_choice.in_rank_order = false;
    return tt_cost_us(tt_choose(shape, setting, nbytes), shape, setting, nbytes) /
           tt_cost_us(tt_choose(shape, &free_choice, nbytes), shape, setting, nbytes);
}

void tt_comm_log_order(const struct tuttiComm *comm)
{
    const struct tt_setting *setting = &comm->setting;
    if (!setting->in_rank_order || comm->core.rank || tt_log_level() < TT_LOG_INFO) return;
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const enum tt_collective collective = (enum tt_collective)i;
        const struct tt_shape shape = {.collective = collective,
                                       .nranks = comm->core.nranks,
                                       .hosts = comm->core.fabric->hosts};
        char names[256];
        if (!tt_collective_reduces(collective)) continue;
        list(collective, &shape, names, sizeof names);
        TT_INFO("communicator %s is deterministic: %s folds in rank order by %s; predicted time "
                "over that of the free choice: %.2f for 8 bytes, %.2f for 64 KiB, %.2f for 16 MiB",
                comm->core.name, tt_collective_name(collective), names,
                slowdown(&shape, setting, 8), slowdown(&shape, setting, 64 << 10),
                slowdown(&shape, setting, 16 << 20));
    }
}
