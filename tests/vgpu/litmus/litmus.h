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

enum { VL_THREADS = 4, VL_OPS = 5, VL_LOCATIONS = 3, VL_REGISTERS = 8 };

enum vl_kind { VL_LOAD, VL_STORE, VL_EXCHANGE, VL_FENCE, VL_BARRIER };

struct vl_op {
    enum vl_kind kind;
    uint8_t location;    /* 0 to 2: x, y, z */
    uint8_t value;       /* of a store or exchange: not 0, each once a location */
    uint8_t reg;         /* of a load or exchange */
    enum vg_order order; /* WEAK to ACQ_REL; of a fence ACQ_REL or SC */
    enum vg_scope scope;
};

struct vl_thread {
    struct vl_op ops[VL_OPS];
    unsigned nops;
    unsigned device, block, place; /* place: the thread's number in its block */
};

struct vl_test {
    char name[96];
    struct vl_thread threads[VL_THREADS];
    unsigned nthreads, nlocations, nregisters;
};

/* What a run ended with: 4 bits each, registers first, then the locations. */
typedef uint64_t vl_outcome;
static inline vl_outcome vl_put(vl_outcome outcome, unsigned index, unsigned value)
{
    return outcome | (vl_outcome)value << 4 * index;
}

struct vl_allowed {
    vl_outcome *outcomes; /* sorted, each once */
    unsigned noutcomes;
    bool racy; /* an allowed execution holds a data race */
    unsigned executions;
};

/* All outcomes that the axioms allow. -1: no memory, or too many candidates. vl_allowed_free frees.
 */
int vl_enumerate(const struct vl_test *test, struct vl_allowed *allowed);
void vl_allowed_free(struct vl_allowed *allowed);
bool vl_is_allowed(const struct vl_allowed *allowed, vl_outcome outcome);

/* "P0@b0: st.relaxed.gpu x=1; ..." */
void vl_print(const struct vl_test *test, char *text, uint64_t nbytes);

/* The tests with names (MP, SB, ...), in all orders, scopes and placements: the number, and one. */
unsigned vl_named_count(void);
void vl_named(unsigned index, struct vl_test *test);
/* A generated test. */
void vl_generate(uint64_t seed, struct vl_test *test);

#endif
