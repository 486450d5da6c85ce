/* Settings of a communicator: the fields of tuttiConfig_t, else the values of the config table. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "carrier/carried.h"
#include "communicator/communicator.h"
#include "datatype/datatype.h"
#include "device/call.h"
#include "driver/driver.h"

static int64_t int_or(int value, int64_t otherwise)
{
    return value == TUTTI_CONFIG_UNDEF_INT ? otherwise : value;
}

static tt_status check_timeout(const char *name, int value)
{
    if (value >= 0 || value == TUTTI_CONFIG_UNDEF_INT) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s %d is negative: give milliseconds, 0 for none", name,
                   value);
}

/* one, zero: what they mean, the latter with a blank before it, or "". */
static tt_status check_switch(const char *name, int value, const char *one, const char *zero)
{
    if (value == 0 || value == 1 || value == TUTTI_CONFIG_UNDEF_INT) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s is %d: give 1 (%s) or 0%s", name, value, one, zero);
}

/* An older caller's struct is shorter: what it lacks is undefined. */
static tt_status read_struct(tuttiConfig_t *full, const tuttiConfig_t *config)
{
    static const tuttiConfig_t undefined = TUTTI_CONFIG_INITIALIZER;
    *full = undefined;
    if (!config) return TT_OK;
    const size_t least = offsetof(tuttiConfig_t, timeoutMs);
    if (config->magic != TUTTI_CONFIG_MAGIC || config->size < least)
        return tt_fail(TT_ERR_ARGUMENT,
                       "the config is not from TUTTI_CONFIG_INITIALIZER (size %zu, magic %#llx)",
                       config->size, (unsigned long long)config->magic);
    memcpy(full, config, config->size < sizeof *full ? config->size : sizeof *full);
    TT_TRY(check_switch("deterministic", full->deterministic, "on", " (off)"));
    if (full->device < TUTTI_DEVICE_CURRENT && full->device != TUTTI_CONFIG_UNDEF_INT)
        return tt_fail(TT_ERR_ARGUMENT,
                       "device is %d: give the number of a GPU, -1 for none, or "
                       "TUTTI_DEVICE_CURRENT (%d)",
                       full->device, TUTTI_DEVICE_CURRENT);
    TT_TRY(check_timeout("timeoutMs", full->timeoutMs));
    TT_TRY(check_timeout("lateMs", full->lateMs));
    TT_TRY(check_switch("overlaps", full->overlaps, "buffers may overlap", ""));
    TT_TRY(check_switch("hostPagesStay", full->hostPagesStay,
                        "registering moves no memory of the host", ""));
    if (full->computeThreads < 0 && full->computeThreads != TUTTI_CONFIG_UNDEF_INT)
        return tt_fail(TT_ERR_ARGUMENT, "computeThreads is %d: give 0 or more",
                       full->computeThreads);
    return check_timeout("initTimeoutMs", full->initTimeoutMs);
}

/* NCCL_ALGO never fails an init: what a deterministic communicator cannot take is left out. */
static void drop_unordered(struct tt_comm_config *settings)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm = settings->forced[i];
        if (!algorithm || tt_order_fits(algorithm, settings->deterministic)) continue;
        TT_WARN_ONCE("NCCL_ALGO has no effect on %s: %s does not fold in rank order, as "
                     "a deterministic communicator must",
                     tt_collective_name(algorithm->collective), algorithm->name);
        settings->forced[i] = NULL;
    }
}

/* From 1; no other thread of the process ever has it. */
static uint64_t number_of_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t mine;
    if (!mine) mine = 1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed);
    return mine;
}

/* Without a name of its own a split has that of its parent, if the user gave one. */
static const char *choose_name(const char *given, const struct tuttiComm *parent)
{
    static const char unnamed[] = "world";
    if (given) return given;
    if (!parent) return unnamed;
    return strcmp(parent->core.name, unnamed) != 0 ? parent->core.name : "split";
}

