/* What kernels need of a call beside its program: memory on the GPU, what limits bindings, and what
 * the kernel is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "carrier/gpu_stream.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"
#include "device/tables.h"
#include "program/resolve.h"

/* A kernel has room for all ends of a channel, the binding and this. */
enum {
    MOST_TABLE_BYTES = TT_DEVICE_MOST_COPIED -
                       TT_DEVICE_MOST_ENDS * (int)sizeof(struct tt_device_end) -
                       (int)sizeof(struct tt_binding) - 64
};

/* ---- Binding -------------------------------------------------------------------------------- */

int tt_kernel_most_parts(const struct tt_kernel_part *on)
{
    const int channels = (int)tt_device_room_links(on->room)->nchannels - 1;
    return on->most_blocks < channels ? on->most_blocks : channels;
}

/* Keeps the memory until the communicator is freed; NULL: there is none. False: out of memory. */
static bool keep_old(struct tt_kernel_part *on, const struct tt_old_memory *memory)
{
    if (!memory->memory) return true;
    struct tt_old_memory *old = malloc(sizeof *old);
    if (!old) return false;
    *old = *memory;
    old->next = on->old;
    on->old = old;
    return true;
}

/* The program in device memory, where captured calls had it and the cache has forgotten it: else
 * its memory would be kept once more whenever calls are captured again. NULL: there is none. */
static void *take_captured(struct tt_kernel_part *on, const struct tt_cached *cached)
{
    struct tt_old_memory **at = &on->old;
    while (*at &&
           ((*at)->algorithm != cached->algorithm || (*at)->root != cached->loaded->program->root))
        at = &(*at)->next;
    if (!*at) return NULL;
    struct tt_old_memory *old = *at;
    void *memory = old->memory;
    *at = old->next;
    free(old);
    return memory;
}

static tt_status load_program(struct tt_comm_core *comm, struct tt_cached *cached)
{
    struct tt_kernel_part *on = comm->kernel;
    struct tt_device_program *device = malloc(sizeof *device);
    void *program;
    if (!device) return tt_fail(TT_ERR_SYSTEM, "out of memory for where a program lies on a GPU");
    tt_status status = tt_device_tables_create(
        cached->loaded->program, tt_device_room_links(on->room)->nchannels, device, &program);
    if (status) goto free_device;
    void *memory = take_captured(on, cached);
    cached->is_captured = memory;
    const bool is_there = memory;
    if (!is_there)
        status = tt_context_allocate_unset(tt_device_context(on->device), device->nbytes, &memory);
    if (status || is_there) free(program);
    if (status) goto free_device;
    cached->device_upload = is_there ? NULL : program;
    device->memory = memory;
    cached->device_memory = memory;
    cached->device_program = device;
    return TT_OK;
free_device:
    free(device);
    return status;
}

static tt_status ensure_scratch(struct tt_kernel_part *on, const struct tt_program *program,
                                const struct tt_binding *binding)
{
    size_t need =
        (size_t)program->nscratch * binding->parts[0].nparts * binding->piece * binding->element;
    if (need <= on->scratch_bytes) return TT_OK;
    /* Calls that were issued keep the one before. So all of them together are at most twice the
     * last one, however slowly the calls grow. */
    if (need < 2 * on->scratch_bytes) need = 2 * on->scratch_bytes;
    void *memory;
    TT_TRY(tt_context_allocate_unset(tt_device_context(on->device), need, &memory));
    if (!keep_old(on, &(struct tt_old_memory){.memory = on->scratch})) {
        tt_context_free(tt_device_context(on->device), memory);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an entry of the scratch list");
    }
    on->scratch = memory;
    on->scratch_bytes = need;
    return TT_OK;
}

/* As many copies of the program as any call before had have theirs. */
static tt_status bind_bridges(struct tt_kernel_part *on, struct tt_cached *cached, int copies)
{
    if (!on->proxy || copies <= cached->nbridged) return TT_OK;
    TT_TRY(tt_proxy_bind_program(on->proxy, cached->loaded->program, copies));
    cached->nbridged = copies;
    return TT_OK;
}

tt_status tt_kernel_load(struct tt_comm_core *comm, struct tt_cached *cached,
                         const struct tt_binding *binding)
{
    const tt_status status = cached->device_memory ? TT_OK : load_program(comm, cached);
    /* On other ranks a program that the kernel cannot run may be one that it can. */
    if (status == TT_ERR_USAGE) return tt_core_fail_call(comm, status);
    if (!status) TT_TRY(bind_bridges(comm->kernel, cached, binding->copies));
    return status ? status : ensure_scratch(comm->kernel, cached->loaded->program, binding);
}

