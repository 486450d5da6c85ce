/* Reads DeepSpeed's configuration. */
#include "deepspeed.h"

#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "deepspeed_leaf.h"

struct row {
    const char *path;
    const char *option;                            /* of OPTION */
    tr_status (*take)(const struct tr_leaf *leaf); /* of TAKE */
    const char *values;                            /* of ONLY: "false|0" */
    const char *reason;                            /* of IDLE and ONLY */
};

tr_status tr_leaf_fail(const struct tr_leaf *leaf, const char *reason)
{
    enum { MOST = 60 }; /* bytes of a value that is shown */
    const char *value = json_object_to_json_string_ext(leaf->value, JSON_C_TO_STRING_PLAIN);
    return tr_fail("%s:%d: \"%s\": %.*s%s: %s", leaf->json->name,
                   tr_json_line(leaf->json, leaf->path), leaf->path, (int)MOST, value,
                   strlen(value) > MOST ? " ..." : "", reason);
}

void tr_leaf_note(const struct tr_leaf *leaf, const char *text)
{
    tr_config_note(leaf->config, "%s:%d: %s %s\n", leaf->json->name,
                   tr_json_line(leaf->json, leaf->path), leaf->path, text);
}

/* The key of the file that gives the option a value under its own name; NULL: none does. */
static const struct tr_json_key *own_key(const struct tr_json *json, const char *option)
{
    const int id = tr_config_find(option);
    for (size_t i = 0; i < json->nkeys; ++i) {
        const struct tr_json_key *key = &json->keys[i];
        if (strchr(key->path, '.') || tr_config_find(key->path) != id) continue;
        struct json_object *value = tr_json_find(json, key->path);
        if (value && !json_object_is_type(value, json_type_object)) return key;
    }
    return NULL;
}

/* Whether both texts are the same value of an option, or one of them is none. */
static bool is_same(const char *option, const char *one, const char *other)
{
    char values[2][TR_TEXT_BYTES];
    for (int i = 0; i < 2; ++i) {
        struct tr_config config;
        tr_config_init(&config);
        if (tr_config_set(&config, option, i ? other : one, TR_FROM_FILE) < 0) return true;
        tr_config_value(&config, tr_config_find(option), values[i]);
    }
    return !strcmp(values[0], values[1]);
}

static tr_status fail_both(const struct tr_leaf *leaf, const struct tr_json_key *own,
                           const char *option)
{
    return tr_fail("%s:%d: \"%s\" is --%s, which \"%s\" in line %d gives another value; leave one "
                   "out",
                   leaf->json->name, tr_json_line(leaf->json, leaf->path), leaf->path, option,
                   own->path, own->line);
}

/* Sets an option from a text of this file. */
tr_status tr_leaf_set(const struct tr_leaf *leaf, const char *option, const char *text)
{
    char why[1024];
    const struct tr_json_key *own = own_key(leaf->json, option);
    if (own && !is_same(option, text, json_object_get_string(tr_json_find(leaf->json, own->path))))
        return fail_both(leaf, own, option);
    if (tr_config_set(leaf->config, option, text, TR_FROM_FILE) == TR_OK) return TR_OK;
    snprintf(why, sizeof why, "%s", tr_error());
    return tr_fail("%s:%d: \"%s\": %s", leaf->json->name, tr_json_line(leaf->json, leaf->path),
                   leaf->path, why);
}

/* Sets an option that the file says nothing of to what DeepSpeed takes then. */
tr_status tr_leaf_set_default(const struct tr_leaf *leaf, const char *option, const char *text)
{
    return own_key(leaf->json, option) ? TR_OK : tr_leaf_set(leaf, option, text);
}

static bool is_text(const struct tr_leaf *leaf, const char *text)
{
    return json_object_is_type(leaf->value, json_type_string) &&
           !strcmp(json_object_get_string(leaf->value), text);
}

/* ---- Values of one JSON type ------------------------------------------------------------------
 * json-c converts a value of another type, for instance true to 1 and "none" to 0.
 */

