/* A long random run of collectives, drawn alike by every rank from one seed. */
#ifndef TT_TESTS_INTEGRATION_RANDOM_CALLS_H
#define TT_TESTS_INTEGRATION_RANDOM_CALLS_H

#include <stdint.h>

#include "tutti.h"

/* Runs ncalls calls on comm and on two communicators split from it: every kind, type and operation,
 * in and out of place, in groups and alone, on streams and without, in ordinary memory and in
 * tuttiMemAlloc's. Each result is compared with the serial reference. Returns how many calls failed
 * or came out wrong; the first few are said on stderr. */
int random_calls(tuttiComm_t comm, uint64_t seed, int ncalls);

/* Memory and streams of a GPU, in which the calls' buffers lie. */
struct call_memory {
    int gpu;
    char *(*allocate)(int gpu, size_t nbytes);
    void (*free)(void *memory);
    void (*write)(int gpu, void *to, const void *from, size_t nbytes);
    void (*read)(int gpu, void *to, const void *from, size_t nbytes);
    void *(*make_stream)(int gpu);
    void (*destroy_stream)(int gpu, void *stream);
};
/* random_calls with buffers elsewhere; NULL: on the host. */
int random_calls_in(const struct call_memory *elsewhere, tuttiComm_t comm, uint64_t seed,
                    int ncalls);

#endif
