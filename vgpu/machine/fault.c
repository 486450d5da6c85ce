/* Texts about threads, places and instructions: faults, races, who waits where. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *to;
    size_t n, room;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text->to + text->n, text->room - text->n, format, args);
    va_end(args);
    if (n > 0) text->n += (size_t)n;
    if (text->n >= text->room) text->n = text->room - 1;
}

static void add_thread(struct text *text, const uint32_t *grid, const uint32_t *size,
                       uint64_t block, uint32_t thread)
{
    add(text, "block (%" PRIu64 ",%" PRIu64 ",%" PRIu64 "), thread (%u,%u,%u)", block % grid[0],
        block / grid[0] % grid[1], block / grid[0] / grid[1], thread % size[0],
        thread / size[0] % size[1], thread / size[0] / size[1]);
}

static void add_place(struct text *text, const struct vg_module *module, const struct vg_instr *in)
{
    uint32_t place = in->place;
    if (place >= module->nplaces) {
        add(text, "PTX line %u", in->line);
        return;
    }
    for (int depth = 0; place < module->nplaces && depth < 16; depth++) {
        const struct vg_place *p = &module->places[place];
        add(text, "%s%s:%u", depth == 0 ? "" : ", inlined at ",
            p->file < module->nfiles ? module->files[p->file] : "?", p->line);
        if (p->function != NULL) add(text, " in %s", p->function);
        if (depth == 0) add(text, " (PTX line %u)", in->line);
        place = p->inlined_at;
    }
}

static const struct vg_fragment *fragment_of(const struct vg_warp *warp, uint32_t lane)
{
    for (uint32_t i = 0; i < warp->nparts; i++)
        if ((warp->part[i].mask >> lane & 1) != 0) return &warp->part[i];
    return NULL;
}

enum vg_step vg_fail(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                     enum vg_fault fault, const char *format, ...)
{
    struct vg_run *run = warp->block->run;
    if (run->fault != VG_FAULT_NONE) return VG_FAILED; /* the first one counts */
    struct text text = {.to = run->text, .room = sizeof run->text};
    va_list args;
    add(&text, "kernel %s, ", run->launch.kernel->name);
    add_thread(&text, run->launch.grid, run->launch.block, warp->block->index,
               warp->number * VG_LANES + lane);
    add(&text, ": ");
    va_start(args, format);
    const int n = vsnprintf(text.to + text.n, text.room - text.n, format, args);
    va_end(args);
    text.n += n > 0 ? (size_t)n : 0;
    if (text.n >= text.room) text.n = text.room - 1;
    add(&text, "\n  at ");
    add_place(&text, run->launch.image->module, in);
    const struct vg_fragment *fragment = fragment_of(warp, lane);
    for (const struct vg_frame *f = fragment == NULL ? NULL : fragment->frame;
         f != NULL && f->parent != NULL; f = f->parent) {
        add(&text, "\n  in %s, called at ", f->function->name);
        add_place(&text, run->launch.image->module, &f->parent->function->code[f->return_pc - 1]);
    }
    run->fault = fault;
    return VG_FAILED;
}

static void add_party(struct text *text, const struct vg_machine *machine,
                      const struct vg_party *party)
{
    static const char *const orders[] = {"weak", "relaxed", "acquire", "release", "acq_rel", "sc"};
    static const char *const scopes[] = {"", ".cta", ".cluster", ".gpu", ".sys"};
    const struct vg_record *record = NULL;
    for (uint32_t i = 0; i < machine->nrecords; i++)
        if (machine->records[i].number == party->grid) record = &machine->records[i];
    add(text, "%s%s of %u bytes (%s%s%s%s)", party->atomic ? "atomic " : "",
        party->write ? "write" : "read", party->nbytes, orders[party->order % 6],
        scopes[party->scope % 5], party->nc ? ", .nc" : "", party->copy ? ", cp.async" : "");
    if (record == NULL) {
        add(text, " by copy %" PRIu64 "\n", party->grid);
        return;
    }
    add(text, " by kernel %s (launch %" PRIu64 "), ", record->kernel->name, party->grid);
    add_thread(text, record->grid, record->block, party->block, party->thread);
    if (party->where != 0) {
        add(text, "\n    at ");
        add_place(text, record->image->module, (const struct vg_instr *)(uintptr_t)party->where);
    }
    add(text, "\n");
}

void vg_report_race(void *arg, const struct vg_race *race)
{
    struct vg_machine *machine = arg;
    char buffer[2048];
    struct text text = {.to = buffer, .room = sizeof buffer};
    if (machine->settings.race == NULL) return;
    add(&text, "race at 0x%" PRIx64, race->second.address);
    if (race->region != NULL)
        add(&text, ", offset %" PRIu64 " of %s (allocation %" PRIu64 ")",
            race->second.address - race->region->address, race->region->what, race->region->number);
    add(&text, ":\n  ");
    if (race->polled)
        add(&text, "a write by the host, another process or another GPU\n");
    else
        add_party(&text, machine, &race->first);
    if (race->alias)
        add(&text, "    at 0x%" PRIx64 ", another address of the same memory\n",
            race->first.address);
    add(&text, "  and ");
    add_party(&text, machine, &race->second);
    if (race->mend != NULL) add(&text, "  %s\n", race->mend);
    add(&text, "  seed %" PRIu64 "\n", machine->settings.seed);
    machine->settings.race(machine->settings.arg, race, buffer);
}