bool tr_leaf_is_number(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static tr_status expect_number(const struct tr_leaf *leaf)
{
    return tr_leaf_is_number(leaf->value) ? TR_OK : tr_leaf_fail(leaf, "expected a number");
}

/* 5e8 is one, too. */
static tr_status expect_integer(const struct tr_leaf *leaf)
{
    const double value = tr_leaf_is_number(leaf->value) ? json_object_get_double(leaf->value) : 0.5;
    return value == floor(value) ? TR_OK : tr_leaf_fail(leaf, "expected a whole number");
}

tr_status tr_leaf_expect_boolean(const struct tr_leaf *leaf)
{
    const bool is_one = json_object_is_type(leaf->value, json_type_boolean);
    return is_one ? TR_OK : tr_leaf_fail(leaf, "expected true or false");
}

static tr_status expect_text(const struct tr_leaf *leaf)
{
    const bool is_one = json_object_is_type(leaf->value, json_type_string);
    return is_one ? TR_OK : tr_leaf_fail(leaf, "expected a text");
}

/* Sets an option from a value of the JSON type that the option's own type asks for. */
static tr_status set_option(const struct tr_leaf *leaf, const char *name)
{
    const struct tr_option *option = tr_config_option(tr_config_find(name));
    if (option->type == TR_TYPE_CHOICE && !strcmp(option->choices, "off|on")) {
        TR_TRY(tr_leaf_expect_boolean(leaf));
        return tr_leaf_set(leaf, name, json_object_get_boolean(leaf->value) ? "on" : "off");
    }
    TR_TRY(option->type == TR_TYPE_INT    ? expect_integer(leaf)
           : option->type == TR_TYPE_REAL ? expect_number(leaf)
                                          : expect_text(leaf));
    return tr_leaf_set(leaf, name, json_object_get_string(leaf->value));
}

/* ---- Keys that are not one option -------------------------------------------------------------
 */

/* Whether the file has a value for the key, other than "auto". */
bool tr_leaf_has(const struct tr_json *json, const char *path)
{
    struct json_object *value = tr_json_find(json, path);
    return value && !(json_object_is_type(value, json_type_string) &&
                      !strcmp(json_object_get_string(value), "auto"));
}

/* Without train_batch_size, one micro-batch a rank is a step, as in DeepSpeed. */
static tr_status take_micro_batch(const struct tr_leaf *leaf)
{
    TR_TRY(set_option(leaf, "micro-batch"));
    if (tr_leaf_has(leaf->json, "train_batch_size") ||
        tr_leaf_has(leaf->json, "gradient_accumulation_steps") || own_key(leaf->json, "batch"))
        return TR_OK;
    return tr_leaf_set_default(leaf, "accumulate", "1");
}

/* DeepSpeed has no default. */
static const char demanded[] = "";

/* The parameters of the schedulers: `option` becomes the value of `key`, or DeepSpeed's default
 * where there is one (NULL: the option's own holds). start-lr and min-lr are shares of the highest
 * learning rate: keys in _lr give them as learning rates. */
static const struct parameter {
    const char *schedule, *key, *option, *initial;
} parameters[] = {
    {"warmup-lr", "warmup_max_lr", "lr", NULL},
    {"warmup-lr", "warmup_min_lr", "start-lr", "0"},
    {"warmup-lr", "warmup_num_steps", "warmup", "1000"},
    {"warmup-lr", "warmup_type", "warmup-type", "log"},
    {"warmup-decay-lr", "warmup_max_lr", "lr", "0.001"},
    {"warmup-decay-lr", "warmup_min_lr", "start-lr", "0"},
    {"warmup-decay-lr", "warmup_num_steps", "warmup", "1000"},
    {"warmup-decay-lr", "warmup_type", "warmup-type", "log"},
    {"warmup-decay-lr", "total_num_steps", "steps", demanded},
    {"warmup-cosine-lr", "warmup_min_ratio", "start-lr", "0"},
    {"warmup-cosine-lr", "warmup_num_steps", "warmup", "1000"},
    {"warmup-cosine-lr", "warmup_type", "warmup-type", "log"},
    {"warmup-cosine-lr", "cos_min_ratio", "min-lr", "0.0001"},
    {"warmup-cosine-lr", "total_num_steps", "steps", demanded},
    {"one-cycle", "cycle_min_lr", "min-lr", demanded},
    {"one-cycle", "cycle_max_lr", "lr", demanded},
    {"one-cycle", "cycle_first_step_size", "cycle-up", "2000"},
    {"one-cycle", "cycle_second_step_size", "cycle-down", "0"},
    {"one-cycle", "cycle_first_stair_count", "cycle-up-stairs", "0"},
    {"one-cycle", "cycle_second_stair_count", "cycle-down-stairs", "-1"},
    {"one-cycle", "decay_step_size", "cycle-decay-steps", "0"},
    {"one-cycle", "decay_lr_rate", "cycle-decay", "0"},
    {"one-cycle", "cycle_max_mom", "beta1", "0.9"},
    {"one-cycle", "cycle_min_mom", "cycle-beta1", "0.8"},
    {"lr-range-test", "lr_range_test_min_lr", "lr", "0.001"},
    {"lr-range-test", "lr_range_test_step_size", "range-steps", "2000"},
    {"lr-range-test", "lr_range_test_step_rate", "range-rate", "1"},
    {"lr-range-test", "lr_range_test_staircase", "range-staircase", "off"},
};
enum { NPARAMETERS = sizeof parameters / sizeof *parameters };

/* The schedule that a name of DeepSpeed's stands for; NULL when there is none. */
static const char *schedule_of(struct json_object *type)
{
    static const struct {
        const char *type, *schedule;
    } names[] = {{"WarmupLR", "warmup-lr"},
                 {"WarmupDecayLR", "warmup-decay-lr"},
                 {"WarmupCosineLR", "warmup-cosine-lr"},
                 {"OneCycle", "one-cycle"},
                 {"LRRangeTest", "lr-range-test"}};
    for (size_t i = 0; type && i < sizeof names / sizeof *names; ++i)
        if (!strcmp(json_object_get_string(type), names[i].type)) return names[i].schedule;
    return NULL;
}

/* A value of the scheduler's parameters; NULL when the file leaves it open. */
static struct json_object *parameter(const struct tr_json *json, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "scheduler.params.%s", key);
    return tr_leaf_has(json, path) ? tr_json_find(json, path) : NULL;
}

