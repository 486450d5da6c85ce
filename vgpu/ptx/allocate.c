/* Gives units of the frame to virtual registers.
 *
 * A register's interval runs from the first to the last instruction at which its value may still be
 * read (found by walking back from each use to the definitions, over backward branches too). Two
 * registers whose intervals have an instruction in common get different units; linear scan, first
 * fit. A unit belongs to registers of one width: there a lane has columns of its own, so that for
 * each lane it is the allocation of a scalar program, wherever the other lanes are. (A lane of 64
 * bits lies where two lanes of 32 bits do.) A guarded definition does not end a walk. */
#include <vgpu/ptx/reader.h>

#include <stdlib.h>
#include <string.h>

struct interval {
    uint32_t first, last, number; /* first > last: never used */
};

struct occurrence {
    uint32_t at;
    bool use, kill;
};

struct block {
    uint32_t first, last; /* instructions */
    uint32_t preds, npreds;
    uint32_t live, killed; /* the register + 1 for which the block was marked last */
};

struct flow {
    struct vg_reader *r;
    uint32_t *block_of;
    struct block *blocks;
    uint32_t nblocks;
    uint32_t *preds;
    struct occurrence *occurrences;
    uint32_t *first_occurrence; /* of each register, and the end */
    uint32_t *stack;
};

static bool ends_block(const struct vg_draft *draft)
{
    return draft->in.op == VG_BRA || draft->in.op == VG_BRX || draft->in.op == VG_RET ||
           draft->in.op == VG_EXIT;
}

static uint32_t ntargets(const struct vg_draft *draft)
{
    return draft->in.op == VG_BRA ? 1 : draft->in.op == VG_BRX ? (uint32_t)draft->in.imm : 0;
}

static uint32_t target_of(const struct vg_reader *r, const struct vg_draft *draft, uint32_t i)
{
    return draft->in.op == VG_BRA ? draft->in.target : r->module->targets[draft->in.target + i];
}

/* Adds the edge, or counts it where there are no lists yet. */
static void edge(struct flow *flow, uint32_t from, uint32_t to)
{
    struct block *block = &flow->blocks[to];
    if (flow->preds) flow->preds[block->preds + block->npreds] = from;
    block->npreds++;
}

static void edges(struct flow *flow)
{
    const struct vg_reader *r = flow->r;
    for (uint32_t b = 0; b < flow->nblocks; b++) {
        const struct vg_draft *last = &r->drafts[flow->blocks[b].last];
        for (uint32_t i = 0; i < ntargets(last); i++)
            edge(flow, b, flow->block_of[target_of(r, last, i)]);
        if ((!ends_block(last) || last->guard != VG_DRAFT_NONE || last->in.op == VG_BRX) &&
            b + 1 < flow->nblocks)
            edge(flow, b, b + 1);
    }
}

static void find_blocks(struct flow *flow)
{
    struct vg_reader *r = flow->r;
    const uint32_t n = r->ndrafts;
    uint8_t *leader = vg_ptx_alloc(r, n + 1);
    leader[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (ends_block(&r->drafts[i])) leader[i + 1] = 1;
        for (uint32_t j = 0; j < ntargets(&r->drafts[i]); j++)
            leader[target_of(r, &r->drafts[i], j)] = 1;
    }
    flow->block_of = vg_ptx_alloc(r, n * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) flow->nblocks += leader[i];
    flow->blocks = vg_ptx_alloc(r, flow->nblocks * sizeof *flow->blocks);
    uint32_t b = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (leader[i] && i > 0) b++;
        if (leader[i]) flow->blocks[b].first = i;
        flow->blocks[b].last = i;
        flow->block_of[i] = b;
    }
    edges(flow);
    uint32_t total = 0;
    for (b = 0; b < flow->nblocks; b++) {
        flow->blocks[b].preds = total;
        total += flow->blocks[b].npreds;
        flow->blocks[b].npreds = 0;
    }
    flow->preds = vg_ptx_alloc(r, (total + 1) * sizeof(uint32_t));
    edges(flow);
}

