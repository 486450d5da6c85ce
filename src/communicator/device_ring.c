/* The ring of tables: each is a header and what its call asked for, one after the other. */
#include "communicator/device_ring.h"

#include <stdlib.h>

enum { LEAST_BYTES = 1 << 16 };

/* Before each table. */
struct header {
    uint64_t number; /* of the call; 0: nobody's, up to the end of the memory */
    uint64_t nbytes; /* with the header */
};

static struct header *header_at(const struct tt_device_ring *ring, uint64_t at)
{
    return (struct header *)(ring->memory + (at & (ring->nbytes - 1)));
}

/* Takes back the tables of calls that have ended: their kernels have read them (A5 of port.cuh).
 * None after a failure, which the table says more of. */
static void take_back(struct tt_device_ring *ring, const struct tt_device_report *report)
{
    const uint64_t ended = __atomic_load_n(&report->ended, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&report->failure, __ATOMIC_RELAXED)) return;
    while (ring->begin != ring->end) {
        const struct header *header = header_at(ring, ring->begin);
        if (header->number > ended) return;
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

tt_status tt_device_ring_take(struct tt_device_ring *ring, struct tt_context *context,
                              const struct tt_device_report *report, size_t nbytes, uint64_t number,
                              void **table)
{
    const size_t unit = sizeof(struct header);
    if (!number) return allocate(ring, context, nbytes, table);
    const size_t need = unit + (nbytes + unit - 1) / unit * unit;
    if (ring->memory) take_back(ring, report);
    if (!ring->memory || !has_room(ring, need)) TT_TRY(grow(ring, context, need));
    const size_t over = passed_over(ring, need);
    if (over) *header_at(ring, ring->end) = (struct header){.nbytes = over};
    ring->end += over;
    struct header *header = header_at(ring, ring->end);
    *header = (struct header){number, need};
    ring->end += need;
    *table = header + 1;
    return TT_OK;
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
