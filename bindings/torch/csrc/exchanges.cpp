// Collectives whose ranks each have a block for each rank: reduce-scatter and all-to-all.
#include <algorithm>
#include <numeric>
#include <vector>

#include "backend.hpp"
#include "calls.hpp"

namespace tutti_torch
{

using c10d::OpType;

namespace
{

void need_scattered(const at::Tensor &output, const at::Tensor &input, int size, const char *name)
{
    need_multiple(input, output, size, "input", name);
    need_output(output, name);
}

/* How many elements each rank gets of a tensor whose rows are split so; empty: equally. */
std::vector<size_t> split_counts(const at::Tensor &tensor, const std::vector<int64_t> &splits,
                                 int size, const Moved &moved, const char *what)
{
    const char *const name = "all_to_all_single";
    const int64_t nrows = tensor.dim() ? tensor.size(0) : tensor.numel();
    if (splits.empty()) {
        TORCH_CHECK_VALUE(nrows % size == 0, name, ": the ", what, " has ", nrows,
                          " rows, expected a multiple of the number of ranks, ", size,
                          ", as no sizes of splits are given");
        return std::vector<size_t>(size, moved.count(tensor.numel() / size));
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), name, ": there are ",
                      splits.size(), " sizes of splits of the ", what, ", expected ", size,
                      ", one for each rank");
    int64_t left = nrows; /* to sum up the splits might overflow */
    const bool are_rows = std::all_of(splits.begin(), splits.end(), [&left](int64_t split) {
        const bool is_there = split >= 0 && split <= left;
        left -= is_there ? split : 0;
        return is_there;
    });
    TORCH_CHECK_VALUE(are_rows && !left, name, ": the sizes of splits of the ", what, " are ",
                      splits, ", expected none below 0 and a sum of ", nrows, ", its rows");
    const int64_t row = nrows ? tensor.numel() / nrows : 0;
    std::vector<size_t> counts;
    for (const int64_t split : splits) counts.push_back(moved.count(split * row));
    return counts;
}

/* Throws ValueError unless this rank's block for itself is as long in the output. */
void need_own_block(size_t sent, size_t received, const char *name)
{
    TORCH_CHECK_VALUE(sent == received, name, ": this rank's block for itself has ", sent,
                      " numbers in the input, and ", received, " in the output: expected as many");
}

std::vector<size_t> starts_of(const std::vector<size_t> &counts)
{
    std::vector<size_t> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), size_t{0});
    return starts;
}

void exchange(const void *from, const std::vector<size_t> &sent, void *to,
              const std::vector<size_t> &received, tuttiDataType_t type, tuttiComm_t comm)
{
    const std::vector<size_t> from_starts = starts_of(sent), to_starts = starts_of(received);
    check(tuttiAlltoAllV(from, sent.data(), from_starts.data(), to, received.data(),
                         to_starts.data(), type, comm, nullptr),
          comm);
}

} // namespace

WorkPointer Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                    const c10d::ReduceScatterOptions &options)
{
    const char *const name = "reduce_scatter";
    const at::Tensor output = need_one(outputs, name);
    need_output(output, name);
    TORCH_CHECK_VALUE(inputs.size() == 1, name, ": there are ", inputs.size(),
                      " lists of inputs, expected 1");
    const Tensors list = inputs[0];
    need_length(list.size(), size_, "input", name);
    need_type(list, output.scalar_type(), name);
    TORCH_CHECK_VALUE(list[rank_].numel() == output.numel(), name, ": the input for this rank, ",
                      rank_, ", has ", list[rank_].numel(), " elements, expected ", output.numel(),
                      " as the output has");
    const Reduction reduction(options.reduceOp, output.scalar_type(), name);
    std::vector<size_t> counts;
    bool is_even = true;
    for (const at::Tensor &tensor : list) {
        counts.push_back(reduction.count(tensor.numel()));
        is_even = is_even && counts.back() == counts[0];
    }
    auto call = [=](tuttiComm_t comm) {
        const at::Tensor bytes = packed_bytes(list), room = room_for(output);
        const void *from = bytes.const_data_ptr();
        void *to = room.mutable_data_ptr();
        check(reduction.with(comm,
                             [&](tuttiRedOp_t op) {
                                 return is_even ? tuttiReduceScatter(from, to, counts[0],
                                                                     reduction.type(), op, comm,
                                                                     nullptr)
                                                : tuttiReduceScatterV(from, to, counts.data(),
                                                                      reduction.type(), op, comm,
                                                                      nullptr);
                             }),
              comm);
        unpack(room, output);
    };
    return run(
        make_call(make_operation(OpType::REDUCE_SCATTER, "tutti:reduce_scatter", list, outputs),
                  options, call));
}

