/* The options as JSON: a file of the user's, and the copy kept in each checkpoint. */
#include "config.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static tr_status read_text(const char *path, char **text)
{
    FILE *file = fopen(path, "rb");
    if (!file) return tr_fail("%s: %s", path, strerror(errno));
    enum { MOST = 1 << 20 };
    char *buffer = malloc(MOST + 1);
    const size_t n = buffer ? fread(buffer, 1, MOST, file) : 0;
    const bool more = buffer && fgetc(file) != EOF, bad = ferror(file) != 0;
    const int why = errno;
    fclose(file);
    if (!buffer || more || bad) {
        free(buffer);
        if (bad) return tr_fail("%s: %s", path, strerror(why));
        return more ? tr_fail("%s: longer than %d bytes, not a file of options", path, (int)MOST)
                    : tr_fail("%s: out of memory", path);
    }
    buffer[n] = 0;
    *text = buffer;
    return TR_OK;
}

/* The line of `"key"` in the text; for messages only. */
static int line_of(const char *text, const char *key)
{
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(text, quoted);
    int line = 1;
    for (const char *c = text; at && c < at; ++c) line += *c == '\n';
    return line;
}

static tr_status set_all(struct tr_config *config, const char *text, const char *path,
                         enum tr_source source)
{
    struct json_tokener *tokener = json_tokener_new();
    if (!tokener) return tr_fail("%s: out of memory", path);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    struct json_object *object = json_tokener_parse_ex(tokener, text, (int)strlen(text) + 1);
    const enum json_tokener_error error = json_tokener_get_error(tokener);
    const size_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    tr_status status = TR_OK;
    if (error != json_tokener_success || !json_object_is_type(object, json_type_object)) {
        int line = 1;
        for (size_t i = 0; i < end && text[i]; ++i) line += text[i] == '\n';
        status = tr_fail("%s:%d: not a JSON object: %s", path, line,
                         error == json_tokener_success ? "expected { \"option\": value, ... }"
                                                       : json_tokener_error_desc(error));
        json_object_put(object);
        return status;
    }
    struct json_object_iterator it = json_object_iter_begin(object),
                                last = json_object_iter_end(object);
    for (; status == TR_OK && !json_object_iter_equal(&it, &last); json_object_iter_next(&it)) {
        const char *key = json_object_iter_peek_name(&it);
        struct json_object *value = json_object_iter_peek_value(&it);
        if (json_object_is_type(value, json_type_object) ||
            json_object_is_type(value, json_type_array) || !value)
            status = tr_fail("%s:%d: \"%s\": expected a number or a string", path,
                             line_of(text, key), key);
        else if (json_object_is_type(value, json_type_string) &&
                 strlen(json_object_get_string(value)) < (size_t)json_object_get_string_len(value))
            status =
                tr_fail("%s:%d: \"%s\": a zero byte in the text", path, line_of(text, key), key);
        else
            status = tr_config_set(config, key, json_object_get_string(value), source);
        if (status < 0 && source == TR_FROM_FILE && strncmp(tr_error(), path, strlen(path)) != 0) {
            char why[1024];
            snprintf(why, sizeof why, "%s", tr_error());
            status = tr_fail("%s:%d: %s", path, line_of(text, key), why);
        }
    }
    json_object_put(object);
    return status;
}

tr_status tr_config_read_json(struct tr_config *config, const char *path)
{
    char *text = NULL;
    if (!path[0]) return tr_fail("--config is empty; expected a file of options as JSON");
    TR_TRY(read_text(path, &text));
    const tr_status status = set_all(config, text, path, TR_FROM_FILE);
    free(text);
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

tr_status tr_config_restore(struct tr_config *config, const char *json, const char *path)
{
    struct tr_config saved;
    tr_config_init(&saved);
    if (set_all(&saved, json, path, TR_FROM_CHECKPOINT) < 0) {
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
    return check_fixed(config, &saved, path);
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
    char *text = strdup(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
    json_object_put(object);
    return text;
}
