/* How far two GPUs of a machine are from one another: what the driver says of the link between
 * them, and where the system has them on PCIe. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda.h"
#include "driver/driver.h"

/* The device's place below its root, as "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0"; "":
 * the system does not say. */
static void find_path(const char *pci, char path[PATH_MAX])
{
    char link[64], *at = link + snprintf(link, sizeof link, "/sys/bus/pci/devices/");
    for (; *pci && at < link + sizeof link - 1; pci++) *at++ = (char)tolower((unsigned char)*pci);
    *at = '\0';
    if (!realpath(link, path)) path[0] = '\0';
}

/* Counts the slashes that both begin with: 4 where the root is the same, more below one switch. */
enum tt_distance tt_distance_of_paths(const char *a, const char *b)
{
    enum { ROOT = 4 };
    int n = 0;
    if (!*a || !*b) return TT_DISTANCE_UNKNOWN;
    for (; *a && *a == *b; a++, b++) n += *a == '/';
    return n < ROOT ? TT_ACROSS_ROOTS : n == ROOT ? TT_BELOW_ROOT : TT_BELOW_SWITCH;
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
    char path[PATH_MAX], peer_path[PATH_MAX];
    find_path(gpu.pci, path);
    find_path(other.pci, peer_path);
    const enum tt_distance found = tt_distance_of_paths(path, peer_path);
    if (found) return found;
    const int rank = ask(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, number, peer);
    return rank <= 0 ? TT_BELOW_SWITCH : rank == 1 ? TT_BELOW_ROOT : TT_ACROSS_ROOTS;
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
