/* Tests of passing descriptors between processes. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/private_fd.h"
#include "base/stderr.h"
#include "shim.h"
#include "transport/host/fdpass.h"

/* Three times: a spare that was used is taken anew. */
TEST(fdpass, a_spare_sends_where_the_process_may_open_no_more)
{
    struct tt_fd_address address;
    struct tt_fd_note note = {.secret = 1}, got;
    int socket_fd, spare, fd;
    struct rlimit before;
    REQUIRE(tt_fdpass_open(&socket_fd, &address) == TT_OK && tt_fdpass_reserve(&spare) == TT_OK);
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    for (uint64_t i = 0; i < 3; i++) {
        note.id = i;
        const int own = spare;
        /* A limit does not close what is open; what is lost of it cannot be opened again. */
        const struct rlimit one = {.rlim_cur = (rlim_t)own + 1, .rlim_max = before.rlim_max};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK_EQ(tt_fdpass_send(&address, &note, 0, NULL), TT_IN_PROGRESS);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &one) == 0);
        static int filled[1024];
        int nfilled = 0;
        while (nfilled < 1024 && (filled[nfilled] = dup(0)) >= 0) nfilled++;
        CHECK_EQ(tt_fdpass_send(&address, &note, 0, &spare), TT_OK);
        CHECK_EQ(spare, own);
        while (nfilled > 0) close(filled[--nfilled]);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
        CHECK_EQ(tt_fdpass_receive(socket_fd, 1, &got, &fd), TT_OK);
        CHECK_EQ(got.id, i);
        tt_private_fd_close(fd);
    }
    tt_private_fd_close(spare);
    tt_private_fd_close(socket_fd);
}

TEST(fdpass, passes_a_descriptor_with_its_note)
{
    int a, b, fd = -1;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const int memory = memfd_create("test", MFD_CLOEXEC);
    REQUIRE(write(memory, "hello", 5) == 5);
    const struct tt_fd_note note = {.secret = 42, .id = 7, .nbytes = 5, .kind = TT_FD_WINDOW};
    CHECK_EQ(tt_fdpass_send(&address_b, &note, memory, NULL), TT_OK);
    struct tt_fd_note got = {0};
    REQUIRE(tt_fdpass_receive(b, 42, &got, &fd) == TT_OK);
    CHECK_EQ(got.id, 7);
    char text[6] = "";
    CHECK_EQ(pread(fd, text, 5, 0), 5);
    CHECK_STR(text, "hello");
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    tt_private_fd_close(fd);
    CHECK_EQ(tt_fdpass_receive(b, 42, &got, &fd), TT_IN_PROGRESS);
    close(memory);
    tt_private_fd_close(a);
    tt_private_fd_close(b);
}

TEST(fdpass, drops_what_does_not_know_the_secret)
{
    int a, b, fd = -1;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const struct tt_fd_note note = {.secret = 1};
    struct tt_fd_note got;
    CHECK_EQ(tt_fdpass_send(&address_b, &note, a, NULL), TT_OK);
    CHECK_EQ(tt_fdpass_receive(b, 2, &got, &fd), TT_IN_PROGRESS);
    tt_private_fd_close(a);
    tt_private_fd_close(b);
}

TEST(fdpass, says_in_progress_when_the_receiver_does_not_read)
{
    int a, b;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const struct tt_fd_note note = {.secret = 1};
    int status = TT_OK;
    for (int i = 0; i < 100000 && status == TT_OK; i++)
        status = tt_fdpass_send(&address_b, &note, a, NULL);
    CHECK_EQ(status, TT_IN_PROGRESS);
    tt_private_fd_close(a);
    tt_private_fd_close(b);
}

/* ---- Another user, and floods ---------------------------------------------------------------- */

enum { NOBODY = 65534 };

/* Runs body(arg) in a child of another user; its exit status, -1 when it did not come to an end. */
static int as_nobody(int (*body)(void *), void *arg)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        if (setgid(NOBODY) || setuid(NOBODY)) _exit(99);
        _exit(body(arg));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 1000; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

struct meeting {
    struct tt_fd_address address;
    int told[2], asked[2]; /* pipes, to and from the other user */
};

/* Binds an address and says which; then whether a descriptor came. */
static int wait_for_descriptor(void *arg)
{
    struct meeting *meeting = arg;
    struct tt_fd_note note;
    char byte;
    int own, fd = -1;
    if (tt_fdpass_open(&own, &meeting->address) ||
        write(meeting->told[1], &meeting->address, sizeof meeting->address) < 0 ||
        read(meeting->asked[0], &byte, 1) != 1)
        return 2;
    return tt_fdpass_receive(own, 42, &note, &fd) == TT_OK;
}

static void *send_to_other_user(void *arg)
{
    struct meeting *meeting = arg;
    const struct tt_fd_note note = {.secret = 42};
    struct tt_fd_address address;
    CHECK_EQ(read(meeting->told[0], &address, sizeof address), sizeof address);
    CHECK_EQ(tt_fdpass_send(&address, &note, meeting->told[0], NULL), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "uid 65534"));
    CHECK_EQ(write(meeting->asked[1], "x", 1), 1);
    return NULL;
}

