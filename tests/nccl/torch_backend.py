"""PyTorch's own backend "nccl" over the libnccl.so.2 that is loaded: each operation against values that the CPU computes.

A process a GPU, with torchrun's variables. Tensors come to the GPU and back by copies, so that no kernel of PyTorch runs: these
are machine code without PTX, which a virtual GPU cannot run. Prints a line a rank and part; what is wrong begins with WRONG.
"""

import os
import sys

import torch
import torch.distributed as dist

rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ELEMENTS = 1000
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TYPES = FLOATS + [torch.int32, torch.int64, torch.uint8, torch.int8]
failures = []


def of(r, dtype, n=ELEMENTS, salt=0):
    """The tensor of rank r: small numbers, of which sums and products of a few are exact in every type."""
    return ((torch.arange(n) * 7 + r * 3 + salt) % 3 + 1).to(dtype)


def to_gpu(tensor):
    return tensor.to("cuda")


def expect(what, tensor, expected):
    got = tensor.cpu()
    if got.dtype == expected.dtype and torch.equal(got, expected):
        return
    wrong = (got != expected).nonzero().flatten().tolist() if got.shape == expected.shape else []
    failures.append(f"{what}: {len(wrong)} of {expected.numel()} elements are wrong, the first: {wrong[:1]}")


def folded(op, tensors):
    stack = torch.stack([t.to(torch.float64) for t in tensors])
    dtype = tensors[0].dtype
    if op == dist.ReduceOp.SUM:
        return stack.sum(0).to(dtype)
    if op == dist.ReduceOp.PRODUCT:
        return stack.prod(0).to(dtype)
    if op == dist.ReduceOp.MIN:
        return stack.amin(0).to(dtype)
    if op == dist.ReduceOp.MAX:
        return stack.amax(0).to(dtype)
    return (stack.sum(0) / nranks).to(dtype)  # AVG: nranks is a power of two, so it is exact


def reductions():
    ops = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
    for dtype in TYPES:
        inputs = [of(r, dtype) for r in range(nranks)]
        for name, op in {**ops, **({"avg": dist.ReduceOp.AVG} if dtype in FLOATS else {})}.items():
            x = to_gpu(inputs[rank])
            dist.all_reduce(x, op)
            expect(f"all_reduce {name} {dtype}", x, folded(op, inputs))
    inputs = [of(r, torch.float32) for r in range(nranks)]
    x = to_gpu(inputs[rank])
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    expect("all_reduce premul_sum", x, folded(dist.ReduceOp.SUM, inputs) / 2)
    for root in range(nranks):
        x = to_gpu(inputs[rank])
        dist.reduce(x, root)
        if rank == root:
            expect(f"reduce to {root}", x, folded(dist.ReduceOp.SUM, inputs))
    for dtype in (torch.float32, torch.bfloat16):
        wide = [of(r, dtype, nranks * ELEMENTS) for r in range(nranks)]
        out = to_gpu(torch.empty(ELEMENTS, dtype=dtype))
        dist.reduce_scatter_tensor(out, to_gpu(wide[rank]))
        expect(f"reduce_scatter_tensor {dtype}", out, folded(dist.ReduceOp.SUM, wide)[rank * ELEMENTS : (rank + 1) * ELEMENTS])


def copies():
    for root in range(nranks):
        x = to_gpu(of(rank, torch.float32))
        dist.broadcast(x, root)
        expect(f"broadcast from {root}", x, of(root, torch.float32))
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        out = to_gpu(torch.empty(nranks * ELEMENTS, dtype=dtype))
        dist.all_gather_into_tensor(out, to_gpu(of(rank, dtype)))
        expect(f"all_gather_into_tensor {dtype}", out, torch.cat([of(r, dtype) for r in range(nranks)]))
    out = to_gpu(torch.empty(nranks * ELEMENTS))
    dist.all_to_all_single(out, to_gpu(of(rank, torch.float32, nranks * ELEMENTS)))
    mine = slice(rank * ELEMENTS, (rank + 1) * ELEMENTS)
    expect("all_to_all_single", out, torch.cat([of(r, torch.float32, nranks * ELEMENTS)[mine] for r in range(nranks)]))
    # Rank r sends s + 1 elements to rank s.
    sent = [s + 1 for s in range(nranks)]
    out = to_gpu(torch.empty(nranks * (rank + 1)))
    dist.all_to_all_single(out, to_gpu(of(rank, torch.float32, sum(sent))), [rank + 1] * nranks, sent)
    before = sum(sent[:rank])
    expect("all_to_all_single of own counts", out,
           torch.cat([of(r, torch.float32, sum(sent))[before : before + rank + 1] for r in range(nranks)]))


def messages():
    after, before = (rank + 1) % nranks, (rank - 1) % nranks
    received = to_gpu(torch.empty(ELEMENTS))
    sent = to_gpu(of(rank, torch.float32))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]):
        work.wait()
    expect("batch_isend_irecv", received, of(before, torch.float32))
    x = to_gpu(of(rank, torch.float32))
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
        expect("send and recv", x, of(0, torch.float32))


def groups():
    for ranks in ([0, nranks - 1], list(range(nranks))):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = to_gpu(of(rank, torch.float32))
            dist.all_reduce(x, group=group)
            expect(f"all_reduce of the group {ranks}", x, folded(dist.ReduceOp.SUM, [of(r, torch.float32) for r in ranks]))
            dist.destroy_process_group(group)


def asynchronous():
    tensors = [to_gpu(of(rank, torch.float32, salt=i)) for i in range(8)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in works:
        work.wait()
    for i, x in enumerate(tensors):
        expect(f"asynchronous all_reduce {i}", x, folded(dist.ReduceOp.SUM, [of(r, torch.float32, salt=i) for r in range(nranks)]))
    with dist._coalescing_manager(device=torch.device("cuda", rank)):
        for x in tensors:
            dist.all_reduce(x)
    for i, x in enumerate(tensors):
        expected = folded(dist.ReduceOp.SUM, [of(r, torch.float32, salt=i) for r in range(nranks)])
        expect(f"coalesced all_reduce {i}", x, expected * nranks)


def main():
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    for part in (reductions, copies, messages, groups, asynchronous, dist.barrier):
        try:
            part()
            print(f"rank {rank}: {part.__name__} ran", flush=True)
        except Exception as error:
            failures.append(f"{part.__name__}: {type(error).__name__}: {error}")
            break
    if not failures:
        dist.destroy_process_group()
    for failure in failures:
        print(f"WRONG rank {rank}: {failure}", flush=True)
    sys.exit(1 if failures else 0)


main()
