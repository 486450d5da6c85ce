/* Makes values of the config table of NCCL's variables. A value that is not understood is noted
 * with what was expected, and has no effect. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/nccl_algorithms.h"
#include "base/nccl_settings.h"

/* ---- Parts of a conversion ------------------------------------------------------------------ */

/* The setting comes from this variable too. */
static void add_source(struct tt_nccl_setting *setting, enum tt_nccl_key key)
{
    const size_t used = strlen(setting->source);
    if (!used) setting->from = key;
    snprintf(setting->source + used, sizeof setting->source - used, "%s%s, %.100s",
             used ? "; " : "", tt_nccl_row(key)->name, tt_nccl_source(key));
}

/* Always false: the variable gives no value. */
static bool refuse(enum tt_nccl_key key, const char *expected)
{
    tt_nccl_note(TT_LOG_WARN, "%s=%.200s (%.200s) is not %s; it has no effect",
                 tt_nccl_row(key)->name, tt_nccl_value(key), tt_nccl_source(key), expected);
    return false;
}

/* As refuse, and no communicator is made with that value. */
static bool fail(struct tt_nccl_setting *setting, enum tt_nccl_key key, const char *expected)
{
    snprintf(setting->wrong, sizeof setting->wrong,
             "%s=%.80s (%.80s) is not %s: no communicator is made until it is",
             tt_nccl_row(key)->name, tt_nccl_value(key), tt_nccl_source(key), expected);
    return false;
}

/* A whole number as NCCL reads it: decimal, 0x or 0. */
static bool parse_whole(const char *text, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 0);
    return end != text && !*end && !errno;
}

/* A given number of the range, which becomes a source of the setting. */
static bool take_number(struct tt_nccl_setting *setting, enum tt_nccl_key key, long long least,
                        long long most, long long *number)
{
    const char *text = tt_nccl_value(key);
    char expected[96];
    if (!text) return false;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", least, most);
    if (!parse_whole(text, number) || *number < least || *number > most)
        return refuse(key, expected);
    add_source(setting, key);
    return true;
}

/* take_number of a variable that also has an old name, which counts where the new one is not set.
 */
static bool take_renamed(struct tt_nccl_setting *setting, enum tt_nccl_key key,
                         enum tt_nccl_key old, long long most, long long *number)
{
    return take_number(setting, tt_nccl_value(key) ? key : old, 1, most, number);
}

__attribute__((format(printf, 2, 3))) static bool put(struct tt_nccl_setting *setting,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(setting->text, sizeof setting->text, format, args);
    va_end(args);
    return n >= 0 && n < (int)sizeof setting->text;
}

/* The value as it is. */
static bool copy(struct tt_nccl_setting *setting, enum tt_nccl_key key)
{
    const char *text = tt_nccl_value(key);
    if (!text) return false;
    if (!put(setting, "%s", text)) return refuse(key, "shorter than 1024 characters");
    add_source(setting, key);
    return true;
}

/* Whether a switch is given and on; then it is a source of the setting. */
static bool is_on(struct tt_nccl_setting *setting, enum tt_nccl_key key)
{
    const char *text = tt_nccl_value(key);
    long long number;
    if (!text) return false;
    if (!parse_whole(text, &number)) return refuse(key, "0 or 1");
    if (number) add_source(setting, key);
    return number != 0;
}

/* ---- The log -------------------------------------------------------------------------------- */

static bool convert_log(struct tt_nccl_setting *setting)
{
    static const char *const levels[][2] = {{"NONE", "NONE"},  {"VERSION", "NONE"},
                                            {"WARN", "WARN"},  {"INFO", "INFO"},
                                            {"ABORT", "INFO"}, {"TRACE", "INFO"}};
    const char *text = tt_nccl_value(TT_NCCL_DEBUG);
    for (size_t i = 0; text && i < sizeof levels / sizeof *levels; i++)
        if (!strcasecmp(text, levels[i][0])) {
            add_source(setting, TT_NCCL_DEBUG);
            return put(setting, "%s", levels[i][1]);
        }
    return text && refuse(TT_NCCL_DEBUG, "NONE, VERSION, WARN, INFO, ABORT or TRACE");
}

static bool convert_log_file(struct tt_nccl_setting *setting)
{
    return copy(setting, TT_NCCL_DEBUG_FILE);
}

