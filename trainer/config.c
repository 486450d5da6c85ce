/* Reads, checks and prints the options of a run. */
#include "config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "optim/rate.h"
#include "param.h"

/* "|gpt2|llama": the choices of --model, behind one sign. */
static const char model_names[] =
#define ARCHITECTURE(NAME, name) "|" #name
#include "model/architecture_table.h"
    ;

/* The choices of --activation. */
static const char activation_names[] = "auto"
#define ACTIVATION(NAME, name) "|" #name
#include "ops/activation_table.h"
    ;

/* "|adamw|sgd": the choices of --optimizer, behind one sign. */
static const char optimizer_names[] =
#define OPTIMIZER(NAME, name) "|" #name
#include "ops/optimizer_table.h"
    ;

/* "|cosine|constant": the choices of --schedule, behind one sign. */
static const char schedule_names[] =
#define RATE(NAME, function, name, follows) "|" name
#include "optim/rate_table.h"
    ;

#define ROW(field_, name_, initial_, group_, sentence_)                                            \
    .name = name_, .initial = initial_, .sentence = sentence_,                                     \
    .offset = offsetof(struct tr_config, field_), .group = TR_GROUP_##group_
static const struct tr_option options[TR_NUM_OPTIONS] = {
#define NUMBER(type_, field_, name_, initial_, lowest_, highest_, group_, sentence_)               \
    [TR_OPTION_##field_] = {ROW(field_, name_, initial_, group_, sentence_), .lowest = lowest_,    \
                            .highest = highest_, .type = TR_TYPE_##type_},
#define CHOICE(field_, name_, initial_, choices_, group_, sentence_)                               \
    [TR_OPTION_##field_] = {ROW(field_, name_, initial_, group_, sentence_), .choices = choices_,  \
                            .type = TR_TYPE_CHOICE},
#define TEXT(field_, name_, initial_, group_, sentence_)                                           \
    [TR_OPTION_##field_] = {ROW(field_, name_, initial_, group_, sentence_), .type = TR_TYPE_TEXT},
#include "config_table.h"
};

const struct tr_option *tr_config_option(int id)
{
    return &options[id];
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; ++a, ++b) {
        const char x = *a == '_' ? '-' : *a, y = *b == '_' ? '-' : *b;
        if (x != y) return false;
    }
    return *a == *b;
}

int tr_config_find(const char *name)
{
    for (int id = 0; id < TR_NUM_OPTIONS; ++id)
        if (same_name(options[id].name, name)) return id;
    return -1;
}

enum { LONG_NAME = 100 }; /* letters: too many to be a misspelt name */

int tr_config_distance(const char *a, const char *b)
{
    int row[33];
    if (strnlen(a, LONG_NAME) == LONG_NAME) return LONG_NAME;
    const int nb = (int)strnlen(b, 32);
    for (int j = 0; j <= nb; ++j) row[j] = j;
    for (int i = 1; a[i - 1]; ++i) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; ++j) {
            const int above = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[nb];
}

int tr_config_tolerance(const char *name)
{
    return (int)strnlen(name, LONG_NAME) * 2 / 5;
}

/* Names the most similar option, if one is similar. */
static tr_status fail_no_option(const char *name)
{
    int best = 0, best_distance = tr_config_distance(name, options[0].name);
    for (int id = 1; id < TR_NUM_OPTIONS; ++id) {
        const int d = tr_config_distance(name, options[id].name);
        if (d < best_distance) best = id, best_distance = d;
    }
    if (best_distance > tr_config_tolerance(name))
        return tr_fail("no option --%s (--help lists them all)", name);
    return tr_fail("no option --%s; did you mean --%s? (--help lists them all)", name,
                   options[best].name);
}

static tr_status parse_number(const struct tr_option *option, const char *text, double *value)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    const bool decimal = text[strspn(text, "+-.0123456789eE")] == 0;
    if (decimal && end > text && !*end && errno == ERANGE && fabs(number) < 1)
        return tr_fail("--%s=%s: too near to 0 for a number of 64 bits; expected 0, or at least "
                       "%.3g",
                       option->name, text, DBL_MIN);
    if (!decimal || end == text || *end || errno == ERANGE || !isfinite(number))
        return tr_fail("--%s=%s: not a number; expected a decimal one, as 16, 0.5 or 1e-3",
                       option->name, text);
    if (option->type == TR_TYPE_INT && number != floor(number))
        return tr_fail("--%s=%s: not a whole number", option->name, text);
    if (number < option->lowest || number > option->highest)
        return tr_fail("--%s=%s: out of range, expected %.10g to %.10g", option->name, text,
                       option->lowest, option->highest);
    *value = number;
    return TR_OK;
}

