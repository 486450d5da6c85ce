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

/* The communicator of a message: rank 0 sends to rank 1. */
struct Way {
    tuttiComm_t comm;
    const Numbering &numbering;

    void send(const void *memory, size_t nbytes) const
    {
        check(tuttiSend(memory, nbytes, tuttiInt8, 1, comm, nullptr), comm, numbering);
    }
    void receive(void *memory, size_t nbytes) const
    {
        check(tuttiRecv(memory, nbytes, tuttiInt8, 0, comm, nullptr), comm, numbering);
    }
};

void send_message(const at::Tensor &tensor, const Way &way)
{
    const at::Tensor whole = packed(tensor);
    const uint64_t nbytes = bytes_of(whole);
    way.send(&nbytes, sizeof nbytes);
    if (nbytes) way.send(whole.const_data_ptr(), nbytes);
}

void receive_message(const at::Tensor &tensor, int source, int rank, const Way &way)
{
    uint64_t nbytes;
    way.receive(&nbytes, sizeof nbytes);
    if (!nbytes) return;
    if (nbytes > bytes_of(tensor)) {
        const at::Tensor dropped = at::empty({static_cast<int64_t>(nbytes)}, at::kByte);
        way.receive(dropped.mutable_data_ptr(), nbytes);
        TORCH_CHECK_WITH(DistBackendError, false, "rank ", source, " sends ", nbytes,
                         " bytes, and the tensor that rank ", rank, " receives into has ",
                         bytes_of(tensor), ": the message is dropped");
    }
    /* Where the message is shorter than the tensor, the rest of the tensor stays as it is. */
    const at::Tensor whole = nbytes < bytes_of(tensor) ? packed(tensor) : room_for(tensor);
    way.receive(whole.mutable_data_ptr(), nbytes);
    unpack(whole, tensor);
}

} // namespace

WorkPointer Backend::run_message(Operation operation, const Link &link)
{
    auto work = c10::make_intrusive<TuttiWork>(rank_, std::move(operation), sequence_, shared_);
    link.queue->run(work);
    return work;
}

WorkPointer Backend::send(Tensors &tensors, int destination, int tag)
{
    const at::Tensor tensor = need_one(tensors, "send");
    need_message(tensor, destination, rank_, size_, tag, "send");
    Operation operation = make_operation(OpType::SEND, "tutti:send", tensors, {});
    const Link link = links_->between(rank_, destination);
    operation.call = [tensor, numbering = link.numbering](tuttiComm_t comm) {
        send_message(tensor, {comm, *numbering});
    };
    return run_message(std::move(operation), link);
}

WorkPointer Backend::recv(Tensors &tensors, int source, int tag)
{
    const at::Tensor tensor = need_one(tensors, "recv");
    need_message(tensor, source, rank_, size_, tag, "recv");
    need_output(tensor, "recv");
    Operation operation = make_operation(OpType::RECV, "tutti:recv", {}, tensors);
    operation.source = source;
    const Link link = links_->between(source, rank_);
    operation.call = [=, rank = rank_, numbering = link.numbering](tuttiComm_t comm) {
        receive_message(tensor, source, rank, {comm, *numbering});
    };
    return run_message(std::move(operation), link);
}

WorkPointer Backend::recvAnysource(Tensors &, int)
{
    TORCH_CHECK_WITH(NotImplementedError, false,
                     "recv from any rank: tutti receives from a rank that is given; pass src");
}

} // namespace tutti_torch