static bool convert_subsystems(struct tt_nccl_setting *setting)
{
    return copy(setting, TT_NCCL_DEBUG_SUBSYS); /* the log says which names there are */
}

/* ---- The host and its ranks ----------------------------------------------------------------- */

static bool p2p_is_off(struct tt_nccl_setting *setting)
{
    static const char *const levels[] = {"LOC", "NVL", "PIX", "PXB", "PXN", "PHB", "SYS"};
    const char *level = tt_nccl_value(TT_NCCL_P2P_LEVEL);
    long long number;
    if (is_on(setting, TT_NCCL_P2P_DISABLE)) return true;
    if (!level) return false;
    bool known = parse_whole(level, &number), off = known && number == 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcasecmp(level, levels[i])) known = true, off = i == 0;
    if (!known) return refuse(TT_NCCL_P2P_LEVEL, "LOC, NVL, PIX, PXB, PHB or SYS");
    if (off) add_source(setting, TT_NCCL_P2P_LEVEL);
    return off;
}

/* What goes between hosts; "": everything. */
static const char *choose_network(struct tt_nccl_setting *setting)
{
    const char *net = tt_nccl_value(TT_NCCL_NET);
    const bool no_ib = is_on(setting, TT_NCCL_IB_DISABLE);
    if (net && !strcasecmp(net, "Socket")) {
        add_source(setting, TT_NCCL_NET);
        return "tcp";
    }
    if (net && strcasecmp(net, "IB") != 0)
        (void)refuse(TT_NCCL_NET, "Socket or IB, and tutti loads no networks of plugins");
    else if (net && no_ib)
        tt_nccl_note(TT_LOG_WARN, "NCCL_NET=%s has no effect: NCCL_IB_DISABLE is set too", net);
    else if (net) {
        add_source(setting, TT_NCCL_NET);
        return "rdma";
    }
    return no_ib ? "tcp" : "";
}

static bool convert_transport(struct tt_nccl_setting *setting)
{
    const char *network = choose_network(setting);
    const bool no_p2p = p2p_is_off(setting);
    if (!no_p2p && !network[0]) return false;
    return put(setting, "%s%s%s", no_p2p ? "shm" : "", no_p2p && network[0] ? "," : "", network);
}

static bool convert_kernels(struct tt_nccl_setting *setting)
{
    return p2p_is_off(setting) && put(setting, "0");
}

/* Each process is a host of its own when neither way to share memory is left: then all data goes
 * over the network, as in NCCL. */
