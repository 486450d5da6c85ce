/* What comes to the root's port and is no rank of the job: none of it may keep the ranks from
 * joining. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stderr.h"
#include "net/acceptor.h"
#include "net/interface.h"
#include "bootstrap/root.h"
#include "ranks.h"
#include "shim.h"

static int call(const struct tt_unique_id *id)
{
    struct tt_address address;
    int fd = -1;
    if (tt_id_address(&address, id) != TT_OK) return -1;
    if (tt_socket_connect(&fd, &address, tt_deadline_ns(5000)) != 0) return -1;
    return fd;
}

/* Whether the root closes the connection within 5 s. */
static bool is_closed(int fd)
{
    char bytes[4096];
    const int64_t deadline_ns = tt_deadline_ns(5000);
    while (!tt_expired(deadline_ns)) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (poll(&entry, 1, tt_left_ms(deadline_ns)) < 1) continue;
        if (recv(fd, bytes, sizeof bytes, 0) < 1) return true;
    }
    return false;
}

/* What the process writes to stderr between these two, as text. */
struct captured {
    int file, stderr_before;
};

static struct captured begin_capture(void)
{
    struct captured captured = {.file = memfd_create("log", MFD_CLOEXEC),
                                .stderr_before = fcntl(2, F_DUPFD_CLOEXEC, 3)};
    fflush(stderr);
    dup2(captured.file, 2);
    tt_stderr_forget();
    return captured;
}

static void end_capture(const struct captured *captured, char *text, size_t size)
{
    dup2(captured->stderr_before, 2);
    tt_stderr_forget();
    close(captured->stderr_before);
    const ssize_t n = pread(captured->file, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(captured->file);
    fputs(text, stderr);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word))) text += strlen(word), n++;
    return n;
}

static void expect_join(const struct tt_unique_id *id)
{
    struct rank_run runs[3];
    for (int rank = 0; rank < 3; rank++) runs[rank] = rank_run_of(id, rank, 3);
    run_ranks(runs, 3);
    expect_ranks(runs, 3, TT_OK, NULL);
}

TEST(stranger, garbage_is_closed_and_the_job_goes_on)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
    const int fd = call(&id);
    REQUIRE(fd >= 0);
    CHECK(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
    CHECK(is_closed(fd));
    close(fd);
    expect_join(&id);
}

TEST(stranger, random_bytes_of_all_lengths_are_survived)
{
    struct tt_unique_id id;
    unsigned char bytes[2 * sizeof(struct tt_hello)];
    const unsigned seed = (unsigned)tt_now_ns();
    fprintf(stderr, "seed %u\n", seed);
    srand(seed);
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int turn = 0; turn < 200; turn++) {
        const int fd = call(&id);
        REQUIRE(fd >= 0);
        const size_t nbytes = (size_t)rand() % sizeof bytes;
        for (size_t i = 0; i < nbytes; i++) bytes[i] = (unsigned char)rand();
        if (turn % 2) { /* past the preamble, so that the MAC has to refuse it */
            struct tt_hello hello;
            tt_hello_fill(&hello, TT_HELLO_JOIN, 0, 3);
            memcpy(bytes, &hello.preamble, sizeof hello.preamble);
        }
        (void)send(fd, bytes, nbytes, MSG_NOSIGNAL);
        close(fd);
    }
    expect_join(&id);
}

TEST(stranger, a_port_scanner_connects_and_goes)
{
    struct tt_unique_id id;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0; i < 100; i++) {
        const int fd = call(&id);
        REQUIRE(fd >= 0);
        close(fd);
    }
    expect_join(&id);
}

TEST(stranger, who_says_nothing_or_little_holds_nobody_up)
{
    struct tt_unique_id id;
    int fds[TT_MAX_PENDING / 2];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0; i < TT_MAX_PENDING / 2; i++) {
        struct tt_hello hello;
        fds[i] = call(&id);
        REQUIRE(fds[i] >= 0);
        tt_hello_fill(&hello, TT_HELLO_JOIN, 0, 3);
        CHECK(send(fds[i], &hello, (size_t)(i % 24), MSG_NOSIGNAL) == i % 24);
    }
    const int64_t start = tt_now_ns();
    expect_join(&id);
    CHECK(tt_now_ns() - start < 1000000000);
    for (int i = 0; i < TT_MAX_PENDING / 2; i++) close(fds[i]);
}

TEST(stranger, silent_ones_in_all_places_are_dismissed)
{
    struct tt_unique_id id;
    int fds[TT_MAX_PENDING + 8];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0; i < TT_MAX_PENDING + 8; i++) fds[i] = call(&id);
    const int64_t start = tt_now_ns();
    expect_join(&id); /* after the time that connections have when all places are taken */
    CHECK(tt_now_ns() - start < 8000000000);
    for (int i = 0; i < TT_MAX_PENDING + 8; i++)
        if (fds[i] >= 0) close(fds[i]);
}

