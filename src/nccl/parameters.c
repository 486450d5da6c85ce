/* NCCL's access to its settings by name. A parameter is one of the variables NCCL_... that tutti
 * knows; its value is the text that the variable was given. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/face.h"

enum { VALUE_BYTES = 1024, MOST_KEYS = 512 };

static pthread_once_t listed = PTHREAD_ONCE_INIT;
static const char *keys[MOST_KEYS];
static int nkeys;

static void list_keys(void)
{
    const char *name;
    while (nkeys < MOST_KEYS && (name = tuttiNcclSettingName(nkeys))) keys[nkeys++] = name;
}

/* The variable of this name; NULL: there is none. */
static const char *find_key(const char *key)
{
    (void)pthread_once(&listed, list_keys);
    for (int i = 0; key && i < nkeys; i++)
        if (!strcmp(keys[i], key)) return keys[i];
    return NULL;
}

/* The value of a variable of list_keys. */
static ncclResult_t read_value(const char *function, const char *key, char value[VALUE_BYTES])
{
    if (!find_key(key))
        return tt_face_refuse(ncclInvalidArgument, "%s: '%s' is no variable of NCCL's", function,
                              key ? key : "");
    return tt_face_end(tuttiGetNcclSetting(key, value, VALUE_BYTES));
}

/* A handle is the address of a name in the list; NULL: it is none. */
static const char *key_of(ncclParamHandle_t handle)
{
    (void)pthread_once(&listed, list_keys);
    for (int i = 0; i < nkeys; i++)
        if (keys[i] == (const char *)handle) return keys[i];
    return NULL;
}

static ncclResult_t read_by_handle(const char *function, ncclParamHandle_t handle,
                                   char value[VALUE_BYTES])
{
    const char *key = key_of(handle);
    if (key) return read_value(function, key, value);
    return tt_face_refuse(ncclInvalidArgument,
                          "%s: %p is no handle: expected one that ncclParamBind gave", function,
                          (void *)handle);
}

ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key)
{
    const char *found = find_key(key);
    if (!out || !found)
        return tt_face_refuse(ncclInvalidArgument, "ncclParamBind: out is %p, and '%s' %s",
                              (void *)out, key ? key : "",
                              found ? "a variable" : "no variable of NCCL's");
    *out = (ncclParamHandle_t)(uintptr_t)found;
    return ncclSuccess;
}

/* The value as a number between least and most. */
static ncclResult_t read_number(const char *function, ncclParamHandle_t handle, const void *out,
                                int64_t least, uint64_t most, uint64_t *number)
{
    char value[VALUE_BYTES], *end = value;
    if (!out) return tt_face_refuse(ncclInvalidArgument, "%s: out is NULL", function);
    const ncclResult_t result = read_by_handle(function, handle, value);
    if (result) return result;
    const bool is_negative = value[0] == '-', is_number = !isspace((unsigned char)value[0]);
    errno = 0;
    *number = is_negative ? (uint64_t)strtoll(value, &end, 0) : strtoull(value, &end, 0);
    const bool fits = is_negative ? (int64_t)*number >= least : *number <= most;
    if (value[0] && is_number && !*end && !errno && fits) return ncclSuccess;
    return tt_face_refuse(ncclInvalidArgument,
                          "%s: %s is '%s': expected a number from %" PRId64 " to %" PRIu64,
                          function, key_of(handle), value, least, most);
}

#define NUMBER(name, type, least, most)                                                            \
    ncclResult_t pncclParamGet##name(ncclParamHandle_t h, type *out)                               \
    {                                                                                              \
        uint64_t number;                                                                           \
        const ncclResult_t result =                                                                \
            read_number("ncclParamGet" #name, h, out, least, most, &number);                       \
        if (!result) *out = (type)number;                                                          \
        return result;                                                                             \
    }
NUMBER(I8, int8_t, INT8_MIN, INT8_MAX)
NUMBER(I16, int16_t, INT16_MIN, INT16_MAX)
NUMBER(I32, int32_t, INT32_MIN, INT32_MAX)
NUMBER(I64, int64_t, INT64_MIN, INT64_MAX)
NUMBER(U8, uint8_t, 0, UINT8_MAX)
NUMBER(U16, uint16_t, 0, UINT16_MAX)
NUMBER(U32, uint32_t, 0, UINT32_MAX)
NUMBER(U64, uint64_t, 0, UINT64_MAX)

/* Texts that are handed out are valid until this thread asks again. */
static _Thread_local char of_handle[VALUE_BYTES], of_key[VALUE_BYTES];

ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out)
{
    if (!out) return tt_face_refuse(ncclInvalidArgument, "ncclParamGetStr: out is NULL");
    const ncclResult_t result = read_by_handle("ncclParamGetStr", h, of_handle);
    if (!result) *out = of_handle;
    return result;
}

ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len)
{
    char value[VALUE_BYTES];
    const ncclResult_t result = read_by_handle("ncclParamGet", h, value);
    if (result) return result;
    const size_t nbytes = strlen(value) + 1;
    if (len) *len = (int)nbytes; /* also where the room is too small */
    if (!out || !len || maxLen < 0 || (size_t)maxLen < nbytes)
        return tt_face_refuse(ncclInvalidArgument,
                              "ncclParamGet: out is %p, len %p, maxLen %d: expected room for %zu "
                              "bytes",
                              out, (void *)len, maxLen, nbytes);
    memcpy(out, value, nbytes);
    return ncclSuccess;
}

ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen)
{
    if (!value || !valueLen)
        return tt_face_refuse(ncclInvalidArgument,
                              "ncclParamGetParameter: value is %p, valueLen %p", (void *)value,
                              (void *)valueLen);
    const ncclResult_t result = read_value("ncclParamGetParameter", key, of_key);
    if (result) return result;
    *value = of_key;
    *valueLen = (int)strlen(of_key);
    return ncclSuccess;
}

ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen)
{
    if (!table || !tableLen)
        return tt_face_refuse(ncclInvalidArgument,
                              "ncclParamGetAllParameterKeys: table is %p, tableLen %p",
                              (void *)table, (void *)tableLen);
    (void)pthread_once(&listed, list_keys);
    *table = keys;
    *tableLen = nkeys;
    return ncclSuccess;
}

/* The log has no place for a table: tutti-info --nccl-env prints it. */
void pncclParamDumpAll(void) {}

#define TT_IN_PARAMETERS TT_FACE_TWIN
#include "nccl/names_table.h"
