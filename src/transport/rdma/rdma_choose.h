/* Which RDMA ports are used, and which of two ranks' ports and GIDs belong together: pure functions
 * over plain data. */
#ifndef TT_TRANSPORT_RDMA_CHOOSE_H
#define TT_TRANSPORT_RDMA_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pcie.h"
#include "base/status.h"

enum { TT_RDMA_MAX_PORTS = 8, TT_RDMA_MAX_GIDS = 3, TT_RDMA_NAME = 64 };

/* A port that there is. */
struct tt_rdma_candidate {
    char device[TT_RDMA_NAME];
    int port;
    int distance;     /* from the CPUs of this process; only compared */
    int gpu_distance; /* tt_rdma_gpu_distance */
    bool named;       /* used while choosing */
};

/* How far a device is from the rank's GPU; the nearer are smaller. Without a GPU, and where PCIe
 * does not say, all are equally far. */
static inline int tt_rdma_gpu_distance(enum tt_distance distance)
{
    return distance ? (int)distance : TT_ACROSS_ROOTS;
}

/* Moves the ports that the list (TUTTI_RDMA_DEVICE) asks for to the front: those nearest to the
 * GPU first, then to the CPUs, then by name and port. An empty list takes those at the least
 * distance from the CPUs, and those at the least from the GPU where PCIe tells it. TT_ERR_ARGUMENT
 * for a name that no port has; it lists those there are. */
TT_NODISCARD tt_status tt_rdma_choose_ports(struct tt_rdma_candidate *ports, int number,
                                            const char *list, int *nchosen);

/* Larger is preferred. */
enum tt_gid_kind { TT_GID_NONE, TT_GID_LINK_LOCAL, TT_GID_GLOBAL, TT_GID_IPV4 };
struct tt_gid {
    uint8_t raw[16];
};
enum tt_gid_kind tt_gid_kind(const struct tt_gid *gid);
/* "10.0.0.1", "fe80::1". */
void tt_gid_name(const struct tt_gid *gid, char *text, unsigned size);

/* One port's end of a connection, as the other side needs it. */
struct tt_rdma_end {
    uint32_t qp_number, first_packet;
    uint32_t key; /* of the memory, at this port's device */
    uint16_t lid;
    uint8_t mtu; /* as libibverbs numbers them: 1 is 256, 5 is 4096 */
    uint8_t ethernet;
    uint8_t ngids;
    uint8_t is_near; /* none of the rank's ports is nearer to its GPU */
    uint8_t unused[2];
    struct tt_gid gids[TT_RDMA_MAX_GIDS];
};

struct tt_rdma_pair {
    int low, high;         /* ends of the lower and of the higher rank */
    int low_gid, high_gid; /* which of the ends' GIDs */
};

/* Where some ends are near to GPUs and others not, only near ones are paired, if any two of them
 * are of one subnet: they reach each other, and each rank uses what is nearest. Otherwise, as GPUs
 * whose ports are on different rails have none, all are. Pairs each end with at most one of the
 * other side: of the same link layer, the same kind of address, the same subnet where possible.
 * Both sides get the same pairs in the same order. Returns their number. */
int tt_rdma_pair_ends(const struct tt_rdma_end *low, int nlow, const struct tt_rdma_end *high,
                      int nhigh, struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS]);

#endif
