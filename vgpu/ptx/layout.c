/* What can only be known when the whole module has been read: places in shared memory, what a
 * kernel reaches by calls. */
#include <vgpu/ptx/reader.h>

#include <stdio.h>
#include <string.h>

/* The functions that a function reaches by calls, itself too. */
struct reach {
    uint8_t *in; /* of each function */
    uint32_t *list;
    uint32_t n;
};

static void visit(struct reach *reach, uint32_t function)
{
    if (reach->in[function]) return;
    reach->in[function] = 1;
    reach->list[reach->n++] = function;
}

static void reach_from(struct vg_reader *r, struct reach *reach, uint32_t function)
{
    memset(reach->in, 0, r->module->nfunctions);
    reach->n = 0;
    visit(reach, function);
    for (uint32_t i = 0; i < reach->n; i++) {
        const struct vg_routine *routine = &r->routines[reach->list[i]];
        for (uint32_t j = 0; j < routine->ncallees; j++) visit(reach, routine->callees[j]);
        if (!routine->indirect) continue;
        for (uint32_t j = 0; j < r->module->nfunctions; j++)
            if (r->routines[j].taken) visit(reach, j);
    }
}

static uint64_t aligned(uint64_t at, uint32_t align)
{
    return (at + align - 1) & ~(uint64_t)(align - 1);
}

static bool of_kernel(const struct vg_reader *r, const struct vg_shared *shared)
{
    return shared->owner != VG_NO_OWNER && r->module->functions[shared->owner].kernel;
}

/* Which functions are kernels that reach a use of each shared variable: users[i * nfunctions + k].
 */
static uint8_t *find_users(struct vg_reader *r, struct reach *reach)
{
    const uint32_t n = r->module->nfunctions;
    uint8_t *users = vg_ptx_alloc(r, (size_t)r->nshared * n + 1);
    for (uint32_t k = 0; k < n && r->nshared; k++) {
        if (!r->module->functions[k].kernel) continue;
        reach_from(r, reach, k);
        for (uint32_t i = 0; i < r->nshared_uses; i++)
            if (reach->in[r->shared_uses[i].owner])
                users[(size_t)r->shared_uses[i].shared * n + k] = 1;
    }
    return users;
}

static bool meet(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (a[k] & b[k]) return true;
    return false;
}

/* A variable of the module or of a .func lies at the same place in every kernel: the first one
 * where no other variable lies that a kernel uses with it. */
static void place_common(struct vg_reader *r, struct reach *reach)
{
    const uint32_t n = r->module->nfunctions;
    const uint8_t *users = find_users(r, reach);
    for (uint32_t i = 0; i < r->nshared; i++) {
        struct vg_shared *shared = &r->shared[i];
        if (shared->dynamic || of_kernel(r, shared)) continue;
        shared->offset = 0;
        for (uint32_t j = 0; j < i; j++) {
            const struct vg_shared *other = &r->shared[j];
            if (other->dynamic || of_kernel(r, other) ||
                other->offset + other->size <= shared->offset ||
                shared->offset + shared->size <= other->offset ||
                !meet(users + (size_t)i * n, users + (size_t)j * n, n))
                continue;
            shared->offset = aligned(other->offset + other->size, shared->align);
            j = UINT32_MAX; /* from the first one again */
        }
        if (shared->variable != UINT32_MAX)
            r->module->variables[shared->variable].offset = shared->offset;
    }
}

/* A kernel's own variables follow the common ones that it uses. Returns the greatest alignment of
 * dynamic shared memory that it uses, or 0. */
static uint32_t place_kernel(struct vg_reader *r, struct reach *reach, uint32_t kernel)
{
    uint64_t end = 0;
    uint32_t dynamic = 0;
    reach_from(r, reach, kernel);
    for (uint32_t i = 0; i < r->nshared_uses; i++) {
        const struct vg_shared *shared = &r->shared[r->shared_uses[i].shared];
        if (!reach->in[r->shared_uses[i].owner]) continue;
        if (shared->dynamic) {
            if (shared->align > dynamic) dynamic = shared->align;
        } else if (!of_kernel(r, shared) && shared->offset + shared->size > end) {
            end = shared->offset + shared->size;
        }
    }
    for (uint32_t i = 0; i < r->nshared; i++) {
        struct vg_shared *shared = &r->shared[i];
        if (shared->owner != kernel || shared->dynamic) continue;
        shared->offset = aligned(end, shared->align);
        end = shared->offset + shared->size;
    }
    if (dynamic) end = aligned(end, dynamic < 16 ? 16 : dynamic);
    r->module->functions[kernel].shared_bytes = end > UINT32_MAX ? UINT32_MAX : (uint32_t)end;
    return dynamic;
}