TEST(stranger, a_rank_with_another_key_is_refused_and_told_why)
{
    struct tt_unique_id id, forged;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    forged = id;
    forged.key[31] ^= 1;
    struct rank_run run = rank_run_of(&forged, 0, 3);
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_REMOTE, "its key is another");
    expect_join(&id);
}

TEST(stranger, a_hello_overheard_and_sent_again_is_refused)
{
    struct tt_unique_id id;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    char why[TT_WIRE_TEXT];
    int fd;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &greeting));
    tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
    REQUIRE(tt_handshake_finish(fd, &greeting, &hello, &answer, id.key, tt_deadline_ns(5000),
                                why) == TT_ATTEMPT_OK);
    close(fd);
    fd = call(&id);
    CHECK(tt_socket_send_now(fd, &hello, sizeof hello) == 0);
    CHECK(is_closed(fd));
    close(fd);
    expect_join(&id);
}

TEST(stranger, bytes_after_a_whole_hello_are_an_early_leave)
{
    struct tt_unique_id id;
    struct tt_greeting greeting;
    int fd;
    struct {
        struct tt_hello hello;
        char more[64];
    } long_hello = {0};
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &greeting));
    tt_hello_fill(&long_hello.hello, TT_HELLO_JOIN, 0, 3); /* never signed */
    CHECK(tt_socket_send_now(fd, &long_hello, sizeof long_hello) == 0);
    CHECK(is_closed(fd));
    close(fd);
    expect_join(&id);
}

TEST(stranger, a_rank_that_leaves_before_all_have_come_is_named)
{
    struct tt_unique_id id;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    char why[TT_WIRE_TEXT];
    int fd;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &greeting));
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 3);
    REQUIRE(tt_handshake_finish(fd, &greeting, &hello, &answer, id.key, tt_deadline_ns(20), why) ==
            TT_ATTEMPT_LATE);
    struct rank_run run = rank_run_of(&id, 0, 3);
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_REMOTE, "rank 1 (pid ");
    expect_ranks(&run, 1, TT_ERR_REMOTE, "left before all ranks had come");
}

TEST(stranger, what_is_wrong_with_one_is_logged_with_its_address)
{
    static const struct {
        const char *text;
        struct tt_preamble wrong; /* a field that is not 0 is put in */
    } cases[] = {
        {"does not speak tutti's", {.magic = 1}},
        {"its byte order is another", {.magic = __builtin_bswap64(0x7475747469626f6full)}},
        {"another version", {.version = TT_WIRE_VERSION + 1}},
        {"its byte order is another", {.byte_order = 0x0201}},
        {"its word size is another", {.word_bytes = 4}},
        {"does not know the job's key", {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_unique_id id;
        struct tt_hello hello;
        char text[8192];
        REQUIRE(tt_unique_id_create(&id) == TT_OK);
        const struct tt_preamble *wrong = &cases[i].wrong;
        tt_hello_fill(&hello, TT_HELLO_JOIN, 0, 3);
        if (wrong->magic) hello.preamble.magic = wrong->magic;
        if (wrong->version) hello.preamble.version = wrong->version;
        if (wrong->byte_order) hello.preamble.byte_order = wrong->byte_order;
        if (wrong->word_bytes) hello.preamble.word_bytes = wrong->word_bytes;
        const struct captured captured = begin_capture();
        const int fd = call(&id);
        struct tt_address own = {0};
        char from[TT_ADDRESS_TEXT] = "?", expected[256];
        if (fd >= 0 && tt_socket_own(fd, &own) == 0) tt_address_format(&own, from);
        const bool closed = tt_socket_send_now(fd, &hello, sizeof hello) == 0 && is_closed(fd);
        end_capture(&captured, text, sizeof text);
        CHECK(closed);
        close(fd);
        snprintf(expected, sizeof expected, "connection from %s closed: ", from);
        CHECK_MESSAGE(count(text, expected) == 1 && count(text, cases[i].text) == 1,
                      "case %zu: '%s...%s' is not once in: %s", i, expected, cases[i].text, text);
        expect_join(&id);
    }
}

TEST(stranger, a_flood_of_bad_ones_is_one_line_in_the_log)
{
    struct tt_unique_id id;
    char text[65536];
    int nclosed = 0;
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    const struct captured captured = begin_capture();
    for (int i = 0; i < 300; i++) {
        const int fd = call(&id);
        if (fd < 0) break;
        (void)send(fd, "SSH-2.0-scanner-of-ports\r\n", 26, MSG_NOSIGNAL);
        nclosed += is_closed(fd);
        close(fd);
    }
    end_capture(&captured, text, sizeof text);
    CHECK_EQ(nclosed, 300);
    CHECK_EQ(count(text, "connection from"), 1);
    expect_join(&id);
}

/* Opens connections as fast as it can and says nothing on them, `most` at a time. */
struct flood {
    struct tt_unique_id id;
    int most;
    atomic_bool stop;
    atomic_int nopened;
};

static void *pour(void *argument)
{
    struct flood *flood = argument;
    int *fds = malloc((size_t)flood->most * sizeof *fds);
    struct tt_address address;
    if (!fds || tt_id_address(&address, &flood->id) != TT_OK) return NULL;
    memset(fds, -1, (size_t)flood->most * sizeof *fds);
    for (int i = 0; !atomic_load(&flood->stop); i = (i + 1) % flood->most) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = socket(tt_address_family(&address), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fds[i], (const struct sockaddr *)address.bytes, address.nbytes);
        if (fds[i] >= 0) atomic_fetch_add(&flood->nopened, 1);
    }
    for (int i = 0; i < flood->most; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(fds);
    return NULL;
}

TEST(stranger, under_thousands_of_connections_the_ranks_still_get_in)
{
    enum { RANKS = 16 };
    struct rlimit limit;
    struct rank_run runs[RANKS];
    pthread_t thread;
    const int before = count_descriptors();
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    /* Both ends are in this process. */
    struct flood flood = {.most = limit.rlim_cur < 4096 ? (int)limit.rlim_cur / 4 : 2000};
    REQUIRE(tt_unique_id_create(&flood.id) == TT_OK);
    REQUIRE(pthread_create(&thread, NULL, pour, &flood) == 0);
    const int64_t patience_ns = tt_deadline_ns(20000);
    while (atomic_load(&flood.nopened) <= flood.most && !tt_expired(patience_ns)) tt_test_pause();
    CHECK(atomic_load(&flood.nopened) > flood.most);
    const int held = count_descriptors() - before - flood.most;
    CHECK_MESSAGE(held < TT_MAX_PENDING + 16, "the root holds %d descriptors", held);
    for (int rank = 0; rank < RANKS; rank++) runs[rank] = rank_run_of(&flood.id, rank, RANKS);
    run_ranks(runs, RANKS);
    atomic_store(&flood.stop, true);
    pthread_join(thread, NULL);
    expect_ranks(runs, RANKS, TT_OK, NULL);
    fprintf(stderr, "%d connections, %d at a time; joined after %lld ms\n",
            atomic_load(&flood.nopened), flood.most, (long long)runs[0].took_ns / 1000000);
}

TEST(stranger, a_loopback_address_for_another_host_is_suspected)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000101)};
    struct tt_unique_id id = {.key = {1}, .flags = TT_ID_AWAIT};
    struct tt_address address;
    int listener;
    tt_address_set(&address, (const struct sockaddr *)&in);
    REQUIRE(tt_socket_listen(&listener, &address, false) == TT_OK);
    close(listener); /* a port where nobody listens */
    tt_id_fill(&id, &address);
    struct rank_run run = rank_run_of(&id, 1, 2);
    run.timeout_ms = 50;
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "a loopback address is another one on every host");
}

