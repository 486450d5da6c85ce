/* Fills, signs and verifies the three frames of the handshake, and runs the connector's half of it
 * with blocking calls. */
#include "net/handshake.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "net/scarce.h"

#define WIRE_MAGIC 0x7475747469626f6full
enum { BYTE_ORDER_MARK = 0x0102, GREETING_MS = 30000 };

static const struct tt_preamble preamble_of_ours = {
    .magic = WIRE_MAGIC,
    .version = TT_WIRE_VERSION,
    .byte_order = BYTE_ORDER_MARK,
    .word_bytes = sizeof(void *),
};

/* Without the system call getrandom libsodium keeps /dev/urandom open. */
tt_status tt_handshake_prepare(void)
{
    tt_low_fd_hold();
    const int result = sodium_init();
    (void)tt_low_fd_release(-1);
    if (result >= 0) return TT_OK;
    return tt_fail(TT_ERR_SYSTEM, "libsodium cannot get random numbers");
}

void tt_greeting_fill(struct tt_greeting *greeting, uint64_t sequence)
{
    *greeting = (struct tt_greeting){.preamble = preamble_of_ours, .sequence = sequence};
    randombytes_buf(greeting->nonce, sizeof greeting->nonce);
}

void tt_hello_fill(struct tt_hello *hello, enum tt_hello_kind kind, int rank, int nranks)
{
    *hello = (struct tt_hello){.preamble = preamble_of_ours,
                               .kind = (uint32_t)kind,
                               .rank = rank,
                               .nranks = nranks,
                               .pid = (int32_t)getpid(),
                               .to = -1,
                               .left_ms = -1};
    if (gethostname(hello->host, sizeof hello->host - 1) != 0) strcpy(hello->host, "?");
    randombytes_buf(hello->nonce, sizeof hello->nonce);
}

const char *tt_preamble_complaint(const struct tt_preamble *preamble)
{
    if (preamble->magic == __builtin_bswap64(WIRE_MAGIC)) return "its byte order is another";
    if (preamble->magic != WIRE_MAGIC) return "it does not speak tutti's bootstrap protocol";
    if (preamble->version != TT_WIRE_VERSION)
        return "it speaks another version of the bootstrap protocol; use one tutti on all ranks";
    if (preamble->byte_order != BYTE_ORDER_MARK) return "its byte order is another";
    if (preamble->word_bytes != sizeof(void *)) return "its word size is another";
    return NULL;
}

/* label keeps a hello's MAC from passing as an answer's. */
static void sign(uint8_t mac[TT_MAC_BYTES], const uint8_t key[32], uint8_t label,
                 const uint8_t *acceptor_nonce, const uint8_t *connector_nonce, const void *body,
                 size_t nbytes)
{
    crypto_auth_hmacsha512256_state state;
    crypto_auth_hmacsha512256_init(&state, key, 32);
    crypto_auth_hmacsha512256_update(&state, &label, 1);
    crypto_auth_hmacsha512256_update(&state, acceptor_nonce, TT_NONCE_BYTES);
    crypto_auth_hmacsha512256_update(&state, connector_nonce, TT_NONCE_BYTES);
    crypto_auth_hmacsha512256_update(&state, body, nbytes);
    crypto_auth_hmacsha512256_final(&state, mac);
    sodium_memzero(&state, sizeof state);
}
_Static_assert(crypto_auth_hmacsha512256_BYTES == TT_MAC_BYTES, "the MAC fills its field");

static void sign_hello(uint8_t mac[TT_MAC_BYTES], const struct tt_hello *hello,
                       const struct tt_greeting *greeting, const uint8_t key[32])
{
    sign(mac, key, 'H', greeting->nonce, hello->nonce, hello, offsetof(struct tt_hello, mac));
}

bool tt_hello_verify(struct tt_hello *hello, const struct tt_greeting *greeting,
                     const uint8_t key[32])
{
    uint8_t mac[TT_MAC_BYTES];
    sign_hello(mac, hello, greeting, key);
    if (sodium_memcmp(mac, hello->mac, sizeof mac) != 0) return false;
    hello->host[sizeof hello->host - 1] = '\0';
    if (!tt_address_valid(&hello->address)) hello->address.nbytes = 0;
    return true;
}

static void sign_answer(uint8_t mac[TT_MAC_BYTES], const struct tt_answer *answer,
                        const struct tt_hello *hello, const struct tt_greeting *greeting,
                        const uint8_t key[32])
{
    sign(mac, key, 'A', greeting->nonce, hello->nonce, answer, offsetof(struct tt_answer, mac));
}

void tt_answer_sign(struct tt_answer *answer, const struct tt_hello *hello,
                    const struct tt_greeting *greeting, const uint8_t key[32])
{
    sign_answer(answer->mac, answer, hello, greeting, key);
}

void tt_hello_sign(struct tt_hello *hello, const struct tt_greeting *greeting,
                   const uint8_t key[32])
{
    sign_hello(hello->mac, hello, greeting, key);
}

bool tt_answer_verify(struct tt_answer *answer, const struct tt_hello *hello,
                      const struct tt_greeting *greeting, const uint8_t key[32])
{
    uint8_t mac[TT_MAC_BYTES];
    sign_answer(mac, answer, hello, greeting, key);
    answer->text[sizeof answer->text - 1] = '\0';
    answer->parent_host[sizeof answer->parent_host - 1] = '\0';
    return sodium_memcmp(mac, answer->mac, sizeof mac) == 0;
}

static const char *describe(int error, char text[128])
{
    if (error == EPIPE) return "it closed the connection";
    if (error == ETIMEDOUT) return "no reply in time";
    return strerror_r(error, text, 128);
}

/* Whether to try again will not help. */
static bool is_refused_here(int error)
{
    return tt_is_scarcity(error) || error == EACCES || error == EPERM;
}

