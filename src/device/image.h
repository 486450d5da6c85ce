/* The kernels as nvcc compiled them, part of the library. Made only where the build found nvcc. */
#ifndef TT_DEVICE_IMAGE_H
#define TT_DEVICE_IMAGE_H

#define TT_IMAGE_HIDDEN __attribute__((visibility("hidden")))

/* A fat binary. Its header says how long it is. */
extern const unsigned char tt_device_image[] TT_IMAGE_HIDDEN;
/* What it was compiled for, and by which nvcc, for messages. */
extern const char tt_device_image_holds[] TT_IMAGE_HIDDEN;

#endif
