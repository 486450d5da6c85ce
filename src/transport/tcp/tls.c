/* TLS 1.3 over one connection, keyed by the communicator's key, with OpenSSL loaded at run time. */
#include "transport/tcp/tls.h"

#ifdef TUTTI_HAVE_TLS

#include <dlfcn.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/open.h"
#include "base/private_fd.h"

enum {
    RECORD_BYTES = 16384,
    KEY_BYTES = 32,
    /* AES-GCM protects 2^24.5 full records with one key (RFC 8446, section 5.5), the other ciphers
     * of TLS 1.3 that may be negotiated more; a shorter record counts like a full one. */
    RECORDS_A_KEY = 1 << 22,
    /* A record with a KeyUpdate message: header, message, type, tag. */
    UPDATE_BYTES = 5 + 5 + 1 + 16,
};
#define LIBRARY "libssl.so.3"

/* What is used of OpenSSL, by its own names. */
static struct {
    __typeof__(TLS_method) *TLS_method;
    __typeof__(SSL_CTX_new) *SSL_CTX_new;
    __typeof__(SSL_CTX_free) *SSL_CTX_free;
    __typeof__(SSL_CTX_ctrl) *SSL_CTX_ctrl;
    __typeof__(SSL_set_verify) *SSL_set_verify;
    __typeof__(SSL_CTX_set_num_tickets) *SSL_CTX_set_num_tickets;
    __typeof__(SSL_CTX_set_ciphersuites) *SSL_CTX_set_ciphersuites;
    __typeof__(SSL_CTX_set_psk_client_callback) *SSL_CTX_set_psk_client_callback;
    __typeof__(SSL_CTX_set_psk_server_callback) *SSL_CTX_set_psk_server_callback;
    __typeof__(SSL_new) *SSL_new;
    __typeof__(SSL_free) *SSL_free;
    __typeof__(SSL_set_bio) *SSL_set_bio;
    __typeof__(SSL_set_ex_data) *SSL_set_ex_data;
    __typeof__(SSL_get_ex_data) *SSL_get_ex_data;
    __typeof__(SSL_set_connect_state) *SSL_set_connect_state;
    __typeof__(SSL_set_accept_state) *SSL_set_accept_state;
    __typeof__(SSL_read) *SSL_read;
    __typeof__(SSL_write) *SSL_write;
    __typeof__(SSL_pending) *SSL_pending;
    __typeof__(SSL_get_error) *SSL_get_error;
    __typeof__(SSL_key_update) *SSL_key_update;
    __typeof__(SSL_do_handshake) *SSL_do_handshake;
    __typeof__(ERR_clear_error) *ERR_clear_error;
    __typeof__(BIO_meth_new) *BIO_meth_new;
    __typeof__(BIO_meth_set_read) *BIO_meth_set_read;
    __typeof__(BIO_meth_set_write) *BIO_meth_set_write;
    __typeof__(BIO_meth_set_ctrl) *BIO_meth_set_ctrl;
    __typeof__(BIO_new) *BIO_new;
    __typeof__(BIO_free) *BIO_free;
    __typeof__(BIO_set_init) *BIO_set_init;
    __typeof__(BIO_set_data) *BIO_set_data;
    __typeof__(BIO_get_data) *BIO_get_data;
    __typeof__(BIO_set_flags) *BIO_set_flags;
    __typeof__(BIO_clear_flags) *BIO_clear_flags;
} ssl;

