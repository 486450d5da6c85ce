/* The options as JSON: a file of the user's, and the copy kept in each checkpoint. */
#include "config.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepspeed.h"
#include "json_text.h"
#include "utf8.h"

/* ---- Bytes that are no text -------------------------------------------------------------------
 *
 * A path or a prompt may have any bytes, and JSON is text in UTF-8. A byte XX that is no part of a
 * character is written as \udcXX, half of a pair of UTF-16, as Python has it for names of files
 * (PEP 383). The other characters above 127 that json-c writes are bytes of UTF-8, so that no other
 * text has such a half.
 */

/* A copy of the JSON text with such halves; free() it. NULL when out of memory. */
static char *escape_bytes(const char *text)
{
    enum { MOST = 6 }; /* characters for a byte */
    size_t n = strlen(text);
    char *copy = malloc(MOST * n + 1), *to = copy;
    while (copy && n) {
        const int length = tr_utf8_length((const unsigned char *)text, n);
        const size_t taken = length ? (size_t)length : 1;
        if (length)
            memcpy(to, text, taken);
        else
            snprintf(to, MOST + 1, "\\udc%02x", (unsigned)(unsigned char)*text);
        to += length ? taken : MOST;
        text += taken;
        n -= taken;
    }
    if (copy) *to = 0;
    return copy;
}

/* Makes bytes of the halves again, in place. */
static void restore_bytes(char *text)
{
    char *to = text;
    while (*text) {
        unsigned byte;
        int length = 0;
        const bool escapes = *text == '\\' && text[1];
        if (escapes && sscanf(text, "\\udc%2x%n", &byte, &length) == 1 && length == 6 &&
            byte > 127) {
            *to++ = (char)byte;
            text += length;
            continue;
        }
        if (escapes) *to++ = *text++;
        *to++ = *text++;
    }
    *to = 0;
}

/* ---- Options ----------------------------------------------------------------------------------
 */

/* Sets one option; an error names file and line. */
static tr_status set_option(struct tr_config *config, const struct tr_json *json, const char *key,
                            struct json_object *value, enum tr_source source)
{
    char why[1024];
    const int line = tr_json_line(json, key);
    if (json_object_is_type(value, json_type_string) &&
        strlen(json_object_get_string(value)) < (size_t)json_object_get_string_len(value))
        return tr_fail("%s:%d: \"%s\": a zero byte in the text", json->name, line, key);
    if (json_object_is_type(value, json_type_boolean) &&
        tr_config_option(tr_config_find(key))->type == TR_TYPE_TEXT)
        return tr_fail("%s:%d: \"%s\": expected a number or a string", json->name, line, key);
    if (tr_config_set(config, key, json_object_get_string(value), source) == TR_OK) return TR_OK;
    if (source != TR_FROM_FILE) return TR_FAILED;
    snprintf(why, sizeof why, "%s", tr_error());
    return tr_fail("%s:%d: %s", json->name, line, why);
}

/* A name of the options wins over the same name of DeepSpeed's, whose value is an object then. */
static tr_status set_key(struct tr_config *config, const struct tr_json *json, const char *key,
                         struct json_object *value, enum tr_source source)
{
    const bool is_option = tr_config_find(key) >= 0;
    const bool is_one = value && !json_object_is_type(value, json_type_object) &&
                        !json_object_is_type(value, json_type_array);
    if (is_option && is_one) return set_option(config, json, key, value, source);
    if (is_option && !value && source == TR_FROM_FILE) return TR_OK; /* as if it were not there */
    if (source == TR_FROM_FILE && (!is_option || tr_deepspeed_knows(key)))
        return tr_deepspeed_take(config, json, key, value);
    return tr_fail("%s:%d: \"%s\": expected a number or a string", json->name,
                   tr_json_line(json, key), key);
}

/* The option that the key at `path` gives a value to; -1: none, or it does not say one. */
static int option_at(const struct tr_json *json, const char *path)
{
    struct json_object *value = tr_json_find(json, path);
    if (!value || json_object_is_type(value, json_type_object)) return -1;
    const char *text = json_object_get_string(value);
    const char *option = strchr(path, '.') ? NULL : path;
    if (!option || tr_config_find(option) < 0) {
        option = tr_deepspeed_option(path);
        if (!strcmp(text, "auto")) return -1;
    }
    return option ? tr_config_find(option) : -1;
}

/* 8, 8.0 and "8" are the same. */
static bool is_equal(struct json_object *a, struct json_object *b)
{
    const bool are_numbers =
        !json_object_is_type(a, json_type_boolean) && !json_object_is_type(b, json_type_boolean) &&
        !json_object_is_type(a, json_type_string) && !json_object_is_type(b, json_type_string);
    if (are_numbers && json_object_get_double(a) == json_object_get_double(b)) return true;
    return !strcmp(json_object_get_string(a), json_object_get_string(b));
}

/* Fails where two keys give one option other values: none of both is the one that is meant. */
static tr_status check_names(const struct tr_json *json)
{
    const struct tr_json_key *by[TR_NUM_OPTIONS] = {NULL};
    for (size_t i = 0; i < json->nkeys; ++i) {
        const struct tr_json_key *key = &json->keys[i];
        const int id = option_at(json, key->path);
        if (id < 0) continue;
        if (by[id] && !is_equal(tr_json_find(json, key->path), tr_json_find(json, by[id]->path)))
            return tr_fail("%s:%d: \"%s\" is --%s, which \"%s\" in line %d gives another value; "
                           "leave one out",
                           json->name, key->line, key->path, tr_config_option(id)->name,
                           by[id]->path, by[id]->line);
        by[id] = key;
    }
    return TR_OK;
}

