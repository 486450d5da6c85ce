"""Every collective gives the right values: each type with each operation, shapes, strides, empty tensors, long messages."""

import itertools

import torch
import torch.distributed as dist
from harness import case, expect, main, raises, same

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
OPS = {
    dist.ReduceOp.SUM: lambda a, b: a + b,
    dist.ReduceOp.PRODUCT: lambda a, b: a * b,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.BAND: lambda a, b: a & b,
    dist.ReduceOp.BOR: lambda a, b: a | b,
    dist.ReduceOp.BXOR: lambda a, b: a ^ b,
}
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
COUNT = 1027


def values(rank, dtype, count=COUNT):
    """0, 1 and 2, whose sums and products of three ranks every type has exactly."""
    generator = torch.Generator().manual_seed(rank)
    whole = torch.randint(0, 2 if dtype == torch.bool else 3, (count,), generator=generator)
    if dtype.is_complex:
        return torch.complex(whole.double(), whole.flip(0).double()).to(dtype)
    return whole.to(dtype)


def wide(tensor):
    """In a type that torch computes with."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def reduced(op, dtype, nranks, count=COUNT, scale=1):
    inputs = [wide(values(rank, dtype, count)) * scale for rank in range(nranks)]
    if op == dist.ReduceOp.AVG:
        total = sum(inputs)
        return (total / nranks if dtype.is_floating_point or dtype.is_complex else total // nranks).to(dtype)
    result = inputs[0]
    for each in inputs[1:]:
        result = OPS[op](result, each)
    return result.to(dtype)


def pairs():
    for dtype, op in itertools.product(INTEGERS + FLOATS, OPS):
        if dtype in INTEGERS or op not in BITWISE:
            yield dtype, op
    for dtype in COMPLEX:
        yield dtype, dist.ReduceOp.SUM


@case()
def all_reduce_of_every_type_with_every_operation(rank, nranks):
    for dtype, op in pairs():
        tensor = values(rank, dtype)
        dist.all_reduce(tensor, op)
        same(tensor, reduced(op, dtype, nranks), f"{dtype} {op}")


@case()
def average_of_every_type(rank, nranks):
    for dtype in INTEGERS + FLOATS + COMPLEX:
        tensor = (wide(values(rank, dtype)) * nranks).to(dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, reduced(dist.ReduceOp.AVG, dtype, nranks, scale=nranks), f"{dtype}")


@case()
def bools_are_reduced_logically(rank, nranks):
    wanted = {
        dist.ReduceOp.SUM: torch.logical_or,
        dist.ReduceOp.MAX: torch.logical_or,
        dist.ReduceOp.BOR: torch.logical_or,
        dist.ReduceOp.PRODUCT: torch.logical_and,
        dist.ReduceOp.MIN: torch.logical_and,
        dist.ReduceOp.BAND: torch.logical_and,
        dist.ReduceOp.BXOR: torch.logical_xor,
    }
    for op, function in wanted.items():
        tensor = values(rank, torch.bool)
        dist.all_reduce(tensor, op)
        result = values(0, torch.bool)
        for other in range(1, nranks):
            result = function(result, values(other, torch.bool))
        same(tensor.view(torch.uint8), result.view(torch.uint8), f"{op}")
    raises(ValueError, "cannot reduce Bool with AVG", lambda: dist.all_reduce(values(rank, torch.bool), dist.ReduceOp.AVG))


@case()
def premultiplied_sum_with_a_number_and_a_tensor(rank, nranks):
    for dtype in [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32]:
        for factor in (2.0, torch.tensor([2.0]), torch.tensor(2)):
            tensor = values(rank, dtype)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            same(tensor, reduced(dist.ReduceOp.SUM, dtype, nranks, scale=2), f"{dtype} {factor}")
    for _ in range(300):  # more than the operations that a communicator has at once
        tensor = torch.full((4,), float(rank))
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        same(tensor, torch.full((4,), 0.5 * sum(range(nranks))))


@case()
def a_factor_that_the_type_does_not_have_is_refused(rank, nranks):
    factors = [(torch.int64, 0.5), (torch.uint8, -1.0), (torch.int8, 128.0), (torch.int32, float("nan")), (torch.int32, torch.tensor(2**31))]
    for dtype, factor in factors:
        refused = lambda: dist.all_reduce(torch.ones(2, dtype=dtype), dist._make_nccl_premul_sum(factor))  # noqa: B023, E731
        text = raises(ValueError, "the factor of PREMUL_SUM is", refused)
        assert {"torch.int64": "0.5, expected a value of Long"}.get(str(dtype), "expected a value of") in text, text
    for dtype in (torch.complex64, torch.float32):
        given = torch.ones(2, dtype=dtype)
        raises(ValueError, "expected a real number", lambda: dist.all_reduce(given, dist._make_nccl_premul_sum(torch.tensor(1j))))  # noqa: B023
    most = 2**64 - 1
    for dtype, factor, value in ((torch.int8, -128.0, -128), (torch.uint8, 255.0, 255), (torch.uint64, torch.tensor(most, dtype=torch.uint64), most)):
        tensor = torch.full((2,), int(rank == 0)).to(dtype)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        assert tensor.tolist() == [value] * 2, f"{dtype}: {tensor}"
    tensor = torch.full((2,), 1 + 2j)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, torch.full((2,), (1 + 2j) * nranks / 2))


@case()
def what_cannot_be_reduced_is_refused_by_name(rank, nranks):
    raises(ValueError, "cannot reduce Float with BAND", lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    raises(TypeError, "Float8_e4m3fnuz", lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fnuz)))
    raises(ValueError, "complex", lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX))


@case()
def reduce_to_each_root(rank, nranks):
    for root in range(nranks):
        for dtype, op in pairs():
            tensor = values(rank, dtype)
            dist.reduce(tensor, root, op)
            same(tensor, reduced(op, dtype, nranks) if rank == root else values(rank, dtype), f"{dtype} {op}")


@case()
def broadcast_of_every_type_from_each_root(rank, nranks):
    for root, dtype in itertools.product(range(nranks), INTEGERS + FLOATS + COMPLEX + [torch.bool, torch.float8_e4m3fnuz]):
        tensor = values(rank, dtype)
        dist.broadcast(tensor, root)
        same(tensor.view(torch.uint8), values(root, dtype).view(torch.uint8), f"{dtype}")


@case()
def reduce_scatter_of_every_type_with_every_operation(rank, nranks):
    for dtype, op in pairs():
        whole, wanted = values(rank, dtype, 129 * nranks), reduced(op, dtype, nranks, 129 * nranks).chunk(nranks)[rank]
        single = torch.empty(129, dtype=dtype)
        dist.reduce_scatter_single(single, whole.clone(), op)
        same(single, wanted, f"single {dtype} {op}")
        if dtype.is_complex:
            continue  # PyTorch has no lists of complex tensors here
        listed = torch.empty(129, dtype=dtype)
        dist.reduce_scatter(listed, list(whole.clone().chunk(nranks)), op)
        same(listed, wanted, f"list {dtype} {op}")


@case()
def reduce_scatter_of_uneven_lists(rank, nranks):
    sizes = [5 * other for other in range(1, nranks + 1)]
    whole = values(rank, torch.float32, sum(sizes))
    output = torch.empty(sizes[rank])
    dist.reduce_scatter(output, list(whole.split(sizes)))
    same(output, reduced(dist.ReduceOp.SUM, torch.float32, nranks, sum(sizes)).split(sizes)[rank])


@case()
def all_gather_of_every_type(rank, nranks):
    for dtype in INTEGERS + FLOATS + COMPLEX + [torch.bool]:
        listed = [torch.empty(COUNT, dtype=dtype) for _ in range(nranks)]
        dist.all_gather(listed, values(rank, dtype))
        single = torch.empty(nranks * COUNT, dtype=dtype)
        dist.all_gather_single(single, values(rank, dtype))
        for other in range(nranks):
            same(listed[other], values(other, dtype), f"list {dtype}")
            same(single.chunk(nranks)[other], values(other, dtype), f"single {dtype}")


@case()
def all_gather_of_tensors_that_differ_in_size(rank, nranks):
    listed = [torch.empty(3, other) for other in range(nranks)]
    dist.all_gather(listed, torch.full((3, rank), float(rank)))
    for other in range(nranks):
        same(listed[other], torch.full((3, other), float(other)))


@case()
def all_gather_of_objects(rank, nranks):
    got = [None] * nranks
    dist.all_gather_object(got, {"rank": rank, "text": "x" * 1000 * rank})
    assert [each["rank"] for each in got] == list(range(nranks)), got
    box = [f"from {rank}"]
    dist.broadcast_object_list(box, src=nranks - 1)
    assert box == [f"from {nranks - 1}"], box


@case()
def gather_and_scatter_with_each_root(rank, nranks):
    for root in range(nranks):
        rows = [torch.empty(7) for _ in range(nranks)] if rank == root else None
        dist.gather(torch.full((7,), float(rank)), rows, root)
        if rank == root:
            for other in range(nranks):
                same(rows[other], torch.full((7,), float(other)))
        output = torch.empty(7)
        dist.scatter(output, [torch.full((7,), 10.0 + other) for other in range(nranks)] if rank == root else None, root)
        same(output, torch.full((7,), 10.0 + rank))


@case()
def all_to_all_equal_and_uneven(rank, nranks):
    output = torch.empty(nranks * 4)
    dist.all_to_all_single(output, torch.arange(nranks * 4.0) + 100 * rank)
    same(output, torch.cat([torch.arange(4.0) + 4 * rank + 100 * other for other in range(nranks)]))
    sent = [rank + other + 1 for other in range(nranks)]  # symmetric: as many come
    inputs = torch.cat([torch.full((n, 2), float(10 * rank + other)) for other, n in enumerate(sent)])
    output = torch.empty(sum(sent), 2)
    dist.all_to_all_single(output, inputs, sent, sent)
    same(output, torch.cat([torch.full((n, 2), float(10 * other + rank)) for other, n in enumerate(sent)]))
    listed = [torch.empty(n, 2) for n in sent]
    dist.all_to_all(listed, list(inputs.split(sent)))
    same(torch.cat(listed), output)


@case()
def input_and_output_may_share_memory(rank, nranks):
    def room(count):
        return torch.arange(float(count)) + 100 * rank

    def part(other, start):  # of room() of another rank
        return torch.arange(float(start), start + 4) + 100 * other

    for start in (4 * rank, 4 * ((rank + 1) % nranks), 2, 4 * nranks - 2):  # in place, another block, shifted, beyond the end
        starts = [{4 * rank: 4 * r, 4 * ((rank + 1) % nranks): 4 * ((r + 1) % nranks)}.get(start, start) for r in range(nranks)]
        if start in (2, 4 * nranks - 2):
            starts = [start] * nranks
        memory = room(4 * nranks + 2)
        dist.all_gather_single(memory[: 4 * nranks], memory[start : start + 4])
        same(memory[: 4 * nranks], torch.cat([part(r, starts[r]) for r in range(nranks)]), f"all_gather from {start}")
        memory = room(4 * nranks + 2)
        dist.reduce_scatter_single(memory[start : start + 4], memory[: 4 * nranks])
        same(memory[start : start + 4], sum(part(r, 4 * rank) for r in range(nranks)), f"reduce_scatter to {start}")
    memory = room(4 * nranks)
    mine = memory[2:6] if rank == 0 else torch.ones(4)  # one rank's overlap
    dist.all_gather_single(memory, mine)
    same(memory, torch.cat([torch.arange(2.0, 6.0), torch.ones(4 * nranks - 4)]))
    for root in range(nranks):
        memory = room(4 * nranks)
        dist.group.WORLD._get_backend(torch.device("cpu")).gather_single(memory, memory[1:5], _gather(root)).wait()
        if rank == root:
            same(memory, torch.cat([part(r, 1) for r in range(nranks)]), "gather")
    wanted = torch.cat([part(r, 4 * rank) for r in range(nranks)])
    memory = room(4 * nranks)
    dist.all_to_all_single(memory, memory)
    same(memory, wanted, "all_to_all with one buffer")
    memory = room(4 * nranks).reshape(4, nranks).t().contiguous().t()  # strides
    before = memory.clone()
    dist.all_to_all_single(memory.t(), memory.t())
    same(memory.t()[:, 0].contiguous(), torch.stack([before.t()[rank, 0] + 100 * (r - rank) for r in range(nranks)]))
    memory = room(4 * nranks + 1)
    dist.all_to_all_single(memory[1:], memory[: 4 * nranks])
    same(memory[1:], wanted, "all_to_all with a shift")


def _gather(root):
    options = dist.GatherOptions()
    options.rootRank = root
    return options


@case()
def strides_and_views_are_right(rank, nranks):
    base = torch.arange(24.0).reshape(4, 6) + rank
    wanted = sum(torch.arange(24.0).reshape(4, 6) + other for other in range(nranks))
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:3], lambda t: t.unsqueeze(0).expand(1, 4, 6)):
        tensor = base.clone()
        dist.all_reduce(view(tensor))
        same(view(tensor).clone(), view(wanted).clone())
    columns = base.clone().t()
    dist.broadcast(columns, nranks - 1)
    same(columns.contiguous(), (torch.arange(24.0).reshape(4, 6) + nranks - 1).t().contiguous())
    output = torch.zeros(6, 4 * nranks).t()
    dist.all_gather_single(output, base.clone().t().contiguous().t())
    same(output.contiguous(), torch.cat([torch.arange(24.0).reshape(4, 6) + other for other in range(nranks)]))
    output = torch.zeros(4, 2).t()
    dist.reduce_scatter_single(output, torch.ones(2 * nranks, 8)[:, ::2])
    same(output.contiguous(), torch.full((2, 4), float(nranks)))
    listed = [torch.zeros(6, 4).t() for _ in range(nranks)]
    dist.all_gather(listed, base.clone())
    for other in range(nranks):
        same(listed[other].contiguous(), torch.arange(24.0).reshape(4, 6) + other)
    raises(ValueError, "share memory", lambda: dist.all_reduce(torch.ones(1).expand(4)))


@case()
def empty_tensors_are_fine(rank, nranks):
    for shape in ((0,), (3, 0)):
        dist.all_reduce(torch.empty(shape))
        dist.broadcast(torch.empty(shape), 0)
        dist.all_gather([torch.empty(shape) for _ in range(nranks)], torch.empty(shape))
        dist.all_gather_single(torch.empty(0), torch.empty(0))
        dist.reduce_scatter_single(torch.empty(0), torch.empty(0))
        dist.all_to_all_single(torch.empty(0), torch.empty(0))
        dist.reduce(torch.empty(shape), 0)


@case()
def a_long_message_is_right(rank, nranks):
    count = (64 << 20) // 4
    tensor = torch.arange(count, dtype=torch.int32) + rank
    dist.all_reduce(tensor)
    same(tensor, torch.arange(count, dtype=torch.int32) * nranks + sum(range(nranks)))
    del tensor
    output = torch.empty(nranks, count // 4, dtype=torch.int32)
    dist.all_gather_single(output, torch.full((1, count // 4), rank, dtype=torch.int32))
    same(output[:, ::1000].contiguous(), torch.arange(nranks, dtype=torch.int32)[:, None].expand(-1, len(range(0, count // 4, 1000))).contiguous())


@case()
def coalesced_forms_are_right(rank, nranks):
    group = dist.group.WORLD
    tensors = [torch.full((n,), float(rank)) for n in (3, 0, 5)]
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, float(sum(range(nranks)))))
    inputs = [torch.full((n,), float(rank)) for n in (3, 5)]
    outputs = [torch.empty(n * nranks) for n in (3, 5)]
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    for output, n in zip(outputs, (3, 5)):
        same(output, torch.arange(float(nranks)).repeat_interleave(n))
    inputs = [torch.arange(float(n * nranks)) for n in (3, 5)]
    outputs = [torch.empty(n) for n in (3, 5)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    for output, n in zip(outputs, (3, 5)):
        same(output, (torch.arange(float(n)) + n * rank) * nranks)
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(nranks)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), 2.0 * rank)])
    for other in range(nranks):
        same(lists[other][0], torch.full((2,), float(other)))
        same(lists[other][1], torch.full((3,), 2.0 * other))


@case()
def sparse_tensors_are_added(rank, nranks):
    dense = [torch.zeros(6, 3) for _ in range(nranks)]
    for other in range(nranks):
        for row in range(0, 6, other + 1):
            dense[other][row] = other + row + 1.0
    for ndims in (1, 2):
        tensor = dense[rank].to_sparse(ndims)
        dist.all_reduce(tensor)
        same(tensor.to_dense(), sum(dense))
    tensor = (dense[rank] * (rank == 0)).to_sparse(1)  # the others have no element
    dist.all_reduce(tensor)
    same(tensor.to_dense(), dense[0])
    raises(ValueError, "SUM", lambda: dist.all_reduce(dense[rank].to_sparse(), dist.ReduceOp.MAX))


@case()
def all_reduce_coalesced_takes_each_tensor_of_shared_memory_once(rank, nranks):
    whole = torch.ones(6)
    dist.all_reduce_coalesced([whole, whole])
    same(whole, torch.full((6,), float(nranks)))
    whole = torch.ones(6)
    dist.all_reduce_coalesced([whole[2:], whole[:4], torch.empty(0), whole.view(2, 3).t(), whole[5:]])
    same(whole, torch.full((6,), float(nranks)))


@case()
def coalesced_calls_read_their_inputs_before_any_output_is_written(rank, nranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    whole = torch.zeros(3 * nranks)
    whole[nranks] = float(rank)  # the first input lies in the second output, and the second in the first
    first, second = whole[:nranks], whole[nranks : 2 * nranks]
    inputs = [second[:1], first[:1]]
    first[0] = 10.0 + rank
    wanted = [torch.arange(float(nranks)), torch.arange(float(nranks)) + 10]
    backend.all_gather_single_coalesced([first, second], inputs).wait()
    same(first, wanted[0])
    same(second, wanted[1])
    memory = torch.arange(2.0 * nranks)
    inputs = [memory[:nranks], memory[nranks:]]
    outputs = [memory[nranks : nranks + 1], memory[:1]]
    wanted = [nranks * float(rank), nranks * float(nranks + rank)]
    backend.reduce_scatter_single_coalesced(outputs, inputs).wait()
    expect([output.item() for output in outputs] == wanted, f"{outputs}, expected {wanted}")


if __name__ == "__main__":
    main()
