/* See settings.h. A row of the table says where a variable's value lies in struct vd_settings, of
 * which kind it is, and what it may be. */
#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum kind { UINT32, INT, UINT64, SWITCH, BYTES, CAPABILITY, CHOICE, TEXT };

struct setting {
    const char *name;
    enum kind kind;
    size_t offset;
    uint64_t least, most;
    const char *standard;  /* the default, as it could stand in the environment */
    const char *choice[4]; /* CHOICE: the names of 0, 1, 2, 3 */
    const char *sentence;
};

#define AT(member) offsetof(struct vd_settings, member)
static const struct setting table[] = {
    {"VGPU_SEED",
     UINT64,
     AT(seed),
     0,
     UINT64_MAX,
     "1",
     {0},
     "decides the order of all that CUDA and the memory model leave open; reports print it"},
    {"VGPU_DEVICES", INT, AT(devices), 0, VD_DEVICES, "1", {0}, "GPUs"},
    {"VGPU_SMS",
     UINT32,
     AT(sms),
     1,
     1024,
     "132",
     {0},
     "multiprocessors of a GPU: with the shared memory and threads of a block they limit how many "
     "blocks run at once"},
    {"VGPU_SM_LIMIT",
     UINT32,
     AT(sm_limit),
     0,
     1024,
     "0",
     {0},
     "multiprocessors of a GPU that this process may use, as a client of MPS with a limit: "
     "cuCtxGetExecAffinity tells them; 0: all"},
    {"VGPU_CAPABILITY",
     CAPABILITY,
     AT(capability),
     75,
     90,
     "9.0",
     {0},
     "compute capability of the GPUs: 7.5, 8.0, 8.6, 8.7, 8.9 or 9.0"},
    {"VGPU_QUEUES",
     UINT32,
     AT(queues),
     1,
     VD_MOST_QUEUES,
     "8",
     {0},
     "hardware queues of a process and GPU, which streams share: work that waits holds up what is "
     "behind it; where this is not set, CUDA_DEVICE_MAX_CONNECTIONS counts"},
    {"VGPU_LAUNCHES",
     UINT32,
     AT(launches),
     1,
     UINT32_MAX,
     "1021",
     {0},
     "launches that wait in a hardware queue; one more waits in the call"},
    {"VGPU_DRIVER_LOCK",
     CHOICE,
     AT(driver_lock),
     0,
     2,
     "off",
     {"off", "on", "strict"},
     "whether cuMemFree, cuMemFreeHost, cuCtxSynchronize and a launch that finds no room hold a "
     "lock of the driver while they wait, which launches, event records and allocations of other "
     "threads need; strict: all calls"},
    {"VGPU_MEMORY",
     BYTES,
     AT(memory),
     16 << 20,
     UINT64_C(1) << 39,
     "16G",
     {0},
     "memory of a GPU; the host's memory is taken as it is written"},
    {"VGPU_BLOCK_ORDER",
     CHOICE,
     AT(shuffled_blocks),
     0,
     1,
     "index",
     {"index", "shuffled"},
     "order in which the blocks of a grid start"},
    {"VGPU_VECTOR",
     CHOICE,
     AT(strict_vectors),
     0,
     1,
     "whole",
     {"whole", "strict"},
     "whether a vector access is one step, or several in any order with others between"},
    {"VGPU_UNDEFINED",
     SWITCH,
     AT(check_undefined),
     0,
     1,
     "0",
     {0},
     "1: a kernel that reads memory that nobody wrote fails"},
    {"VGPU_MODEL",
     SWITCH,
     AT(model),
     0,
     1,
     "1",
     {0},
     "0: no memory model: every load sees the newest value, no race is reported; three times as "
     "fast"},
    {"VGPU_READS",
     CHOICE,
     AT(reads),
     0,
     2,
     "random",
     {"random", "newest", "oldest"},
     "which of the values that the memory model allows a relaxed load returns"},
    {"VGPU_DEPTH",
     UINT32,
     AT(depth),
     2,
     16,
     "8",
     {0},
     "writes of a word that are kept for loads that may return an older value"},
    {"VGPU_LATE",
     UINT32,
     AT(late),
     1,
     UINT32_MAX,
     "10000",
     {0},
     "a write is seen by everybody after so many accesses at the latest"},
    {"VGPU_PATIENCE",
     UINT32,
     AT(patience),
     1,
     UINT32_MAX,
     "1000",
     {0},
     "instructions without a store, a barrier or a new value after which a thread lets others run"},
    {"VGPU_QUANTUM",
     UINT32,
     AT(quantum),
     1,
     UINT32_MAX,
     "2000",
     {0},
     "instructions of a warp after which another one may run"},
    {"VGPU_SPIN_LIMIT",
     UINT32,
     AT(spin_limit),
     0,
     UINT32_MAX,
     "0",
     {0},
     "instructions without memory, barriers or other lanes after which a thread hangs; 0: 2^24 if "
     "it looks at the time, else none"},
    {"VGPU_PEERS",
     SWITCH,
     AT(peers),
     0,
     1,
     "1",
     {0},
     "whether GPUs can access each other's memory (cuDeviceCanAccessPeer)"},
    {"VGPU_PEER_BROKEN",
     TEXT,
     AT(broken),
     0,
     0,
     "",
     {0},
     "pairs of GPUs, as 0-1,1-0: stores of kernels of the first to memory of the second (0-0: of "
     "other processes) are lost, "
     "and loads give ones; copies are right"},
    {"VGPU_TOPOLOGY",
     TEXT,
     AT(topology),
     0,
     0,
     "",
     {0},
     "groups of GPUs, as 0,1|2,3: those of one are linked by NVLink, others by PCIe"},
    {"VGPU_PAGEABLE",
     SWITCH,
     AT(pageable),
     0,
     1,
     "0",
     {0},
     "1: GPUs say that kernels can access pageable memory of the host, as GH200 does; they cannot"},
    {"VGPU_EXCLUSIVE",
     TEXT,
     AT(exclusive),
     0,
     0,
     "",
     {0},
     "file, made where it is not there: among the processes that name it a GPU takes one at a "
     "time, "
     "as in compute mode EXCLUSIVE_PROCESS"},
    {"VGPU_DMABUF",
     CHOICE,
     AT(dmabuf),
     0,
     3,
     "on",
     {"on", "unordered", "unflushed", "off"},
     "whether other devices can use a GPU's memory by dma-buf, and whether its work sees their "
     "writes in their order, after cuFlushGPUDirectRDMAWrites, or never for certain"},
    {"VGPU_STALL_MS",
     UINT32,
     AT(stall_ms),
     1,
     UINT32_MAX,
     "5000",
     {0},
     "time without progress after which kernels that wait are reported"},
    {"VGPU_IDLE_MS",
     UINT32,
     AT(idle_ms),
     0,
     UINT32_MAX,
     "5",
     {0},
     "time without a call after which work goes on without one; then the seed alone does not "
     "replay the process"},
    {"VGPU_REPORT",
     TEXT,
     AT(report),
     0,
     0,
     "",
     {0},
     "file to which reports are added as JSON, a line each"},
    {"VGPU_SUPPRESS",
     TEXT,
     AT(suppress),
     0,
     0,
     "",
     {0},
     "file of reports that are not made: lines of kind, kernel and place, as docs/vgpu.md says"},
    {"VGPU_COUNTS",
     TEXT,
     AT(counts),
     0,
     0,
     "",
     {0},
     "file in which processes and kernels are counted, made by vgpu-run"},
    {"VGPU_LEAKS",
     SWITCH,
     AT(leaks),
     0,
     1,
     "0",
     {0},
     "whether memory that is not freed when the process ends is reported"},
    {"VGPU_EXIT",
     SWITCH,
     AT(reports_fail),
     0,
     1,
     "1",
     {0},
     "whether a process with a report ends with status 86"},
    {"VGPU_EXIT_MS",
     UINT32,
     AT(exit_ms),
     0,
     UINT32_MAX,
     "1000",
     {0},
     "time that work which nobody waited for gets when the process ends"},
    {"VGPU_DRIVER_VERSION",
     INT,
     AT(driver_version),
     11000,
     13000,
     "13000",
     {0},
     "the driver's version: later functions are not there, later PTX is refused"},
};
enum { NSETTINGS = sizeof table / sizeof *table };

