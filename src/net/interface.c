/* Lists the network interfaces of this host with getifaddrs and chooses those that
 * TUTTI_SOCKET_INTERFACE and TUTTI_SOCKET_FAMILY ask for. */
#include "net/interface.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/config.h"
#include "base/private_fd.h"

_Static_assert(TT_INTERFACE_NAME == IF_NAMESIZE, "a name must fit");

/* ---- What there is -------------------------------------------------------------------------- */

static bool is_container(const char *name)
{
    static const char *const prefixes[] = {"docker", "veth", "br-",  "virbr",  "cni",
                                           "podman", "lxc",  "cali", "cilium", "flannel"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

static uint32_t prefix_of(const struct sockaddr *mask)
{
    struct tt_address address;
    uint32_t bits = 0;
    if (!mask) return 0;
    tt_address_set(&address, mask);
    const bool v4 = mask->sa_family == AF_INET;
    const uint8_t *bytes = address.bytes + (v4 ? offsetof(struct sockaddr_in, sin_addr)
                                               : offsetof(struct sockaddr_in6, sin6_addr));
    for (int i = 0; i < (v4 ? 4 : 16); i++) bits += (uint32_t)__builtin_popcount(bytes[i]);
    return bits;
}

/* From the kernel's own socket: sysfs may show another network namespace's. */
static void ask_kernel(struct tt_interface *interface, int fd)
{
    struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {0};
    memcpy(request.ifr_name, interface->name, sizeof request.ifr_name);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0) interface->mtu = (uint32_t)request.ifr_mtu;
    request.ifr_data = (char *)&command;
    if (ioctl(fd, SIOCETHTOOL, &request) != 0) return;
    const uint32_t mbit = (uint32_t)command.speed_hi << 16 | command.speed;
    if (mbit <= INT32_MAX) interface->mbit = mbit; /* else unknown */
}

/* Whether the entry is an address that means something to other hosts. */
static bool has_address(const struct ifaddrs *entry)
{
    if (!entry->ifa_addr) return false;
    if (entry->ifa_addr->sa_family == AF_INET) return true;
    if (entry->ifa_addr->sa_family != AF_INET6) return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, entry->ifa_addr, sizeof in6);
    return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
}

static void describe(struct tt_interface *interface, const struct ifaddrs *entry, int fd)
{
    const unsigned ready = IFF_UP | IFF_RUNNING;
    /* An IPv4 address may have a label of its own, "eth0:1". */
    const size_t length = strcspn(entry->ifa_name, ":");
    *interface = (struct tt_interface){.running = (entry->ifa_flags & ready) == ready,
                                       .loopback = entry->ifa_flags & IFF_LOOPBACK};
    memcpy(interface->name, entry->ifa_name,
           length < TT_INTERFACE_NAME ? length : TT_INTERFACE_NAME - 1);
    interface->container = is_container(interface->name);
    if (has_address(entry)) {
        tt_address_set(&interface->address, entry->ifa_addr);
        tt_address_set_port(&interface->address, 0);
        interface->prefix = prefix_of(entry->ifa_netmask);
    }
    ask_kernel(interface, fd);
}

/* Addresses of the same interface: IPv4, IPv6, none. */
static int place_of_family(const struct tt_interface *interface)
{
    if (!interface->address.nbytes) return 2;
    return tt_address_family(&interface->address) == AF_INET6;
}

static bool is_before(const struct tt_interface *a, const struct tt_interface *b)
{
    if (a->mbit != b->mbit) return a->mbit > b->mbit;
    const int names = strcmp(a->name, b->name);
    return names ? names < 0 : place_of_family(a) < place_of_family(b);
}

/* Keeps the kernel's order of equals: its first address is the primary one. */
static void insert(struct tt_interface *list, int number, const struct tt_interface *interface)
{
    int at = number;
    while (at > 0 && is_before(interface, &list[at - 1])) at--;
    memmove(&list[at + 1], &list[at], (size_t)(number - at) * sizeof *list);
    list[at] = *interface;
}

