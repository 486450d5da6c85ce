/* Devices and ports: opens them, reads their GIDs, and handles their asynchronous events. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/config.h"
#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "transport/rdma/rdma_internal.h"

enum { MAX_CANDIDATES = 64, MAX_NODES = 64 };

/* ---- What the kernel says about them (/sys) ------------------------------------------------- */

/* The first line of a file of /sys, "" when there is none. */
__attribute__((format(printf, 3, 4))) static void read_line(char *line, int size,
                                                            const char *format, ...)
{
    char path[256];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    (void)tt_read_text(path, line, (size_t)size);
    line[strcspn(line, "\n")] = 0;
}

/* Whether this thread may run on a CPU of the NUMA node. */
static bool may_run_on(int node)
{
    char list[1024];
    cpu_set_t cpus;
    read_line(list, sizeof list, "/sys/devices/system/node/node%d/cpulist", node);
    if (sched_getaffinity(0, sizeof cpus, &cpus)) return true;
    for (const char *at = list; *at; at += *at == ',') { /* "0-3,8" */
        char *end;
        const long first = strtol(at, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == at) break;
        at = end;
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, &cpus)) return true;
    }
    return false;
}

/* From the CPUs of this process, as the firmware gives it: 10 is the same NUMA node. */
static int distance_of(const char *device)
{
    char text[1024], *at = text, *end;
    int least = INT32_MAX;
    read_line(text, sizeof text, "/sys/class/infiniband/%s/device/numa_node", device);
    const int node = *text ? atoi(text) : -1;
    if (node < 0) return 0; /* without a node: near all CPUs */
    read_line(text, sizeof text, "/sys/devices/system/node/node%d/distance", node);
    for (int other = 0; other < MAX_NODES; other++, at = end) {
        const long distance = strtol(at, &end, 10);
        if (end == at) break;
        if (distance < least && may_run_on(other)) least = (int)distance;
    }
    return least;
}

static bool parse_gid(const char *text, struct tt_gid *gid)
{
    unsigned words[8];
    if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &words[0], &words[1], &words[2], &words[3],
               &words[4], &words[5], &words[6], &words[7]) != 8)
        return false;
    for (int i = 0; i < 8; i++) {
        gid->raw[2 * i] = (uint8_t)(words[i] >> 8);
        gid->raw[2 * i + 1] = (uint8_t)words[i];
    }
    return true;
}

/* The GID at an index; false: none, or of RoCE v1 where v2 is needed. */
static bool read_gid(const char *device, int port, int index, bool ethernet, struct tt_gid *gid)
{
    char text[128];
    read_line(text, sizeof text, "/sys/class/infiniband/%s/ports/%d/gids/%d", device, port, index);
    if (!parse_gid(text, gid) || tt_gid_kind(gid) == TT_GID_NONE) return false;
    if (!ethernet) return true;
    read_line(text, sizeof text, "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device,
              port, index);
    return !strcmp(text, "RoCE v2");
}

/* Whether the port still has its GID. */
static bool has_gid(const struct tt_rdma_port *port, int gid)
{
    struct tt_gid now;
    const bool ethernet = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    return read_gid(port->device->name, port->number, port->gid_indices[gid], ethernet, &now) &&
           !memcmp(&now, &port->gids[gid], sizeof now);
}

/* The first GID of each kind, the preferred kind first; only that at index `only` if >= 0. */
static void find_gids(struct tt_rdma_port *port, int only)
{
    const bool ethernet = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    for (int kind = TT_GID_IPV4; kind > TT_GID_NONE; kind--)
        for (int i = 0; i < port->attributes.gid_tbl_len; i++) {
            struct tt_gid gid;
            if ((only >= 0 && i != only) ||
                !read_gid(port->device->name, port->number, i, ethernet, &gid) ||
                (int)tt_gid_kind(&gid) != kind)
                continue;
            port->gids[port->ngids] = gid;
            port->gid_indices[port->ngids++] = i;
            break;
        }
}