static const struct setting *setting_of(const char *name, size_t length)
{
    for (size_t i = 0; i < NSETTINGS; i++)
        if (strlen(table[i].name) == length && !memcmp(table[i].name, name, length))
            return &table[i];
    return NULL;
}

static void store(const struct setting *s, struct vd_settings *settings, uint64_t value)
{
    void *to = (char *)settings + s->offset;
    if (s->kind == UINT64 || s->kind == BYTES)
        memcpy(to, &value, sizeof value);
    else if (s->kind == SWITCH || (s->kind == CHOICE && s->most == 1))
        *(bool *)to = value != 0;
    else /* enums too */
        *(uint32_t *)to = (uint32_t)value;
}

static uint64_t load(const struct setting *s, const struct vd_settings *settings)
{
    const void *from = (const char *)settings + s->offset;
    if (s->kind == UINT64 || s->kind == BYTES) return *(const uint64_t *)from;
    if (s->kind == SWITCH || (s->kind == CHOICE && s->most == 1)) return *(const bool *)from;
    return *(const uint32_t *)from;
}

/* Digits, and for BYTES a K, M, G or T behind them; for CAPABILITY 9.0 is 90. */
static bool parse_number(const struct setting *s, const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    errno = 0;
    *value = strtoull(text, &end, 0);
    if (errno != 0) return false;
    if (s->kind == CAPABILITY) {
        if (end[0] == '.' && isdigit((unsigned char)end[1]) && end[2] == '\0') {
            *value = *value * 10 + (uint64_t)(end[1] - '0');
            end += 2;
        }
        static const uint8_t known[] = {75, 80, 86, 87, 89, 90};
        return *end == '\0' && *value < 256 && memchr(known, (int)*value, sizeof known);
    }
    const char *unit =
        *end != '\0' && s->kind == BYTES ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit != NULL) {
        const unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (*value > UINT64_MAX >> shift) return false;
        *value <<= shift;
        end++;
    }
    return *end == '\0' && *value >= s->least && *value <= s->most;
}

