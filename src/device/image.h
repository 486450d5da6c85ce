/* The kernels as nvcc compiled them, part of the library. Made only where the build found nvcc. */
#ifndef TT_DEVICE_IMAGE_H
#define TT_DEVICE_IMAGE_H

#define TT_IMAGE_HIDDEN __attribute__((visibility("hidden")))

/* A fat binary, for drivers for CUDA 13. Its header says how long it is. */
extern const unsigned char tt_device_image[] TT_IMAGE_HIDDEN;
/* A fat binary of PTX alone, for drivers from CUDA 12.4 on (cmake/older-kernels.cmake). Its first
 * byte is 0 where the build had no PTX that they take. */
extern const unsigned char tt_device_older_image[] TT_IMAGE_HIDDEN;
/* What it was compiled for, and by which nvcc, for messages. */
extern const char tt_device_image_holds[] TT_IMAGE_HIDDEN;

#endif
