/* The ring of tables: each is a header and what its call asked for, one after the other; and tables
 * that are kept, of sizes that are powers of two, so that a table that is given back fits another
 * call. */
#include "carrier/kernel/ring.h"

#include <stdlib.h>

enum { LEAST_BYTES = 1 << 16 };

/* Before each table. */
struct tt_table_header {
    uint64_t number;              /* of the call; 0: nobody's, up to the end of the memory */
    uint64_t nbytes;              /* with the header */
    _Atomic uint64_t held;        /* 1: the host still uses the table */
    struct tt_table_header *next; /* of the kept tables of this size that nobody has */
};
static_assert(sizeof(struct tt_table_header) == 32, "a power of two: tables are multiples of it");

static struct tt_table_header *header_at(const struct tt_device_ring *ring, uint64_t at)
{
    return (struct tt_table_header *)(ring->memory + (at & (ring->nbytes - 1)));
}

/* Takes back the tables of calls that have ended: their kernels have read them (A5 of port.cuh),
 * and the host has, which looks at a call later. */
static void take_back(struct tt_device_ring *ring, const struct tt_device_report *report)
{
    const uint64_t ended = __atomic_load_n(&report->ended, __ATOMIC_ACQUIRE);
    while (ring->begin != ring->end) {
        const struct tt_table_header *header = header_at(ring, ring->begin);
        if (header->number > ended) return;
        /* release: tt_exchange_release */
        if (atomic_load_explicit(&header->held, memory_order_acquire)) return;
        ring->begin += header->nbytes;
    }
}

/* Memory that is freed with the ring. */
static tt_status allocate(struct tt_device_ring *ring, struct tt_context *context, size_t nbytes,
                          void **memory)
{
    struct tt_ring_memory *held = malloc(sizeof *held);
    if (!held) return tt_fail(TT_ERR_SYSTEM, "out of memory for the tables of calls on a GPU");
    const tt_status status = tt_context_allocate_host(context, nbytes, memory);
    if (status) {
        free(held);
        return status;
    }
    *held = (struct tt_ring_memory){*memory, ring->all};
    ring->all = held;
    return TT_OK;
}

/* The tables in the old memory stay where they are. */
static tt_status grow(struct tt_device_ring *ring, struct tt_context *context, size_t need)
{
    size_t nbytes = ring->nbytes ? 2 * ring->nbytes : LEAST_BYTES;
    void *memory;
    while (nbytes < 2 * need) nbytes *= 2;
    TT_TRY(allocate(ring, context, nbytes, &memory));
    ring->memory = memory;
    ring->nbytes = nbytes;
    ring->begin = ring->end = 0;
    return TT_OK;
}

/* Bytes that are passed over so that a table of `need` bytes is one piece. */
static size_t passed_over(const struct tt_device_ring *ring, size_t need)
{
    const size_t left = ring->nbytes - (size_t)(ring->end & (ring->nbytes - 1));
    return need > left ? left : 0;
}

static bool has_room(const struct tt_device_ring *ring, size_t need)
{
    const size_t used = (size_t)(ring->end - ring->begin);
    return need <= ring->nbytes && passed_over(ring, need) + need <= ring->nbytes - used;
}

/* ---- Tables that are kept ------------------------------------------------------------------- */

/* The class of sizes, 1 << class bytes, of a table with its header. */
static unsigned class_of(size_t need)
{
    unsigned class = 7;
    while ((size_t)1 << class < need) class ++;
    return class;
}

/* A table that nobody has had yet. Large ones are memory of their own. */
static tt_status carve(struct tt_device_ring *ring, struct tt_context *context, size_t nbytes,
                       struct tt_table_header **header)
{
    struct tt_kept_tables *kept = &ring->kept;
    void *memory;
    if (nbytes > LEAST_BYTES) {
        TT_TRY(allocate(ring, context, nbytes, &memory));
        *header = memory;
        return TT_OK;
    }
    if (kept->left < nbytes) {
        TT_TRY(allocate(ring, context, LEAST_BYTES, &memory));
        kept->memory = memory;
        kept->left = LEAST_BYTES;
    }
    kept->left -= nbytes;
    *header = (struct tt_table_header *)(kept->memory + kept->left);
    return TT_OK;
}

tt_status tt_device_ring_keep(struct tt_device_ring *ring, struct tt_context *context,
                              size_t nbytes, void **table)
{
    const unsigned class = class_of(sizeof(struct tt_table_header) + nbytes);
    struct tt_table_header *header;
    if (class >= TT_TABLE_CLASSES)
        return tt_fail(TT_ERR_SYSTEM, "%zu bytes for the table of a call on a GPU", nbytes);
    header = ring->kept.unused[class];
    if (header)
        ring->kept.unused[class] = header->next;
    else
        TT_TRY(carve(ring, context, (size_t)1 << class, &header));
    *header = (struct tt_table_header){.nbytes = (size_t)1 << class};
    *table = header + 1;
    return TT_OK;
}

void tt_device_ring_put(struct tt_device_ring *ring, void *table)
{
    if (!table) return;
    struct tt_table_header *header = (struct tt_table_header *)table - 1;
    const unsigned class = class_of(header->nbytes);
    header->next = ring->kept.unused[class];
    ring->kept.unused[class] = header;
}

/* ---- The ring ------------------------------------------------------------------------------- */

tt_status tt_device_ring_take(struct tt_device_ring *ring, struct tt_context *context,
                              const struct tt_device_report *report, size_t nbytes, uint64_t number,
                              void **table)
{
    const size_t unit = sizeof(struct tt_table_header);
    if (!number) return tt_device_ring_keep(ring, context, nbytes, table);
    const size_t need = unit + (nbytes + unit - 1) / unit * unit;
    if (ring->memory) take_back(ring, report);
    if (!ring->memory || !has_room(ring, need)) TT_TRY(grow(ring, context, need));
    const size_t over = passed_over(ring, need);
    if (over) *header_at(ring, ring->end) = (struct tt_table_header){.nbytes = over};
    ring->end += over;
    struct tt_table_header *header = header_at(ring, ring->end);
    *header = (struct tt_table_header){.number = number, .nbytes = need};
    ring->end += need;
    *table = header + 1;
    return TT_OK;
}

_Atomic uint64_t *tt_device_ring_hold(void *table)
{
    struct tt_table_header *header = (struct tt_table_header *)table - 1;
    atomic_store_explicit(&header->held, 1, memory_order_relaxed);
    return &header->held;
}

void tt_device_ring_free(struct tt_device_ring *ring, struct tt_context *context)
{
    while (ring->all) {
        struct tt_ring_memory *held = ring->all;
        ring->all = held->next;
        tt_context_free_host(context, held->memory);
        free(held);
    }
    *ring = (struct tt_device_ring){.memory = NULL};
}
