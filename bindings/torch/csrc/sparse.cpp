// All-reduce of sparse tensors: every rank gets the indices and values of all ranks, and adds the
// values of equal indices.
#include <string>
#include <vector>

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

/* What a rank tells of its tensor before the sizes, as many int64_t. */
struct Head {
    int64_t nonzero, nsparse, ndense; /* nsparse and ndense are numbers of dimensions */
    int64_t type;                     /* at::ScalarType */

    size_t ndims() const
    {
        return static_cast<size_t>(nsparse + ndense);
    }
};

std::string shape_of(const Head &head, at::IntArrayRef sizes)
{
    return c10::str(sizes, " with ", head.nsparse, " sparse and ", head.ndense,
                    " dense dimensions, ", static_cast<at::ScalarType>(head.type));
}

/* Throws the same ValueError on every rank unless all ranks' tensors have the same type and sizes,
 * and as many of their dimensions are sparse. */
void need_equal_tensors(const std::vector<Head> &heads, at::IntArrayRef own, tuttiComm_t comm)
{
    std::vector<size_t> counts;
    size_t total = 0;
    for (const Head &head : heads) {
        counts.push_back(head.ndims());
        total += head.ndims();
    }
    std::vector<int64_t> all(total);
    if (total)
        check(tuttiAllGatherV(own.data(), all.data(), counts.data(), nullptr, tuttiInt64, comm,
                              nullptr),
              comm);
    const at::IntArrayRef first(all.data(), counts[0]);
    const int64_t *at = all.data();
    for (size_t rank = 0; rank < heads.size(); at += counts[rank++]) {
        const at::IntArrayRef sizes(at, counts[rank]);
        TORCH_CHECK_VALUE(sizes == first && heads[rank].nsparse == heads[0].nsparse &&
                              heads[rank].type == heads[0].type,
                          "all_reduce of a sparse tensor: the ranks' tensors differ in shape or "
                          "type: rank 0 has ",
                          shape_of(heads[0], first), ", rank ", rank, " has ",
                          shape_of(heads[rank], sizes));
    }
}

void reduce_sparse(const at::Tensor &tensor, int size, tuttiComm_t comm)
{
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    const at::Tensor input = tensor.coalesce();
    const at::Tensor indices = input._indices().t().contiguous(); /* [nonzero][sparse dimension] */
    const at::Tensor values = input._values().contiguous();
    const Head own = {values.size(0), input.sparse_dim(), input.dense_dim(),
                      static_cast<int64_t>(values.scalar_type())};
    std::vector<Head> heads(static_cast<size_t>(size));
    check(
        tuttiAllGather(&own, heads.data(), sizeof own / sizeof(int64_t), tuttiInt64, comm, nullptr),
        comm);
    need_equal_tensors(heads, input.sizes(), comm);
    std::vector<size_t> nblocks;
    for (const Head &head : heads) nblocks.push_back(static_cast<size_t>(head.nonzero));
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
