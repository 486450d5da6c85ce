/* NCCL's structs of settings, of every version since 2.14. `size` and `version` say which fields
 * the caller has. Most fields are about NVIDIA's hardware and have no effect, but a value that NCCL
 * would refuse is refused. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "nccl/face.h"

/* The size of ncclConfig_t from a version on. */
static const struct {
    unsigned since;
    size_t nbytes;
} sizes[] = {{21400, 24}, {21700, 40}, {21800, 48}, {22700, 72},
             {22800, 80}, {22900, 88}, {23000, 96}, {23100, 104}};
enum { NSIZES = sizeof sizes / sizeof sizes[0], EXACT_BEFORE = 23100 };

/* A field that is an int: from least to most, or `also`. */
struct field {
    const char *name;
    size_t offset;
    unsigned since;
    int least, most, also;
};

static const struct field fields[] = {
#define FIELD_OR(name, since, least, most, also)                                                   \
    {                                                                                              \
#name, offsetof(ncclConfig_t, name), since, least, most, also                              \
    }
#define FIELD(name, since, least, most) FIELD_OR(name, since, least, most, NCCL_CONFIG_UNDEF_INT)
    FIELD(blocking, 21400, 0, 1),
    FIELD(cgaClusterSize, 21700, 0, INT_MAX),
    FIELD(minCTAs, 21700, 1, INT_MAX),
    FIELD(maxCTAs, 21700, 1, INT_MAX),
    FIELD(splitShare, 21800, 0, 1),
    FIELD(collnetEnable, 22700, 0, 1),
    FIELD(CTAPolicy, 22700, 0, 3),
    FIELD(shrinkShare, 22700, 0, 1),
    FIELD(nvlsCTAs, 22700, 1, INT_MAX),
    FIELD(nChannelsPerNetPeer, 22800, 1, INT_MAX),
    FIELD(nvlinkCentricSched, 22800, 0, 1),
    FIELD(graphUsageMode, 22900, 0, 2),
    FIELD(numRmaCtx, 22900, 0, INT_MAX),
    FIELD(maxP2pPeers, 23000, 1, INT_MAX),
    FIELD(graphStreamOrdering, 23005, 0, 1),
    FIELD(launchOrderImplicit, 23100, 0, 1),
    FIELD(numRmaSig, 23100, 0, INT_MAX),
    FIELD(rmaEagerInit, 23100, 0, 1),
    FIELD(hostCftMode, 23100, 1, 3),
    FIELD_OR(nvlsHostMode, 23100, 0, 3, INT_MAX), /* two flags, or all there will ever be */
#undef FIELD
#undef FIELD_OR
};

static ncclResult_t check_ints(const char *function, const void *config, size_t nbytes,
                               unsigned version, const struct field *list, size_t nfields)
{
    for (size_t i = 0; i < nfields; i++) {
        int value;
        if (version < list[i].since || list[i].offset + sizeof value > nbytes) continue;
        memcpy(&value, (const char *)config + list[i].offset, sizeof value);
        if (value == NCCL_CONFIG_UNDEF_INT || value == list[i].also ||
            (value >= list[i].least && value <= list[i].most))
            continue;
        return tt_face_refuse(ncclInvalidArgument,
                              "%s: the config's %s is %d: expected %d to %d%s, or "
                              "NCCL_CONFIG_UNDEF_INT",
                              function, list[i].name, value, list[i].least, list[i].most,
                              list[i].also == INT_MAX ? ", INT_MAX" : "");
    }
    return ncclSuccess;
}

static ncclResult_t check_magic(const char *function, const char *initializer, unsigned magic,
                                unsigned version, unsigned least)
{
    if (magic != NCCL_API_MAGIC)
        return tt_face_refuse(ncclInvalidArgument,
                              "%s: the config's magic is %#x: expected %#x, which %s sets",
                              function, magic, NCCL_API_MAGIC, initializer);
    if (version < least || version >= 100000)
        return tt_face_refuse(ncclInvalidArgument,
                              "%s: the config's version is %u: expected one from %u on, which %s "
                              "sets",
                              function, version, least, initializer);
    return ncclSuccess;
}

/* The sizes of later versions are not known: at least what is known. */
static ncclResult_t check_size(const char *function, size_t nbytes, unsigned version)
{
    size_t expected = sizes[0].nbytes;
    for (int i = 0; i < NSIZES && sizes[i].since <= version; i++) expected = sizes[i].nbytes;
    const bool is_right = version < EXACT_BEFORE ? nbytes == expected : nbytes >= expected;
    if (is_right) return ncclSuccess;
    return tt_face_refuse(
        ncclInvalidArgument, "%s: the config's size is %zu: version %u of NCCL has %s%zu bytes",
        function, nbytes, version, version < EXACT_BEFORE ? "" : "at least ", expected);
}

