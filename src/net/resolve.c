/* Resolves a host name in a helper thread: a slow name server does not delay the caller beyond its
 * deadline. */
#include "net/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/private_fd.h"
#include "base/thread.h"

/* One name that is looked up. Owned by the caller and the thread together: the second one to leave
 * frees it. */
struct lookup {
    char *host; /* immutable */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    /* guarded by lock */
    bool done, left; /* the thread has an answer; the other owner has left */
    int error;       /* of getaddrinfo */
    struct addrinfo *list;
};

static void destroy(struct lookup *lookup)
{
    if (lookup->list) freeaddrinfo(lookup->list);
    pthread_cond_destroy(&lookup->answered);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup->host);
    free(lookup);
}

static void leave(struct lookup *lookup)
{
    pthread_mutex_lock(&lookup->lock);
    const bool last = lookup->left;
    lookup->left = true;
    pthread_mutex_unlock(&lookup->lock);
    if (last) destroy(lookup);
}

static void *look_up(void *argument)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct lookup *lookup = argument;
    struct addrinfo *list = NULL;
    prctl(PR_SET_NAME, "tutti-resolve");
    tt_low_fd_hold();
    const int error = getaddrinfo(lookup->host, NULL, &hints, &list);
    (void)tt_low_fd_release(-1);
    pthread_mutex_lock(&lookup->lock);
    lookup->error = error;
    lookup->list = error ? NULL : list;
    lookup->done = true;
    pthread_cond_signal(&lookup->answered);
    pthread_mutex_unlock(&lookup->lock);
    leave(lookup);
    return NULL;
}

static struct lookup *create(const char *host)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    char *copy = strdup(host);
    if (!lookup || !copy) {
        free(lookup);
        free(copy);
        return NULL;
    }
    lookup->host = copy;
    pthread_mutex_init(&lookup->lock, NULL);
    tt_condition_init(&lookup->answered);
    return lookup;
}

/* Whether there is an answer; false: the deadline has passed. */
static bool await_answer(struct lookup *lookup, int64_t deadline_ns)
{
    pthread_mutex_lock(&lookup->lock);
    while (!lookup->done && !tt_expired(deadline_ns))
        tt_condition_wait(&lookup->answered, &lookup->lock, deadline_ns);
    const bool done = lookup->done;
    pthread_mutex_unlock(&lookup->lock);
    return done;
}

/* 0.0.0.1 to 0.255.255.255: what a number means as an address. */
static bool is_nowhere(const struct tt_address *address)
{
    struct sockaddr_in in;
    if (tt_address_family(address) != AF_INET) return false;
    memcpy(&in, address->bytes, sizeof in);
    return in.sin_addr.s_addr && !(ntohl(in.sin_addr.s_addr) >> 24);
}

static tt_status choose(struct tt_address *address, const struct addrinfo *list, int error,
                        const char *host, const char *of)
{
    if (error)
        return tt_fail(TT_ERR_SYSTEM, "the host '%s' (%s) cannot be found: %s", host, of,
                       gai_strerror(error));
    const struct addrinfo *best = NULL;
    for (const struct addrinfo *entry = list; entry; entry = entry->ai_next) {
        if (entry->ai_family == AF_INET && (!best || best->ai_family != AF_INET))
            best = entry;
        else if (entry->ai_family == AF_INET6 && !best)
            best = entry;
    }
    if (!best)
        return tt_fail(TT_ERR_SYSTEM, "the host '%s' (%s) has neither an IPv4 nor an IPv6 address",
                       host, of);
    struct tt_address found;
    char text[TT_ADDRESS_TEXT];
    tt_address_set(&found, best->ai_addr);
    if (is_nowhere(&found))
        return tt_fail(
            TT_ERR_ARGUMENT,
            "the host '%s' (%s) is taken for the address %s, which no host has: a name of "
            "digits only cannot be looked up, so give the address of the host "
            "(MASTER_ADDR and MASTER_PORT)",
            host, of, tt_address_host(&found, text));
    *address = found;
    return TT_OK;
}

tt_status tt_resolve_host(struct tt_address *address, const char *host, const char *of,
                          int64_t deadline_ns)
{
    const struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    tt_low_fd_hold();
    const int is_name = getaddrinfo(host, NULL, &numeric, &list); /* asks nobody */
    (void)tt_low_fd_release(-1);
    if (!is_name) {
        const tt_status status = choose(address, list, 0, host, of);
        freeaddrinfo(list);
        return status;
    }
    struct lookup *lookup = create(host);
    if (!lookup) return tt_fail_errno(ENOMEM, "no memory to find the host '%s' (%s)", host, of);
    const int error = tt_thread_start(NULL, look_up, lookup);
    if (error) {
        destroy(lookup);
        return tt_fail_errno(error, "cannot start a thread to find the host '%s'%s", host,
                             tt_thread_hint(error));
    }
    const tt_status status =
        await_answer(lookup, deadline_ns)
            ? choose(address, lookup->list, lookup->error, host, of)
            : tt_fail(TT_ERR_TIMEOUT,
                      "the name service did not find the host '%s' (%s) before the init deadline "
                      "(TUTTI_INIT_TIMEOUT_MS): check /etc/resolv.conf, or give an address",
                      host, of);
    leave(lookup);
    return status;
}
