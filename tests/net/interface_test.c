/* Tests of which network interfaces are chosen. */
#include "net/interface.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static void set_address(struct tt_address *address, const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
        tt_address_set(address, (const struct sockaddr *)&in);
    else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
        tt_address_set(address, (const struct sockaddr *)&in6);
}

/* A host in the order that tt_interfaces_list promises. */
static int make_host(struct tt_interface list[8])
{
    static const struct tt_interface host[] = {
        {.name = "ib0", .mbit = 100000, .running = true},
        {.name = "ib0", .mbit = 100000, .running = true},
        {.name = "eth0", .mbit = 10000, .running = true},
        {.name = "eth1", .mbit = 10000, .running = true},
        {.name = "eth2", .mbit = 10000},
        {.name = "docker0", .running = true, .container = true},
        {.name = "lo", .running = true, .loopback = true},
        {.name = "lo", .running = true, .loopback = true},
    };
    static const char *const addresses[] = {"10.1.0.1", "fd01::1",    "10.0.0.1",  "fd00::2",
                                            "10.0.2.1", "172.17.0.1", "127.0.0.1", "::1"};
    memcpy(list, host, sizeof host);
    for (int i = 0; i < 8; i++) set_address(&list[i].address, addresses[i]);
    return 8;
}

/* "ib0 10.1.0.1,eth0 10.0.0.1" */
static const char *select_text(const char *names, const char *family)
{
    static char text[512];
    struct tt_interface list[8];
    struct tt_interfaces interfaces;
    const int number = make_host(list);
    text[0] = '\0';
    if (tt_interfaces_select(&interfaces, list, number, names, family) != TT_OK) return "failed";
    for (int i = 0; i < interfaces.number; i++) {
        char host[TT_ADDRESS_TEXT];
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %s", i ? "," : "",
                 interfaces.chosen[i].name, tt_address_host(&interfaces.chosen[i].address, host));
    }
    return text;
}

TEST(interface, by_default_all_are_taken_that_lead_to_other_hosts)
{
    CHECK_STR(select_text("", "auto"), "ib0 10.1.0.1,eth0 10.0.0.1,eth1 fd00::2");
    CHECK_STR(select_text("", ""), "ib0 10.1.0.1,eth0 10.0.0.1,eth1 fd00::2");
}

TEST(interface, names_mean_what_begins_so_unless_they_are_exact)
{
    CHECK_STR(select_text("eth", "auto"), "eth0 10.0.0.1,eth1 fd00::2");
    CHECK_STR(select_text("eth0,ib", "auto"), "ib0 10.1.0.1,eth0 10.0.0.1");
    CHECK_STR(select_text("=eth1", "auto"), "eth1 fd00::2");
    CHECK_STR(select_text("=eth1, eth0", "auto"), "eth0 10.0.0.1,eth1 fd00::2");
    CHECK_STR(select_text("=eth", "auto"), "failed");
}

TEST(interface, exclusion_leaves_the_default_without_the_named)
{
    CHECK_STR(select_text("^eth", "auto"), "ib0 10.1.0.1");
    CHECK_STR(select_text("^=eth1,ib0", "auto"), "eth0 10.0.0.1");
    CHECK_STR(select_text("^eth2", "auto"), "ib0 10.1.0.1,eth0 10.0.0.1,eth1 fd00::2");
    CHECK_STR(select_text("^=eth9,virbr", "auto"), "ib0 10.1.0.1,eth0 10.0.0.1,eth1 fd00::2");
    CHECK_STR(select_text("^eth,ib", "auto"), "failed");
    CHECK(strstr(tt_last_error(), "leaves no interface"));
}

TEST(interface, loopback_and_container_bridges_are_taken_when_named)
{
    CHECK_STR(select_text("lo", "auto"), "lo 127.0.0.1");
    CHECK_STR(select_text("docker0,eth0", "auto"), "eth0 10.0.0.1,docker0 172.17.0.1");
}

TEST(interface, the_family_picks_the_address)
{
    CHECK_STR(select_text("", "4"), "ib0 10.1.0.1,eth0 10.0.0.1");
    CHECK_STR(select_text("", "6"), "ib0 fd01::1,eth1 fd00::2");
    CHECK_STR(select_text("eth0", "6"), "failed");
    CHECK(strstr(tt_last_error(), "no interface that is up with an IPv6 address is called 'eth0'"));
    CHECK_STR(select_text("", "7"), "failed");
    CHECK(strstr(tt_last_error(), "TUTTI_SOCKET_FAMILY=7 is no address family: auto, 4 or 6"));
}

