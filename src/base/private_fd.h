/* The descriptors of the library. None of them has number 0, 1 or 2, also where the program has
 * closed its standard streams: what is printed would go into a connection or into shared memory.
 * tests/house/descriptors.sh finds a call that bypasses this file.
 *
 * A descriptor that stays open is entered as private. A child made by fork gets /dev/null in its
 * place: otherwise the child would keep the connections of a process that has died, and nobody
 * would notice the death. (exec closes all: they are close-on-exec.)
 *
 * To open a private one: tt_private_fd_begin(); fd = tt_private_fd_end(socket(...)). No thread
 * forks between the two, so every child knows of every descriptor. Any thread. */
#ifndef TT_BASE_PRIVATE_FD_H
#define TT_BASE_PRIVATE_FD_H

#include <stdbool.h>

/* A fork waits until tt_private_fd_end. Not to be nested, and for short calls that do not block. */
void tt_private_fd_begin(void);
/* Enters fd, unless it is negative, and returns it, or another number of the same file above 2;
 * -1 with errno: there is none. Keeps errno otherwise. */
int tt_private_fd_end(int fd);

/* For a descriptor that a library has opened, and will close itself. */
void tt_private_fd_add(int fd);
void tt_private_fd_remove(int fd);

/* Whether fd was entered and is another file now: the program has closed it, and may have opened a
 * file of its own under the number. Keeps errno. */
bool tt_private_fd_is_lost(int fd);
/* What an error about a lost descriptor ends with. */
#define TT_LOST_FD "a program must leave tutti's descriptors open (closefrom?)"

/* Closes fd, which may also be one that was never entered; not one that is lost. Keeps errno. */
void tt_private_fd_close(int fd);

/* Between the two no descriptor that this process opens gets number 0, 1 or 2, unless the program
 * closes that number meanwhile: for a library that opens descriptors, and for those that are closed
 * again soon. The calls may be nested and may block; not between tt_private_fd_begin and
 * tt_private_fd_end, which do the same. tt_low_fd_release returns fd as tt_private_fd_end does, not
 * entered; -1 for none. */
void tt_low_fd_hold(void);
int tt_low_fd_release(int fd);

#endif
