/* Writes the topology of this machine as XML through hwloc. sysfs.c and xml.c read, and say why. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/private_fd.h"
#include "topology/backend.h"

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>

/* Restricts the topology to the CPUs allowed to the process. hwloc_bitmap_free takes NULL. */
static int restrict_to_allowed(hwloc_topology_t hwloc)
{
    struct tt_cpus allowed;
    tt_cpus_allowed(&allowed);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set) return -1;
    for (int cpu = 0; cpu < TT_CPUS_MAX; cpu++)
        if (tt_cpus_has(&allowed, cpu)) hwloc_bitmap_set(set, (unsigned)cpu);
    const int result = hwloc_topology_restrict(hwloc, set, 0);
    hwloc_bitmap_free(set);
    return result;
}

static tt_status open_hwloc(hwloc_topology_t *result)
{
    /* The x86 component binds this thread to every CPU in turn; the others look for devices, which
     * are not needed. */
    static const char *const unneeded[] = {"x86",  "pci",  "opencl", "gl",
                                           "cuda", "nvml", "rsmi",   "levelzero"};
    hwloc_topology_t hwloc;
    if (hwloc_topology_init(&hwloc) != 0) return tt_fail_errno(errno, "hwloc_topology_init");
    for (size_t i = 0; i < sizeof unneeded / sizeof *unneeded; i++)
        (void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unneeded[i]);
    tt_low_fd_hold();
    const int loaded = hwloc_topology_load(hwloc);
    (void)tt_low_fd_release(-1);
    if (loaded != 0 || restrict_to_allowed(hwloc) != 0) {
        const int error = errno;
        hwloc_topology_destroy(hwloc);
        return tt_fail_errno(error, "hwloc cannot load the topology of this machine");
    }
    *result = hwloc;
    return TT_OK;
}

bool tt_hwloc_present(void)
{
    return true;
}

tt_status tt_hwloc_xml(char **xml)
{
    hwloc_topology_t hwloc = NULL;
    TT_TRY(open_hwloc(&hwloc));
    char *buffer = NULL;
    int length = 0;
    if (hwloc_topology_export_xmlbuffer(hwloc, &buffer, &length, 0) != 0) {
        const int error = errno;
        hwloc_topology_destroy(hwloc);
        return tt_fail_errno(error, "hwloc cannot write the topology of this machine as XML");
    }
    char *copy = strdup(buffer);
    hwloc_free_xmlbuffer(hwloc, buffer);
    hwloc_topology_destroy(hwloc);
    if (!copy) return tt_fail(TT_ERR_SYSTEM, "no memory for %d bytes of XML", length);
    *xml = copy;
    return TT_OK;
}

#else

bool tt_hwloc_present(void)
{
    return false;
}

tt_status tt_hwloc_xml(char **xml)
{
    (void)xml;
    return tt_fail(TT_ERR_SYSTEM, "writing a topology as XML needs hwloc, and this library was "
                                  "built without it; install libhwloc-dev and build again");
}

#endif
