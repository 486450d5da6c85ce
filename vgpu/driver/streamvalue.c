/* Stream memory operations: write a word, wait for a word, and batches of both.
 *
 * Each is a grid of one thread to the memory model. A wait reads the newest value there is, with
 * acquire at scope .sys; a write has release at scope .sys. */
#include "memory_internal.h"
#include "run.h"

#include <string.h>

VD_PER_THREAD(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32);
VD_PER_THREAD(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64);
VD_PER_THREAD(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32);
VD_PER_THREAD(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64);
VD_PER_THREAD(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp);

enum { MOST_IN_A_BATCH = 255 };

static CUresult begin(struct vd_item *item, char error[512])
{
    (void)error;
    struct vg_model *model = vg_machine_model(vd.machine);
    item->clock = vg_model_grid_begin(model, item->number, item->context->device->gpu.number, 1, 1,
                                      item->past);
    if (item->clock == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    item->block = vg_model_block_begin(item->clock, 0);
    return item->block != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void end(struct vd_item *item)
{
    if (item->block != NULL) vg_model_block_end(item->block);
    if (item->clock != NULL) vg_model_grid_end(item->clock, item->past);
    item->block = NULL;
    item->clock = NULL;
}

/* The region with the word, or NULL: it was freed. */
static struct vg_region *region_of(const struct vd_value *value, uint64_t *offset)
{
    struct vg_region *region = vd_region_find(value->address);
    if (region == NULL || region->freed) return NULL;
    *offset = value->address - region->address;
    return *offset + value->nbytes <= region->nbytes ? region : NULL;
}

static enum vg_progress gone(CUresult *fault, const char **text)
{
    *fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    *text = "a stream memory operation: its memory was freed before it ran\n";
    return VG_FAULTED;
}

static bool raise_word(void *arg, const void *old, void *value)
{
    const uint64_t *wanted = arg;
    uint64_t is;
    memcpy(&is, old, sizeof is);
    if (is >= *wanted) return false;
    memcpy(value, wanted, sizeof *wanted);
    return true;
}

static enum vg_progress write_step(struct vd_item *item, CUresult *fault, const char **text)
{
    static const struct vg_how how[] = {{.nbytes = 4, .order = VG_RELEASE, .scope = VG_SCOPE_SYS},
                                        {.nbytes = 8, .order = VG_RELEASE, .scope = VG_SCOPE_SYS}};
    struct vd_value *value = &item->op.value;
    uint64_t offset, old;
    struct vg_region *region = region_of(value, &offset);
    if (region == NULL) return gone(fault, text);
    if (value->raise)
        vg_model_rmw(item->block, 0, region, offset, &how[1], raise_word, &value->value, &old);
    else
        vg_model_store(item->block, 0, region, offset, &how[value->nbytes == 8], &value->value);
    for (uint64_t i = offset; region->defined != NULL && i < offset + value->nbytes; i++)
        region->defined[i / 8] |= (unsigned char)(1u << (i % 8));
    return VG_DONE;
}

static bool only_reads(void *arg, const void *old, void *value)
{
    (void)arg;
    (void)old;
    (void)value;
    return false;
}

static bool holds(const struct vd_value *wanted, uint64_t is)
{
    const uint64_t mask = wanted->nbytes == 4 ? UINT32_MAX : UINT64_MAX;
    const uint64_t value = wanted->value & mask, less = (is - value) & mask;
    switch (wanted->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return less <= mask / 2; /* cyclic: the difference as a signed number is not negative */
    case CU_STREAM_WAIT_VALUE_EQ:
        return is == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (is & value) != 0;
    default:
        return (~(is | value) & mask) != 0;
    }
}

static enum vg_progress await_step(struct vd_item *item, CUresult *fault, const char **text)
{
    static const struct vg_how how[] = {{.nbytes = 4, .order = VG_ACQUIRE, .scope = VG_SCOPE_SYS},
                                        {.nbytes = 8, .order = VG_ACQUIRE, .scope = VG_SCOPE_SYS}};
    const struct vd_value *value = &item->op.value;
    uint64_t offset, is = 0;
    struct vg_region *region = region_of(value, &offset);
    if (region == NULL) return gone(fault, text);
    vg_model_rmw(item->block, 0, region, offset, &how[value->nbytes == 8], only_reads, NULL, &is);
    if (holds(value, is)) return VG_DONE;
    item->outside = region->reachable;
    return VG_WAITING;
}

const struct vd_runner vd_write_runner = {begin, write_step, end};
const struct vd_runner vd_await_runner = {begin, await_step, end};

static CUresult make(struct vd_op *op, enum vd_what what, CUdeviceptr address, uint64_t value,
                     uint8_t nbytes, unsigned flags)
{
    const unsigned known = what == VD_WRITE ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
                                            : 3u | CU_STREAM_WAIT_VALUE_FLUSH;
    uint64_t offset;
    *op = (struct vd_op){
        .what = what,
        .value = {.address = address, .value = value, .nbytes = nbytes, .flags = flags}};
    if ((flags & ~known) != 0 || address % nbytes != 0 || region_of(&op->value, &offset) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    /* CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0. */
    return what == VD_AWAIT && (flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                         : CUDA_SUCCESS;
}

static CUresult enqueue(CUstream handle, enum vd_what what, CUdeviceptr address, uint64_t value,
                        uint8_t nbytes, unsigned flags, bool per_thread)
{
    struct CUstream_st *stream;
    struct vd_op op;
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS) result = make(&op, what, address, value, nbytes, flags);
    return result == CUDA_SUCCESS ? vd_stream_enqueue(stream, &op, NULL) : result;
}

/* The operation of an entry of a batch; VD_NOTHING: none is needed. */
static CUresult make_entry(struct vd_op *op, const CUstreamBatchMemOpParams *entry)
{
    switch (entry->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return make(op, VD_WRITE, entry->writeValue.address, entry->writeValue.value, 4,
                    entry->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return make(op, VD_WRITE, entry->writeValue.address, entry->writeValue.value64, 8,
                    entry->writeValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return make(op, VD_AWAIT, entry->waitValue.address, entry->waitValue.value, 4,
                    entry->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return make(op, VD_AWAIT, entry->waitValue.address, entry->waitValue.value64, 8,
                    entry->waitValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
        *op = (struct vd_op){.what = VD_NOTHING}; /* each operation ends before the next begins */
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *entries,
                      unsigned flags, bool per_thread)
{
    struct CUstream_st *stream;
    struct vd_op ops[MOST_IN_A_BATCH];
    CUresult result = vd_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0 || count > MOST_IN_A_BATCH || (count > 0 && entries == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = make_entry(&ops[i], &entries[i]);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (ops[i].what != VD_NOTHING) result = vd_stream_enqueue(stream, &ops[i], NULL);
    return result;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_WRITE, address, value, 4, flags, false));
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_WRITE, address, value, 4, flags, true));
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_WRITE, address, value, 8, flags, false));
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_WRITE, address, value, 8, flags, true));
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_AWAIT, address, value, 4, flags, false));
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_AWAIT, address, value, 4, flags, true));
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_AWAIT, address, value, 8, flags, false));
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags)
{
    VD_ENTER();
    return vd_leave(enqueue(stream, VD_AWAIT, address, value, 8, flags, true));
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *entries,
                            unsigned flags)
{
    VD_ENTER();
    return vd_leave(batch(stream, count, entries, flags, false));
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams *entries, unsigned flags)
{
    VD_ENTER();
    return vd_leave(batch(stream, count, entries, flags, true));
}
