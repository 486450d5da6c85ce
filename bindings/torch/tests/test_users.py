"""What stands on a backend in PyTorch: functional collectives, DTensor, torch.compile, DDP's hooks, the flight recorder."""

import pickle
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from harness import case, expect, main, same

warnings.simplefilter("ignore", FutureWarning)


@case()
def functional_collectives_are_right(rank, nranks):
    group = dist.group.WORLD
    tensor = torch.full((nranks,), float(rank))
    total = float(sum(range(nranks)))
    same(functional.wait_tensor(functional.all_reduce(tensor, "sum", group)), torch.full((nranks,), total))
    same(functional.wait_tensor(functional.all_gather_single(tensor, 0, group)), torch.arange(float(nranks)).repeat_interleave(nranks))
    same(functional.wait_tensor(functional.reduce_scatter_single(tensor, "sum", 0, group)), torch.tensor([total]))
    same(functional.wait_tensor(functional.all_to_all_single(tensor, None, None, group)), torch.arange(float(nranks)))
    same(functional.wait_tensor(functional.broadcast(tensor, nranks - 1, group)), torch.full((nranks,), nranks - 1.0))
    for got in functional.all_reduce_coalesced([tensor, tensor + 1], "max", group):
        expect(got.max().item() in (nranks - 1, nranks), f"{got}")


@case()
def a_compiled_function_with_a_collective_is_right(rank, nranks):
    def function(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    same(compiled(torch.full((3,), float(rank))), torch.full((3,), 2.0 * sum(range(nranks)) + 1))


@case()
def distributed_tensors_are_right(rank, nranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (nranks,))
    whole = torch.arange(144.0).reshape(12, 12)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    same(columns.full_tensor(), whole)
    same((rows @ columns).full_tensor(), whole @ whole)
    same((columns @ rows).redistribute(mesh, [Replicate()]).to_local(), whole @ whole)


@case()
def a_python_hook_of_ddp_gets_its_futures(rank, nranks):
    from torch.nn.parallel import DistributedDataParallel

    def hook(group, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / nranks)

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 5))
    model = DistributedDataParallel(plain, bucket_cap_mb=0.001)
    model.register_comm_hook(None, hook)
    model(torch.full((4, 20), rank + 1.0)).sum().backward()
    same(plain[1].bias.grad, torch.full((5,), 4.0))
    wanted = torch.autograd.grad(plain(torch.full((4, 20), (nranks + 1) / 2)).sum(), plain[0].weight)[0]
    torch.testing.assert_close(plain[0].weight.grad, wanted)


@case()
def the_flight_recorder_says_that_calls_have_completed(rank, nranks):
    tensor = torch.ones(3)
    torch._C._distributed_c10d._reset_fr_trace("tutti")
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, 0)
    entries = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(backend="tutti"))["entries"]
    got = [(entry["profiling_name"], entry["state"]) for entry in entries]
    expect(got == [("tutti:all_reduce", "completed")] * 2 + [("tutti:broadcast", "completed")], f"{got}")


if __name__ == "__main__":
    main()