/* Whether a parameter is a learning rate, of which the option is a share. */
static bool is_rate(const struct parameter *p)
{
    const char *end = strrchr(p->key, '_');
    return !strcmp(end, "_lr") && strcmp(p->option, "lr") != 0;
}

static tr_status set_rate(const struct tr_leaf *leaf, const char *option)
{
    char where[512];
    const struct tr_json_key *own = own_key(leaf->json, option);
    TR_TRY(expect_number(leaf));
    /* The other key gives a share, this one a learning rate: only of 0 both are the same. */
    const bool is_zero = json_object_get_double(leaf->value) == 0;
    if (own && is_zero &&
        is_same(option, "0", json_object_get_string(tr_json_find(leaf->json, own->path))))
        return TR_OK;
    if (own) return fail_both(leaf, own, option);
    snprintf(where, sizeof where, "%s:%d: \"%s\": %s", leaf->json->name,
             tr_json_line(leaf->json, leaf->path), leaf->path, json_object_get_string(leaf->value));
    tr_config_set_rate(leaf->config, tr_config_find(option), json_object_get_double(leaf->value),
                       where);
    return TR_OK;
}

/* Sets an option from a parameter, by the path of the parameter. */
static tr_status set_parameter(const struct tr_leaf *type, const struct parameter *p)
{
    char path[64], why[80];
    struct json_object *value = parameter(type->json, p->key);
    const struct tr_leaf leaf = {type->config, type->json, path, value};
    snprintf(path, sizeof path, "scheduler.params.%s", p->key);
    if (value && !strcmp(p->option, "steps") && json_object_get_double(value) < 1)
        return tr_leaf_fail(&leaf, "expected a number of steps, at least 1");
    if (value) return is_rate(p) ? set_rate(&leaf, p->option) : set_option(&leaf, p->option);
    if (!p->initial || tr_json_find(type->json, path) || own_key(type->json, p->option))
        return TR_OK;
    if (p->initial != demanded) return tr_leaf_set(type, p->option, p->initial);
    snprintf(why, sizeof why, "needs %s", path);
    return tr_leaf_fail(type, why);
}

static tr_status take_scheduler(const struct tr_leaf *leaf)
{
    const char *schedule = schedule_of(leaf->value);
    if (!schedule)
        return tr_leaf_fail(leaf,
                            "expected one of WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, "
                            "LRRangeTest");
    TR_TRY(tr_leaf_set(leaf, "schedule", schedule));
    for (int i = 0; i < NPARAMETERS; ++i)
        if (!strcmp(parameters[i].schedule, schedule)) TR_TRY(set_parameter(leaf, &parameters[i]));
    return TR_OK;
}