/* A .func that uses dynamic shared memory must find it at the same place in every kernel. */
static void place_shared(struct vg_reader *r, struct reach *reach)
{
    struct vg_module *module = r->module;
    uint32_t most = 0;
    bool together = false;
    place_common(r, reach);
    for (uint32_t i = 0; i < r->nshared_uses; i++) {
        const struct vg_shared_use *use = &r->shared_uses[i];
        together |= r->shared[use->shared].dynamic && !module->functions[use->owner].kernel;
    }
    for (uint32_t i = 0; i < module->nfunctions; i++)
        if (module->functions[i].kernel) {
            const uint32_t dynamic = place_kernel(r, reach, i);
            if (dynamic && module->functions[i].shared_bytes > most)
                most = (uint32_t)aligned(module->functions[i].shared_bytes, 128);
        }
    for (uint32_t i = 0; i < r->nshared_uses && together; i++) {
        if (!r->shared[r->shared_uses[i].shared].dynamic) continue;
        for (uint32_t j = 0; j < module->nfunctions; j++) {
            if (!module->functions[j].kernel) continue;
            reach_from(r, reach, j);
            if (reach->in[r->shared_uses[i].owner]) module->functions[j].shared_bytes = most;
        }
    }
    for (uint32_t i = 0; i < r->nshared_uses; i++) {
        const struct vg_shared_use *use = &r->shared_uses[i];
        const struct vg_shared *shared = &r->shared[use->shared];
        const struct vg_function *owner = &module->functions[use->owner];
        const uint64_t place = !shared->dynamic ? shared->offset
                               : owner->kernel  ? owner->shared_bytes
                                                : most;
        const uint64_t value = place + (uint64_t)use->addend;
        for (uint32_t lane = 0; lane < VG_LANES; lane++)
            memcpy(&module->constants[use->constant][vg_ptx_type_units(use->type) * lane], &value,
                   vg_ptx_type_bytes(use->type));
    }
}

/* Calls of functions without a body fail when they are reached. */
static void check_calls(struct vg_reader *r, struct vg_function *function)
{
    struct vg_module *module = r->module;
    for (uint32_t i = 0; i < function->ninstrs; i++) {
        struct vg_instr *in = &function->code[i];
        if (in->op != VG_CALL || in->target == VG_INDIRECT || r->routines[in->target].defined)
            continue;
        char text[160];
        const int n = snprintf(text, sizeof text,
                               "the call of '%.60s' in line %u, which the module does not define, "
                               "is not supported",
                               module->functions[in->target].name, in->line);
        module->texts =
            vg_ptx_room(r, module->texts, module->ntexts, &r->texts_room, sizeof(char *));
        module->texts[module->ntexts] = vg_ptx_text(r, text, (size_t)n);
        in->op = VG_UNSUPPORTED;
        in->imm = module->ntexts;
        if (!function->unsupported) function->unsupported = module->texts[module->ntexts];
        module->ntexts++;
    }
}

static uint32_t barriers_of(const struct vg_module *module, const struct vg_function *function)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < function->ninstrs; i++) {
        const struct vg_instr *in = &function->code[i];
        if (in->op != VG_BAR_SYNC && in->op != VG_BAR_ARRIVE && in->op != VG_BAR_RED) continue;
        uint32_t n = 16;
        if (in->src[0] & VG_CONSTANT) n = module->constants[in->src[0] & ~VG_CONSTANT][0] + 1;
        if (n > most) most = n;
    }
    return most < 16 ? most : 16;
}

void vg_ptx_layout(struct vg_reader *r)
{
    struct vg_module *module = r->module;
    struct reach reach = {.in = vg_ptx_alloc(r, module->nfunctions + 1),
                          .list = vg_ptx_alloc(r, (module->nfunctions + 1) * sizeof(uint32_t))};
    place_shared(r, &reach);
    for (uint32_t i = 0; i < module->nfunctions; i++) {
        check_calls(r, &module->functions[i]);
        module->functions[i].nbarriers = barriers_of(module, &module->functions[i]);
    }
    for (uint32_t i = 0; i < module->nfunctions; i++) {
        struct vg_function *function = &module->functions[i];
        if (!function->kernel) continue;
        reach_from(r, &reach, i);
        for (uint32_t j = 0; j < reach.n; j++) {
            const struct vg_function *callee = &module->functions[reach.list[j]];
            if (!function->unsupported) function->unsupported = callee->unsupported;
            if (callee->nbarriers > function->nbarriers) function->nbarriers = callee->nbarriers;
        }
    }
}
