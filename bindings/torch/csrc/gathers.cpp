// Collectives that move blocks: all-gather, gather and scatter. Lists of tensors travel as
// one buffer, in which the tensors lie one behind the other.
#include <algorithm>
#include <functional>
#include <vector>

#include "backend.hpp"
#include "calls.hpp"

namespace tutti_torch
{

using c10d::OpType;

namespace
{

/* The list, whose tensors all have the type and so many elements. */
const Tensors &need_blocks(const std::vector<Tensors> &lists, const at::Tensor &block, int size,
                           const char *what, const char *name)
{
    TORCH_CHECK_VALUE(lists.size() == 1, name, ": there are ", lists.size(), " lists of ", what,
                      "s, expected 1");
    need_length(lists[0].size(), size, what, name);
    need_type(lists[0], block.scalar_type(), name);
    for (const at::Tensor &tensor : lists[0])
        TORCH_CHECK_VALUE(tensor.numel() == block.numel(), name, ": a tensor of the ", what,
                          "s has ", tensor.numel(), " elements, expected ", block.numel());
    return lists[0];
}

bool are_equal(const std::vector<size_t> &counts)
{
    return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

/* All ranks' blocks of so many elements into `to`. */
void gather_all(const void *from, void *to, const std::vector<size_t> &counts, tuttiDataType_t type,
                tuttiComm_t comm)
{
    if (are_equal(counts))
        check(tuttiAllGather(from, to, counts[0], type, comm, nullptr), comm);
    else
        check(tuttiAllGatherV(from, to, counts.data(), nullptr, type, comm, nullptr), comm);
}

} // namespace

WorkPointer Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                               const c10d::AllgatherOptions &options)
{
    const char *const name = "all_gather";
    const at::Tensor input = need_one(inputs, name);
    TORCH_CHECK_VALUE(outputs.size() == 1, name, ": there are ", outputs.size(),
                      " lists of outputs, expected 1");
    const Tensors list = outputs[0];
    need_length(list.size(), size_, "output", name);
    need_type(list, input.scalar_type(), name);
    for (const at::Tensor &tensor : list) need_output(tensor, name);
    TORCH_CHECK_VALUE(list[rank_].numel() == input.numel(), name, ": the output for this rank, ",
                      rank_, ", has ", list[rank_].numel(), " elements, expected ", input.numel(),
                      " as the input has");
    const Moved moved(input.scalar_type());
    auto call = [=, counts = counts_of(list, moved)](tuttiComm_t comm) {
        const at::Tensor bytes = bytes_for(list), whole = packed(input);
        gather_all(whole.const_data_ptr(), bytes.mutable_data_ptr(), counts, moved.type, comm);
        unpack_bytes(bytes, list);
    };
    return run(make_call(make_operation(OpType::ALLGATHER, "tutti:all_gather", inputs, list),
                         options, call));
}

WorkPointer Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &options)
{
    const char *const name = "all_gather_coalesced";
    TORCH_CHECK_VALUE(!inputs.empty(), name, ": the list of inputs has no tensors");
    need_length(outputs.size(), size_, "output", name);
    Tensors all;
    std::vector<size_t> counts;
    for (const Tensors &list : outputs) {
        TORCH_CHECK_VALUE(list.size() == inputs.size(), name, ": a list of outputs has ",
                          list.size(), " tensors, expected ", inputs.size(),
                          " as the list of inputs has");
        size_t nbytes = 0;
        for (const at::Tensor &tensor : list) {
            need_output(tensor, name);
            nbytes += bytes_of(tensor);
        }
        counts.push_back(nbytes);
        all.insert(all.end(), list.begin(), list.end());
    }
    for (size_t i = 0; i < inputs.size(); i++) {
        const at::Tensor &own = outputs[rank_][i];
        need_host(inputs[i], name);
        TORCH_CHECK_VALUE(
            own.numel() == inputs[i].numel() && own.scalar_type() == inputs[i].scalar_type(), name,
            ": output ", i, " for this rank has ", own.numel(), " elements of ", own.scalar_type(),
            ", expected ", inputs[i].numel(), " of ", inputs[i].scalar_type(), " as the input has");
    }
    auto call = [=, list = inputs](tuttiComm_t comm) {
        const at::Tensor from = packed_bytes(list), to = bytes_for(all);
        gather_all(from.const_data_ptr(), to.mutable_data_ptr(), counts, tuttiInt8, comm);
        unpack_bytes(to, all);
    };
    return run(make_call(
        make_operation(OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", inputs, all),
        options, call));
}

WorkPointer Backend::all_gather_single(at::Tensor &output, at::Tensor &input,
                                       const c10d::AllgatherOptions &options)
{
    const char *const name = "all_gather_single";
    need_multiple(output, input, size_, "output", name);
    need_output(output, name);
    const Moved moved(input.scalar_type());
    auto call = [to = output, from = input, moved, rank = rank_](tuttiComm_t comm) {
        const Pair pair(to, from, rank);
        check(tuttiAllGather(pair.sent(), pair.received(), moved.count(from.numel()), moved.type,
                             comm, nullptr),
              comm);
        pair.finish();
    };
    return run(make_call(
        make_operation(OpType::_ALLGATHER_BASE, "tutti:all_gather_single", {input}, {output}),
        options, call));
}

WorkPointer Backend::all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                 const c10d::AllgatherOptions &options)
{
    const char *const name = "all_gather_single_coalesced";
    need_pairs(outputs, inputs, name);
    for (size_t i = 0; i < inputs.size(); i++) {
        need_multiple(outputs[i], inputs[i], size_, "output", name);
        need_output(outputs[i], name);
    }
    auto call = [to = outputs, from = inputs, rank = rank_](tuttiComm_t comm) {
        const std::vector<Pair> pairs = make_pairs(to, from, rank);
        check(together(pairs.size(),
                       [&](size_t i) {
                           const Moved moved(from[i].scalar_type());
                           return tuttiAllGather(pairs[i].sent(), pairs[i].received(),
                                                 moved.count(from[i].numel()), moved.type, comm,
                                                 nullptr);
                       }),
              comm);
        for (const Pair &pair : pairs) pair.finish();
    };
    return run(make_call(make_operation(OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                                        "tutti:all_gather_single_coalesced", inputs, outputs),
                         options, call));
}

