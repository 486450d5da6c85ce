/* NCCL's variables: ids that NCCL_COMM_ID makes needless, and an algorithm that does not fit. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/private_fd.h"
#include "net/socket.h"
#include "shim.h"
#include "tutti.h"

enum { NRANKS = 3 };

/* NCCL's variables count, with this one set; NULL: none counts. */
static void with(const char *name, const char *value)
{
    static const char *const all[] = {"NCCL_COMM_ID", "NCCL_ALGO"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    if (name) setenv(name, value, 1);
    tt_config_reload_with_nccl(name != NULL);
    if (!name) unsetenv("NCCL_CONF_FILE");
}

/* "127.0.0.1:port" of a port that nobody listens at. */
static void find_place(char *place, size_t size)
{
    struct tt_address address;
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener;
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    REQUIRE(tt_socket_listen(&listener, &address, false) == TT_OK);
    snprintf(place, size, "127.0.0.1:%d", tt_address_port(&address));
    tt_private_fd_close(listener);
}

static bool sums(tuttiComm_t *comms)
{
    float data[NRANKS];
    if (tuttiGroupStart() != tuttiSuccess) return false;
    for (int rank = 0; rank < NRANKS; rank++) {
        data[rank] = (float)rank;
        if (tuttiAllReduce(&data[rank], &data[rank], 1, tuttiFloat32, tuttiSum, comms[rank],
                           NULL) != tuttiSuccess)
            return false;
    }
    return tuttiGroupEnd() == tuttiSuccess && data[0] == 3 && data[1] == 3 && data[2] == 3;
}

TEST(nccl, ranks_of_one_thread_meet_where_nccl_comm_id_says_each_with_an_id_of_its_own)
{
    char place[64];
    find_place(place, sizeof place);
    with("NCCL_COMM_ID", place);
    for (int turn = 0; turn < 2; turn++) {
        tuttiComm_t comms[NRANKS] = {NULL};
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int rank = NRANKS - 1; rank >= 0; rank--) { /* rank 0 comes last */
            tuttiUniqueId id;
            CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
            CHECK_EQ(tuttiCommInitRank(&comms[rank], NRANKS, id, rank), tuttiSuccess);
        }
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        CHECK(sums(comms));
        for (int rank = 0; rank < NRANKS; rank++)
            CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
    }
    with(NULL, NULL);
}

TEST(nccl, an_id_that_nccl_comm_id_made_needs_it_on_every_rank)
{
    tuttiUniqueId id;
    tuttiComm_t comm = NULL;
    with("NCCL_COMM_ID", "127.0.0.1:9");
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    with(NULL, NULL);
    CHECK_EQ(tuttiCommInitRank(&comm, 2, id, 1), tuttiInvalidUsage);
    CHECK_MESSAGE(
        strstr(tuttiGetLastError(NULL), "NCCL_COMM_ID is set, but it is not set for rank 1"), "%s",
        tuttiGetLastError(NULL));
    CHECK(!comm);
}

TEST(nccl, an_algorithm_of_nccl_never_fails_a_deterministic_communicator_and_its_splits)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL, split = NULL;
    const char *name = "";
    tuttiUniqueId id;
    with("NCCL_ALGO", "Ring");
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    REQUIRE(tuttiCommInitRank(&comm, 1, id, 0) == tuttiSuccess);
    CHECK_EQ(tuttiCommGetAlgorithm(comm, tuttiCollAllReduce, 1 << 20, &name), tuttiSuccess);
    CHECK_STR(name, "ring");
    config.deterministic = 1;
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, &split, &config), tuttiSuccess);
    CHECK_EQ(tuttiCommGetAlgorithm(split, tuttiCollAllReduce, 1 << 20, &name), tuttiSuccess);
    CHECK(tuttiAlgorithmIsDeterministic(tuttiCollAllReduce, name) == 1);
    config.algorithm = "all_reduce:ring"; /* asked for by the program itself */
    tuttiComm_t refused = NULL;
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, &refused, &config), tuttiInvalidUsage);
    CHECK_EQ(tuttiCommDestroy(split), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    with(NULL, NULL);
}
