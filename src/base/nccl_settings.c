/* Reads NCCL's variables, and keeps what the log shall say about them. */
#include "base/nccl_settings.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/settings_file.h"

static const struct tt_nccl_row rows[TT_NCCL_COUNT] = {
#define N(name, effect, text) {"NCCL_" #name, TT_NCCL_##effect, text},
#include "base/nccl_table.h"
#undef N
};

struct given {
    char *text; /* owned; NULL: unset. "": set to nothing, which no file changes */
    const char *source;
};

struct note {
    struct note *next;
    enum tt_log_level level;
    char text[];
};

static struct given values[TT_NCCL_COUNT];
static char user_file[PATH_MAX];
static const char system_file[] = "/etc/nccl.conf";
static struct note *notes, **last_note = &notes;

const struct tt_nccl_row *tt_nccl_row(enum tt_nccl_key key)
{
    return &rows[key];
}

enum tt_nccl_key tt_nccl_find(const char *name, size_t length)
{
    int key = 0;
    while (key < TT_NCCL_COUNT &&
           (strncmp(rows[key].name, name, length) != 0 || rows[key].name[length]))
        key++;
    return (enum tt_nccl_key)key;
}

const char *tt_nccl_value(enum tt_nccl_key key)
{
    return values[key].text && values[key].text[0] ? values[key].text : NULL;
}

const char *tt_nccl_shown(enum tt_nccl_key key)
{
    const char *text = tt_nccl_value(key);
    return text && key == TT_NCCL_PSK ? "(secret)" : text;
}

const char *tt_nccl_source(enum tt_nccl_key key)
{
    return values[key].source;
}

/* ---- Notes ---------------------------------------------------------------------------------- */

void tt_nccl_note(enum tt_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const struct note *said = notes; said; said = said->next)
        if (!strcmp(said->text, text)) return; /* a variable may be read for several rows */
    struct note *note = malloc(sizeof *note + strlen(text) + 1);
    if (!note) return; /* there are graver worries */
    note->next = NULL;
    note->level = level;
    memcpy(note->text, text, strlen(text) + 1);
    *last_note = note;
    last_note = &note->next;
}

void tt_nccl_take_notes(void (*take)(enum tt_log_level level, const char *text))
{
    struct note *note = notes;
    notes = NULL;
    last_note = &notes;
    while (note) {
        struct note *next = note->next;
        if (take) take(note->level, note->text);
        free(note);
        note = next;
    }
}

/* What is in force without being asked for: 0, and 2 of variables that say "where there is". */
static bool asks_nothing(const char *text)
{
    return !strcmp(text, "0") || !strcmp(text, "2");
}

static void note_without_effect(enum tt_nccl_key key)
{
    const struct tt_nccl_row *row = &rows[key];
    const char *text = values[key].text;
    enum tt_log_level level = TT_LOG_INFO;
    if (row->effect == TT_NCCL_ASKS && !asks_nothing(text)) level = TT_LOG_WARN;
    if (row->effect == TT_NCCL_PLUGIN && strcasecmp(text, "none") != 0) level = TT_LOG_WARN;
    tt_nccl_note(level, "%s=%.200s (%.200s) has no effect: %s", row->name, text, values[key].source,
                 row->text);
}

void tt_nccl_note_unused(void)
{
    for (int key = 0; key < TT_NCCL_COUNT; key++)
        if (tt_nccl_value((enum tt_nccl_key)key) && rows[key].effect >= TT_NCCL_NONE)
            note_without_effect((enum tt_nccl_key)key);
    for (char **variable = environ; variable && *variable; variable++) {
        const size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "NCCL_", 5) != 0 || !strncmp(*variable, "NCCL_TESTS_", 11)) continue;
        if (tt_nccl_find(*variable, length) == TT_NCCL_COUNT)
            tt_nccl_note(
                TT_LOG_INFO,
                "%.*s has no effect: it is not among the variables that NCCL " TT_NCCL_VERSION
                " documents",
                (int)(length < 200 ? length : 200), *variable);
    }
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* Of the variable's values the first one holds. */
static void take_value(enum tt_nccl_key key, const char *text, const char *source)
{
    if (!values[key].text) values[key] = (struct given){strdup(text), source};
}

static void take_line(char *line, const char *path)
{
    const size_t length = strcspn(line, "=");
    if (line[0] == '#' || !line[0]) return;
    const enum tt_nccl_key key = tt_nccl_find(line, length);
    if (line[length] && key != TT_NCCL_COUNT)
        take_value(key, line + length + 1, path);
    else
        tt_nccl_note(TT_LOG_INFO, "%.200s: '%.200s' has no effect: it is no variable of NCCL", path,
                     line);
}

static void read_file(const char *path, bool demanded)
{
    char why[TT_ERROR_TEXT / 2] = "";
    switch (tt_settings_file_read(path, take_line, why, sizeof why)) {
    case TT_FILE_REFUSED:
        tt_nccl_note(TT_LOG_WARN, "%s", why);
        break;
    case TT_FILE_ABSENT:
        if (demanded)
            tt_nccl_note(TT_LOG_WARN, "NCCL_CONF_FILE=%.400s cannot be read: %s", path, why);
        break;
    default:
        break;
    }
}

static void read_user_file(const char *home)
{
    const char *named = tt_nccl_value(TT_NCCL_CONF_FILE);
    const int n = named ? snprintf(user_file, sizeof user_file, "%s", named)
                        : snprintf(user_file, sizeof user_file, "%s/.nccl.conf", home ? home : "");
    if (n >= 0 && n < (int)sizeof user_file)
        read_file(user_file, named != NULL);
    else
        tt_nccl_note(TT_LOG_WARN, "the settings file %.400s... is not read: its path is too long",
                     user_file);
}

void tt_nccl_load(const char *(*environment)(const char *name))
{
    tt_nccl_take_notes(NULL);
    for (int key = 0; key < TT_NCCL_COUNT; key++) {
        free(values[key].text);
        values[key] = (struct given){.source = "unset"};
        const char *text = environment(rows[key].name);
        if (text) take_value((enum tt_nccl_key)key, text, "environment");
    }
    read_user_file(environment("HOME"));
    read_file(system_file, false);
}