/* A set index that the port does not have is an error; no GID at all makes it unusable. */
static tt_status choose_gids(struct tt_rdma_port *port)
{
    const int only = (int)tt_config_int(TT_CONFIG_RDMA_GID_INDEX);
    find_gids(port, only);
    if (port->ngids) return TT_OK;
    find_gids(port, -1);
    if (only < 0 || !port->ngids) {
        TT_INFO("RDMA port %s/%d is not used: it has no GID%s", port->device->name, port->number,
                port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET
                    ? " of RoCE v2 (has its network interface an address?)"
                    : "");
        return TT_OK;
    }
    char there[256] = "", name[INET6_ADDRSTRLEN];
    size_t used = 0;
    for (int i = 0; i < port->ngids && used < sizeof there; i++) {
        tt_gid_name(&port->gids[i], name, sizeof name);
        used += (size_t)snprintf(there + used, sizeof there - used, "%s%d (%s)", i ? ", " : "",
                                 port->gid_indices[i], name);
    }
    return tt_fail(TT_ERR_ARGUMENT,
                   "TUTTI_RDMA_GID_INDEX=%d: RDMA port %s/%d has no usable GID there; it has %s",
                   only, port->device->name, port->number, there);
}

/* ---- Opening -------------------------------------------------------------------------------- */

static struct ibv_device *device_named(const struct tt_verbs *verbs, struct ibv_device **list,
                                       const char *name)
{
    for (int i = 0; list[i]; i++)
        if (!strcmp(verbs->get_device_name(list[i]), name)) return list[i];
    return NULL;
}

/* Every port of every device; a device that cannot be opened is left out. */
static int list_ports(const struct tt_verbs *verbs, struct ibv_device **list, const char *gpu_path,
                      struct tt_rdma_candidate candidates[MAX_CANDIDATES])
{
    int n = 0;
    for (int i = 0; list[i]; i++) {
        const char *name = verbs->get_device_name(list[i]);
        char text[64];
        const int distance = distance_of(name);
        const int gpu_distance =
            tt_rdma_gpu_distance(tt_pcie_distance("/sys/class/infiniband", name, gpu_path));
        for (int port = 1; n < MAX_CANDIDATES; port++) {
            read_line(text, sizeof text, "/sys/class/infiniband/%s/ports/%d/state", name, port);
            if (!*text) break;
            candidates[n] = (struct tt_rdma_candidate){
                .port = port, .distance = distance, .gpu_distance = gpu_distance};
            snprintf(candidates[n++].device, TT_RDMA_NAME, "%s", name);
        }
    }
    return n;
}

