/* A file of JSON as people write it: comments (#, //, and those of C) and commas behind the last
 * item are passed over, a key that comes twice, has a dot or a zero byte is refused, and the line
 * of a key is known. */
#ifndef TR_JSON_TEXT_H
#define TR_JSON_TEXT_H

#include <stddef.h>

#include "status.h"

struct json_object;

struct tr_json_key {
    char *path; /* "optimizer.params.lr"; items of an array: "runs.0.name" */
    int line;
};

/* Owned by whoever called tr_json_read or tr_json_parse; tr_json_free frees. */
struct tr_json {
    const char *name; /* of the file, for messages */
    struct json_object *object;
    struct tr_json_key *keys; /* in the order of the text */
    size_t nkeys;
};

/* Reads the file `path`, which must hold one JSON object; *json is empty when that fails. */
TR_NODISCARD tr_status tr_json_read(struct tr_json *json, const char *path);

/* Reads a text, which is changed and must hold one JSON object; `name` stands in messages and must
 * outlive *json. *json is empty when that fails. */
TR_NODISCARD tr_status tr_json_parse(struct tr_json *json, char *text, const char *name);
void tr_json_free(struct tr_json *json);

/* The line of the key at `path`; 1 when there is none. */
int tr_json_line(const struct tr_json *json, const char *path);

/* The value at `path` ("optimizer.params.lr"); NULL when it is absent or null. */
struct json_object *tr_json_find(const struct tr_json *json, const char *path);

#endif