/* In the order of the struct. */
static const char *const names[] = {"TLS_method",
                                    "SSL_CTX_new",
                                    "SSL_CTX_free",
                                    "SSL_CTX_ctrl",
                                    "SSL_set_verify",
                                    "SSL_CTX_set_num_tickets",
                                    "SSL_CTX_set_ciphersuites",
                                    "SSL_CTX_set_psk_client_callback",
                                    "SSL_CTX_set_psk_server_callback",
                                    "SSL_new",
                                    "SSL_free",
                                    "SSL_set_bio",
                                    "SSL_set_ex_data",
                                    "SSL_get_ex_data",
                                    "SSL_set_connect_state",
                                    "SSL_set_accept_state",
                                    "SSL_read",
                                    "SSL_write",
                                    "SSL_pending",
                                    "SSL_get_error",
                                    "SSL_key_update",
                                    "SSL_do_handshake",
                                    "ERR_clear_error",
                                    "BIO_meth_new",
                                    "BIO_meth_set_read",
                                    "BIO_meth_set_write",
                                    "BIO_meth_set_ctrl",
                                    "BIO_new",
                                    "BIO_free",
                                    "BIO_set_init",
                                    "BIO_set_data",
                                    "BIO_get_data",
                                    "BIO_set_flags",
                                    "BIO_clear_flags"};
_Static_assert(sizeof names / sizeof *names == sizeof ssl / sizeof(void *), "a name for each");

struct tt_tls {
    SSL *session;
    int fd, error;                    /* errno of the socket's last transfer; 0: none, or the end */
    uint64_t records_a_key, nrecords; /* sent with the key in use */
    uint64_t nupdates;
    bool midway;                    /* the socket has taken part of a record, or nothing of it */
    bool updating;                  /* what is written now is a KeyUpdate message */
    uint8_t kept[2 * UPDATE_BYTES]; /* of a KeyUpdate message, not taken by the socket yet */
    size_t nkept;
    uint8_t key[KEY_BYTES];
    uint8_t record[RECORD_BYTES]; /* pieces put together */
};

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static char load_error[256]; /* "": loaded */
static BIO_METHOD *socket_method;
static SSL_CTX *context;

/* ---- The socket, as OpenSSL sees it: its own would raise SIGPIPE ----------------------------- */