/* take_scheduler reads the parameters; here one that the scheduler does not have is refused. */
static tr_status check_parameter(const struct tr_leaf *leaf)
{
    const char *schedule = schedule_of(tr_json_find(leaf->json, "scheduler.type"));
    const char *key = strrchr(leaf->path, '.') + 1;
    for (int i = 0; schedule && i < NPARAMETERS; ++i)
        if (!strcmp(parameters[i].schedule, schedule) && !strcmp(parameters[i].key, key))
            return TR_OK;
    return tr_leaf_fail(leaf, schedule ? "the scheduler has no such parameter"
                                       : "expected a scheduler.type that has this parameter");
}

/* Numbers of 4 bytes become KiB, rounded up. */
static tr_status take_bucket(const struct tr_leaf *leaf)
{
    char text[32];
    TR_TRY(expect_integer(leaf));
    const double numbers = json_object_get_double(leaf->value);
    if (!(numbers >= 1)) return tr_leaf_fail(leaf, "expected a number of gradients, at least 1");
    snprintf(text, sizeof text, "%.0f", ceil(numbers * 4 / 1024));
    return tr_leaf_set(leaf, "bucket-kib", text);
}

static tr_status take_offload(const struct tr_leaf *leaf)
{
    if (is_text(leaf, "none")) return TR_OK;
    if (!is_text(leaf, "cpu"))
        return tr_leaf_fail(leaf,
                            "expected \"none\" or \"cpu\": nothing can be moved to NVMe so far");
    tr_leaf_note(leaf, "has no effect: all states lie in the host's memory already");
    return TR_OK;
}

/* ---- The table --------------------------------------------------------------------------------
 */

static const struct row rows[] = {
#define OPTION(path_, option_) {.path = path_, .option = option_},
#define TAKE(path_, take_) {.path = path_, .take = take_},
#define IDLE(path_, reason_) {.path = path_, .reason = reason_},
#define ONLY(path_, values_, reason_) {.path = path_, .values = values_, .reason = reason_},
#include "deepspeed_table.h"
};
enum { NROWS = sizeof rows / sizeof *rows };

static bool covers(const char *row, const char *path)
{
    const size_t length = strlen(row);
    if (length > 1 && row[length - 1] == '*') return !strncmp(row, path, length - 1);
    return !strcmp(row, path);
}

/* Whether the value asks for nothing: false, 0, "", an empty list. */
static bool asks_nothing(struct json_object *value)
{
    if (json_object_is_type(value, json_type_object)) return json_object_object_length(value) == 0;
    if (json_object_is_type(value, json_type_array)) return json_object_array_length(value) == 0;
    if (json_object_is_type(value, json_type_string)) return json_object_get_string_len(value) == 0;
    return json_object_get_double(value) == 0;
}

/* Whether the value is `wanted`, of the type that it is written as: a number, true or false, or a
 * text of any case. */
static bool is_value(struct json_object *value, const char *wanted, size_t length)
{
    char *end;
    const double number = strtod(wanted, &end);
    if (length && end == wanted + length)
        return tr_leaf_is_number(value) && json_object_get_double(value) == number;
    const char *text = json_object_get_string(value);
    const bool is_boolean = !strncmp(wanted, "true", length) || !strncmp(wanted, "false", length);
    return json_object_is_type(value, is_boolean ? json_type_boolean : json_type_string) &&
           strlen(text) == length && !strncasecmp(text, wanted, length);
}

/* Whether the value is one of "false|0". */
static bool is_one_of(struct json_object *value, const char *values)
{
    for (;;) {
        const size_t length = strcspn(values, "|");
        if (is_value(value, values, length)) return true;
        if (!values[length]) return false;
        values += length + 1;
    }
}

static tr_status take_leaf(const struct tr_leaf *leaf, const struct row *row)
{
    char text[256];
    if (json_object_is_type(leaf->value, json_type_string) &&
        strlen(json_object_get_string(leaf->value)) <
            (size_t)json_object_get_string_len(leaf->value))
        return tr_leaf_fail(leaf, "a zero byte in the text");
    if (is_text(leaf, "auto")) {
        tr_leaf_note(leaf,
                     "is \"auto\": tutti-train's own value, or that of the command line, is taken");
        return TR_OK;
    }
    TR_TRY(tr_check_optimizer_parameter(leaf));
    if (row->option) return set_option(leaf, row->option);
    if (row->take) return row->take(leaf);
    if (row->values) {
        if (is_one_of(leaf->value, row->values)) return TR_OK;
        snprintf(text, sizeof text, "%s%s%s%s", *row->values ? "expected " : "", row->values,
                 *row->values ? ": " : "", row->reason);
        return tr_leaf_fail(leaf, text);
    }
    if (asks_nothing(leaf->value)) return TR_OK;
    snprintf(text, sizeof text, "has no effect: %s", row->reason);
    tr_leaf_note(leaf, text);
    return TR_OK;
}

