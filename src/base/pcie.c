/* Where devices are on PCIe, from the folders of the system. */
#include "base/pcie.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/private_fd.h"

void tt_pcie_path(const char *link, char path[TT_PCIE_PATH])
{
    char whole[PATH_MAX];
    if (!realpath(link, whole) || strlen(whole) >= TT_PCIE_PATH) whole[0] = '\0';
    snprintf(path, TT_PCIE_PATH, "%.*s", TT_PCIE_PATH - 1, whole);
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

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

enum tt_distance tt_pcie_distance(const char *folder, const char *name, const char *path)
{
    char link[PATH_MAX], place[TT_PCIE_PATH];
    snprintf(link, sizeof link, "%s/%s/device", folder, name);
    tt_pcie_path(link, place);
    return tt_distance_of_paths(path, place);
}

enum tt_distance tt_pcie_nearest(const char *folder, const char *path, char *names, size_t size)
{
    struct dirent **entries;
    tt_low_fd_hold();
    const int n = scandir(folder, &entries, is_shown, versionsort);
    (void)tt_low_fd_release(-1);
    enum tt_distance nearest = TT_DISTANCE_UNKNOWN;
    size_t used = 0;
    names[0] = '\0';
    for (int i = 0; i < n; i++) {
        const enum tt_distance distance = tt_pcie_distance(folder, entries[i]->d_name, path);
        const bool is_nearer = distance && (!nearest || distance < nearest);
        if (is_nearer) nearest = distance;
        if (is_nearer) used = 0;
        if (distance && distance == nearest && used < size)
            used += (size_t)snprintf(names + used, size - used, "%s%s", used ? ", " : "",
                                     entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return nearest;
}
