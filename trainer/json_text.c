/* Reads a file of JSON that people wrote. */
#include "json_text.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count_lines(const char *text, const char *end)
{
    int line = 1;
    for (; text < end; ++text) line += *text == '\n';
    return line;
}

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
    const char *zero = memchr(buffer, 0, n);
    if (zero) {
        const int line = count_lines(buffer, zero);
        free(buffer);
        return tr_fail("%s:%d: a zero byte, expected JSON in UTF-8", path, line);
    }
    *text = buffer;
    return TR_OK;
}

/* The end of a string whose opening quote is at `at`: behind its closing quote, or the text's end.
 */
static char *skip_string(char *at)
{
    for (++at; *at && *at != '"'; ++at)
        if (*at == '\\' && at[1]) ++at;
    return *at ? at + 1 : at;
}

/* Makes bytes spaces, but leaves ends of lines, so that lines keep their numbers. */
static void blank(char *from, const char *end)
{
    for (; from < end; ++from)
        if (*from != '\n') *from = ' ';
}

/* The end of the comment that begins at `at`; `at` when none does; NULL when it has no end. */
static char *end_of_comment(char *at)
{
    if (*at == '#' || (at[0] == '/' && at[1] == '/')) return at + strcspn(at, "\n");
    if (at[0] != '/' || at[1] != '*') return at;
    char *end = strstr(at + 2, "*/");
    return end ? end + 2 : NULL;
}

/* Blanks comments, and commas that nothing follows. */
static tr_status make_strict(char *text, const char *name)
{
    char *comma = NULL; /* the last sign, if it is a comma */
    if (!strncmp(text, "\xEF\xBB\xBF", 3)) blank(text, text + 3); /* a byte order mark */
    for (char *at = text; *at;) {
        char *end = end_of_comment(at);
        if (!end)
            return tr_fail("%s:%d: a comment begins here and does not end", name,
                           count_lines(text, at));
        if (end > at) {
            blank(at, end);
            at = end;
            continue;
        }
        if (comma && (*at == '}' || *at == ']')) *comma = ' ';
        if (!strchr(" \t\r\n", *at)) comma = *at == ',' ? at : NULL;
        at = *at == '"' ? skip_string(at) : at + 1;
    }
    return TR_OK;
}

/* ---- The keys of a text that json-c has read --------------------------------------------------
 */

struct scan {
    struct tr_json *json;
    char *at;
    int line;
    char path[1024];
};

static char next(struct scan *s)
{
    for (; strchr(" \t\r\n,:", *s->at) && *s->at; ++s->at) s->line += *s->at == '\n';
    return *s->at;
}

/* Adds a part to the path. The path of a long key is cut. */
static void enter(struct scan *s, const char *part, size_t length)
{
    const size_t before = strlen(s->path);
    snprintf(s->path + before, sizeof s->path - before, "%s%.*s", before ? "." : "", (int)length,
             part);
}

static tr_status add_key(struct scan *s)
{
    enum { MOST = 4096 }; /* so that a long file cannot take long */
    struct tr_json *json = s->json;
    if (json->nkeys == MOST)
        return tr_fail("%s:%d: more than %d keys, not a file of options", json->name, s->line,
                       (int)MOST);
    for (size_t i = 0; i < json->nkeys; ++i)
        if (!strcmp(json->keys[i].path, s->path))
            return tr_fail("%s:%d: \"%s\" is given twice, in line %d, too", json->name, s->line,
                           s->path, json->keys[i].line);
    struct tr_json_key *keys = realloc(json->keys, (json->nkeys + 1) * sizeof *keys);
    if (keys) json->keys = keys;
    char *path = keys ? strdup(s->path) : NULL;
    if (!path) return tr_fail("%s: out of memory", json->name);
    keys[json->nkeys++] = (struct tr_json_key){path, s->line};
    return TR_OK;
}

/* The key whose opening quote is at s->at: adds it, without its escapes, to the path. */
static tr_status scan_key(struct scan *s)
{
    const char *from = s->at;
    s->at = skip_string(s->at);
    const int length = (int)(s->at - from);
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *key = tokener ? json_tokener_parse_ex(tokener, from, length) : NULL;
    json_tokener_free(tokener);
    if (!key) return tr_fail("%s: out of memory", s->json->name);
    const char *text = json_object_get_string(key), *wrong = NULL;
    if (strlen(text) < (size_t)json_object_get_string_len(key)) wrong = "a key with a zero byte";
    if (strchr(text, '.'))
        wrong = "a key with a dot; expected objects, as in {\"optimizer\": {\"type\": \"Adam\"}}";
    enter(s, text, strlen(text));
    json_object_put(key);
    if (wrong) return tr_fail("%s:%d: %.*s: %s", s->json->name, s->line, length, from, wrong);
    return add_key(s);
}

