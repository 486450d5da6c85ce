/* Files of constants of the cost model: reads them, and makes their lines. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/costs.h"
#include "base/open.h"

/* Where the reader is. */
struct place {
    const char *path;
    int line;
};

static tt_status refuse(const struct place *at, const char *what, const char *text)
{
    return tt_fail(TT_ERR_ARGUMENT,
                   "TUTTI_COST_FILE=%.400s, line %d: %s '%.60s'; a line is `name = microseconds`, "
                   "with a name that tutti-info --costs shows and a number above 0 and at most 1e6",
                   at->path, at->line, what, text);
}

/* The whole text as a number, with a point whatever the locale of the process. */
static bool parse_value(const char *text, double *value)
{
    char *end;
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    const locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c) return false;
    *value = strtod_l(text, &end, c);
    freelocale(c);
    return !*end && isfinite(*value) && *value > 0 && *value <= 1e6;
}

/* Cuts blanks off both ends. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
    text[length] = '\0';
    return text;
}

static int find(const struct tt_costs *costs, const char *name)
{
    int key = 0;
    while (key < TT_NCOSTS && (!costs->at[key].name || strcmp(costs->at[key].name, name) != 0))
        key++;
    return key;
}

/* seen: the constants of the lines before. */
static tt_status read_line(const struct place *at, char *text, struct tt_costs *costs,
                           bool seen[TT_NCOSTS])
{
    text[strcspn(text, "#")] = '\0';
    char *name = trim(text), *equals = strchr(name, '=');
    if (!*name) return TT_OK;
    if (!equals) return refuse(at, "there is no '=' in", name);
    *equals = '\0';
    name = trim(name);
    const char *value = trim(equals + 1);
    const int key = find(costs, name);
    if (key == TT_NCOSTS) return refuse(at, "there is no constant", name);
    if (seen[key]) return refuse(at, "an earlier line has the constant", name);
    seen[key] = true;
    if (!*value) return refuse(at, "there is no value for", name);
    if (!parse_value(value, &costs->at[key].value)) return refuse(at, "the value is", value);
    return TT_OK;
}

/* text: zero-terminated, of `length` bytes; is cut into lines. */
static tt_status read_lines(char *text, size_t length, const char *path, struct tt_costs *costs)
{
    bool seen[TT_NCOSTS] = {false};
    char *const end = text + length;
    for (struct place at = {.path = path, .line = 1}; text < end; at.line++) {
        const size_t n = strcspn(text, "\n");
        char *next = text + n + 1;
        if (text + n < end && text[n] != '\n')
            return tt_fail(TT_ERR_ARGUMENT,
                           "TUTTI_COST_FILE=%.400s, line %d has a zero byte: it is no text", path,
                           at.line);
        if (n > TT_COST_LINE)
            return tt_fail(TT_ERR_ARGUMENT,
                           "TUTTI_COST_FILE=%.400s, line %d has %zu bytes: a line has at most %d",
                           path, at.line, n, TT_COST_LINE);
        if (text + n == end)
            return tt_fail(TT_ERR_ARGUMENT,
                           "TUTTI_COST_FILE=%.400s, line %d ends without a newline: the file may "
                           "have been cut; tutti-plan tune writes one, or add a newline",
                           path, at.line);
        text[n] = '\0';
        TT_TRY(read_line(&at, text, costs, seen));
        text = next;
    }
    return TT_OK;
}

/* Reads at most `most` bytes; the number, or -1 with errno. */
static ssize_t read_all(int fd, char *text, size_t most)
{
    size_t length = 0;
    while (length < most) {
        const ssize_t n = read(fd, text + length, most - length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        length += (size_t)n;
    }
    return (ssize_t)length;
}

static tt_status read_file(int fd, const struct stat *file, const char *path,
                           struct tt_costs *costs)
{
    char why[TT_ERROR_TEXT];
    if (!tt_is_safe_file(file, "file of constants", path, why, sizeof why))
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_COST_FILE: %.1000s", why);
    char *text = malloc(TT_COST_FILE_BYTES + 2);
    if (!text) return tt_fail(TT_ERR_SYSTEM, "out of memory for TUTTI_COST_FILE=%.400s", path);
    const ssize_t length = read_all(fd, text, TT_COST_FILE_BYTES + 1);
    tt_status status;
    if (length < 0)
        status = tt_fail_errno(errno, "TUTTI_COST_FILE=%.400s cannot be read", path);
    else if (length > TT_COST_FILE_BYTES)
        status = tt_fail(TT_ERR_ARGUMENT,
                         "TUTTI_COST_FILE=%.400s has more than %d bytes, so it is no file of "
                         "constants: tutti-plan tune writes one",
                         path, TT_COST_FILE_BYTES);
    else {
        text[length] = '\0';
        status = read_lines(text, (size_t)length, path, costs);
    }
    free(text);
    return status;
}

tt_status tt_costs_read(const char *path, struct tt_costs *costs)
{
    struct tt_costs fresh = tt_shipped_costs;
    struct stat file = {0};
    const char *why;
    if (*path) {
        const int fd = tt_open_regular(path, &file, &why);
        if (fd < 0)
            return tt_fail(TT_ERR_ARGUMENT,
                           "TUTTI_COST_FILE=%.400s cannot be read: %s; give a file of constants "
                           "(tutti-plan tune writes one), or unset it",
                           path, why);
        const tt_status status = read_file(fd, &file, path, &fresh);
        close(fd);
        TT_TRY(status);
    }
    *costs = fresh;
    return TT_OK;
}

void tt_costs_print(const struct tt_costs *costs, void (*emit)(void *arg, const char *line),
                    void *arg)
{
    for (int i = 0; i < TT_NCOSTS; i++) {
        const struct tt_cost *cost = &costs->at[i];
        char line[TT_COST_LINE];
        if (!cost->name) continue;
        snprintf(line, sizeof line, "%-13s = %.6g%s", cost->name, cost->value,
                 tt_cost_is_between_hosts((enum tt_cost_key)i)
                     ? "  # as shipped: ranks of one host do not measure it"
                     : "");
        emit(arg, line);
    }
}