static bool parse(const struct setting *s, const char *text, uint64_t *value)
{
    for (size_t i = 0; s->kind == CHOICE && i <= s->most; i++)
        if (!strcmp(text, s->choice[i])) {
            *value = i;
            return true;
        }
    return s->kind != CHOICE && parse_number(s, text, value);
}

static void list_choices(const struct setting *s, char text[128])
{
    int n = 0;
    for (size_t i = 0; i <= s->most; i++)
        n += snprintf(text + n, 128 - (size_t)n, "%s%s", i == 0 ? "" : ", ", s->choice[i]);
}

/* What the variable may be: for errors and the help. */
static void expected(const struct setting *s, char text[128])
{
    if (s->kind == TEXT)
        snprintf(text, 128, "a path");
    else if (s->kind == CHOICE)
        list_choices(s, text);
    else if (s->kind == SWITCH)
        snprintf(text, 128, "0 or 1");
    else if (s->kind == CAPABILITY)
        snprintf(text, 128, "7.5, 8.0, 8.6, 8.7, 8.9 or 9.0");
    else if (s->kind == BYTES)
        snprintf(text, 128, "%" PRIu64 "M to %" PRIu64 "G", s->least >> 20, s->most >> 30);
    else
        snprintf(text, 128, "%" PRIu64 " to %" PRIu64, s->least, s->most);
}

extern char **environ;

static void warn_unknown(void)
{
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        const char *equals = strchr(*variable, '=');
        if (strncmp(*variable, "VGPU_", 5) || equals == NULL) continue;
        const int length = (int)(equals - *variable);
        if (setting_of(*variable, (size_t)length) == NULL)
            fprintf(stderr, "vgpu: WARN: no variable is called %.*s; vgpu-info --help lists them\n",
                    length, *variable);
    }
}

/* Of a variable that is not set. CUDA takes what is above its limits for these. */
static const char *standard_of(const struct setting *s)
{
    static char text[16];
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const long n = connections != NULL ? strtol(connections, NULL, 10) : 0;
    if (s->offset != AT(queues) || n < 1) return s->standard;
    snprintf(text, sizeof text, "%d", n < VD_MOST_QUEUES ? (int)n : VD_MOST_QUEUES);
    return text;
}

