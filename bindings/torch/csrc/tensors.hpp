// Tensors as tutti's calls take them: memory of the host, contiguous.
#ifndef TUTTI_TORCH_TENSORS_H
#define TUTTI_TORCH_TENSORS_H

#include <vector>

#include <ATen/ATen.h>

namespace tutti_torch
{

/* Throws ValueError unless the tensor lies densely or with strides in memory of the host. `name` is
 * the collective's, here and below. */
void need_host(const at::Tensor &tensor, const char *name);
/* As need_host, and the call will write the tensor: ValueError where elements share memory. */
void need_output(const at::Tensor &tensor, const char *name);
/* Throws ValueError unless the list has one tensor, which need_host accepts; returns it. */
at::Tensor &need_one(std::vector<at::Tensor> &tensors, const char *name);
/* Throws TypeError unless all have the type, ValueError unless need_host accepts them. */
void need_type(const std::vector<at::Tensor> &tensors, at::ScalarType type, const char *name);
/* Throws TypeError unless both have one type, ValueError unless need_host accepts them. */
void need_equal_types(const at::Tensor &a, const at::Tensor &b, const char *name);
/* As need_equal_types, and ValueError unless `whole`, which is the `what`, "input" or "output", has
 * `size` times the elements of `part`. */
void need_multiple(const at::Tensor &whole, const at::Tensor &part, int size, const char *what,
                   const char *name);
/* Throws ValueError unless there are as many outputs as inputs, and at least one. */
void need_pairs(const std::vector<at::Tensor> &outputs, const std::vector<at::Tensor> &inputs,
                const char *name);
/* Throws ValueError unless 0 <= rank < size; `what` is "root", "source" or "destination". */
void need_rank(int64_t rank, int size, const char *what, const char *name);
/* Throws ValueError unless the list has `size` tensors; `what` is "input" or "output". */
void need_length(size_t length, int size, const char *what, const char *name);

inline size_t bytes_of(const at::Tensor &tensor)
{
    return static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

/* The tensor itself where its elements lie one after another, else an empty tensor like it whose
 * elements do. */
at::Tensor room_for(const at::Tensor &tensor);
/* As room_for, with the tensor's values. */
at::Tensor packed(const at::Tensor &tensor);
/* `from` itself where it has no memory of `to`, or lies where a call takes it in place: the smaller
 * of the two is block `rank` of the larger one; rank -1: nowhere. Else a copy. Both are packed. */
at::Tensor apart(const at::Tensor &from, const at::Tensor &to, int rank);
/* Each tensor packed; a copy where it has memory of another one. */
std::vector<at::Tensor> packed_apart(const std::vector<at::Tensor> &tensors);
/* inputs[i], or a copy where it may have memory of outputs[j] for some j other than i. */
at::Tensor apart_from_others(const std::vector<at::Tensor> &inputs, size_t i,
                             const std::vector<at::Tensor> &outputs);
/* Copies the values back where `packed` was not the tensor itself. */
void unpack(const at::Tensor &packed, const at::Tensor &tensor);

/* The elements of all tensors of the list, one tensor behind the other, as bytes. */
at::Tensor bytes_for(const std::vector<at::Tensor> &tensors);
at::Tensor packed_bytes(const std::vector<at::Tensor> &tensors);
void unpack_bytes(const at::Tensor &bytes, const std::vector<at::Tensor> &tensors);

} // namespace tutti_torch

#endif
