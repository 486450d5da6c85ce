/* DeepSpeed's configuration files: which option of tutti-train a key sets, which keys have no
 * effect, and which are refused (deepspeed_table.h). */
#ifndef TR_DEEPSPEED_H
#define TR_DEEPSPEED_H

#include <stdbool.h>

#include "config.h"
#include "json_text.h"

struct json_object;

/* Takes the top-level key `key` of a file as one of DeepSpeed's, with all that lies in its value:
 * sets options, and writes to config->notes what has no effect. An unknown key, or a value that
 * tutti-train cannot honour, fails with its line and the reason; an unknown key with the option or
 * key that is most like it. */
TR_NODISCARD tr_status tr_deepspeed_take(struct tr_config *config, const struct tr_json *json,
                                         const char *key, struct json_object *value);

/* The option that the key at this path gives its value to; NULL: none, or not as it is. */
const char *tr_deepspeed_option(const char *path);

/* Whether a top-level key of this name is one of DeepSpeed's. */
bool tr_deepspeed_knows(const char *key);

#endif
