/* For ranks of processes whose RDMA devices have no dma-buf: they get the tests' verbs that have it
 * (transport/rdma/dmabuf_verbs.h), as DMABUF says: off; N: but for memory of GPUs after N pieces;
 * else for all. */
#include <stdlib.h>
#include <string.h>

#include "transport/rdma/dmabuf_verbs.h"

__attribute__((constructor)) static void install(void)
{
    const char *how = getenv("DMABUF");
    if (how && !strcmp(how, "off")) return;
    if (dmabuf_verbs_install() && how && *how) dmabuf_verbs_refuse_after(atoi(how));
}
