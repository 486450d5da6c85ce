// Data types and reductions of PyTorch as tutti's.
#ifndef TUTTI_TORCH_TYPES_H
#define TUTTI_TORCH_TYPES_H

#include <functional>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <tutti.h>

namespace tutti_torch
{

/* How tutti moves elements of any type of PyTorch: numbers as themselves, so that errors show the
 * type, others as bytes. */
struct Moved {
    explicit Moved(at::ScalarType type);
    size_t count(int64_t numel) const
    {
        return static_cast<size_t>(numel) * per_element;
    }

    tuttiDataType_t type;
    size_t per_element; /* elements of tutti's type in one of PyTorch's */
};

/* What a reduction of tensors of one type is in tutti. A complex number is two floats, a bool is
 * one byte, which is 0 or 1. */
class Reduction
{
  public:
    /* Throws TypeError for a type and ValueError for an operation that cannot be reduced; `name` is
     * the collective's, for the text. */
    Reduction(const c10d::ReduceOp &op, at::ScalarType type, const char *name);

    tuttiDataType_t type() const
    {
        return type_;
    }
    /* Of a tensor with so many elements, in elements of type(). */
    size_t count(int64_t numel) const
    {
        return static_cast<size_t>(numel) * per_element_;
    }

    /* Calls use(op) with an operation of `comm` that is valid until use returns. */
    tuttiResult_t with(tuttiComm_t comm,
                       const std::function<tuttiResult_t(tuttiRedOp_t)> &use) const;

  private:
    tuttiDataType_t type_;
    size_t per_element_ = 1;
    tuttiRedOp_t op_ = tuttiSum;
    at::Tensor factor_; /* of PREMUL_SUM: one element of the type */
};

} // namespace tutti_torch

#endif
