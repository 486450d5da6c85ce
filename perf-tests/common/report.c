/* Writes the report of rank 0: the table's head, rows and foot, and the JSON file. */
#include "common/report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/gpu.h"

#define JSON_VERSION 3
#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"
#define MIN_BANDWIDTH_SHARE 0.9

void perf_format_number(char *to, double value, int width)
{
    static const char *const formats[] = {"%.2f", "%.1f", "%.0f", "%.1e", "%.0e"};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (snprintf(to, 32, formats[i], value) <= width) return;
    }
}

static void format_time(char *to, size_t nbytes)
{
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(to, nbytes, TIME_FORMAT, &parts);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The variables that can matter to a run; not the rest, which may hold secrets. */
static void write_environment(struct perf_json *json)
{
    static const char *const names[] = {"TUTTI_", "RANK=", "LOCAL_RANK=", "WORLD_SIZE=", "MASTER_"};
    perf_json_list(json, "env");
    for (char **at = environ; *at != NULL; at++) {
        if (strncmp(*at, "TUTTI_JOB_KEY", 13) == 0) continue;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (strncmp(*at, names[i], strlen(names[i])) == 0) perf_json_string(json, NULL, *at);
        }
    }
    perf_json_end(json);
}

bool perf_report_open(struct perf_report *report, FILE *out, const struct perf_options *options,
                      const struct perf_collective *collective, int argc, char **argv)
{
    *report = (struct perf_report){.out = out, .options = options, .collective = collective};
    if (options->json_path == NULL) return true;

    char used[4096];
    char now[64];
    struct perf_json *json = &report->json;
    if (!perf_json_open(json, options->json_path, used, sizeof(used))) return false;
    fprintf(out, "# Writing JSON output to %s\n", used);
    perf_json_object(json, NULL);
    perf_json_integer(json, "version", JSON_VERSION);
    format_time(now, sizeof(now));
    perf_json_string(json, "start_time", now);
    perf_json_list(json, "args");
    for (int i = 0; i < argc; i++) perf_json_string(json, NULL, argv[i]);
    perf_json_end(json);
    write_environment(json);
    int version = 0;
    if (tuttiGetVersion(&version) != tuttiSuccess) version = 0;
    const int nccl_version = options->library->nccl_version();
    if (nccl_version > 0) {
        perf_json_integer(json, "nccl_version", nccl_version);
    } else {
        perf_json_string(json, "nccl_version", NULL);
    }
    perf_json_string(json, "library", options->library->path());
    perf_json_integer(json, "tutti_version", version);
    return true;
}

/* ---- Head ------------------------------------------------------------------------------------ */

