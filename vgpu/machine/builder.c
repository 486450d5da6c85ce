/* See builder.h. */
#include "builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static void print(void *arg, const char *text, uint64_t nbytes)
{
    struct builder *b = arg;
    const size_t n = strlen(b->printed);
    snprintf(b->printed + n, sizeof b->printed - n, "%.*s", (int)nbytes, text);
}

struct builder *b_create(void)
{
    struct builder *b = calloc(1, sizeof *b);
    if (b == NULL) abort();
    b->module.functions = b->functions;
    b->module.constants = b->constants;
    b->module.targets = b->targets;
    b->module.places = b->places;
    b->module.files = b->files;
    b->files[0] = "kernel.cu";
    b->module.nfiles = 1;
    b->gpu = (struct vg_gpu){.nsms = 4,
                             .threads_per_sm = 2048,
                             .blocks_per_sm = 32,
                             .shared_per_sm = 102400,
                             .shared_per_block = 49152,
                             .capability = 90,
                             .regions = &b->regions};
    b->out = calloc(1, B_OUTPUT);
    b->buffer = (struct vg_region){.address = B_ADDRESS,
                                   .nbytes = B_OUTPUT,
                                   .bytes = (unsigned char *)b->out,
                                   .what = "cuMemAlloc",
                                   .number = 7};
    if (b->out == NULL || vg_regions_add(&b->regions, &b->buffer) != 0) abort();
    b->settings.seed = 1;
    b->settings.print = print;
    b->settings.arg = b;
    return b;
}

void b_destroy(struct builder *b)
{
    vg_regions_remove(&b->regions, &b->buffer);
    free(b->out);
    free(b);
}

uint32_t b_function(struct builder *b, const char *name)
{
    const uint32_t index = b->module.nfunctions++;
    b->f = &b->functions[index];
    *b->f =
        (struct vg_function){.name = name, .code = b->code[index], .nunits = 64, .npredicates = 8};
    return index;
}

void b_kernel(struct builder *b)
{
    b_function(b, "k");
    b->f->kernel = true;
    b->f->param_bytes = 8;
    b_ld(b, VG_B64, VG_PARAM_SPACE, OUT, VG_NONE, 0);
    b_special(b, TID, VG_TID_X);
    b_special(b, CTA, VG_CTAID_X);
    b_special(b, GLOBAL, VG_NTID_X);
    b_special(b, LANE, VG_LANEID);
    struct vg_instr *in = b_alu(b, VG_MAD, VG_U32, GLOBAL, GLOBAL, CTA);
    in->src[2] = TID;
    in->mode = VG_MUL_LO;
    in = b_alu(b, VG_MAD, VG_U32, MINE, GLOBAL, b_k(b, 4));
    in->src[2] = OUT;
    in->mode = VG_MUL_WIDE;
}

uint16_t b_k(struct builder *b, uint32_t value)
{
    const uint32_t at = b->module.nconstants++;
    for (int i = 0; i < VG_LANES; i++) b->constants[at][i] = value;
    return (uint16_t)(VG_CONSTANT | at);
}

uint16_t b_k64(struct builder *b, uint64_t value)
{
    const uint32_t at = b->module.nconstants;
    b->module.nconstants += 2;
    for (size_t i = 0; i < VG_LANES; i++) memcpy((char *)b->constants[at] + i * 8, &value, 8);
    return (uint16_t)(VG_CONSTANT | at);
}

struct vg_instr *b_add(struct builder *b, enum vg_op op, enum vg_type type)
{
    struct vg_instr *in = &b->f->code[b->f->ninstrs++];
    if (b->f->ninstrs > B_CODE) abort();
    *in = (struct vg_instr){.op = (uint8_t)op,
                            .type = (uint8_t)type,
                            .round = VG_ROUND_NONE,
                            .guard = VG_NONE,
                            .line = b->f->ninstrs,
                            .place = UINT32_MAX};
    for (int i = 0; i < 4; i++) in->dst[i] = VG_NONE;
    for (int i = 0; i < 5; i++) in->src[i] = VG_NONE;
    return in;
}

struct vg_instr *b_alu(struct builder *b, enum vg_op op, enum vg_type type, uint16_t d, uint16_t a,
                       uint16_t c)
{
    struct vg_instr *in = b_add(b, op, type);
    in->dst[0] = d;
    in->src[0] = a;
    in->src[1] = c;
    return in;
}

void b_mov(struct builder *b, uint16_t d, uint16_t a)
{
    b_alu(b, VG_MOV, VG_B32, d, a, VG_NONE);
}

void b_setp(struct builder *b, enum vg_compare compare, uint16_t p, uint16_t a, uint16_t c)
{
    b_alu(b, VG_SETP, VG_U32, p, a, c)->compare = (uint8_t)compare;
}

void b_special(struct builder *b, uint16_t d, enum vg_special which)
{
    b_alu(b, VG_SPECIAL, VG_U32, d, VG_NONE, VG_NONE)->imm = which;
}

