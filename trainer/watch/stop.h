/* Signals that ask a run to end: SIGINT, SIGTERM, SIGUSR1, which Slurm sends ahead of a job's end
 * where it is told to, and SIGHUP of a terminal that has gone. Between listen and restore they are
 * kept in mind, and the run ends by itself when its step is done. */
#ifndef TR_STOP_H
#define TR_STOP_H

#include <stdbool.h>

enum { TR_STOP_SIGNALS = 4 };

/* At the start of the program: these signals end it also where it is process 1, as in a container;
 * the system ends process 1 by none. */
void tr_stop_prepare(void);
/* From now on these signals are heard, but for those that the process was started to ignore. A
 * second SIGINT at least 2 s after the first one ends the process at once. speaks: what a signal
 * leads to is said on standard error. */
void tr_stop_listen(bool speaks);
/* Which of the TR_STOP_SIGNALS came first, or -1. */
int tr_stop_heard(void);
/* Its number for kill(2). */
int tr_stop_number(int which);
/* Gives the signals back what they did before listen. */
void tr_stop_restore(void);
/* Ends the process as the signal does; process 1 exits with 128 and the signal's number. */
void tr_stop_raise(int which);

#endif
