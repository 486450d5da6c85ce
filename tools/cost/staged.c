/* The model of a staged call: the library's cost model of the host (src/algorithms/cost.c), with
 * the copies between GPU and host around it. */
#include "cost/staged.h"

#include <math.h>

#include "algorithms/costs.h"
#include "base/config.h"
#include "base/hosts.h"

/* Bytes that a rank's buffer has, the root's where others have none. */
static double held(const struct cost_staged_call *call, bool input)
{
    switch (tt_collective_holds(call->collective, input, true)) {
    case TT_HOLDS_ALL:
        return (double)call->nbytes;
    case TT_HOLDS_OWN:
        return (double)call->nbytes / call->nranks;
    default:
        return 0;
    }
}

/* The constants of the host, where devices send for the CPU. */
static struct tt_costs costs_of(const struct cost_link *link)
{
    struct tt_costs costs = tt_shipped_costs;
    if (!link->each) return costs;
    costs.at[TT_COST_NET_LINK].value = link->at[COST_LATENCY].value;
    costs.at[TT_COST_NET_MESSAGE].value = link->at[COST_FENCE].value;
    costs.at[TT_COST_NET_BYTE].value = 1 / (link->at[COST_BANDWIDTH].value * 1e3);
    return costs;
}

/* As if messages between hosts cost nothing more than others. */
static struct tt_setting without_net(const struct tt_setting *setting, struct tt_costs *costs)
{
    struct tt_setting without = *setting;
    *costs = *setting->costs;
    costs->at[TT_COST_NET_LINK].value = costs->at[TT_COST_LINK].value;
    costs->at[TT_COST_NET_MESSAGE].value = costs->at[TT_COST_NET_BYTE].value = 0;
    without.costs = costs;
    without.net_mbit = 0;
    return without;
}

tt_status cost_staged(const struct cost_staged_call *call, struct cost_staged *out)
{
    const struct tt_costs costs = costs_of(call->link);
    const struct tt_shape shape = {
        .collective = call->collective, .nranks = call->nranks, .hosts = call->hosts};
    const int ndevices = call->link->each ? call->hosts->most : 1;
    const struct tt_setting setting = {
        .ranks_per_core = 1,
        .meet_bytes = (size_t)tt_config_int(TT_CONFIG_MEET_BYTES),
        .slot_bytes = (size_t)tt_config_int(TT_CONFIG_SLOT_BYTES),
        .net_mbit = (uint32_t)(ndevices * call->link->at[COST_BANDWIDTH].value * 8e3),
        .costs = &costs};
    struct tt_costs no_net;
    const struct tt_setting without = without_net(&setting, &no_net);
    const struct tt_algorithm *algorithm =
        call->algorithm ? call->algorithm : tt_choose(&shape, &setting, call->nbytes);
    const char *refusal = tt_refusal(algorithm, &shape);
    if (refusal)
        return tt_fail(TT_ERR_USAGE, "%s:%s %s", tt_collective_name(call->collective),
                       algorithm->name, refusal);
    const double copy = cost_constants[COST_COPY].value;
    const double bytes_us = cost_constants[COST_PINNED].value * 1e3;
    struct cost_staged staged = {.algorithm = algorithm,
                                 .in_bytes = held(call, true),
                                 .out_bytes = held(call, false),
                                 .words_us = cost_constants[COST_WORDS].value,
                                 .host_us = tt_cost_us(algorithm, &shape, &without, call->nbytes)};
    const double all_us = tt_cost_us(algorithm, &shape, &setting, call->nbytes);
    if (isinf(all_us))
        return tt_fail(TT_ERR_USAGE,
                       "%s:%s cannot run %zu bytes: an element of each block of a "
                       "message does not fit a slot (TUTTI_SLOT_BYTES)",
                       tt_collective_name(call->collective), algorithm->name, call->nbytes);
    staged.net_us = all_us - staged.host_us;
    if (staged.in_bytes > 0) staged.in_us = copy + staged.in_bytes / bytes_us;
    if (staged.out_bytes > 0) staged.out_us = copy + staged.out_bytes / bytes_us;
    staged.us = staged.in_us + staged.words_us + staged.host_us + staged.net_us + staged.out_us;
    *out = staged;
    return TT_OK;
}
