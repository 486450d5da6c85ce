/* Where devices are on PCIe. */
#include "base/pcie.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

TEST(pcie, a_distance_is_that_of_the_places)
{
    static const char below_a[] = "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:00.0",
                      also_a[] = "/sys/devices/pci0000:40/0000:40:01.1/0000:41:01.0/0000:43:00.0",
                      below_b[] = "/sys/devices/pci0000:40/0000:40:02.1/0000:51:00.0",
                      other_root[] = "/sys/devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0";
    CHECK_EQ(tt_distance_of_paths(below_a, also_a), TT_BELOW_SWITCH);
    CHECK_EQ(tt_distance_of_paths(below_a, below_b), TT_BELOW_ROOT);
    CHECK_EQ(tt_distance_of_paths(below_a, other_root), TT_ACROSS_ROOTS);
    CHECK_EQ(tt_distance_of_paths(other_root, below_b), TT_ACROSS_ROOTS);
    /* Of a virtual machine of Hyper-V, where each GPU has a root. */
    CHECK_EQ(tt_distance_of_paths("/sys/devices/LNXSYSTM:00/LNXSYBUS:00/PNP0A03:00/device:07/"
                                  "VMBUS:01/47505500-0001/pci0001:00/0001:00:00.0",
                                  "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/PNP0A03:00/device:07/"
                                  "VMBUS:01/47505500-0002/pci0002:00/0002:00:00.0"),
             TT_ACROSS_ROOTS);
    CHECK_EQ(tt_distance_of_paths("", below_b), TT_DISTANCE_UNKNOWN);
    CHECK_EQ(tt_distance_of_paths(below_a, ""), TT_DISTANCE_UNKNOWN);
}

/* A folder like /sys/class/infiniband: a device at each place. */
static void make_devices(const char *folder, const char *const (*devices)[2], int n)
{
    for (int i = 0; i < n; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "cd %s && mkdir -p class/%s .%s && ln -s %s%s class/%s/device", folder,
                 devices[i][0], devices[i][1], folder, devices[i][1], devices[i][0]);
        REQUIRE(system(command) == 0);
    }
}

TEST(pcie, the_nearest_devices_are_named)
{
    static const char *const devices[][2] = {{"mlx5_10", "/pci0000:40/0000:40:01.1/0000:45:00.0"},
                                             {"mlx5_2", "/pci0000:40/0000:40:01.1/0000:44:00.0"},
                                             {"mlx5_3", "/pci0000:40/0000:40:02.1/0000:51:00.0"},
                                             {"mlx5_4", "/pci0000:c0/0000:c0:01.1/0000:c1:00.0"},
                                             {"rxe0", "/virtual/rxe0"}};
    char folder[] = "/tmp/tutti-pcie-XXXXXX", class[64], names[64], gpu[TT_PCIE_PATH];
    REQUIRE(mkdtemp(folder));
    make_devices(folder, devices, 5);
    snprintf(class, sizeof class, "%s/class", folder);
    snprintf(gpu, sizeof gpu, "%s%s", folder, "/pci0000:40/0000:40:01.1/0000:46:00.0");
    CHECK_EQ(tt_pcie_nearest(class, gpu, names, sizeof names), TT_BELOW_SWITCH);
    CHECK_STR(names, "mlx5_2, mlx5_10");
    CHECK_EQ(tt_pcie_nearest(class, gpu, names, 10), TT_BELOW_SWITCH); /* cut */
    CHECK_STR(names, "mlx5_2, m");
    snprintf(gpu, sizeof gpu, "%s%s", folder, "/pci0000:40/0000:40:03.1/0000:61:00.0");
    CHECK_EQ(tt_pcie_nearest(class, gpu, names, sizeof names), TT_BELOW_ROOT);
    CHECK_STR(names, "mlx5_2, mlx5_3, mlx5_10");
    CHECK_EQ(tt_pcie_nearest(class, "", names, sizeof names), TT_DISTANCE_UNKNOWN);
    CHECK_STR(names, "");
    CHECK_EQ(tt_pcie_nearest("/nonexistent", gpu, names, sizeof names), TT_DISTANCE_UNKNOWN);
    char command[80];
    snprintf(command, sizeof command, "rm -r --one-file-system %s", folder);
    CHECK(system(command) == 0);
}
