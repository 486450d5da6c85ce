/* The constants of the model of calls on GPUs, and their sources. */
#include "cost/constants.h"

#include <string.h>

/* "Measured" is docs/cuda-measured.md, for what a processor takes tests/carrier/bridge_times.c: the
 * least of 14 to 24 runs on two cores of an AMD EPYC in a virtual machine with Linux 6.18. */
const struct cost_constant cost_constants[COST_NKEYS] = {
    [COST_CALL] = {"call", 9.7, "us", COST_MEASURED,
                   "a call without steps, in a stream of calls: one rank's empty call"},
    [COST_LAUNCH] = {"launch", 1.4, "us", COST_MEASURED,
                     "each further rank that launches from the same process: all_reduce:parallel "
                     "of 256 bytes, 2 and 8 ranks"},
    [COST_STEP] = {"step", 2.4, "us", COST_MEASURED,
                   "a step in each round: barriers of the block, and looking up"},
    [COST_MESSAGE] = {"message", 0.2, "us", COST_MEASURED,
                      "each message that a step sends or takes (tt_gpu_costs: action)"},
    [COST_MEETING] = {"meeting", 7, "us", COST_FITTED, "what a meeting takes longer than a step"},
    [COST_FLAG] = {"flag", 1.0, "us", COST_MEASURED,
                   "until a receiver on the same GPU sees a line, or that a slot is full"},
    [COST_ACQUIRE] = {"acquire", 0.6, "us", COST_MEASURED,
                      "a message in a slot longer than lines, without the sender's fence: 1.2 less "
                      "0.63"},
    [COST_SLOTS_IN_FLIGHT] = {"in_flight", 128, "bytes", COST_COUNTED,
                              "of a thread on their way, slots: tests/device/code.sh"},
    [COST_LINES_IN_FLIGHT] = {"line_in_flight", 64, "bytes", COST_COUNTED,
                              "of a thread on their way, lines: 4 loads of 16 bytes at once"},
    [COST_LOAD] = {"load", 0.87, "us", COST_FITTED,
                   "until what a thread has on its way has come: 75 GB/s a block of 512 threads"},
    [COST_STORE] = {"store", 0.4, "us", COST_FITTED, "to store as many bytes"},
    [COST_HOST_FLAG] = {"host_flag", 1.6, "us", COST_MEASURED,
                        "until a thread of the CPU sees what a kernel tells, or a kernel what a "
                        "thread tells: half of a round trip"},
    [COST_HOST_LOAD] = {"host_load", 1.15, "us", COST_MEASURED,
                        "as load, from pinned memory: a load of 2,280 ticks"},
    [COST_HOST_FENCE] = {"host_fence", 0.63, "us", COST_MEASURED,
                         "a release of scope .sys behind stores to pinned memory: as long with "
                         "stores in flight as without, on one GPU"},
    [COST_HOST_MEMORY] = {"host_memory", 51, "GB/s", COST_MEASURED,
                          "a kernel loads from, or stores to, pinned memory, 4 blocks (PCIe 5)"},
    [COST_PROXY_FRAME] = {"proxy_frame", 0.13, "us", COST_MEASURED,
                          "of a proxy, for each frame, over a link in memory: a message and a "
                          "credit, sent and taken, take 0.52"},
    [COST_PROXY_COPY] = {"proxy_copy", 17.5, "GB/s", COST_MEASURED,
                         "a proxy copies between a slot and a link, at each end: 128 KiB take 7.5 "
                         "us where the slot is in no cache of the CPU (else 4.1)"},
    [COST_COPY] = {"copy", 6, "us", COST_MEASURED, "a copy of 8 bytes between GPU and host"},
    [COST_WORDS] = {"words", 3.3, "us", COST_MEASURED,
                    "a stream stores a word for the host and waits for one"},
    [COST_PINNED] = {"pinned", 55, "GB/s", COST_MEASURED,
                     "an H100 copies to and from pinned memory"},
};

#define LATENCY(value)                                                                             \
    {                                                                                              \
        "latency", value, "us", COST_ESTIMATED,                                                    \
            "a store that another GPU sees, longer than on one GPU"                                \
    }
#define FENCE(value)                                                                               \
    {                                                                                              \
        "fence", value, "us", COST_ESTIMATED,                                                      \
            "a release of scope .sys behind stores to another GPU: 0.63 on one, and a round trip"  \
    }

/* What an RDMA device takes, whatever memory it moves. */
#define RDMA_DEVICE                                                                                \
    [COST_BANDWIDTH] = {"net_bandwidth", 46, "GB/s", COST_PUBLISHED,                               \
                        "one device of 400 Gbit/s a GPU: 46 to 48 "                                \
                        "(github.com/NVIDIA/nccl-tests/issues/290)"},                              \
    [COST_LATENCY] = {"net_latency", 3, "us", COST_ESTIMATED,                                      \
                      "an RDMA write that the peer's CPU sees"},                                   \
    [COST_FENCE] = {                                                                               \
        "post", 0.5, "us", COST_ESTIMATED,                                                         \
        "what the CPU takes to post a message and see that it has ended, or to see one come"}

