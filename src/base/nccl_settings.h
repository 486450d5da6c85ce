/* NCCL's variables as settings of tutti: NCCL_... in the environment and in nccl.conf. Nothing here
 * has an effect unless tt_config_use_nccl was called (base/config.h). Used by the config table and
 * the log; others see the rows that the variables set. */
#ifndef TT_BASE_NCCL_SETTINGS_H
#define TT_BASE_NCCL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#include "base/log.h"

/* What tutti takes NCCL's place as: the newest version whose behaviour it has. */
#define TT_NCCL_VERSION "2.30.7"

enum tt_nccl_key {
#define N(name, effect, text) TT_NCCL_##name,
#include "base/nccl_table.h"
#undef N
    TT_NCCL_COUNT
};

enum tt_nccl_effect { TT_NCCL_SETS, TT_NCCL_READ, TT_NCCL_NONE, TT_NCCL_ASKS, TT_NCCL_PLUGIN };

struct tt_nccl_row {
    const char *name; /* "NCCL_..." */
    enum tt_nccl_effect effect;
    const char *text; /* how the value is read, or why it has no effect */
};

/* The row's description; static storage. */
const struct tt_nccl_row *tt_nccl_row(enum tt_nccl_key key);

/* The variable of that name; TT_NCCL_COUNT: none of the table. */
enum tt_nccl_key tt_nccl_find(const char *name, size_t length);

/* Reads the environment by the given function, then $NCCL_CONF_FILE (else ~/.nccl.conf), then
 * /etc/nccl.conf: the first value of a variable holds. Lines NAME=VALUE; '#' starts a comment. Also
 * forgets the notes. Not while others use what follows. */
void tt_nccl_load(const char *(*environment)(const char *name));

/* The variable's value as it was given; NULL: unset or empty. Valid until the next load. */
const char *tt_nccl_value(enum tt_nccl_key key);

/* tt_nccl_value for the log and for users: a secret is not shown. */
const char *tt_nccl_shown(enum tt_nccl_key key);

/* Where it was given: "environment" or the file's path; "unset". */
const char *tt_nccl_source(enum tt_nccl_key key);

/* A value of the config table made of NCCL's variables. */
struct tt_nccl_setting {
    char text[1024];       /* as the row wants it */
    char source[256];      /* "NCCL_NET, environment; NCCL_IB_DISABLE, /etc/nccl.conf" */
    enum tt_nccl_key from; /* the first of them */
    char wrong[256];       /* "": nothing. Why no communicator can be made with the value given */
};

/* Makes the value of a row, whose default is `fallback`. False: no variable gives it one. A value
 * that is not understood is noted with what was expected, and has no effect; or `wrong` says so. */
bool tt_nccl_convert(enum tt_config_key key, const char *fallback, struct tt_nccl_setting *setting);

/* Keeps a line for the log, which cannot be written while settings are read. */
void tt_nccl_note(enum tt_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Notes what was given without effect; after all rows were converted. */
void tt_nccl_note_unused(void);

/* Hands the notes over in their order, once. */
void tt_nccl_take_notes(void (*take)(enum tt_log_level level, const char *text));

#endif