static bool unblock(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static void close_device(const struct tt_verbs *verbs, struct tt_rdma_device *device)
{
    int failed = 0;
    if (device->channel) tt_private_fd_remove(device->channel->fd);
    if (device->context) {
        tt_private_fd_remove(device->context->cmd_fd);
        tt_private_fd_remove(device->context->async_fd);
    }
    if (device->channel) failed |= verbs->destroy_comp_channel(device->channel);
    if (device->domain) failed |= verbs->dealloc_pd(device->domain);
    if (failed) TT_WARN("RDMA device %s: some of it is still in use", device->name);
    if (device->context) verbs->close_device(device->context);
}

/* The device, opened for its first port. NULL: it cannot be opened, which is logged. */
static struct tt_rdma_device *get_device(struct tt_rdma *rdma, struct ibv_device **list,
                                         const char name[TT_RDMA_NAME])
{
    const struct tt_verbs *verbs = rdma->verbs;
    for (int i = 0; i < rdma->ndevices; i++)
        if (!strcmp(rdma->devices[i].name, name)) return &rdma->devices[i];
    struct tt_rdma_device *device = &rdma->devices[rdma->ndevices];
    *device =
        (struct tt_rdma_device){.context = verbs->open_device(device_named(verbs, list, name))};
    memcpy(device->name, name, sizeof device->name);
    if (device->context) device->domain = verbs->alloc_pd(device->context);
    if (device->domain) device->channel = verbs->create_comp_channel(device->context);
    if (!device->channel || !unblock(device->context->async_fd) || !unblock(device->channel->fd)) {
        TT_INFO("RDMA device %s cannot be opened: %m (may this user open /dev/infiniband?)", name);
        close_device(verbs, device);
        return NULL;
    }
    tt_private_fd_add(device->context->cmd_fd);
    tt_private_fd_add(device->context->async_fd);
    tt_private_fd_add(device->channel->fd);
    rdma->ndevices++;
    return device;
}

/* Enters the port if it is active and has an address. */
static tt_status try_port(struct tt_rdma *rdma, struct tt_rdma_device *device,
                          const struct tt_rdma_candidate *candidate)
{
    struct tt_rdma_port *port = &rdma->ports[rdma->nports];
    *port = (struct tt_rdma_port){.device = device,
                                  .number = (uint8_t)candidate->port,
                                  .gpu_distance = candidate->gpu_distance};
    struct _compat_ibv_port_attr *attributes = (void *)&port->attributes;
    if (rdma->verbs->query_port(device->context, port->number, attributes) ||
        port->attributes.state != IBV_PORT_ACTIVE) {
        TT_INFO("RDMA port %s/%d is not used: it is %s", device->name, port->number,
                rdma->verbs->port_state_str(port->attributes.state));
        return TT_OK;
    }
    TT_TRY(choose_gids(port));
    if (port->ngids) rdma->nports++;
    return TT_OK;
}

/* A device is kept open only for a port: there is room for as many as there are ports. */
static tt_status add_port(struct tt_rdma *rdma, struct ibv_device **list,
                          const struct tt_rdma_candidate *candidate)
{
    const int nopen = rdma->ndevices, nports = rdma->nports;
    struct tt_rdma_device *device = get_device(rdma, list, candidate->device);
    if (!device) return TT_OK;
    const tt_status status = try_port(rdma, device, candidate);
    if (rdma->ndevices > nopen && rdma->nports == nports)
        close_device(rdma->verbs, &rdma->devices[--rdma->ndevices]);
    return status;
}

static tt_status open_ports(struct tt_rdma *rdma, struct ibv_device **list, const char *gpu_path)
{
    struct tt_rdma_candidate candidates[MAX_CANDIDATES];
    const int n = list_ports(rdma->verbs, list, gpu_path, candidates);
    int nchosen;
    TT_TRY(tt_rdma_choose_ports(candidates, n, tt_config_string(TT_CONFIG_RDMA_DEVICE), &nchosen));
    for (int i = 0; i < nchosen && rdma->nports < TT_RDMA_MAX_PORTS; i++)
        TT_TRY(add_port(rdma, list, &candidates[i]));
    /* The first is nearest to the GPU of those that can be used. */
    for (int i = 0; i < rdma->nports; i++)
        rdma->ports[i].is_near = rdma->ports[i].gpu_distance == rdma->ports[0].gpu_distance;
    return TT_OK;
}

/* Devices read values out of range differently: 7 retries mean no limit. */
static tt_status check_settings(void)
{
    static const struct {
        enum tt_config_key key;
        int least, most;
    } ranges[] = {{TT_CONFIG_RDMA_SERVICE_LEVEL, 0, 15},
                  {TT_CONFIG_RDMA_TRAFFIC_CLASS, 0, 255},
                  {TT_CONFIG_RDMA_TIMEOUT, 1, 31},
                  {TT_CONFIG_RDMA_RETRIES, 0, 6},
                  {TT_CONFIG_RDMA_GID_INDEX, -1, 255}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const int64_t value = tt_config_int(ranges[i].key);
        if (value < ranges[i].least || value > ranges[i].most)
            return tt_fail(TT_ERR_ARGUMENT, "%s=%lld: expected %d to %d",
                           tt_config_name(ranges[i].key), (long long)value, ranges[i].least,
                           ranges[i].most);
    }
    return TT_OK;
}

tt_status tt_rdma_open(struct tt_rdma **out, const struct tt_room_config *config)
{
    *out = NULL;
    TT_TRY(check_settings());
    const struct tt_verbs *verbs = tt_verbs_load();
    if (!verbs) return TT_OK;
    struct tt_rdma *rdma = calloc(1, sizeof *rdma);
    if (!rdma) return tt_fail(TT_ERR_SYSTEM, "out of memory for RDMA devices");
    *rdma = (struct tt_rdma){
        .verbs = verbs, .nslots = config->nslots, .slot_bytes = config->slot_bytes};
    tt_low_fd_hold();
    struct ibv_device *none = NULL, **list = verbs->get_device_list(NULL);
    const tt_status status = open_ports(rdma, list ? list : &none, config->gpu_path);
    if (list) verbs->free_device_list(list);
    (void)tt_low_fd_release(-1);
    if (status || !rdma->nports) {
        tt_rdma_close(rdma);
        if (!status) TT_INFO_ONCE("no RDMA: there is no usable port");
        return status;
    }
    *out = rdma;
    return TT_OK;
}

void tt_rdma_start(struct tt_rdma *rdma, const struct tt_room_context *context)
{
    rdma->context = context;
}

tt_status tt_rdma_watch(struct tt_rdma *rdma, int epoll, uint64_t data)
{
    for (int i = 0; i < rdma->ndevices; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, rdma->devices[i].channel->fd, &event))
            return tt_fail_errno(errno, "cannot wait for RDMA device %s", rdma->devices[i].name);
    }
    return TT_OK;
}

