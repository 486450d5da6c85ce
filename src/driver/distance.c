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

/* Behind the root of a path, "/sys/devices/pci0000:40/", which virtual machines have deeper; NULL:
 * there is none. */
static const char *behind_root(const char *path)
{
    const char *root = strstr(path, "/pci"), *end = root ? strchr(root + 1, '/') : NULL;
    return end ? end + 1 : NULL;
}

/* Below one switch where both have the same bridge behind the same root. */
enum tt_distance tt_distance_of_paths(const char *a, const char *b)
{
    const char *in_a = behind_root(a), *in_b = behind_root(b);
    if (!in_a || !in_b) return TT_DISTANCE_UNKNOWN;
    if (in_a - a != in_b - b || strncmp(a, b, (size_t)(in_a - a))) return TT_ACROSS_ROOTS;
    const size_t length = strcspn(in_a, "/");
    return in_a[length] && !strncmp(in_a, in_b, length + 1) ? TT_BELOW_SWITCH : TT_BELOW_ROOT;
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
