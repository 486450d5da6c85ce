/* The acceptor when descriptors are scarce, how many strangers a process lets in, and what a forked
 * child does with the number of its parent's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/acceptor.h"
#include "own_epoll.h"
#include "shim.h"

static const uint8_t key[32] = {7, 7, 7};

static tt_status on_hello(void *context, struct tt_pending_connection *pending)
{
    (void)pending;
    ++*(int *)context;
    return TT_OK;
}

static const struct tt_acceptor_events events = {.on_hello = on_hello};

static struct tt_acceptor *listen_here(struct tt_address *address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct tt_acceptor *acceptor = NULL;
    int listener;
    tt_address_set(address, (const struct sockaddr *)&in);
    if (tt_socket_listen(&listener, address, false) != TT_OK) return NULL;
    return tt_acceptor_create(&acceptor, listener, key, 0) == TT_OK ? acceptor : NULL;
}

static int call(const struct tt_address *address)
{
    int fd;
    return tt_socket_connect(&fd, address, tt_deadline_ns(5000)) ? -1 : fd;
}

/* Serves until the caller that holds the key was heard, or for 20 s. */
static bool hears(struct tt_acceptor *acceptor, int fd)
{
    struct tt_greeting greeting;
    struct tt_hello hello;
    int nheard = 0;
    bool said = false;
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (!nheard && !tt_expired(deadline_ns)) {
        if (tt_acceptor_serve(acceptor, &events, &nheard, tt_deadline_ns(20)) != TT_OK)
            return false;
        if (said || recv(fd, &greeting, sizeof greeting, MSG_DONTWAIT) < (ssize_t)sizeof greeting)
            continue;
        tt_hello_fill(&hello, TT_HELLO_LINK, 0, 2);
        tt_hello_sign(&hello, &greeting, key);
        said = tt_socket_send_now(fd, &hello, sizeof hello) == 0;
    }
    return nheard == 1;
}

static void set_limit(rlim_t number)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = number;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Lowers the limit to the descriptors there are. */
static void exhaust_descriptors(void)
{
    const int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(next);
    set_limit((rlim_t)next);
}