static bool convert_host_id(struct tt_nccl_setting *setting)
{
    struct tt_nccl_setting both = {.text = ""};
    const char *id = tt_nccl_value(TT_NCCL_HOSTID);
    const bool no_shm = is_on(&both, TT_NCCL_SHM_DISABLE);
    if (!no_shm || !p2p_is_off(&both)) {
        if (no_shm)
            tt_nccl_note(TT_LOG_INFO,
                         "NCCL_SHM_DISABLE has no effect without NCCL_P2P_DISABLE=1: ranks of a "
                         "host share a memfd, and nothing in /dev/shm");
        return copy(setting, TT_NCCL_HOSTID);
    }
    unsigned long long unique = 0;
    if (getrandom(&unique, sizeof unique, 0) != (ssize_t)sizeof unique) return false;
    *setting = both;
    if (id) add_source(setting, TT_NCCL_HOSTID);
    return put(setting, "%.200s%sprocess %llx", id ? id : "", id ? ", " : "", unique);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static bool convert_algorithm(struct tt_nccl_setting *setting)
{
    const char *text = tt_nccl_value(TT_NCCL_ALGO);
    if (!text || !tt_nccl_parse_algorithms(text, setting->text, sizeof setting->text)) return false;
    add_source(setting, TT_NCCL_ALGO);
    return true;
}

/* NCCL_MAX_CTAS lowers or raises the number of channels, NCCL_MIN_CTAS only raises it. */
static bool convert_channels(struct tt_nccl_setting *setting)
{
    enum { LEAST = 2, MOST = 64, MANY = 1 << 20 };
    const long long usual = atoll(setting->text); /* the default */
    long long ctas, most = 0, least = 0, channels = usual;
    if (take_number(setting, TT_NCCL_MAX_CTAS, 1, MANY, &ctas)) most = ctas;
    if (take_renamed(setting, TT_NCCL_MAX_NCHANNELS, TT_NCCL_MAX_NRINGS, MANY, &ctas) &&
        (!most || ctas < most))
        most = ctas;
    if (take_number(setting, TT_NCCL_MIN_CTAS, 1, MANY, &ctas)) least = ctas;
    if (take_renamed(setting, TT_NCCL_MIN_NCHANNELS, TT_NCCL_MIN_NRINGS, MANY, &ctas) &&
        ctas > least)
        least = ctas;
    if (!most && !least) return false;
    if (most && least > most) {
        tt_nccl_note(TT_LOG_WARN,
                     "NCCL_MIN_CTAS=%lld is more than NCCL_MAX_CTAS=%lld; both have no effect",
                     least, most);
        return false;
    }
    if (most) channels = most;
    if (channels < least) channels = least;
    const long long good = channels < LEAST ? LEAST : channels > MOST ? MOST : channels;
    if (good != channels)
        tt_nccl_note(TT_LOG_INFO, "calls on GPU memory run on at most %lld blocks instead of %lld",
                     good, channels);
    return put(setting, "%lld", good);
}

static bool convert_threads(struct tt_nccl_setting *setting)
{
    long long threads;
    if (!take_number(setting, TT_NCCL_NTHREADS, 32, 512, &threads)) return false;
    if (threads % 32) return refuse(TT_NCCL_NTHREADS, "a multiple of 32");
    return put(setting, "%lld", threads);
}

/* ---- Networks ------------------------------------------------------------------------------- */

static bool convert_interface(struct tt_nccl_setting *setting)
{
    return copy(setting, TT_NCCL_SOCKET_IFNAME);
}

static bool convert_family(struct tt_nccl_setting *setting)
{
    const char *text = tt_nccl_value(TT_NCCL_SOCKET_FAMILY);
    if (!text) return false;
    const bool v4 = !strcasecmp(text, "AF_INET"), v6 = !strcasecmp(text, "AF_INET6");
    if (!v4 && !v6) return refuse(TT_NCCL_SOCKET_FAMILY, "AF_INET or AF_INET6");
    add_source(setting, TT_NCCL_SOCKET_FAMILY);
    return put(setting, v4 ? "4" : "6");
}

static bool convert_sockets(struct tt_nccl_setting *setting)
{
    enum { MOST = 16 };
    long long sockets = 1, threads = 1;
    const bool some = take_number(setting, TT_NCCL_NSOCKS_PERTHREAD, 1, 64, &sockets);
    const bool more = take_number(setting, TT_NCCL_SOCKET_NTHREADS, 1, 16, &threads);
    const long long all = sockets * threads;
    return (some || more) && put(setting, "%lld", all < MOST ? all : MOST);
}

/* "[^][=]device[:port[:rail[:plane]]],...": rails and planes are left out. */
static bool convert_devices(struct tt_nccl_setting *setting)
{
    const char *at = tt_nccl_value(TT_NCCL_IB_HCA);
    size_t used = 0;
    if (!at) return false;
    if (strlen(at) >= sizeof setting->text)
        return refuse(TT_NCCL_IB_HCA, "shorter than 1024 characters");
    while (*at) {
        const size_t length = strcspn(at, ","), name = strcspn(at, ":,");
        const size_t port = at[name] == ':' ? strcspn(at + name + 1, ":,") : 0;
        const size_t kept = port ? name + 1 + port : name;
        memcpy(setting->text + used, at, kept);
        used += kept;
        at += length;
        if (*at) setting->text[used++] = *at++;
    }
    setting->text[used] = '\0';
    add_source(setting, TT_NCCL_IB_HCA);
    return true;
}

static bool convert_gpu_access(struct tt_nccl_setting *setting)
{
    static const char *const levels[] = {"LOC", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS"};
    const char *level = tt_nccl_value(TT_NCCL_NET_GDR_LEVEL);
    long long number, on;
    bool known = level && parse_whole(level, &number), off = known && number == 0;
    for (size_t i = 0; level && i < sizeof levels / sizeof *levels; i++)
        if (!strcasecmp(level, levels[i])) known = true, off = i == 0;
    if (level && !known) (void)refuse(TT_NCCL_NET_GDR_LEVEL, "LOC, PIX, PXB, PHB or SYS");
    if (off) {
        add_source(setting, TT_NCCL_NET_GDR_LEVEL);
        return put(setting, "0");
    }
    return take_number(setting, TT_NCCL_DMABUF_ENABLE, 0, 1, &on) && put(setting, "%lld", on);
}

static bool convert_encryption(struct tt_nccl_setting *setting)
{
    if (!tt_nccl_value(TT_NCCL_PSK)) return false;
    add_source(setting, TT_NCCL_PSK);
    return put(setting, "1");
}

/* "host:port" or "[v6]:port". Any other value fails the init: each rank would wait for the others
 * where its own id says. */
static bool convert_meeting_point(struct tt_nccl_setting *setting)
{
    const char *text = tt_nccl_value(TT_NCCL_COMM_ID);
    const char *colon = text ? strrchr(text, ':') : NULL;
    long long port;
    if (!text) return false;
    if (!colon || colon == text || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        !parse_whole(colon + 1, &port) || port < 1 || port > 65535 || strlen(text) > 255 ||
        strpbrk(text, " \t\n") || (text[0] == '[' ? colon[-1] != ']' : strchr(text, ':') != colon))
        return fail(setting, TT_NCCL_COMM_ID, "host:port or [IPv6]:port");
    add_source(setting, TT_NCCL_COMM_ID);
    return put(setting, "tcp://%.*s:%lld", (int)(colon - text), text, port);
}

/* ---- All ------------------------------------------------------------------------------------ */

/* Rows that are a number of the same meaning; a number above `usable` is taken as that. */
static const struct {
    enum tt_config_key key;
    enum tt_nccl_key from;
    int least, most, usable;
} numbers[] = {{TT_CONFIG_RDMA_GID_INDEX, TT_NCCL_IB_GID_INDEX, -1, 255, 255},
               {TT_CONFIG_RDMA_SERVICE_LEVEL, TT_NCCL_IB_SL, 0, 15, 15},
               {TT_CONFIG_RDMA_TRAFFIC_CLASS, TT_NCCL_IB_TC, 0, 255, 255},
               {TT_CONFIG_RDMA_TIMEOUT, TT_NCCL_IB_TIMEOUT, 1, 31, 31},
               {TT_CONFIG_RDMA_RETRIES, TT_NCCL_IB_RETRY_CNT, 0, 7, 6}};

static bool (*const converters[TT_CONFIG_COUNT])(struct tt_nccl_setting *) = {
    [TT_CONFIG_LOG] = convert_log,
    [TT_CONFIG_LOG_FILE] = convert_log_file,
    [TT_CONFIG_LOG_SUBSYSTEMS] = convert_subsystems,
    [TT_CONFIG_ALGORITHM] = convert_algorithm,
    [TT_CONFIG_TRANSPORT] = convert_transport,
    [TT_CONFIG_DEVICE_KERNELS] = convert_kernels,
    [TT_CONFIG_DEVICE_CHANNELS] = convert_channels,
    [TT_CONFIG_DEVICE_THREADS] = convert_threads,
    [TT_CONFIG_HOST_ID] = convert_host_id,
    [TT_CONFIG_SOCKET_INTERFACE] = convert_interface,
    [TT_CONFIG_SOCKET_FAMILY] = convert_family,
    [TT_CONFIG_SOCKETS] = convert_sockets,
    [TT_CONFIG_RDMA_DEVICE] = convert_devices,
    [TT_CONFIG_RDMA_GPU] = convert_gpu_access,
    [TT_CONFIG_ENCRYPT] = convert_encryption,
    [TT_CONFIG_INIT_METHOD] = convert_meeting_point,
};

bool tt_nccl_convert(enum tt_config_key key, const char *fallback, struct tt_nccl_setting *setting)
{
    *setting = (struct tt_nccl_setting){.text = ""};
    (void)put(setting, "%s", fallback); /* for those that need the default */
    if (converters[key]) return converters[key](setting);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        long long number;
        if (numbers[i].key != key) continue;
        if (!take_number(setting, numbers[i].from, numbers[i].least, numbers[i].most, &number))
            return false;
        return put(setting, "%lld", number < numbers[i].usable ? number : numbers[i].usable);
    }
    return false;
}
