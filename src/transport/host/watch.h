/* Watches: whether another process of this host has died. One descriptor (a pidfd) for each process
 * watched, however many communicators and ranks watch it; without a descriptor /proc is asked. */
#ifndef TT_TRANSPORT_HOST_WATCH_H
#define TT_TRANSPORT_HOST_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One process, watched by this one. Owned by the registry, freed with its last user. */
struct tt_pid_watch;

/* The watch of a process that lives now; process_id tells it from others that had or will have the
 * same pid (transport/peers.h). NULL: no memory. Any thread. */
struct tt_pid_watch *tt_pid_watch_get(pid_t pid, uint64_t process_id);
/* NULL is allowed. Any thread. */
void tt_pid_watch_put(struct tt_pid_watch *watch);

/* Whether the process has died, or has become another program (exec), which is seen half a second
 * later, by /proc; system calls. A zombie has died. Any thread. */
bool tt_pid_watch_is_dead(struct tt_pid_watch *watch);
/* After that: whether it lives on as another program. Any thread. */
bool tt_pid_watch_is_another(struct tt_pid_watch *watch);

#endif
