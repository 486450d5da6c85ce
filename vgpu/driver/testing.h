/* What the tests of libcuda.so.1 share: kernels, processes of their own, memory, graphs, and the
 * other process of the tests of memory.
 *
 * A process whose kernel failed is lost, and settings are read once. So most bodies of tests run in
 * a child, and only the tests of memory call the driver in the test program itself. */
#ifndef VGPU_DRIVER_TESTING_H
#define VGPU_DRIVER_TESTING_H

#include <cuda.h>
#include <shim.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

enum { VT_GPUS = 2, VT_WORDS = 256 };

/* What the process has opened. Kernels run in one thread where nothing else is said. */
struct vt {
    CUcontext contexts[VT_GPUS], context; /* primary ones; the first GPU's */
    CUmodule modules[VT_GPUS], module;    /* with the kernels; the first GPU's */
    /* kernels of the first GPU */
    CUfunction append; /* (log, id): log[++log[0]] = id; what is in log is in order */
    CUfunction await;  /* (word, value, then): waits until *word is value; *then = 1 */
    CUfunction meet;   /* (word, value): word[1] = 1; waits until *word is value */
    CUfunction set;    /* (word, value): a release */
    CUfunction turns;  /* (mine, theirs, n): n times *mine = i, then waits for *theirs >= i */
    CUfunction put;    /* (word, value): a weak store */
    CUfunction trap;   /* () */
    CUfunction nine;   /* (u8 a, u64 b, u32 c, out): out[0] = a, [1] = b, [2] = c as u64 */
    CUfunction add;    /* (at, value): at[thread] += value */
    CUfunction next;   /* (counter, log): log[n] = n + 1 for n = *counter, which grows by 1 */
    CUfunction move;   /* (to, from): to[thread] = from[thread] */
    /* only of tests of graphs */
    CUstream stream, other; /* non-blocking */
    CUdeviceptr memory;     /* VT_WORDS zeros */
};
extern struct vt vt;

/* ---- processes ---- */

/* So many GPUs; the first one's primary context is current. Nothing when it was called before. */
bool vt_open(int ngpus);
/* The first GPU, with what tests of graphs use; anew at each call. */
void vt_open_graphs(void);
/* Runs the body in a child with these settings ("NAME=value", NULL-terminated; or NULL) after
 * vt_open(1). Its exit status; text: what was written to standard error. Checks that failed there
 * print, and fail the test here. -1: a signal ended it. */
int vt_run(const char *const settings[], void (*body)(void), char *text, size_t room);
/* vt_run without vt_open: the body calls cuInit. */
int vt_run_unopened(const char *const settings[], void (*body)(void), char *text, size_t room);
/* vt_run where nothing is to be reported and no text matters. */
void vt_quiet(const char *const settings[], void (*body)(void));
/* vt_run after vt_open_graphs, with this VGPU_SEED. Its exit status: 0, 86 (the virtual GPU
 * reported something), or another one, with a failed check. */
int vt_run_graphs(void (*body)(void), const char *seed);

/* Registers a test whose body runs in a child after vt_open_graphs. */
#define GRAPH_TEST(suite, name)                                                                    \
    static void body_##suite##_##name(void);                                                       \
    TEST(suite, name)                                                                              \
    {                                                                                              \
        CHECK_EQ(vt_run_graphs(body_##suite##_##name, "1"), 0);                                    \
    }                                                                                              \
    static void body_##suite##_##name(void)

/* ---- launches, streams, memory ---- */

/* One block. */
CUresult vt_launch(CUfunction kernel, unsigned nthreads, CUstream stream, void **params);
CUstream vt_stream(unsigned flags);
CUdeviceptr vt_device(size_t nbytes);         /* zeroed */
volatile uint32_t *vt_mapped(size_t nbytes);  /* of the host, zeroed; kernels can address it */
uint32_t vt_read(CUdeviceptr memory, int at); /* the at-th word, read by the host */

/* One thread, in the current context: whichever GPU's. */
CUresult vt_put(CUdeviceptr address, uint32_t value, CUstream stream);
CUresult vt_move(CUdeviceptr to, CUdeviceptr from, CUstream stream);
CUresult vt_await(CUdeviceptr address, uint32_t value, CUdeviceptr then, CUstream stream);
void vt_current(int device);

/* New VMM memory of the device, mapped, with access for it. */
CUresult vt_map(int device, size_t nbytes, CUmemGenericAllocationHandle *handle,
                CUdeviceptr *address);
CUresult vt_map_handle(int device, size_t nbytes, CUmemGenericAllocationHandle handle,
                       CUdeviceptr *address);

/* ---- graphs: after vt_open_graphs ---- */

CUgraph vt_graph(void);
/* A kernel node of one block. */
CUgraphNode vt_kernel(CUgraph graph, CUfunction function, unsigned nthreads, void **params,
                      const CUgraphNode *before, size_t n);
CUgraphNode vt_store(CUgraph graph, CUdeviceptr at, uint32_t value, const CUgraphNode *before,
                     size_t n);
CUgraphExec vt_instantiate(CUgraph graph);
/* Launches it in vt.stream and waits. */
void vt_replay(CUgraphExec exec);
uint32_t vt_word(unsigned index); /* of vt.memory, read when all work of the context has ended */
void vt_set_word(unsigned index, uint32_t value);

/* ---- the other process of the tests of memory ---- */

/* A process that plays a role of memory_peer.c, joined by a socket. */
struct vt_peer {
    pid_t pid;
    int socket;
    int errors; /* a memfd that holds its standard error */
};
bool vt_start(struct vt_peer *peer, const char *role);
/* Waits until it has ended; the text is what it wrote to standard error. Its status as of waitpid.
 */
int vt_finish(struct vt_peer *peer, char *text, size_t room);

bool vt_send(int socket, const void *data, size_t nbytes);
bool vt_receive(int socket, void *data, size_t nbytes);
void vt_send_fd(int socket, int fd);
int vt_receive_fd(int socket); /* -1: none came */

#endif