/* *device: what tuttiCommDevice tells. */
static int choose_gpu(int asked, const struct tuttiComm *parent, int *device)
{
    const bool undefined = asked == TUTTI_CONFIG_UNDEF_INT;
    const int gpu = asked == TUTTI_DEVICE_CURRENT ? tt_driver_default()
                    : !undefined                  ? asked
                    : parent                      ? parent->core.gpu
                                                  : tt_current_gpu();
    *device = undefined && parent                        ? parent->device
              : gpu < 0 && asked == TUTTI_DEVICE_CURRENT ? -1
              : gpu < 0                                  ? 0
                                                         : gpu;
    return gpu;
}

/* A value out of range is clamped, which is logged. */
static size_t bounded(enum tt_config_key key, size_t least, size_t most, size_t unit)
{
    const int64_t value = tt_config_int(key);
    size_t good = value < (int64_t)least ? least : value > (int64_t)most ? most : (size_t)value;
    good = (good + unit - 1) / unit * unit;
    if ((int64_t)good != value)
        TT_WARN("%s=%lld is not in %zu..%zu or no multiple of %zu: using %zu", tt_config_name(key),
                (long long)value, least, most, unit, good);
    return good;
}

static int compute_threads(void)
{
    return (int)bounded(TT_CONFIG_COMPUTE_THREADS, 0, INT_MAX, 1);
}

tt_status tt_comm_config_init(struct tt_comm_config *settings, const tuttiConfig_t *config,
                              const struct tuttiComm *parent)
{
    tuttiConfig_t full;
    TT_TRY(read_struct(&full, config));
    struct tt_comm_config fresh = {.oversubscribed = parent && parent->core.fabric->oversubscribed};
    fresh.timeout_ms = int_or(full.timeoutMs, parent ? tt_engine_timeout(&parent->core.engine)
                                                     : tt_config_int(TT_CONFIG_TIMEOUT_MS));
    fresh.init_timeout_ms =
        int_or(full.initTimeoutMs,
               parent ? parent->init_timeout_ms : tt_config_int(TT_CONFIG_INIT_TIMEOUT_MS));
    fresh.late_ms = int_or(full.lateMs,
                           parent ? parent->core.engine.late_ms : tt_config_int(TT_CONFIG_LATE_MS));
    fresh.compute_threads =
        (int)int_or(full.computeThreads, parent ? parent->compute_threads : compute_threads());
    snprintf(fresh.name, sizeof fresh.name, "%s", choose_name(full.commName, parent));
    const char *algorithm = full.algorithm ? full.algorithm : tt_config_string(TT_CONFIG_ALGORITHM);
    if (parent && !full.algorithm)
        memcpy(fresh.forced, parent->forced, sizeof fresh.forced);
    else
        TT_TRY(tt_parse_algorithms(algorithm, fresh.forced));
    fresh.deterministic =
        int_or(full.deterministic,
               parent ? parent->setting.in_rank_order : tt_config_int(TT_CONFIG_DETERMINISTIC));
    fresh.gpu = choose_gpu(full.device, parent, &fresh.device);
    fresh.needs_gpu = full.device >= 0;
    fresh.expects_gpu = fresh.needs_gpu || (full.device == TUTTI_DEVICE_CURRENT && fresh.gpu >= 0);
    fresh.opener = number_of_thread();
    fresh.parent = parent ? &parent->core : NULL;
    if (!full.algorithm && tt_config_is_nccl(TT_CONFIG_ALGORITHM)) drop_unordered(&fresh);
    fresh.costs = parent ? &parent->costs : NULL;
    fresh.overlaps = int_or(full.overlaps, parent && parent->overlaps);
    fresh.host_pages_stay = int_or(full.hostPagesStay, parent && parent->host_pages_stay);
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        TT_TRY(tt_comm_check_order(fresh.forced[i], fresh.deterministic));
    *settings = fresh;
    return TT_OK;
}

static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, word, length)) return true;
    return false;
}

static const char inside_a_host[] = "shm,window,cma"; /* between hosts: tt_transports */

/* Checks that TUTTI_TRANSPORT names only transports that exist. *inside, *between: whether it names
 * one inside a host, one between hosts. */
