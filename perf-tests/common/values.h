/* The value of one option: taken, or refused with what is allowed. */
#ifndef TT_PERF_VALUES_H
#define TT_PERF_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An option's name as the user knows it and its text; both borrowed. A refusal goes to `error`. */
struct perf_value {
    const char *name;
    const char *text;
    char *error;
    size_t error_bytes;
};

/* Each returns whether the text is a value, and writes it only then. */
bool perf_value_int(const struct perf_value *value, int low, int high, int *number);
bool perf_value_size(const struct perf_value *value, size_t *nbytes);
bool perf_value_flag(const struct perf_value *value, bool *flag);
/* One of `words`, which have one space between; *word is the option's text. */
bool perf_value_word(const struct perf_value *value, const char *words, const char **word);
/* One of two words; *second tells whether it is the second. */
bool perf_value_either(const struct perf_value *value, const char *words, bool *second);
bool perf_value_type(const struct perf_value *value, int *type);
bool perf_value_op(const struct perf_value *value, int *op);
bool perf_value_bandwidth(const struct perf_value *value, double *bandwidth);
/* Decimal digits, whatever zeros they begin with: 010 is ten. */
bool perf_value_seed(const struct perf_value *value, uint64_t *seed);

/* Writes "NAME: " and the complaint; returns false. */
bool perf_value_refuse(const struct perf_value *value, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "4", "64K", "1.5M", "2G" (binary) as bytes; false when it is no size. */
bool perf_parse_size(const char *text, size_t *nbytes);

#endif
