/* tuttiDescribe: what is here, in words. */
#include "base/thread.h"
#include "communicator/calling.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/output.h"
#include "base/status.h"
#include "carrier/carried.h"
#include "datatype/datatype.h"
#include "driver/driver.h"
#include "topology/topology.h"
#include "tutti.h"

static tt_status describe_topology(const struct tt_output *output)
{
    const struct tt_topology *topology;
    TT_TRY(tt_topology_local(&topology));
    tt_topology_describe(topology, output->emit, output->arg);
    return TT_OK;
}

static tt_status describe_topology_xml(const struct tt_output *output)
{
    char *xml;
    TT_TRY(tt_topology_xml(tt_config_string(TT_CONFIG_TOPOLOGY_FILE), &xml));
    for (char *line = xml; *line;) {
        char *end = line + strcspn(line, "\n");
        const char ended = *end;
        *end = '\0';
        output->emit(output->arg, line);
        line = ended ? end + 1 : end;
    }
    free(xml);
    return TT_OK;
}

static void describe_config(const struct tt_output *output)
{
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        const char *value = tt_config_string((enum tt_config_key)key);
        if (key == TT_CONFIG_JOB_KEY && value[0]) value = "(secret)";
        tt_say(output, "%s=%s  (%s)", row->name, value, tt_config_source((enum tt_config_key)key));
        tt_say(output, "    %s %s%s%s.", row->sentence, row->type,
               row->fallback[0] ? ", default " : "", row->fallback);
    }
}

/* "`NCCL_NET`, `NCCL_IB_DISABLE`" */
static void quote_list(char *text, size_t size, const char *list)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = list; *at && used < size;) {
        const size_t length = strcspn(at, ",");
        used += (size_t)snprintf(text + used, size - used, "%s`%.*s`", used ? ", " : "",
                                 (int)length, at);
        at += length + (at[length] == ',');
    }
}

static void describe_config_markdown(const struct tt_output *output)
{
    tt_say(output, "| setting | type | default | what it does | NCCL's variables |");
    tt_say(output, "|---|---|---|---|---|");
    for (int key = 0; key < TT_CONFIG_COUNT; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        const char *quote = row->fallback[0] ? "`" : "";
        char nccl[256];
        quote_list(nccl, sizeof nccl, row->nccl);
        tt_say(output, "| `%s` | %s | %s%s%s | %s | %s |", row->name, row->type, quote,
               row->fallback, quote, row->sentence, nccl);
    }
}

static void describe_cpu(const struct tt_output *output)
{
    const char *mask = tt_config_string(TT_CONFIG_CPU);
    tt_say(output, "features found: %s", tt_isa_found());
    tt_say(output, "reductions use: %s%s%s", tt_isa_in_use(), mask[0] ? ", as TUTTI_CPU=" : "",
           mask);
}

/* What would be used for these bytes: by `comm`, or, without one, by nranks ranks of this host. */
static const char *choice(tuttiComm_t comm, const struct tt_costs *costs, int collective,
                          int nranks, size_t nbytes)
{
    const char *name = "?";
    if (comm) {
        if (tuttiCommGetAlgorithm(comm, (tuttiCollective_t)collective, nbytes, &name) !=
            tuttiSuccess)
            return "?";
        return name;
    }
    const struct tt_topology *topology;
    const bool is_known = tt_topology_local(&topology) == TT_OK && topology->npus > 0;
    const struct tt_shape shape = {.collective = (enum tt_collective)collective, .nranks = nranks};
    const struct tt_setting setting = {
        .one_host = true,
        .oversubscribed = !is_known || nranks > topology->npus,
        .ranks_per_core = is_known ? (double)nranks / topology->npus : nranks,
        .meet_bytes = (size_t)tt_config_int(TT_CONFIG_MEET_BYTES),
        .slot_bytes = (size_t)tt_config_int(TT_CONFIG_SLOT_BYTES),
        .in_rank_order = tt_config_int(TT_CONFIG_DETERMINISTIC),
        .costs = costs,
    };
    return tt_choose(&shape, &setting, nbytes)->name;
}

