/* Images: a module on one GPU. Variables get regions and addresses, constants the addresses of
 * variables, instructions their handlers. */
#include "machine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/compute/compute.h>

static void *aligned(uint64_t nbytes)
{
    void *bytes = NULL;
    if (posix_memalign(&bytes, 64, nbytes < 64 ? 64 : nbytes) != 0) return NULL;
    memset(bytes, 0, nbytes < 64 ? 64 : nbytes);
    return bytes;
}

static struct vg_region *variable_create(const struct vg_variable *variable, uint64_t address,
                                         uint64_t number)
{
    const size_t room = strlen(variable->name) + 16;
    struct vg_region *region = calloc(1, sizeof *region + room);
    if (region == NULL) return NULL;
    char *what = (char *)(region + 1);
    snprintf(what, room, "variable %s", variable->name);
    *region = (struct vg_region){.address = address,
                                 .nbytes = variable->size,
                                 .bytes = aligned(variable->size),
                                 .readonly = variable->space == VG_CONST,
                                 .what = what,
                                 .number = number};
    if (region->bytes == NULL) {
        free(region);
        return NULL;
    }
    if (variable->bytes != NULL) memcpy(region->bytes, variable->bytes, variable->size);
    return region;
}

/* The address that a fixup names. */
static uint64_t address_of(const struct vg_image *image, const struct vg_fixup *fixup)
{
    if ((fixup->symbol & VG_FUNCTION_SYMBOL) != 0)
        return VG_CODE_WINDOW + UINT64_C(16) * (fixup->symbol & ~VG_FUNCTION_SYMBOL);
    const struct vg_region *region = image->variables[fixup->symbol];
    uint64_t address;
    if (region != NULL)
        address = region->address;
    else
        address = image->module->variables[fixup->symbol].offset +
                  (fixup->generic ? VG_SHARED_WINDOW : 0);
    return address + (uint64_t)fixup->addend;
}

static void fix(struct vg_image *image)
{
    const struct vg_module *module = image->module;
    for (uint32_t v = 0; v < module->nvariables; v++)
        for (uint32_t i = 0; i < module->variables[v].nfixups; i++) {
            const struct vg_fixup *fixup = &module->variables[v].fixups[i];
            const uint64_t address = address_of(image, fixup);
            if (image->variables[v] != NULL)
                memcpy(image->variables[v]->bytes + fixup->offset, &address,
                       fixup->nbytes == 4 ? 4 : 8);
        }
    for (uint32_t i = 0; i < module->nfixups; i++) {
        const struct vg_fixup *fixup = &module->fixups[i];
        const uint64_t address = address_of(image, fixup);
        char *unit = (char *)image->constants[fixup->offset];
        for (size_t lane = 0; lane < VG_LANES; lane++) {
            if (fixup->nbytes == 4)
                memcpy(unit + lane * 4, &address, 4);
            else
                memcpy(unit + lane * 8, &address, 8);
        }
    }
}

static int make_variables(struct vg_image *image,
                          uint64_t (*place)(void *arg, uint64_t nbytes, uint32_t align), void *arg,
                          struct vg_regions *regions, char error[256])
{
    const struct vg_module *module = image->module;
    for (uint32_t v = 0; v < module->nvariables; v++) {
        const struct vg_variable *variable = &module->variables[v];
        if (variable->space == VG_SHARED) continue;
        if (variable->external) {
            snprintf(error, 256, "variable %s is extern and no module defines it", variable->name);
            return -1;
        }
        const uint64_t page = variable->managed ? 4096 : 1; /* the host addresses whole pages */
        const uint32_t align = variable->managed      ? (uint32_t)page
                               : variable->align < 16 ? 16
                                                      : variable->align;
        const uint64_t address = place(arg, (variable->size + page - 1) / page * page, align);
        struct vg_region *region = variable_create(variable, address, image->number);
        if (region == NULL || vg_regions_add(regions, region) != 0) {
            if (region != NULL) free(region->bytes);
            free(region);
            snprintf(error, 256, "no memory for variable %s of %llu bytes", variable->name,
                     (unsigned long long)variable->size);
            return -1;
        }
        image->variables[v] = region;
    }
    return 0;
}

/* Whether the instruction belongs to compute/, and to nobody if nobody there has it. */
static bool only_computes(uint8_t op)
{
    return op <= VG_UNPACK || op == VG_PRMT || op == VG_CVT || op == VG_CVT_PACK;
}

int vg_image_create(struct vg_module *module,
                    uint64_t (*place)(void *arg, uint64_t nbytes, uint32_t align), void *arg,
                    struct vg_regions *regions, struct vg_image **image, char error[256])
{
    struct vg_image *made = calloc(1, sizeof *made);
    if (made == NULL) goto no_memory;
    made->module = module;
    made->variables = calloc(module->nvariables + 1, sizeof *made->variables);
    made->constants = calloc(module->nconstants + 4, sizeof *made->constants);
    if (made->variables == NULL || made->constants == NULL) goto no_memory;
    if (module->nconstants != 0)
        memcpy(made->constants, module->constants, module->nconstants * sizeof *made->constants);
    if (make_variables(made, place, arg, regions, error) != 0) {
        vg_image_destroy(made, regions, NULL);
        return -1;
    }
    fix(made);
    for (uint32_t f = 0; f < module->nfunctions; f++)
        for (uint32_t i = 0; i < module->functions[f].ninstrs; i++) {
            struct vg_instr *in = &module->functions[f].code[i];
            vg_compute *compute = vg_compute_find(in);
            if (compute != NULL)
                in->compute = compute;
            else if (only_computes(in->op) && module->functions[f].unsupported == NULL)
                module->functions[f].unsupported =
                    "an instruction of a type or with modifiers that no handler has";
        }
    *image = made;
    return 0;
no_memory:
    vg_image_destroy(made, regions, NULL);
    snprintf(error, 256, "no memory for a module of %u functions", module->nfunctions);
    return -1;
}

void vg_image_destroy(struct vg_image *image, struct vg_regions *regions, struct vg_model *model)
{
    if (image == NULL) return;
    for (uint32_t v = 0; image->variables != NULL && v < image->module->nvariables; v++) {
        struct vg_region *region = image->variables[v];
        if (region == NULL) continue;
        vg_regions_remove(regions, region);
        if (model != NULL) vg_model_forget(model, region);
        free(region->bytes);
        free(region);
    }
    free(image->variables);
    free(image->constants);
    free(image);
}