void tt_rdma_clear_notification(struct tt_rdma *rdma)
{
    struct ibv_cq *queue;
    void *context;
    for (int i = 0; i < rdma->ndevices; i++)
        while (!rdma->verbs->get_cq_event(rdma->devices[i].channel, &queue, &context))
            rdma->verbs->ack_cq_events(queue, 1);
}

void tt_rdma_close(struct tt_rdma *rdma)
{
    if (!rdma) return;
    while (rdma->gpus) tt_rdma_drop_gpu(rdma, rdma->gpus);
    tt_rdma_close_loops(rdma);
    tt_rdma_memory_fini(rdma);
    for (int i = 0; i < rdma->ndevices; i++) close_device(rdma->verbs, &rdma->devices[i]);
    free(rdma);
}

/* ---- Events --------------------------------------------------------------------------------- */

/* Whether the addresses that connections use are still there. */
static tt_status check_addresses(struct tt_rdma *rdma, const struct tt_rdma_device *device)
{
    for (int p = 0; p < rdma->nports; p++) {
        const struct tt_rdma_port *port = &rdma->ports[p];
        for (int i = 0; port->device == device && i < port->ngids; i++) {
            if (!(port->gids_used >> i & 1) || has_gid(port, i)) continue;
            char name[INET6_ADDRSTRLEN];
            tt_gid_name(&port->gids[i], name, sizeof name);
            return tt_room_fail(rdma->context, TT_ERR_SYSTEM,
                                "RDMA port %s/%d of this host lost its address %s (GID %d), which "
                                "connections use: was its network interface changed?",
                                device->name, port->number, name, port->gid_indices[i]);
        }
    }
    return TT_OK;
}

static tt_status on_event(struct tt_rdma *rdma, const struct tt_rdma_device *device,
                          const struct ibv_async_event *event)
{
    const char *text = rdma->verbs->event_type_str(event->event_type);
    switch (event->event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
        return tt_room_fail(rdma->context, TT_ERR_SYSTEM,
                            "RDMA device %s of this host failed: %s; see the kernel's log (dmesg)",
                            device->name, text);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        return tt_rdma_fail_route(event->element.qp->qp_context, text);
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        TT_INFO("RDMA device %s: %s", device->name, text);
        return check_addresses(rdma, device);
    case IBV_EVENT_PORT_ERR:
        TT_WARN("RDMA port %s/%d went down; what is being sent is tried again for a while "
                "(TUTTI_RDMA_TIMEOUT, TUTTI_RDMA_RETRIES)",
                device->name, event->element.port_num);
        return TT_OK;
    default:
        TT_INFO("RDMA device %s: %s", device->name, text);
        return TT_OK;
    }
}

tt_status tt_rdma_events(struct tt_rdma *rdma)
{
    for (int i = 0; i < rdma->ndevices; i++) {
        struct ibv_async_event event;
        while (!rdma->verbs->get_async_event(rdma->devices[i].context, &event)) {
            const tt_status status = on_event(rdma, &rdma->devices[i], &event);
            rdma->verbs->ack_async_event(&event);
            if (status) return status;
        }
    }
    return TT_OK;
}
