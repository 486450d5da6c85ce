/* PMI-1: the client side of the line protocol, for putting and getting one value. */
#include "bootstrap/pmi.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define KEY "tutti-rank-0"
enum { LINE_BYTES = 2048 };

/* One conversation with the launcher. */
struct pmi {
    int fd;
    int64_t deadline_ns;
    size_t nbytes;         /* received of the present line */
    char line[LINE_BYTES]; /* the last reply, without its newline */
};

static tt_status await(const struct pmi *pmi, short events)
{
    for (;;) {
        struct pollfd entry = {.fd = pmi->fd, .events = events};
        const int n = poll(&entry, 1, tt_left_ms(pmi->deadline_ns));
        if (n > 0) return TT_OK;
        if (n < 0 && errno != EINTR) return tt_fail_errno(errno, "PMI: cannot wait for PMI_FD");
        if (tt_expired(pmi->deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "PMI: the launcher did not answer before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS): not all ranks have come");
    }
}

static tt_status lost(int error)
{
    if (!error || error == EPIPE || error == ECONNRESET)
        return tt_fail(TT_ERR_SYSTEM, "PMI: the launcher has closed PMI_FD: it ends the job, or "
                                      "something else in this process has used it");
    return tt_fail_errno(error, "PMI: PMI_FD cannot be used");
}

static tt_status put_line(const struct pmi *pmi, const char *line, size_t nbytes)
{
    while (nbytes) {
        TT_TRY(await(pmi, POLLOUT));
        const ssize_t n = send(pmi->fd, line, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN) return lost(errno);
        if (n <= 0) continue;
        line += n;
        nbytes -= (size_t)n;
    }
    return TT_OK;
}

/* Reads one line, a byte at a time: bytes behind the line belong to the next reader. */
static tt_status get_line(struct pmi *pmi)
{
    for (pmi->nbytes = 0; pmi->nbytes < sizeof pmi->line;) {
        TT_TRY(await(pmi, POLLIN));
        const ssize_t n = recv(pmi->fd, pmi->line + pmi->nbytes, 1, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return lost(n ? errno : 0);
        if (pmi->line[pmi->nbytes] == '\n') {
            pmi->line[pmi->nbytes] = '\0';
            return TT_OK;
        }
        pmi->nbytes++;
    }
    return tt_fail(TT_ERR_SYSTEM, "PMI: the launcher sent a line of more than %d bytes",
                   LINE_BYTES);
}

/* The word after " name=" in the reply; false: there is none, or it does not fit. */
static bool find(const struct pmi *pmi, const char *name, char *word, size_t size)
{
    const size_t length = strlen(name);
    for (const char *at = pmi->line; at; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        if (strncmp(at, name, length) != 0 || at[length] != '=') continue;
        const char *from = at + length + 1;
        const size_t nbytes = strcspn(from, " ");
        if (nbytes >= size) return false;
        memcpy(word, from, nbytes);
        word[nbytes] = '\0';
        return true;
    }
    return false;
}

/* Sends a line and gets the reply of that name. */
__attribute__((format(printf, 3, 4))) static tt_status ask(struct pmi *pmi, const char *reply,
                                                           const char *format, ...)
{
    char line[LINE_BYTES], word[64];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof line) return tt_fail(TT_ERR_INTERNAL, "PMI: a line is too long");
    const tt_status status = put_line(pmi, line, (size_t)n);
    explicit_bzero(line, sizeof line); /* it may have held the job's secret */
    TT_TRY(status);
    TT_TRY(get_line(pmi));
    const bool expected = find(pmi, "cmd", word, sizeof word) && !strcmp(word, reply);
    const bool refused = find(pmi, "rc", word, sizeof word) && strcmp(word, "0") != 0;
    if (expected && !refused) return TT_OK;
    return tt_fail(TT_ERR_SYSTEM, "PMI: the launcher answered '%.200s' where %s with rc=0 was due",
                   pmi->line, reply);
}

static tt_status share(struct pmi *pmi, int rank, char *text, size_t size)
{
    char space[256];
    TT_TRY(ask(pmi, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n"));
    TT_TRY(ask(pmi, "my_kvsname", "cmd=get_my_kvsname\n"));
    if (!find(pmi, "kvsname", space, sizeof space))
        return tt_fail(TT_ERR_SYSTEM, "PMI: '%.200s' names no key-value space", pmi->line);
    if (rank == 0)
        TT_TRY(ask(pmi, "put_result", "cmd=put kvsname=%s key=" KEY " value=%s\n", space, text));
    TT_TRY(ask(pmi, "barrier_out", "cmd=barrier_in\n"));
    if (rank != 0) {
        TT_TRY(ask(pmi, "get_result", "cmd=get kvsname=%s key=" KEY "\n", space));
        if (!find(pmi, "value", text, size))
            return tt_fail(TT_ERR_SYSTEM, "PMI: '%.200s' has no value", pmi->line);
    }
    return ask(pmi, "finalize_ack", "cmd=finalize\n");
}

tt_status tt_pmi_share(int fd, int rank, char *text, size_t size, int64_t deadline_ns)
{
    struct pmi pmi = {.fd = fd, .deadline_ns = deadline_ns};
    const tt_status status = share(&pmi, rank, text, size);
    explicit_bzero(pmi.line, sizeof pmi.line);
    return status;
}