/* One row of the table of choices; nothing stands after the last column. */
static void append(char *line, size_t size, int column, const char *text)
{
    const size_t used = strlen(line), at = column == 0 ? 0 : 16 + 22 * ((size_t)column - 1);
    const int gap = at > used ? (int)(at - used) : used > 0;
    snprintf(line + used, size - used, "%*s%s", gap, "", text);
}

static void describe_choices(const struct tt_output *output, tuttiComm_t comm,
                             const struct tt_costs *costs, int nranks)
{
    static const struct {
        const char *name;
        size_t nbytes;
    } sizes[] = {
        {"8 B", 8}, {"4 KiB", 4096}, {"64 KiB", 65536}, {"1 MiB", 1 << 20}, {"16 MiB", 16 << 20}};
    enum { NSIZES = sizeof sizes / sizeof *sizes };
    char line[256] = "";
    const bool deterministic =
        comm ? comm->setting.in_rank_order : tt_config_int(TT_CONFIG_DETERMINISTIC);
    tt_say(output, "choices for %d rank%s%s%s:", nranks, nranks == 1 ? "" : "s",
           comm ? " of this communicator" : " on this host",
           deterministic ? ", deterministic" : "");
    for (int i = 0; i < NSIZES; i++) append(line, sizeof line, i + 1, sizes[i].name);
    tt_say(output, "%s", line);
    for (int collective = 0; collective < TT_NCOLLECTIVES; collective++) {
        line[0] = '\0';
        append(line, sizeof line, 0, tt_collective_name((enum tt_collective)collective));
        for (int i = 0; i < NSIZES; i++)
            append(line, sizeof line, i + 1,
                   choice(comm, costs, collective, nranks, sizes[i].nbytes));
        tt_say(output, "%s", line);
    }
}

/* The constants are those of `comm`, or, without one, those that a new communicator would have. */
static tt_status describe_costs(const struct tt_output *output, tuttiComm_t comm)
{
    const char *path = tt_config_string(TT_CONFIG_COST_FILE);
    const bool fast =
        !path[0] && (comm ? comm->core.fabric->all_have_fast_rep_movsb : tt_has_fast_rep_movsb());
    const struct tt_costs shipped = tt_costs_shipped(fast);
    struct tt_costs costs = shipped;
    int nranks = 0;
    if (comm)
        costs = comm->costs;
    else if (path[0])
        TT_TRY(tt_costs_read(path, &costs));
    tt_say(output, "constants of the host: %s%s", path[0] ? "TUTTI_COST_FILE=" : "as shipped",
           path);
    tt_costs_describe(&costs, &shipped, output->emit, output->arg);
    if (comm) {
        if (tuttiCommCount(comm, &nranks) == tuttiSuccess)
            describe_choices(output, comm, &costs, nranks);
        return TT_OK;
    }
    describe_choices(output, NULL, &costs, 2);
    describe_choices(output, NULL, &costs, 8);
    return TT_OK;
}

static const char *way_of_kernels(const struct tt_fabric *fabric, int peer)
{
    if (fabric->bridged && tt_fabric_is_relayed(fabric, peer))
        return "; kernels by a relay over it";
    if (!fabric->bridged || tt_fabric_is_local(fabric, peer)) return "";
    return "; kernels by a bridge over it";
}

