/* NVIDIA's Multi-Process Service (MPS): kernels of several processes run on a GPU at the same time;
 * without it the driver lets the processes take turns, some milliseconds each. */
#ifndef TT_DRIVER_MPS_H
#define TT_DRIVER_MPS_H

#include <stdbool.h>

/* Whether this process is a client of MPS, as far as can be told: the driver has no call that says
 * so. A process becomes one when CUDA is initialized and MPS' control daemon answers: so one that
 * could answer now counts (a socket of its in CUDA_MPS_PIPE_DIRECTORY, made by root or this user).
 * TUTTI_MPS overrides that. */
bool tt_driver_uses_mps(void);

#endif
