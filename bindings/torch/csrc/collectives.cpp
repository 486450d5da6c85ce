// Collectives whose ranks all have one tensor of the same size: broadcast, all-reduce, reduce, and
// the barrier.
#include "backend.hpp"
#include "calls.hpp"

namespace tutti_torch
{

using c10d::OpType;

WorkPointer Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    const char *const name = "broadcast";
    const at::Tensor tensor = need_one(tensors, name);
    need_rank(options.rootRank, size_, "root", name);
    const int root = static_cast<int>(options.rootRank);
    if (rank_ != root) need_output(tensor, name);
    const Moved moved(tensor.scalar_type());
    const bool is_root = rank_ == root;
    return run(make_call(make_operation(OpType::BROADCAST, "tutti:broadcast", tensors, tensors),
                         options, [=](tuttiComm_t comm) {
                             const at::Tensor whole = is_root ? packed(tensor) : room_for(tensor);
                             void *memory = is_root ? const_cast<void *>(whole.const_data_ptr())
                                                    : whole.mutable_data_ptr();
                             check(tuttiBroadcast(memory, memory, moved.count(tensor.numel()),
                                                  moved.type, root, comm, nullptr),
                                   comm);
                             if (!is_root) unpack(whole, tensor);
                         }));
}

WorkPointer Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    const char *const name = "all_reduce";
    if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, options);
    const at::Tensor tensor = need_one(tensors, name);
    need_output(tensor, name);
    const Reduction reduction(options.reduceOp, tensor.scalar_type(), name);
    return run(make_call(make_operation(OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors),
                         options, [=](tuttiComm_t comm) {
                             const Pair pair(tensor, tensor, 0);
                             check(reduction.with(comm,
                                                  [&](tuttiRedOp_t op) {
                                                      return tuttiAllReduce(
                                                          pair.received(), pair.received(),
                                                          reduction.count(tensor.numel()),
                                                          reduction.type(), op, comm, nullptr);
                                                  }),
                                   comm);
                             pair.finish();
                         }));
}

WorkPointer Backend::allreduce_coalesced(Tensors &tensors,
                                         const c10d::AllreduceCoalescedOptions &options)
{
    const char *const name = "all_reduce_coalesced";
    TORCH_CHECK_VALUE(!tensors.empty(), name, ": the list has no tensors");
    need_type(tensors, tensors[0].scalar_type(), name);
    for (const at::Tensor &tensor : tensors) need_output(tensor, name);
    const Reduction reduction(options.reduceOp, tensors[0].scalar_type(), name);
    const Tensors all = tensors;
    auto call = [=](tuttiComm_t comm) {
        const Tensors whole = packed_apart(all);
        check(reduction.with(comm,
                             [&](tuttiRedOp_t op) {
                                 return together(whole.size(), [&](size_t i) {
                                     void *memory = whole[i].mutable_data_ptr();
                                     return tuttiAllReduce(memory, memory,
                                                           reduction.count(whole[i].numel()),
                                                           reduction.type(), op, comm, nullptr);
                                 });
                             }),
              comm);
        for (size_t i = 0; i < all.size(); i++) unpack(whole[i], all[i]);
    };
    return run(make_call(
        make_operation(OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced", tensors, tensors),
        options, call));
}

WorkPointer Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const char *const name = "reduce";
    const at::Tensor tensor = need_one(tensors, name);
    need_rank(options.rootRank, size_, "root", name);
    const int root = static_cast<int>(options.rootRank);
    if (rank_ == root) need_output(tensor, name);
    const Reduction reduction(options.reduceOp, tensor.scalar_type(), name);
    const bool is_root = rank_ == root;
    return run(make_call(
        make_operation(OpType::REDUCE, "tutti:reduce", tensors, tensors), options,
        [=](tuttiComm_t comm) {
            const at::Tensor whole = packed(tensor);
            void *to = is_root ? whole.mutable_data_ptr() : nullptr;
            check(reduction.with(comm,
                                 [&](tuttiRedOp_t op) {
                                     return tuttiReduce(whole.const_data_ptr(), to,
                                                        reduction.count(whole.numel()),
                                                        reduction.type(), op, root, comm, nullptr);
                                 }),
                  comm);
            if (is_root) unpack(whole, tensor);
        }));
}

WorkPointer Backend::barrier(const c10d::BarrierOptions &options)
{
    TORCH_CHECK_VALUE(!options.device || options.device->is_cpu(), "barrier: the device is ",
                      *options.device, ", expected cpu: tutti serves no other one");
    return run(make_call(make_operation(OpType::BARRIER, "tutti:barrier", {}, {}), options,
                         [](tuttiComm_t comm) { check(tuttiBarrier(comm, nullptr), comm); }));
}

} // namespace tutti_torch
