/* What tests of calls on streams have in common. */
#include "on_streams.h"

#include <stdlib.h>
#include <string.h>

#include "shim.h"

void check_error(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                 const char *text)
{
    const char *error = tuttiGetLastError(rank->comm);
    CHECK_MESSAGE(result == expected, "rank %d: result %d, expected %d: %s", rank->rank,
                  (int)result, (int)expected, error);
    CHECK_MESSAGE(strstr(error, text), "rank %d: '%s' is not in '%s'", rank->rank, text, error);
}

void check_success(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", rank->rank, what,
                  tuttiGetLastError(rank->comm));
}

struct streams make_streams(const struct gpu_rank *rank)
{
    struct streams made = {.cuda = gpu_stream(rank->gpu)};
    const tuttiResult_t result = rank->gpu < 0
                                     ? tuttiStreamCreate(&made.stream)
                                     : tuttiStreamFromDevice(&made.stream, rank->gpu, made.cuda);
    CHECK_EQ(result, tuttiSuccess);
    return made;
}

void destroy_streams(const struct gpu_rank *rank, struct streams *streams)
{
    CHECK_EQ(tuttiStreamDestroy(streams->stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, streams->cuda);
}

int *make_ints(const struct gpu_rank *rank, int value, int n)
{
    int *memory = (int *)gpu_memory(rank->gpu, (size_t)n * sizeof *memory);
    int *data = malloc((size_t)n * sizeof *data);
    for (int i = 0; i < n; i++) data[i] = value;
    gpu_write(rank->gpu, memory, data, (size_t)n * sizeof *data);
    free(data);
    return memory;
}

void check_ints(const struct gpu_rank *rank, const int *memory, int expected, int n)
{
    int *data = malloc((size_t)n * sizeof *data), wrong = 0;
    gpu_read(rank->gpu, data, memory, (size_t)n * sizeof *data);
    for (int i = 0; i < n; i++) wrong += data[i] != expected;
    CHECK_MESSAGE(!wrong, "rank %d: %d of %d are not %d; the last is %d", rank->rank, wrong, n,
                  expected, data[n - 1]);
    free(data);
}
