/* The section `optimizer` of DeepSpeed's configuration. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "deepspeed_leaf.h"
#include "deepspeed_defaults.h"

enum { NDEFAULTS = sizeof defaults / sizeof *defaults };

/* The choice of --optimizer that DeepSpeed calls `type`; NULL: none. */
static const char *optimizer_called(const char *type)
{
    /* DeepSpeed's Adam decays as AdamW unless adam_w_mode is false. */
    if (!strcasecmp(type, "adam")) return "adamw";
    if (!strcasecmp(type, "fusedlamb")) return "lamb";
    for (int i = 0; i < NDEFAULTS; ++i)
        if (!strcasecmp(type, defaults[i].optimizer)) return defaults[i].optimizer;
    return NULL;
}

static tr_status fail_no_optimizer(const struct tr_leaf *leaf)
{
    char expected[256] = "expected one of adam";
    size_t n = strlen(expected);
    for (int i = 0; i < NDEFAULTS && n < sizeof expected; ++i)
        if (i == 0 || strcmp(defaults[i].optimizer, defaults[i - 1].optimizer) != 0)
            n += (size_t)snprintf(expected + n, sizeof expected - n, ", %s", defaults[i].optimizer);
    return tr_leaf_fail(leaf, expected);
}

/* Where the file names an optimizer that may do in DeepSpeed what it cannot do here: whether it
 * does is known when all options are read. */
static void note_optimizer(const struct tr_leaf *leaf, const char *option)
{
    char where[512];
    snprintf(where, sizeof where, "%s:%d: \"%s\"", leaf->json->name,
             tr_json_line(leaf->json, leaf->path), leaf->path);
    snprintf(leaf->config->coupled, sizeof where, "%s", strcmp(option, "sgd") ? "" : where);
    snprintf(leaf->config->unrated, sizeof where, "%s", strcmp(option, "muon") ? "" : where);
}

static bool is_on(const struct tr_json *json, const char *path, bool otherwise)
{
    struct json_object *value = tr_json_find(json, path);
    return json_object_is_type(value, json_type_boolean) ? json_object_get_boolean(value)
                                                         : otherwise;
}

/* torch_adam is torch.optim.AdamW, or without adam_w_mode torch.optim.Adam, which has no decay. */
static const char *default_of(const struct tr_leaf *leaf, int i)
{
    if (strcmp(defaults[i].optimizer, "adamw") != 0 || strcmp(defaults[i].option, "decay") != 0 ||
        !is_on(leaf->json, "optimizer.params.torch_adam", false))
        return defaults[i].value;
    const bool is_adam = !strcasecmp(json_object_get_string(leaf->value), "adam");
    return is_adam && !is_on(leaf->json, "optimizer.params.adam_w_mode", true) ? "0" : "0.01";
}

tr_status tr_take_optimizer(const struct tr_leaf *leaf)
{
    const char *option = optimizer_called(json_object_get_string(leaf->value));
    if (!option) return fail_no_optimizer(leaf);
    note_optimizer(leaf, option);
    TR_TRY(tr_leaf_set(leaf, "optimizer", option));
    if (!tr_json_find(leaf->json, "gradient_clipping"))
        TR_TRY(tr_leaf_set_default(leaf, "clip", "0"));
    for (int i = 0; i < NDEFAULTS; ++i) {
        char path[64];
        snprintf(path, sizeof path, "optimizer.params.%s", defaults[i].key);
        if (strcmp(defaults[i].optimizer, option) != 0 || tr_json_find(leaf->json, path)) continue;
        TR_TRY(tr_leaf_set_default(leaf, defaults[i].option, default_of(leaf, i)));
    }
    return TR_OK;
}

tr_status tr_take_betas(const struct tr_leaf *leaf)
{
    static const char *const options[] = {"beta1", "beta2"};
    if (!json_object_is_type(leaf->value, json_type_array) ||
        json_object_array_length(leaf->value) != 2 ||
        !tr_leaf_is_number(json_object_array_get_idx(leaf->value, 0)) ||
        !tr_leaf_is_number(json_object_array_get_idx(leaf->value, 1)))
        return tr_leaf_fail(leaf, "expected two numbers, as in [0.9, 0.999]");
    for (size_t i = 0; i < 2; ++i)
        TR_TRY(tr_leaf_set(leaf, options[i],
                           json_object_get_string(json_object_array_get_idx(leaf->value, i))));
    return TR_OK;
}

/* Adam and AdamW are the same without decay, which is DeepSpeed's default: which decay and which
 * optimizer count, is known when all options are read. */
tr_status tr_take_adam_w_mode(const struct tr_leaf *leaf)
{
    char *where = leaf->config->undecayed;
    struct json_object *type = tr_leaf_has(leaf->json, "optimizer.type")
                                   ? tr_json_find(leaf->json, "optimizer.type")
                                   : NULL;
    TR_TRY(tr_leaf_expect_boolean(leaf));
    where[0] = 0;
    if (json_object_get_boolean(leaf->value)) return TR_OK;
    if (type && strcasecmp(json_object_get_string(type), "adam") != 0) {
        tr_leaf_note(leaf, "has no effect: it is a setting of Adam alone, in DeepSpeed too");
        return TR_OK;
    }
    snprintf(where, sizeof leaf->config->undecayed, "%s:%d: \"%s\": false", leaf->json->name,
             tr_json_line(leaf->json, leaf->path), leaf->path);
    return TR_OK;
}

tr_status tr_take_nesterov(const struct tr_leaf *leaf)
{
    TR_TRY(tr_leaf_expect_boolean(leaf));
    const bool on = json_object_get_boolean(leaf->value);
    struct json_object *type = tr_json_find(leaf->json, "optimizer.type");
    if (type && !strcasecmp(json_object_get_string(type), "sgd"))
        return on ? tr_leaf_fail(leaf, "SGD has no Nesterov momentum") : TR_OK;
    return tr_leaf_set(leaf, "nesterov", on ? "on" : "off");
}

/* ---- Parameters that the optimizer does not have ------------------------------------------------
 */

/* Whether the optimizer has the parameter in DeepSpeed; *any: whether one of them has. */
static bool has_parameter(const char *optimizer, const char *key, bool *any)
{
    bool is_own = false;
    *any = !strcmp(key, "nesterov");
    if (*any) return !strcmp(optimizer, "sgd") || !strcmp(optimizer, "muon");
    for (int i = 0; i < NDEFAULTS; ++i) {
        if (strcmp(defaults[i].key, key) != 0) continue;
        *any = true;
        is_own = is_own || !strcmp(defaults[i].optimizer, optimizer);
    }
    return is_own;
}

tr_status tr_check_optimizer_parameter(const struct tr_leaf *leaf)
{
    static const char section[] = "optimizer.params.";
    const char *key = leaf->path + sizeof section - 1;
    char why[96];
    bool any;
    if (strncmp(leaf->path, section, sizeof section - 1) != 0 ||
        !tr_leaf_has(leaf->json, "optimizer.type"))
        return TR_OK;
    const char *type = json_object_get_string(tr_json_find(leaf->json, "optimizer.type"));
    const char *optimizer = optimizer_called(type);
    if (!strcmp(key, "lr") || !optimizer || has_parameter(optimizer, key, &any) || !any)
        return TR_OK;
    snprintf(why, sizeof why, "%.32s has no such parameter, in DeepSpeed either; leave it out",
             type);
    return tr_leaf_fail(leaf, why);
}