static int report(BIO *bio, struct tt_tls *tls, ssize_t n, int retry)
{
    tls->error = n < 0 ? errno : 0;
    ssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        ssl.BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static ssize_t send_now(const struct tt_tls *tls, const void *from, size_t nbytes)
{
    return send(tls->fd, from, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What the socket does not take of a KeyUpdate message is kept here. OpenSSL would refuse to read
 * until the message is sent, and two ranks that cannot send until the other reads would wait for
 * ever. */
static int keep_update(struct tt_tls *tls, const char *from, size_t nbytes)
{
    ssize_t n = tls->nkept ? 0 : send_now(tls, from, nbytes);
    if (n < 0) n = 0; /* an error shows at the next record */
    const size_t rest = nbytes - (size_t)n;
    if (rest > sizeof tls->kept - tls->nkept) return -1;
    memcpy(tls->kept + tls->nkept, from + n, rest);
    tls->nkept += rest;
    return (int)nbytes;
}

static int bio_write(BIO *bio, const char *from, int nbytes)
{
    struct tt_tls *tls = ssl.BIO_get_data(bio);
    if (tls->updating) return keep_update(tls, from, (size_t)nbytes);
    while (tls->nkept) {
        const ssize_t n = send_now(tls, tls->kept, tls->nkept);
        if (n <= 0) return report(bio, tls, n, BIO_FLAGS_WRITE);
        tls->nkept -= (size_t)n;
        memmove(tls->kept, tls->kept + n, tls->nkept);
    }
    return report(bio, tls, send_now(tls, from, (size_t)nbytes), BIO_FLAGS_WRITE);
}

static int bio_read(BIO *bio, char *to, int nbytes)
{
    struct tt_tls *tls = ssl.BIO_get_data(bio);
    return report(bio, tls, recv(tls->fd, to, (size_t)nbytes, MSG_DONTWAIT), BIO_FLAGS_READ);
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* ---- The key -------------------------------------------------------------------------------- */

static unsigned tell_key(SSL *session, unsigned char *to, unsigned room)
{
    const struct tt_tls *tls = ssl.SSL_get_ex_data(session, 0);
    if (room < KEY_BYTES) return 0;
    memcpy(to, tls->key, KEY_BYTES);
    return KEY_BYTES;
}

static unsigned client_key(SSL *session, const char *hint, char *identity, unsigned identity_room,
                           unsigned char *key, unsigned key_room)
{
    (void)hint;
    snprintf(identity, identity_room, "tutti");
    return tell_key(session, key, key_room);
}

static unsigned server_key(SSL *session, const char *identity, unsigned char *key,
                           unsigned key_room)
{
    (void)identity; /* there is one key: a peer that does not know it fails */
    return tell_key(session, key, key_room);
}

/* ---- Loading -------------------------------------------------------------------------------- */

static bool make_context(void)
{
    socket_method = ssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tutti");
    context = ssl.SSL_CTX_new(ssl.TLS_method());
    if (!socket_method || !context) return false;
    ssl.BIO_meth_set_read(socket_method, bio_read);
    ssl.BIO_meth_set_write(socket_method, bio_write);
    ssl.BIO_meth_set_ctrl(socket_method, bio_control);
    ssl.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL);
    ssl.SSL_CTX_ctrl(context, SSL_CTRL_MODE,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    /* The one suite for keys given by callback; with it goes an ephemeral key exchange. */
    if (!ssl.SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256")) return false;
    ssl.SSL_CTX_set_num_tickets(context, 0);
    ssl.SSL_CTX_set_psk_client_callback(context, client_key);
    ssl.SSL_CTX_set_psk_server_callback(context, server_key);
    return true;
}

static void load(void)
{
    void *library = tt_open_library(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(load_error, sizeof load_error, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) {
            snprintf(load_error, sizeof load_error, "it has no %s", names[i]);
            return;
        }
        memcpy((char *)&ssl + i * sizeof symbol, &symbol, sizeof symbol);
    }
    tt_low_fd_hold();
    const bool made = make_context();
    (void)tt_low_fd_release(-1);
    if (!made) snprintf(load_error, sizeof load_error, "it cannot make a TLS context");
}

tt_status tt_tls_load(void)
{
    pthread_once(&load_once, load);
    if (!load_error[0]) return TT_OK;
    return tt_fail(TT_ERR_SYSTEM,
                   "TUTTI_ENCRYPT=1 needs OpenSSL's " LIBRARY " (Debian package libssl3): %s",
                   load_error);
}

/* ---- Sessions ------------------------------------------------------------------------------- */

tt_status tt_tls_open(struct tt_tls **out, int fd, const uint8_t *key, bool client,
                      uint64_t records_a_key)
{
    TT_TRY(tt_tls_load());
    struct tt_tls *tls = calloc(1, sizeof *tls);
    SSL *session = ssl.SSL_new(context);
    BIO *bio = ssl.BIO_new(socket_method);
    if (!tls || !session || !bio || !ssl.SSL_set_ex_data(session, 0, tls)) {
        ssl.BIO_free(bio);
        ssl.SSL_free(session);
        free(tls);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a TLS session");
    }
    tls->session = session;
    tls->fd = fd;
    tls->records_a_key = records_a_key ? records_a_key : RECORDS_A_KEY;
    /* Not the key itself: it also signs the handshakes. */
    crypto_generichash(tls->key, sizeof tls->key, (const uint8_t *)"tutti tls", 9, key, KEY_BYTES);
    ssl.BIO_set_data(bio, tls);
    ssl.BIO_set_init(bio, 1);
    ssl.SSL_set_bio(session, bio, bio); /* owns it from now on */
    /* Instead of the key a certificate, which nobody of ours has, would not do. */
    if (client) {
        ssl.SSL_set_verify(session, SSL_VERIFY_PEER, NULL);
        ssl.SSL_set_connect_state(session);
    } else {
        ssl.SSL_set_accept_state(session);
    }
    *out = tls;
    return TT_OK;
}

void tt_tls_close(struct tt_tls *tls)
{
    if (!tls) return;
    ssl.SSL_free(tls->session);
    sodium_memzero(tls->key, sizeof tls->key);
    free(tls);
}

uint64_t tt_tls_updates(const struct tt_tls *tls)
{
    return tls->nupdates;
}

/* The outcome of a transfer that moved nothing, as a system call would say it. */
static ssize_t explain(struct tt_tls *tls, int result)
{
    const int why = ssl.SSL_get_error(tls->session, result);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (why == SSL_ERROR_ZERO_RETURN || (why != SSL_ERROR_SSL && !tls->error)) return 0;
    errno = tls->error && tls->error != EAGAIN ? tls->error : EPROTO;
    return -1;
}

static size_t fill_record(struct tt_tls *tls, const struct iovec *pieces, int npieces, size_t skip)
{
    size_t filled = 0;
    for (int i = 0; i < npieces && filled < sizeof tls->record; i++) {
        const size_t there = pieces[i].iov_len, left = skip < there ? there - skip : 0;
        const size_t room = sizeof tls->record - filled, n = left < room ? left : room;
        memcpy(tls->record + filled, (const char *)pieces[i].iov_base + (there - left), n);
        filled += n;
        skip -= there - left;
    }
    return filled;
}

/* Makes a new key for what is sent from now on; the peer makes the same one when it reads the
 * message. The peer counts its own records, so it is not asked to do likewise: its reply would be
 * due while this rank reads. Only between records, never while one is half sent. */
static bool update_key(struct tt_tls *tls)
{
    tls->updating = true;
    const bool done = ssl.SSL_key_update(tls->session, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
                      ssl.SSL_do_handshake(tls->session) == 1;
    tls->updating = false;
    tls->nrecords = 0;
    tls->nupdates += done;
    return done;
}

ssize_t tt_tls_send(struct tt_tls *tls, const struct iovec *pieces, int npieces)
{
    size_t sent = 0;
    for (size_t n; (n = fill_record(tls, pieces, npieces, sent)) > 0;) {
        ssl.ERR_clear_error();
        if (tls->nrecords >= tls->records_a_key && !tls->midway && !update_key(tls)) {
            errno = EPROTO;
            return -1;
        }
        const int result = ssl.SSL_write(tls->session, tls->record, (int)n);
        tls->midway = result <= 0;
        if (result <= 0) {
            const ssize_t outcome = explain(tls, result);
            return sent ? (ssize_t)sent : outcome;
        }
        sent += (size_t)result;
        tls->nrecords++;
    }
    return (ssize_t)sent;
}

ssize_t tt_tls_receive(struct tt_tls *tls, void *to, size_t nbytes)
{
    ssl.ERR_clear_error();
    const int result = ssl.SSL_read(tls->session, to, nbytes < INT32_MAX ? (int)nbytes : INT32_MAX);
    return result > 0 ? result : explain(tls, result);
}

bool tt_tls_holds(const struct tt_tls *tls)
{
    return ssl.SSL_pending(tls->session) > 0;
}

#else

tt_status tt_tls_load(void)
{
    return tt_fail(TT_ERR_SYSTEM, "TUTTI_ENCRYPT=1: this tutti was built without OpenSSL's headers "
                                  "(Debian package libssl-dev); build it again with them");
}

/* Never called: nothing is loaded. */
tt_status tt_tls_open(struct tt_tls **tls, int fd, const uint8_t *key, bool client,
                      uint64_t records_a_key)
{
    (void)tls, (void)fd, (void)key, (void)client, (void)records_a_key;
    return tt_tls_load();
}

void tt_tls_close(struct tt_tls *tls)
{
    (void)tls;
}

ssize_t tt_tls_send(struct tt_tls *tls, const struct iovec *pieces, int npieces)
{
    (void)tls, (void)pieces, (void)npieces;
    return -1;
}

ssize_t tt_tls_receive(struct tt_tls *tls, void *to, size_t nbytes)
{
    (void)tls, (void)to, (void)nbytes;
    return -1;
}

bool tt_tls_holds(const struct tt_tls *tls)
{
    (void)tls;
    return false;
}

uint64_t tt_tls_updates(const struct tt_tls *tls)
{
    (void)tls;
    return 0;
}

#endif