static void write_config(struct perf_report *report, const struct perf_device *devices, int nranks,
                         double init_seconds)
{
    const struct perf_options *options = report->options;
    struct perf_json *json = &report->json;
    perf_json_object(json, "config");
    perf_json_integer(json, "nthreads", options->threads);
    perf_json_integer(json, "ngpus", options->ranks_per_thread);
    perf_json_integer(json, "minimum_bytes", (long long)options->min_bytes);
    perf_json_integer(json, "maximum_bytes", (long long)options->max_bytes);
    if (options->step_factor > 1) {
        perf_json_integer(json, "step_factor", options->step_factor);
    } else {
        perf_json_integer(json, "step_bytes", (long long)options->step_bytes);
    }
    perf_json_integer(json, "warmup_iters", options->warmup);
    perf_json_integer(json, "iterations", options->iterations);
    perf_json_integer(json, "aggregated_iterations", options->aggregate);
    perf_json_integer(json, "validation", options->check);
    perf_json_integer(json, "graph", options->graphs);
    perf_json_bool(json, "blocking_collectives", options->blocking != PERF_BLOCKING_NONE);
    perf_json_bool(json, "per_iter_timing", options->per_iteration);
    perf_json_integer(json, "per_iter_skip", options->skip);
    perf_json_integer(json, "hogs", options->hogs);
    perf_json_integer(json, "work_us", options->work_us);
    perf_json_bool(json, "parallel_init", options->parallel_init);
    perf_json_string(json, "algorithm", options->algorithm);
    perf_json_string(json, "transport", options->transport);
    perf_json_string(json, "device", options->on_gpus ? "cuda" : "host");
    perf_json_bool(json, "virtual_gpus", report->on_virtual_gpus);
    perf_json_string(json, "memory",
                     options->on_gpus        ? "cuda"
                     : options->tutti_memory ? "tutti"
                                             : "malloc");
    perf_json_string(json, "stream", options->own_streams ? "own" : "null");
    perf_json_number(json, "init_ms", 1e3 * init_seconds);
    perf_json_list(json, "devices");
    for (int i = 0; i < nranks; i++) {
        perf_json_object(json, NULL);
        perf_json_integer(json, "rank", devices[i].rank);
        perf_json_integer(json, "group", devices[i].group);
        perf_json_integer(json, "pid", devices[i].pid);
        perf_json_string(json, "hostname", devices[i].host);
        perf_json_integer(json, "device", devices[i].device);
        perf_json_string(json, "device_hex", devices[i].place);
        perf_json_string(json, "device_info", devices[i].model);
        perf_json_end(json);
    }
    perf_json_end(json);
    perf_json_end(json);
}

static void print_options(const struct perf_report *report)
{
    static const char *const blocking[] = {
        "", "wait and barrier after each call", "wait after each call, no barrier",
        "wait and barrier after each iteration; the barrier is not timed"};
    const struct perf_options *options = report->options;
    FILE *out = report->out;
    int version = 0;
    if (tuttiGetVersion(&version) != tuttiSuccess) version = 0;
    fprintf(out, "# tutti-perf version %d.%d.%d tutti-headers=%d tutti-library=%d\n", TUTTI_MAJOR,
            TUTTI_MINOR, TUTTI_PATCH, TUTTI_VERSION_CODE, version);
    const char *title = options->library->title();
    if (title != NULL) fprintf(out, "# Library: %s\n", title);
    fprintf(out, "# Collective test starting: %s_perf\n", report->collective->name);
    bool factor = options->step_factor > 1;
    fprintf(
        out,
        "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d "
        "agg iters: %d validation: %d graph: %d unalign: %d\n",
        options->threads, options->ranks_per_thread, options->min_bytes, options->max_bytes,
        factor ? (size_t)options->step_factor : options->step_bytes, factor ? "factor" : "bytes",
        options->warmup, options->iterations, options->aggregate, options->check, options->graphs,
        options->unalign);
    if (options->blocking != PERF_BLOCKING_NONE) {
        fprintf(out, "# Blocking Enabled: %s\n", blocking[options->blocking]);
    }
    if (options->per_iteration) {
        fprintf(out, "# Per-Iteration Report: i_* is over each iteration's slowest rank");
        if (options->skip > 0) fprintf(out, ", without the first %d", options->skip);
        fprintf(out, "\n");
    }
    if (options->parallel_init)
        fprintf(out, "# Parallel Init Enabled: threads join at the same time\n");
    if (options->algorithm != NULL) fprintf(out, "# Algorithm: %s\n", options->algorithm);
    if (options->transport != NULL) fprintf(out, "# Transport: %s\n", options->transport);
    if (options->tutti_memory) fprintf(out, "# Memory: tuttiMemAlloc\n");
    if (options->on_gpus) fprintf(out, "# Memory: of GPUs\n");
    if (options->own_streams) fprintf(out, "# Streams: one for each rank\n");
    if (options->hogs > 0) fprintf(out, "# Hogs: %d busy loops on each host\n", options->hogs);
    if (options->work_us > 0) {
        fprintf(out,
                "# Work: each thread computes for %d us between iterations, which is not timed\n",
                options->work_us);
    }
    for (unsigned i = 0; i < PERF_NIGNORED; i++) {
        const struct perf_ignored *option = &perf_ignored_options[i];
        if ((options->ignored & (1u << i)) == 0) continue;
        fprintf(out, "# -%c ignored: %s\n", option->letter,
                options->on_gpus ? option->on_gpus : option->on_host);
    }
    fprintf(out, "#\n");
}

