/* The one config table, and the only reader of the environment. */
#ifndef TT_BASE_CONFIG_H
#define TT_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum tt_config_key {
#define X(key, name, nccl, type, fallback, sentence) TT_CONFIG_##key,
#include "base/config_table.h"
#undef X
    TT_CONFIG_COUNT
};

/* The value of a setting of type REQUIRE that is `require`. */
enum { TT_CONFIG_REQUIRE = 2 };

struct tt_config_row {
    const char *name;     /* environment variable */
    const char *nccl;     /* variables of NCCL, comma-separated, that set it too; "": none */
    const char *type;     /* INT, SIZE, BOOL, AUTO, REQUIRE, STRING, LEVEL */
    const char *fallback; /* default, as text */
    const char *sentence; /* what it does */
    bool security;        /* a value that does not parse is an error: tt_config_check */
};

/* The row's description; static storage. */
const struct tt_config_row *tt_config_row(enum tt_config_key key);

/* The value in force as a number (INT, SIZE in bytes, BOOL 0/1, AUTO -1/0/1, REQUIRE 0/1/2, LEVEL).
 * A value that does not parse is reported once on stderr with what was expected, and the default is
 * used; that of a security setting makes tt_config_check fail. */
int64_t tt_config_int(enum tt_config_key key);

/* TT_ERR_ARGUMENT when the value of a security setting or of NCCL_COMM_ID is not understood: names
 * the setting, the value, where it came from and what is accepted; or when a settings file was not
 * read because others may write it: names it and the remedy. To be called before a communicator is
 * made. */
TT_NODISCARD tt_status tt_config_check(void);

/* The value in force as text; "" when unset and without a default. Valid until exit. */
const char *tt_config_string(enum tt_config_key key);

/* Where the value came from: "default", "environment" or the file's path; of NCCL's variables their
 * names and places ("NCCL_NET, environment"). */
const char *tt_config_source(enum tt_config_key key);

/* Lets NCCL's variables set rows too (nccl_settings.h): what is given by a row's own name wins.
 * Before the settings are read for the first time; false: they were read, and nothing changes. */
bool tt_config_use_nccl(void);

/* Whether NCCL's variables set rows. */
bool tt_config_with_nccl(void);

/* Whether a variable of NCCL gave the value in force. */
bool tt_config_is_nccl(enum tt_config_key key);

/* The variable that gave the value in force: NCCL's, or the row's own; for messages. */
const char *tt_config_name(enum tt_config_key key);

/* Rereads environment and files; for tests only: nobody else may be reading. */
void tt_config_reload(void);
void tt_config_reload_with_nccl(bool nccl);

/* A launcher's variable (RANK, MASTER_ADDR, ...), NULL when unset. Not for tutti's own settings. */
const char *tt_environment(const char *name);

/* Parses "64", "32K", "1M", "2G" (binary). 0 done, -1 not a size. */
int tt_parse_size(const char *text, int64_t *value);

#endif