TEST(interface, a_name_that_does_not_exist_is_an_error_that_lists_what_does)
{
    static const char there[] = "there is ib0 (10.1.0.1, fd01::1), eth0 (10.0.0.1), eth1 "
                                "(fd00::2), eth2 (10.0.2.1, down), docker0 (172.17.0.1), lo "
                                "(127.0.0.1, ::1)";
    CHECK_STR(select_text("eth0,mlx", "auto"), "failed");
    CHECK(strstr(tt_last_error(), "TUTTI_SOCKET_INTERFACE=eth0,mlx: no interface that is up with "
                                  "an address is called 'mlx' or begins so"));
    CHECK_MESSAGE(strstr(tt_last_error(), there), "%s", tt_last_error());
    CHECK_STR(select_text("=eth9", "auto"), "failed");
    CHECK_MESSAGE(strstr(tt_last_error(), "is called 'eth9'; there is ib0"), "%s", tt_last_error());
    CHECK_STR(select_text("eth2", "auto"), "failed"); /* is down */
    CHECK_STR(select_text(",", "auto"), "failed");
    CHECK_STR(select_text("=", "auto"), "failed");
}

TEST(interface, a_list_longer_than_an_error_is_cut)
{
    enum { MANY = 400 };
    struct tt_interface *list = calloc(MANY, sizeof *list);
    struct tt_interfaces interfaces;
    for (int i = 0; i < MANY; i++) {
        snprintf(list[i].name, sizeof list[i].name, "vlan%03d", i);
        list[i].running = true;
        set_address(&list[i].address, "fd00:1234:5678:9abc:def0:1234:5678:9abc");
    }
    CHECK(tt_interfaces_select(&interfaces, list, MANY, "eth", "auto") == TT_ERR_ARGUMENT);
    CHECK(tt_interfaces_select(&interfaces, list, MANY, "", "auto") == TT_OK);
    CHECK_EQ(interfaces.number, TT_MAX_INTERFACES);
    free(list);
}

TEST(interface, a_host_without_a_network_has_its_loopback)
{
    struct tt_interface lo = {.name = "lo", .running = true, .loopback = true};
    struct tt_interfaces interfaces;
    char text[TT_ADDRESS_TEXT];
    set_address(&lo.address, "127.0.0.1");
    CHECK(tt_interfaces_select(&interfaces, &lo, 1, "", "auto") == TT_OK);
    CHECK_EQ(interfaces.number, 0);
    CHECK_STR(tt_address_format(&interfaces.loopback, text), "127.0.0.1:0");
    CHECK(tt_interfaces_select(&interfaces, NULL, 0, "", "6") == TT_OK);
    CHECK_EQ(interfaces.loopback.nbytes, 0);
    CHECK(tt_interfaces_select(&interfaces, NULL, 0, "eth0", "auto") == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "there is none"));
}

TEST(interface, names_follow_one_rule)
{
    CHECK(tt_names_allow("", "mlx5_0"));
    CHECK(tt_names_allow("mlx5", "mlx5_0"));
    CHECK(!tt_names_allow("=mlx5", "mlx5_0"));
    CHECK(!tt_names_allow("^mlx5", "mlx5_0"));
    CHECK(tt_names_allow("^=mlx5", "mlx5_0"));
    CHECK(tt_names_allow("^", "mlx5_0"));
    CHECK(!tt_names_allow(",", "mlx5_0"));
}

TEST(interface, this_hosts_are_listed_in_order_each_once)
{
    struct tt_interface *list;
    int number;
    REQUIRE(tt_interfaces_list(&list, &number) == TT_OK);
    bool loopback = false;
    for (int i = 0; i < number; i++) {
        CHECK(list[i].name[0] != '\0');
        CHECK(list[i].mtu > 0);
        if (i) CHECK(list[i - 1].mbit >= list[i].mbit);
        if (list[i].address.nbytes) {
            CHECK(tt_address_valid(&list[i].address));
            CHECK(list[i].prefix > 0);
        } else {
            for (int j = 0; j < number; j++) CHECK(j == i || strcmp(list[i].name, list[j].name));
        }
        loopback = loopback || (list[i].loopback && !strcmp(list[i].name, "lo"));
    }
    CHECK(loopback);
    free(list);
}
