/* The transports between hosts: a further one is a folder and a line here. */
#include <stdio.h>
#include <string.h>

#include "transport/rdma/rdma.h"
#include "transport/room.h"
#include "transport/tcp/tcp.h"

const struct tt_transport *const tt_transports[] = {
    &tt_tcp_transport,
#ifdef TUTTI_HAVE_VERBS
    &tt_rdma_transport,
#endif
};
const int tt_ntransports = sizeof tt_transports / sizeof *tt_transports;
_Static_assert(sizeof tt_transports / sizeof *tt_transports <= TT_MAX_TRANSPORTS,
               "a bit and an entry for each");

int tt_transport_index(const char *name, size_t length)
{
    for (int i = 0; i < tt_ntransports; i++)
        if (strlen(tt_transports[i]->name) == length &&
            !strncmp(tt_transports[i]->name, name, length))
            return i;
    return -1;
}

uint32_t tt_transports_named(const char *list)
{
    uint32_t named = 0;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        const int index = tt_transport_index(at, strcspn(at, ","));
        if (index >= 0) named |= 1u << index;
    }
    return named;
}

void tt_transports_print(uint32_t set, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none");
    for (int i = 0; i < tt_ntransports && used < size; i++)
        if (set >> i & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     tt_transports[i]->name);
}
