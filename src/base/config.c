/* Reads the settings from the environment and from ~/.tutti.conf once, and checks their values.
 * With tt_config_use_nccl, what NCCL's variables give is read first, so that all else overrides it.
 */
#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/names.h"
#include "base/nccl_settings.h"
#include "base/settings_file.h"
#include "base/stderr.h"

static const struct tt_config_row rows[TT_CONFIG_COUNT] = {
#define X(key, name, nccl, type, fallback, sentence) {name, nccl, #type, fallback, sentence, false},
#define SECURITY(key, name, nccl, type, fallback, sentence)                                        \
    {name, nccl, #type, fallback, sentence, true},
#include "base/config_table.h"
#undef X
};

struct value {
    char *text; /* owned; NULL: the default */
    int64_t number;
    const char *source;
    const char *given_as; /* the variable of NCCL that gave it; NULL: the row's own, or none */
    char complaint[256];  /* "": none. Why no communicator can be made with the value given */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct value values[TT_CONFIG_COUNT];
static char user_file[PATH_MAX];
static char refused_file[TT_ERROR_TEXT]; /* "": none. Which file was not read, and why */
static const char system_file[] = "/etc/tutti.conf";
static char nccl_sources[TT_CONFIG_COUNT][sizeof(((struct tt_nccl_setting *)0)->source)];

/* Whether NCCL's variables count is settled when the settings are read. */
enum { UNREAD, UNREAD_WITH_NCCL, READ, READ_WITH_NCCL };
static _Atomic int state;

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
    static const char *const names[] = {"NONE", "WARN", "INFO"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
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

static int parse_bool(const char *text, int64_t *value)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"false", "true"}, {"no", "yes"}, {"off", "on"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int on = 0; on <= 1; on++)
            if (!strcasecmp(text, words[i][on])) {
                *value = on;
                return 0;
            }
    return -1;
}

static int parse_auto(const char *text, int64_t *value)
{
    if (strcasecmp(text, "auto") != 0) return parse_bool(text, value);
    *value = -1;
    return 0;
}

static int parse_require(const char *text, int64_t *value)
{
    if (strcasecmp(text, "require") != 0) return parse_bool(text, value);
    *value = TT_CONFIG_REQUIRE;
    return 0;
}

static int parse(const struct tt_config_row *row, const char *text, int64_t *value)
{
    switch (row->type[0]) {
    case 'I':
        return parse_int(text, value);
    case 'B':
        return parse_bool(text, value);
    case 'A':
        return parse_auto(text, value);
    case 'R':
        return parse_require(text, value);
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

static const char *expected(const struct tt_config_row *row)
{
    static const struct {
        char type;
        const char *expected;
    } expectations[] = {{'I', "a whole number"},
                        {'B', "1, true, yes, on or 0, false, no, off"},
                        {'A', "auto, 1, true, yes, on or 0, false, no, off"},
                        {'R', "require, 1, true, yes, on or 0, false, no, off"},
                        {'L', "NONE, WARN or INFO"},
                        {'S', "a size such as 32K, 1M or 4096"}};
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++)
        if (expectations[i].type == row->type[0]) return expectations[i].expected;
    return "";
}

static void refuse(int key, const char *text, const char *source)
{
    const struct tt_config_row *row = &rows[key];
    char *complaint = values[key].complaint;
    if (!row->security) {
        const bool given = values[key].text != NULL;
        tt_stderr_say("%s=%s (%s) is not %s; using %s%s", row->name, text, source, expected(row),
                      given ? "" : "the default ", given ? values[key].text : row->fallback);
        return;
    }
    snprintf(complaint, sizeof values[key].complaint,
             "%s=%.48s (%.80s) is not %s: no communicator is made until it is", row->name, text,
             source, expected(row));
    tt_stderr_say("%s", complaint);
}

static void set(int key, const char *text, const char *source)
{
    int64_t number = 0;
    if (parse(&rows[key], text, &number)) {
        refuse(key, text, source);
        return;
    }
    free(values[key].text);
    values[key] = (struct value){.text = strdup(text), .number = number, .source = source};
}

__attribute__((format(printf, 1, 2))) static void refuse_file(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(refused_file, sizeof refused_file, format, args);
    va_end(args);
    tt_stderr_say("%s", refused_file);
}

/* One line, without its newline. Unknown names are reported with the file's name. */
static void read_line(char *line, const char *path)
{
    char *name = line + strspn(line, " \t");
    char *equals = strchr(name, '=');
    if (*name == '#' || !*name) return;
    int key = 0;
    if (equals) *equals = '\0';
    while (key < TT_CONFIG_COUNT && strcmp(rows[key].name, name) != 0) key++;
    if (!equals || key == TT_CONFIG_COUNT)
        tt_stderr_say("%s: '%.200s' is not a setting (tutti-info lists them)", path, name);
    else if (equals[1])
        set(key, equals + 1, path); /* empty: unset */
}

/* Lines NAME=VALUE of any length; '#' starts a comment. */
static void read_file(const char *path, bool demanded)
{
    char why[TT_ERROR_TEXT / 2] = "";
    const enum tt_settings_file found = tt_settings_file_read(path, read_line, why, sizeof why);
    if (found == TT_FILE_REFUSED) refuse_file("%s", why);
    if (found == TT_FILE_ABSENT && demanded)
        tt_stderr_say("TUTTI_CONF_FILE=%s cannot be read: %s", path, why);
}

/* Whether a variable whose name begins with TUTTI_ may be there for something else: for the tests,
 * or for a module system that says where tutti is installed. */
static bool is_no_setting(const char *name, size_t length)
{
    static const char *const ends[] = {"_ROOT", "_HOME", "_DIR", "_PATH", "_VERSION"};
    if (!strncmp(name, "TUTTI_TEST_", strlen("TUTTI_TEST_"))) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) &&
            !strncmp(name + length - strlen(ends[i]), ends[i], strlen(ends[i])))
            return true;
    return length == strlen("TUTTI_CONF_FILE") && !strncmp(name, "TUTTI_CONF_FILE", length);
}

