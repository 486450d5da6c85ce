/* See random_program.h. */
#include "random_program.h"

#include <stdio.h>
#include <string.h>

#include <vgpu/random.h>

struct access { /* by operation `op` of the agent; op -1: none */
    int agent, op;
};

struct gen {
    struct vr_program *program;
    uint64_t random;
    int left_out;
    /* known[a][b]: agent a follows the operations of agent b with lower numbers */
    int known[VR_AGENTS][VR_AGENTS];
    int issuer[VR_STREAMS], issued[VR_STREAMS]; /* the last operation there; -1: none */
    int last_of_thread[VR_THREADS];
    int step_flag[VR_STREAMS]; /* that the stream's last operation sets; -1: none */
    struct access write[VR_BUFFERS];
    int read[VR_BUFFERS][VR_AGENTS];
    uint32_t value[VR_BUFFERS][VR_WORDS];
};

static int below(struct gen *g, int n)
{
    return (int)((vg_random(&g->random) >> 32) * (uint64_t)n >> 32);
}

static int host(int thread)
{
    return VR_STREAMS + thread;
}

static void join(struct gen *g, int into, int other)
{
    for (int a = 0; a < VR_AGENTS; a++)
        if (g->known[other][a] > g->known[into][a]) g->known[into][a] = g->known[other][a];
}

/* An operation of a thread, perhaps in a stream that it may issue to. */
static struct vr_op *add(struct gen *g, enum vr_kind kind, int thread, int stream)
{
    const int number = g->program->nops++;
    struct vr_op *op = &g->program->op[number];
    *op = (struct vr_op){.kind = kind,
                         .thread = thread,
                         .stream = stream,
                         .in = {-1, -1},
                         .out = -1,
                         .out2 = -1,
                         .flag = -1,
                         .set = -1};
    g->known[host(thread)][host(thread)] = number + 1;
    g->last_of_thread[thread] = number;
    if (stream < 0) return op;
    join(g, stream, host(thread));
    g->known[stream][stream] = number + 1;
    g->issuer[stream] = thread;
    g->issued[stream] = number;
    g->step_flag[stream] = -1;
    return op;
}

/* The thread follows all that the other one has done so far. */
static void join_threads(struct gen *g, int thread, int other)
{
    const int last = g->last_of_thread[other];
    struct vr_op *op = add(g, VR_JOIN, thread, -1);
    op->k = (uint32_t)other;
    op->other = last;
    join(g, host(thread), host(other));
}

static bool knows_issues(const struct gen *g, int thread, int stream)
{
    return g->issued[stream] < 0 || g->issuer[stream] == thread ||
           g->known[host(thread)][host(g->issuer[stream])] > g->issued[stream];
}

/* An operation in the stream, behind all that was issued to it, and by the legacy stream's rules if
 * it is work. */
static struct vr_op *issue(struct gen *g, enum vr_kind kind, int thread, int stream)
{
    if (!knows_issues(g, thread, stream)) join_threads(g, thread, g->issuer[stream]);
    const int third = stream % 3, other = third == 2 ? stream - 1 : stream + 1;
    const bool works = kind != VR_SYNC && kind != VR_RECORD && kind != VR_AFTER;
    if (works && third != 0 && knows_issues(g, thread, other)) join(g, stream, other);
    return add(g, kind, thread, stream);
}

static int new_flag(struct gen *g)
{
    return g->program->nflags++;
}

static bool is_left_out(struct gen *g)
{
    return g->program->nedges++ == g->left_out;
}

/* --- edges --- */

static bool may_write(int stream, int flag)
{
    return vr_gpu_of_flag(flag) < 0 || vr_gpu_of_flag(flag) == vr_gpu_of_stream(stream);
}

static uint32_t way_to_set(struct gen *g, int stream, int flag, bool narrow)
{
    const uint32_t way = (uint32_t)below(g, VR_SETS);
    if ((way == VR_WRITE && !may_write(stream, flag)) || (way == VR_NARROW && !narrow))
        return VR_RELEASE;
    return way;
}

static void by_event(struct gen *g, int thread, int from, int to, bool left_out)
{
    const int event = g->program->nevents++;
    issue(g, VR_RECORD, thread, from)->flag = event;
    if (!left_out) issue(g, VR_AFTER, thread, to)->flag = event;
}

static void by_flag(struct gen *g, int thread, int from, int to, bool left_out)
{
    const bool near = vr_gpu_of_stream(from) == vr_gpu_of_stream(to);
    int flag = g->step_flag[from];
    bool narrow = false;
    if (flag < 0 || below(g, 3) == 0 || !knows_issues(g, thread, from)) {
        flag = new_flag(g);
        const uint32_t way = way_to_set(g, from, flag, near);
        struct vr_op *set = issue(g, VR_SET, thread, from);
        set->flag = flag;
        set->k = way;
        narrow = way == VR_NARROW;
    }
    if (left_out) return;
    uint32_t way = (uint32_t)below(g, VR_AWAITS);
    if ((way == VR_NARROWLY && !near) || (way == VR_WAIT && (narrow || !may_write(to, flag))))
        way = VR_ACQUIRE;
    struct vr_op *await = issue(g, VR_AWAIT, thread, to);
    await->flag = flag;
    await->k = way;
}