WorkPointer Backend::reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                           const c10d::ReduceScatterOptions &options)
{
    const char *const name = "reduce_scatter_single";
    need_scattered(output, input, size_, name);
    const Reduction reduction(options.reduceOp, output.scalar_type(), name);
    auto call = [reduction, to = output, from = input, rank = rank_](tuttiComm_t comm) {
        const Pair pair(to, from, rank);
        check(reduction.with(comm,
                             [&](tuttiRedOp_t op) {
                                 return tuttiReduceScatter(pair.sent(), pair.received(),
                                                           reduction.count(to.numel()),
                                                           reduction.type(), op, comm, nullptr);
                             }),
              comm);
        pair.finish();
    };
    return run(make_call(make_operation(OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_single",
                                        {input}, {output}),
                         options, call));
}

WorkPointer Backend::reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::ReduceScatterOptions &options)
{
    const char *const name = "reduce_scatter_single_coalesced";
    need_pairs(outputs, inputs, name);
    std::vector<Reduction> reductions;
    for (size_t i = 0; i < inputs.size(); i++) {
        need_scattered(outputs[i], inputs[i], size_, name);
        reductions.emplace_back(options.reduceOp, outputs[i].scalar_type(), name);
    }
    auto call = [reductions, to = outputs, from = inputs, rank = rank_](tuttiComm_t comm) {
        const std::vector<Pair> pairs = make_pairs(to, from, rank);
        check(together(pairs.size(),
                       [&](size_t i) {
                           return reductions[i].with(comm, [&](tuttiRedOp_t op) {
                               return tuttiReduceScatter(pairs[i].sent(), pairs[i].received(),
                                                         reductions[i].count(to[i].numel()),
                                                         reductions[i].type(), op, comm, nullptr);
                           });
                       }),
              comm);
        for (const Pair &pair : pairs) pair.finish();
    };
    return run(make_call(make_operation(OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                                        "tutti:reduce_scatter_single_coalesced", inputs, outputs),
                         options, call));
}

WorkPointer Backend::alltoall(Tensors &outputs, Tensors &inputs,
                              const c10d::AllToAllOptions &options)
{
    const char *const name = "all_to_all";
    need_length(inputs.size(), size_, "input", name);
    need_length(outputs.size(), size_, "output", name);
    need_type(inputs, inputs[0].scalar_type(), name);
    need_type(outputs, inputs[0].scalar_type(), name);
    for (const at::Tensor &tensor : outputs) need_output(tensor, name);
    const Moved moved(inputs[0].scalar_type());
    need_own_block(moved.count(inputs[rank_].numel()), moved.count(outputs[rank_].numel()), name);
    auto call = [=, to = outputs, from = inputs](tuttiComm_t comm) {
        const at::Tensor out = packed_bytes(from), in = bytes_for(to);
        exchange(out.const_data_ptr(), counts_of(from, moved), in.mutable_data_ptr(),
                 counts_of(to, moved), moved.type, comm);
        unpack_bytes(in, to);
    };
    return run(make_call(make_operation(OpType::ALLTOALL, "tutti:all_to_all", inputs, outputs),
                         options, call));
}

WorkPointer Backend::all_to_all_single(at::Tensor &output, at::Tensor &input,
                                       std::vector<int64_t> &output_splits,
                                       std::vector<int64_t> &input_splits,
                                       const c10d::AllToAllOptions &options)
{
    need_equal_types(output, input, "all_to_all_single");
    need_output(output, "all_to_all_single");
    const Moved moved(input.scalar_type());
    const auto sent = split_counts(input, input_splits, size_, moved, "input");
    const auto received = split_counts(output, output_splits, size_, moved, "output");
    need_own_block(sent[rank_], received[rank_], "all_to_all_single");
    auto call = [=, to = output, from = input](tuttiComm_t comm) {
        const Pair pair(to, from, -1);
        exchange(pair.sent(), sent, pair.received(), received, moved.type, comm);
        pair.finish();
    };
    return run(make_call(
        make_operation(OpType::ALLTOALL_BASE, "tutti:all_to_all_single", {input}, {output}),
        options, call));
}

} // namespace tutti_torch
