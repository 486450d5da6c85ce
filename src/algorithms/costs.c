/* The constants of the cost model (cost.c): the shipped ones, those of GPUs, and what they are. */
#include "algorithms/costs.h"

#include <stdio.h>
#include <string.h>

#include "algorithms/algorithms.h"

/* Measured on two cores of an AVX-512 server in a virtual machine. The constants of one host are
 * those of tutti-plan tune, from the least times of eight runs with 2, 4 and 8 ranks: they are
 * fitted to choices more than to times. */
const struct tt_costs tt_shipped_costs = {{
    [TT_COST_LINK] = {"link", 0.47,
                      "a message whose answer is waited for; all_reduce and all_gather of 2"},
    [TT_COST_LINK_ONE_WAY] =
        {"link_one_way", 0.12,
         "a message from or to a root, which waits for no answer; rooted ones of 4 and 8"},
    [TT_COST_MEETING] = {"meeting", 0.29, "with meeting_rank; all_reduce and barrier of 2"},
    [TT_COST_MEETING_RANK] = {"meeting_rank", 0.03, "one more flag to look at"},
    [TT_COST_TURN_LINK] = {"turn_link", 0.8, "per rank; exchanges of 4 and 8 ranks on 2 cores"},
    [TT_COST_TURN_MEETING] = {"turn_meeting", 0.75, "per rank; 3 us at 4 ranks on 2 cores"},
    [TT_COST_ACTION] = {"action", 0.048, "a step, or a message sent or received"},
    [TT_COST_BYTE_SENT] = {"byte_sent", 1.0 / 5600,
                           "into a slot of a link; 4 to 512 KiB, 2 to 8 ranks"},
    [TT_COST_BYTE_LONG] = {"byte_long", 1.0 / 10e3,
                           "beyond the first 16 KiB of a message; 2 ranks, 64 to 512 KiB"},
    [TT_COST_BYTE_PUT] = {"byte_put", 1.0 / 6250,
                          "into a meeting, where nobody reads before all have put"},
    [TT_COST_BYTE_REDUCED] = {"byte_reduced", 1.0 / 40e3,
                              "read to be reduced; all_reduce of 2, 64 KiB"},
    [TT_COST_BYTE_RESULT] = {"byte_result", 1.0 / 8000, "written to the result"},
    [TT_COST_NET_LINK] = {"net_link", 6.0,
                          "TCP to a rank that waits: 2.4 us on loopback, and a real network"},
    [TT_COST_NET_MESSAGE] = {"net_message", 1.5,
                             "its system calls; a ping over loopback takes 3.9 us"},
    [TT_COST_NET_BYTE] = {"net_byte", 1.0 / 3600, "TCP on one core; 2.3 GB/s with byte_sent"},
}};

/* Measured on two cores of an Intel Xeon in a virtual machine. There messages cost less, beside
 * meetings, than on the machine of the table above: all_gather of 8 KiB on 2 ranks takes 1.4 us in
 * a ring, 1.8 us in a meeting. */
static const struct tt_cost costs_with_fast_rep_movsb[TT_NCOSTS] = {
    [TT_COST_LINK] = {"link", 0.26, "a message whose answer is waited for; tutti-plan tune, 2"},
    [TT_COST_BYTE_PUT] = {"byte_put", 0.00018, "into a meeting; choices of 2 and 4 ranks"},
};

struct tt_costs tt_costs_shipped(bool fast_rep_movsb)
{
    struct tt_costs costs = tt_shipped_costs;
    for (int i = 0; fast_rep_movsb && i < TT_NCOSTS; i++)
        if (costs_with_fast_rep_movsb[i].name) costs.at[i] = costs_with_fast_rep_movsb[i];
    return costs;
}

/* On GPUs; bytes are those of one block of threads, of which a call has several. Fitted to
 * all-reduces of 256 bytes to 64 MiB on one H100, 2 and 8 ranks with 8 to 32 blocks each, as
 * perf-tests timed them (docs/cuda-measured.md). Never measured between GPUs; perf-tests with
 * --device cuda and TUTTI_ALGORITHM tell what to put here. What no call on a GPU needs is 0. */
const struct tt_costs tt_gpu_costs[TT_GPU_NPROTOCOLS] = {
    [TT_GPU_SLOTS] = {{
        [TT_COST_LINK] = {"link", 2.2, "as with lines, and a release and an acquire: 1.2 us"},
        [TT_COST_LINK_ONE_WAY] = {"link_one_way", 2.2,
                                  "as link: the kernels of ranks start together"},
        [TT_COST_MEETING] = {"meeting", 10.3, "as with lines, and a release and an acquire"},
        [TT_COST_MEETING_RANK] = {"meeting_rank", 1.0, "between meet, 0.3, and meet_two_shot, 2.7"},
        [TT_COST_STEP] = {"step", 2.4, "as with lines: barriers of the block, and looking up"},
        [TT_COST_ACTION] = {"action", 0.2, "as with lines"},
        [TT_COST_BYTE_SENT] = {"byte_sent", 1.0 / 75e3, "two_shot of 64 MiB, less byte_reduced"},
        [TT_COST_BYTE_PUT] = {"byte_put", 1.0 / 75e3, "as byte_sent: into the own place"},
        [TT_COST_BYTE_REDUCED] = {"byte_reduced", 1.0 / 23e3, "parallel of 64 MiB, less two_shot"},
        [TT_COST_BYTE_RESULT] = {"byte_result", 1.0 / 75e3, "as byte_sent"},
    }},
    [TT_GPU_LINES] = {{
        [TT_COST_LINK] = {"link", 1.0, "8 ranks: a ring 70 us, two_shot with as many steps 59 us"},
        [TT_COST_LINK_ONE_WAY] = {"link_one_way", 1.0, "as link"},
        [TT_COST_MEETING] = {"meeting", 9.1, "2 ranks 23 us, 8 ranks 34 us; parallel 15.5 and 27"},
        [TT_COST_MEETING_RANK] = {"meeting_rank", 1.0, "between meet, 0.3, and meet_two_shot, 2.7"},
        [TT_COST_STEP] = {"step", 2.4, "8 ranks: a ring 70 us, recursive_doubling 32 us"},
        [TT_COST_ACTION] = {"action", 0.2, "8 ranks: parallel 27 us, recursive_doubling 32 us"},
        [TT_COST_BYTE_SENT] = {"byte_sent", 2.0 / 75e3, "half of a line is data"},
        [TT_COST_BYTE_PUT] = {"byte_put", 2.0 / 75e3,
                              "as byte_sent, to each rank: see put_to_each"},
        [TT_COST_BYTE_REDUCED] = {"byte_reduced", 2.0 / 23e3, "half of a line is data"},
        [TT_COST_BYTE_RESULT] = {"byte_result", 1.0 / 75e3, "as with slots"},
    }},
};

