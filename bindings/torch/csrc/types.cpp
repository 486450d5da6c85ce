// Data types and reductions of PyTorch as tutti's.
#include "types.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <optional>

namespace tutti_torch
{

namespace
{

std::optional<tuttiDataType_t> number_type(at::ScalarType type)
{
    switch (type) {
    case at::kChar:
        return tuttiInt8;
    case at::kByte:
        return tuttiUint8;
    case at::kBool:
        return tuttiUint8;
    case at::kShort:
        return tuttiInt16;
    case at::kUInt16:
        return tuttiUint16;
    case at::kInt:
        return tuttiInt32;
    case at::kUInt32:
        return tuttiUint32;
    case at::kLong:
        return tuttiInt64;
    case at::kUInt64:
        return tuttiUint64;
    case at::kHalf:
        return tuttiFloat16;
    case at::kBFloat16:
        return tuttiBfloat16;
    case at::kFloat:
        return tuttiFloat32;
    case at::kDouble:
        return tuttiFloat64;
    case at::kFloat8_e4m3fn:
        return tuttiFloat8e4m3;
    case at::kFloat8_e5m2:
        return tuttiFloat8e5m2;
    default:
        return std::nullopt;
    }
}

const char *op_name(c10d::ReduceOp::RedOpType op)
{
    static const std::array<const char *, 9> names = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
    return op < names.size() ? names[op] : "an unknown operation";
}

std::optional<tuttiRedOp_t> bool_op(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return tuttiLogicalOr;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return tuttiLogicalAnd;
    case c10d::ReduceOp::BXOR:
        return tuttiLogicalXor;
    default:
        return std::nullopt;
    }
}

std::optional<tuttiRedOp_t> number_op(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
        return tuttiSum;
    case c10d::ReduceOp::AVG:
        return tuttiAvg;
    case c10d::ReduceOp::PRODUCT:
        return tuttiProd;
    case c10d::ReduceOp::MIN:
        return tuttiMin;
    case c10d::ReduceOp::MAX:
        return tuttiMax;
    case c10d::ReduceOp::BAND:
        return tuttiBitAnd;
    case c10d::ReduceOp::BOR:
        return tuttiBitOr;
    case c10d::ReduceOp::BXOR:
        return tuttiBitXor;
    default:
        return std::nullopt;
    }
}

std::optional<tuttiRedOp_t> op_for(c10d::ReduceOp::RedOpType op, at::ScalarType type)
{
    if (type == at::kBool) return bool_op(op);
    const bool is_bitwise = op >= c10d::ReduceOp::BAND && op <= c10d::ReduceOp::BXOR;
    if (is_bitwise && !c10::isIntegralType(type, false) && !c10::isBarebonesUnsignedType(type))
        return std::nullopt;
    if (c10::isComplexType(type) && !c10d::isComplexViewAsRealAllowed(op)) return std::nullopt;
    return number_op(op);
}

/* Whether the real number is a value of this type of integers. */
bool is_integer(const at::Scalar &number, at::ScalarType type)
{
    const long double value = number.isFloatingPoint() ? number.toDouble()
                              : number.isUnsigned()    ? number.toUInt64()
                                                       : static_cast<long double>(number.toLong());
    const bool is_signed = c10::isSignedType(type);
    const int nbits = 8 * static_cast<int>(c10::elementSize(type)) - is_signed;
    const long double end = std::ldexp(1.0L, nbits);
    return value == std::trunc(value) && value < end && value >= (is_signed ? -end : 0.0L);
}

/* The factor of PREMUL_SUM as one element of the type. */
at::Tensor factor_of(const c10d::ReduceOp &op, at::ScalarType type, const char *name)
{
    auto *supplement = dynamic_cast<c10d::PreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(supplement, name, ": PREMUL_SUM has no factor; make the operation with ",
                      "torch.distributed._make_nccl_premul_sum(factor)");
    const at::Tensor given = supplement->tensor_factor;
    at::Scalar factor = supplement->double_factor;
    if (given.defined()) {
        TORCH_CHECK_VALUE(given.is_cpu(), name, ": the factor of PREMUL_SUM is on ", given.device(),
                          ", expected a tensor on cpu");
        factor = given.detach().item();
    }
    TORCH_CHECK_VALUE(!factor.isComplex(), name, ": the factor of PREMUL_SUM is ", factor,
                      ", expected a real number for tensors of ", type);
    const bool is_integral = c10::isIntegralType(type, false) || c10::isBarebonesUnsignedType(type);
    TORCH_CHECK_VALUE(!is_integral || is_integer(factor, type), name,
                      ": the factor of PREMUL_SUM is ", factor, ", expected a value of ", type,
                      " as the tensor has this type");
    const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
    if (!given.defined()) return at::full({}, factor, options);
    return at::empty({}, options).copy_(given.detach().reshape({}));
}

} // namespace

Moved::Moved(at::ScalarType of) : type(tuttiInt8), per_element(c10::elementSize(of))
{
    const auto number = c10::isComplexType(of) ? c10::toRealValueType(of) : of;
    const auto found = number_type(number);
    if (!found) return;
    type = *found;
    per_element = number == of ? 1 : 2;
}

Reduction::Reduction(const c10d::ReduceOp &op, at::ScalarType type, const char *name)
{
    const auto number = c10::isComplexType(type) ? c10::toRealValueType(type) : type;
    if (number != type) per_element_ = 2;
    const auto found = number_type(number);
    TORCH_CHECK_TYPE(found, name, " cannot reduce ", type,
                     "; it reduces bool, integers of 8 to 64 bits, float64, float32, float16, ",
                     "bfloat16, float8_e4m3fn, float8_e5m2 and complex numbers");
    type_ = *found;
    const auto reduction = op_for(op.op_, type);
    TORCH_CHECK_VALUE(reduction, name, " cannot reduce ", type, " with ", op_name(op.op_));
    op_ = *reduction;
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM) factor_ = factor_of(op, number, name);
}

tuttiResult_t Reduction::with(tuttiComm_t comm,
                              const std::function<tuttiResult_t(tuttiRedOp_t)> &use) const
{
    if (!factor_.defined()) return use(op_);
    tuttiRedOp_t op;
    tuttiResult_t result =
        tuttiRedOpCreatePreMulSum(&op, factor_.data_ptr(), type_, tuttiScalarHostImmediate, comm);
    if (result != tuttiSuccess) return result;
    result = use(op);
    const tuttiResult_t destroyed = tuttiRedOpDestroy(op, comm);
    return result != tuttiSuccess ? result : destroyed;
}

} // namespace tutti_torch