/* An entry without an address stands for an interface that has no other. */
static int drop_empty(struct tt_interface *list, int number)
{
    int kept = 0;
    for (int i = 0; i < number; i++) {
        const bool known = kept > 0 && !strcmp(list[kept - 1].name, list[i].name);
        if (list[i].address.nbytes || !known) list[kept++] = list[i];
    }
    return kept;
}

tt_status tt_interfaces_list(struct tt_interface **list, int *number)
{
    struct ifaddrs *entries;
    tt_low_fd_hold();
    const int error = getifaddrs(&entries) ? errno : 0;
    /* To ask for more than the list has; < 0: it says nothing. */
    const int fd = tt_low_fd_release(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (error) {
        if (fd >= 0) close(fd);
        return tt_socket_fail(error, "cannot list the network interfaces");
    }
    int nentries = 0;
    for (const struct ifaddrs *entry = entries; entry; entry = entry->ifa_next) nentries++;
    struct tt_interface *found = calloc((size_t)nentries + 1, sizeof *found);
    nentries = 0;
    for (const struct ifaddrs *entry = entries; found && entry; entry = entry->ifa_next) {
        struct tt_interface interface;
        describe(&interface, entry, fd);
        insert(found, nentries++, &interface);
    }
    freeifaddrs(entries);
    if (fd >= 0) close(fd);
    if (!found) return tt_fail_errno(ENOMEM, "no memory for the list of network interfaces");
    *number = drop_empty(found, nentries);
    *list = found;
    return TT_OK;
}

/* ---- Lists of names ------------------------------------------------------------------------- */

/* "[^][=]name,name": except and exactly hold for all of the names. */
struct names {
    bool except, exactly;
    const char *at; /* what is left of them */
};

static struct names parse(const char *text)
{
    struct names names = {.at = text};
    if ((names.except = *names.at == '^')) names.at++;
    if ((names.exactly = *names.at == '=')) names.at++;
    return names;
}

/* The next name, or NULL. */
static const char *next(struct names *names, size_t *length)
{
    const char *name = names->at + strspn(names->at, ", ");
    *length = strcspn(name, ", ");
    names->at = name + *length;
    return *length ? name : NULL;
}

static bool matches(const char *entry, size_t length, bool exactly, const char *name)
{
    return !strncmp(name, entry, length) && (!exactly || !name[length]);
}

bool tt_names_allow(const char *text, const char *name)
{
    struct names names = parse(text);
    size_t length;
    for (const char *entry; (entry = next(&names, &length));)
        if (matches(entry, length, names.exactly, name)) return !names.except;
    return names.except || !text[0];
}

/* ---- The choice ----------------------------------------------------------------------------- */

/* Appends; what does not fit is cut off. */
__attribute__((format(printf, 4, 5))) static size_t append(char *text, size_t size, size_t used,
                                                           const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    return n < 0 ? used : used + (size_t)n < size ? used + (size_t)n : size - 1;
}

/* "eth0 (192.0.2.2, fd00::2), eth1 (down), lo (127.0.0.1)" */
static void describe_all(const struct tt_interface *list, int number, char *text, size_t size)
{
    char host[TT_ADDRESS_TEXT];
    size_t used = append(text, size, 0, "%s", number ? "" : "none");
    for (int i = 0; i < number; i++) {
        const bool first = i == 0 || strcmp(list[i - 1].name, list[i].name) != 0;
        const bool last = i == number - 1 || strcmp(list[i].name, list[i + 1].name) != 0;
        if (first) used = append(text, size, used, "%s%s (", i ? ", " : "", list[i].name);
        const char *what = list[i].address.nbytes ? tt_address_host(&list[i].address, host)
                           : list[i].running      ? "no address"
                                                  : "down";
        const bool down = list[i].address.nbytes && !list[i].running && last;
        used = append(text, size, used, "%s%s%s%s", first ? "" : ", ", what, down ? ", down" : "",
                      last ? ")" : "");
    }
}

static tt_status parse_family(int *family, const char *text)
{
    *family = !strcmp(text, "4") ? AF_INET : !strcmp(text, "6") ? AF_INET6 : AF_UNSPEC;
    if (*family != AF_UNSPEC || !text[0] || !strcmp(text, "auto")) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "TUTTI_SOCKET_FAMILY=%s is no address family: auto, 4 or 6",
                   text);
}