/* Whether an earlier fragment of the grid waits at the same place: it is named once. */
struct places {
    const struct vg_instr *in[16];
    uint32_t threads[16], n;
};

static uint32_t place_of(struct places *places, const struct vg_instr *in)
{
    for (uint32_t i = 0; i < places->n; i++)
        if (places->in[i] == in) return i;
    if (places->n == 16) return 16;
    places->in[places->n] = in;
    return places->n++;
}

static void count_warp(struct places *places, const struct vg_warp *warp)
{
    for (uint32_t i = 0; i < warp->nparts; i++) {
        const struct vg_fragment *f = &warp->part[i];
        const struct vg_instr *in = vg_instr_of(f);
        if (f->state == VG_RUNS && warp->nwatch != 0) in = warp->watch[0].in;
        const uint32_t at = place_of(places, in);
        if (at < 16) places->threads[at] += (uint32_t)__builtin_popcount(f->mask);
    }
}

static void add_wait(struct text *text, const struct vg_run *run, const struct vg_warp *warp,
                     const struct vg_fragment *f, uint32_t nthreads)
{
    const struct vg_instr *in = vg_instr_of(f);
    add(text, "  %u threads, the first ", nthreads);
    add_thread(text, run->launch.grid, run->launch.block, warp->block->index,
               warp->number * VG_LANES + vg_first(f->mask));
    if (f->state == VG_BLOCKED || (f->state == VG_GATHERS && f->members == 0)) {
        const struct vg_barrier *b = &warp->block->barrier[f->barrier];
        add(text, ", wait at barrier %u, where %u of %u warps have arrived", f->barrier, b->nwarps,
            f->count != 0 ? f->count / VG_LANES : warp->block->live_warps);
    } else if (f->state == VG_GATHERS) {
        uint32_t here = 0;
        for (uint32_t i = 0; i < warp->nparts; i++)
            if (warp->part[i].state == VG_GATHERS && warp->part[i].members == f->members)
                here |= warp->part[i].mask;
        add(text, ", wait for lanes 0x%08x of their warp, which do not come",
            f->members & warp->live & ~here);
    } else if (warp->nwatch != 0) {
        const struct vg_watch *w = &warp->watch[0];
        in = w->in;
        add(text, ", read 0x%" PRIx64 " (offset %" PRIu64 " of %s%s) again and again", w->address,
            w->address - w->region->address, w->region->what,
            w->region->reachable ? ", which others can write" : "");
    }
    add(text, "\n    at ");
    add_place(text, run->launch.image->module, in);
    add(text, "\n");
}

/* Counts the threads of each place, then names each place once. */
static void add_waits(struct text *text, const struct vg_run *run, const struct vg_block *block,
                      struct places *places, bool named[17])
{
    for (uint32_t w = 0; w < block->nwarps; w++) {
        const struct vg_warp *warp = &block->warps[w];
        if (named == NULL) count_warp(places, warp);
        for (uint32_t i = 0; named != NULL && i < warp->nparts; i++) {
            const struct vg_fragment *f = &warp->part[i];
            const bool reads = f->state == VG_RUNS && warp->nwatch != 0;
            const uint32_t at = place_of(places, reads ? warp->watch[0].in : vg_instr_of(f));
            if (at < 16 && !named[at]) add_wait(text, run, warp, f, places->threads[at]);
            named[at] = true;
        }
    }
}

void vg_describe(const struct vg_run *run, const struct vg_block *only, char *text, size_t nbytes)
{
    struct text t = {.to = text, .room = nbytes};
    struct places places = {.n = 0};
    bool named[17] = {false};
    if (nbytes == 0) return;
    text[0] = '\0';
    const uint64_t waiting = run->nblocks - run->started;
    if (only == NULL)
        add(&t,
            "kernel %s: %u blocks are resident, %" PRIu64 " have ended, %" PRIu64
            " have not started%s\n",
            run->launch.kernel->name, run->nresident, run->ended, waiting,
            waiting != 0 ? ", for the GPU has no room" : "");
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t b = 0; b < run->nresident; b++)
            if (only == NULL || run->resident[b] == only)
                add_waits(&t, run, run->resident[b], &places, pass == 0 ? NULL : named);
}

void vg_run_describe(const struct vg_run *run, char *text, uint64_t nbytes)
{
    vg_describe(run, NULL, text, nbytes);
}
