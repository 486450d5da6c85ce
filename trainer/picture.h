/* The picture of a training (--plot), and of logs of several (--plot-logs). */
#ifndef TR_PICTURE_H
#define TR_PICTURE_H

#include "trainer.h"

/* With --plot, on rank 0: begins the picture, titled with what is run. A run that goes on from a
 * checkpoint begins with what its --log has. Call it when all else of a run has
 * begun: a run that cannot begin leaves the picture that is there. */
void tr_picture_open(struct tr_trainer *trainer);

/* Adds a step, and now and then writes the picture. */
void tr_picture_step(struct tr_trainer *trainer, const struct tr_log_row *row);

/* Writes the last picture, with the held-out loss after the last step where it is a number. */
void tr_picture_end(struct tr_trainer *trainer, double held_out);

/* Draws the logs that --plot-logs names to the file that --plot names. */
TR_NODISCARD tr_status tr_picture_of_logs(const struct tr_config *config);

#endif