int vd_settings_driver_version(void)
{
    const struct setting *s = setting_of("VGPU_DRIVER_VERSION", strlen("VGPU_DRIVER_VERSION"));
    const char *text = getenv(s->name);
    uint64_t value;
    if (text == NULL || !parse(s, text, &value)) parse(s, s->standard, &value);
    return (int)value;
}

bool vd_settings_pairs(const char *text, uint32_t bits[VD_DEVICES])
{
    while (text != NULL) {
        int first, second, length = 0;
        if (sscanf(text, "%2d-%2d%n", &first, &second, &length) != 2 || first < 0 || second < 0 ||
            first >= VD_DEVICES || second >= VD_DEVICES || (text[length] && text[length] != ','))
            return false;
        bits[first] |= 1u << second;
        text = text[length] ? text + length + 1 : NULL;
    }
    return true;
}

bool vd_settings_groups(const char *text, int groups[VD_DEVICES])
{
    int group = 0;
    for (int i = 0; i < VD_DEVICES; i++) groups[i] = 0;
    while (text != NULL) {
        int gpu, length = 0;
        if (sscanf(text, "%2d%n", &gpu, &length) != 1 || gpu < 0 || gpu >= VD_DEVICES ||
            (text[length] && strchr(",|", text[length]) == NULL))
            return false;
        groups[gpu] = group;
        group += text[length] == '|';
        text = text[length] ? text + length + 1 : NULL;
    }
    return true;
}

int vd_settings_read(struct vd_settings *settings, char error[512])
{
    memset(settings, 0, sizeof *settings);
    for (size_t i = 0; i < NSETTINGS; i++) {
        const struct setting *s = &table[i];
        const char *text = getenv(s->name);
        uint64_t value = 0;
        if (s->kind == TEXT) {
            const char *path = text != NULL && *text != '\0' ? text : NULL;
            memcpy((char *)settings + s->offset, &path, sizeof path);
            if (s->offset == AT(topology) && !vd_settings_groups(path, (int[VD_DEVICES]){0})) {
                snprintf(error, 512,
                         "%s is \"%.200s\"; expected groups of GPUs 0 to %d, as 0,1|2,3", s->name,
                         path, VD_DEVICES - 1);
                return -1;
            }
            if (s->offset == AT(broken) && !vd_settings_pairs(path, (uint32_t[VD_DEVICES]){0})) {
                snprintf(error, 512, "%s is \"%.200s\"; expected pairs of GPUs 0 to %d, as 0-1,1-0",
                         s->name, path, VD_DEVICES - 1);
                return -1;
            }
            continue;
        }
        if (text == NULL) text = standard_of(s);
        if (!parse(s, text, &value)) {
            char range[128];
            expected(s, range);
            snprintf(error, 512, "%s is \"%.200s\"; expected %s", s->name, text, range);
            return -1;
        }
        store(s, settings, value);
    }
    warn_unknown();
    return 0;
}

bool vd_settings_allow(const char *name, const char *text, char range[128])
{
    const struct setting *s = setting_of(name, strlen(name));
    uint64_t value;
    expected(s, range);
    return parse(s, text, &value);
}

void vd_settings_help(FILE *to)
{
    for (size_t i = 0; i < NSETTINGS; i++) {
        char range[128];
        expected(&table[i], range);
        fprintf(to, "  %-20s %s (%s%s%s)\n", table[i].name, table[i].sentence, range,
                table[i].kind == TEXT ? "" : "; default ", table[i].standard);
    }
}

void vd_settings_print(FILE *to, const struct vd_settings *settings)
{
    for (size_t i = 0; i < NSETTINGS; i++) {
        const struct setting *s = &table[i];
        if (s->kind == TEXT) {
            const char *path;
            memcpy(&path, (const char *)settings + s->offset, sizeof path);
            fprintf(to, "%s=%s\n", s->name, path != NULL ? path : "");
            continue;
        }
        const uint64_t value = load(s, settings);
        if (s->kind == CHOICE)
            fprintf(to, "%s=%s\n", s->name, s->choice[value]);
        else if (s->kind == CAPABILITY)
            fprintf(to, "%s=%" PRIu64 ".%" PRIu64 "\n", s->name, value / 10, value % 10);
        else if (s->kind == BYTES)
            fprintf(to, "%s=%" PRIu64 "M\n", s->name, value >> 20);
        else
            fprintf(to, "%s=%" PRIu64 "\n", s->name, value);
    }
}