/* Names the key most like this one among those of the same section, at the top the options, too. */
static tr_status fail_unknown(const struct tr_leaf *leaf)
{
    const char *dot = strrchr(leaf->path, '.');
    const size_t section = dot ? (size_t)(dot - leaf->path) + 1 : 0;
    const char *name = leaf->path + section;
    int best = tr_config_tolerance(name) + 1; /* as many letters differ: not similar */
    char near[160] = "";
    for (int id = 0; !section && id < TR_NUM_OPTIONS; ++id) {
        const int d = tr_config_distance(name, tr_config_option(id)->name);
        if (d >= best) continue;
        best = d;
        snprintf(near, sizeof near, "; did you mean --%s?", tr_config_option(id)->name);
    }
    for (int i = 0; i < NROWS; ++i) {
        char key[128];
        if (strncmp(rows[i].path, leaf->path, section) != 0) continue;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(rows[i].path + section, "."),
                 rows[i].path + section);
        const int d = tr_config_distance(name, key);
        if (d >= best) continue;
        best = d;
        snprintf(near, sizeof near, "; did you mean \"%s\"?", key);
    }
    return tr_fail("%s:%d: no %s%s that is known%s (--help lists the options, docs/deepspeed.md "
                   "the keys)",
                   leaf->json->name, tr_json_line(leaf->json, leaf->path),
                   section ? "key of DeepSpeed's " : "option and no key of DeepSpeed's called ",
                   leaf->path, near);
}

/* Whether a row has keys below this path. */
static bool is_section(const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < NROWS; ++i)
        if (!strncmp(rows[i].path, path, length) && rows[i].path[length] == '.') return true;
    return false;
}

bool tr_deepspeed_knows(const char *key)
{
    for (int i = 0; i < NROWS; ++i)
        if (!strcmp(rows[i].path, key)) return true;
    return is_section(key);
}

static const struct row *find_row(const char *path)
{
    for (int i = 0; i < NROWS; ++i)
        if (covers(rows[i].path, path)) return &rows[i];
    return NULL;
}

const char *tr_deepspeed_option(const char *path)
{
    const struct row *row = find_row(path);
    if (row && row->take == take_micro_batch) return "micro-batch";
    return row ? row->option : NULL;
}

static tr_status take_value(struct tr_config *config, const struct tr_json *json, const char *path,
                            struct json_object *value)
{
    const struct tr_leaf leaf = {config, json, path, value};
    if (!value) return find_row(path) || is_section(path) ? TR_OK : fail_unknown(&leaf);
    const struct row *row = find_row(path);
    if (row && !(json_object_is_type(value, json_type_object) && is_section(path))) {
        if (json_object_is_type(value, json_type_object) && !row->reason)
            return tr_leaf_fail(&leaf, "expected a value, not an object");
        return take_leaf(&leaf, row);
    }
    if (!json_object_is_type(value, json_type_object))
        return is_section(path) ? tr_leaf_fail(&leaf, "expected an object of keys and values")
                                : fail_unknown(&leaf);
    if (!is_section(path)) return fail_unknown(&leaf);
    struct json_object_iterator it = json_object_iter_begin(value),
                                last = json_object_iter_end(value);
    for (; !json_object_iter_equal(&it, &last); json_object_iter_next(&it)) {
        char below[512];
        const int n = snprintf(below, sizeof below, "%s.%s", path, json_object_iter_peek_name(&it));
        if (n >= (int)sizeof below) return tr_leaf_fail(&leaf, "has a key that is too long");
        TR_TRY(take_value(config, json, below, json_object_iter_peek_value(&it)));
    }
    return TR_OK;
}

tr_status tr_deepspeed_take(struct tr_config *config, const struct tr_json *json, const char *key,
                            struct json_object *value)
{
    return take_value(config, json, key, value);
}
