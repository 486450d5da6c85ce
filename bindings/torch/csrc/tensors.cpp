// Tensors as tutti's calls take them: memory of the host, contiguous.
#include "tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <ATen/MemoryOverlap.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tutti_torch
{

namespace
{

bool is_packed(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void copy_values(const at::Tensor &from, const at::Tensor &to)
{
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    to.copy_(from);
}

at::Tensor new_like(const at::Tensor &tensor)
{
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    return at::empty(tensor.sizes(), tensor.options());
}

uintptr_t address_of(const at::Tensor &tensor)
{
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

} // namespace

void need_host(const at::Tensor &tensor, const char *name)
{
    TORCH_CHECK_VALUE(tensor.defined(), name, ": a tensor is undefined");
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), name, ": the tensor is on ", tensor.device(),
                      ", and tutti takes tensors on cpu; for both kinds create the group with the ",
                      "backend cpu:tutti,cuda:nccl");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, name, ": the tensor's layout is ",
                      tensor.layout(), ", expected a strided tensor");
}

void need_output(const at::Tensor &tensor, const char *name)
{
    need_host(tensor, name);
    TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, name,
                      ": elements of the tensor share memory (strides ", tensor.strides(),
                      "), and the call writes it; pass tensor.contiguous()");
}

at::Tensor &need_one(std::vector<at::Tensor> &tensors, const char *name)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, name, ": the list has ", tensors.size(),
                      " tensors, expected 1");
    need_host(tensors[0], name);
    return tensors[0];
}

void need_type(const std::vector<at::Tensor> &tensors, at::ScalarType type, const char *name)
{
    for (const at::Tensor &tensor : tensors) {
        need_host(tensor, name);
        TORCH_CHECK_TYPE(tensor.scalar_type() == type, name, ": a tensor has the type ",
                         tensor.scalar_type(), ", expected ", type, " as the others have");
    }
}

void need_equal_types(const at::Tensor &a, const at::Tensor &b, const char *name)
{
    need_host(a, name);
    need_host(b, name);
    TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), name,
                     ": the types differ: ", a.scalar_type(), " and ", b.scalar_type());
}

void need_multiple(const at::Tensor &whole, const at::Tensor &part, int size, const char *what,
                   const char *name)
{
    need_equal_types(whole, part, name);
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, name, ": the ", what, " has ",
                      whole.numel(), " elements, expected ", part.numel() * size, ": ", size,
                      " times those of the other tensor");
}

void need_pairs(const std::vector<at::Tensor> &outputs, const std::vector<at::Tensor> &inputs,
                const char *name)
{
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), name, ": there are ",
                      outputs.size(), " outputs and ", inputs.size(),
                      " inputs, expected as many of both, and at least one");
}

void need_rank(int64_t rank, int size, const char *what, const char *name)
{
    TORCH_CHECK_VALUE(rank >= 0 && rank < size, name, ": the ", what, " is rank ", rank,
                      ", expected 0 to ", size - 1);
}

void need_length(size_t length, int size, const char *what, const char *name)
{
    TORCH_CHECK_VALUE(length == static_cast<size_t>(size), name, ": the list of ", what, "s has ",
                      length, " tensors, expected ", size, ", one for each rank");
}

at::Tensor room_for(const at::Tensor &tensor)
{
    return is_packed(tensor) ? tensor : new_like(tensor);
}

at::Tensor packed(const at::Tensor &tensor)
{
    if (is_packed(tensor)) return tensor;
    at::Tensor whole = new_like(tensor);
    copy_values(tensor, whole);
    return whole;
}

at::Tensor apart(const at::Tensor &from, const at::Tensor &to, int rank)
{
    const uintptr_t from_begin = address_of(from), to_begin = address_of(to);
    const size_t nfrom = bytes_of(from), nto = bytes_of(to);
    if (from_begin + nfrom <= to_begin || to_begin + nto <= from_begin) return from;
    const uintptr_t outer = nfrom < nto ? to_begin : from_begin;
    const uintptr_t inner = nfrom < nto ? from_begin : to_begin;
    if (rank >= 0 && inner == outer + static_cast<size_t>(rank) * std::min(nfrom, nto)) return from;
    at::Tensor copy = new_like(from);
    copy_values(from, copy);
    return copy;
}

std::vector<at::Tensor> packed_apart(const std::vector<at::Tensor> &tensors)
{
    std::vector<at::Tensor> all;
    for (const at::Tensor &tensor : tensors) all.push_back(packed(tensor));
    std::vector<at::Tensor *> sorted;
    for (at::Tensor &tensor : all)
        if (tensor.numel()) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(), [](const at::Tensor *a, const at::Tensor *b) {
        return address_of(*a) < address_of(*b);
    });
    uintptr_t end = 0; /* of the tensors that keep their memory */
    for (at::Tensor *tensor : sorted) {
        if (address_of(*tensor) < end) {
            const at::Tensor copy = new_like(*tensor);
            copy_values(*tensor, copy);
            *tensor = copy;
        } else {
            end = address_of(*tensor) + bytes_of(*tensor);
        }
    }
    return all;
}

at::Tensor apart_from_others(const std::vector<at::Tensor> &inputs, size_t i,
                             const std::vector<at::Tensor> &outputs)
{
    for (size_t j = 0; j < outputs.size(); j++) {
        if (j == i || at::get_overlap_status(inputs[i], outputs[j]) == at::MemOverlapStatus::No)
            continue;
        at::Tensor copy = new_like(inputs[i]);
        copy_values(inputs[i], copy);
        return copy;
    }
    return inputs[i];
}

void unpack(const at::Tensor &packed, const at::Tensor &tensor)
{
    if (!packed.is_same(tensor)) copy_values(packed, tensor);
}

at::Tensor bytes_for(const std::vector<at::Tensor> &tensors)
{
    size_t nbytes = 0;
    for (const at::Tensor &tensor : tensors) nbytes += bytes_of(tensor);
    return at::empty({static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(at::kByte));
}

at::Tensor packed_bytes(const std::vector<at::Tensor> &tensors)
{
    at::Tensor bytes = bytes_for(tensors);
    auto *to = bytes.mutable_data_ptr<uint8_t>();
    for (const at::Tensor &tensor : tensors) {
        const at::Tensor whole = packed(tensor);
        if (bytes_of(whole)) std::memcpy(to, whole.const_data_ptr(), bytes_of(whole));
        to += bytes_of(whole);
    }
    return bytes;
}

void unpack_bytes(const at::Tensor &bytes, const std::vector<at::Tensor> &tensors)
{
    const auto *from = bytes.const_data_ptr<uint8_t>();
    for (const at::Tensor &tensor : tensors) {
        const at::Tensor whole = room_for(tensor);
        if (bytes_of(whole)) std::memcpy(whole.mutable_data_ptr(), from, bytes_of(whole));
        unpack(whole, tensor);
        from += bytes_of(whole);
    }
}

} // namespace tutti_torch
