/* Reads the value of one option, or refuses it with what is allowed. */
#include "common/values.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/types.h"

bool perf_value_refuse(const struct perf_value *value, const char *format, ...)
{
    int used = snprintf(value->error, value->error_bytes, "%s: ", value->name);
    if (used < 0 || (size_t)used >= value->error_bytes) return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value->error + used, value->error_bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

bool perf_value_int(const struct perf_value *value, int low, int high, int *number)
{
    char *end;
    errno = 0;
    long parsed = strtol(value->text, &end, 10);
    bool whole = errno == 0 && end != value->text && *end == '\0';
    if (whole && parsed >= low && parsed <= high) {
        *number = (int)parsed;
        return true;
    }
    if (high == INT_MAX) {
        return perf_value_refuse(value, "'%s' is not a whole number from %d up", value->text, low);
    }
    return perf_value_refuse(value, "'%s' is not a whole number from %d to %d", value->text, low,
                             high);
}

bool perf_parse_size(const char *text, size_t *nbytes)
{
    static const char units[] = "KMG";
    if (!isdigit((unsigned char)text[0]) || strpbrk(text, "xX")) return false;
    char *end;
    double size = strtod(text, &end);
    if (*end != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (unit == NULL || end[1] != '\0') return false;
        size = ldexp(size, 10 * (int)(unit - units + 1));
    }
    if (!(size < 9.0e18)) return false;
    *nbytes = (size_t)size;
    return true;
}

bool perf_value_size(const struct perf_value *value, size_t *nbytes)
{
    if (perf_parse_size(value->text, nbytes)) return true;
    return perf_value_refuse(value, "'%s' is no size: give bytes, or a number with K, M or G",
                             value->text);
}

bool perf_value_flag(const struct perf_value *value, bool *flag)
{
    int number;
    if (!perf_value_int(value, 0, 1, &number)) return false;
    *flag = number != 0;
    return true;
}

bool perf_value_word(const struct perf_value *value, const char *words, const char **word)
{
    size_t length = strlen(value->text);
    for (const char *at = words; at != NULL; at = strchr(at, ' ')) {
        if (*at == ' ') at++;
        if (length == strcspn(at, " ") && strncmp(at, value->text, length) == 0) {
            *word = value->text;
            return true;
        }
    }
    return perf_value_refuse(value, "'%s' is unknown; use one of %s", value->text, words);
}

bool perf_value_either(const struct perf_value *value, const char *words, bool *second)
{
    const char *word;
    if (!perf_value_word(value, words, &word)) return false;
    *second = strncmp(words, word, strlen(word)) != 0;
    return true;
}

bool perf_value_type(const struct perf_value *value, int *type)
{
    int found = perf_type_find(value->text);
    if (found < PERF_ALL) {
        return perf_value_refuse(
            value,
            "'%s' is no type; use int8 uint8 int16 uint16 int32 uint32 int64 uint64 "
            "half float double bfloat16 f8e4m3 f8e5m2 or all",
            value->text);
    }
    *type = found;
    return true;
}

bool perf_value_op(const struct perf_value *value, int *op)
{
    int found = perf_op_find(value->text);
    if (found < PERF_ALL) {
        return perf_value_refuse(
            value,
            "'%s' is no operation; use sum prod max min avg mulsum band bor bxor "
            "land lor lxor or all",
            value->text);
    }
    *op = found;
    return true;
}

bool perf_value_bandwidth(const struct perf_value *value, double *bandwidth)
{
    char *end;
    double parsed = strtod(value->text, &end);
    bool decimal = value->text[strspn(value->text, "+-.0123456789eE")] == '\0';
    if (!decimal || end == value->text || *end != '\0' || !(parsed >= 0) || !isfinite(parsed)) {
        return perf_value_refuse(value, "'%s' is no bandwidth in GB/s", value->text);
    }
    *bandwidth = parsed;
    return true;
}

bool perf_value_seed(const struct perf_value *value, uint64_t *seed)
{
    char *end;
    errno = 0;
    uint64_t parsed = strtoull(value->text, &end, 10);
    bool digits = value->text[strspn(value->text, "0123456789")] == '\0';
    if (errno != 0 || end == value->text || !digits) {
        return perf_value_refuse(value, "'%s' is not a whole number from 0 up", value->text);
    }
    *seed = parsed;
    return true;
}
