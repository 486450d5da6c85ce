/* The counts of links between GPUs, as tests set them: just before they begin at 0 again. */
#ifndef TT_TESTS_DEVICE_COUNTS_H
#define TT_TESTS_DEVICE_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/device/end.h"

/* How to access memory of the rank's GPU. */
struct counts_access {
    void (*read)(void *arg, void *to, const void *from, size_t nbytes);
    void (*write)(void *arg, void *to, const void *from, size_t nbytes);
    void *arg;
};

/* As if every link of a rank had carried `count` messages, and every channel had seen so many
 * meetings; on all ranks, while no kernel runs. What the memory of the links says of messages stays
 * as it is; fresh: all of it is of the last message. */
void counts_set(const struct tt_device_links *links, const struct counts_access *access,
                uint32_t count, bool fresh);
/* Of the links by which a rank has received, and that have carried more than `count` messages: how
 * many messages ago the oldest thing was written that their memory says. 0: there are no such
 * links. */
uint32_t counts_oldest(const struct tt_device_links *links, const struct counts_access *access,
                       uint32_t count);

#endif
