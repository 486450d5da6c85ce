/* TLS over a connected non-blocking socket: version 1.3 with a pre-shared key, no certificates.
 *
 * libssl is loaded at the first use, so that nobody else needs it. */
#ifndef TT_TRANSPORT_TLS_H
#define TT_TRANSPORT_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/status.h"

struct tt_tls;

/* TT_ERR_SYSTEM names the library, its Debian package and the cause when TLS cannot be had. */
TT_NODISCARD tt_status tt_tls_load(void);

/* One of the two ends is the client. The TLS handshake runs inside the first transfers. fd is
 * borrowed, key (32 bytes) copied. Each end changes the key of what it sends after records_a_key
 * records (of up to 16 KiB); 0: well before a cipher's limit. */
TT_NODISCARD tt_status tt_tls_open(struct tt_tls **tls, int fd, const uint8_t *key, bool client,
                                   uint64_t records_a_key);
void tt_tls_close(struct tt_tls *tls);

/* Like sendmsg and recv on a non-blocking socket. What was not taken must be offered again, the
 * same bytes first. errno EPROTO: the peer's TLS does not fit, EAGAIN: later. */
ssize_t tt_tls_send(struct tt_tls *tls, const struct iovec *pieces, int npieces);
ssize_t tt_tls_receive(struct tt_tls *tls, void *to, size_t nbytes);
/* Whether bytes are decrypted, but not received yet: no epoll reports them. */
bool tt_tls_holds(const struct tt_tls *tls);
/* How often this end has changed the key of what it sends. */
uint64_t tt_tls_updates(const struct tt_tls *tls);

#endif