void tt_kernel_unload(struct tt_comm_core *comm, struct tt_cached *cached)
{
    struct tt_kernel_part *on = comm->kernel;
    struct tt_old_memory memory = {.memory = cached->device_memory};
    if (cached->is_captured && !cached->device_upload) memory.algorithm = cached->algorithm;
    memory.root = cached->loaded->program->root;
    const bool keeps = cached->is_captured || tt_fabric_failure_text(comm->fabric)[0];
    if (!keeps || (!keep_old(on, &memory) && !cached->is_captured))
        tt_context_free(tt_device_context(on->device), cached->device_memory);
    cached->device_memory = NULL;
    free(cached->device_upload);
    cached->device_upload = NULL;
    free(cached->device_program);
    cached->device_program = NULL;
}

/* ---- Launch --------------------------------------------------------------------------------- */

/* Lines where every message of a round fits a link's lines, and is short enough that they are
 * faster: the blocks of a message are a piece each, rounded up to whole lines. Lines order nothing
 * but themselves: a barrier, which orders all memory, takes slots, and so does what goes over
 * bridges. */
static enum tt_device_protocol protocol_of(const struct tt_kernel_part *on,
                                           const struct tt_program *program,
                                           const struct tt_binding *binding)
{
    const struct tt_device_links *links = tt_device_room_links(on->room);
    const size_t lines = (binding->piece * binding->element + TT_LINE_DATA - 1) / TT_LINE_DATA;
    const size_t nbytes = (size_t)program->message * lines * TT_LINE_BYTES;
    const bool fits = binding->nrounds == 1 && nbytes <= links->line_bytes;
    const bool is_short = nbytes / 2 <= on->most_line_bytes;
    return program->nblocks && fits && is_short && !on->proxy ? TT_PROTOCOL_LINES
                                                              : TT_PROTOCOL_SLOTS;
}

/* A program that no kernel has read yet is copied in front of its first one, on that kernel's
 * stream: the host would wait for whatever the user's streams have in front. A captured call
 * (number 0) is launched without the library. */
static tt_status place_program(struct tt_kernel_part *on, struct tt_cached *cached, uint64_t number)
{
    const size_t nbytes = cached->device_program->nbytes;
    struct tt_context *context = tt_device_context(on->device);
    void *table;
    if (!cached->device_upload) return TT_OK;
    if (number) {
        TT_TRY(tt_device_ring_take(&on->ring, context, on->life.report,
                                   sizeof(struct tt_context_copy) + nbytes, number, &table));
        struct tt_context_copy *copy = table;
        *copy = (struct tt_context_copy){on->run.copies, cached->device_memory, copy + 1, nbytes};
        memcpy(copy + 1, cached->device_upload, nbytes);
        on->run.copies = copy;
    } else {
        TT_TRY(tt_context_upload(context, cached->device_memory, cached->device_upload, nbytes));
    }
    free(cached->device_upload);
    cached->device_upload = NULL;
    return TT_OK;
}

/* An end in pinned memory. */
struct end_copy {
    struct tt_context_copy copy;
    struct tt_device_end end;
};

/* Lists copies of the ends, in their order, in front of the copies that are listed already. */
static tt_status copy_ends(struct tt_kernel_part *on, const struct tt_bound_end *bound, size_t n,
                           uint64_t number)
{
    void *table;
    TT_TRY(tt_device_ring_take(&on->ring, tt_device_context(on->device), on->life.report,
                               n * sizeof(struct end_copy), number, &table));
    struct end_copy *copies = table;
    for (size_t i = n; i-- > 0; on->run.copies = &copies[i].copy)
        copies[i] = (struct end_copy){.copy = {.next = on->run.copies,
                                               .to = bound[i].to,
                                               .from = &copies[i].end,
                                               .nbytes = sizeof copies[i].end},
                                      .end = bound[i].end};
    return TT_OK;
}

