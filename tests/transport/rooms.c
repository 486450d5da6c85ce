/* The table of transports between hosts. */
#include "transport/room.h"

#include <string.h>

#include "shim.h"

TEST(rooms, are_found_by_name)
{
    for (int i = 0; i < tt_ntransports; i++) {
        CHECK_EQ(tt_transport_index(tt_transports[i]->name, strlen(tt_transports[i]->name)), i);
        CHECK_EQ(tt_transports_named(tt_transports[i]->name), 1u << i);
    }
    CHECK_EQ(tt_transport_index("tc", 2), -1);
    CHECK_EQ(tt_transport_index("tcpx", 4), -1);
    CHECK_EQ(tt_transports_named("shm,rdma,,window,tcp"), (1u << tt_ntransports) - 1);
    CHECK_EQ(tt_transports_named(""), 0);
}

/* Both ranks choose by cost: equal costs would leave the choice to the order of the table. */
TEST(rooms, have_costs_of_their_own_and_one_that_always_connects)
{
    int ncertain = 0;
    for (int i = 0; i < tt_ntransports; i++) {
        ncertain += tt_transports[i]->is_certain;
        for (int k = 0; k < i; k++) CHECK(tt_transports[i]->cost != tt_transports[k]->cost);
    }
    CHECK_EQ(ncertain, 1);
}