/* A heading's line: the five columns of the row, then each side's words in their widths. */
static void print_heading(const struct perf_report *report, const char *const left[5],
                          const char *const side[8], const char *stamp)
{
    FILE *out = report->out;
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s", left[0], left[1], left[2], left[3], left[4]);
    for (int i = 0; i < 2; i++) {
        fprintf(out, "  %7s  %6s  %6s  %6s", side[0], side[1], side[2], side[3]);
        if (!report->options->per_iteration) continue;
        fprintf(out, "  %7s  %7s  %7s  %7s", side[4], side[5], side[6], side[7]);
    }
    if (report->options->timestamps) fprintf(out, "  %19s", stamp);
    fprintf(out, "\n");
}

static void print_headings(const struct perf_report *report)
{
    static const char *const names[5] = {"size", "count", "type", "redop", "root"};
    static const char *const units[5] = {"(B)", "(elements)", "", "", ""};
    const char *const side_names[8] = {report->options->cpu_time ? "cputime" : "time",
                                       "algbw",
                                       "busbw",
                                       "#wrong",
                                       "i_min",
                                       "i_max",
                                       "i_p99",
                                       "i_cv%"};
    static const char *const side_units[8] = {"(us)", "(GB/s)", "(GB/s)", "",
                                              "(us)", "(us)",   "(us)",   "(%)"};
    bool wide = report->options->per_iteration;
    fprintf(report->out, "#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    if (wide) {
        fprintf(report->out, "  %-67s  %s\n", "                out-of-place (+ per-iteration)",
                "                in-place (+ per-iteration)");
    } else {
        fprintf(report->out, "           out-of-place                       in-place          \n");
    }
    print_heading(report, names, side_names, "timestamp");
    print_heading(report, units, side_units, TIME_FORMAT);
}

/* Nobody shall take the times of a virtual GPU for those of a GPU. */
static void print_mark(const struct perf_report *report)
{
    if (!report->on_virtual_gpus) return;
    fprintf(report->out,
            "# VIRTUAL GPU: the times below are those of a simulation, not of a GPU\n");
}

void perf_report_head(struct perf_report *report, const struct perf_device *devices, int nranks,
                      double init_seconds)
{
    for (int i = 0; i < nranks && report->options->on_gpus; i++) {
        if (perf_gpu_is_virtual(devices[i].model)) report->on_virtual_gpus = true;
    }
    print_options(report);
    fprintf(report->out, "# Using devices\n");
    for (int i = 0; i < nranks; i++) {
        const struct perf_device *device = &devices[i];
        fprintf(report->out, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s%s] %s\n",
                device->rank, device->group, device->pid, device->host, device->device,
                report->options->on_gpus ? "" : "cpu ", device->place, device->model);
    }
    print_mark(report);
    write_config(report, devices, nranks, init_seconds);
    print_headings(report);
    fflush(report->out);
    perf_json_list(&report->json, "results");
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void perf_report_row_begin(struct perf_report *report, const struct perf_layout *layout,
                           const struct perf_type *type, const struct perf_op *op, int root)
{
    size_t elements = layout->send > layout->recv ? layout->send : layout->recv;
    size_t nbytes = type == NULL ? 0 : elements * type->bytes;
    const char *type_name = type == NULL ? "none" : type->name;
    const char *op_name = op == NULL ? "none" : op->name;
    char root_name[16];
    snprintf(root_name, sizeof(root_name), "%d", root);
    fprintf(report->out, "%12zu  %12zu  %8s  %6s  %6s", nbytes, layout->count, type_name, op_name,
            root_name);
    struct perf_json *json = &report->json;
    perf_json_object(json, NULL);
    perf_json_integer(json, "size", (long long)nbytes);
    perf_json_integer(json, "count", (long long)layout->count);
    perf_json_string(json, "type", type_name);
    perf_json_string(json, "redop", op_name);
    perf_json_string(json, "root", root_name);
}

