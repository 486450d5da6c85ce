/* call: parameters are put into the caller's frame, where the callee finds them. */
#include <vgpu/ptx/instructions.h>

#include <string.h>

/* A call being read. */
struct call {
    struct vg_draft draft;
    struct vg_operand results[64], inputs[64];
    uint32_t nresults, ninputs;
    struct vg_operand target;
    const struct vg_prototype *prototype;
    struct vg_frame_variable *block; /* of all parameters */
};

void vg_ptx_branchtargets_read(struct vg_reader *r, const struct vg_token *name)
{
    struct vg_module *module = r->module;
    struct vg_symbol *symbol = vg_ptx_symbol_add(r, name, VG_SYMBOL_TARGETS);
    symbol->number = module->ntargets;
    vg_ptx_next(r);
    do {
        const struct vg_token label = vg_ptx_expect_name(r, "a label");
        module->targets = vg_ptx_room(r, module->targets, module->ntargets, &r->targets_room,
                                      sizeof *module->targets);
        module->targets[module->ntargets] = 0;
        vg_ptx_label_use(r, &label, true, module->ntargets++);
        symbol->count++;
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ';', "behind .branchtargets");
}

void vg_ptx_calltargets_read(struct vg_reader *r, struct vg_symbol *target)
{
    vg_ptx_next(r);
    do {
        const struct vg_token name = vg_ptx_expect_name(r, "a function");
        const struct vg_symbol *symbol = vg_ptx_symbol_find(r, &name, NULL);
        if (!symbol || symbol->kind != VG_SYMBOL_FUNCTION)
            vg_ptx_fail(r, name.line, "expected a declared function, found '%.*s'", VG_NAMED(name));
        if (!target->prototype) {
            target->prototype = vg_ptx_alloc(r, sizeof *target->prototype);
            *target->prototype = r->routines[symbol->number].prototype;
        }
        r->routines[symbol->number].taken = true;
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ';', "behind .calltargets");
}

static uint32_t list_read(struct vg_reader *r, struct vg_operand *list)
{
    uint32_t n = 0;
    vg_ptx_expect(r, '(', "before what a call passes");
    if (vg_ptx_accept(r, ')')) return 0;
    do {
        if (n == 64) vg_ptx_unexpected(r, "at most 64 parameters before");
        vg_ptx_operand_read(r, &list[n++]);
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ')', "behind what a call passes");
    return n;
}

static struct vg_frame_variable *frame_add(struct vg_reader *r, uint32_t size)
{
    struct vg_frame_variable *frame = vg_ptx_alloc(r, sizeof *frame);
    *frame = (struct vg_frame_variable){
        .size = size, .align = 16, .scope = vg_ptx_scope(r), .placed = true};
    r->frames = vg_ptx_room(r, r->frames, r->nframes, &r->frames_room, sizeof(void *));
    r->frames[r->nframes++] = frame;
    return frame;
}

/* An access of the frame in local memory. */
static void frame_access(struct vg_reader *r, const struct call *call, enum vg_op op,
                         enum vg_type type, struct vg_frame_variable *frame, uint32_t at,
                         uint32_t reg)
{
    struct vg_draft draft = vg_ptx_draft_make(r, call->draft.in.line, call->draft.guard);
    draft.in.flags = call->draft.in.flags & VG_GUARD_NOT;
    draft.in.op = (uint8_t)op;
    draft.in.type = (uint8_t)type;
    draft.in.space = VG_LOCAL;
    draft.in.count = 1;
    draft.in.imm = at;
    draft.frame = frame;
    if (op == VG_LD)
        draft.dst[0] = reg;
    else
        draft.src[1] = reg;
    vg_ptx_draft_add(r, &draft);
}

static void copy(struct vg_reader *r, const struct call *call, struct vg_frame_variable *from,
                 uint32_t from_at, struct vg_frame_variable *to, uint32_t to_at, uint32_t size)
{
    static const enum vg_type types[] = {[1] = VG_U8, [2] = VG_U16, [4] = VG_U32, [8] = VG_U64};
    for (uint32_t at = 0, step; at < size; at += step) {
        for (step = 8; (at + from_at) % step || (at + to_at) % step || at + step > size;) step /= 2;
        const uint32_t reg = vg_ptx_register_add(r, types[step]);
        frame_access(r, call, VG_LD, types[step], from, from_at + at, reg);
        frame_access(r, call, VG_ST, types[step], to, to_at + at, reg);
    }
}

/* Puts an input before the call, a result behind it. */
static void pass(struct vg_reader *r, const struct call *call, const struct vg_operand *operand,
                 const struct vg_param *param, bool input)
{
    static const enum vg_type types[] = {[1] = VG_B8, [2] = VG_B16, [4] = VG_B32, [8] = VG_B64};
    struct vg_lowering low = {.draft = call->draft, .opcode = "call", .symbols = true};
    if (operand->kind == VG_OPERAND_SYMBOL && operand->symbol->kind == VG_SYMBOL_FRAME &&
        operand->symbol->frame->param) {
        struct vg_frame_variable *frame = operand->symbol->frame;
        if (frame->size != param->size)
            vg_ptx_operand_wrong(r, operand, "call", "a variable of the parameter's size");
        if (frame->inside == call->block && frame->offset == param->offset) return;
        if (input)
            copy(r, call, frame, 0, call->block, param->offset, param->size);
        else
            copy(r, call, call->block, param->offset, frame, 0, param->size);
        return;
    }
    if (param->size == 0 || param->size > 8 || (param->size & (param->size - 1)))
        vg_ptx_operand_wrong(r, operand, "call", "a variable in .param");
    const enum vg_type type = types[param->size];
    if (input)
        frame_access(r, call, VG_ST, type, call->block, param->offset,
                     vg_ptx_source(r, &low, operand, type, true));
    else
        frame_access(r, call, VG_LD, type, call->block, param->offset,
                     vg_ptx_destination(r, &low, operand, type, false));
}

