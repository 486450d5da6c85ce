/* Random programs that are right: work in streams of two GPUs and on host threads, ordered by all
 * the ways that CUDA has, and what each buffer holds at the end of each operation.
 *
 * A program is a list of operations in one order, in which it could run one by one. Each belongs to
 * an agent: a stream, or a host thread. The generator knows by vector clocks what precedes what; an
 * operation that touches a buffer follows all earlier conflicting ones, if need be by an edge that
 * it puts in between. Operations that nothing orders run at the same time. */
#ifndef VGPU_DRIVER_RANDOM_PROGRAM_H
#define VGPU_DRIVER_RANDOM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VR_GPUS = 2,
    VR_THREADS = 2,
    VR_STREAMS = 6, /* 3 of each GPU: two that wait for nobody, and the legacy stream */
    VR_AGENTS = VR_STREAMS + VR_THREADS,
    VR_BUFFERS = 9, /* 3 of each GPU, 3 of the host */
    VR_WORDS = 40,
    VR_FLAGS = 256,
    VR_OPS = 512
};

enum vr_kind {
    /* data, in a stream */
    VR_STEP,  /* out[i] = 3 in[0][i] + in[1][i] + k */
    VR_COPY,  /* out = in[0] */
    VR_FILL,  /* out[i] = k */
    VR_HOSTF, /* a host function: as VR_STEP, of memory of the host */
    VR_PEER,  /* as VR_COPY, by cuMemcpyPeerAsync */
    VR_GRAPH, /* two steps side by side, to out and to out2, then out[i] += out2[i] */
    /* data, by the host thread */
    VR_CHECK, /* in[0] is what it is to be, read in place */
    VR_STORE, /* out[i] = k + i in place */
    VR_FETCH, /* as VR_CHECK, by cuMemcpyDtoH */
    VR_PUT,   /* as VR_STORE, by cuMemcpyHtoD in the stream */
    /* edges */
    VR_RECORD, /* event `flag` in the stream */
    VR_AFTER,  /* the stream waits for event `flag` */
    VR_SET,    /* the stream sets the flag, in way k */
    VR_AWAIT,  /* the stream waits for it, in way k */
    VR_SYNC,   /* the host waits for the stream, in way k */
    VR_POLL,   /* the host waits for the flag, in way k */
    VR_LATE,   /* the stream waits for the flag, which the host sets behind the call */
    VR_JOIN    /* the thread waits until thread `k` has done operation `other` */
};

enum vr_set { VR_RELEASE, VR_FENCE, VR_ATOMIC, VR_VOLATILE, VR_NARROW, VR_WRITE, VR_SETS };
enum vr_await { VR_ACQUIRE, VR_FENCED, VR_ADDED, VR_POLLED, VR_NARROWLY, VR_WAIT, VR_AWAITS };
enum vr_sync { VR_STREAM, VR_EVENT, VR_QUERY, VR_SYNCS };

struct vr_op {
    enum vr_kind kind;
    int thread, stream; /* that issues it; -1: in none */
    int in[2], out, out2;
    int flag; /* of an edge; -1: none */
    int set;  /* VR_STEP: sets this flag at its end; or -1 */
    int other;
    uint32_t k;
    uint32_t blocks; /* of VR_STEP */
    uint32_t expected[VR_WORDS];
};

struct vr_program {
    struct vr_op op[VR_OPS];
    int nops, nflags, nevents;
    int nedges;
    uint32_t final[VR_BUFFERS][VR_WORDS];
};

/* left_out: this edge is forgotten; -1: none. */
void vr_generate(struct vr_program *program, uint64_t seed, int length, int left_out);
void vr_print(const struct vr_program *program);

static inline int vr_gpu_of_stream(int stream)
{
    return stream / (VR_STREAMS / VR_GPUS);
}
static inline bool vr_is_legacy(int stream)
{
    return stream % (VR_STREAMS / VR_GPUS) == 2;
}
/* The GPU of a buffer; -1: the host's. */
static inline int vr_gpu_of_buffer(int buffer)
{
    return buffer / 3 < VR_GPUS ? buffer / 3 : -1;
}
/* The GPU of a flag; -1: the host's. */
static inline int vr_gpu_of_flag(int flag)
{
    return flag % 3 < VR_GPUS ? flag % 3 : -1;
}

#endif
