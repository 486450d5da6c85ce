/* What the tests of this folder share. */
#ifndef TT_TESTS_TOPOLOGY_FIXTURES_H
#define TT_TESTS_TOPOLOGY_FIXTURES_H

#include <stdio.h>

#include "shim.h"
#include "topology/backend.h"
#include "topology/topology.h"

/* A machine of tests/topology/xml, e.g. "dgx". NULL after a recorded failure. The caller destroys
 * it. */
static inline struct tt_topology *load_machine(const char *name)
{
    char path[512];
    struct tt_topology *topology = NULL;
    snprintf(path, sizeof path, "%s/tests/topology/xml/%s.xml", TUTTI_SOURCE_DIR, name);
    if (tt_topology_create(path, &topology) != TT_OK)
        tt_test_fail(__FILE__, __LINE__, "%s", tt_last_error());
    return topology;
}

#define REQUIRE_HWLOC                                                                              \
    do {                                                                                           \
        if (!tt_hwloc_present()) SKIP("built without hwloc: XML cannot be written");               \
    } while (0)

#endif