static tt_status check_transports(const char *list, bool *inside, bool *between)
{
    *inside = *between = false;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t length = strcspn(at, ",");
        char word[32];
        snprintf(word, sizeof word, "%.*s", length < 31 ? (int)length : 31, at);
        const bool is_inside = length && lists(inside_a_host, word);
        const bool is_between = tt_transport_index(at, length) >= 0;
        if (!is_inside && !is_between) {
            char names[64];
            tt_transports_print(UINT32_MAX, names, sizeof names);
            return tt_fail(TT_ERR_ARGUMENT,
                           "TUTTI_TRANSPORT=%s: '%s' is none of %s inside a host or %s between "
                           "hosts",
                           list, word, inside_a_host, names);
        }
        *inside |= is_inside;
        *between |= is_between;
    }
    return TT_OK;
}

static tt_status read_waiting(struct tt_fabric_config *fabric)
{
    const char *wait = tt_config_string(TT_CONFIG_WAIT);
    if (!strcmp(wait, "yield"))
        fabric->oversubscribed = true;
    else if (strcmp(wait, "auto") && strcmp(wait, "spin"))
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_WAIT=%s is none of auto, spin, yield", wait);
    fabric->always_spin = !strcmp(wait, "spin");
    return TT_OK;
}

/* The messages of a block that go as lines, at most: for these lines are faster by the cost model.
 */
static size_t find_line_bytes(void)
{
    size_t most = 0, step = (size_t)1 << 24;
    for (; step; step /= 2)
        if (tt_gpu_takes_lines(most + step)) most += step;
    return most;
}

tt_status tt_comm_links_init(struct tt_comm_links *out, const struct tt_comm_config *config)
{
    const char *list = tt_config_string(TT_CONFIG_TRANSPORT);
    bool inside, between;
    TT_TRY(tt_config_check());
    TT_TRY(check_transports(list, &inside, &between));
    const size_t nslots = tt_config_int(TT_CONFIG_SLOTS)
                              ? bounded(TT_CONFIG_SLOTS, TT_MIN_SLOTS, TT_MAX_SLOTS, 1)
                              : 0;
    struct tt_comm_links links = {
        .fabric = {.nslots = nslots ? nslots : TT_SLOTS_INSIDE,
                   .slots_setting = nslots,
                   .slot_bytes =
                       bounded(TT_CONFIG_SLOT_BYTES, TT_MIN_SLOT_BYTES, 4 << 20, TT_CACHE_LINE),
                   .meet_bytes = bounded(TT_CONFIG_MEET_BYTES, 1024, 1 << 20, TT_CACHE_LINE),
                   .nchannels = 1 + (int)bounded(TT_CONFIG_CHANNELS, TT_MIN_CHANNELS - 1,
                                                 TT_MAX_COLLECTIVE_CHANNELS, 1),
                   .allow_bridges = tt_config_int(TT_CONFIG_DEVICE_BRIDGES),
                   .allow_kernels = tt_config_int(TT_CONFIG_DEVICE_KERNELS),
                   .copies = (int)bounded(TT_CONFIG_COPIES, 1, TT_MAX_COLLECTIVE_CHANNELS, 1),
                   .oversubscribed = config->oversubscribed,
                   .deterministic = config->deterministic,
                   .compute_threads = config->compute_threads,
                   .has_fast_rep_movsb = tt_has_fast_rep_movsb(),
                   .allow_window = !inside || lists(list, "window"),
                   .allow_cma = lists(list, "cma")},
        .wires = {.allowed = between ? tt_transports_named(list) : UINT32_MAX},
        .device_channels = 1 + (int)bounded(TT_CONFIG_DEVICE_CHANNELS, 2, 64, 1),
        .device_threads = (int)bounded(TT_CONFIG_DEVICE_THREADS, 32, TT_DEVICE_THREADS, 32),
        .device_line_bytes = find_line_bytes(),
    };
    const char *path = tt_config_string(TT_CONFIG_COST_FILE);
    links.costs_are_given = config->costs || path[0];
    if (config->costs)
        links.costs = *config->costs;
    else
        TT_TRY(tt_costs_read(path, &links.costs));
    /* All ranks have a file, or none has: also one with the values of the shipped ones. */
    links.fabric.costs = tt_costs_checksum(&links.costs) ^ links.costs_are_given;
    TT_TRY(read_waiting(&links.fabric));
    links.wires.nslots = nslots ? nslots : TT_SLOTS_BETWEEN;
    links.wires.slot_bytes = links.fabric.slot_bytes;
    *out = links;
    return TT_OK;
}
