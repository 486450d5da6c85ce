/* Makes the calls of a step, or counts them. */
#include "calls.h"

#include "ops/tensor_type.h"

/* Of the types of tensors, of sums, which are doubles, and of logits as integers. */
static size_t size_of(tuttiDataType_t type)
{
    for (int t = 0; t < TR_NUM_TYPES; ++t)
        if (tr_type_datatype((enum tr_type)t) == type) return tr_type_bytes((enum tr_type)t);
    return type == tuttiFloat64 ? sizeof(double) : sizeof(uint32_t);
}

/* Whether the group is of a dry mesh, where the call is counted: the whole message, as
 * tuttiCommCallCounters counts it. */
static bool is_counted(const struct tr_group *group, enum tr_traffic_kind kind, size_t n,
                       tuttiDataType_t type)
{
    if (!group->tally) return false;
    group->tally->traffic[kind].calls++;
    group->tally->traffic[kind].bytes += n * size_of(type);
    return true;
}

tr_status tr_all_reduce(const struct tr_group *group, tuttiStream_t stream, void *x, size_t n,
                        tuttiDataType_t type, tuttiRedOp_t op, const char *what)
{
    if (is_counted(group, TR_ALL_REDUCE, n, type)) return TR_OK;
    return tr_group_check(group, tuttiAllReduce(x, x, n, type, op, group->comm, stream), what);
}

tr_status tr_reduce_scatter(const struct tr_group *group, tuttiStream_t stream, const void *from,
                            void *to, size_t n, tuttiDataType_t type, const char *what)
{
    if (is_counted(group, TR_REDUCE_SCATTER, n * (size_t)group->n, type)) return TR_OK;
    return tr_group_check(
        group, tuttiReduceScatter(from, to, n, type, tuttiSum, group->comm, stream), what);
}

tr_status tr_all_gather(const struct tr_group *group, tuttiStream_t stream, const void *from,
                        void *to, size_t n, tuttiDataType_t type, const char *what)
{
    if (is_counted(group, TR_ALL_GATHER, n * (size_t)group->n, type)) return TR_OK;
    return tr_group_check(group, tuttiAllGather(from, to, n, type, group->comm, stream), what);
}

static size_t sum_of(const struct tr_group *group, const struct tr_parcels *parcels)
{
    size_t sum = 0;
    for (int rank = 0; rank < group->n; ++rank) sum += parcels->counts[rank];
    return sum;
}

tr_status tr_all_to_all(const struct tr_group *group, tuttiStream_t stream, const void *from,
                        const struct tr_parcels *sent, void *to, const struct tr_parcels *received,
                        tuttiDataType_t type, const char *what)
{
    const size_t out = sum_of(group, sent), in = sum_of(group, received);
    if (is_counted(group, TR_ALL_TO_ALL, out > in ? out : in, type)) return TR_OK;
    return tr_group_check(group,
                          tuttiAlltoAllV(from, sent->counts, sent->displs, to, received->counts,
                                         received->displs, type, group->comm, stream),
                          what);
}

tr_status tr_send(const struct tr_group *group, tuttiStream_t stream, const void *from, size_t n,
                  tuttiDataType_t type, int peer, const char *what)
{
    if (is_counted(group, TR_SEND, n, type)) return TR_OK;
    return tr_group_check(group, tuttiSend(from, n, type, peer, group->comm, stream), what);
}

tr_status tr_receive(const struct tr_group *group, tuttiStream_t stream, void *to, size_t n,
                     tuttiDataType_t type, int peer, const char *what)
{
    if (is_counted(group, TR_RECEIVE, n, type)) return TR_OK;
    return tr_group_check(group, tuttiRecv(to, n, type, peer, group->comm, stream), what);
}

tr_status tr_calls_begin(const struct tr_group *group, const char *what)
{
    return group->tally ? TR_OK : tr_group_check(group, tuttiGroupStart(), what);
}

tr_status tr_calls_end(const struct tr_group *group, const char *what)
{
    return group->tally ? TR_OK : tr_group_check(group, tuttiGroupEnd(), what);
}

tr_status tr_calls_wait(const struct tr_group *group, const char *what)
{
    if (group->tally) return TR_OK;
    return tr_group_check(group, tuttiStreamSynchronize(group->stream), what);
}

tr_status tr_calls_record(const struct tr_group *group, tuttiEvent_t event)
{
    if (group->tally) return TR_OK;
    return tr_group_check(group, tuttiEventRecord(event, group->stream), "recording an event");
}

tr_status tr_calls_follow(const struct tr_group *group, tuttiEvent_t event, const char *what)
{
    if (group->tally) return TR_OK;
    return tr_group_check(group, tuttiStreamWaitEvent(group->stream, event), what);
}