WorkPointer Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                            const c10d::GatherOptions &options)
{
    const char *const name = "gather";
    const at::Tensor input = need_one(inputs, name);
    need_rank(options.rootRank, size_, "root", name);
    const int root = static_cast<int>(options.rootRank);
    Tensors list;
    if (rank_ == root) {
        list = need_blocks(outputs, input, size_, "output", name);
        for (const at::Tensor &tensor : list) need_output(tensor, name);
    } else {
        TORCH_CHECK_VALUE(outputs.empty(), name, ": rank ", rank_,
                          " has outputs, expected none: only the root, ", root, ", has");
    }
    const Moved moved(input.scalar_type());
    auto call = [=, is_root = rank_ == root](tuttiComm_t comm) {
        const at::Tensor bytes = bytes_for(list), whole = packed(input);
        check(tuttiGather(whole.const_data_ptr(), is_root ? bytes.mutable_data_ptr() : nullptr,
                          moved.count(input.numel()), moved.type, root, comm, nullptr),
              comm);
        if (is_root) unpack_bytes(bytes, list);
    };
    return run(
        make_call(make_operation(OpType::GATHER, "tutti:gather", inputs, list), options, call));
}

WorkPointer Backend::gather_single(at::Tensor &output, at::Tensor &input,
                                   const c10d::GatherOptions &options)
{
    const char *const name = "gather_single";
    need_host(input, name);
    need_rank(options.rootRank, size_, "root", name);
    const int root = static_cast<int>(options.rootRank);
    const bool is_root = rank_ == root;
    if (is_root) {
        need_multiple(output, input, size_, "output", name);
        need_output(output, name);
    }
    const Moved moved(input.scalar_type());
    auto call = [=, to = output, from = input](tuttiComm_t comm) {
        const Pair pair(is_root ? to : from, from, is_root ? root : 0);
        check(tuttiGather(pair.sent(), is_root ? pair.received() : nullptr,
                          moved.count(from.numel()), moved.type, root, comm, nullptr),
              comm);
        if (is_root) pair.finish();
    };
    return run(make_call(make_operation(OpType::GATHER, "tutti:gather_single", {input},
                                        is_root ? Tensors{output} : Tensors{}),
                         options, call));
}

WorkPointer Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                             const c10d::ScatterOptions &options)
{
    const char *const name = "scatter";
    const at::Tensor output = need_one(outputs, name);
    need_output(output, name);
    need_rank(options.rootRank, size_, "root", name);
    const int root = static_cast<int>(options.rootRank);
    Tensors list;
    if (rank_ == root)
        list = need_blocks(inputs, output, size_, "input", name);
    else
        TORCH_CHECK_VALUE(inputs.empty(), name, ": rank ", rank_,
                          " has inputs, expected none: only the root, ", root, ", has");
    const Moved moved(output.scalar_type());
    auto call = [=, is_root = rank_ == root](tuttiComm_t comm) {
        const at::Tensor bytes = packed_bytes(list), room = room_for(output);
        check(tuttiScatter(is_root ? bytes.const_data_ptr() : nullptr, room.mutable_data_ptr(),
                           moved.count(output.numel()), moved.type, root, comm, nullptr),
              comm);
        unpack(room, output);
    };
    return run(
        make_call(make_operation(OpType::SCATTER, "tutti:scatter", list, outputs), options, call));
}

} // namespace tutti_torch
