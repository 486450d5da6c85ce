/* Descriptors that are this process's alone. A child made by fork gets /dev/null in their place:
 * else it would keep the connections of a process that has died, and nobody would notice the death.
 * (exec closes them: all are close-on-exec.)
 *
 * To open one: tt_private_fd_begin(); fd = tt_private_fd_end(socket(...)). No thread forks between
 * the two, so every child knows of every descriptor. Any thread. */
#ifndef TT_BASE_PRIVATE_FD_H
#define TT_BASE_PRIVATE_FD_H

/* A fork waits until tt_private_fd_end. Not to be nested, and for short calls that do not block. */
void tt_private_fd_begin(void);
/* Enters fd, unless it is negative, and returns it. Keeps errno. */
int tt_private_fd_end(int fd);

/* For a descriptor that a library has opened, and will close itself. */
void tt_private_fd_add(int fd);
void tt_private_fd_remove(int fd);

/* Closes fd, which may also be one that was never entered. Keeps errno. */
void tt_private_fd_close(int fd);

#endif