static const struct cost_link links[] = {
    {.name = "gpu",
     .shared = true,
     .at = {[COST_FENCE] = {"fence", 0.63, "us", COST_MEASURED, "a release of scope .sys"},
            [COST_MEMORY] = {"memory", 2860, "GB/s", COST_MEASURED,
                             "loads and stores of an H100: cuMemcpy on the device"}}},
    {.name = "nvlink3",
     .at = {[COST_BANDWIDTH] = {"bandwidth", 240, "GB/s", COST_ESTIMATED,
                                "A100: 300 (NVIDIA's data sheet) less the 20 % that NVLink 4 takes "
                                "for its protocol (github.com/NVIDIA/nccl-tests/issues/212)"},
            [COST_LATENCY] = LATENCY(0.5),
            [COST_FENCE] = FENCE(1.6),
            [COST_MEMORY] = {"memory", 2039, "GB/s", COST_PUBLISHED,
                             "A100 80GB: NVIDIA's data sheet"}}},
    {.name = "nvlink4",
     .at = {[COST_BANDWIDTH] = {"bandwidth", 376, "GB/s", COST_PUBLISHED,
                                "H100: one GPU writes to another "
                                "(github.com/NVIDIA/nccl/issues/1264); the wire has 450"},
            [COST_LATENCY] = LATENCY(0.5),
            [COST_FENCE] = FENCE(1.6),
            [COST_MEMORY] = {"memory", 2860, "GB/s", COST_MEASURED,
                             "loads and stores of an H100: cuMemcpy on the device"}}},
    {.name = "nvlink5",
     .at = {[COST_BANDWIDTH] = {"bandwidth", 720, "GB/s", COST_ESTIMATED,
                                "B200: 900 (NVIDIA's data sheet) less 20 %, as nvlink3"},
            [COST_LATENCY] = LATENCY(0.5),
            [COST_FENCE] = FENCE(1.6),
            [COST_MEMORY] = {"memory", 8000, "GB/s", COST_PUBLISHED, "B200: NVIDIA's data sheet"}}},
    {.name = "pcie4",
     .at = {[COST_BANDWIDTH] = {"bandwidth", 27, "GB/s", COST_ESTIMATED,
                                "x16: 32 less what 55 of 64 are on pcie5; nothing else on the way"},
            [COST_LATENCY] = LATENCY(1.0),
            [COST_FENCE] = FENCE(2.6),
            [COST_MEMORY] = {"memory", 600, "GB/s", COST_PUBLISHED, "A10: NVIDIA's data sheet"}}},
    {.name = "pcie5",
     .at =
         {[COST_BANDWIDTH] = {"bandwidth", 55, "GB/s", COST_ESTIMATED,
                              "x16: what an H100 copies to and from memory of the host (measured), "
                              "here between GPUs; nothing else on the way"},
          [COST_LATENCY] = LATENCY(1.0),
          [COST_FENCE] = FENCE(2.6),
          [COST_MEMORY] = {"memory", 2000, "GB/s", COST_PUBLISHED,
                           "H100 PCIe: NVIDIA's data sheet"}}},
    {.name = "tcp",
     .hosts = true,
     .way = TT_BRIDGES_BY_TCP,
     .at = {[COST_BANDWIDTH] = {"net_bandwidth", 50, "GB/s", COST_PUBLISHED,
                                "one interface of 400 Gbit/s a host: its wire"},
            [COST_LATENCY] = {"net_latency", 5, "us", COST_ESTIMATED,
                              "the wire, the interrupt and what another core does for it"},
            [COST_FENCE] = {"tcp_frame", 3.4, "us", COST_MEASURED,
                            "system calls of a proxy for each frame, on loopback: a message and a "
                            "credit, sent and taken, take 14.2, less 0.52"},
            [COST_BYTES_OUT] = {"tcp_out", 5.4, "GB/s", COST_MEASURED,
                                "the system copies what a proxy sends, on loopback: 128 KiB take "
                                "38.9 us, less 4.1 for the copy and 3 frames"},
            [COST_BYTES_IN] = {"tcp_in", 8.6, "GB/s", COST_MEASURED,
                               "the system copies what a proxy takes, on loopback: 128 KiB take "
                               "30.0 us, less 4.1 for the copy and 3 frames"}}},
    {.name = "rdma", .hosts = true, .each = true, .way = TT_BRIDGES_BY_RDMA, .at = {RDMA_DEVICE}},
    {.name = "dmabuf",
     .hosts = true,
     .each = true,
     .direct = true,
     .way = TT_BRIDGES_OF_GPUS,
     .at = {RDMA_DEVICE, [COST_FLUSH] =
                             {"flush", 2, "us", COST_ESTIMATED,
                              "a device reads from the GPU behind what it has stored there"}}},
};
enum { NLINKS = sizeof links / sizeof *links };

const struct cost_link *cost_link_at(int index)
{
    return index >= 0 && index < NLINKS ? &links[index] : NULL;
}

const struct cost_link *cost_link_find(const char *name)
{
    for (int i = 0; i < NLINKS; i++)
        if (strcmp(links[i].name, name) == 0) return &links[i];
    return NULL;
}

const char *cost_kind_name(enum cost_kind kind)
{
    static const char *const names[] = {[COST_MEASURED] = "measured",
                                        [COST_FITTED] = "fitted",
                                        [COST_COUNTED] = "counted",
                                        [COST_PUBLISHED] = "published",
                                        [COST_ESTIMATED] = "estimated"};
    return names[kind];
}
