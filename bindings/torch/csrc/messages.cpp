// Send and receive. A message is its length and then its bytes: a receive may have more room than
// the message needs, and one that has less is the receiver's error alone.
#include "backend.hpp"
#include "calls.hpp"

namespace tutti_torch
{

using c10d::OpType;

namespace
{

void need_message(const at::Tensor &tensor, int peer, int rank, int size, int tag, const char *name)
{
    need_host(tensor, name);
    need_rank(peer, size, "other rank", name);
    TORCH_CHECK_VALUE(peer != rank, name, ": the other rank is this rank, ", rank,
                      ", expected another one");
    TORCH_CHECK_VALUE(
        tag == 0, name, ": the tag is ", tag,
        ", expected 0: messages of tutti have no tags, and arrive in the order sent; ",
        "use another group for messages that come in another order");
}

tuttiResult_t move_bytes(bool sends, void *memory, size_t nbytes, tuttiComm_t comm)
{
    return sends ? tuttiSend(memory, nbytes, tuttiInt8, 1, comm, nullptr)
                 : tuttiRecv(memory, nbytes, tuttiInt8, 0, comm, nullptr);
}

void send_message(const at::Tensor &tensor, tuttiComm_t comm)
{
    const at::Tensor whole = packed(tensor);
    uint64_t nbytes = bytes_of(whole);
    check(move_bytes(true, &nbytes, sizeof nbytes, comm), comm);
    if (nbytes)
        check(move_bytes(true, const_cast<void *>(whole.const_data_ptr()), nbytes, comm), comm);
}

void receive_message(const at::Tensor &tensor, int source, int rank, tuttiComm_t comm)
{
    uint64_t nbytes;
    check(move_bytes(false, &nbytes, sizeof nbytes, comm), comm);
    if (!nbytes) return;
    if (nbytes > bytes_of(tensor)) {
        const at::Tensor dropped = at::empty({static_cast<int64_t>(nbytes)}, at::kByte);
        check(move_bytes(false, dropped.mutable_data_ptr(), nbytes, comm), comm);
        TORCH_CHECK_WITH(DistBackendError, false, "rank ", source, " sends ", nbytes,
                         " bytes, and the tensor that rank ", rank, " receives into has ",
                         bytes_of(tensor), ": the message is dropped");
    }
    /* Where the message is shorter than the tensor, the rest of the tensor stays as it is. */
    const at::Tensor whole = nbytes < bytes_of(tensor) ? packed(tensor) : room_for(tensor);
    check(move_bytes(false, whole.mutable_data_ptr(), nbytes, comm), comm);
    unpack(whole, tensor);
}

} // namespace

WorkPointer Backend::run_message(Operation operation, int source, int destination)
{
    auto work = c10::make_intrusive<TuttiWork>(rank_, std::move(operation), sequence_, shared_);
    links_->between(source, destination)->run(work);
    return work;
}

WorkPointer Backend::send(Tensors &tensors, int destination, int tag)
{
    const at::Tensor tensor = need_one(tensors, "send");
    need_message(tensor, destination, rank_, size_, tag, "send");
    Operation operation = make_operation(OpType::SEND, "tutti:send", tensors, {});
    operation.call = [tensor](tuttiComm_t comm) { send_message(tensor, comm); };
    return run_message(std::move(operation), rank_, destination);
}

WorkPointer Backend::recv(Tensors &tensors, int source, int tag)
{
    const at::Tensor tensor = need_one(tensors, "recv");
    need_message(tensor, source, rank_, size_, tag, "recv");
    need_output(tensor, "recv");
    Operation operation = make_operation(OpType::RECV, "tutti:recv", {}, tensors);
    operation.source = source;
    operation.call = [tensor, source, rank = rank_](tuttiComm_t comm) {
        receive_message(tensor, source, rank, comm);
    };
    return run_message(std::move(operation), source, rank_);
}

WorkPointer Backend::recvAnysource(Tensors &, int)
{
    TORCH_CHECK_WITH(NotImplementedError, false,
                     "recv from any rank: tutti receives from a rank that is given; pass src");
}

} // namespace tutti_torch
