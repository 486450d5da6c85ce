// The backend `tutti` of torch.distributed: c10d's methods over one communicator of tutti.
#ifndef TUTTI_TORCH_BACKEND_H
#define TUTTI_TORCH_BACKEND_H

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tutti.h>

#include "hooks.hpp"
#include "links.hpp"
#include "queue.hpp"

namespace tutti_torch
{

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/* Threads: any may call any method. A method that gives a Work queues the operation and returns,
 * or, where the options say so and nothing is queued, returns when it is complete. */
class Backend final : public c10d::Backend
{
  public:
    struct Options final : c10d::Backend::Options {
        explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout);
        c10::intrusive_ptr<c10d::Backend::Options> clone() const override;
    };

    /* Collective. Throws c10::DistBackendError where the ranks do not find each other. `name` is
     * the communicator's. */
    Backend(const StorePointer &store, int rank, int size, const std::string &name,
            c10::intrusive_ptr<Options> options);
    ~Backend() override;

    /* Throws ValueError where the group has, or gets, a second backend that is none of PyTorch's
     * own. The group calls setGroupUid when it has all of its backends. */
    void watch(c10d::ProcessGroup *group);
    void setGroupUid(const std::string &uid) override;

    const std::string getBackendName() const override
    {
        return "tutti";
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    void addEphemeralTimeout(const std::chrono::milliseconds &more) override;
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }
    void enableCollectivesTiming() override
    {
        shared_->hooks.is_timed = true;
    }
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

    bool supportsAbortHooks() const override
    {
        return true;
    }
    void registerAbortHook(int64_t id, c10d::AbortHook hook) override;
    void unregisterAbortHook(int64_t id) override;
    bool supportsCompletionHooks() const override
    {
        return true;
    }
    void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
    void unregisterCompletionHook(int64_t id) override;

    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_coalesced(Tensors &tensors,
                                    const c10d::AllreduceCoalescedOptions &options) override;
    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPointer barrier(const c10d::BarrierOptions &options) override;

    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) override;
    WorkPointer all_gather_single(at::Tensor &output, at::Tensor &input,
                                  const c10d::AllgatherOptions &options) override;
    WorkPointer all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override;
    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &options) override;
    WorkPointer gather_single(at::Tensor &output, at::Tensor &input,
                              const c10d::GatherOptions &options) override;
    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &options) override;

    WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) override;

    WorkPointer alltoall(Tensors &outputs, Tensors &inputs,
                         const c10d::AllToAllOptions &options) override;
    WorkPointer all_to_all_single(at::Tensor &output, at::Tensor &input,
                                  std::vector<int64_t> &output_splits,
                                  std::vector<int64_t> &input_splits,
                                  const c10d::AllToAllOptions &options) override;

    WorkPointer send(Tensors &tensors, int destination, int tag) override;
    WorkPointer recv(Tensors &tensors, int source, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;

    bool supportsSplitting() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend>
    split(const StorePointer &store, const std::vector<int> &ranks,
          const c10::intrusive_ptr<c10d::Backend::Options> &options) override;
    c10::intrusive_ptr<c10d::Backend>
    merge(const StorePointer &store, const c10::intrusive_ptr<c10d::Backend::Options> &options,
          const int &rank, const int &size) override;

    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;

    /* Ends all groups of the process before the interpreter does: what is queued has a second. */
    static void leave();

  private:
    WorkPointer run(Operation operation);
    WorkPointer run_message(Operation operation, const Link &link);
    void forget();      /* leave() does not end the group any more */
    void leave_hooks(); /* leave() waits for its abort hooks, and shutdown() does not */

    /* immutable */
    const c10::intrusive_ptr<Options> options_;
    const std::shared_ptr<Shared> shared_;
    std::atomic<bool> is_aborted_{false};
    const StorePointer store_;
    const std::string name_;
    std::shared_ptr<Queue> queue_; /* of the collectives */
    std::shared_ptr<Links> links_; /* of the messages */

    std::atomic<uint64_t> sequence_{0};     /* of the last collective */
    c10d::ProcessGroup *watched_ = nullptr; /* until the group is complete */
};

} // namespace tutti_torch

#endif
