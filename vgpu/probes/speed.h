/* The parts of the speed probe. */
#ifndef GPU_PROBES_SPEED_H
#define GPU_PROBES_SPEED_H

#include "driver.h"

extern CUmodule speed_module;
/* Prints a row with the median of the times and their extremes, in us. */
void speed_row(const char *name, double *times, int count);
/* speed_memory.c */
void speed_kernels(void);
void speed_copies(void);

#endif
