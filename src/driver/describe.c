/* The GPUs as lines of text. */
#include "driver/driver.h"

#include <stdio.h>
#include <string.h>

#include "base/output.h"

static void describe_gpu(const struct tt_output *output, int number)
{
    struct tt_gpu gpu;
    if (tt_driver_gpu(number, &gpu) != TT_OK) {
        tt_say(output, "GPU %d: %s", number, tt_last_error());
        return;
    }
    char peers[512] = "";
    for (int peer = 0; peer < tt_driver_ngpus(NULL); peer++) {
        const size_t used = strlen(peers);
        if (peer != number && tt_driver_peers(number, peer))
            snprintf(peers + used, sizeof peers - used, "%s%d by %s",
                     used ? ", " : ", accesses GPU ", peer,
                     tt_distance_text(tt_driver_distance(number, peer)));
    }
    tt_say(output, "GPU %d: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, PCI %s%s",
           number, gpu.name, gpu.capability / 10, gpu.capability % 10, gpu.nprocessors,
           (double)gpu.nbytes / (1 << 30), gpu.pci, peers);
}

/* By PCIe alone: whether a device can be used is not asked. */
static void describe_rdma(const struct tt_output *output, int number)
{
    char path[TT_PCIE_PATH], names[256];
    tt_driver_pcie_path(number, path);
    const enum tt_distance distance =
        tt_pcie_nearest("/sys/class/infiniband", path, names, sizeof names);
    if (distance)
        tt_say(output, "GPU %d: nearest to RDMA devices %s, by %s", number, names,
               tt_distance_text(distance));
}

void tt_driver_describe(void (*emit)(void *arg, const char *line), void *arg)
{
    const struct tt_output output = {emit, arg};
    const char *why;
    const int ngpus = tt_driver_ngpus(&why);
    if (ngpus == 0) tt_say(&output, "no GPU: %s", why);
    for (int number = 0; number < ngpus; number++) {
        describe_gpu(&output, number);
        describe_rdma(&output, number);
    }
}
