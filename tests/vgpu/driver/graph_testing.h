/* For tests of graphs: kernels, and test bodies that run in a process of their own.
 *
 * The test program itself never calls cuInit: each body is a child with its own seed, and may break
 * its context. */
#ifndef VGPU_GRAPH_TESTING_H
#define VGPU_GRAPH_TESTING_H

#include <cuda.h>
#include <shim.h>
#include <stdint.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

/* Registers a test whose body runs in a child. */
#define GRAPH_TEST(suite, name)                                                                    \
    static void body_##suite##_##name(void);                                                       \
    TEST(suite, name)                                                                              \
    {                                                                                              \
        CHECK_EQ(gt_run(body_##suite##_##name, "1"), 0);                                           \
    }                                                                                              \
    static void body_##suite##_##name(void)

enum { GT_WORDS = 256 };

/* What bodies use, made by gt_open. */
struct gt {
    CUcontext context;
    CUmodule module;
    CUfunction store;       /* (at, value): *at = value */
    CUfunction add;         /* (at, value): at[thread] += value */
    CUfunction next;        /* (counter, log): log[n] = n + 1 for n = *counter, which grows by 1 */
    CUfunction move;        /* (to, from): to[thread] = from[thread] */
    CUfunction await;       /* (at, value): waits until *at == value, and sets at[1] = 1 before */
    CUstream stream, other; /* non-blocking */
    CUdeviceptr memory;     /* GT_WORDS zeros */
};
extern struct gt gt;

/* Runs the body in a child process with this VGPU_SEED. Its exit status: 0, 1 (a check failed), 86
 * (the virtual GPU reported something); 128 and more: killed. */
int gt_run(void (*body)(void), const char *seed);
void gt_open(void);
/* A launch of one block. */
CUresult gt_launch(CUfunction function, unsigned nthreads, CUstream stream, void **params);
CUgraph gt_graph(void);
/* A kernel node of one block. */
CUgraphNode gt_kernel(CUgraph graph, CUfunction function, unsigned nthreads, void **params,
                      const CUgraphNode *before, size_t n);
CUgraphNode gt_store(CUgraph graph, CUdeviceptr at, uint32_t value, const CUgraphNode *before,
                     size_t n);
/* 16 zeros that kernels and the host can address. */
volatile uint32_t *gt_mapped_words(void);
uint32_t gt_word(unsigned index); /* of gt.memory, read when all work of the context has ended */
void gt_set_word(unsigned index, uint32_t value);
CUgraphExec gt_instantiate(CUgraph graph);
/* Launches it in gt.stream and waits. */
void gt_replay(CUgraphExec exec);

#endif
