/* Writes that fail with an errno value where the kernel would end the process: SIGPIPE where nobody
 * reads any more, SIGXFSZ where a file would grow beyond the limit of file sizes (ulimit -f). The
 * signal does not reach the program's handler either. Any thread. tests/house/sources.sh finds a
 * call that bypasses this file; sockets have MSG_NOSIGNAL. */
#ifndef TT_BASE_WRITE_H
#define TT_BASE_WRITE_H

#include <stddef.h>
#include <sys/types.h>

/* As write(2), pwrite(2) and ftruncate(2). */
ssize_t tt_write(int fd, const void *bytes, size_t nbytes);
ssize_t tt_pwrite(int fd, const void *bytes, size_t nbytes, off_t at);
int tt_truncate(int fd, off_t nbytes);

/* What an error text adds for the errno value of such a call: the limit that refuses it, or "". */
const char *tt_write_limit(int error);

#endif