static void print_statistics(FILE *out, const struct perf_statistics *statistics)
{
    const double columns[4] = {1e6 * statistics->min, 1e6 * statistics->max, 1e6 * statistics->p99,
                               statistics->variation};
    for (int i = 0; i < 4; i++) {
        char text[32];
        perf_format_number(text, columns[i], 7);
        fprintf(out, "  %7s", text);
    }
}

static void print_side(const struct perf_report *report, const struct perf_side *side)
{
    FILE *out = report->out;
    if (!side->available) {
        fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        if (report->options->per_iteration) {
            fprintf(out, "  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
        }
        return;
    }
    char seconds[32];
    char algbw[32];
    char busbw[32];
    char wrong[32] = "N/A";
    perf_format_number(seconds, 1e6 * side->seconds, 7);
    perf_format_number(algbw, side->algbw, 6);
    perf_format_number(busbw, side->busbw, 6);
    if (side->checked) snprintf(wrong, sizeof(wrong), "%g", (double)side->wrong);
    fprintf(out, "  %7s  %6s  %6s  %6s", seconds, algbw, busbw, wrong);
    if (side->statistics != NULL) print_statistics(out, side->statistics);
}

static void write_times(struct perf_json *json, const char *key, const double *times, int count)
{
    perf_json_list(json, key);
    for (int i = 0; i < count; i++) perf_json_number(json, NULL, 1e6 * times[i]);
    perf_json_end(json);
}

static void write_statistics(struct perf_report *report, bool in_place,
                             const struct perf_side *side)
{
    const struct perf_statistics *statistics = side->statistics;
    struct perf_json *json = &report->json;
    int iterations = report->options->iterations;
    perf_json_object(json, in_place ? "in_place_per_iter" : "out_of_place_per_iter");
    perf_json_integer(json, "skipped_iterations", report->options->skip);
    perf_json_number(json, "min_us", 1e6 * statistics->min);
    perf_json_number(json, "max_us", 1e6 * statistics->max);
    perf_json_number(json, "avg_us", 1e6 * statistics->mean);
    perf_json_number(json, "p50_us", 1e6 * statistics->p50);
    perf_json_number(json, "p90_us", 1e6 * statistics->p90);
    perf_json_number(json, "p95_us", 1e6 * statistics->p95);
    perf_json_number(json, "p99_us", 1e6 * statistics->p99);
    perf_json_number(json, "stdev_us", 1e6 * statistics->deviation);
    perf_json_number(json, "cv_pct", statistics->variation);
    write_times(json, "times_us", side->times, iterations);
    if (side->nprocesses > 1) {
        perf_json_list(json, "per_process_max_times_us");
        for (int process = 0; process < side->nprocesses; process++) {
            write_times(json, NULL, side->by_process + (size_t)process * (size_t)iterations,
                        iterations);
        }
        perf_json_end(json);
    }
    perf_json_end(json);
}

void perf_report_side(struct perf_report *report, bool in_place, const struct perf_side *side)
{
    struct perf_json *json = &report->json;
    const char *key = in_place ? "in_place" : "out_of_place";
    print_side(report, side);
    fflush(report->out);
    if (!side->available) {
        perf_json_string(json, key, NULL);
        return;
    }
    perf_json_object(json, key);
    perf_json_number(json, report->options->cpu_time ? "cpu_time" : "time", 1e6 * side->seconds);
    perf_json_number(json, "alg_bw", side->algbw);
    perf_json_number(json, "bus_bw", side->busbw);
    if (side->checked) {
        perf_json_number(json, "nwrong", (double)side->wrong);
    } else {
        perf_json_string(json, "nwrong", NULL);
    }
    perf_json_end(json);
    if (side->statistics != NULL) write_statistics(report, in_place, side);
}

void perf_report_row_end(struct perf_report *report)
{
    if (report->options->timestamps) {
        char now[64];
        format_time(now, sizeof(now));
        fprintf(report->out, "  %19s", now);
    }
    fprintf(report->out, "\n");
    fflush(report->out);
    perf_json_integer(&report->json, "actual_iterations", report->options->iterations);
    perf_json_string(&report->json, "experiment_name", "");
    perf_json_end(&report->json);
}

/* ---- Foot ------------------------------------------------------------------------------------ */

static void format_memory(char *to, size_t nbytes, double amount)
{
    static const char *const units[] = {"B", "KB", "MB", "GB"};
    size_t unit = 0;
    for (; amount >= 1024 && unit < 3; unit++) amount /= 1024;
    snprintf(to, nbytes, "%.*f %s", amount < 100 ? 1 : 0, amount, units[unit]);
}

static void print_memory(const struct perf_report *report, const struct perf_memory *memory)
{
    const double amounts[] = {memory->initialization, memory->buffers, memory->collectives,
                              memory->initialization + memory->buffers + memory->collectives,
                              memory->communicators};
    char texts[5][32];
    for (size_t i = 0; i < 5; i++) format_memory(texts[i], sizeof(texts[i]), amounts[i]);
    fprintf(report->out,
            "# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total %s\n",
            "Memory usage", texts[0], texts[1], texts[2], texts[3]);
    if (memory->communicators > 0)
        fprintf(report->out, "# %-20s : %s (address space)\n", "Communicators", texts[4]);
}

void perf_report_choice(struct perf_report *report, size_t nbytes, const char *algorithm)
{
    fprintf(report->out, "# Algorithm from %zu bytes: %s\n", nbytes, algorithm);
}

bool perf_report_foot(struct perf_report *report, int64_t failed_checks, double bandwidth,
                      const struct perf_memory *memory)
{
    double wanted = report->options->min_bandwidth;
    bool asked = wanted >= 0;
    bool enough = !asked || bandwidth >= MIN_BANDWIDTH_SHARE * wanted;
    struct perf_json *json = &report->json;
    perf_json_end(json);

    fprintf(report->out, "# %-20s : %lld %s\n", "Out of bounds values", (long long)failed_checks,
            failed_checks > 0 ? "FAILED" : "OK");
    const char *verdict = !asked ? "" : enough ? "OK" : "FAILED";
    const char *mark = report->on_virtual_gpus ? "(virtual GPU) " : "";
    fprintf(report->out, "# %-20s : %g %s%s\n", "Avg bus bandwidth", bandwidth, mark, verdict);
    if (memory != NULL) print_memory(report, memory);
    fprintf(report->out, "#\n# Collective test concluded: %s_perf\n", report->collective->name);

    perf_json_object(json, "out_of_bounds");
    perf_json_integer(json, "count", failed_checks);
    perf_json_bool(json, "okay", failed_checks == 0);
    perf_json_end(json);
    perf_json_object(json, "average_bus_bandwidth");
    perf_json_number(json, "bandwidth", bandwidth);
    perf_json_string(json, "okay", !asked ? "unchecked" : enough ? "true" : "false");
    perf_json_end(json);
    return enough;
}

bool perf_report_close(struct perf_report *report, const char *error)
{
    char now[64];
    struct perf_json *json = &report->json;
    if (error != NULL) fprintf(report->out, "\n# error: %s\n", error);
    fflush(report->out);

    /* an error may have come in the middle of a row */
    while (json->depth > 1) perf_json_end(json);
    perf_json_list(json, "errors");
    if (error != NULL) perf_json_string(json, NULL, error);
    perf_json_end(json);
    format_time(now, sizeof(now));
    perf_json_string(json, "end_time", now);
    return perf_json_close(json);
}
