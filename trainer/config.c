/* Reads, checks and prints the options of a run. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_option options[TR_NUM_OPTIONS] = {
#define X(type_, field_, name_, initial_, lowest_, highest_, group_, sentence_)                    \
    [TR_OPTION_##field_] = {.name = name_,                                                         \
                            .initial = initial_,                                                   \
                            .sentence = sentence_,                                                 \
                            .lowest = lowest_,                                                     \
                            .highest = highest_,                                                   \
                            .offset = offsetof(struct tr_config, field_),                          \
                            .type = TR_TYPE_##type_,                                               \
                            .group = TR_GROUP_##group_},
#include "config_table.h"
#undef X
};

const struct tr_option *tr_config_option(int id)
{
    return &options[id];
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; ++a, ++b) {
        const char x = *a == '_' ? '-' : *a, y = *b == '_' ? '-' : *b;
        if (x != y) return false;
    }
    return *a == *b;
}

static int find_option(const char *name)
{
    for (int id = 0; id < TR_NUM_OPTIONS; ++id)
        if (same_name(options[id].name, name)) return id;
    return -1;
}

/* Levenshtein's distance, over at most 32 letters of b. */
static int distance(const char *a, const char *b)
{
    int row[33];
    const int nb = (int)strnlen(b, 32);
    for (int j = 0; j <= nb; ++j) row[j] = j;
    for (int i = 1; a[i - 1]; ++i) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; ++j) {
            const int above = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[nb];
}

static const char *nearest_name(const char *name)
{
    int best = 0, best_distance = distance(name, options[0].name);
    for (int id = 1; id < TR_NUM_OPTIONS; ++id) {
        const int d = distance(name, options[id].name);
        if (d < best_distance) best = id, best_distance = d;
    }
    return options[best].name;
}

static tr_status parse_number(const struct tr_option *option, const char *text, double *value)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || *end || errno == ERANGE || !isfinite(number))
        return tr_fail("--%s=%s: not a number", option->name, text);
    if (option->type == TR_TYPE_INT && number != floor(number))
        return tr_fail("--%s=%s: not a whole number", option->name, text);
    if (number < option->lowest || number > option->highest)
        return tr_fail("--%s=%s: out of range, expected %g to %g", option->name, text,
                       option->lowest, option->highest);
    *value = number;
    return TR_OK;
}

tr_status tr_config_set(struct tr_config *config, const char *name, const char *text,
                        enum tr_source source)
{
    const int id = find_option(name);
    if (id < 0)
        return tr_fail("no option --%s; did you mean --%s? (--help lists them all)", name,
                       nearest_name(name));
    const struct tr_option *option = &options[id];
    char *field = (char *)config + option->offset;
    double number = 0;
    if (option->type != TR_TYPE_TEXT) {
        TR_TRY(parse_number(option, text, &number));
    } else if (strlen(text) >= TR_TEXT_BYTES) {
        return tr_fail("--%s: %zu bytes are too long, at most %d", option->name, strlen(text),
                       TR_TEXT_BYTES - 1);
    }
    if (source < config->source[id]) return TR_OK;
    config->source[id] = source;
    if (option->type == TR_TYPE_INT)
        *(int64_t *)(void *)field = (int64_t)number;
    else if (option->type == TR_TYPE_REAL)
        *(double *)(void *)field = number;
    else
        strcpy(field, text);
    return TR_OK;
}

void tr_config_init(struct tr_config *config)
{
    memset(config, 0, sizeof *config);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const tr_status status =
            tr_config_set(config, options[id].name, options[id].initial, TR_FROM_DEFAULT);
        (void)status; /* the table's own defaults; a test sets each of them */
    }
}

void tr_config_value(const struct tr_config *config, int id, char out[TR_TEXT_BYTES])
{
    const char *field = (const char *)config + options[id].offset;
    if (options[id].type == TR_TYPE_INT)
        snprintf(out, TR_TEXT_BYTES, "%lld", (long long)*(const int64_t *)(const void *)field);
    else if (options[id].type == TR_TYPE_REAL)
        snprintf(out, TR_TEXT_BYTES, "%.17g", *(const double *)(const void *)field);
    else
        memcpy(out, field, TR_TEXT_BYTES);
}

tr_status tr_config_parse(struct tr_config *config, int argc, char **argv)
{
    for (int i = 1; i < argc; ++i) {
        const char *argument = argv[i];
        if (!strcmp(argument, "--help") || !strcmp(argument, "-h")) {
            config->help = true;
            continue;
        }
        if (strncmp(argument, "--", 2) != 0)
            return tr_fail("%s: unexpected argument; options are --name=value (--help lists them)",
                           argument);
        char name[64];
        const char *equals = strchr(argument, '=');
        const size_t length = equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        if (length >= sizeof name) return tr_fail("no option %s (--help lists them)", argument);
        memcpy(name, argument + 2, length);
        name[length] = 0;
        if (strcmp(name, "config") != 0 && find_option(name) < 0)
            return tr_fail("no option --%s; did you mean --%s? (--help lists them all)", name,
                           nearest_name(name));
        if (!equals && i + 1 >= argc) return tr_fail("--%s: the value is missing", name);
        const char *value = equals ? equals + 1 : argv[++i];
        if (!strcmp(name, "config"))
            TR_TRY(tr_config_read_json(config, value));
        else
            TR_TRY(tr_config_set(config, name, value, TR_FROM_COMMAND_LINE));
    }
    return TR_OK;
}

tr_status tr_config_check(const struct tr_config *config)
{
    if (config->width % config->heads)
        return tr_fail("--width=%lld is not divisible by --heads=%lld", (long long)config->width,
                       (long long)config->heads);
    if (config->every && !config->checkpoint[0])
        return tr_fail("--every=%lld without --checkpoint=DIR: nowhere to write to",
                       (long long)config->every);
    return TR_OK;
}

void tr_config_print_help(FILE *out)
{
    static const char *const titles[] = {"Model", "Training", "Parallelism", "This run"};
    fprintf(out, "tutti-train: trains a byte-level transformer on text.\n\n"
                 "  tutti-train [--name=value ...] [--config FILE.json]\n"
                 "  tutti-run -n 2 tutti-train --seconds=60\n\n"
                 "The ranks of tutti-run share each step's batch. A JSON file has the same names; "
                 "the command\n"
                 "line wins over it.\n");
    for (int group = 0; group < 4; ++group) {
        fprintf(out, "\n%s\n", titles[group]);
        for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
            if ((int)options[id].group != group) continue;
            fprintf(out, "  --%-13s %-8s %s\n", options[id].name,
                    options[id].initial[0] ? options[id].initial : "(empty)", options[id].sentence);
        }
    }
}

void tr_config_print(const struct tr_config *config, FILE *out)
{
    static const char *const sources[] = {"", "  (checkpoint)", "  (file)", "  (given)"};
    int column = 0;
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES], cell[TR_TEXT_BYTES + 64];
        tr_config_value(config, id, value);
        if (options[id].type == TR_TYPE_TEXT && !value[0]) continue;
        if (options[id].type == TR_TYPE_REAL)
            snprintf(value, sizeof value, "%g", strtod(value, NULL));
        snprintf(cell, sizeof cell, "%-12s %s%s", options[id].name, value,
                 sources[config->source[id]]);
        fprintf(out, "  %-36s", cell);
        if (++column % 3 == 0) fputc('\n', out);
    }
    if (column % 3) fputc('\n', out);
}
