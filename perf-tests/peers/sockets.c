/* A bare TCP connection between two ranks for bench.c: what no library over TCP can be faster than.
 * Non-blocking, no delay, and it spins. Only the ping-pong and the stream.
 *
 * RANK is 0 or 1; rank 0 listens at MASTER_ADDR and MASTER_PORT, an IPv4 address. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int my_rank, connection = -1;

static bool complain(const char *what)
{
    fprintf(stderr, "sockets: %s: %s\n", what, strerror(errno));
    return false;
}

static bool accept_other(const struct sockaddr_in *address)
{
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) return complain("socket");
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    const bool fine = bind(listener, (const struct sockaddr *)address, sizeof *address) == 0 &&
                      listen(listener, 1) == 0 && (connection = accept(listener, NULL, NULL)) >= 0;
    if (!fine) complain("listen at MASTER_ADDR, MASTER_PORT");
    close(listener);
    return fine;
}

static bool connect_to_other(const struct sockaddr_in *address)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connection < 0) return complain("socket");
        if (connect(connection, (const struct sockaddr *)address, sizeof *address) == 0)
            return true;
        close(connection);
        usleep(10000);
    }
    return complain("connect to MASTER_ADDR, MASTER_PORT");
}

bool peer_open(int *argc, char ***argv, int *rank, int *nranks)
{
    (void)argc, (void)argv;
    const char *mine = getenv("RANK"), *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!mine || !host || !port || inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "sockets: needs RANK (0 or 1), MASTER_ADDR (IPv4) and MASTER_PORT\n");
        return false;
    }
    address.sin_port = htons((uint16_t)atoi(port));
    *rank = my_rank = atoi(mine) != 0;
    *nranks = 2;
    if (!(my_rank == 0 ? accept_other(&address) : connect_to_other(&address))) return false;
    (void)setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fcntl(connection, F_SETFL, O_NONBLOCK) == 0 || complain("O_NONBLOCK");
}

void peer_close(void)
{
    if (connection >= 0) close(connection);
    connection = -1;
}

void *peer_alloc(size_t nbytes)
{
    return malloc(nbytes);
}

void peer_free(void *memory)
{
    free(memory);
}

static bool send_all(const void *data, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t sent =
            send(connection, (const char *)data + done, nbytes - done, MSG_NOSIGNAL);
        if (sent > 0) done += (size_t)sent;
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return complain("send");
    }
    return true;
}

static bool receive_all(void *data, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t got = recv(connection, (char *)data + done, nbytes - done, 0);
        if (got > 0) done += (size_t)got;
        if (got == 0) errno = EPIPE;
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return complain("recv");
    }
    return true;
}

bool peer_has(enum peer_operation operation)
{
    return operation == PEER_PING_PONG || operation == PEER_STREAM;
}

bool peer_run(enum peer_operation operation, const float *input, float *output, size_t count)
{
    const size_t nbytes = count * sizeof(float);
    if (operation == PEER_STREAM)
        return my_rank == 0 ? send_all(input, nbytes) : receive_all(output, nbytes);
    return my_rank == 0 ? send_all(input, nbytes) && receive_all(output, nbytes)
                        : receive_all(output, nbytes) && send_all(output, nbytes);
}

bool peer_max(double *values, size_t count)
{
    enum { PART = 64 }; /* what the kernel buffers: both ranks send before they receive */
    for (size_t done = 0; done < count; done += PART) {
        double others[PART];
        const size_t part = count - done < PART ? count - done : PART;
        if (!send_all(values + done, part * sizeof *values) ||
            !receive_all(others, part * sizeof *values))
            return false;
        for (size_t i = 0; i < part; i++)
            if (others[i] > values[done + i]) values[done + i] = others[i];
    }
    return true;
}