/* The index-th of "this|that|other", in `out`; false past the end. */
static bool get_choice(const char *choices, int64_t index, char out[32])
{
    while (index-- > 0) {
        choices = strchr(choices, '|');
        if (!choices) return false;
        ++choices;
    }
    snprintf(out, 32, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

static tr_status parse_choice(const struct tr_option *option, const char *text, double *value)
{
    char choice[32];
    for (int64_t i = 0; get_choice(option->choices, i, choice); ++i)
        if (!strcmp(choice, text)) {
            *value = (double)i;
            return TR_OK;
        }
    return tr_fail("--%s=%s: expected one of %s", option->name, text, option->choices);
}

/* NULL for an option that is no share of the highest learning rate. */
static struct tr_share_rate *rate_of(struct tr_config *config, int id)
{
    return id == TR_OPTION_start_lr ? &config->start_rate
           : id == TR_OPTION_min_lr ? &config->min_rate
                                    : NULL;
}

void tr_config_set_rate(struct tr_config *config, int id, double rate, const char *where)
{
    struct tr_share_rate *share = rate_of(config, id);
    if (config->source[id] > TR_FROM_FILE) return;
    config->source[id] = TR_FROM_FILE;
    share->rate = rate;
    snprintf(share->where, sizeof share->where, "%s", where);
}

tr_status tr_config_set(struct tr_config *config, const char *name, const char *text,
                        enum tr_source source)
{
    const int id = tr_config_find(name);
    if (id < 0) return fail_no_option(name);
    const struct tr_option *option = &options[id];
    char *field = (char *)config + option->offset;
    double number = 0;
    if (option->type == TR_TYPE_CHOICE) {
        TR_TRY(parse_choice(option, text, &number));
    } else if (option->type != TR_TYPE_TEXT) {
        TR_TRY(parse_number(option, text, &number));
    } else if (strlen(text) >= TR_TEXT_BYTES) {
        return tr_fail("--%s: %zu bytes are too long, at most %d", option->name, strlen(text),
                       TR_TEXT_BYTES - 1);
    }
    if (source < config->source[id]) return TR_OK;
    config->source[id] = source;
    if (rate_of(config, id)) rate_of(config, id)->where[0] = 0;
    if (option->type == TR_TYPE_INT || option->type == TR_TYPE_CHOICE)
        *(int64_t *)(void *)field = (int64_t)number;
    else if (option->type == TR_TYPE_REAL)
        *(double *)(void *)field = number;
    else
        strcpy(field, text);
    return TR_OK;
}

void tr_config_reset(struct tr_config *config, int id)
{
    config->source[id] = TR_FROM_DEFAULT;
    const tr_status status =
        tr_config_set(config, options[id].name, options[id].initial, TR_FROM_DEFAULT);
    (void)status; /* the table's own defaults; a test sets each of them */
}

void tr_config_init(struct tr_config *config)
{
    memset(config, 0, sizeof *config);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) tr_config_reset(config, id);
}

void tr_config_value(const struct tr_config *config, int id, char out[TR_TEXT_BYTES])
{
    const char *field = (const char *)config + options[id].offset;
    if (options[id].type == TR_TYPE_INT)
        snprintf(out, TR_TEXT_BYTES, "%lld", (long long)*(const int64_t *)(const void *)field);
    else if (options[id].type == TR_TYPE_REAL)
        snprintf(out, TR_TEXT_BYTES, "%.17g", *(const double *)(const void *)field);
    else if (options[id].type == TR_TYPE_CHOICE)
        get_choice(options[id].choices, *(const int64_t *)(const void *)field, out);
    else
        memcpy(out, field, TR_TEXT_BYTES);
}

void tr_config_show(const struct tr_config *config, int id, char out[TR_TEXT_BYTES])
{
    tr_config_value(config, id, out);
    if (options[id].type != TR_TYPE_REAL) return;
    const double value = strtod(out, NULL);
    for (int digits = 1; digits <= 17; ++digits) { /* the fewest that give the value again */
        snprintf(out, TR_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    /* 10 in place of 1e+01 */
    if (strchr(out, '+') && value == floor(value) && fabs(value) < 1e15)
        snprintf(out, TR_TEXT_BYTES, "%.0f", value);
}

tr_status tr_config_parse(struct tr_config *config, int argc, char **argv)
{
    for (int i = 1; i < argc; ++i) {
        const char *argument = argv[i];
        if (!strcmp(argument, "--help") || !strcmp(argument, "-h")) {
            config->help = true;
            continue;
        }
        if (!strcmp(argument, "--plan")) {
            config->plan = true;
            continue;
        }
        if (strncmp(argument, "--", 2) != 0)
            return tr_fail("%s: unexpected argument; options are --name=value (--help lists them)",
                           argument);
        char name[64];
        const char *equals = strchr(argument, '=');
        const size_t length = equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        if (length >= sizeof name) return tr_fail("no option %s (--help lists them)", argument);
        memcpy(name, argument + 2, length);
        name[length] = 0;
        if (!strcmp(name, "plan") || !strcmp(name, "help"))
            return tr_fail("%s: --%s takes no value", argument, name);
        if (strcmp(name, "config") != 0 && tr_config_find(name) < 0) return fail_no_option(name);
        if (!equals && i + 1 >= argc) return tr_fail("--%s: the value is missing", name);
        const char *value = equals ? equals + 1 : argv[++i];
        if (!strcmp(name, "config"))
            TR_TRY(tr_config_read_json(config, value));
        else
            TR_TRY(tr_config_set(config, name, value, TR_FROM_COMMAND_LINE));
    }
    return TR_OK;
}

static tr_status check_rate(const struct tr_config *config, const struct tr_share_rate *share)
{
    if (!share->where[0] || (share->rate >= 0 && share->rate <= config->lr)) return TR_OK;
    return tr_fail("%s: expected 0 to --lr=%g, the highest learning rate", share->where,
                   config->lr);
}

static tr_status check_activation(const struct tr_config *config)
{
    const struct tr_architecture *architecture = tr_architectures[config->model];
    char name[TR_TEXT_BYTES];
    tr_config_value(config, TR_OPTION_activation, name);
    if (config->activation == TR_ACTIVATION_AUTO || !architecture->gated) return TR_OK;
    return tr_fail("--activation=%.32s: the MLP of %s has a gate with an activation of its own; "
                   "leave the option out, or take a --model without a gate",
                   name, architecture->title);
}

tr_status tr_config_check(const struct tr_config *config)
{
    TR_TRY(check_rate(config, &config->start_rate));
    TR_TRY(check_rate(config, &config->min_rate));
    TR_TRY(check_activation(config));
    if (config->undecayed[0] && config->optimizer == TR_ADAMW && config->decay != 0)
        return tr_fail("%s: weight decay is decoupled (AdamW) always, and --decay is %g; set "
                       "adam_w_mode to true, or --decay to 0",
                       config->undecayed, config->decay);
    if (config->coupled[0] && config->optimizer == TR_SGD && config->decay != 0 &&
        config->momentum != 0)
        return tr_fail(
            "%s: SGD: DeepSpeed's weight decay goes through the momentum, tutti-train's is "
            "decoupled, and --decay is %g, --momentum %g; set one of the two to 0",
            config->coupled, config->decay, config->momentum);
    if (config->unrated[0] && config->optimizer == TR_MUON &&
        config->source[TR_OPTION_lr] == TR_FROM_DEFAULT)
        return tr_fail("%s: Muon without a learning rate: DeepSpeed takes 0.02 for matrices and "
                       "3e-4 for the rest, tutti-train has one for both; give "
                       "optimizer.params.lr, or --lr",
                       config->unrated);
    if (config->every && !config->checkpoint[0])
        return tr_fail("--every=%lld without --checkpoint=DIR: nowhere to write to",
                       (long long)config->every);
    if (config->keep && !config->checkpoint[0])
        return tr_fail("--keep=%lld without --checkpoint=DIR: there are no checkpoints to keep",
                       (long long)config->keep);
    if (config->trust_min > config->trust_max)
        return tr_fail("--trust-min=%g exceeds --trust-max=%g", config->trust_min,
                       config->trust_max);
    if (config->steps && config->epochs > 0 &&
        config->source[TR_OPTION_steps] == config->source[TR_OPTION_epochs])
        return tr_fail("--steps=%lld and --epochs=%g: both say how long the run is; leave one out",
                       (long long)config->steps, config->epochs);
    if (config->plot[0] && !strcmp(config->plot, config->log))
        return tr_fail("--plot=%s: --log has the same file; give each one of its own",
                       config->plot);
    TR_TRY(tr_rate_check(config));
    if (config->ranks && !config->plan)
        return tr_fail("--ranks=%lld is for --plan; how many ranks train is the launcher's to say "
                       "(tutti-run -n %lld tutti-train ...)",
                       (long long)config->ranks, (long long)config->ranks);
    if (config->svg[0] && !config->plan)
        return tr_fail("--svg=%s is for --plan; --plot=%s draws a training", config->svg,
                       config->svg);
    return TR_OK;
}

/* Behind what does not fit into notes. */
static bool append_note(struct tr_config *config, const char *line)
{
    const size_t used = config->more_notes ? strlen(config->more_notes) : 0, n = strlen(line) + 1;
    char *more = realloc(config->more_notes, used + n);
    if (!more) return false;
    memcpy(more + used, line, n);
    config->more_notes = more;
    return true;
}

void tr_config_note(struct tr_config *config, const char *format, ...)
{
    va_list args, again;
    const size_t used = strlen(config->notes), room = TR_NOTES_BYTES - used;
    char *line = NULL;
    va_start(args, format);
    va_copy(again, args);
    if (config->more_notes || vsnprintf(config->notes + used, room, format, args) >= (int)room) {
        config->notes[used] = 0;
        if (vasprintf(&line, format, again) < 0) line = NULL;
        if (!line || !append_note(config, line)) fprintf(stderr, "%s", line ? line : format);
        free(line);
    }
    va_end(again);
    va_end(args);
}

void tr_config_print_notes(const struct tr_config *config, FILE *out)
{
    fprintf(out, "%s%s", config->notes, config->more_notes ? config->more_notes : "");
}

void tr_config_fini(struct tr_config *config)
{
    free(config->more_notes);
    config->more_notes = NULL;
}

bool tr_config_given(const struct tr_config *config, int id)
{
    return config->source[id] > TR_FROM_CHECKPOINT;
}

static void resolve_rate(double lr, struct tr_share_rate *share, double *option)
{
    if (share->where[0]) *option = lr > 0 ? share->rate / lr : 0;
    share->where[0] = 0;
}

void tr_config_resolve(struct tr_config *config)
{
    const struct tr_architecture *architecture = tr_architectures[config->model];
    /* Of steps and epochs the later source counts: what was given, not what a checkpoint has. */
    if (config->source[TR_OPTION_steps] > config->source[TR_OPTION_epochs]) {
        if (config->steps) config->epochs = 0;
    } else if (config->epochs > 0) {
        config->steps = 0;
    }
    resolve_rate(config->lr, &config->start_rate, &config->start_lr);
    resolve_rate(config->lr, &config->min_rate, &config->min_lr);
    if (!config->kv_heads) config->kv_heads = config->heads;
    if (!config->hidden) config->hidden = architecture->hidden((long)config->width);
    if (config->activation == TR_ACTIVATION_AUTO && !architecture->gated)
        config->activation = TR_ACTIVATION_FIRST + (int64_t)architecture->activation;
    if (config->tied == TR_TIED_AUTO) config->tied = architecture->tied ? TR_TIED_ON : TR_TIED_OFF;
}

/* Each rank may have its own: where it reads and writes, and on what (of the vector codes that
 * ranks are given all take the oldest). */
static bool may_differ(int id)
{
    static const int ids[] = {TR_OPTION_cpu,        TR_OPTION_threads, TR_OPTION_data,
                              TR_OPTION_resume,     TR_OPTION_log,     TR_OPTION_log_every,
                              TR_OPTION_checkpoint, TR_OPTION_plot};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; ++i)
        if (ids[i] == id) return true;
    return false;
}

static uint64_t add(uint64_t sum, const void *bytes, size_t n)
{
    return (sum << 1 | sum >> 63) ^ tr_checksum(bytes, n);
}

uint64_t tr_config_checksum(const struct tr_config *config)
{
    const struct tr_share_rate *const rates[] = {&config->start_rate, &config->min_rate};
    uint64_t sum = (config->checkpoint[0] != 0) + 2u * (config->resume[0] != 0);
    for (int i = 0; i < 2; ++i)
        if (rates[i]->where[0]) sum = add(sum, &rates[i]->rate, sizeof rates[i]->rate);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES];
        tr_config_value(config, id, value);
        if (!may_differ(id)) sum = add(sum, value, strlen(value));
    }
    return sum;
}

