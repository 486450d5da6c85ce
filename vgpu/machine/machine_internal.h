/* What the files of the machine share: grids, blocks, warps and fragments of warps.
 *
 * A warp's lanes that are at the same place make a *fragment*: a mask of lanes, a position in the
 * code and a chain of frames. A branch that lanes take differently splits a fragment; fragments
 * that meet at one place in one frame become one again. A warp runs the fragment of the innermost
 * frame and lowest position first, so that lanes meet again soon. */
#ifndef VGPU_MACHINE_INTERNAL_H
#define VGPU_MACHINE_INTERNAL_H

#include <vgpu/machine.h>
#include <vgpu/random.h>

enum { VG_BARRIERS = 16, VG_MAX_WARPS = 32, VG_CACHE = 64, VG_WATCHED = 32 };

/* The address of a function, for indirect calls: a number with its index. */
#define VG_CODE_WINDOW (UINT64_C(1) << 52)
#define VG_PARAM_WINDOW VG_WINDOW_MASK

/* A call in progress. Fragments share frames; refs counts fragments and inner frames. */
struct vg_frame {
    struct vg_frame *parent;
    const struct vg_function *function;
    uint32_t base, pbase;   /* first unit and first predicate */
    uint32_t local, params; /* offsets in each thread's local memory */
    uint32_t return_pc, depth, refs;
    uint32_t stack[VG_LANES]; /* the caller's bound of alloca, a lane each */
};

enum vg_state {
    VG_RUNS,
    VG_GATHERS, /* waits for other lanes of its warp */
    VG_BLOCKED  /* has arrived at a barrier of the block and waits for other warps */
};

struct vg_fragment {
    uint32_t mask, pc;
    struct vg_frame *frame;
    uint8_t state;
    bool yielded;
    uint8_t parts;           /* components of a strict vector access that are done, a bit each */
    uint32_t idle;           /* instructions without a store, a barrier or a new value */
    uint32_t tired;          /* the value of idle at which the fragment yields */
    uint64_t spun;           /* instructions without memory, barrier, exchange between lanes */
    bool timed;              /* it has looked at the time while it spun */
    uint32_t spin_pc, looks; /* where its registers were hashed, and how often they were */
    uint64_t spin_state;
    uint32_t turn;           /* instructions since another fragment of the warp ran */
    uint32_t members;        /* GATHERS in a warp: the lanes that it waits for */
    uint32_t barrier, count; /* GATHERS, BLOCKED at a barrier of the block */
};

/* A load that a waiting fragment repeats. */
struct vg_watch {
    const struct vg_instr *in;
    uint32_t lanes;
    uint32_t looks, same; /* same: in how many spans of looks in a row the registers came back */
    bool back;            /* in this span: to what they were when it began */
    uint64_t sum, address, state, sketch;
    const struct vg_region *region;
};

/* A cp.async, or the arrival of cp.async.mbarrier.arrive, that has not been performed yet. */
struct vg_async {
    const struct vg_instr *in;
    uint32_t lane, group, number, nread, nbytes; /* number: the memory model's, of the copy */
    bool arrives, done;
    uint64_t to, from;
};

enum { VG_GROUPS = 32 };
struct vg_copies {            /* of a lane */
    uint32_t number;          /* of the next copy */
    uint32_t last[VG_GROUPS]; /* the last number of each of the latest groups */
};

struct vg_block;

enum { VG_STRONG_KEPT = 8 };

struct vg_warp {
    struct vg_block *block;
    uint32_t number, live; /* lanes that have not exited */
    uint32_t nparts;
    struct vg_fragment part[VG_LANES];
    uint32_t (*units)[VG_LANES];
    uint32_t *predicates;
    uint32_t nunits, npredicates; /* room */
    uint32_t carry;
    unsigned char *local;     /* local_room bytes a lane; NULL until one is used */
    uint32_t stack[VG_LANES]; /* where alloca's pieces begin, downward from local_room */
    struct vg_watch *watch;
    uint32_t nwatch;
    struct vg_async *async;
    uint32_t nasync, async_room, group[VG_LANES];
    struct vg_copies *copies; /* NULL: no lane has copied yet */
    uint64_t *strict;         /* addresses of vector accesses under way, a lane each */
    uint64_t mark;            /* of run->moves when the warp was picked last */
    struct {
        uint64_t address[VG_STRONG_KEPT];
        unsigned next;
    } strong[VG_LANES]; /* of the last strong loads of each lane, each address once */
    uint32_t list, at;  /* in the run's lists */
};

struct vg_barrier {
    uint32_t nwarps, count; /* that have arrived; count 0: all threads */
    uint32_t waits[VG_MAX_WARPS], came[VG_MAX_WARPS];
    uint32_t number, all, any; /* of red: true predicates; lanes that arrived with one each */
};

