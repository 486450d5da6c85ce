/* Acceptor: serves a listening socket and many unproven connections at once, and hands over those
 * that proved the key.
 *
 * A guest gets a greeting, a bounded time and one hello's worth of bytes. What a guest does wrong
 * costs it its connection, never the others theirs, and is logged once for its host. Used by one
 * thread at a time. Guests never take more than a quarter of the process's descriptors, a few for
 * each acceptor aside. */
#ifndef TT_NET_ACCEPTOR_H
#define TT_NET_ACCEPTOR_H

#include <stdint.h>

#include "net/handshake.h"

enum {
    TT_MAX_GUESTS = 256,         /* of one acceptor */
    TT_MAX_PROCESS_GUESTS = 512, /* of all of a process, or a quarter of its descriptors */
    TT_OWN_GUESTS = 4,           /* that an acceptor may have whatever the others have */
    TT_MAX_LOGGED = 32
};

struct tt_guest {
    int fd; /* -1: free */
    struct tt_address peer;
    int64_t since_ns;
    uint32_t received;
    struct tt_greeting greeting;
    struct tt_hello hello;
};

struct tt_acceptor {
    int listener, epoll; /* owned */
    uint8_t key[32];
    uint32_t sequence;
    int nguests, nlogged;
    int nplaces; /* of guests[] that have been in use */
    int most_of_process;
    bool listening;        /* false: the listener rests until a place is free */
    int64_t rest_until_ns; /* or until then; 0: not for want of descriptors */
    bool said_scarce;      /* that connections wait for descriptors */
    struct {
        struct tt_address host;
        const char *what; /* static */
    } logged[TT_MAX_LOGGED];
    struct tt_guest guests[TT_MAX_GUESTS];
};

/* What the owner does with what happens. */
struct tt_acceptor_events {
    /* A guest has proved the key. The guest is lent for the call: to keep its connection take
     * guest->fd and set it to -1 (watched on from here) or tt_acceptor_take it, else it is closed.
     */
    tt_status (*on_hello)(void *context, struct tt_guest *guest);
    /* A watched connection is readable or closed. */
    tt_status (*on_watched)(void *context, int tag);
};

/* Takes the listener over on success. */
TT_NODISCARD tt_status tt_acceptor_create(struct tt_acceptor **acceptor, int listener,
                                          const uint8_t key[32], uint32_t sequence);
/* In on_hello: the guest's connection, which is the caller's from now on. */
int tt_acceptor_take(struct tt_acceptor *acceptor, struct tt_guest *guest);
/* Also reports this fd, by its tag >= 0, until it is closed. */
TT_NODISCARD tt_status tt_acceptor_watch(struct tt_acceptor *acceptor, int fd, int tag);
/* Waits until something happens or the deadline, and deals with it. Returns the first failure of an
 * event; passing the deadline is no failure, nor is a want of descriptors: the acceptor then rests,
 * and is to be called again. */
TT_NODISCARD tt_status tt_acceptor_serve(struct tt_acceptor *acceptor,
                                         const struct tt_acceptor_events *events, void *context,
                                         int64_t deadline_ns);
/* From now on nobody is listening at the address. */
void tt_acceptor_stop_listening(struct tt_acceptor *acceptor);
void tt_acceptor_destroy(struct tt_acceptor *acceptor);

#endif
