/* Writes the items of a JSON file one after the other, with commas and indentation. */
#include "common/json.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define TRIES 10000

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fprintf(file, "\\%c", *at);
        } else if (*at < 0x20) {
            fprintf(file, "\\u%04x", *at);
        } else {
            fputc(*at, file);
        }
    }
    fputc('"', file);
}

/* The comma and the key that come before an item. */
static void begin_item(struct perf_json *json, const char *key)
{
    if (json->depth > 0) {
        if (json->filled[json->depth - 1]) fputc(',', json->file);
        json->filled[json->depth - 1] = true;
    }
    if (key != NULL) {
        write_string(json->file, key);
        fputc(':', json->file);
    }
}

static void begin_nest(struct perf_json *json, const char *key, char opening, char closing)
{
    if (json->file == NULL) return;
    assert(json->depth < PERF_JSON_DEPTH);
    begin_item(json, key);
    fputc(opening, json->file);
    json->filled[json->depth] = false;
    json->closing[json->depth] = closing;
    json->depth++;
}

static bool is_regular(const char *path)
{
    struct stat file;
    return stat(path, &file) != 0 || S_ISREG(file.st_mode);
}

bool perf_json_open(struct perf_json *json, const char *path, char *used, size_t used_bytes)
{
    *json = (struct perf_json){0};
    int needed = snprintf(used, used_bytes, "%s", path);
    for (int i = 0; i < TRIES; i++) {
        if (needed < 0 || (size_t)needed >= used_bytes) {
            errno = ENAMETOOLONG;
            return false;
        }
        json->file = fopen(used, "wx");
        if (json->file != NULL) return true;
        if (errno != EEXIST) return false;
        if (i == 0 && !is_regular(used)) { /* /dev/stdout, a pipe: nothing is overwritten */
            json->file = fopen(used, "w");
            return json->file != NULL;
        }
        needed = snprintf(used, used_bytes, "%s.%d", path, i);
    }
    return false;
}

bool perf_json_close(struct perf_json *json)
{
    if (json->file == NULL) return true;
    while (json->depth > 0) perf_json_end(json);
    fputc('\n', json->file);
    bool written = !ferror(json->file);
    if (fclose(json->file) != 0) written = false;
    json->file = NULL;
    return written;
}

void perf_json_object(struct perf_json *json, const char *key)
{
    begin_nest(json, key, '{', '}');
}

void perf_json_list(struct perf_json *json, const char *key)
{
    begin_nest(json, key, '[', ']');
}

void perf_json_end(struct perf_json *json)
{
    if (json->file == NULL) return;
    assert(json->depth > 0);
    json->depth--;
    fputc(json->closing[json->depth], json->file);
}

void perf_json_string(struct perf_json *json, const char *key, const char *text)
{
    if (json->file == NULL) return;
    begin_item(json, key);
    if (text == NULL) {
        fputs("null", json->file);
    } else {
        write_string(json->file, text);
    }
}

void perf_json_integer(struct perf_json *json, const char *key, long long number)
{
    if (json->file == NULL) return;
    begin_item(json, key);
    fprintf(json->file, "%lld", number);
}

void perf_json_number(struct perf_json *json, const char *key, double number)
{
    if (json->file == NULL) return;
    begin_item(json, key);
    if (isfinite(number)) {
        fprintf(json->file, "%.6f", number);
    } else {
        fputs("\"nan\"", json->file);
    }
}

void perf_json_bool(struct perf_json *json, const char *key, bool truth)
{
    perf_json_string(json, key, truth ? "true" : "false");
}