struct vg_block {
    struct vg_run *run;
    uint64_t index;
    uint32_t at[3], sm, nwarps, nthreads, live_warps, slot;
    struct vg_block_clock *clock;
    struct vg_region shared, reserved; /* reserved: of the system, at VG_RESERVED_SHARED */
    uint64_t reserved_bytes[VG_RESERVED_BYTES / 8];
    struct vg_barrier barrier[VG_BARRIERS];
    struct vg_warp *warps;
    char what[48];
};

struct vg_sm {
    uint32_t threads, blocks, shared;
};

enum { VG_READY, VG_TIRED, VG_STUCK, VG_LISTS };

struct vg_list {
    struct vg_warp **at;
    uint32_t n;
};

struct vg_run {
    struct vg_machine *machine;
    struct vg_launch launch;
    void *params;
    struct vg_grid_clock *clock;
    uint64_t nblocks, started, ended;
    uint64_t tried; /* of the permutation of shuffled blocks */
    uint32_t nthreads, shared_bytes, local_room, room;
    struct vg_block **resident;
    uint32_t nresident;
    struct vg_sm *sms; /* the machine's: of the run's GPU */
    struct vg_list list[VG_LISTS];
    uint64_t random, moves;
    struct vg_region *cache[VG_CACHE];
    struct vg_region workspace; /* of a cooperative grid; else its address is 0 */
    uint64_t workspace_bytes[2];
    enum vg_fault fault;
    uint64_t shown; /* moves + 1 when what was held back was shown last */
    char text[2048];
};

/* A launch, kept for reports. */
struct vg_record {
    uint64_t number;
    const struct vg_image *image;
    const struct vg_function *kernel;
    uint32_t grid[3], block[3];
};

struct vg_sms { /* of a GPU */
    struct vg_sm *at;
    uint32_t n;
    struct vgpu_traffic traffic;
};

struct vg_machine {
    struct vg_machine_settings settings;
    struct vg_sms *gpus; /* by their numbers */
    uint32_t ngpus;
    struct vg_model *model;
    struct vg_machine_counts counts;
    uint64_t ticks;
    /* The global timer: runs that are resident together are thought to run side by side. */
    uint64_t timer_ns, timer_ticks; /* its value when ticks was timer_ticks */
    uint32_t nruns, timer_share;    /* with blocks resident: now, and when that was */
    struct vg_record *records;
    uint32_t nrecords, records_room;
    struct vg_frame *free_frames;
};

/* What became of an instruction. */
enum vg_step {
    VG_NEXT,   /* go on behind it */
    VG_JUMPED, /* the fragment's pc is set */
    VG_PICK,   /* fragments have changed: pick one */
    VG_PAUSE,  /* as PICK, and another warp runs */
    VG_FAILED
};

/* execute.c */
uint64_t vg_warp_run(struct vg_warp *warp, uint64_t budget); /* instructions that were run */

/* fragment.c */
struct vg_fragment *vg_fragment_split(struct vg_warp *warp, struct vg_fragment *from,
                                      uint32_t lanes);
void vg_fragment_merge(struct vg_warp *warp);
struct vg_fragment *vg_fragment_pick(struct vg_warp *warp);
/* The lowest position behind pc where another fragment of the same frame waits. */
uint32_t vg_fragment_limit(const struct vg_warp *warp, const struct vg_fragment *fragment);
struct vg_registers vg_fragment_registers(const struct vg_warp *warp,
                                          const struct vg_fragment *fragment);
enum vg_step vg_call(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                     uint32_t lanes);
enum vg_step vg_return(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t lanes);
enum vg_step vg_exit(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t lanes);
int vg_warp_begin(struct vg_warp *warp, struct vg_block *block, uint32_t number);
void vg_warp_end(struct vg_warp *warp);

/* A fragment stored something, or read a new value. */
static inline void vg_moved(struct vg_warp *warp, struct vg_fragment *fragment)
{
    struct vg_run *run = warp->block->run;
    fragment->idle = 0;
    fragment->tired = run->machine->settings.patience;
    warp->nwatch = 0;
    run->moves++;
}

/* Of the GPU that the block runs on. */
static inline struct vgpu_traffic *vg_traffic_of(const struct vg_block *block)
{
    return &block->run->machine->gpus[block->run->launch.gpu->number].traffic;
}

/* The region of an offset in the window of shared memory, which may lie behind its end. */
static inline struct vg_region *vg_shared_at(struct vg_block *block, uint64_t offset)
{
    return offset < VG_RESERVED_SHARED ? &block->shared : &block->reserved;
}

static inline bool vg_is_shared(const struct vg_region *region)
{
    return (region->address & VG_WINDOW_MASK) == VG_SHARED_WINDOW;
}