void tr_config_print_help(FILE *out)
{
    static const char *const titles[] = {"Model", "Training", "Parallelism", "This run"};
    fprintf(out,
            "tutti-train: trains a byte-level transformer on text.\n\n"
            "  tutti-train [--name=value ...] [--config FILE.json]\n"
            "  tutti-run -n 2 tutti-train --seconds=60\n"
            "  tutti-run -n 8 tutti-train --model=llama --pp=2 --fsdp=2 --tp=2\n"
            "  tutti-train --plan --ranks=8 --pp=2 --tp=2\n"
            "  tutti-train generate --from=FOLDER --prompt=TEXT\n\n"
            "The ranks form a mesh of the axes pp, dp, fsdp, ring, ulysses and tp, which multiply "
            "to all ranks.\n"
            "--plan prints mesh, layouts, schedule, memory and communication, and trains nothing. "
            "A JSON file\n"
            "has the same names; the command line wins over it. Each line below: option, default, "
            "meaning.\n");
    for (int group = 0; group < 4; ++group) {
        fprintf(out, "\n%s\n", titles[group]);
        for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
            if ((int)options[id].group != group) continue;
            const char *choices = options[id].choices;
            fprintf(out, "  --%-18s %-8s %s%s%s%s\n", options[id].name,
                    options[id].initial[0] ? options[id].initial : "(empty)", options[id].sentence,
                    choices ? " (" : "", choices ? choices : "", choices ? ")" : "");
        }
    }
}

void tr_config_print(const struct tr_config *config, FILE *out)
{
    static const char *const sources[] = {"", "  (checkpoint)", "  (file)", "  (given)"};
    int column = 0;
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES], cell[TR_TEXT_BYTES + 64];
        tr_config_show(config, id, value);
        if (options[id].type == TR_TYPE_TEXT && !value[0]) continue;
        snprintf(cell, sizeof cell, "%-13s %s%s", options[id].name, value,
                 sources[config->source[id]]);
        fprintf(out, "  %-36s", cell);
        if (++column % 3 == 0) fputc('\n', out);
    }
    if (column % 3) fputc('\n', out);
}