static bool is_usable(const struct tt_interface *interface, int family)
{
    return interface->running && interface->address.nbytes &&
           (family == AF_UNSPEC || family == tt_address_family(&interface->address));
}

/* Every name must stand for an interface that can be used. What is to be left out need not be
 * there: one setting serves hosts that differ. Of NCCL's list any name may be missing. */
static tt_status check_names(const struct tt_interface *list, int number, const char *text,
                             int family)
{
    struct names names = parse(text);
    size_t length;
    if (names.except || tt_config_is_nccl(TT_CONFIG_SOCKET_INTERFACE)) return TT_OK;
    for (const char *entry; (entry = next(&names, &length));) {
        bool found = false;
        for (int i = 0; i < number && !found; i++)
            found =
                matches(entry, length, names.exactly, list[i].name) && is_usable(&list[i], family);
        if (found) continue;
        char there[640];
        describe_all(list, number, there, sizeof there);
        const char *kind = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
        return tt_fail(TT_ERR_ARGUMENT,
                       "TUTTI_SOCKET_INTERFACE=%.64s: no interface that is up with an %saddress is "
                       "called '%.*s'%s; there is %s",
                       text, kind, (int)(length < 64 ? length : 64), entry,
                       names.exactly ? "" : " or begins so", there);
    }
    return TT_OK;
}

static bool is_chosen(const struct tt_interfaces *interfaces, const char *name)
{
    for (int i = 0; i < interfaces->number; i++)
        if (!strcmp(interfaces->chosen[i].name, name)) return true;
    return false;
}

tt_status tt_interfaces_select(struct tt_interfaces *interfaces, const struct tt_interface *list,
                               int number, const char *names, const char *family_text)
{
    struct tt_interfaces made = {0};
    int family;
    TT_TRY(parse_family(&family, family_text));
    TT_TRY(check_names(list, number, names, family));
    const bool named = names[0] && names[0] != '^';
    for (int i = 0; i < number; i++) {
        const struct tt_interface *interface = &list[i];
        if (!is_usable(interface, family)) continue;
        if (interface->loopback && tt_address_is_loopback(&interface->address) &&
            !made.loopback.nbytes)
            made.loopback = interface->address;
        if (!named && (interface->loopback || interface->container)) continue;
        if (made.number == TT_MAX_INTERFACES || is_chosen(&made, interface->name) ||
            !tt_names_allow(names, interface->name))
            continue;
        made.chosen[made.number++] = *interface;
    }
    if (names[0] && !made.number) {
        char there[640];
        describe_all(list, number, there, sizeof there);
        const tt_status status =
            tt_config_is_nccl(TT_CONFIG_SOCKET_INTERFACE) ? TT_ERR_USAGE : TT_ERR_ARGUMENT;
        return tt_fail(status, "%s=%.64s leaves no interface; there is %s",
                       tt_config_name(TT_CONFIG_SOCKET_INTERFACE), names, there);
    }
    *interfaces = made;
    return TT_OK;
}

tt_status tt_interfaces_choose(struct tt_interfaces *interfaces)
{
    struct tt_interface *list;
    int number;
    TT_TRY(tt_interfaces_list(&list, &number));
    const tt_status status =
        tt_interfaces_select(interfaces, list, number, tt_config_string(TT_CONFIG_SOCKET_INTERFACE),
                             tt_config_string(TT_CONFIG_SOCKET_FAMILY));
    free(list);
    return status;
}

tt_status tt_interfaces_check(void)
{
    struct tt_interfaces interfaces;
    return tt_interfaces_choose(&interfaces);
}

tt_status tt_address_of_host(struct tt_address *address)
{
    struct tt_interfaces interfaces;
    TT_TRY(tt_interfaces_choose(&interfaces));
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (interfaces.number)
        *address = interfaces.chosen[0].address;
    else if (interfaces.loopback.nbytes)
        *address = interfaces.loopback;
    else
        tt_address_set(address, (const struct sockaddr *)&loopback);
    return TT_OK;
}