/* A misspelt setting would have no effect. */
static void report_unknown(void)
{
    for (char **variable = environ; variable && *variable; variable++) {
        const char *name = *variable;
        const size_t length = strcspn(name, "=");
        int key = 0;
        if (strncmp(name, "TUTTI_", strlen("TUTTI_")) != 0 || is_no_setting(name, length)) continue;
        while (key < TT_CONFIG_COUNT &&
               (strlen(rows[key].name) != length || strncmp(rows[key].name, name, length) != 0))
            key++;
        if (key == TT_CONFIG_COUNT)
            tt_stderr_say("the variable %.*s is not a setting and has no effect (tutti-info "
                          "--config lists them)",
                          (int)length, name);
    }
}

/* The path of the user's own file; false: it is too long. */
static bool find_user_file(const char *named)
{
    const char *home = getenv("HOME");
    const int n = named ? snprintf(user_file, sizeof user_file, "%s", named)
                        : snprintf(user_file, sizeof user_file, "%s/.tutti.conf", home ? home : "");
    return n >= 0 && n < (int)sizeof user_file;
}

/* What NCCL's variables give; all that is read later overrides it. */
static void read_nccl(void)
{
    tt_nccl_load(tt_environment);
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        struct tt_nccl_setting setting;
        if (!rows[i].nccl[0]) continue;
        if (!tt_nccl_convert((enum tt_config_key)i, rows[i].fallback, &setting)) {
            memcpy(values[i].complaint, setting.wrong, sizeof values[i].complaint);
            continue;
        }
        memcpy(nccl_sources[i], setting.source, sizeof nccl_sources[i]);
        set(i, setting.text, nccl_sources[i]);
        values[i].given_as = tt_nccl_row(setting.from)->name;
    }
    tt_nccl_note_unused();
}

/* Of the rows that NCCL's variables give: whether that holds. */
static void note_nccl(void)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        if (!nccl_sources[i][0]) continue;
        const char *name = values[i].given_as;
        const enum tt_nccl_key from = name ? tt_nccl_find(name, strlen(name)) : TT_NCCL_COUNT;
        if (name)
            tt_nccl_note(TT_LOG_INFO, "%s set by %s to %.200s (%s=%s)", name, tt_nccl_source(from),
                         tt_nccl_shown(from), rows[i].name, values[i].text);
        else
            tt_nccl_note(TT_LOG_INFO, "%s has no effect: %s=%s (%s) holds", nccl_sources[i],
                         rows[i].name, values[i].text, values[i].source);
    }
}

static void load(void)
{
    int unread = UNREAD;
    tt_stderr_remember();
    if (!atomic_compare_exchange_strong(&state, &unread, READ) && unread == UNREAD_WITH_NCCL)
        state = READ_WITH_NCCL;
    tt_rename_to_nccl(state == READ_WITH_NCCL);
    refused_file[0] = '\0';
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        free(values[i].text);
        values[i] = (struct value){.source = "default"};
        (void)parse(&rows[i], rows[i].fallback, &values[i].number); /* tests check the table */
        nccl_sources[i][0] = '\0';
    }
    if (state == READ_WITH_NCCL) read_nccl();
    read_file(system_file, false);
    const char *named = getenv("TUTTI_CONF_FILE");
    const bool demanded = named && named[0];
    if (find_user_file(demanded ? named : NULL))
        read_file(user_file, demanded);
    else
        refuse_file("the settings file %.400s... is not read: its path is too long", user_file);
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        const char *text = getenv(rows[i].name);
        if (text && text[0]) set(i, text, "environment"); /* empty: unset */
    }
    report_unknown();
    note_nccl();
}

bool tt_config_use_nccl(void)
{
    int now = UNREAD;
    const bool is_set =
        atomic_compare_exchange_strong(&state, &now, UNREAD_WITH_NCCL) || now != READ;
    if (is_set) tt_rename_to_nccl(true); /* also for errors before the settings are read */
    return is_set;
}

bool tt_config_with_nccl(void)
{
    pthread_once(&once, load);
    return state == READ_WITH_NCCL;
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

bool tt_config_is_nccl(enum tt_config_key key)
{
    pthread_once(&once, load);
    return values[key].given_as != NULL;
}

const char *tt_config_name(enum tt_config_key key)
{
    pthread_once(&once, load);
    return values[key].given_as ? values[key].given_as : rows[key].name;
}

tt_status tt_config_check(void)
{
    pthread_once(&once, load);
    if (refused_file[0]) return tt_fail(TT_ERR_ARGUMENT, "%s", refused_file);
    for (int i = 0; i < TT_CONFIG_COUNT; i++)
        if (values[i].complaint[0]) return tt_fail(TT_ERR_ARGUMENT, "%s", values[i].complaint);
    return TT_OK;
}

void tt_config_reload(void)
{
    tt_stderr_forget();
    pthread_once(&once, load);
    load();
}

void tt_config_reload_with_nccl(bool nccl)
{
    pthread_once(&once, load);
    state = nccl ? READ_WITH_NCCL : READ;
    tt_config_reload();
}

const char *tt_environment(const char *name)
{
    return getenv(name);
}
