/* What tests of calls on streams, of a GPU or of the host, have in common. */
#ifndef TT_TESTS_DEVICE_ON_STREAMS_H
#define TT_TESTS_DEVICE_ON_STREAMS_H

#include "ranks_on_gpus.h"

/* The rank's CUDA stream, and the stream made of it; of ranks without a GPU a stream of the host.
 */
struct streams {
    void *cuda;
    tuttiStream_t stream;
};

struct streams make_streams(const struct gpu_rank *rank);
void destroy_streams(const struct gpu_rank *rank, struct streams *streams);

/* The result must be this one, and its text must have this in it. */
void check_error(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                 const char *text);
void check_success(const struct gpu_rank *rank, tuttiResult_t result, const char *what);

/* Memory of the rank's GPU, or of the host where it has none: n times the value. */
int *make_ints(const struct gpu_rank *rank, int value, int n);
void check_ints(const struct gpu_rank *rank, const int *memory, int expected, int n);

#endif
