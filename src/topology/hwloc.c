/* Reads and writes XML files through hwloc. sysfs.c reads this machine, and says why. */
#include "topology/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/private_fd.h"

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>

static const char *name_of(const char *xml_path)
{
    return xml_path && xml_path[0] ? xml_path : "this machine";
}

/* Restricts the topology of this machine to the CPUs allowed to the process. hwloc_bitmap_free
 * takes NULL. */
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

static tt_status open_hwloc(const char *xml_path, hwloc_topology_t *result)
{
    /* The x86 component binds this thread to every CPU in turn; the others look for devices, which
     * are not needed. */
    static const char *const unneeded[] = {"x86",  "pci",  "opencl", "gl",
                                           "cuda", "nvml", "rsmi",   "levelzero"};
    const bool is_file = xml_path && xml_path[0];
    hwloc_topology_t hwloc;
    if (hwloc_topology_init(&hwloc) != 0) return tt_fail_errno(errno, "hwloc_topology_init");
    if (is_file && hwloc_topology_set_xml(hwloc, xml_path) != 0) {
        const int error = errno;
        hwloc_topology_destroy(hwloc);
        return tt_fail(TT_ERR_ARGUMENT,
                       "topology file '%s' cannot be read as hwloc XML (%s); expected what `lstopo "
                       "file.xml` or `tutti-info --xml` writes",
                       xml_path, strerror(error));
    }
    for (size_t i = 0; !is_file && i < sizeof unneeded / sizeof *unneeded; i++)
        (void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unneeded[i]);
    tt_low_fd_hold();
    const int loaded = hwloc_topology_load(hwloc);
    (void)tt_low_fd_release(-1);
    if (loaded != 0 || (!is_file && restrict_to_allowed(hwloc) != 0)) {
        const int error = errno;
        hwloc_topology_destroy(hwloc);
        return tt_fail(is_file ? TT_ERR_ARGUMENT : TT_ERR_SYSTEM,
                       "hwloc cannot load the topology of %s (%s)", name_of(xml_path),
                       strerror(error));
    }
    *result = hwloc;
    return TT_OK;
}

bool tt_hwloc_present(void)
{
    return true;
}

static int ancestor_index(hwloc_topology_t hwloc, hwloc_obj_t pu, hwloc_obj_type_t type, int absent)
{
    const hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(hwloc, type, pu);
    return above ? (int)above->logical_index : absent;
}

static size_t cache_bytes(hwloc_topology_t hwloc, hwloc_obj_type_t type)
{
    const hwloc_obj_t cache = hwloc_get_obj_by_type(hwloc, type, 0);
    return cache ? (size_t)cache->attr->cache.size : 0;
}

static const char *find_cpu_model(hwloc_topology_t hwloc)
{
    const hwloc_obj_t package = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (!model) model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(hwloc), "CPUModel");
    return model ? model : "";
}

static void read_pus(hwloc_topology_t hwloc, struct tt_topology *topology)
{
    for (int i = 0; i < topology->npus; i++) {
        const hwloc_obj_t pu = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PU, (unsigned)i);
        const int node = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : 0;
        const hwloc_obj_t numa = hwloc_get_numanode_obj_by_os_index(hwloc, (unsigned)node);
        topology->pus[i] = (struct tt_pu){
            .os_index = (int)pu->os_index,
            .core = ancestor_index(hwloc, pu, HWLOC_OBJ_CORE, i),
            .package = ancestor_index(hwloc, pu, HWLOC_OBJ_PACKAGE, 0),
            .numa = numa ? (int)numa->logical_index : 0,
            .l2 = ancestor_index(hwloc, pu, HWLOC_OBJ_L2CACHE, -1),
            .l3 = ancestor_index(hwloc, pu, HWLOC_OBJ_L3CACHE, -1),
        };
    }
}

tt_status tt_hwloc_load(const char *xml_path, struct tt_topology **topology)
{
    hwloc_topology_t hwloc;
    TT_TRY(open_hwloc(xml_path, &hwloc));
    const int npus = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU);
    struct tt_topology *new = npus > 0 ? tt_topology_new(npus) : NULL;
    if (!new) {
        hwloc_topology_destroy(hwloc);
        return npus > 0 ? tt_fail(TT_ERR_SYSTEM, "no memory for the topology of %d CPUs", npus)
                        : tt_fail(TT_ERR_ARGUMENT, "topology of %s has no processing unit",
                                  name_of(xml_path));
    }
    read_pus(hwloc, new);
    new->l1_bytes = cache_bytes(hwloc, HWLOC_OBJ_L1CACHE);
    new->l2_bytes = cache_bytes(hwloc, HWLOC_OBJ_L2CACHE);
    new->l3_bytes = cache_bytes(hwloc, HWLOC_OBJ_L3CACHE);
    new->memory_bytes = (size_t)hwloc_get_root_obj(hwloc)->total_memory;
    snprintf(new->cpu_model, sizeof new->cpu_model, "%s", find_cpu_model(hwloc));
    snprintf(new->source, sizeof new->source, "%s", name_of(xml_path));
    hwloc_topology_destroy(hwloc);
    tt_topology_finish(new);
    *topology = new;
    return TT_OK;
}

tt_status tt_hwloc_xml(const char *xml_path, char **xml)
{
    hwloc_topology_t hwloc;
    TT_TRY(open_hwloc(xml_path, &hwloc));
    char *buffer = NULL;
    int length = 0;
    if (hwloc_topology_export_xmlbuffer(hwloc, &buffer, &length, 0) != 0) {
        const int error = errno;
        hwloc_topology_destroy(hwloc);
        return tt_fail_errno(error, "hwloc cannot write the topology of %s as XML",
                             name_of(xml_path));
    }
    char *copy = strdup(buffer);
    hwloc_free_xmlbuffer(hwloc, buffer);
    hwloc_topology_destroy(hwloc);
    if (!copy) return tt_fail(TT_ERR_SYSTEM, "no memory for %d bytes of XML", length);
    *xml = copy;
    return TT_OK;
}

#else

static tt_status refuse(const char *what)
{
    return tt_fail(
        TT_ERR_SYSTEM,
        "%s needs hwloc, and this library was built without it; install libhwloc-dev and "
        "build again, or unset TUTTI_TOPOLOGY_FILE",
        what);
}

bool tt_hwloc_present(void)
{
    return false;
}

tt_status tt_hwloc_load(const char *xml_path, struct tt_topology **topology)
{
    (void)topology;
    return refuse(xml_path && xml_path[0] ? xml_path : "reading a topology through hwloc");
}

tt_status tt_hwloc_xml(const char *xml_path, char **xml)
{
    (void)xml_path, (void)xml;
    return refuse("writing a topology as XML");
}

#endif