/* All keys; DeepSpeed's scheduler last, whose learning rates win over its optimizer's. */
static tr_status set_all(struct tr_config *config, const struct tr_json *json,
                         enum tr_source source)
{
    struct json_object_iterator it = json_object_iter_begin(json->object),
                                last = json_object_iter_end(json->object);
    for (; !json_object_iter_equal(&it, &last); json_object_iter_next(&it)) {
        const char *key = json_object_iter_peek_name(&it);
        if (strcmp(key, "scheduler") != 0)
            TR_TRY(set_key(config, json, key, json_object_iter_peek_value(&it), source));
    }
    struct json_object *scheduler;
    if (!json_object_object_get_ex(json->object, "scheduler", &scheduler)) return TR_OK;
    return set_key(config, json, "scheduler", scheduler, source);
}

tr_status tr_config_read_json(struct tr_config *config, const char *path)
{
    struct tr_json json;
    if (!path[0]) return tr_fail("--config is empty; expected a file of options as JSON");
    TR_TRY(tr_json_read(&json, path));
    tr_status status = check_names(&json);
    if (status == TR_OK) status = set_all(config, &json, TR_FROM_FILE);
    tr_json_free(&json);
    return status;
}

/* Whether a checkpoint's tensors can be read with this value of the option only. */
static bool is_fixed(int id)
{
    return tr_config_option(id)->group == TR_GROUP_MODEL || id == TR_OPTION_optimizer;
}

/* Compares what was given with what the checkpoint has: by what the values stand for, so that
 * hidden 0 is the same as the number that follows from the width. */
static tr_status check_fixed(const struct tr_config *config, const struct tr_config *saved,
                             const char *path)
{
    struct tr_config meant = *config, held = *saved;
    tr_config_resolve(&meant);
    tr_config_resolve(&held);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char wanted[TR_TEXT_BYTES], value[TR_TEXT_BYTES], given[TR_TEXT_BYTES], stands[64] = "";
        if (!is_fixed(id) || !tr_config_given(config, id)) continue;
        tr_config_value(&meant, id, wanted);
        tr_config_value(&held, id, value);
        if (!strcmp(wanted, value)) continue;
        tr_config_value(config, id, given);
        if (strcmp(given, wanted) != 0) snprintf(stands, sizeof stands, " (%.32s)", wanted);
        return tr_fail("--%s=%s%s, but %s was written with --%s=%s; leave the option out",
                       tr_config_option(id)->name, given, stands, path, tr_config_option(id)->name,
                       value);
    }
    return TR_OK;
}

/* Whether another value lets a run train otherwise; a larger --steps lets it go on. */
static bool is_noted(int id)
{
    return tr_config_option(id)->group == TR_GROUP_TRAIN && id != TR_OPTION_steps &&
           id != TR_OPTION_epochs && id != TR_OPTION_micro_batch && id != TR_OPTION_data;
}

static void note_changes(struct tr_config *config, const struct tr_config *saved)
{
    struct tr_config meant = *config;
    tr_config_resolve(&meant);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES], held[TR_TEXT_BYTES];
        tr_config_value(&meant, id, value);
        tr_config_value(saved, id, held);
        if (!is_noted(id) || !tr_config_given(config, id) || !strcmp(value, held)) continue;
        tr_config_show(&meant, id, value);
        tr_config_show(saved, id, held);
        tr_config_note(config, "note: --%s=%s; the checkpoint has %s\n", tr_config_option(id)->name,
                       value, held);
    }
}

tr_status tr_config_restore(struct tr_config *config, const char *json, const char *path)
{
    struct tr_config saved;
    struct tr_json parsed;
    tr_config_init(&saved);
    char *text = strdup(json);
    if (!text) return tr_fail("%s: out of memory", path);
    restore_bytes(text);
    tr_status status = tr_json_parse(&parsed, text, path);
    if (status == TR_OK) status = set_all(&saved, &parsed, TR_FROM_CHECKPOINT);
    tr_json_free(&parsed);
    free(text);
    if (status < 0) {
        char why[1024];
        snprintf(why, sizeof why, "%s", tr_error());
        return tr_fail("%s: the options it was written with cannot be read: %s", path, why);
    }
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const struct tr_option *option = tr_config_option(id);
        if (option->group == TR_GROUP_RUN) continue;
        char value[TR_TEXT_BYTES];
        tr_config_value(&saved, id, value);
        TR_TRY(tr_config_set(config, option->name, value, TR_FROM_CHECKPOINT));
    }
    TR_TRY(check_fixed(config, &saved, path));
    note_changes(config, &saved);
    return TR_OK;
}

char *tr_config_to_json(const struct tr_config *config)
{
    struct json_object *object = json_object_new_object();
    if (!object) return NULL;
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const struct tr_option *option = tr_config_option(id);
        char value[TR_TEXT_BYTES];
        tr_config_value(config, id, value);
        struct json_object *item =
            option->type == TR_TYPE_INT    ? json_object_new_int64(strtoll(value, NULL, 10))
            : option->type == TR_TYPE_REAL ? json_object_new_double_s(strtod(value, NULL), value)
                                           : json_object_new_string(value);
        json_object_object_add(object, option->name, item);
    }
    char *text = escape_bytes(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
    json_object_put(object);
    return text;
}
