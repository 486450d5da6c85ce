/* Verbs with dma-buf, for devices in software, which have none: a memfd stands for the memory of a
 * GPU. The addresses of that memory may be any: nothing need be mapped there, so a library that
 * touched it would crash. */
#ifndef TT_TESTS_RDMA_DMABUF_VERBS_H
#define TT_TESTS_RDMA_DMABUF_VERBS_H

#include <stdbool.h>

/* In this process, before a device is opened; until dmabuf_verbs_remove, when nothing is registered
 * any more. False: there is no libibverbs. */
bool dmabuf_verbs_install(void);
void dmabuf_verbs_remove(void);
/* Regions of GPUs that are registered now. */
int dmabuf_verbs_count(void);
/* The device that refuses memory of GPUs from now on, with this errno; NULL: none does. */
void dmabuf_verbs_refuse(const char *device, int error);
/* All devices refuse memory of GPUs once so many more pieces were registered; negative: never. */
void dmabuf_verbs_refuse_after(int n);
/* Whether devices opened from now on say that they can make and answer READs. */
void dmabuf_verbs_allow_reads(bool allowed);
/* Ends the use of the memory that was registered at this address, behind the back of those who
 * registered it. */
void dmabuf_verbs_break(const void *base);

#endif