/* A variable that no call has used yet lies in this call's block: nothing has to be copied. */
static void place(const struct call *call, const struct vg_operand *operand,
                  const struct vg_param *param)
{
    if (operand->kind != VG_OPERAND_SYMBOL || operand->symbol->kind != VG_SYMBOL_FRAME) return;
    struct vg_frame_variable *frame = operand->symbol->frame;
    if (frame->placed || !frame->param || frame->size != param->size) return;
    frame->placed = true;
    frame->inside = call->block;
    frame->offset = param->offset;
}

/* Whom it calls, and with which prototype. */
static void target_read(struct vg_reader *r, struct call *call)
{
    struct vg_routine *caller = &r->routines[r->function];
    struct vg_operand *target = &call->target;
    struct vg_draft *draft = &call->draft;
    draft->in.op = VG_CALL;
    if (target->kind == VG_OPERAND_SYMBOL && target->symbol->kind == VG_SYMBOL_FUNCTION) {
        const uint32_t callee = target->symbol->number;
        const char *name = r->module->functions[callee].name;
        call->prototype = &r->routines[callee].prototype;
        draft->in.target = callee;
        if (r->module->functions[callee].kernel)
            vg_ptx_operand_wrong(r, target, "call", "a function that is no kernel");
        if (strcmp(name, "vprintf") == 0 && call->prototype->param_bytes == 20)
            draft->in.op = VG_PRINTF;
        else if (strcmp(name, "__assertfail") == 0 && call->prototype->param_bytes == 40)
            draft->in.op = VG_ASSERTFAIL;
        caller->callees = vg_ptx_room(r, caller->callees, caller->ncallees, &caller->callees_room,
                                      sizeof(uint32_t));
        if (draft->in.op == VG_CALL) caller->callees[caller->ncallees++] = callee;
        return;
    }
    if (target->kind != VG_OPERAND_REGISTER)
        vg_ptx_operand_wrong(r, target, "call", "a declared function or a register");
    struct vg_lowering low = {.draft = *draft, .opcode = "call", .symbols = true};
    draft->src[0] = vg_ptx_source(r, &low, target, VG_B64, false);
    draft->in.target = VG_INDIRECT;
    caller->indirect = true;
}

/* The table or prototype of a call by address. */
static void prototype_use(struct vg_reader *r, struct call *call)
{
    const struct vg_token name = vg_ptx_expect_name(r, "a .callprototype or .calltargets");
    const struct vg_symbol *symbol = vg_ptx_symbol_find(r, &name, NULL);
    if (!symbol || symbol->kind != VG_SYMBOL_PROTOTYPE)
        vg_ptx_fail(r, name.line, "expected a .callprototype or .calltargets, found '%.*s'",
                    VG_NAMED(name));
    call->prototype = symbol->prototype;
}

void vg_ptx_call_read(struct vg_reader *r, const struct vg_draft *draft)
{
    struct call whole = {.draft = *draft}, *call = &whole;
    if (vg_ptx_is(r, '(')) {
        call->nresults = list_read(r, call->results);
        vg_ptx_expect(r, ',', "behind a call's results");
    }
    vg_ptx_operand_read(r, &call->target);
    target_read(r, call);
    if (vg_ptx_accept(r, ',')) {
        if (vg_ptx_is(r, '(')) {
            call->ninputs = list_read(r, call->inputs);
            if (vg_ptx_accept(r, ',')) prototype_use(r, call);
        } else {
            prototype_use(r, call);
        }
    }
    vg_ptx_expect(r, ';', "behind a call");
    const struct vg_prototype *prototype = call->prototype;
    if (!prototype)
        vg_ptx_operand_wrong(r, &call->target, "call", "a .callprototype behind a call by address");
    if (prototype->nparams != call->ninputs || prototype->nresults != call->nresults)
        vg_ptx_fail(r, draft->in.line,
                    "call: expected %u parameters and %u results, found %u and %u of '%.*s'",
                    prototype->nparams, prototype->nresults, call->ninputs, call->nresults,
                    VG_NAMED(call->target.token));
    call->block = frame_add(r, prototype->param_bytes);
    const struct vg_param *params = prototype->params;
    for (uint32_t i = 0; i < call->ninputs; i++) place(call, &call->inputs[i], &params[i]);
    for (uint32_t i = 0; i < call->nresults; i++)
        place(call, &call->results[i], &params[call->ninputs + i]);
    for (uint32_t i = 0; i < call->ninputs; i++) pass(r, call, &call->inputs[i], &params[i], true);
    call->draft.frame = call->block;
    vg_ptx_draft_add(r, &call->draft);
    for (uint32_t i = 0; i < call->nresults; i++)
        pass(r, call, &call->results[i], &params[call->ninputs + i], false);
}
