/* Tests of the ports of the bootstrap's sockets. */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/handshake.h"
#include "shim.h"

enum { FIRST_PORT = 40000, PORTS = 64, NO_NAMESPACE = 77 };

/* A network of this process alone, whose kernel hands out PORTS ports. */
static bool make_network(void)
{
    char range[32];
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    const int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int file = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    const int n = snprintf(range, sizeof range, "%d %d", FIRST_PORT, FIRST_PORT + PORTS - 1);
    const bool made = ioctl(s, SIOCSIFFLAGS, &lo) == 0 && write(file, range, (size_t)n) == n;
    close(file);
    close(s);
    return made;
}

static struct tt_address loopback(int host, int port)
{
    struct tt_address address;
    const struct sockaddr_in in = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)host)};
    tt_address_set(&address, (const struct sockaddr *)&in);
    return address;
}

/* A connection as another program makes it, from a port that the kernel picks; 0 or an errno. */
static int connect_out(void)
{
    const struct tt_address to = loopback(0, 20000);
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(s, (const struct sockaddr *)to.bytes, to.nbytes) == 0 ? 0 : errno;
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition,              \
                tt_last_error());                                                                  \
        _exit(1);                                                                                  \
    } while (0)

/* Runs `body` in a process that has a network of its own. */
static void in_a_network(void (*body)(void))
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        if (!make_network()) _exit(NO_NAMESPACE);
        body();
        _exit(0);
    }
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE)
        SKIP("needs root, or user namespaces, for a network of its own");
    CHECK_EQ(status, 0);
}

/* 127.0.0.1 has connections from all ports but one, 127.0.0.2 from none. */
static void reserve_the_last_port(void)
{
    int server, reserved, fds[2];
    struct tt_address address = loopback(0, 20000), host = loopback(1, 0);
    EXPECT(tt_socket_listen(&server, &address, false) == TT_OK);
    for (int i = 0; i < PORTS - 1; i++) EXPECT(connect_out() == 0);
    EXPECT(tt_socket_reserve(&reserved, &host) == TT_OK);
    EXPECT(connect_out() == EADDRNOTAVAIL); /* nobody else is given the reserved port */
    for (int turn = 0; turn < 2; turn++) {
        EXPECT(tt_socket_listen(&fds[0], &host, true) == TT_OK);
        EXPECT(tt_socket_connect(&fds[1], &host, tt_deadline_ns(10000)) == 0);
        close(fds[1]);
        close(fds[0]);
    }
    struct tt_address other = loopback(1, 0);
    EXPECT(tt_socket_reserve(&reserved, &other) == TT_ERR_SYSTEM);
    EXPECT(strstr(tt_last_error(), "cannot reserve a port"));
}

TEST(socket, a_reserved_port_is_that_of_no_connection)
{
    in_a_network(reserve_the_last_port);
}

/* A connection whose other end is forgotten without a packet, as by a listener that is being
 * closed. */
static void wait_for_a_forgotten_greeting(void)
{
    int listener, fd;
    struct tt_address address = loopback(0, 20000), peer;
    struct tt_greeting greeting;
    const uint64_t sequence = 0;
    const int64_t deadline_ns = tt_deadline_ns(25000);
    char why[TT_WIRE_TEXT];
    EXPECT(tt_socket_listen(&listener, &address, false) == TT_OK);
    EXPECT(tt_handshake_connect(&fd, &address, deadline_ns, why) == TT_ATTEMPT_OK);
    EXPECT(tt_socket_await(listener, deadline_ns) == 0);
    const int accepted = tt_socket_accept(listener, &peer);
    EXPECT(accepted >= 0);
    EXPECT(setsockopt(accepted, IPPROTO_TCP, TCP_REPAIR, &(int){1}, sizeof(int)) == 0);
    close(accepted);
    /* EARLY: the rank connects again. LATE: the deadline has come. */
    EXPECT(tt_handshake_meet(fd, &greeting, &address, &sequence, deadline_ns, why) ==
           TT_ATTEMPT_EARLY);
    EXPECT(strstr(why, "does not greet"));
}

TEST(socket, a_connection_that_the_listener_forgot_is_noticed)
{
    in_a_network(wait_for_a_forgotten_greeting);
}
