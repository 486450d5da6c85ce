/* Lists of subsystems, and to which one a source file belongs. */
#include "base/log_subsystems.h"

#include "shim.h"

static bool lets_through(const char *list, const char *file)
{
    char unknown[64];
    unsigned mask;
    CHECK_MESSAGE(tt_subsystems_parse(list, &mask, unknown, sizeof unknown), "%s has '%s'", list,
                  unknown);
    return (mask & tt_subsystem_of(file)) != 0;
}

TEST(log_subsystems, a_list_lets_through_what_it_names_and_a_caret_all_others)
{
    CHECK(lets_through("", "/x/src/communicator/init.c"));
    CHECK(lets_through("ALL", "/x/src/transport/tcp/tcp.c"));
    CHECK(lets_through("INIT", "/x/src/communicator/init.c"));
    CHECK(lets_through("net,init", "src/communicator/init.c"));
    CHECK(!lets_through("INIT", "/x/src/bootstrap/root.c"));
    CHECK(!lets_through("^INIT,BOOTSTRAP", "/x/src/bootstrap/root.c"));
    CHECK(lets_through("^INIT,BOOTSTRAP", "/x/src/net/socket.c"));
    CHECK(!lets_through("^ALL", "/x/src/net/socket.c"));
    CHECK(!lets_through("COLL,CALL", "/x/src/net/socket.c"));
}

TEST(log_subsystems, the_longest_folder_says_whose_a_file_is)
{
    CHECK(lets_through("SHM", "/src/x/src/transport/host/host.c"));
    CHECK(!lets_through("NET", "/x/src/transport/host/host.c"));
    CHECK(lets_through("NET", "/x/src/transport/wires_connect.c"));
    CHECK(lets_through("P2P", "/x/src/carrier/kernel/launch.c"));
    CHECK(lets_through("INIT", "/x/tests/base/log_child.c")); /* of none: always */
}

TEST(log_subsystems, a_word_that_is_no_subsystem_is_told_and_has_no_effect)
{
    char unknown[64] = "";
    unsigned mask = 0;
    CHECK(!tt_subsystems_parse("INIT,WIND,RAIN", &mask, unknown, sizeof unknown));
    CHECK_STR(unknown, "WIND");
    CHECK(mask & tt_subsystem_of("/x/src/communicator/init.c"));
    CHECK(!(mask & tt_subsystem_of("/x/src/net/socket.c")));
    CHECK(!tt_subsystems_parse("WIND", &mask, unknown, sizeof unknown));
    CHECK(mask & tt_subsystem_of("/x/src/net/socket.c"));
}
