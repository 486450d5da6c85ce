/* Chooses the RDMA ports of a rank, and pairs the ports and GIDs of two ranks. */
#include "transport/rdma/rdma_choose.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

static int compare(const void *left, const void *right)
{
    const struct tt_rdma_candidate *a = left, *b = right;
    if (a->gpu_distance != b->gpu_distance) return a->gpu_distance - b->gpu_distance;
    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    const int names = strverscmp(a->device, b->device);
    return names ? names : a->port - b->port;
}

/* Whether an item of the list, "mlx5" or "mlx5_0:1", means this port. */
static bool means(const char *item, size_t length, bool exact, const struct tt_rdma_candidate *port)
{
    const char *colon = memchr(item, ':', length);
    const size_t name = colon ? (size_t)(colon - item) : length;
    if (name == 0 || strncmp(item, port->device, name) != 0) return false;
    if (exact && port->device[name]) return false;
    return !colon || (length > name + 1 && atoi(colon + 1) == port->port);
}

static tt_status complain(const char *list, const char *item, size_t length,
                          const struct tt_rdma_candidate *ports, int number)
{
    char there[512] = "";
    size_t used = 0;
    for (int i = 0; i < number && used < sizeof there; i++)
        used += (size_t)snprintf(there + used, sizeof there - used, "%s%s:%d", i ? ", " : "",
                                 ports[i].device, ports[i].port);
    return tt_fail(TT_ERR_ARGUMENT,
                   "TUTTI_RDMA_DEVICE=%s: no RDMA port is called \"%.*s\"; this host has %s", list,
                   (int)length, item, number ? there : "no RDMA device");
}

/* Whether a port is among those at these least distances, of which that from the GPU counts where
 * PCIe tells it. */
static bool is_nearest(const struct tt_rdma_candidate *port, int least, int least_of_gpu)
{
    return port->distance == least ||
           (least_of_gpu < TT_ACROSS_ROOTS && port->gpu_distance == least_of_gpu);
}

tt_status tt_rdma_choose_ports(struct tt_rdma_candidate *ports, int number, const char *list,
                               int *nchosen)
{
    const bool others = *list == '^', exact = list[others] == '=';
    const char *item = list + others + exact;
    for (int i = 0; i < number; i++) ports[i].named = false;
    qsort(ports, (size_t)number, sizeof *ports, compare);
    for (size_t length; *item; item += length + (item[length] == ',')) {
        bool found = false;
        length = strcspn(item, ",");
        for (int i = 0; i < number; i++)
            if (means(item, length, exact, &ports[i])) ports[i].named = found = true;
        if (!found && !tt_config_is_nccl(TT_CONFIG_RDMA_DEVICE)) /* NCCL passes names over */
            return complain(list, item, length, ports, number);
    }
    int n = 0, least = INT_MAX;
    for (int i = 0; i < number; i++)
        if (ports[i].distance < least) least = ports[i].distance;
    const int least_of_gpu = number ? ports[0].gpu_distance : TT_ACROSS_ROOTS; /* sorted */
    for (int i = 0; i < number; i++)
        if (*list ? ports[i].named != others : is_nearest(&ports[i], least, least_of_gpu))
            ports[n++] = ports[i];
    *nchosen = n;
    return TT_OK;
}

enum tt_gid_kind tt_gid_kind(const struct tt_gid *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t zero[16];
    if (!memcmp(gid->raw, zero, sizeof zero)) return TT_GID_NONE;
    if (!memcmp(gid->raw, mapped, sizeof mapped)) return TT_GID_IPV4;
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80 ? TT_GID_LINK_LOCAL : TT_GID_GLOBAL;
}

void tt_gid_name(const struct tt_gid *gid, char *text, unsigned size)
{
    const bool v4 = tt_gid_kind(gid) == TT_GID_IPV4;
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, gid->raw + (v4 ? 12 : 0), text, size) && size)
        *text = 0;
}

enum { SUBNET = 64, IPV4_SUBNET = 120 }; /* bits of a GID */

/* Bits that two GIDs have in common, as far as they are likely to name a subnet: beyond, ports of
 * one subnet would be told apart. */
static int common_bits(const struct tt_gid *a, const struct tt_gid *b)
{
    const int most = tt_gid_kind(a) == TT_GID_IPV4 ? IPV4_SUBNET : SUBNET;
    int bits = 0;
    while (bits < most && !((a->raw[bits / 8] ^ b->raw[bits / 8]) & 0x80 >> bits % 8)) bits++;
    return bits;
}

/* How well two GIDs go together, -1: not at all. */
static int score_of(const struct tt_gid *a, const struct tt_gid *b, bool ethernet)
{
    const enum tt_gid_kind kind = tt_gid_kind(a);
    if (kind == TT_GID_NONE || kind != tt_gid_kind(b)) return -1;
    const int bits = common_bits(a, b);
    if (!ethernet && bits < 64) return -1; /* InfiniBand: LIDs are of one subnet */
    return (int)kind * 128 + bits;
}

/* The best GIDs of two ends; the first of equals. */
static int match(const struct tt_rdma_end *low, const struct tt_rdma_end *high,
                 struct tt_rdma_pair *pair)
{
    int best = -1;
    if (low->ethernet != high->ethernet) return best;
    for (int i = 0; i < low->ngids; i++)
        for (int j = 0; j < high->ngids; j++) {
            const int score = score_of(&low->gids[i], &high->gids[j], low->ethernet);
            if (score <= best) continue;
            best = score;
            pair->low_gid = i;
            pair->high_gid = j;
        }
    return best;
}

/* Whether two GIDs are of one subnet, by their score. */
static bool is_of_one_subnet(int score)
{
    return score % 128 == (score / 128 == TT_GID_IPV4 ? IPV4_SUBNET : SUBNET);
}

/* near: only ends that are, and that share a subnet. */
static int pair_ends(const struct tt_rdma_end *low, int nlow, const struct tt_rdma_end *high,
                     int nhigh, bool near, struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS])
{
    unsigned low_taken = 0, high_taken = 0;
    for (int n = 0; n < TT_RDMA_MAX_PORTS; n++) {
        int best = -1;
        for (int i = 0; i < nlow; i++)
            for (int j = 0; j < nhigh; j++) {
                struct tt_rdma_pair pair = {.low = i, .high = j};
                if (low_taken >> i & 1 || high_taken >> j & 1) continue;
                if (near && !(low[i].is_near && high[j].is_near)) continue;
                const int score = match(&low[i], &high[j], &pair);
                if (score <= best || (near && !is_of_one_subnet(score))) continue;
                best = score;
                pairs[n] = pair;
            }
        if (best < 0) return n;
        low_taken |= 1u << pairs[n].low;
        high_taken |= 1u << pairs[n].high;
    }
    return TT_RDMA_MAX_PORTS;
}

static bool has_far(const struct tt_rdma_end *ends, int n)
{
    for (int i = 0; i < n; i++)
        if (!ends[i].is_near) return true;
    return false;
}

int tt_rdma_pair_ends(const struct tt_rdma_end *low, int nlow, const struct tt_rdma_end *high,
                      int nhigh, struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS])
{
    const bool differ = has_far(low, nlow) || has_far(high, nhigh);
    const int nnear = differ ? pair_ends(low, nlow, high, nhigh, true, pairs) : 0;
    return nnear ? nnear : pair_ends(low, nlow, high, nhigh, false, pairs);
}