tt_status tt_kernel_place_ends(struct tt_kernel_part *on, uint64_t number)
{
    size_t n = 0;
    const struct tt_bound_end *bound = on->ends ? tt_ends_bound(on->ends, &n) : NULL;
    if (!n) return TT_OK;
    if (number) TT_TRY(copy_ends(on, bound, n, number));
    for (size_t i = 0; !number && i < n; i++)
        TT_TRY(tt_context_upload(tt_device_context(on->device), bound[i].to, &bound[i].end,
                                 sizeof bound[i].end));
    tt_ends_copied(on->ends);
    return TT_OK;
}

/* The blocks of a count for each rank, for the kernel to read. */
static tt_status place_blocks(struct tt_kernel_part *on, const struct tt_call *from,
                              uint64_t number, const struct tt_own_block **blocks)
{
    const struct tt_binding *binding = from->binding;
    void *table;
    *blocks = NULL;
    if (!binding->table_at) return TT_OK;
    const size_t nbytes = binding->nbytes - binding->table_at;
    if (nbytes > MOST_TABLE_BYTES)
        return tt_fail(TT_ERR_USAGE,
                       "a kernel takes a count for each of at most %zu ranks, the call has %d",
                       (size_t)MOST_TABLE_BYTES / sizeof **blocks, from->loaded->program->nblocks);
    TT_TRY(tt_device_ring_take(&on->ring, tt_device_context(on->device), on->life.report, nbytes,
                               number, &table));
    memcpy(table, tt_binding_own_block(binding, 0), nbytes);
    *blocks = table;
    return TT_OK;
}

static_assert(!(INT32_MAX & TT_DEVICE_EXCHANGE_BIT), "tt_signature_alone leaves the bit clear");

/* The row of the memory that the call's kernel may send from; origin: as in the device's call.
 * number: 0: a captured call, whose replays do not look at whether peers still have it open. */
static tt_status find_row(const struct tt_pending_call *pending, uint64_t number, int buffer,
                          const char *origin, const uint64_t **row)
{
    const struct tt_call *from = &pending->call;
    const struct tt_program *program = from->loaded->program;
    struct tt_footprint at;
    *row = NULL;
    if (!pending->comm->kernel->ranges || !number || !program->held[buffer].number) return TT_OK;
    tt_footprint_of(program, from->binding, &at);
    const size_t nbytes = at.end[buffer] - at.begin[buffer];
    if (!nbytes) return TT_OK;
    const void *memory = (const void *)((uintptr_t)origin + at.begin[buffer]);
    return tt_ranges_row(pending->comm, memory, nbytes, number, row);
}

tt_status tt_kernel_fill(const struct tt_pending_call *pending, uint64_t number,
                         struct tt_device_call *call)
{
    struct tt_kernel_part *on = pending->comm->kernel;
    const struct tt_call *from = &pending->call;
    const struct tt_program *program = from->loaded->program;
    const struct tt_device_links *links = tt_device_room_links(on->room);
    const struct tt_own_block *blocks;
    TT_TRY(tt_kernel_place_ends(on, number));
    TT_TRY(place_program(on, pending->cached, number));
    TT_TRY(place_blocks(on, from, number, &blocks));
    *call = (struct tt_device_call){
        .program = *pending->cached->device_program,
        .binding = *from->binding,
        .blocks = blocks,
        .table_bytes = blocks ? from->binding->nbytes - from->binding->table_at : 0,
        .origin = {(char *)((uintptr_t)from->input - from->binding->skipped[TT_INPUT]),
                   (char *)((uintptr_t)from->output - from->binding->skipped[TT_OUTPUT]),
                   on->scratch},
        .links = *links,
        .state = on->state,
        .report = on->life.report,
        .scalar = from->scalar,
        .reference_bytes = TT_REFERENCE_BYTES,
        .fold = {.type = from->reduction.type,
                 .op = from->reduction.op,
                 .element = (uint32_t)from->binding->element,
                 .nranks = (uint32_t)program->nranks},
        .protocol = protocol_of(on, program, from->binding),
        .signature = tt_signature_alone(from->signature),
        .nblocks = (uint32_t)(from->binding->copies * program->nchannels),
        .number = number};
    for (int buffer = TT_INPUT; buffer <= TT_OUTPUT; buffer++)
        TT_TRY(find_row(pending, number, buffer, call->origin[buffer], &call->opened[buffer]));
    if (tt_call_is_done_already(from)) call->binding.nrounds = 0;
    call->binding.table_at = blocks ? sizeof call->binding : 0;
    memcpy(&call->fold.scalar, from->reduction.scalar, sizeof call->fold.scalar);
    return TT_OK;
}