/* Something else that listens where the root should be. */
struct impostor {
    int listener;
    const void *bytes;
    size_t nbytes;
};

static void *pose(void *argument)
{
    const struct impostor *impostor = argument;
    struct pollfd entry = {.fd = impostor->listener, .events = POLLIN};
    char heard[4096];
    if (poll(&entry, 1, 5000) < 1) return NULL;
    const int fd = accept4(impostor->listener, NULL, NULL, SOCK_CLOEXEC);
    (void)send(fd, impostor->bytes, impostor->nbytes, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    while (recv(fd, heard, sizeof heard, 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void meet(const void *bytes, size_t nbytes, const char *text)
{
    struct tt_unique_id id = {.key = {1}};
    struct impostor impostor = {.bytes = bytes, .nbytes = nbytes};
    struct tt_address address;
    pthread_t thread;
    REQUIRE(tt_address_of_host(&address) == TT_OK);
    REQUIRE(tt_socket_listen(&impostor.listener, &address, true) == TT_OK);
    tt_id_fill(&id, &address);
    REQUIRE(pthread_create(&thread, NULL, pose, &impostor) == 0);
    struct rank_run run = rank_run_of(&id, 0, 2);
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_REMOTE, text);
    pthread_join(thread, NULL);
    close(impostor.listener);
}

TEST(stranger, a_root_that_is_none_is_recognised)
{
    char garbage[256];
    struct tt_greeting greeting;
    struct {
        struct tt_greeting greeting;
        struct tt_answer answer;
    } forged = {0};
    memset(garbage, 'x', sizeof garbage);
    meet(garbage, sizeof garbage, "it does not speak tutti's bootstrap protocol");
    tt_greeting_fill(&greeting, 0);
    greeting.preamble.version++;
    meet(&greeting, sizeof greeting, "another version of the bootstrap protocol");
    tt_greeting_fill(&greeting, 0);
    greeting.preamble.magic = __builtin_bswap64(greeting.preamble.magic);
    meet(&greeting, sizeof greeting, "byte order");
    tt_greeting_fill(&forged.greeting, 0);
    meet(&forged, sizeof forged, "its answer does not prove the job's key");
    meet("", 0, "does not greet");
}