/* The communicator's slots and waits, and a line a peer: how messages reach it. */
static void describe_links_of(tuttiComm_t comm, const struct tt_output *output)
{
    struct tt_fabric *fabric = comm->core.fabric;
    const struct tt_segment_header *header = fabric->segment->header;
    char name[128], way[256];
    tt_say(output,
           "communicator %s: rank %d of %d, %u slots of %u bytes a link, %u bytes a meeting, %s",
           comm->core.name, comm->core.rank, comm->core.nranks, header->nslots, header->slot_bytes,
           header->meet_bytes,
           fabric->oversubscribed ? "yielding (more ranks than cores)"
                                  : "spinning (a core for each rank)");
    const struct tt_sleep *sleep = &fabric->host.sleep;
    tt_say(output,
           "  a rank that waits for long %s; so far %" PRIu64 " sleeps, %" PRIu64
           " memory barriers for other processes",
           sleep->is_woken ? "sleeps until another rank of its host wakes it"
                           : "sleeps for 50 us at a time (other ranks cannot wake it)",
           atomic_load_explicit(&sleep->nsleeps, memory_order_relaxed),
           atomic_load_explicit(&sleep->nbarriers, memory_order_relaxed));
    const struct tt_carried *carried = tt_carried_of(&comm->core);
    if (carried) {
        char how[TT_ERROR_TEXT];
        carried->describe(&comm->core, how, sizeof how);
        tt_say(output, "  calls on memory of GPU %d: %s", comm->core.gpu, how);
    }
    for (int peer = 0; peer < comm->core.nranks; peer++) {
        tt_fabric_name_rank(fabric, peer, name, sizeof name);
        tt_engine_enter(&comm->core.engine);
        tt_fabric_describe_peer(fabric, peer, way, sizeof way);
        tt_engine_leave(&comm->core.engine);
        tt_say(output, "  to %s: %s%s", name, way, way_of_kernels(fabric, peer));
    }
}

static tt_status describe(tuttiDescribe_t what, tuttiComm_t comm, const struct tt_output *output)
{
    switch (what) {
    case tuttiDescribeTopology:
        return describe_topology(output);
    case tuttiDescribeTopologyXml:
        return describe_topology_xml(output);
    case tuttiDescribeConfig:
        describe_config(output);
        return TT_OK;
    case tuttiDescribeConfigMarkdown:
        describe_config_markdown(output);
        return TT_OK;
    case tuttiDescribeCpu:
        describe_cpu(output);
        return TT_OK;
    case tuttiDescribeGpus:
        tt_driver_describe(output->emit, output->arg);
        return TT_OK;
    case tuttiDescribeCosts:
        return describe_costs(output, comm);
    case tuttiDescribeNcclSettings:
        tt_describe_nccl(output);
        return TT_OK;
    case tuttiDescribeLinks:
        if (!comm)
            return tt_fail(TT_ERR_ARGUMENT, "tuttiDescribe: comm is NULL; links belong to a "
                                            "communicator, so tuttiDescribeLinks needs one");
        TT_TRY(tt_comm_find_for_calls(comm)); /* a child made by fork has none of them */
        describe_links_of(comm, output);
        return TT_OK;
    }
    return tt_fail(TT_ERR_ARGUMENT,
                   "tuttiDescribe: what = %d is unknown; expected tuttiDescribeTopology (0) to "
                   "tuttiDescribeNcclSettings (8)",
                   (int)what);
}

tuttiResult_t tuttiDescribe(tuttiDescribe_t what, tuttiComm_t comm,
                            void (*emit)(void *arg, const char *line), void *arg)
{
    TT_CANCELS_WAIT;
    const struct tt_output output = {emit, arg};
    if (!emit)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT,
                                           "tuttiDescribe: emit is NULL; expected a function "
                                           "that takes one line"));
    tt_status status = comm ? tt_comm_enter_to_ask(comm) : TT_OK;
    if (status) return tt_result(__func__, status);
    status = describe(what, comm, &output);
    if (comm) tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiIsSettingGiven(const char *name, int *isGiven)
{
    int key = 0;
    if (!name || !isGiven)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT, "tuttiIsSettingGiven: name or isGiven is NULL"));
    while (key < TT_CONFIG_COUNT && strcmp(tt_config_row((enum tt_config_key)key)->name, name) != 0)
        key++;
    if (key == TT_CONFIG_COUNT)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT,
                                           "tuttiIsSettingGiven: '%.100s' is no setting "
                                           "(tutti-info lists them)",
                                           name));
    *isGiven = strcmp(tt_config_source((enum tt_config_key)key), "default") != 0;
    return tuttiSuccess;
}

tuttiResult_t tuttiGetDeviceCount(int *count)
{
    TT_CANCELS_WAIT;
    if (!count)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiGetDeviceCount: count is NULL"));
    *count = tt_driver_ngpus(NULL);
    return tuttiSuccess;
}
