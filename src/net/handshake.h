/* The handshake that opens every bootstrap connection, and its three frames.
 *
 *   connector                     acceptor
 *      |<------- greeting ----------|   nonce A
 *      |-------- hello ------------>|   who I am, nonce C, MAC(key, A, C, hello)
 *      |<------- answer ------------|   what now,          MAC(key, A, C, answer)
 *
 * A hello or an answer is believed only after its MAC (HMAC-SHA-512/256) has been verified; the
 * nonces make a recorded conversation worthless. Frames have fixed sizes, so nothing on the wire
 * says how much to read. */
#ifndef TT_NET_HANDSHAKE_H
#define TT_NET_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include <stddef.h>
#include "net/socket.h"

enum {
    TT_WIRE_VERSION = 8,
    TT_ID_VERSION = 2,
    TT_NONCE_BYTES = 32,
    TT_MAC_BYTES = 32,
    TT_HOST_BYTES = 64,
    TT_WIRE_TEXT = 640,
    TT_MAX_RANKS = 1 << 20,
};
#define TT_ID_MAGIC 0x54754964u

/* Makes libsodium ready; before any other function that uses it, and as often as one likes. */
TT_NODISCARD tt_status tt_handshake_prepare(void);

/* Both ends must agree on these, so they open both the greeting and the hello. */
struct tt_preamble {
    uint64_t magic;
    uint32_t version;
    uint16_t byte_order;
    uint16_t word_bytes;
};

struct tt_greeting {
    struct tt_preamble preamble;
    uint64_t
        sequence; /* the acceptor's id->sequence; the MACs prove it, as a key follows from it */
    uint8_t nonce[TT_NONCE_BYTES];
};

enum tt_hello_kind {
    TT_HELLO_JOIN = 1, /* to the root: a rank has come */
    TT_HELLO_CHILD,    /* to the parent in the tree */
    TT_HELLO_PROBE,    /* asks whether a root, or a rank, is alive; nothing else */
    TT_HELLO_LINK,     /* to a rank of another host: a connection for data */
};

struct tt_hello {
    struct tt_preamble preamble;
    uint32_t kind;
    int32_t rank, nranks, pid;
    int32_t to;                /* LINK, PROBE of a rank: which one is meant; -1: whoever answers */
    int32_t unable;            /* JOIN: the rank cannot join, and a report of why follows */
    int64_t left_ms;           /* until the rank gives up; -1: never */
    uint64_t self;             /* JOIN: tells a rank that comes again from another one */
    struct tt_address address; /* where its children find it */
    char host[TT_HOST_BYTES];
    uint8_t nonce[TT_NONCE_BYTES];
    uint8_t mac[TT_MAC_BYTES];
};

struct tt_answer {
    int32_t status; /* TT_OK, an error with its text, or TT_IN_PROGRESS: come again */
    int32_t again_ms;
    int32_t keeps; /* the root holds the connection until the rank has its place in the tree */
    int32_t parent_pid;
    struct tt_address parent;
    char parent_host[TT_HOST_BYTES];
    char text[TT_WIRE_TEXT - 12];
    int32_t failed;  /* status and text are those of a failure of the communicator; with
                        TT_IN_PROGRESS: another root will come, whose rank this one is */
    int32_t left_ms; /* to a rank that joins: until the deadline of all ranks; -1: there is none */
    uint32_t unheld; /* to a rank that joins: bit i is set if the root holds no connection of the
                        rank's i-th child, and would not notice the end of that child */
    uint8_t mac[TT_MAC_BYTES];
};

_Static_assert(sizeof(struct tt_greeting) == 56, "no padding on the wire");
_Static_assert(sizeof(struct tt_hello) == 16 + 6 * 4 + 8 + 8 + 32 + 64 + 32 + 32, "no padding");
_Static_assert(sizeof(struct tt_answer) == 16 + 32 + 64 + 640 + 32, "no padding");

void tt_greeting_fill(struct tt_greeting *greeting, uint64_t sequence);
void tt_hello_fill(struct tt_hello *hello, enum tt_hello_kind kind, int rank, int nranks);

/* NULL when the preamble is ours, else what is wrong with it: static text. */
const char *tt_preamble_complaint(const struct tt_preamble *preamble);

/* The acceptor's half: whether the hello proves the key (then its texts are terminated and its
 * address is valid or empty), and signing the answer to it. */
bool tt_hello_verify(struct tt_hello *hello, const struct tt_greeting *greeting,
                     const uint8_t key[32]);
void tt_answer_sign(struct tt_answer *answer, const struct tt_hello *hello,
                    const struct tt_greeting *greeting, const uint8_t key[32]);

/* The connector's half without blocking: signing the hello to a greeting, and whether
 * the answer to it proves the key (then its texts are terminated). */
void tt_hello_sign(struct tt_hello *hello, const struct tt_greeting *greeting,
                   const uint8_t key[32]);
bool tt_answer_verify(struct tt_answer *answer, const struct tt_hello *hello,
                      const struct tt_greeting *greeting, const uint8_t key[32]);

/* How a connector's attempt ended. */
enum tt_attempt {
    TT_ATTEMPT_OK,       /* the answer is there and verified */
    TT_ATTEMPT_EARLY,    /* nobody listens yet: may be tried again */
    TT_ATTEMPT_NO_ROUTE, /* this host has no way there: may be tried again for a while */
    TT_ATTEMPT_BUSY,     /* the acceptor has no place for this rank now: may be tried again */
    TT_ATTEMPT_BAD,      /* trying again will not help */
    TT_ATTEMPT_LATE,     /* the deadline passed while the acceptor was thinking */
};

/* The connector's half with blocking calls, in two parts: connect and receive the greeting; then,
 * the hello filled (kind, rank, address ...), send it and wait for the answer. `why` gets the cause
 * when it is not OK; *fd stays open only on OK and is then the caller's. */
enum tt_attempt tt_handshake_open(int *fd, struct tt_greeting *greeting,
                                  const struct tt_address *address, uint64_t sequence,
                                  int64_t deadline_ns, char why[TT_WIRE_TEXT]);
enum tt_attempt tt_handshake_finish(int fd, const struct tt_greeting *greeting,
                                    struct tt_hello *hello, struct tt_answer *answer,
                                    const uint8_t key[32], int64_t deadline_ns,
                                    char why[TT_WIRE_TEXT]);
/* The two halves of tt_handshake_open: connects; receives the greeting, for which it waits at most
 * 30 s, and closes fd when it is not OK. `sequence` is what the greeting must have; NULL: any. */
enum tt_attempt tt_handshake_connect(int *fd, const struct tt_address *address, int64_t deadline_ns,
                                     char why[TT_WIRE_TEXT]);
enum tt_attempt tt_handshake_meet(int fd, struct tt_greeting *greeting,
                                  const struct tt_address *address, const uint64_t *sequence,
                                  int64_t deadline_ns, char why[TT_WIRE_TEXT]);
/* The two halves of tt_handshake_finish: sends the hello; waits for the answer. */
enum tt_attempt tt_handshake_say(int fd, const struct tt_greeting *greeting, struct tt_hello *hello,
                                 const uint8_t key[32], int64_t deadline_ns,
                                 char why[TT_WIRE_TEXT]);
enum tt_attempt tt_handshake_hear(int fd, const struct tt_greeting *greeting,
                                  const struct tt_hello *hello, struct tt_answer *answer,
                                  const uint8_t key[32], int64_t deadline_ns,
                                  char why[TT_WIRE_TEXT]);

#endif
