/* cuGetProcAddress: the symbol of a function at a version of CUDA, found by its row in
 * proc_table.h. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

static const char *const rows[] = {
#include "proc_table.h"
};

/* The symbol that a version's suffix of `length` characters makes of the function's name. */
static void spell(char symbol[128], const char *name, int nname, const char *suffix, size_t length)
{
    if (*suffix == '=')
        snprintf(symbol, 128, "%.*s", (int)length - 1, suffix + 1);
    else
        snprintf(symbol, 128, "%.*s%.*s", nname, name, (int)length, suffix);
}

/* The row of this name: behind the name stand the versions. */
static const char *row_of(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; length != 0 && i < sizeof rows / sizeof *rows; i++)
        if (!strncmp(rows[i], name, length) && rows[i][length] == ' ') return rows[i] + length;
    return NULL;
}

/* The symbol of the latest version that is not above the one asked for; false: all are above. */
static bool symbol_of(const char *name, const char *versions, int asked, bool per_thread,
                      char symbol[128])
{
    bool found = false, found_per_thread = false;
    while (*versions != '\0') {
        char *suffix;
        const long version = strtol(versions + 1, &suffix, 10);
        const size_t length = strcspn(suffix, " ");
        const bool of_thread = length >= 5 && (!strncmp(suffix + length - 5, "_ptsz", 5) ||
                                               !strncmp(suffix + length - 5, "_ptds", 5));
        versions = suffix + length;
        if (version > asked || (of_thread && !per_thread) || (found_per_thread && !of_thread))
            continue;
        found = true;
        found_per_thread = of_thread;
        spell(symbol, name, (int)strlen(name), suffix, length);
    }
    return found;
}

int vd_proc_since(const char *symbol)
{
    char made[128];
    int since = INT_MAX;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i], *versions = name + strcspn(name, " ");
        const int nname = (int)(versions - name);
        while (*versions != '\0') {
            char *suffix;
            const long version = strtol(versions + 1, &suffix, 10);
            const size_t length = strcspn(suffix, " ");
            versions = suffix + length;
            if (version >= since || (*suffix != '=' && strncmp(symbol, name, (size_t)nname) != 0))
                continue;
            spell(made, name, nname, suffix, length);
            if (!strcmp(made, symbol)) since = (int)version;
        }
    }
    return since == INT_MAX ? 0 : since;
}

/* This library, whatever name it was loaded by: another libcuda.so.1 may be in the process. */
static void *own_library(void)
{
    static void *library;
    Dl_info info;
    if (library == NULL && dladdr(&rows, &info) != 0)
        library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return library;
}

static CUresult proc_address(const char *name, void **address, int version, cuuint64_t flags,
                             bool per_thread, CUdriverProcAddressQueryResult *status)
{
    char symbol[128];
    if (name == NULL || address == NULL || version > vd_settings_driver_version() ||
        (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    per_thread |= (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    *address = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const char *versions = row_of(name);
    if (versions != NULL && !symbol_of(name, versions, version, per_thread, symbol))
        found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    else if (versions != NULL && own_library() != NULL)
        *address = dlsym(own_library(), symbol);
    if (*address != NULL) found = CU_GET_PROC_ADDRESS_SUCCESS;
    if (status != NULL) {
        *status = found;
        return CUDA_SUCCESS;
    }
    return *address != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return proc_address(name, address, version, flags, false, status);
}

/* The form that cuda.h gives to programs whose default stream is the thread's own. */
VD_PER_THREAD(cuGetProcAddress_v2_ptsz, cuGetProcAddress_v2);
CUresult cuGetProcAddress_v2_ptsz(const char *name, void **address, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    return proc_address(name, address, version, flags, true, status);
}