ncclResult_t tt_face_read_config(const char *function, const ncclConfig_t *config,
                                 tuttiConfig_t *settings)
{
    static const char initializer[] = "NCCL_CONFIG_INITIALIZER";
    if (!config) return ncclSuccess;
    const size_t nbytes = config->size;
    const unsigned version = config->version;
    ncclResult_t result = check_magic(function, initializer, config->magic, version, 21400);
    if (!result) result = check_size(function, nbytes, version);
    if (!result)
        result =
            check_ints(function, config, nbytes, version, fields, sizeof fields / sizeof fields[0]);
    if (result) return result;
    if (version >= 21700 && config->minCTAs != NCCL_CONFIG_UNDEF_INT &&
        config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->minCTAs > config->maxCTAs)
        return tt_face_refuse(ncclInvalidArgument,
                              "%s: the config's minCTAs is %d and maxCTAs %d: expected the least "
                              "first",
                              function, config->minCTAs, config->maxCTAs);
    if (version >= 22700) settings->commName = config->commName;
    return ncclSuccess;
}

/* ---- The config of a call ------------------------------------------------------------------- */

static const struct field call_fields[] = {
#define FIELD(name, least, most)                                                                   \
    {                                                                                              \
#name, offsetof(ncclCollConfig_t, name), 23100, least, most, NCCL_CONFIG_UNDEF_INT         \
    }
    FIELD(minCTAs, 1, INT_MAX),  FIELD(maxCTAs, 1, INT_MAX),
    FIELD(nvlsCTAs, 1, INT_MAX), FIELD(cgaClusterSize, 0, INT_MAX),
    FIELD(CTAPolicy, 0, 3),      FIELD(forceAlgSelection, 0, INT_MAX),
#undef FIELD
};

static ncclResult_t check_call_config(const char *function, const ncclCollConfig_t *config)
{
    static const char initializer[] = "NCCL_COLLCONFIG_INITIALIZER";
    const size_t least = offsetof(ncclCollConfig_t, launchCompletionEvent);
    if (!config) return ncclSuccess;
    const size_t nbytes = config->size;
    ncclResult_t result = check_magic(function, initializer, config->magic, config->version, 23100);
    if (!result && nbytes < least)
        result =
            tt_face_refuse(ncclInvalidArgument,
                           "%s: the config's size is %zu: expected at least %zu, which %s sets",
                           function, nbytes, least, initializer);
    if (!result)
        result = check_ints(function, config, nbytes, config->version, call_fields,
                            sizeof call_fields / sizeof call_fields[0]);
    if (result) return result;
    if (config->algSelection && config->algSelection[0] && config->forceAlgSelection)
        return tt_face_refuse(ncclInvalidUsage,
                              "%s: the config selects the algorithm '%.64s': tutti chooses one "
                              "itself; set forceAlgSelection = 0, or TUTTI_ALGORITHM for all calls",
                              function, config->algSelection);
    if (nbytes >= sizeof *config && config->version >= 23200 && config->launchCompletionEvent)
        return tt_face_refuse(ncclInvalidUsage,
                              "%s: the config's launchCompletionEvent is not there yet in tutti's "
                              "libnccl.so.2: record an event behind the call",
                              function);
    return ncclSuccess;
}

ncclResult_t tt_face_check_call_config(const char *function, const ncclCollConfig_t *config)
{
    return tt_face_fail_group(check_call_config(function, config));
}

/* ---- What a new communicator has ------------------------------------------------------------ */

/* Before all calls: whichever is the first may read the settings, if only to log its error. */
__attribute__((constructor)) static void use_settings(void)
{
    (void)tuttiUseNcclSettings();
}

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static int has_timeout, has_init_timeout, has_late; /* whether the setting is given */

/* Without a deadline a line says who is missing. */
enum { LATE_MS = 60000 };

static void look(void)
{
    (void)tuttiIsSettingGiven("TUTTI_TIMEOUT_MS", &has_timeout);
    (void)tuttiIsSettingGiven("TUTTI_INIT_TIMEOUT_MS", &has_init_timeout);
    (void)tuttiIsSettingGiven("TUTTI_LATE_MS", &has_late);
}

/* As in NCCL there is no deadline of calls or of init, unless the user sets one, and buffers may
 * overlap. A wait of a minute is logged. A split has its parent's settings. */
ncclResult_t tt_face_new_settings(const char *function, const ncclConfig_t *config,
                                  tuttiConfig_t *settings)
{
    (void)pthread_once(&looked, look);
    (void)tt_face_look_for_gpus();
    *settings = (tuttiConfig_t)TUTTI_CONFIG_INITIALIZER;
    if (!has_timeout) settings->timeoutMs = 0;
    if (!has_init_timeout) settings->initTimeoutMs = 0;
    if (!has_late) settings->lateMs = LATE_MS;
    settings->device = TUTTI_DEVICE_CURRENT;
    settings->overlaps = 1;
    settings->hostPagesStay = 1; /* programs of NCCL use memory while they register it */
    return tt_face_read_config(function, config, settings);
}
