/* Finds the topology of this machine or of an XML file. */
#include "topology/topology.h"

#include <stdlib.h>

#include "base/config.h"
#include "base/process_lock.h"
#include "topology/backend.h"

tt_status tt_topology_create(const char *xml_path, struct tt_topology **topology)
{
    if (xml_path && xml_path[0]) {
        char *text;
        TT_TRY(tt_xml_load(xml_path, topology, &text));
        free(text);
        return TT_OK;
    }
    struct tt_cpus allowed;
    tt_cpus_allowed(&allowed);
    return tt_sysfs_load("/sys/devices/system", &allowed, topology);
}

tt_status tt_topology_local(const struct tt_topology **topology)
{
    static struct tt_process_lock lock = TT_PROCESS_LOCK;
    static struct tt_topology *shared; /* guarded by lock; lives as long as the process */
    tt_status status = TT_OK;
    tt_process_lock(&lock);
    if (!shared) status = tt_topology_create(tt_config_string(TT_CONFIG_TOPOLOGY_FILE), &shared);
    if (status == TT_OK) *topology = shared;
    tt_process_unlock(&lock);
    return status;
}

tt_status tt_topology_xml(const char *xml_path, char **xml)
{
    struct tt_topology *topology;
    if (!xml_path || !xml_path[0]) return tt_hwloc_xml(xml);
    TT_TRY(tt_xml_load(xml_path, &topology, xml));
    tt_topology_destroy(topology);
    return TT_OK;
}
