/* Litmus tests of PTX's memory model: small programs, and the outcomes that the model's axioms
 * allow.
 *
 * The axioms are taken from the manual's chapter (PTX ISA 9.0, chapter 8: Memory Consistency Model)
 * and from nothing of model/: an outcome that the running model shows and that is not allowed here
 * is a defect of one of the two. */
#ifndef VGPU_LITMUS_H
#define VGPU_LITMUS_H

#include <stdbool.h>
#include <stdint.h>

#include <vgpu/code.h>

enum {
    VL_THREADS = 4,
    VL_OPS = 10,
    VL_LOCATIONS = 4, /* x, y, z, w */
    VL_REGISTERS = 8, /* a to h */
    VL_BYTES = 16,    /* of a location, all zero at first */
    VL_GRIDS = 4,
    VL_WARP = 16, /* barrier numbers from here on are bar.warp.sync */
    VL_HOST = -1, /* the device of host threads */
};

enum vl_kind {
    VL_LOAD,
    VL_STORE,
    VL_ADD,
    VL_EXCHANGE,
    VL_SWAP, /* compare and swap */
    VL_FENCE,
    VL_BARRIER, /* bar.sync, or bar.warp.sync */
    VL_ARRIVE,  /* bar.arrive */
};

struct vl_op {
    enum vl_kind kind;
    uint8_t location, first, nbytes; /* the access is of bytes first, ... of the location */
    uint8_t value;                   /* every byte becomes this, or grows by this (VL_ADD) */
    uint8_t expected;                /* of every byte, before a VL_SWAP */
    uint8_t reg;                     /* VL_REGISTERS: none, a red */
    uint8_t number;                  /* of the barrier */
    bool nc;                         /* ld.global.nc */
    enum vg_order order;             /* WEAK to ACQ_REL; of a fence ACQUIRE to SC */
    enum vg_scope scope;
};

/* Threads of one block that name a barrier meet there, all as often. */
struct vl_thread {
    struct vl_op ops[VL_OPS];
    unsigned nops;
    unsigned grid, block, place; /* place: the thread's number in its block */
};

struct vl_grid {
    int device;      /* its index, or VL_HOST */
    unsigned before; /* a bit a grid that ends before this one begins: a stream's order, an event */
};

struct vl_test {
    char name[96];
    struct vl_thread threads[VL_THREADS];
    struct vl_grid grids[VL_GRIDS];
    unsigned nthreads, ngrids, nlocations, nregisters;
};

/* What a run ended with: the registers' bytes, then the locations'. */
struct vl_outcome {
    uint8_t at[VL_REGISTERS + VL_LOCATIONS][VL_BYTES];
};

struct vl_seen {
    struct vl_outcome outcome;
    bool racy, clean; /* an allowed execution that ends so has a data race; has none */
    bool unsure;      /* one has no race that must be reported: axioms.c says what may be missed */
};

struct vl_allowed {
    struct vl_seen *outcomes; /* each once */
    unsigned noutcomes, room, *slots;
    bool racy;  /* an allowed execution has a data race */
    bool sure;  /* one that must be reported */
    bool mixed; /* of partly overlapping accesses: then the axioms do not apply (8.7.2) */
    unsigned executions;
};

/* Axioms and rules that can be left out, to see that something notices: see mutations_test.c. */
enum vl_rule {
    VL_COHERENCE = 1,
    VL_FENCE_SC = 2, /* with the synchronization of fence.sc */
    VL_SINGLE_COPY = 4,
    VL_ATOMICITY = 8,
    VL_PER_LOCATION = 16,
    VL_CAUSALITY = 32,
    VL_THROUGH_ATOMICS = 64,  /* observation order through read-modify-writes */
    VL_BARRIERS = 128,        /* barriers synchronize */
    VL_STREAMS = 256,         /* so do kernels of one stream */
    VL_LATER_WRITES = 512,    /* release; then a strong write */
    VL_EARLIER_READS = 1024,  /* a strong read, then an acquire */
    VL_RED = 2048,            /* a red's read is in no acquire pattern */
    VL_OBSERVED_FIRST = 4096, /* observation followed by base causality is causality */
    VL_SCOPES = 8192,         /* morally strong needs scopes that include each other */
};

