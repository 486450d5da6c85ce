/* Litmus tests as text: see litmus.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/litmus/litmus.h>

static const struct {
    const char *name;
    enum vl_kind kind;
} kinds[] = {{"ld", VL_LOAD},       {"st", VL_STORE},     {"add", VL_ADD},     {"red", VL_ADD},
             {"xchg", VL_EXCHANGE}, {"cas", VL_SWAP},     {"fence", VL_FENCE}, {"bar", VL_BARRIER},
             {"warp", VL_BARRIER},  {"arrive", VL_ARRIVE}};
static const struct {
    const char *name;
    enum vg_order order;
} orders[] = {{"weak", VG_WEAK},   {"nc", VG_WEAK},    {"rlx", VG_RELAXED}, {"acq", VG_ACQUIRE},
              {"rel", VG_RELEASE}, {"ar", VG_ACQ_REL}, {"sc", VG_SC}};
static const struct {
    const char *name;
    enum vg_scope scope;
} scopes[] = {{"cta", VG_SCOPE_CTA}, {"gpu", VG_SCOPE_GPU}, {"sys", VG_SCOPE_SYS}};
static const char location_names[] = "xyzw";

/* "ld.acq.gpu": the instruction, its order and scope. */
static bool read_name(char *name, enum vg_scope scope, struct vl_op *op)
{
    const char *const base = strsep(&name, "."), *const order = strsep(&name, "."),
                      *const its = strsep(&name, ".");
    bool found = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(base, kinds[i].name)) op->kind = kinds[i].kind, found = true;
    if (!found) return false;
    op->reg = strcmp(base, "red") ? 0 : VL_REGISTERS;
    if (op->kind >= VL_BARRIER) {
        op->number = strcmp(base, "warp") ? 0 : VL_WARP;
        return !order;
    }
    found = false;
    for (size_t i = 0; order && i < sizeof orders / sizeof *orders; i++)
        if (!strcmp(order, orders[i].name)) op->order = orders[i].order, found = true;
    if (!found) return false;
    op->nc = !strcmp(order, "nc");
    if (op->order == VG_WEAK) return !its;
    op->scope = scope;
    found = its && !strcmp(its, "@");
    for (size_t i = 0; its && i < sizeof scopes / sizeof *scopes; i++)
        if (!strcmp(its, scopes[i].name)) op->scope = scopes[i].scope, found = true;
    return found;
}

static bool read_location(const char *text, struct vl_op *op)
{
    unsigned first = 0, nbytes = 4;
    const char *const at = *text ? strchr(location_names, *text) : NULL;
    if (!at || (text[1] && sscanf(text + 1, "[%u,%u]", &first, &nbytes) != 2)) return false;
    op->location = (uint8_t)(at - location_names);
    op->first = (uint8_t)first;
    op->nbytes = (uint8_t)nbytes;
    return nbytes && nbytes <= VL_BYTES && !(nbytes & (nbytes - 1)) && !(first % nbytes) &&
           first + nbytes <= VL_BYTES;
}

static bool read_op(const char *text, enum vg_scope scope, struct vl_op *op)
{
    char name[32] = "", at[16] = "", word[3][16] = {"", "", ""};
    *op = (struct vl_op){.kind = VL_LOAD};
    const int n = sscanf(text, " %31s %15s %15s %15s %15s", name, at, word[0], word[1], word[2]);
    if (n < 1 || !read_name(name, scope, op)) return false;
    if (op->kind == VL_FENCE) return n == 1;
    if (op->kind >= VL_BARRIER) {
        op->number = (uint8_t)(op->number + atoi(at));
        return n == 2;
    }
    if (n < 3 || !read_location(at, op)) return false;
    unsigned next = 0;
    if (op->kind == VL_SWAP) op->expected = (uint8_t)atoi(word[next++]);
    if (op->kind != VL_LOAD) op->value = (uint8_t)atoi(word[next++]);
    if (op->kind == VL_STORE || op->reg == VL_REGISTERS) return (unsigned)n == 2 + next;
    op->reg = (uint8_t)(word[next][0] - 'a');
    return (unsigned)n == 3 + next && op->reg < VL_REGISTERS;
}

static void place_thread(struct vl_test *test, unsigned t, enum vl_place place)
{
    struct vl_thread *thread = &test->threads[t];
    const bool devices = place == VL_TWO_DEVICES || place == VL_DEVICES;
    const unsigned part = place == VL_TWO_BLOCKS || place == VL_TWO_DEVICES ? t & 1 : t;
    thread->place = place == VL_ONE_BLOCK || part != t ? t * 32 / (t & 1 ? 2 : 1) : 0;
    thread->block = devices || place == VL_ONE_BLOCK ? 0 : part;
    thread->grid = devices ? part : 0;
    if (thread->grid >= test->ngrids) test->ngrids = thread->grid + 1;
    test->grids[thread->grid].device = (int)thread->grid;
}

