// What the collectives of the backend have in common.
#ifndef TUTTI_TORCH_CALLS_H
#define TUTTI_TORCH_CALLS_H

#include <utility>
#include <vector>

#include "deadlines.hpp"
#include "errors.hpp"
#include "tensors.hpp"
#include "types.hpp"
#include "work.hpp"

namespace tutti_torch
{

/* One tensor for reading and one for writing, as a call takes them. `rank` is where the smaller
 * tensor may lie in the larger one, in sizes of the smaller one; -1: the two must lie apart. */
struct Pair {
    Pair(const at::Tensor &output, const at::Tensor &input, int rank)
        : to(input.is_same(output) ? packed(input) : room_for(output)),
          from(apart(input.is_same(output) ? to : packed(input), to, rank)), output_(output)
    {
    }
    void finish() const
    {
        unpack(to, output_);
    }
    const void *sent() const
    {
        return from.const_data_ptr();
    }
    void *received() const
    {
        return to.mutable_data_ptr();
    }

    const at::Tensor to, from;

  private:
    const at::Tensor output_;
};

/* The pairs of calls that are made together: an input has no memory that another call writes. */
inline std::vector<Pair> make_pairs(const std::vector<at::Tensor> &outputs,
                                    const std::vector<at::Tensor> &inputs, int rank)
{
    std::vector<Pair> pairs;
    for (size_t i = 0; i < outputs.size(); i++)
        pairs.emplace_back(outputs[i], apart_from_others(inputs, i, outputs), rank);
    return pairs;
}

/* How many elements each tensor has, as they are moved. */
inline std::vector<size_t> counts_of(const std::vector<at::Tensor> &tensors, const Moved &moved)
{
    std::vector<size_t> counts;
    for (const at::Tensor &tensor : tensors) counts.push_back(moved.count(tensor.numel()));
    return counts;
}

/* Makes issue(i) for each i < n together, as a group of tutti's. */
template <class Issue> tuttiResult_t together(size_t n, Issue issue)
{
    tuttiResult_t result = tuttiGroupStart();
    if (result != tuttiSuccess) return result;
    for (size_t i = 0; i < n && result == tuttiSuccess; i++) result = issue(i);
    const tuttiResult_t ended = tuttiGroupEnd(); /* the error of issue, where there was one */
    return result != tuttiSuccess ? result : ended;
}

inline Operation make_operation(c10d::OpType type, const char *title, std::vector<at::Tensor> in,
                                std::vector<at::Tensor> out)
{
    Operation operation{.type = type, .title = title};
    operation.inputs = std::move(in);
    operation.outputs = std::move(out);
    return operation;
}

/* An operation with the deadline of its options. */
template <class Options, class Call>
Operation make_call(Operation operation, const Options &options, Call call)
{
    if (options.timeout != c10d::kUnsetTimeout) need_time(options.timeout, operation.title);
    operation.timeout = options.timeout;
    operation.is_async = options.asyncOp;
    operation.call = std::move(call);
    return operation;
}

} // namespace tutti_torch

#endif