/* The thread waits for the stream. */
static void by_host(struct gen *g, int thread, int from, bool left_out)
{
    if (below(g, 2) == 0) {
        struct vr_op *sync = issue(g, VR_SYNC, thread, from);
        sync->k = left_out ? VR_SYNCS : (uint32_t)below(g, VR_SYNCS);
    } else {
        const int flag = new_flag(g);
        struct vr_op *set = issue(g, VR_SET, thread, from);
        set->flag = flag;
        set->k = way_to_set(g, from, flag, false);
        if (left_out) return;
        struct vr_op *poll = add(g, VR_POLL, thread, -1);
        poll->flag = flag;
        poll->k = (uint32_t)below(g, 2);
    }
}

/* The agent follows what the other one has done so far; the thread issues what that needs. */
static void edge(struct gen *g, int thread, int from, int to)
{
    if (from >= VR_STREAMS) {
        join_threads(g, thread, from - VR_STREAMS);
        return;
    }
    const bool left_out = is_left_out(g);
    const int way = below(g, 5);
    if (to >= VR_STREAMS || way == 4) {
        by_host(g, thread, from, left_out);
        join(g, host(thread), from);
        return;
    }
    if (way < 2)
        by_event(g, thread, from, to, left_out);
    else
        by_flag(g, thread, from, to, left_out);
    join(g, to, from);
}

/* --- what operations touch --- */

static void follow(struct gen *g, int thread, int agent, int other, int op)
{
    if (op < 0 || g->known[agent][other] > op || g->known[host(thread)][other] > op) return;
    edge(g, thread, other, agent);
}

static void before_read(struct gen *g, int thread, int agent, int buffer)
{
    if (buffer >= 0) follow(g, thread, agent, g->write[buffer].agent, g->write[buffer].op);
}

static void before_write(struct gen *g, int thread, int agent, int buffer)
{
    if (buffer < 0) return;
    before_read(g, thread, agent, buffer);
    for (int a = 0; a < VR_AGENTS; a++) follow(g, thread, agent, a, g->read[buffer][a]);
}

static void note(struct gen *g, const struct vr_op *op, int agent)
{
    const int number = (int)(op - g->program->op), outs[] = {op->out, op->out2};
    for (int i = 0; i < 2; i++)
        if (op->in[i] >= 0) g->read[op->in[i]][agent] = number;
    for (int i = 0; i < 2; i++) {
        if (outs[i] < 0) continue;
        g->write[outs[i]] = (struct access){agent, number};
        for (int a = 0; a < VR_AGENTS; a++) g->read[outs[i]][a] = -1;
    }
}

/* out = 3 a + b + k */
static void step(struct gen *g, int out, int a, int b, uint32_t k)
{
    for (int i = 0; i < VR_WORDS; i++) g->value[out][i] = 3 * g->value[a][i] + g->value[b][i] + k;
}

static void compute(struct gen *g, const struct vr_op *op)
{
    uint32_t *out = op->out >= 0 ? g->value[op->out] : NULL;
    switch (op->kind) {
    case VR_STEP:
    case VR_HOSTF:
        step(g, op->out, op->in[0], op->in[1], op->k);
        break;
    case VR_GRAPH:
        step(g, op->out, op->in[0], op->in[1], op->k);
        step(g, op->out2, op->in[1], op->in[0], op->k + 1);
        step(g, op->out, op->out, op->out2, op->k + 2);
        break;
    case VR_COPY:
    case VR_PEER:
        memcpy(out, g->value[op->in[0]], sizeof *g->value);
        break;
    case VR_FILL:
        for (int i = 0; i < VR_WORDS; i++) out[i] = op->k;
        break;
    case VR_STORE:
    case VR_PUT:
    case VR_LATE:
        for (int i = 0; i < VR_WORDS; i++) out[i] = op->k + (uint32_t)i;
        break;
    default:
        break;
    }
}

/* --- operations --- */

static int any(struct gen *g)
{
    return below(g, VR_BUFFERS);
}
static int on_host(struct gen *g)
{
    return VR_BUFFERS - 3 + below(g, 3);
}
static int on_gpu(struct gen *g)
{
    return below(g, VR_BUFFERS - 3);
}

static int other_than(struct gen *g, int a, int b, int c)
{
    int buffer = any(g);
    while (buffer == a || buffer == b || buffer == c) buffer = any(g);
    return buffer;
}

