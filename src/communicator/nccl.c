/* NCCL's variables for users: whether they count, their values, and what each of them does. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/nccl_settings.h"
#include "base/output.h"
#include "base/thread.h"
#include "communicator/communicator.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define OWN_VERSION TEXT(TUTTI_MAJOR) "." TEXT(TUTTI_MINOR) "." TEXT(TUTTI_PATCH)

tuttiResult_t tuttiUseNcclSettings(void)
{
    TT_CANCELS_WAIT;
    if (tt_config_use_nccl()) return tuttiSuccess;
    return tt_result(__func__, tt_fail(TT_ERR_USAGE,
                                       "tuttiUseNcclSettings: the settings have been read without "
                                       "NCCL's variables: call it before any other function"));
}

tuttiResult_t tuttiGetNcclSetting(const char *name, char *value, size_t nbytes)
{
    TT_CANCELS_WAIT;
    if (!name || !value || !nbytes)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT,
                                           "tuttiGetNcclSetting: name or value is NULL, or value "
                                           "has no room"));
    const enum tt_nccl_key key = tt_nccl_find(name, strlen(name));
    if (key == TT_NCCL_COUNT)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT,
                                 "tuttiGetNcclSetting: '%.100s' is not among the variables that "
                                 "NCCL " TT_NCCL_VERSION
                                 " documents (tutti-info --nccl-env lists them)",
                                 name));
    const char *text = tt_config_with_nccl() ? tt_nccl_value(key) : NULL;
    const size_t length = text ? strlen(text) : 0;
    if (length >= nbytes)
        return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT,
                                           "tuttiGetNcclSetting: %s has %zu characters; value has "
                                           "room for %zu",
                                           name, length, nbytes - 1));
    memcpy(value, text ? text : "", length + 1);
    return tuttiSuccess;
}

const char *tuttiNcclSettingName(int index)
{
    return index >= 0 && index < TT_NCCL_COUNT ? tt_nccl_row((enum tt_nccl_key)index)->name : NULL;
}

/* ---- What each variable does ---------------------------------------------------------------- */

static bool lists(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, name, length)) return true;
    return false;
}

/* "TUTTI_TRANSPORT=tcp (NCCL_IB_DISABLE, environment)", for every row that the variable sets. */
static void describe_rows(char *text, size_t size, const char *name)
{
    size_t used = 0;
    text[0] = '\0';
    for (int key = 0; key < TT_CONFIG_COUNT && used < size; key++) {
        const struct tt_config_row *row = tt_config_row((enum tt_config_key)key);
        if (!lists(row->nccl, name)) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s (%s)", used ? ", " : "",
                                 row->name, tt_config_string((enum tt_config_key)key),
                                 tt_config_source((enum tt_config_key)key));
    }
}

static void describe_variable(const struct tt_output *output, enum tt_nccl_key key)
{
    const struct tt_nccl_row *row = tt_nccl_row(key);
    const char *value = tt_config_with_nccl() ? tt_nccl_shown(key) : NULL;
    char given[512] = "", rows[512] = "";
    if (value) snprintf(given, sizeof given, "=%.200s (%.200s)", value, tt_nccl_source(key));
    if (row->effect == TT_NCCL_SETS) describe_rows(rows, sizeof rows, row->name);
    tt_say(output, "%s%s: %s%s%s", row->name, given,
           row->effect == TT_NCCL_SETS   ? rows
           : row->effect == TT_NCCL_READ ? "honoured"
                                         : "without effect",
           rows[0] ? "; " : ": ", row->text);
}

void tt_describe_nccl(const struct tt_output *output)
{
    for (int key = 0; key < TT_NCCL_COUNT; key++) describe_variable(output, (enum tt_nccl_key)key);
}

/* ---- NCCL's lines of an init ---------------------------------------------------------------- */

void tt_comm_log_begin(const struct tt_comm_config *config, int rank)
{
    tt_log_set_device(config->device);
    if (rank == 0 && !config->parent) tt_log_version(TT_NCCL_VERSION "+tutti" OWN_VERSION);
}

/* Every rank of the communicator has the number; it says nothing of the key. */
static unsigned long long number_of(const struct tuttiComm *comm)
{
    static const unsigned char what[] = "commId";
    unsigned char hash[crypto_generichash_BYTES_MIN];
    unsigned long long number;
    crypto_generichash(hash, sizeof hash, what, sizeof what, comm->key, sizeof comm->key);
    memcpy(&number, hash, sizeof number);
    return number;
}

void tt_comm_log_complete(const struct tuttiComm *comm)
{
    if (tt_log_level() < TT_LOG_INFO || !tt_config_with_nccl()) return;
    TT_INFO("comm %p rank %d nranks %d cudaDev %d commId 0x%llx - Init COMPLETE",
            (const void *)comm, comm->core.rank, comm->core.nranks, comm->device, number_of(comm));
}