static void occur(struct flow *flow, uint32_t *filled, uint32_t reg, uint32_t at, bool use,
                  bool kill)
{
    if (reg >= VG_DRAFT_CONSTANT) return;
    if (flow->occurrences)
        flow->occurrences[flow->first_occurrence[reg] + filled[reg]] =
            (struct occurrence){.at = at, .use = use, .kill = kill};
    filled[reg]++;
}

/* Uses before definitions of the same instruction. */
static void occur_all(struct flow *flow, uint32_t *filled)
{
    const struct vg_reader *r = flow->r;
    for (uint32_t i = 0; i < r->ndrafts; i++) {
        const struct vg_draft *draft = &r->drafts[i];
        const bool guarded = draft->guard != VG_DRAFT_NONE;
        occur(flow, filled, draft->guard, i, true, false);
        for (unsigned j = 0; j < 5; j++) occur(flow, filled, draft->src[j], i, true, false);
        for (unsigned j = 0; j < 4; j++) occur(flow, filled, draft->dst[j], i, false, !guarded);
    }
}

static void find_occurrences(struct flow *flow)
{
    struct vg_reader *r = flow->r;
    uint32_t *filled = vg_ptx_alloc(r, (r->nregisters + 1) * sizeof(uint32_t));
    uint32_t total = 0;
    occur_all(flow, filled);
    flow->first_occurrence = vg_ptx_alloc(r, (r->nregisters + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < r->nregisters; i++) {
        flow->first_occurrence[i] = total;
        total += filled[i];
        filled[i] = 0;
    }
    flow->first_occurrence[r->nregisters] = total;
    flow->occurrences = vg_ptx_alloc(r, (total + 1) * sizeof *flow->occurrences);
    occur_all(flow, filled);
    /* live() adds a block at most twice: for its own use and as one that others come from. */
    flow->stack = vg_ptx_alloc(r, 2 * flow->nblocks * sizeof(uint32_t));
}

static void extend(struct interval *interval, uint32_t at)
{
    if (at < interval->first) interval->first = at;
    if (at > interval->last) interval->last = at;
}

/* Walks back from the uses that the register's blocks do not define themselves. */
static struct interval live(struct flow *flow, uint32_t reg)
{
    const struct occurrence *at = flow->occurrences + flow->first_occurrence[reg];
    const struct occurrence *end = flow->occurrences + flow->first_occurrence[reg + 1];
    struct interval interval = {.first = UINT32_MAX, .last = 0, .number = reg};
    uint32_t depth = 0;
    for (; at < end; at++) {
        struct block *block = &flow->blocks[flow->block_of[at->at]];
        extend(&interval, at->at);
        if (at->kill) block->killed = reg + 1;
        if (at->use && block->killed != reg + 1 &&
            (!depth || flow->stack[depth - 1] != (uint32_t)(block - flow->blocks)))
            flow->stack[depth++] = (uint32_t)(block - flow->blocks);
    }
    while (depth) {
        const struct block *block = &flow->blocks[flow->stack[--depth]];
        extend(&interval, block->first);
        for (uint32_t i = 0; i < block->npreds; i++) {
            const uint32_t number = flow->preds[block->preds + i];
            struct block *pred = &flow->blocks[number];
            if (pred->live == reg + 1) continue;
            pred->live = reg + 1;
            extend(&interval, pred->last);
            if (pred->killed != reg + 1) flow->stack[depth++] = number;
        }
    }
    return interval;
}

static int by_first(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Which units of a width, or which predicates, are taken, and until which instruction. */
struct units {
    uint32_t until[VG_CONSTANT]; /* + 1 */
    uint32_t used, first;        /* first: where these units begin in the frame */
};
enum { PREDICATES, WIDTHS = 4 };

/* The kind of units that a register takes: 0 predicates, 1 to 3 registers of 1, 2 and 4 units. */
static unsigned width_of(enum vg_type type)
{
    const uint32_t n = vg_ptx_type_units(type);
    return type == VG_PRED ? PREDICATES : n == 1 ? 1 : n == 2 ? 2 : 3;
}

static uint32_t take(struct vg_reader *r, struct units *units, const struct interval *interval,
                     uint32_t n)
{
    uint32_t at = 0, run = 0;
    for (; at < VG_CONSTANT - 1 && run < n; at++)
        run = units->until[at] <= interval->first ? run + 1 : 0;
    if (run < n)
        vg_ptx_fail(r, r->token.line,
                    "expected a function that needs at most %d units of registers",
                    VG_CONSTANT - 1);
    for (uint32_t i = at - n; i < at; i++) units->until[i] = interval->last + 1;
    if (at > units->used) units->used = at;
    return at - n;
}

/* All are free. Half a MiB: one for all functions of a text, and not kept with the module. */
static struct units *units_of(struct vg_reader *r)
{
    if (!r->units) r->units = calloc(WIDTHS, sizeof(struct units));
    struct units *units = r->units;
    if (!units) vg_ptx_fail(r, r->token.line, "no memory to allocate registers, expected some");
    for (unsigned width = 0; width < WIDTHS; width++) {
        memset(units[width].until, 0, units[width].used * sizeof *units[width].until);
        units[width].used = units[width].first = 0;
    }
    return units;
}

static uint16_t final(const uint32_t *places, uint32_t operand)
{
    if (operand == VG_DRAFT_NONE) return VG_NONE;
    if (operand & VG_DRAFT_CONSTANT) return (uint16_t)(VG_CONSTANT | (operand & 0x7fff));
    return (uint16_t)places[operand];
}

static void write_code(struct vg_reader *r, struct vg_function *function, const uint32_t *places)
{
    function->code = vg_ptx_alloc(r, r->ndrafts * sizeof *function->code);
    function->ninstrs = r->ndrafts;
    for (uint32_t i = 0; i < r->ndrafts; i++) {
        const struct vg_draft *draft = &r->drafts[i];
        struct vg_instr *in = &function->code[i];
        *in = draft->in;
        in->guard = final(places, draft->guard);
        for (unsigned j = 0; j < 4; j++) in->dst[j] = final(places, draft->dst[j]);
        for (unsigned j = 0; j < 5; j++) in->src[j] = final(places, draft->src[j]);
    }
}

void vg_ptx_registers_allocate(struct vg_reader *r, struct vg_function *function)
{
    struct flow flow = {.r = r};
    find_blocks(&flow);
    find_occurrences(&flow);
    struct interval *intervals = vg_ptx_alloc(r, (r->nregisters + 1) * sizeof *intervals);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nregisters; i++)
        if (flow.first_occurrence[i] != flow.first_occurrence[i + 1])
            intervals[n++] = live(&flow, i);
    qsort(intervals, n, sizeof *intervals, by_first);
    struct units *units = units_of(r);
    uint32_t *places = vg_ptx_alloc(r, (r->nregisters + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        const enum vg_type type = (enum vg_type)r->register_types[intervals[i].number];
        places[intervals[i].number] =
            take(r, &units[width_of(type)], &intervals[i], vg_ptx_type_units(type));
    }
    for (unsigned width = WIDTHS - 1; width > PREDICATES; width--) {
        units[width].first = function->nunits;
        function->nunits += units[width].used;
    }
    if (function->nunits >= VG_CONSTANT)
        vg_ptx_fail(r, r->token.line,
                    "expected a function that needs at most %d units of registers",
                    VG_CONSTANT - 1);
    for (uint32_t i = 0; i < n; i++)
        places[intervals[i].number] +=
            units[width_of((enum vg_type)r->register_types[intervals[i].number])].first;
    function->npredicates = units[PREDICATES].used;
    write_code(r, function, places);
}
