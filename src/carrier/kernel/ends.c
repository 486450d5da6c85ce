/* Takes memory for ends in pieces, each for several ends, and registers what devices use. */
#include "carrier/kernel/ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "driver/context.h"

/* Bytes of the GPU that are registered to try whether devices can use its memory. */
enum { TRIED_BYTES = 1 << 16 };

/* Of ends that are bound, before the list grows. */
enum { LEAST_BOUND = 16 };

/* Memory of the GPU, registered. Two use it, the devices of the wires and the kernels; the last one
 * to let it go frees it. */
struct slots {
    struct tt_wires_gpu registered; /* first */
    struct tt_context *context;     /* opened */
    void *memory;
    _Atomic int nusers;
};

/* Memory of several ends. */
struct piece {
    void *pinned;
    struct slots *slots; /* NULL: they are in pinned memory */
    struct piece *next;
};

/* Of the latest piece, what is not bound yet. */
struct spare {
    struct tt_end_memory first;
    size_t nends;
    size_t word_bytes, slot_bytes; /* from one end to the next */
};

struct tt_ends {
    struct tt_comm_core *comm; /* not used by tt_ends_destroy, which may come later */
    struct piece *pieces;
    struct spare spares[2]; /* [in_gpu] */
    /* owner: the issuing thread */
    struct tt_bound_end *bound; /* [most_bound] */
    size_t nbound, most_bound;
    _Atomic bool may_be_in_gpu;
    _Atomic size_t nbytes, gpu_bytes; /* writer: the issuing thread */
    char why[TT_ERROR_TEXT];          /* not in memory of the GPU; "": TUTTI_RDMA_GPU is off, or
                                       * there is no RDMA. Immutable once may_be_in_gpu is false */
};

/* ---- Memory of the GPU ---------------------------------------------------------------------- */

static void free_slots(struct slots *slots)
{
    tt_context_free(slots->context, slots->memory);
    tt_context_close(slots->context);
    free(slots);
}

static void let_go(struct slots *slots)
{
    if (atomic_fetch_sub(&slots->nusers, 1) == 1) free_slots(slots);
}

static void wires_let_go(struct tt_wires_gpu *registered)
{
    let_go((struct slots *)registered);
}

static tt_status register_slots(struct tt_comm_core *comm, struct slots *slots, size_t nbytes)
{
    struct tt_dmabuf pages;
    char *base;
    TT_TRY(
        tt_context_export(slots->context, slots->memory, nbytes, &pages.fd, &base, &pages.nbytes));
    pages.base = base;
    tt_engine_enter(&comm->engine);
    const tt_status status = tt_wires_register_gpu(comm->fabric->wires, &pages, &slots->registered);
    tt_engine_leave(&comm->engine);
    close(pages.fd);
    return status;
}

static tt_status make_slots(struct tt_comm_core *comm, size_t nbytes, struct slots **out)
{
    struct slots *slots = calloc(1, sizeof *slots);
    if (!slots) return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges between GPUs");
    slots->registered.let_go = wires_let_go;
    atomic_init(&slots->nusers, 2);
    tt_status status = tt_context_open(tt_context_gpu(comm->context), &slots->context);
    if (!status) status = tt_context_allocate_unset(slots->context, nbytes, &slots->memory);
    if (!status) status = register_slots(comm, slots, nbytes);
    if (status)
        free_slots(slots);
    else
        *out = slots;
    return status;
}

static bool wants_gpu(const struct tt_comm_core *comm)
{
    const struct tt_wires *wires = comm->fabric->wires;
    return tt_config_int(TT_CONFIG_RDMA_GPU) && wires && tt_wires_may_use_gpus(wires);
}

/* GPUs, one bit each, whose memory this process's devices never take: that is tried, and logged,
 * for the first communicator only. */
static _Atomic uint64_t never;

static uint64_t bit_of(const struct tt_comm_core *comm)
{
    return comm->gpu < 64 ? (uint64_t)1 << comm->gpu : 0;
}

/* From now on all slots are memory of the host. */
static void refuse(struct tt_ends *ends)
{
    snprintf(ends->why, sizeof ends->why, "%s", tt_last_error());
    atomic_store(&ends->may_be_in_gpu, false);
    TT_INFO("rank %d: what kernels send to other hosts goes through memory of the host: %s",
            ends->comm->rank, ends->why);
}

tt_status tt_ends_create(struct tt_ends **out, struct tt_comm_core *comm)
{
    struct slots *tried;
    struct tt_ends *ends = calloc(1, sizeof *ends);
    if (!ends) return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges between GPUs");
    ends->comm = comm;
    *out = ends;
    if (!wants_gpu(comm)) return TT_OK;
    if (atomic_load(&never) & bit_of(comm)) {
        snprintf(ends->why, sizeof ends->why,
                 "RDMA devices do not use memory of GPU %d, as the log of this process says",
                 comm->gpu);
        return TT_OK;
    }
    const tt_status status = make_slots(comm, TRIED_BYTES, &tried);
    if (status) {
        if (status == TT_ERR_USAGE) atomic_fetch_or(&never, bit_of(comm));
        refuse(ends);
        return TT_OK;
    }
    tt_engine_enter(&comm->engine);
    tt_wires_forget_gpu(comm->fabric->wires, &tried->registered);
    tt_engine_leave(&comm->engine);
    free_slots(tried);
    atomic_store(&ends->may_be_in_gpu, true);
    return TT_OK;
}

