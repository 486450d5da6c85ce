/* Which warp runs next.
 *
 * READY warps can go on; TIRED ones have run for the length of the settings' patience without a
 * store, a barrier or a new value; STUCK ones wait at barriers. The seed picks among the READY,
 * now and then among the TIRED, whose values may have come. When only TIRED warps are left, each
 * has looked for a long time and nobody has changed anything since it began to look, the grid
 * waits for somebody else. */
#include "machine_internal.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 3 };
enum { WARPS_A_STEP = 16, INSTRUCTIONS_A_STEP = 1 << 16 /* of threads */ };
enum { LONG = 16 /* patience times this: the wait of a grid that waits */ };

enum { TICK_NS = 200 }; /* an instruction of a warp takes about so long here: time moves alike */

uint64_t vg_timer(const struct vg_machine *machine)
{
    const uint32_t share = machine->timer_share == 0 ? 1 : machine->timer_share;
    return machine->timer_ns + (machine->ticks - machine->timer_ticks) * TICK_NS / share;
}

void vg_timer_step(struct vg_machine *machine)
{
    machine->timer_ns = vg_timer(machine);
    machine->timer_ticks = machine->ticks;
    machine->timer_share = machine->nruns;
}

void vg_list_move(struct vg_warp *warp, uint32_t list)
{
    struct vg_run *run = warp->block->run;
    if (warp->list < VG_LISTS && run->list[warp->list].n > warp->at &&
        run->list[warp->list].at[warp->at] == warp) {
        struct vg_list *from = &run->list[warp->list];
        from->at[warp->at] = from->at[--from->n];
        from->at[warp->at]->at = warp->at;
    }
    warp->list = list;
    if (list == VG_LISTS) return;
    warp->at = run->list[list].n;
    run->list[list].at[run->list[list].n++] = warp;
}

/* Whether the fragment comes back to a load with the same registers again and again. */
static bool goes_round(const struct vg_warp *warp, const struct vg_fragment *fragment)
{
    for (uint32_t k = 0; k < warp->nwatch; k++)
        if ((warp->watch[k].lanes & fragment->mask) != 0 && warp->watch[k].same >= ROUNDS)
            return true;
    return false;
}

/* Whether the warp has looked long enough at things that nobody has changed. */
static bool waits(const struct vg_run *run, const struct vg_warp *warp)
{
    if (warp->mark != run->moves || warp->nwatch == 0) return false;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        const struct vg_fragment *f = &warp->part[i];
        if (f->state != VG_RUNS) continue;
        if (f->idle < LONG * run->machine->settings.patience || !goes_round(warp, f)) return false;
    }
    return true;
}

static bool all_wait(const struct vg_run *run)
{
    const struct vg_list *tired = &run->list[VG_TIRED];
    for (uint32_t i = 0; i < tired->n; i++)
        if (!waits(run, tired->at[i])) return false;
    return true;
}

/* The warp waits only if it looks in vain for the length of the patience once more. */
static void look_again(struct vg_warp *warp)
{
    const uint32_t patience = warp->block->run->machine->settings.patience;
    warp->mark = UINT64_MAX;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        struct vg_fragment *f = &warp->part[i];
        if (f->idle > (LONG - 1) * patience) f->idle = (LONG - 1) * patience;
        f->tired = f->idle + patience;
    }
}

/* All threads of the block wait at barriers: nobody can come. */
static bool block_stuck(const struct vg_block *block)
{
    for (uint32_t w = 0; w < block->nwarps; w++)
        if (block->warps[w].live != 0 && block->warps[w].list != VG_STUCK) return false;
    return true;
}

static void fail_stuck(struct vg_run *run, const struct vg_block *block)
{
    char where[1600];
    vg_describe(run, block, where, sizeof where);
    run->fault = VG_FAULT_BARRIER;
    snprintf(run->text, sizeof run->text,
             "kernel %s, block (%u,%u,%u): all its threads wait for one another for ever\n%s",
             run->launch.kernel->name, block->at[0], block->at[1], block->at[2], where);
}

static struct vg_warp *pick(struct vg_run *run)
{
    const struct vg_list *ready = &run->list[VG_READY], *tired = &run->list[VG_TIRED];
    const uint64_t random = vg_random(&run->random);
    const bool look = tired->n != 0 && (ready->n == 0 || random % 8 == 0);
    const struct vg_list *from = look ? tired : ready;
    return from->n == 0 ? NULL : from->at[(random >> 8) % from->n];
}

/* Runs one warp. false: nobody can run, or a fault. */
static void turn(struct vg_run *run, struct vg_warp *warp)
{
    struct vg_block *block = warp->block;
    vg_warp_run(warp, 1 + vg_random(&run->random) % run->machine->settings.quantum);
    if (run->fault != VG_FAULT_NONE) return;
    if (warp->live == 0) {
        vg_list_move(warp, VG_LISTS);
        if (--block->live_warps == 0) {
            vg_block_end(block);
            run->ended++;
            run->moves++;
            vg_block_admit(run);
            return;
        }
    }
    if ((warp->live == 0 || warp->list == VG_STUCK) && block_stuck(block)) fail_stuck(run, block);
}

enum vg_progress vg_run_step(struct vg_run *run)
{
    if (run->fault != VG_FAULT_NONE) return VG_FAULTED;
    memset(run->cache, 0, sizeof run->cache); /* the driver may have changed the regions */
    if (run->started < run->nblocks) vg_block_admit(run); /* another run may have ended */
    if (run->fault == VG_FAULT_NONE && run->nresident == 0) return VG_WAITING;
    vg_timer_step(run->machine);
    const uint64_t until = run->machine->counts.instructions + INSTRUCTIONS_A_STEP;
    for (int i = 0; i < WARPS_A_STEP && run->fault == VG_FAULT_NONE; i++) {
        if (run->machine->counts.instructions >= until) break;
        /* All have looked once about: another run may have what they wait for. */
        if (run->list[VG_READY].n == 0 && run->machine->nruns > 1 &&
            (uint32_t)i > run->list[VG_TIRED].n)
            break;
        if (run->ended == run->nblocks) return VG_DONE;
        if (run->list[VG_READY].n == 0 && all_wait(run)) {
            /* What is held back in buffers is shown, and everybody looks for a while once more. */
            vg_model_flush(run->machine->model, run->launch.gpu->number);
            for (uint32_t w = 0; w < run->list[VG_TIRED].n; w++)
                look_again(run->list[VG_TIRED].at[w]);
            if (run->shown == run->moves + 1) return VG_WAITING;
            run->shown = run->moves + 1;
        }
        struct vg_warp *warp = pick(run);
        if (warp == NULL) break;
        turn(run, warp);
    }
    if (run->fault != VG_FAULT_NONE) return VG_FAULTED;
    return run->ended == run->nblocks ? VG_DONE : VG_MOVED;
}

bool vg_run_started(const struct vg_run *run)
{
    return run->started == run->nblocks;
}

uint64_t vg_run_moves(const struct vg_run *run)
{
    return run->moves;
}

bool vg_run_waits_for_host(const struct vg_run *run)
{
    const struct vg_list *tired = &run->list[VG_TIRED];
    for (uint32_t i = 0; i < tired->n; i++)
        for (uint32_t k = 0; k < tired->at[i]->nwatch; k++)
            if (tired->at[i]->watch[k].region->reachable) return true;
    return false;
}

enum vg_fault vg_run_fault(const struct vg_run *run, const char **text)
{
    *text = run->text;
    return run->fault;
}
