/* The functions of the host's backend that do not depend on vector instructions; backend.h says
 * what each does. */
#ifndef TR_HOST_H
#define TR_HOST_H

#include "backend.h"

void tr_host_wait(void);
void *tr_host_take(size_t nbytes, bool shared);
void tr_host_give(void *memory, bool shared);
void tr_host_copy(void *to, const void *from, size_t nbytes);
void tr_host_clear(void *tensor, size_t nbytes);
uint64_t tr_host_checksum(const void *tensor, size_t nbytes);
size_t tr_host_find_not_finite(const float *x, size_t n);

#endif
