/* TLS over a pair of sockets: keys that change while both ends send. */
#include "transport/tcp/tls.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim.h"

enum { TOTAL = 3 << 20, OFFER = 50000, MAX_TURNS_WITHOUT_PROGRESS = 1000 };

struct end {
    struct tt_tls *tls;
    int fd;
    size_t sent, received;
};

/* Byte `at` of what end `from` sends. */
static uint8_t byte_at(size_t at, int from)
{
    return (uint8_t)(at * 31 + at / 251 + (size_t)from * 17);
}

static bool open_ends(struct end ends[2], uint64_t records_a_key)
{
    const uint8_t key[32] = {7, 7, 7};
    int fds[2];
    memset(ends, 0, 2 * sizeof *ends);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) return false;
    for (int i = 0; i < 2; i++) {
        /* Room for less than a record: every record, and every change of a key, can be cut. */
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int));
        ends[i].fd = fds[i];
        if (tt_tls_open(&ends[i].tls, fds[i], key, i == 0, records_a_key)) return false;
    }
    return true;
}

static void close_ends(struct end ends[2])
{
    for (int i = 0; i < 2; i++) {
        tt_tls_close(ends[i].tls);
        close(ends[i].fd);
    }
}

/* Sends until the socket is full; whether anything moved. */
static bool send_all(struct end *end, int from)
{
    static uint8_t data[OFFER];
    const size_t before = end->sent;
    while (end->sent < TOTAL) {
        const size_t left = TOTAL - end->sent, nbytes = left < OFFER ? left : OFFER;
        for (size_t i = 0; i < nbytes; i++) data[i] = byte_at(end->sent + i, from);
        const struct iovec pieces[2] = {{data, nbytes / 3},
                                        {data + nbytes / 3, nbytes - nbytes / 3}};
        const ssize_t n = tt_tls_send(end->tls, pieces, 2);
        if (n < 0) CHECK_MESSAGE(errno == EAGAIN, "sending: errno %d", errno);
        if (n <= 0) break;
        end->sent += (size_t)n;
    }
    return end->sent > before;
}

static bool receive_all(struct end *end, int from)
{
    static uint8_t data[OFFER];
    const size_t before = end->received;
    for (;;) {
        const ssize_t n = tt_tls_receive(end->tls, data, sizeof data);
        if (n < 0) CHECK_MESSAGE(errno == EAGAIN, "receiving: errno %d", errno);
        CHECK(n != 0);
        if (n <= 0) break;
        size_t nwrong = 0;
        for (size_t i = 0; i < (size_t)n; i++)
            nwrong += data[i] != byte_at(end->received + i, from);
        CHECK_EQ(nwrong, 0);
        end->received += (size_t)n;
    }
    return end->received > before;
}

/* Both ends fill their sockets before either reads. */
static void exchange(struct end ends[2])
{
    int nidle = 0;
    while (ends[0].received < TOTAL || ends[1].received < TOTAL) {
        bool moved = false;
        for (int i = 0; i < 2; i++) moved |= send_all(&ends[i], i);
        for (int i = 0; i < 2; i++) moved |= receive_all(&ends[i], !i);
        nidle = moved ? 0 : nidle + 1;
        if (nidle > MAX_TURNS_WITHOUT_PROGRESS || tt_test_failed()) break;
    }
    CHECK_EQ(ends[0].received, TOTAL);
    CHECK_EQ(ends[1].received, TOTAL);
}

TEST(tls, changes_its_keys_often_while_both_ends_send)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    for (uint64_t records = 1; records <= 3; records++) {
        struct end ends[2];
        REQUIRE(open_ends(ends, records));
        exchange(ends);
        const uint64_t least = TOTAL / 16384 / records - 1;
        for (int i = 0; i < 2; i++)
            CHECK_MESSAGE(tt_tls_updates(ends[i].tls) >= least,
                          "end %d changed its key %d times, after %d records each", i,
                          (int)tt_tls_updates(ends[i].tls), (int)records);
        close_ends(ends);
    }
}

TEST(tls, changes_no_key_before_a_limit_is_near)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    struct end ends[2];
    REQUIRE(open_ends(ends, 0));
    exchange(ends);
    CHECK_EQ(tt_tls_updates(ends[0].tls) + tt_tls_updates(ends[1].tls), 0);
    close_ends(ends);
}