/* Between GPUs of two hosts: what their proxies and the network take, the sums of the constants of
 * tutti-plan cost (tools/cost/constants.c), which say where each comes from. A test compares both.
 * A message is one frame, and so is its credit: a proxy sends as many of each as it takes. */
#define BRIDGE(hop, message, credit, byte)                                                         \
    {                                                                                              \
        {                                                                                          \
            [TT_COST_NET_LINK] = {"net_link", hop, "from kernel to kernel: proxies and network"},  \
            [TT_COST_NET_MESSAGE] = {"net_message", message,                                       \
                                     "of a proxy: a message sent, and one taken"},                 \
            [TT_COST_NET_CREDIT] = {"net_credit", credit,                                          \
                                    "of a proxy: a credit sent, and one taken"},                   \
            [TT_COST_NET_BYTE] = {"net_byte", byte, "of a proxy, or of its network device"},       \
        }                                                                                          \
    }
const struct tt_costs tt_bridge_costs[TT_NBRIDGE_WAYS] = {
    [TT_BRIDGES_BY_TCP] = BRIDGE(2 * (1.6 + 0.13 + 3.4) + 5, 2 * (0.13 + 3.4), 2 * (0.13 + 3.4),
                                 2 / 17.5e3 + 1 / 5.4e3 + 1 / 8.6e3),
    [TT_BRIDGES_BY_RDMA] =
        BRIDGE(2 * (1.6 + 0.13 + 0.5) + 3, 2 * (0.13 + 0.5), 2 * (0.13 + 0.5), 2 / 17.5e3),
    [TT_BRIDGES_OF_GPUS] = BRIDGE(2 * (1.6 + 0.13 + 2 * 0.5) + 3 + 2, 2 * (0.13 + 2 * 0.5),
                                  2 * (0.13 + 0.5), 1 / 46e3),
};
#undef BRIDGE

bool tt_gpu_takes_lines(size_t nbytes)
{
    const struct tt_costs *slots = &tt_gpu_costs[TT_GPU_SLOTS],
                          *lines = &tt_gpu_costs[TT_GPU_LINES];
    /* Of one block. The receiver reads lines while the sender writes others. */
    const double more = lines->at[TT_COST_BYTE_SENT].value - slots->at[TT_COST_BYTE_SENT].value;
    return (double)nbytes * more <= slots->at[TT_COST_LINK].value - lines->at[TT_COST_LINK].value;
}

bool tt_cost_is_between_hosts(enum tt_cost_key key)
{
    return key >= TT_COST_NET_LINK;
}

/* FNV-1a, over the bits of the values. */
uint32_t tt_costs_checksum(const struct tt_costs *costs)
{
    uint32_t sum = 2166136261u;
    for (int i = 0; i < TT_NCOSTS; i++) {
        unsigned char bytes[sizeof costs->at[i].value];
        memcpy(bytes, &costs->at[i].value, sizeof bytes);
        for (size_t k = 0; k < sizeof bytes; k++) sum = (sum ^ bytes[k]) * 16777619u;
    }
    return sum;
}

static void describe_table(const struct tt_costs *costs, const struct tt_costs *shipped,
                           const char *of, void (*emit)(void *arg, const char *line), void *arg)
{
    for (int i = 0; i < TT_NCOSTS; i++) {
        const struct tt_cost *cost = &costs->at[i];
        char line[200], other[48] = "";
        if (!cost->name) continue;
        if (shipped && cost->value != shipped->at[i].value)
            snprintf(other, sizeof other, "shipped: %.6f us; ", shipped->at[i].value);
        snprintf(line, sizeof line, "%s%-13s %9.6f us  %s%s", of, cost->name, cost->value, other,
                 cost->source);
        emit(arg, line);
    }
}

void tt_costs_describe(const struct tt_costs *costs, const struct tt_costs *shipped,
                       void (*emit)(void *arg, const char *line), void *arg)
{
    describe_table(costs, shipped, "", emit, arg);
    describe_table(&tt_gpu_costs[TT_GPU_SLOTS], NULL, "GPU slots ", emit, arg);
    describe_table(&tt_gpu_costs[TT_GPU_LINES], NULL, "GPU lines ", emit, arg);
    describe_table(&tt_bridge_costs[TT_BRIDGES_BY_TCP], NULL, "GPU tcp ", emit, arg);
    describe_table(&tt_bridge_costs[TT_BRIDGES_BY_RDMA], NULL, "GPU rdma ", emit, arg);
    describe_table(&tt_bridge_costs[TT_BRIDGES_OF_GPUS], NULL, "GPU dmabuf ", emit, arg);
}
