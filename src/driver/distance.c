/* How far two GPUs of a machine are from one another: what the driver says of the link between
 * them, and where the system has them on PCIe. */
#include <ctype.h>
#include <stdio.h>

#include "driver/cuda.h"
#include "driver/driver.h"

static void path_of(const struct tt_gpu *gpu, char path[TT_PCIE_PATH])
{
    char link[64], *at = link + snprintf(link, sizeof link, "/sys/bus/pci/devices/");
    for (const char *c = gpu->pci; *c && at < link + sizeof link - 1; c++)
        *at++ = (char)tolower((unsigned char)*c);
    *at = '\0';
    tt_pcie_path(link, path);
}

void tt_driver_pcie_path(int number, char path[TT_PCIE_PATH])
{
    struct tt_gpu gpu;
    path[0] = '\0';
    if (number >= 0 && !tt_driver_gpu(number, &gpu)) path_of(&gpu, path);
}

static int ask(CUdevice_P2PAttribute which, int number, int peer)
{
    const struct tt_cuda *cu = tt_cuda_load();
    CUdevice device, other;
    int value = 0;
    if (cu->DeviceGet(&device, number) != CUDA_SUCCESS ||
        cu->DeviceGet(&other, peer) != CUDA_SUCCESS ||
        cu->DeviceGetP2PAttribute(&value, which, device, other) != CUDA_SUCCESS)
        return 0;
    return value;
}

enum tt_distance tt_driver_distance(int number, int peer)
{
    struct tt_gpu gpu, other;
    if (number == peer) return TT_NEAR;
    if (peer < 0 || tt_driver_gpu(number, &gpu) || tt_driver_gpu(peer, &other))
        return TT_DISTANCE_UNKNOWN;
    if (ask(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, number, peer)) return TT_NEAR;
    char path[TT_PCIE_PATH], peer_path[TT_PCIE_PATH];
    path_of(&gpu, path);
    path_of(&other, peer_path);
    const enum tt_distance found = tt_distance_of_paths(path, peer_path);
    return found ? found : TT_BELOW_ROOT;
}

const char *tt_distance_text(enum tt_distance distance)
{
    static const char *const texts[] = {[TT_DISTANCE_UNKNOWN] = "a link of unknown kind",
                                        [TT_NEAR] = "NVLink",
                                        [TT_BELOW_SWITCH] = "a PCIe switch",
                                        [TT_BELOW_ROOT] = "a PCIe root",
                                        [TT_ACROSS_ROOTS] = "two PCIe roots"};
    return texts[distance];
}