/* Which buffers an operation of the kind uses. */
static void choose(struct gen *g, struct vr_op *op)
{
    const bool steps = op->kind == VR_STEP || op->kind == VR_GRAPH;
    const bool reads = op->kind == VR_COPY || op->kind == VR_PEER;
    op->k = (uint32_t)vg_random(&g->random);
    op->blocks = 1 + (uint32_t)below(g, 3);
    if (steps || reads) op->in[0] = op->kind == VR_PEER ? on_gpu(g) : any(g);
    if (steps) op->in[1] = any(g);
    if (op->kind == VR_HOSTF) op->in[0] = on_host(g), op->in[1] = on_host(g);
    if (op->kind == VR_CHECK) op->in[0] = on_host(g);
    if (op->kind == VR_FETCH) op->in[0] = on_gpu(g);
    if (op->kind == VR_STEP || op->kind == VR_FILL) op->out = any(g);
    if (op->kind == VR_PUT) op->out = on_gpu(g);
    if (op->kind == VR_HOSTF || op->kind == VR_STORE || op->kind == VR_LATE) op->out = on_host(g);
    if (op->kind == VR_COPY) op->out = other_than(g, op->in[0], -1, -1);
    if (op->kind == VR_PEER) op->out = (op->in[0] + 1 + below(g, 5)) % (VR_BUFFERS - 3);
    if (op->kind != VR_GRAPH) return;
    op->out = other_than(g, op->in[0], op->in[1], -1);
    op->out2 = other_than(g, op->in[0], op->in[1], op->out);
}

/* VR_LATE: the host stores while the stream waits already, and what comes behind in the stream
 * reads. The stream's wait is the host's operation as well. */
static void data(struct gen *g)
{
    static const enum vr_kind kinds[] = {VR_STEP,  VR_STEP,  VR_STEP, VR_STEP,  VR_COPY,
                                         VR_COPY,  VR_FILL,  VR_PEER, VR_HOSTF, VR_GRAPH,
                                         VR_CHECK, VR_STORE, VR_LATE, VR_FETCH, VR_PUT};
    struct vr_op wanted = {.in = {-1, -1}, .out = -1, .out2 = -1, .flag = -1, .set = -1};
    wanted.kind = kinds[below(g, (int)(sizeof kinds / sizeof *kinds))];
    wanted.thread = below(g, VR_THREADS);
    wanted.stream = below(g, VR_STREAMS);
    choose(g, &wanted);
    if (wanted.kind == VR_FETCH) wanted.stream = 3 * vr_gpu_of_buffer(wanted.in[0]) + 2;
    if (wanted.kind == VR_CHECK || wanted.kind == VR_STORE) wanted.stream = -1;
    const int agent =
        wanted.stream < 0 || wanted.kind == VR_LATE ? host(wanted.thread) : wanted.stream;
    for (int i = 0; i < 2; i++) before_read(g, wanted.thread, agent, wanted.in[i]);
    before_write(g, wanted.thread, agent, wanted.out);
    before_write(g, wanted.thread, agent, wanted.out2);
    struct vr_op *op = wanted.stream < 0 ? add(g, wanted.kind, wanted.thread, -1)
                                         : issue(g, wanted.kind, wanted.thread, wanted.stream);
    *op = wanted;
    if (op->kind == VR_LATE) op->flag = 3 * (new_flag(g) / 3) + 2, g->program->nflags += 3;
    if (op->kind == VR_STEP && below(g, 2) == 0) op->set = g->step_flag[op->stream] = new_flag(g);
    note(g, op, agent);
    compute(g, op);
    if (op->kind == VR_FETCH) join(g, host(op->thread), op->stream);
    if (op->kind == VR_FETCH || op->kind == VR_CHECK)
        memcpy(op->expected, g->value[op->in[0]], sizeof op->expected);
}

void vr_generate(struct vr_program *program, uint64_t seed, int length, int left_out)
{
    struct gen g = {.program = program, .random = seed, .left_out = left_out};
    program->nops = program->nflags = program->nevents = program->nedges = 0;
    for (int s = 0; s < VR_STREAMS; s++) g.issuer[s] = g.issued[s] = g.step_flag[s] = -1;
    for (int t = 0; t < VR_THREADS; t++) g.last_of_thread[t] = -1;
    for (int b = 0; b < VR_BUFFERS; b++) {
        g.write[b] = (struct access){0, -1};
        for (int a = 0; a < VR_AGENTS; a++) g.read[b][a] = -1;
    }
    for (int i = 0; i < length && program->nops < VR_OPS - 64 && program->nflags < VR_FLAGS - 40;
         i++)
        data(&g);
    memcpy(program->final, g.value, sizeof program->final);
}

void vr_print(const struct vr_program *program)
{
    static const char *const names[] = {
        "step", "copy",   "fill",  "host function", "peer",  "graph", "check", "store", "fetch",
        "put",  "record", "after", "set",           "await", "sync",  "poll",  "late",  "join"};
    for (int i = 0; i < program->nops; i++) {
        const struct vr_op *op = &program->op[i];
        fprintf(stderr, "%d: thread %d, stream %d: %s", i, op->thread, op->stream, names[op->kind]);
        if (op->in[0] >= 0) fprintf(stderr, ", in %d %d", op->in[0], op->in[1]);
        if (op->out >= 0) fprintf(stderr, ", out %d %d", op->out, op->out2);
        if (op->flag >= 0) fprintf(stderr, ", flag %d", op->flag);
        if (op->set >= 0) fprintf(stderr, ", sets %d", op->set);
        fprintf(stderr, ", k %u, other %d, blocks %u\n", op->k, op->other, op->blocks);
    }
}