/* All outcomes that the axioms, without some, allow. -1: no memory, or the test is too large.
 * vl_allowed_free frees. */
int vl_enumerate(const struct vl_test *test, unsigned without, struct vl_allowed *allowed);
void vl_allowed_free(struct vl_allowed *allowed);
const struct vl_seen *vl_find(const struct vl_allowed *allowed, const struct vl_outcome *outcome);

/* text.c */
enum vl_place { VL_ONE_BLOCK, VL_TWO_BLOCKS, VL_BLOCKS, VL_TWO_DEVICES, VL_DEVICES };

/* Reads threads separated by |, operations by ; such as
 *   st.weak x 1   st.rel.gpu x 1   ld.acq.@ y a   ld.nc x a   ld.rlx.cta x[4,8] b
 *   add.ar.sys x 1 a   red.rlx.gpu x 1   xchg.acq.@ x 1 a   cas.rel.@ x 0 1 a (0: expected)
 *   fence.acq.@  fence.rel.@  fence.ar.@  fence.sc.@   bar 0   arrive 1   warp 0
 * x[4,8] is bytes 4 to 11 of x, x alone bytes 0 to 3; @ is the scope that is given. The threads are
 * placed in one block, two or each its own, two devices or each its own. False: the text is wrong.
 */
bool vl_read(const char *text, enum vg_scope scope, enum vl_place place, struct vl_test *test);
/* Whether the outcome has these values, such as "a=1 b[4]=0 x=2": of byte 4, or the first one. */
bool vl_matches(const struct vl_outcome *outcome, const char *text);
/* The name, then a line a thread that vl_read can read. */
void vl_print(const struct vl_test *test, char *text, uint64_t nbytes);
void vl_print_outcome(const struct vl_test *test, const struct vl_outcome *outcome, char *text,
                      uint64_t nbytes);

/* shapes.c: the tests with names (MP, SB, ...), in all orders, scopes and placements. */
unsigned vl_named_count(void);
void vl_named(unsigned index, struct vl_test *test);

/* generate.c */
enum vl_family {
    VL_PLAIN,    /* words of 4 bytes, exchanges, whole barriers, up to three devices */
    VL_SIZES,    /* 1 to 16 bytes that overlap, vectors */
    VL_ATOMICS,  /* add, red, exchange, compare and swap in all orders */
    VL_MEETINGS, /* barriers of parts of a block, bar.arrive, bar.warp.sync */
    VL_STREAMED, /* grids with and without an order */
    VL_READONLY, /* ld.global.nc as well */
    VL_HOSTED,   /* a host thread takes part: for reachable memory */
    VL_MESSAGES, /* plain data, a flag, perhaps handed on; then the data again */
    VL_FENCED,   /* two or three accesses a thread, a fence between each two */
    VL_MIXED,    /* sizes, atomics, barriers and grids at once */
    VL_REACHED,  /* messages of scope .sys between two devices, and perhaps a host thread */
    VL_FAMILIES
};
extern const char *const vl_families[VL_FAMILIES];
void vl_generate(uint64_t seed, enum vl_family family, struct vl_test *test);

static inline bool vl_accesses(const struct vl_op *op)
{
    return op->kind < VL_FENCE;
}
static inline bool vl_reads(const struct vl_op *op)
{
    return vl_accesses(op) && op->kind != VL_STORE;
}
static inline bool vl_writes(const struct vl_op *op)
{
    return vl_accesses(op) && op->kind != VL_LOAD;
}
static inline bool vl_is_atomic(const struct vl_op *op)
{
    return op->kind >= VL_ADD && op->kind <= VL_SWAP;
}

#endif
