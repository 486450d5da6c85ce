/* The counts of a run over all its processes, for vgpu-run. */
#ifndef VGPU_DRIVER_COUNTS_H
#define VGPU_DRIVER_COUNTS_H

/* Maps the file of VGPU_COUNTS and counts this process, once. -1: error says what is wrong. */
int vd_counts_start(char error[512]);
void vd_counts_kernel(void);

#endif
