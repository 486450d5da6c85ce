/* Parts of communicators that are gone, which GPUs may still use. Each is freed when it is unused.
 */
#ifndef TT_CARRIER_LEFT_H
#define TT_CARRIER_LEFT_H

#include <stdbool.h>

/* A member of the part. */
struct tt_left_part {
    void *part;
    int gpu;                             /* whose kernels and streams may use it */
    bool (*is_unused)(const void *part); /* it may be freed */
    void (*free)(void *part);
    struct tt_left_part *next; /* of the list */
};

/* Leaves the part to the GPU: it is freed by a later tt_left_free, or with the process. */
void tt_left_add(struct tt_left_part *part);
/* Frees the parts of this GPU that are unused by now. That may wait for kernels of the program on
 * it, and for nothing of another GPU. */
void tt_left_free(int gpu);

#endif