enum tt_attempt tt_handshake_connect(int *fd, const struct tt_address *address, int64_t deadline_ns,
                                     char why[TT_WIRE_TEXT])
{
    char words[128], where[TT_ADDRESS_TEXT];
    const int error = tt_socket_connect(fd, address, deadline_ns);
    if (!error) return TT_ATTEMPT_OK;
    snprintf(why, TT_WIRE_TEXT, "cannot connect to %s: %s%s", tt_address_format(address, where),
             describe(error, words), error == EMFILE ? " (raise the limit: ulimit -n)" : "");
    if (error == ENETUNREACH || error == EADDRNOTAVAIL) return TT_ATTEMPT_NO_ROUTE;
    return is_refused_here(error) ? TT_ATTEMPT_BAD : TT_ATTEMPT_EARLY;
}

enum tt_attempt tt_handshake_meet(int fd, struct tt_greeting *greeting,
                                  const struct tt_address *address, const uint64_t *sequence,
                                  int64_t deadline_ns, char why[TT_WIRE_TEXT])
{
    char words[128], where[TT_ADDRESS_TEXT];
    tt_address_format(address, where);
    /* An acceptor sends its greeting at once; a listener that sends nothing is another program. */
    const int64_t patience = tt_deadline_ns(GREETING_MS);
    const int error = tt_socket_receive(fd, greeting, sizeof *greeting,
                                        patience < deadline_ns ? patience : deadline_ns);
    const char *complaint = error ? NULL : tt_preamble_complaint(&greeting->preamble);
    const bool is_right = !sequence || greeting->sequence == *sequence;
    if (!error && !complaint && is_right) {
        tt_socket_tune(fd); /* the listener has accepted the connection */
        return TT_ATTEMPT_OK;
    }
    tt_private_fd_close(fd);
    if (error) {
        snprintf(why, TT_WIRE_TEXT, "%s does not greet: %s", where, describe(error, words));
        if (error != ETIMEDOUT) return TT_ATTEMPT_EARLY;
        return tt_expired(deadline_ns) ? TT_ATTEMPT_LATE : TT_ATTEMPT_BAD;
    }
    if (complaint) {
        snprintf(why, TT_WIRE_TEXT, "what listens at %s is not our root: %s", where, complaint);
        return TT_ATTEMPT_BAD;
    }
    snprintf(why, TT_WIRE_TEXT, "what listens at %s belongs to another communicator", where);
    return TT_ATTEMPT_BAD;
}

enum tt_attempt tt_handshake_open(int *fd, struct tt_greeting *greeting,
                                  const struct tt_address *address, uint64_t sequence,
                                  int64_t deadline_ns, char why[TT_WIRE_TEXT])
{
    int opened;
    enum tt_attempt attempt = tt_handshake_connect(&opened, address, deadline_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    attempt = tt_handshake_meet(opened, greeting, address, &sequence, deadline_ns, why);
    if (attempt == TT_ATTEMPT_OK) *fd = opened;
    return attempt;
}

/* Whether the acceptor has closed after its greeting, as it does with connections that are slow. */
static bool has_ended(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* The connection has ended, or the deadline has come, before the answer. */
static enum tt_attempt fail_unanswered(int fd, int error, char why[TT_WIRE_TEXT])
{
    char words[128];
    tt_private_fd_close(fd);
    if (error == ETIMEDOUT) {
        snprintf(why, TT_WIRE_TEXT, "no answer within the deadline");
        return TT_ATTEMPT_LATE;
    }
    snprintf(why, TT_WIRE_TEXT,
             "%s before it answered: its process ended, or its key is another (TUTTI_JOB_KEY must "
             "be the same on all ranks, and another job may hold this port)",
             describe(error, words));
    return TT_ATTEMPT_BAD;
}

enum tt_attempt tt_handshake_say(int fd, const struct tt_greeting *greeting, struct tt_hello *hello,
                                 const uint8_t key[32], int64_t deadline_ns, char why[TT_WIRE_TEXT])
{
    if (has_ended(fd)) {
        snprintf(why, TT_WIRE_TEXT, "it closed the connection before it was told who we are");
        tt_private_fd_close(fd);
        return TT_ATTEMPT_BUSY;
    }
    tt_hello_sign(hello, greeting, key);
    const int error = tt_socket_send(fd, hello, sizeof *hello, deadline_ns);
    return error ? fail_unanswered(fd, error, why) : TT_ATTEMPT_OK;
}

enum tt_attempt tt_handshake_hear(int fd, const struct tt_greeting *greeting,
                                  const struct tt_hello *hello, struct tt_answer *answer,
                                  const uint8_t key[32], int64_t deadline_ns,
                                  char why[TT_WIRE_TEXT])
{
    const int error = tt_socket_receive(fd, answer, sizeof *answer, deadline_ns);
    if (error) return fail_unanswered(fd, error, why);
    if (tt_answer_verify(answer, hello, greeting, key)) return TT_ATTEMPT_OK;
    snprintf(why, TT_WIRE_TEXT, "its answer does not prove the job's key");
    tt_private_fd_close(fd);
    return TT_ATTEMPT_BAD;
}

enum tt_attempt tt_handshake_finish(int fd, const struct tt_greeting *greeting,
                                    struct tt_hello *hello, struct tt_answer *answer,
                                    const uint8_t key[32], int64_t deadline_ns,
                                    char why[TT_WIRE_TEXT])
{
    const enum tt_attempt attempt = tt_handshake_say(fd, greeting, hello, key, deadline_ns, why);
    return attempt == TT_ATTEMPT_OK
               ? tt_handshake_hear(fd, greeting, hello, answer, key, deadline_ns, why)
               : attempt;
}