struct vg_instr *b_ld(struct builder *b, enum vg_type type, enum vg_space space, uint16_t d,
                      uint16_t address, int64_t imm)
{
    struct vg_instr *in = b_alu(b, VG_LD, type, d, address, VG_NONE);
    in->space = (uint8_t)space;
    in->imm = imm;
    in->type2 = space == VG_SHARED ? VG_B32 : VG_B64;
    return in;
}

struct vg_instr *b_st(struct builder *b, enum vg_type type, enum vg_space space, uint16_t address,
                      int64_t imm, uint16_t value)
{
    struct vg_instr *in = b_alu(b, VG_ST, type, VG_NONE, address, value);
    in->space = (uint8_t)space;
    in->imm = imm;
    in->type2 = space == VG_SHARED ? VG_B32 : VG_B64;
    return in;
}

struct vg_instr *b_atom(struct builder *b, enum vg_atom mode, enum vg_type type,
                        enum vg_space space, uint16_t d, uint16_t address, uint16_t value)
{
    struct vg_instr *in = b_alu(b, d == VG_NONE ? VG_RED : VG_ATOM, type, d, address, value);
    in->mode = (uint8_t)mode;
    in->space = (uint8_t)space;
    in->type2 = space == VG_SHARED ? VG_B32 : VG_B64;
    in->order = VG_RELAXED;
    in->scope = VG_SCOPE_GPU;
    return in;
}

void b_guard(struct vg_instr *in, uint16_t p, bool negated)
{
    in->guard = p;
    if (negated) in->flags |= VG_GUARD_NOT;
}

struct vg_instr *b_bra(struct builder *b, uint16_t p, bool negated)
{
    struct vg_instr *in = b_add(b, VG_BRA, VG_B32);
    b_guard(in, p, negated);
    return in;
}

void b_land(struct builder *b, struct vg_instr *branch)
{
    branch->target = b->f->ninstrs;
}

uint32_t b_here(const struct builder *b)
{
    return b->f->ninstrs;
}

void b_exit(struct builder *b)
{
    b_add(b, VG_EXIT, VG_B32);
}

void b_result(struct builder *b, uint16_t value)
{
    b_st(b, VG_B32, VG_GLOBAL, MINE, 0, value);
    b_exit(b);
}

struct vg_instr *b_sync(struct builder *b, uint16_t number, uint16_t count)
{
    struct vg_instr *in = b_alu(b, VG_BAR_SYNC, VG_B32, VG_NONE, number, count);
    in->flags |= VG_ALIGNED;
    return in;
}

static uint64_t place(void *arg, uint64_t nbytes, uint32_t align)
{
    uint64_t *next = arg;
    const uint64_t at = (*next + align - 1) / align * align;
    *next = at + nbytes + 256;
    return at;
}

enum vg_progress b_run(struct builder *b, uint32_t nblocks, uint32_t nthreads)
{
    struct vg_image *image = NULL;
    struct vg_run *run = NULL;
    uint64_t next = UINT64_C(0x600000000000), params = B_ADDRESS;
    enum vg_progress progress = VG_FAULTED;
    b->text[0] = b->printed[0] = '\0';
    b->fault = VG_FAULT_RESOURCES;
    b->machine = vg_machine_create(&b->settings);
    struct vg_past *past = vg_past_create();
    if (b->machine == NULL || past == NULL) abort();
    if (vg_image_create(b->ran != NULL ? b->ran : &b->module, place, &next, &b->regions, &image,
                        b->text) != 0)
        goto out;
    const struct vg_launch launch = {.gpu = &b->gpu,
                                     .image = image,
                                     .kernel = b->ran != NULL ? b->kernel : &b->functions[0],
                                     .grid = {nblocks, 1, 1},
                                     .block = {nthreads, 1, 1},
                                     .dynamic_shared = b->shared,
                                     .params = b->ran != NULL ? b->params : &params,
                                     .number = 1,
                                     .before = past,
                                     .cooperative = b->cooperative,
                                     .local_limit = b->local};
    if (vg_run_begin(b->machine, &launch, &run, b->text) != 0) goto out;
    for (progress = VG_MOVED, b->steps = 0; progress == VG_MOVED; b->steps++)
        progress = vg_run_step(run);
    const char *text;
    b->fault = vg_run_fault(run, &text);
    if (progress == VG_FAULTED) snprintf(b->text, sizeof b->text, "%s", text);
    if (progress == VG_WAITING) vg_run_describe(run, b->text, sizeof b->text);
    b->for_host = progress == VG_WAITING && vg_run_waits_for_host(run);
    vg_run_end(run, past);
out:
    vg_image_destroy(image, &b->regions, vg_machine_model(b->machine));
    vg_machine_count(b->machine, &b->counts);
    vg_machine_traffic(b->machine, (int)b->gpu.number, &b->traffic);
    vg_model_count(vg_machine_model(b->machine), &b->model_counts);
    vg_model_forget(vg_machine_model(b->machine), &b->buffer);
    vg_machine_destroy(b->machine);
    vg_past_destroy(past);
    return progress;
}