TEST(acceptor, rests_while_there_is_no_descriptor_and_accepts_when_there_is_one)
{
    struct rlimit before;
    struct tt_address address;
    struct tt_acceptor *acceptor = listen_here(&address);
    int nheard = 0, nturns = 0, nfailed = 0;
    REQUIRE(acceptor && getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int fd = call(&address);
    REQUIRE(fd >= 0);
    exhaust_descriptors();
    const int64_t deadline_ns = tt_deadline_ns(300);
    for (; !tt_expired(deadline_ns); nturns++)
        nfailed += tt_acceptor_serve(acceptor, &events, &nheard, deadline_ns) != TT_OK;
    set_limit(before.rlim_cur);
    CHECK_EQ(nfailed, 0);
    CHECK_MESSAGE(nturns < 100, "%d turns: it does not rest", nturns);
    CHECK(hears(acceptor, fd));
    close(fd);
    tt_acceptor_destroy(acceptor);
}

TEST(acceptor, keeps_its_pending_connections_while_there_is_no_descriptor)
{
    struct rlimit before;
    struct tt_address address;
    struct tt_acceptor *acceptor = listen_here(&address);
    int nheard = 0;
    REQUIRE(acceptor && getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int first = call(&address);
    while (!acceptor->npending)
        REQUIRE(tt_acceptor_serve(acceptor, &events, &nheard, tt_deadline_ns(20)) == TT_OK);
    const int second = call(&address);
    REQUIRE(first >= 0 && second >= 0);
    exhaust_descriptors();
    CHECK(hears(acceptor, first));
    set_limit(before.rlim_cur);
    CHECK(hears(acceptor, second));
    close(first);
    close(second);
    tt_acceptor_destroy(acceptor);
}

TEST(acceptor, strangers_at_one_take_a_quarter_of_the_descriptors_and_leave_room_at_another)
{
    enum { LIMIT = 512, CALLERS = 200 };
    struct rlimit before;
    struct tt_address addresses[2];
    struct tt_acceptor *acceptors[2];
    int strangers[CALLERS], nheard = 0, most = 0;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    set_limit(LIMIT);
    for (int i = 0; i < 2; i++) REQUIRE((acceptors[i] = listen_here(&addresses[i])));
    for (int i = 0; i < CALLERS; i++) strangers[i] = call(&addresses[0]);
    for (int i = 0; i < 20; i++) {
        REQUIRE(tt_acceptor_serve(acceptors[0], &events, &nheard, tt_now_ns()) == TT_OK);
        if (acceptors[0]->npending > most) most = acceptors[0]->npending;
    }
    CHECK_EQ(most, LIMIT / 4);
    const int fd = call(&addresses[1]); /* nobody serves the first one now */
    CHECK(fd >= 0 && hears(acceptors[1], fd));
    for (int i = 0; i < CALLERS; i++) close(strangers[i]);
    close(fd);
    for (int i = 0; i < 2; i++) tt_acceptor_destroy(acceptors[i]);
    set_limit(before.rlim_cur);
}

TEST(acceptor, hears_who_has_spoken_in_time_however_late_it_listens)
{
    struct tt_address address;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_acceptor *acceptor = listen_here(&address);
    int nheard = 0;
    REQUIRE(acceptor);
    const int silent = call(&address), fd = call(&address);
    REQUIRE(silent >= 0 && fd >= 0);
    while (acceptor->npending < 2)
        REQUIRE(tt_acceptor_serve(acceptor, &events, &nheard, tt_deadline_ns(20)) == TT_OK);
    REQUIRE(tt_socket_receive(fd, &greeting, sizeof greeting, tt_deadline_ns(5000)) == 0);
    tt_hello_fill(&hello, TT_HELLO_LINK, 0, 2);
    tt_hello_sign(&hello, &greeting, key);
    REQUIRE(tt_socket_send_now(fd, &hello, sizeof hello) == 0);
    for (int i = 0; i < 2; i++)
        acceptor->pending[i].since_ns = INT64_MIN / 2; /* this rank was away for ages */
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (acceptor->npending && !tt_expired(deadline_ns))
        REQUIRE(tt_acceptor_serve(acceptor, &events, &nheard, tt_deadline_ns(20)) == TT_OK);
    CHECK_EQ(acceptor->npending, 0);
    CHECK_EQ(nheard, 1);
    close(silent);
    close(fd);
    tt_acceptor_destroy(acceptor);
}

/* Whether an acceptor of this process lets in as many strangers as a process may have, while none
 * of its others has any. */
static bool lets_in_all_places(int nplaces)
{
    enum { MOST = 64 };
    struct tt_address address;
    int strangers[MOST], nheard = 0;
    struct tt_acceptor *acceptor = listen_here(&address);
    if (!acceptor || nplaces > MOST) return false;
    for (int i = 0; i < nplaces; i++) strangers[i] = call(&address);
    const int64_t deadline_ns = tt_deadline_ns(5000);
    while (acceptor->npending < nplaces && !tt_expired(deadline_ns))
        if (tt_acceptor_serve(acceptor, &events, &nheard, tt_now_ns()) != TT_OK) return false;
    const bool all = acceptor->npending == nplaces;
    for (int i = 0; i < nplaces; i++) close(strangers[i]);
    tt_acceptor_destroy(acceptor);
    return all;
}

TEST(acceptor, a_forked_child_does_not_count_the_strangers_of_its_parent)
{
    enum { LIMIT = 256, PLACES = LIMIT / 4 };
    struct rlimit before;
    struct tt_address address;
    int strangers[PLACES], nheard = 0, how = -1;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    set_limit(LIMIT);
    struct tt_acceptor *acceptor = listen_here(&address);
    REQUIRE(acceptor);
    for (int i = 0; i < PLACES; i++) strangers[i] = call(&address);
    while (acceptor->npending < PLACES)
        REQUIRE(tt_acceptor_serve(acceptor, &events, &nheard, tt_now_ns()) == TT_OK);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        for (int i = 0; i < PLACES; i++) close(strangers[i]);
        _exit(lets_in_all_places(PLACES) ? 0 : 1);
    }
    REQUIRE(waitpid(child, &how, 0) == child);
    CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with status %#x", how);
    for (int i = 0; i < PLACES; i++) close(strangers[i]);
    tt_acceptor_destroy(acceptor);
    set_limit(before.rlim_cur);
}

/* ---- Descriptors that the program closes ---------------------------------------------------- */

TEST(acceptor, what_an_epoll_instance_of_the_program_reports_is_nobody)
{
    const uint64_t of_program[] = {0, 3, TT_MAX_PENDING, TT_MAX_PENDING + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program; i++) {
        struct tt_address address;
        int nheard = 0;
        struct tt_acceptor *acceptor = listen_here(&address);
        REQUIRE(acceptor != NULL);
        const int number = acceptor->epoll.fd;
        REQUIRE(own_epoll_put(number, of_program[i]));
        CHECK_EQ(tt_acceptor_serve(acceptor, &events, &nheard, tt_deadline_ns(20000)),
                 TT_ERR_USAGE);
        CHECK_STR(tt_last_error(), "the descriptor with which this process waits for ranks was "
                                   "closed: a program must leave tutti's descriptors open "
                                   "(closefrom?)");
        CHECK_EQ(nheard, 0);
        tt_acceptor_stop_listening(acceptor);
        tt_acceptor_destroy(acceptor);
        CHECK_MESSAGE(own_epoll_take(number, of_program[i]), "the program's instance was changed");
    }
}