bool tt_ends_may_be_in_gpu(const struct tt_ends *ends)
{
    return atomic_load(&ends->may_be_in_gpu);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* Memory of so many ends, which become the spare ones. */
static tt_status add_piece(struct tt_ends *ends, const struct tt_bridge_shape *shape, size_t nends,
                           bool in_gpu)
{
    struct tt_comm_core *comm = ends->comm;
    const size_t each = in_gpu ? tt_bridge_word_bytes(shape) : tt_bridge_bytes(shape);
    const size_t slot_bytes = tt_bridge_slot_bytes(shape);
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece) return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges between GPUs");
    tt_status status = tt_context_allocate_lasting(comm->context, nends * each, &piece->pinned);
    if (!status && in_gpu) status = make_slots(comm, nends * slot_bytes, &piece->slots);
    if (status) {
        tt_context_free_host(comm->context, piece->pinned);
        free(piece);
        return status;
    }
    piece->next = ends->pieces;
    ends->pieces = piece;
    atomic_fetch_add_explicit(&ends->nbytes, nends * each, memory_order_relaxed);
    if (in_gpu)
        atomic_fetch_add_explicit(&ends->gpu_bytes, nends * slot_bytes, memory_order_relaxed);
    ends->spares[in_gpu] =
        (struct spare){.first = {piece->pinned, in_gpu ? piece->slots->memory : NULL},
                       .nends = nends,
                       .word_bytes = each,
                       .slot_bytes = slot_bytes};
    return TT_OK;
}

tt_status tt_ends_reserve(struct tt_ends *ends, const struct tt_bridge_shape *shape, size_t nends,
                          size_t n_in_gpu)
{
    if (!tt_ends_may_be_in_gpu(ends)) n_in_gpu = 0;
    /* There may be spare ones of a call whose ends could not be bound. */
    if (n_in_gpu > ends->spares[true].nends && add_piece(ends, shape, n_in_gpu, true)) {
        refuse(ends);
        n_in_gpu = 0;
    }
    const size_t n = nends - n_in_gpu;
    return n > ends->spares[false].nends ? add_piece(ends, shape, n, false) : TT_OK;
}

struct tt_end_memory tt_ends_next(const struct tt_ends *ends, bool in_gpu)
{
    return ends->spares[in_gpu].first;
}

void tt_ends_take(struct tt_ends *ends, bool in_gpu)
{
    struct spare *spare = &ends->spares[in_gpu];
    spare->nends--;
    spare->first.words += spare->word_bytes;
    if (in_gpu) spare->first.slots += spare->slot_bytes;
}

tt_status tt_ends_bind(struct tt_ends *ends, const struct tt_bound_end *bound)
{
    if (ends->nbound == ends->most_bound) {
        const size_t most = ends->most_bound ? 2 * ends->most_bound : LEAST_BOUND;
        struct tt_bound_end *larger = realloc(ends->bound, most * sizeof *larger);
        if (!larger) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ends of bridges", most);
        ends->bound = larger;
        ends->most_bound = most;
    }
    ends->bound[ends->nbound++] = *bound;
    return TT_OK;
}

const struct tt_bound_end *tt_ends_bound(const struct tt_ends *ends, size_t *nbound)
{
    *nbound = ends->nbound;
    return ends->bound;
}

void tt_ends_copied(struct tt_ends *ends)
{
    ends->nbound = 0;
}

size_t tt_ends_bytes(const struct tt_ends *ends)
{
    return atomic_load_explicit(&ends->nbytes, memory_order_relaxed);
}

void tt_ends_describe(const struct tt_ends *ends, char *text, size_t size)
{
    const size_t in_gpu = atomic_load_explicit(&ends->gpu_bytes, memory_order_relaxed);
    const bool may = tt_ends_may_be_in_gpu(ends);
    char slots[96] = "";
    if (may || in_gpu)
        snprintf(slots, sizeof slots, ", and %.1f MiB of the GPU, for slots that RDMA devices use",
                 (double)in_gpu / (1 << 20));
    snprintf(text, size, "; its %sbridges to other hosts have %.1f MiB, pinned%s%s%s",
             ends->comm->fabric->mixed.is_mixed ? "relays to ranks without a GPU and " : "",
             (double)tt_ends_bytes(ends) / (1 << 20), slots,
             !may && ends->why[0] ? ", with slots of the host: " : "", may ? "" : ends->why);
}

/* ---- The end -------------------------------------------------------------------------------- */

void tt_ends_destroy(struct tt_ends *ends, struct tt_context *context)
{
    if (!ends) return;
    while (ends->pieces) {
        struct piece *piece = ends->pieces;
        ends->pieces = piece->next;
        tt_context_free_host(context, piece->pinned);
        if (piece->slots) let_go(piece->slots);
        free(piece);
    }
    free(ends->bound);
    free(ends);
}
