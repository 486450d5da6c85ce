/* A value of DeepSpeed's configuration, and what deepspeed.c and deepspeed_optimizer.c do with one.
 */
#ifndef TR_DEEPSPEED_LEAF_H
#define TR_DEEPSPEED_LEAF_H

#include <stdbool.h>

#include "config.h"
#include "json_text.h"

/* One value of the file that is neither an object nor null. */
struct tr_leaf {
    struct tr_config *config;
    const struct tr_json *json;
    const char *path;
    struct json_object *value;
};

/* An error that names the file, the line, the key, its value and the reason. */
tr_status tr_leaf_fail(const struct tr_leaf *leaf, const char *reason);
/* Adds a line to config->notes, with the file, the line and the key. */
void tr_leaf_note(const struct tr_leaf *leaf, const char *text);
/* Sets an option from a text of this file. */
TR_NODISCARD tr_status tr_leaf_set(const struct tr_leaf *leaf, const char *option,
                                   const char *text);
/* Sets an option that the file says nothing of to what DeepSpeed takes then. */
TR_NODISCARD tr_status tr_leaf_set_default(const struct tr_leaf *leaf, const char *option,
                                           const char *text);
TR_NODISCARD tr_status tr_leaf_expect_boolean(const struct tr_leaf *leaf);
bool tr_leaf_is_number(struct json_object *value);
/* Whether the file has a value for the key, other than "auto". */
bool tr_leaf_has(const struct tr_json *json, const char *path);

/* deepspeed_optimizer.c: keys of deepspeed_table.h. */
TR_NODISCARD tr_status tr_take_optimizer(const struct tr_leaf *leaf);
TR_NODISCARD tr_status tr_take_betas(const struct tr_leaf *leaf);
TR_NODISCARD tr_status tr_take_adam_w_mode(const struct tr_leaf *leaf);
TR_NODISCARD tr_status tr_take_nesterov(const struct tr_leaf *leaf);
/* Refuses a parameter that the file's optimizer does not have. */
TR_NODISCARD tr_status tr_check_optimizer_parameter(const struct tr_leaf *leaf);

#endif
