#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

static const struct tt_config_row rows[TT_CONFIG_COUNT] = {
#define X(key, name, type, fallback, sentence) {name, #type, fallback, sentence},
#include "base/config_table.h"
#undef X
};

struct value {
    char *text; /* owned; NULL: the default */
    int64_t number;
    const char *source;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct value values[TT_CONFIG_COUNT];
static char user_file[512];
static const char system_file[] = "/etc/tutti.conf";

int tt_parse_size(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || errno || number < 0) return -1;
    int shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        shift = 10, end++;
        break;
    case 'M':
        shift = 20, end++;
        break;
    case 'G':
        shift = 30, end++;
        break;
    default:
        break;
    }
    if (toupper((unsigned char)*end) == 'B') end++;
    if (*end || number > (INT64_MAX >> shift)) return -1;
    *value = (int64_t)number << shift;
    return 0;
}

static int parse_level(const char *text, int64_t *value)
{
    static const char *const names[] = {"NONE", "WARN", "INFO", "TRACE"};
    for (int i = 0; i < 4; i++)
        if (!strcasecmp(text, names[i])) {
            *value = i;
            return 0;
        }
    return -1;
}

static int parse_int(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno) return -1;
    *value = number;
    return 0;
}

static int parse(const struct tt_config_row *row, const char *text, int64_t *value)
{
    switch (row->type[0]) {
    case 'I':
        return parse_int(text, value);
    case 'B':
        return parse_int(text, value) || *value < 0 || *value > 1 ? -1 : 0;
    case 'L':
        return parse_level(text, value);
    case 'S':
        if (row->type[1] == 'I') return tt_parse_size(text, value);
        break;
    default:
        break;
    }
    *value = 0;
    return 0;
}

static void set(int key, const char *text, const char *source)
{
    static const struct {
        char type;
        const char *expected;
    } expectations[] = {{'I', "a whole number"},
                        {'B', "0 or 1"},
                        {'L', "NONE, WARN, INFO or TRACE"},
                        {'S', "a size such as 32K, 1M or 4096"}};
    int64_t number = 0;
    if (parse(&rows[key], text, &number)) {
        const char *expected = "";
        for (int i = 0; i < 4; i++)
            if (expectations[i].type == rows[key].type[0]) expected = expectations[i].expected;
        fprintf(stderr, "tutti: %s=%s (%s) is not %s; using the default %s\n", rows[key].name, text,
                source, expected, rows[key].fallback);
        return;
    }
    free(values[key].text);
    values[key] = (struct value){.text = strdup(text), .number = number, .source = source};
}

/* Lines NAME=VALUE; '#' starts a comment. Unknown names are reported with the file's name. */
static void read_file(const char *path, bool demanded)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        if (demanded) fprintf(stderr, "tutti: TUTTI_CONF_FILE=%s cannot be read: %m\n", path);
        return;
    }
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *name = line + strspn(line, " \t");
        char *equals = strchr(name, '=');
        if (*name == '#' || !*name) continue;
        int key = 0;
        if (equals) *equals = '\0';
        while (key < TT_CONFIG_COUNT && strcmp(rows[key].name, name)) key++;
        if (!equals || key == TT_CONFIG_COUNT)
            fprintf(stderr, "tutti: %s: '%s' is not a setting (tutti-info lists them)\n", path,
                    name);
        else if (equals[1])
            set(key, equals + 1, path); /* empty: unset */
    }
    fclose(file);
}

static void load(void)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        free(values[i].text);
        values[i] = (struct value){.source = "default"};
        (void)parse(&rows[i], rows[i].fallback, &values[i].number); /* tests check the table */
    }
    read_file(system_file, false);
    const char *named = getenv("TUTTI_CONF_FILE");
    const char *home = getenv("HOME");
    if (named && named[0])
        snprintf(user_file, sizeof user_file, "%s", named);
    else
        snprintf(user_file, sizeof user_file, "%s/.tutti.conf", home ? home : "");
    read_file(user_file, named && named[0]);
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        const char *text = getenv(rows[i].name);
        if (text && text[0]) set(i, text, "environment"); /* empty: unset */
    }
}

const struct tt_config_row *tt_config_row(enum tt_config_key key)
{
    return &rows[key];
}

int64_t tt_config_int(enum tt_config_key key)
{
    pthread_once(&once, load);
    return values[key].number;
}

const char *tt_config_string(enum tt_config_key key)
{
    pthread_once(&once, load);
    return values[key].text ? values[key].text : rows[key].fallback;
}

const char *tt_config_source(enum tt_config_key key)
{
    pthread_once(&once, load);
    return values[key].source;
}

void tt_config_reload(void)
{
    pthread_once(&once, load);
    load();
}

const char *tt_environment(const char *name)
{
    return getenv(name);
}
