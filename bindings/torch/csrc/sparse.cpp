// All-reduce of sparse tensors: every rank gets the indices and values of all ranks, and adds the
// values of equal indices.
#include "backend.hpp"
#include "calls.hpp"

namespace tutti_torch
{

namespace
{

/* Rank r's block of so many elements of `from`'s type, from every rank, one behind the other. */
at::Tensor gather_blocks(const at::Tensor &from, const std::vector<size_t> &nblocks,
                         at::IntArrayRef block, tuttiComm_t comm)
{
    const Moved moved(from.scalar_type());
    const int64_t numel = c10::multiply_integers(block);
    std::vector<size_t> counts;
    int64_t total = 0;
    for (const size_t n : nblocks) {
        counts.push_back(moved.count(numel) * n);
        total += static_cast<int64_t>(n);
    }
    std::vector<int64_t> sizes(block.begin(), block.end());
    sizes.insert(sizes.begin(), total);
    at::Tensor to = at::empty(sizes, from.options());
    check(tuttiAllGatherV(from.const_data_ptr(), to.mutable_data_ptr(), counts.data(), nullptr,
                          moved.type, comm, nullptr),
          comm);
    return to;
}

void reduce_sparse(const at::Tensor &tensor, int size, tuttiComm_t comm)
{
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    const at::Tensor input = tensor.coalesce();
    const at::Tensor indices = input._indices().t().contiguous(); /* [nonzero][sparse dimension] */
    const at::Tensor values = input._values().contiguous();
    const auto nonzero = static_cast<size_t>(values.size(0));
    std::vector<size_t> nblocks(static_cast<size_t>(size));
    check(tuttiAllGather(&nonzero, nblocks.data(), 1, tuttiUint64, comm, nullptr), comm);
    const at::Tensor all = gather_blocks(indices, nblocks, {input.sparse_dim()}, comm);
    const at::Tensor sums = gather_blocks(values, nblocks, values.sizes().slice(1), comm);
    const at::Tensor result =
        at::_sparse_coo_tensor_unsafe(all.t(), sums, input.sizes(), input.options()).coalesce();
    tensor.copy_(result);
}

} // namespace

WorkPointer Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    const char *const name = "all_reduce of a sparse tensor";
    TORCH_CHECK_VALUE(tensors.size() == 1, name, ": the list has ", tensors.size(),
                      " tensors, expected 1");
    const at::Tensor tensor = tensors[0];
    TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.layout() == at::kSparse, name,
                      ": the tensor has the layout ", tensor.layout(), " on ", tensor.device(),
                      ", expected sparse (coordinates) on cpu");
    TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM, name,
                      ": the operation is another one than SUM, which is all that there is");
    auto call = [tensor, size = size_](tuttiComm_t comm) { reduce_sparse(tensor, size, comm); };
    return run(make_call(
        make_operation(c10d::OpType::_ALLREDUCE_SPARSE, "tutti:sparse_all_reduce", {}, tensors),
        options, call));
}

} // namespace tutti_torch
