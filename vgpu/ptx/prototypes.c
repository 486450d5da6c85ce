/* What functions take and give back: names and offsets of parameters. */
#include <vgpu/ptx/reader.h>

#include <string.h>

enum { MAX_PARAM_BYTES = 32764 + 4 };

struct list {
    struct vg_param *params;
    struct vg_token *names;
    uint32_t n, room, names_room;
};

/* ( .param .align 8 .b8 x[16], ... ) */
static void list_read(struct vg_reader *r, struct list *list)
{
    vg_ptx_expect(r, '(', "before parameters");
    if (vg_ptx_accept(r, ')')) return;
    do {
        struct vg_shape shape = {.type = VG_PRED};
        if (vg_ptx_accept_word(r, ".reg")) vg_ptx_unexpected(r, "a parameter in .param before");
        if (!vg_ptx_accept_word(r, ".param")) vg_ptx_unexpected(r, "a parameter (.param)");
        vg_ptx_shape_type(r, &shape);
        vg_ptx_shape_name(r, &shape);
        const uint64_t size = shape.count * vg_ptx_type_bytes(shape.type) * shape.elements;
        if (size > MAX_PARAM_BYTES)
            vg_ptx_fail(r, shape.name.line,
                        "expected a parameter of at most %d bytes, found '%.*s'", MAX_PARAM_BYTES,
                        VG_NAMED(shape.name));
        list->params = vg_ptx_room(r, list->params, list->n, &list->room, sizeof *list->params);
        list->names = vg_ptx_room(r, list->names, list->n, &list->names_room, sizeof *list->names);
        list->params[list->n] = (struct vg_param){.size = (uint32_t)size, .align = shape.align};
        list->names[list->n++] = shape.name;
    } while (vg_ptx_accept(r, ','));
    vg_ptx_expect(r, ')', "behind parameters");
}

static void lay_out(struct vg_reader *r, struct vg_prototype *prototype)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < prototype->nparams + prototype->nresults; i++) {
        struct vg_param *param = &prototype->params[i];
        at = (at + param->align - 1) & ~(param->align - 1);
        param->offset = at;
        at += param->size;
        if (at > 2 * MAX_PARAM_BYTES) vg_ptx_unexpected(r, "fewer bytes of parameters before");
    }
    prototype->param_bytes = at;
}

void vg_ptx_prototype_read(struct vg_reader *r, struct vg_prototype *prototype,
                           struct vg_token *name, struct vg_token **names)
{
    struct list results = {.n = 0}, inputs = {.n = 0};
    if (vg_ptx_is(r, '(')) list_read(r, &results);
    *name = vg_ptx_expect_name(r, "a function's name");
    if (vg_ptx_is(r, '(')) list_read(r, &inputs);
    const uint32_t n = inputs.n + results.n;
    struct vg_token *all = vg_ptx_alloc(r, (n + 1) * sizeof *all);
    prototype->params = vg_ptx_alloc(r, (n + 1) * sizeof *prototype->params);
    for (uint32_t i = 0; i < n; i++) {
        const struct list *list = i < inputs.n ? &inputs : &results;
        const uint32_t at = i < inputs.n ? i : i - inputs.n;
        prototype->params[i] = list->params[at];
        all[i] = list->names[at];
    }
    prototype->nparams = inputs.n;
    prototype->nresults = results.n;
    lay_out(r, prototype);
    if (names) *names = all;
}
