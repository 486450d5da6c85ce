/* The options of a run: one table (config_table.h) read from the command line, a JSON file and the
 * checkpoint that is resumed. */
#ifndef TR_CONFIG_H
#define TR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "status.h"

enum { TR_TEXT_BYTES = 1024, TR_NOTES_BYTES = 16384 };

/* Where a value came from; a later source wins over an earlier one. */
enum tr_source { TR_FROM_DEFAULT, TR_FROM_CHECKPOINT, TR_FROM_FILE, TR_FROM_COMMAND_LINE };

/* What the number of each type is in C. */
typedef int64_t TR_FIELD_INT;
typedef double TR_FIELD_REAL;

enum tr_option_id {
#define NUMBER(type, field, ...) TR_OPTION_##field,
#define CHOICE(field, ...) TR_OPTION_##field,
#define TEXT(field, ...) TR_OPTION_##field,
#include "config_table.h"
    TR_NUM_OPTIONS
};

/* A share of the highest learning rate that was given as a learning rate: which share it is, is
 * known when all options are read. */
struct tr_share_rate {
    double rate;
    char where[512]; /* begins errors: file, line, key and value; "": the option is a share */
};

struct tr_config {
#define NUMBER(type, field, ...) TR_FIELD_##type field;
#define CHOICE(field, ...) int64_t field;
#define TEXT(field, ...) char field[TR_TEXT_BYTES];
#include "config_table.h"
    enum tr_source source[TR_NUM_OPTIONS];
    struct tr_share_rate start_rate, min_rate; /* of start_lr and min_lr */
    char coupled[512];                         /* begins the error of a decay of SGD with momentum;
                                                * "": any decay is one */
    char unrated[512];                         /* begins the error of Muon without a learning rate;
                                                * "": the default is one */
    char undecayed[512];                       /* begins the error of a decay of AdamW that is not
                                                * 0; "": any decay is one */
    bool help;                                 /* --help was given */
    bool plan;                                 /* --plan was given */
    bool generates;                            /* `tutti-train generate`: no data, no training */
    char notes[TR_NOTES_BYTES]; /* lines on what a user may not expect, for the start of a run */
    char *more_notes;           /* the lines behind them, which did not fit; NULL: none. Of copies
                                 * one owns them */
};

/* Places of choices in their rows. */
enum { TR_ACTIVATION_AUTO, TR_ACTIVATION_FIRST }; /* behind the first: enum tr_activation_kind */
enum { TR_TIED_AUTO, TR_TIED_ON, TR_TIED_OFF };
enum { TR_REDUCE_EACH, TR_REDUCE_LAST };
enum { TR_RESHARD_AUTO, TR_RESHARD_ALWAYS };
enum { TR_CONTIGUOUS, TR_ZIGZAG };

/* The option called `name` (- and _ alike); -1 when there is none. */
int tr_config_find(const char *name);

/* Letters to add, take away or change to make one name the other (Levenshtein), over at most 32
 * letters of b; 100 for an a of as many letters or more. */
int tr_config_distance(const char *a, const char *b);

/* How many letters (tr_config_distance) a misspelt name may be away from one that is proposed: two
 * of five, as in a pair that was swapped, and not three of six. */
int tr_config_tolerance(const char *name);

/* Fills in the defaults. */
void tr_config_init(struct tr_config *config);
/* Frees what did not fit into the notes. */
void tr_config_fini(struct tr_config *config);

/* Reads argv: --name=value, --name value, and --config FILE for a JSON object of the same names. An
 * unknown name, a value that is no number or out of range fails and names its nearest neighbour. */
TR_NODISCARD tr_status tr_config_parse(struct tr_config *config, int argc, char **argv);

/* Sets option `name` (- and _ alike) from text; keeps a value that came from a later source. */
TR_NODISCARD tr_status tr_config_set(struct tr_config *config, const char *name, const char *text,
                                     enum tr_source source);

/* Gives option `id` its default, which any source then wins over. */
void tr_config_reset(struct tr_config *config, int id);

/* Sets start_lr or min_lr (`id`) from a learning rate of a file; keeps a value that came from the
 * command line. tr_config_check compares the rate with the lr that counts at the end,
 * tr_config_resolve makes it a share of that. `where` begins the error. */
void tr_config_set_rate(struct tr_config *config, int id, double rate, const char *where);

/* Reads a JSON object of option names and of DeepSpeed's keys, with comments. */
TR_NODISCARD tr_status tr_config_read_json(struct tr_config *config, const char *path);

/* Replaces the options that stand for what follows from others (kv-heads 0, hidden 0, tied auto, a
 * share of lr given as a rate) by what they stand for, as the checkpoint then has them; of steps
 * and epochs the one that does not count becomes 0. */
void tr_config_resolve(struct tr_config *config);

/* Takes the options a checkpoint was written with (JSON text; `path` for messages), but for those
 * that were given. A given option of the model, or optimizer, that means something else fails; one
 * that trains otherwise is noted. */
TR_NODISCARD tr_status tr_config_restore(struct tr_config *config, const char *json,
                                         const char *path);

/* Adds a line to the notes. */
void tr_config_note(struct tr_config *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tr_config_print_notes(const struct tr_config *config, FILE *out);

/* A checksum of the options that must be the same on all ranks. */
uint64_t tr_config_checksum(const struct tr_config *config);

/* Checks what no single option can know; what depends on the ranks is setup.h's. */
TR_NODISCARD tr_status tr_config_check(const struct tr_config *config);

/* Whether the user gave the option, on the command line or in a file. */
bool tr_config_given(const struct tr_config *config, int id);

/* The options as one JSON object, in UTF-8; free() it. NULL when out of memory. A byte XX of a
 * value that is no part of a character is \udcXX, which tr_config_restore makes the byte again. */
char *tr_config_to_json(const struct tr_config *config);

/* One line an option: for --help, and the values in use with where they came from. */
void tr_config_print_help(FILE *out);
void tr_config_print(const struct tr_config *config, FILE *out);

/* The rows, for those who read or print them. */
enum tr_option_type { TR_TYPE_INT, TR_TYPE_REAL, TR_TYPE_CHOICE, TR_TYPE_TEXT };
enum tr_option_group { TR_GROUP_MODEL, TR_GROUP_TRAIN, TR_GROUP_PARALLEL, TR_GROUP_RUN };
struct tr_option {
    const char *name, *initial, *sentence;
    const char *choices; /* of a CHOICE: "this|that" */
    double lowest, highest;
    size_t offset;
    enum tr_option_type type;
    enum tr_option_group group;
};
const struct tr_option *tr_config_option(int id);

/* The value as text, in `out`: with all digits, and with six for people. */
void tr_config_value(const struct tr_config *config, int id, char out[TR_TEXT_BYTES]);
void tr_config_show(const struct tr_config *config, int id, char out[TR_TEXT_BYTES]);

#endif
