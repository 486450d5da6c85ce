/* Writes JSON to a file as it goes. */
#ifndef TT_PERF_JSON_H
#define TT_PERF_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PERF_JSON_DEPTH 16

/* Owned by the caller; file NULL: every call does nothing. */
struct perf_json {
    FILE *file;
    int depth;
    bool filled[PERF_JSON_DEPTH]; /* per open object or list: a comma is due before the next item */
    char closing[PERF_JSON_DEPTH]; /* per open object or list: its end */
};

/* Creates `path`, or path.0, path.1, .. when there is a file already: nothing is overwritten. A
 * device or a pipe is opened as it is. False, with errno, when it cannot. `used` gets the name. */
bool perf_json_open(struct perf_json *json, const char *path, char *used, size_t used_bytes);

/* Closes what is still open, and the file. False when not everything could be written. */
bool perf_json_close(struct perf_json *json);

/* In an object every item has a key; in a list, and at the top, key is NULL. */
void perf_json_object(struct perf_json *json, const char *key);
void perf_json_list(struct perf_json *json, const char *key);
void perf_json_end(struct perf_json *json); /* of the innermost object or list */

void perf_json_string(struct perf_json *json, const char *key, const char *text); /* NULL: null */
void perf_json_integer(struct perf_json *json, const char *key, long long number);
void perf_json_number(struct perf_json *json, const char *key, double number); /* NaN: "nan" */
void perf_json_bool(struct perf_json *json, const char *key, bool truth); /* "true" or "false" */

#endif
