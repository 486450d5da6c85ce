/* Acceptor: serves a listening socket and many unproven connections at once, and hands over those
 * that proved the key.
 *
 * A pending connection is one that is accepted and has not proved the key. It gets a greeting, a
 * bounded time and the bytes of one hello. An error closes that connection only, and is logged once
 * for its host. Used by one thread at a time. Pending connections never take more than a quarter of
 * the process's descriptors, a few for each acceptor aside. */
#ifndef TT_NET_ACCEPTOR_H
#define TT_NET_ACCEPTOR_H

#include <stdint.h>

#include "base/private_epoll.h"
#include "net/handshake.h"
#include "net/scarce.h"

enum {
    TT_MAX_PENDING = 256,         /* of one acceptor */
    TT_MAX_PROCESS_PENDING = 512, /* of all of a process, or a quarter of its descriptors */
    TT_OWN_PENDING = 4,           /* that an acceptor may have whatever the others have */
    TT_MAX_LOGGED = 32
};

struct tt_pending_connection {
    int fd; /* -1: free */
    struct tt_address peer;
    int64_t since_ns;
    uint32_t received;
    struct tt_greeting greeting;
    struct tt_hello hello;
};

struct tt_acceptor {
    int listener;          /* owned */
    struct tt_epoll epoll; /* its marks: LISTENER, WATCHED and a tag, or a pending connection */
    uint8_t key[32];
    uint64_t sequence;
    int npending, nlogged;
    int nplaces; /* of pending[] that have been in use */
    int most_of_process;
    bool listening;          /* false: the listener rests until a place is free */
    int64_t rest_until_ns;   /* it rests until this time; 0: not for descriptors */
    struct tt_scarce scarce; /* connections wait for descriptors */
    bool gives_up;           /* set by the owner: after 10 s of that tt_acceptor_serve fails */
    struct {
        struct tt_address host;
        const char *what; /* static */
    } logged[TT_MAX_LOGGED];
    struct tt_pending_connection pending[TT_MAX_PENDING];
};

/* Calls to the owner of the acceptor. */
struct tt_acceptor_events {
    /* A connection has proved the key. The acceptor closes it after the call, unless the callee
     * takes pending->fd and sets it to -1 (the acceptor goes on watching it) or calls
     * tt_acceptor_take. */
    tt_status (*on_hello)(void *context, struct tt_pending_connection *pending);
    /* A watched connection is readable or closed. */
    tt_status (*on_watched)(void *context, int tag);
};

/* Takes the listener over on success. */
TT_NODISCARD tt_status tt_acceptor_create(struct tt_acceptor **acceptor, int listener,
                                          const uint8_t key[32], uint64_t sequence);
/* In on_hello: takes the connection over from the acceptor. */
int tt_acceptor_take(struct tt_acceptor *acceptor, struct tt_pending_connection *pending);
/* From now on tt_acceptor_serve also reports this fd, by its tag >= 0, until it is closed. */
TT_NODISCARD tt_status tt_acceptor_watch(struct tt_acceptor *acceptor, int fd, int tag);
/* Waits for events until the deadline, and handles them. Returns the first failure of an
 * event; passing the deadline is no failure, nor is a want of descriptors, for 10 s where the
 * acceptor gives up: the acceptor then rests, and is to be called again. */
TT_NODISCARD tt_status tt_acceptor_serve(struct tt_acceptor *acceptor,
                                         const struct tt_acceptor_events *events, void *context,
                                         int64_t deadline_ns);
/* Closes the listener. */
void tt_acceptor_stop_listening(struct tt_acceptor *acceptor);
void tt_acceptor_destroy(struct tt_acceptor *acceptor);

#endif
