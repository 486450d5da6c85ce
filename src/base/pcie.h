/* Where devices are on PCIe, and how far they are from one another. */
#ifndef TT_BASE_PCIE_H
#define TT_BASE_PCIE_H

#include <stddef.h>

enum { TT_PCIE_PATH = 256 };

/* What lies between two devices; the nearer come first. */
enum tt_distance {
    TT_DISTANCE_UNKNOWN, /* this process does not see both */
    TT_NEAR,             /* NVLink, or nothing: it is one device */
    TT_BELOW_SWITCH,
    TT_BELOW_ROOT,
    TT_ACROSS_ROOTS /* of PCIe */
};

/* The device's place below its root, as "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", where
 * `link` is a link to it in /sys. "": the system does not say. */
void tt_pcie_path(const char *link, char path[TT_PCIE_PATH]);

/* By the paths of two devices; "": unknown. */
enum tt_distance tt_distance_of_paths(const char *a, const char *b);

/* Of the device `name` of a folder, "/sys/class/infiniband" say, from a path. */
enum tt_distance tt_pcie_distance(const char *folder, const char *name, const char *path);

/* The names in `folder`, of the devices that are nearest to a path: "mlx5_0, mlx5_1", cut at
 * `size`. UNKNOWN, and "": there is none whose place is known. */
enum tt_distance tt_pcie_nearest(const char *folder, const char *path, char *names, size_t size);

#endif