bool vl_read(const char *text, enum vg_scope scope, enum vl_place place, struct vl_test *test)
{
    char copy[1024], *threads = copy, *thread;
    *test = (struct vl_test){.nthreads = 0};
    if (strlen(text) >= sizeof copy) return false;
    memcpy(copy, text, strlen(text) + 1);
    while ((thread = strsep(&threads, "|"))) {
        if (test->nthreads == VL_THREADS) return false;
        struct vl_thread *into = &test->threads[test->nthreads];
        place_thread(test, test->nthreads++, place);
        for (char *op; (op = strsep(&thread, ";"));) {
            if (into->nops == VL_OPS || !read_op(op, scope, &into->ops[into->nops])) return false;
            const struct vl_op *new = &into->ops[into->nops++];
            if (!vl_accesses(new)) continue;
            if (new->location >= test->nlocations) test->nlocations = new->location + 1u;
            if (vl_reads(new) && new->reg < VL_REGISTERS &&new->reg >= test->nregisters)
                test->nregisters = new->reg + 1u;
        }
    }
    return true;
}

bool vl_matches(const struct vl_outcome *outcome, const char *text)
{
    char name;
    int value, length;
    for (; sscanf(text, " %c%n", &name, &length) == 1; text += length) {
        unsigned byte = 0;
        text += length;
        if (sscanf(text, "[%u]%n", &byte, &length) == 1) text += length;
        const char *const at = strchr(location_names, name);
        const unsigned row =
            at ? VL_REGISTERS + (unsigned)(at - location_names) : (unsigned)(name - 'a');
        if (sscanf(text, "=%d%n", &value, &length) != 1 || byte >= VL_BYTES ||
            row >= VL_REGISTERS + VL_LOCATIONS || outcome->at[row][byte] != value)
            return false;
    }
    return true;
}

struct writer {
    char *text;
    uint64_t nbytes, n;
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (to->n < to->nbytes)
        to->n += (uint64_t)vsnprintf(to->text + to->n, to->nbytes - to->n, format, list);
    va_end(list);
}

static void put_op(struct writer *to, const struct vl_op *op)
{
    const char *const names[] = {"ld", "st", "add", "xchg", "cas", "fence", "bar", "arrive"};
    const char *const words[] = {"weak", "rlx", "acq", "rel", "ar", "sc"};
    const char *name = vl_accesses(op) && op->kind != VL_STORE && op->reg == VL_REGISTERS
                           ? "red"
                           : names[op->kind];
    if (op->kind >= VL_BARRIER) {
        if (op->number >= VL_WARP) name = "warp";
        put(to, "%s %d", name, op->number % VL_WARP);
        return;
    }
    put(to, "%s.%s", name, op->nc ? "nc" : words[op->order]);
    for (size_t i = 0; op->order != VG_WEAK && i < sizeof scopes / sizeof *scopes; i++)
        if (op->scope == scopes[i].scope) put(to, ".%s", scopes[i].name);
    if (op->kind == VL_FENCE) return;
    put(to, " %c", location_names[op->location]);
    if (op->first || op->nbytes != 4) put(to, "[%d,%d]", op->first, op->nbytes);
    if (op->kind == VL_SWAP) put(to, " %d", op->expected);
    if (op->kind != VL_LOAD) put(to, " %d", op->value);
    if (op->kind != VL_STORE && op->reg < VL_REGISTERS) put(to, " %c", 'a' + op->reg);
}

void vl_print(const struct vl_test *test, char *text, uint64_t nbytes)
{
    struct writer to = {.text = text, .nbytes = nbytes};
    put(&to, "%s", test->name);
    for (unsigned g = 0; g < test->ngrids; g++)
        if (test->grids[g].before)
            for (unsigned h = 0; h < test->ngrids; h++)
                if (test->grids[g].before >> h & 1)
                    put(&to, "\n  grid %u begins after grid %u has ended", g, h);
    for (unsigned t = 0; t < test->nthreads; t++) {
        const struct vl_thread *thread = &test->threads[t];
        const int device = test->grids[thread->grid].device;
        if (device == VL_HOST)
            put(&to, "\n  host: ");
        else
            put(&to, "\n  grid %u on GPU %d, block %u, thread %u: ", thread->grid, device,
                thread->block, thread->place);
        for (unsigned k = 0; k < thread->nops; k++) {
            put(&to, "%s", k ? "; " : "");
            put_op(&to, &thread->ops[k]);
        }
        put(&to, "%s", t + 1 < test->nthreads ? " |" : "");
    }
}

/* The bytes that accesses of the test begin at, of each location. */
void vl_print_outcome(const struct vl_test *test, const struct vl_outcome *outcome, char *text,
                      uint64_t nbytes)
{
    struct writer to = {.text = text, .nbytes = nbytes};
    put(&to, "%s", "");
    for (unsigned row = 0; row < VL_REGISTERS + VL_LOCATIONS; row++) {
        const bool location = row >= VL_REGISTERS;
        if (location ? row - VL_REGISTERS >= test->nlocations : row >= test->nregisters) continue;
        put(&to, "%c=", location ? location_names[row - VL_REGISTERS] : (char)('a' + row));
        unsigned end = VL_BYTES;
        while (end > 1 && outcome->at[row][end - 1] == outcome->at[row][end - 2]) end--;
        for (unsigned byte = 0; byte < end; byte++)
            put(&to, "%s%d", byte ? "," : "", outcome->at[row][byte]);
        put(&to, " ");
    }
}