static tr_status scan_value(struct scan *s);

/* The items of an object or array, up to its closing sign. */
static tr_status scan_items(struct scan *s, bool keyed)
{
    ++s->at;
    for (int i = 0; next(s) && *s->at != '}' && *s->at != ']'; ++i) {
        const size_t before = strlen(s->path);
        char number[16];
        const size_t length = (size_t)snprintf(number, sizeof number, "%d", i);
        if (keyed)
            TR_TRY(scan_key(s));
        else
            enter(s, number, length);
        TR_TRY(scan_value(s));
        s->path[before] = 0;
    }
    if (*s->at) ++s->at;
    return TR_OK;
}

/* Refuses a whole number that has no place in 64 bits: json-c takes the nearest one that has. */
static tr_status check_number(const struct scan *s, int length)
{
    char text[32];
    const size_t digits = strspn(s->at + (*s->at == '-'), "0123456789");
    if (!digits || (int)digits + (*s->at == '-') != length) return TR_OK;
    snprintf(text, sizeof text, "%.*s", length, s->at);
    errno = 0;
    (void)strtoll(text, NULL, 10);
    if (length < (int)sizeof text && errno != ERANGE) return TR_OK;
    return tr_fail("%s:%d: \"%s\": %.*s: out of range, expected a number of at most 18 digits",
                   s->json->name, s->line, s->path, length, s->at);
}

static tr_status scan_value(struct scan *s)
{
    const char first = next(s);
    if (first == '{' || first == '[') return scan_items(s, first == '{');
    const size_t plain = strcspn(s->at, " \t\r\n,]}");
    if (first != '"') TR_TRY(check_number(s, (int)plain));
    s->at = first == '"' ? skip_string(s->at) : s->at + plain;
    return TR_OK;
}

/* ---- Files ------------------------------------------------------------------------------------
 */

tr_status tr_json_parse(struct tr_json *json, char *text, const char *name)
{
    *json = (struct tr_json){.name = name};
    TR_TRY(make_strict(text, name));
    struct json_tokener *tokener = json_tokener_new();
    if (!tokener) return tr_fail("%s: out of memory", name);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    json->object = json_tokener_parse_ex(tokener, text, (int)strlen(text) + 1);
    const enum json_tokener_error error = json_tokener_get_error(tokener);
    const size_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    tr_status status = TR_OK;
    if (error != json_tokener_success || !json_object_is_type(json->object, json_type_object)) {
        status = tr_fail("%s:%d: not a JSON object: %s", name,
                         count_lines(text, text + (end < strlen(text) ? end : strlen(text))),
                         error == json_tokener_success ? "expected { \"option\": value, ... }"
                                                       : json_tokener_error_desc(error));
    } else {
        struct scan scan = {.json = json, .at = text, .line = 1};
        status = scan_value(&scan);
    }
    if (status < 0) tr_json_free(json);
    return status;
}

tr_status tr_json_read(struct tr_json *json, const char *path)
{
    char *text = NULL;
    *json = (struct tr_json){0};
    TR_TRY(read_text(path, &text));
    const tr_status status = tr_json_parse(json, text, path);
    free(text);
    return status;
}

void tr_json_free(struct tr_json *json)
{
    json_object_put(json->object);
    for (size_t i = 0; i < json->nkeys; ++i) free(json->keys[i].path);
    free(json->keys);
    *json = (struct tr_json){0};
}

int tr_json_line(const struct tr_json *json, const char *path)
{
    for (size_t i = 0; i < json->nkeys; ++i)
        if (!strcmp(json->keys[i].path, path)) return json->keys[i].line;
    return 1;
}

struct json_object *tr_json_find(const struct tr_json *json, const char *path)
{
    struct json_object *value = json->object;
    char part[128];
    while (value && *path) {
        const size_t length = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        if (!json_object_object_get_ex(value, part, &value)) return NULL;
        path += length + (path[length] == '.');
    }
    return value;
}