TEST(fdpass, sends_nothing_to_another_user)
{
    if (geteuid() != 0) SKIP("only root can become another user");
    struct meeting meeting;
    pthread_t sender;
    REQUIRE(pipe(meeting.told) == 0 && pipe(meeting.asked) == 0);
    REQUIRE(pthread_create(&sender, NULL, send_to_other_user, &meeting) == 0);
    CHECK_EQ(as_nobody(wait_for_descriptor, &meeting), 0);
    pthread_join(sender, NULL);
    for (int i = 0; i < 2; i++) close(meeting.told[i]), close(meeting.asked[i]);
}

static int send_right_secret(void *address)
{
    const struct tt_fd_note note = {.secret = 42};
    return tt_fdpass_send(address, &note, 0, NULL) == TT_OK ? 0 : 1;
}

TEST(fdpass, takes_nothing_from_another_user)
{
    if (geteuid() != 0) SKIP("only root can become another user");
    struct tt_fd_address address;
    struct tt_fd_note note;
    int own, fd = -1;
    REQUIRE(tt_fdpass_open(&own, &address) == TT_OK);
    CHECK_EQ(as_nobody(send_right_secret, &address), 0);
    CHECK_EQ(tt_fdpass_receive(own, 42, &note, &fd), TT_IN_PROGRESS);
    CHECK_EQ(send_right_secret(&address), 0);
    REQUIRE(tt_fdpass_receive(own, 42, &note, &fd) == TT_OK);
    tt_private_fd_close(fd);
    tt_private_fd_close(own);
}

/* Sends more descriptors than one, as fast as it can, until it cannot. */
static int flood(void *address)
{
    const struct tt_fd_note note = {.secret = 1};
    for (int i = 0; i < 1000; i++)
        if (tt_fdpass_send(address, &note, 0, NULL) != TT_OK) return 0;
    return 0;
}

/* A connection on which nothing is sent; `own`: the socket that listens there. */
static int connect_to(const struct tt_fd_address *to, int own)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char *name = un.sun_path + 1 + sprintf(un.sun_path + 1, "tutti-");
    for (int i = 0; i < 16; i++) name += sprintf(name, "%02x", to->name[i]);
    int type = 0;
    socklen_t size = sizeof type;
    getsockopt(own, SOL_SOCKET, SO_TYPE, &type, &size);
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&un, (socklen_t)(name - (char *)&un)), 0);
    return fd;
}

/* Sends standard input `n` times in one message, and closes the connection. */
static void send_copies(int fd, int n)
{
    struct tt_fd_note note = {.secret = 1};
    struct iovec iov = {&note, sizeof note};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = message.msg_controllen = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(header), (int[]){0, 0}, 2 * sizeof(int));
    CHECK(sendmsg(fd, &message, 0) > 0);
    tt_private_fd_close(fd);
}

/* A message with two descriptors, where one belongs. */
static void send_two(const struct tt_fd_address *to, int own)
{
    send_copies(connect_to(to, own), 2);
}

static void *send_later(void *fd)
{
    usleep(100000);
    send_copies(*(int *)fd, 1);
    return NULL;
}

static void ignore(int number)
{
    (void)number;
}

TEST(fdpass, waits_for_what_a_peer_sends_through_signals)
{
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    const struct sigaction handler = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct sigaction before;
    struct tt_fd_address address;
    struct tt_fd_note got;
    int own, fd = -1;
    sigset_t alarms;
    pthread_t thread;
    REQUIRE(tt_fdpass_open(&own, &address) == TT_OK && !sigaction(SIGALRM, &handler, &before));
    int connection = connect_to(&address, own);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    REQUIRE(!pthread_create(&thread, NULL, send_later, &connection));
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK_EQ(tt_fdpass_receive(own, 1, &got, &fd), TT_OK);
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_join(thread, NULL);
    sigaction(SIGALRM, &before, NULL);
    if (fd >= 0) tt_private_fd_close(fd);
    tt_private_fd_close(own);
}

TEST(fdpass, floods_cost_no_descriptors_few_lines_and_no_message)
{
    char text[65536];
    struct tt_fd_address address;
    struct tt_fd_note note = {.secret = 42, .id = 9};
    int own, fd = -1, nlines = 0, nreceived = 0;
    REQUIRE(tt_fdpass_open(&own, &address) == TT_OK);
    const int before = count_open();
    const int log = memfd_create("log", MFD_CLOEXEC), stderr_before = fcntl(2, F_DUPFD_CLOEXEC, 3);
    dup2(log, 2);
    tt_stderr_forget();
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5; i++) send_two(&address, own);
        if (geteuid() == 0) as_nobody(flood, &address);
        flood(&address);
        CHECK_EQ(tt_fdpass_receive(own, 42, &note, &fd), TT_IN_PROGRESS); /* takes all of them */
        CHECK_EQ(tt_fdpass_send(&address, &note, 0, NULL), TT_OK);
        flood(&address);
        nreceived += tt_fdpass_receive(own, 42, &note, &fd) == TT_OK;
        tt_private_fd_close(fd);
        CHECK_EQ(tt_fdpass_receive(own, 42, &note, &fd), TT_IN_PROGRESS);
    }
    dup2(stderr_before, 2);
    tt_stderr_forget();
    close(stderr_before);
    const ssize_t n = pread(log, text, sizeof text - 1, 0);
    close(log);
    text[n > 0 ? n : 0] = '\0';
    for (const char *c = text; *c; c++) nlines += *c == '\n';
    fputs(text, stderr);
    CHECK_EQ(nreceived, 10);
    CHECK_EQ(count_open(), before);
    CHECK_MESSAGE(nlines <= 8, "%d lines in the log", nlines);
    tt_private_fd_close(own);
}