/* A step of a hash. */
static inline uint64_t vg_hash(uint64_t sum, uint64_t x)
{
    sum = (sum ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ (sum >> 29);
}

/* access.c, thread.c, atomic.c, async.c, watch.c */
enum vg_step vg_access(struct vg_warp *warp, struct vg_fragment *fragment,
                       const struct vg_instr *in, uint32_t lanes);
/* Reads bytes by a generic address for the machine itself (printf). false: nothing lies there. */
bool vg_peek(struct vg_warp *warp, uint32_t lane, uint64_t address, void *bytes, uint64_t nbytes);
/* Whether all of these bytes were written, and that they were; the fault where they were not. */
bool vg_defined(const struct vg_region *region, uint64_t offset, uint32_t nbytes);
void vg_define(struct vg_region *region, uint64_t offset, uint32_t nbytes);
enum vg_step vg_undefined(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                          const struct vg_region *region, uint64_t address, uint32_t nbytes);
/* The fault of an access by an address that no region holds. */
enum vg_step vg_outside(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                        uint64_t address, uint32_t nbytes, bool write);
/* One scalar access of one thread by a shared or global address; false: a fault was noted. */
bool vg_thread_load(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                    enum vg_space space, uint64_t address, const struct vg_how *how, void *value);
bool vg_thread_store(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                     enum vg_space space, uint64_t address, const struct vg_how *how,
                     const void *value);
struct vg_region *vg_thread_find(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                                 enum vg_space space, uint64_t address, uint32_t nbytes, bool write,
                                 uint64_t *offset);
unsigned char *vg_local(struct vg_warp *warp, uint32_t lane);
/* The fragment's next instruction has an effect, or sees one. */
void vg_watch_no_spin(struct vg_fragment *fragment);
/* A fragment has run so many instructions, none of which was such. false: it hangs, and the fault
 * was noted. */
bool vg_watch_spin(struct vg_warp *warp, struct vg_fragment *fragment, uint64_t steps);
void vg_watch_load(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                   uint32_t lanes, const struct vg_region *region, uint64_t address, uint64_t sum);
enum vg_step vg_atomic(struct vg_warp *warp, struct vg_fragment *fragment,
                       const struct vg_instr *in, uint32_t lanes, struct vg_region *region,
                       const uint64_t *address);
bool vg_atomic_apply(const struct vg_instr *in, bool shared, const void *old, const void *operand,
                     const void *second, void *value);
enum vg_step vg_async_copy(struct vg_warp *warp, struct vg_fragment *fragment,
                           const struct vg_instr *in, uint32_t lanes);
bool vg_async_finish(struct vg_warp *warp, uint32_t lanes, bool all, uint32_t keep);
bool vg_async_stir(struct vg_warp *warp, bool ready);
enum vg_step vg_mbarrier(struct vg_warp *warp, struct vg_fragment *fragment,
                         const struct vg_instr *in, uint32_t lanes);

/* together.c, barrier.c */
enum vg_step vg_together(struct vg_warp *warp, struct vg_fragment *fragment,
                         const struct vg_instr *in, uint32_t lanes);
enum vg_step vg_barrier(struct vg_warp *warp, struct vg_fragment *fragment,
                        const struct vg_instr *in, uint32_t lanes);
bool vg_barrier_check(struct vg_block *block);

/* special.c, print.c */
enum vg_step vg_special(struct vg_warp *warp, struct vg_fragment *fragment,
                        const struct vg_instr *in, uint32_t lanes);
enum vg_step vg_data(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                     uint32_t lanes);
enum vg_step vg_print(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                      uint32_t lanes);

/* run.c */
void vg_list_move(struct vg_warp *warp, uint32_t list);
uint64_t vg_timer(const struct vg_machine *machine); /* nanoseconds */
void vg_timer_step(struct vg_machine *machine);      /* a step of a run begins */
bool vg_block_admit(struct vg_run *run);             /* starts blocks that fit; false: fault */
void vg_block_end(struct vg_block *block);

/* fault.c */
enum vg_step vg_fail(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                     enum vg_fault fault, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Who waits where, in the block or (NULL) in all of them. */
void vg_describe(const struct vg_run *run, const struct vg_block *only, char *text, size_t nbytes);
void vg_report_race(void *arg, const struct vg_race *race);

/* operands */
/* The instruction at which the fragment is. */
static inline const struct vg_instr *vg_instr_of(const struct vg_fragment *fragment)
{
    return &fragment->frame->function->code[fragment->pc];
}

static inline const void *vg_source(const struct vg_registers *r, uint16_t operand)
{
    return operand & VG_CONSTANT ? (const void *)r->constants[operand & (VG_CONSTANT - 1)]
                                 : (const void *)r->frame[operand];
}

/* Runs the body for each lane i of the mask. */
#define VG_FOR_LANES(i, lanes)                                                                     \
    for (uint32_t left_ = (lanes), i = left_ ? (uint32_t)__builtin_ctz(left_) : 0; left_;          \
         left_ &= left_ - 1, i = left_ ? (uint32_t)__builtin_ctz(left_) : 0)

static inline uint32_t vg_first(uint32_t lanes)
{
    return (uint32_t)__builtin_ctz(lanes);
}

#endif
