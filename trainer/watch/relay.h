/* A terminal at the standard output or error may stand still: Ctrl-S stops it, or nobody reads its
 * other end. A pipe of our own is put in front of it, which can say whether it has room for a line
 * (pipe.h), and a thread that carries what is in the pipe to the terminal. */
#ifndef TR_RELAY_H
#define TR_RELAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* Must live as long as the process. */
struct tr_relay {
    bool runs;
    FILE *file;
    int from, terminal;
    int end; /* eventfd: nothing more comes */
    pthread_t thread;
    int error; /* of the thread's write; 0: none. Valid after tr_relay_end */
};

/* Does nothing where the standard output or error, `file`, is no terminal, or the system has no
 * pipe or thread; nor where the standard error is one that tr_say can write to without waiting. */
void tr_relay_begin(struct tr_relay *relay, FILE *file);
/* The file is the terminal again, which has all of it. waits: until it has, or a signal
 * asks for an end; else for a second. Where it then stands still, it is /dev/null. */
void tr_relay_end(struct tr_relay *relay, bool waits);

#endif
