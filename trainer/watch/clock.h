/* The clock of the trainer. */
#ifndef TR_CLOCK_H
#define TR_CLOCK_H

/* Seconds of the monotonic clock. */
double tr_clock_seconds(void);

#endif
