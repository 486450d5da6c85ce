#!/usr/bin/env python3
"""Every collective of libnccl.so.2 with every type and operation, in and out of place, on memory of the host in NRANKS processes.

usage: LIBRARY=PATH collectives.py NRANKS
"""
import ctypes
import random
import sys

import client
import elements

COUNT = 17
LONG = 50_000  # beyond what a slot holds


def block(values, index, count):
    return values[index * count:(index + 1) * count]


class Case:
    """One call: what every rank puts in, and what must come out on this one."""

    def __init__(self, rank, kind, op, root, count):
        self.rank, self.kind, self.op, self.root, self.count = rank, kind, op, root, count
        self.handle = 0 if op is None else op

    def inputs(self, nblocks):
        """[rank][element]: each rank's input of nblocks blocks."""
        seed = f"{self.kind} {self.op} {self.root} {self.count} {nblocks}"
        return [[elements.draw(source, self.kind, self.op, self.rank.nranks) for _ in range(nblocks * self.count)]
                for source in (random.Random(f"{seed} {r}") for r in range(self.rank.nranks))]

    def reduced(self, inputs):
        return [elements.reduce(self.kind, self.op, values) for values in zip(*inputs)]

    def address(self, buffer, index):
        return ctypes.addressof(buffer) + index * self.count * elements.TYPES[self.kind][1]

    def check(self, name, in_place, got, expected):
        if got == expected:
            return
        where = next(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        op = "" if self.op is None else elements.OPS[self.op] + ", "
        raise RuntimeError(f"rank {self.rank.rank} of {self.rank.nranks}: {name} of {self.count} x {elements.TYPES[self.kind][0]}, {op}"
                           f"root {self.root}, {'in' if in_place else 'out of'} place: byte {where} is {got[where]}, expected {expected[where]}")


def run(case, name, mine, noutput, expected, arguments, place):
    """Calls nccl<name> out of place, and in place where `place` says how.

    mine: this rank's input, None: it has none. noutput: blocks of its output; expected: its values, None: it has none.
    place: (blocks of the buffer, at which block the input lies, at which the output)."""
    own, size = case.rank, elements.TYPES[case.kind][1]
    for in_place in (False, True):
        if in_place and place is None:
            continue
        data = b"" if mine is None else elements.encode(case.kind, mine)
        if in_place:
            nblocks, at_in, at_out = place
            buffer = ctypes.create_string_buffer(nblocks * case.count * size)
            source, target = case.address(buffer, at_in), case.address(buffer, at_out)
            ctypes.memmove(source, data, len(data))
        else:
            buffers = ctypes.create_string_buffer(data, max(len(data), 1)), ctypes.create_string_buffer(noutput * case.count * size or 1)
            source = None if mine is None else ctypes.addressof(buffers[0])
            target = None if expected is None else ctypes.addressof(buffers[1])
        own.call(name, source, target, case.count, case.kind, *arguments, own.comm, None)
        if expected is not None:
            wanted = elements.encode(case.kind, expected)
            case.check(name, in_place, ctypes.string_at(target, len(wanted)), wanted)


def reductions(case):
    """All-reduce, reduce and reduce-scatter."""
    own, n = case.rank, case.rank.nranks
    inputs = case.inputs(1)
    result = case.reduced(inputs)
    run(case, "AllReduce", inputs[own.rank], 1, result, (case.handle,), (1, 0, 0))
    is_root = own.rank == case.root
    run(case, "Reduce", inputs[own.rank], 1, result if is_root else None, (case.handle, case.root), (1, 0, 0))
    inputs = case.inputs(n)
    result = block(case.reduced(inputs), own.rank, case.count)
    run(case, "ReduceScatter", inputs[own.rank], 1, result, (case.handle,), (n, 0, own.rank))


def copies(case):
    """The collectives that only copy."""
    own, n, root = case.rank, case.rank.nranks, case.root
    is_root = own.rank == root
    inputs = case.inputs(1)
    run(case, "Broadcast", inputs[root] if is_root else None, 1, inputs[root], (root,), (1, 0, 0))
    everything = [value for values in inputs for value in values]
    run(case, "AllGather", inputs[own.rank], n, everything, (), (n, own.rank, 0))
    run(case, "Gather", inputs[own.rank], n, everything if is_root else None, (root,), (n, own.rank, 0))
    inputs = case.inputs(n)
    run(case, "Scatter", inputs[root] if is_root else None, 1, block(inputs[root], own.rank, case.count), (root,), (n, 0, own.rank))
    result = [value for r in range(n) for value in block(inputs[r], own.rank, case.count)]
    run(case, "AlltoAll", inputs[own.rank], n, result, (), None)


def bcast_and_messages(case):
    """ncclBcast; and every rank sends to the next one and receives from the one before, in a group."""
    own, n = case.rank, case.rank.nranks
    inputs = case.inputs(1)
    data = elements.encode(case.kind, inputs[case.root])
    buffer = ctypes.create_string_buffer(data if own.rank == case.root else bytes(len(data)), len(data))
    own.call("Bcast", ctypes.addressof(buffer), case.count, case.kind, case.root, own.comm, None)
    case.check("Bcast", True, buffer.raw, data)
    source = ctypes.create_string_buffer(elements.encode(case.kind, inputs[own.rank]), len(data))
    target = ctypes.create_string_buffer(len(data))
    own.call("GroupStart")
    own.call("Send", ctypes.addressof(source), case.count, case.kind, (own.rank + 1) % n, own.comm, None)
    own.call("Recv", ctypes.addressof(target), case.count, case.kind, (own.rank - 1) % n, own.comm, None)
    own.call("GroupEnd")
    case.check("Recv", False, target.raw, elements.encode(case.kind, inputs[(own.rank - 1) % n]))


def premultiplied(own, kind, root, count):
    """A pre-multiplied sum, with a scalar of its own on each rank."""
    scalar = ctypes.create_string_buffer(elements.encode(kind, [elements.factor(own.rank)]))
    op = ctypes.c_int()
    own.call("RedOpCreatePreMulSum", ctypes.byref(op), scalar, kind, 1, own.comm)
    case = Case(own, kind, elements.PREMUL, root, count)
    case.handle = op.value
    reductions(case)
    own.call("RedOpDestroy", op, own.comm)


def all_to_all_in_place(own):
    """Is taken, as NCCL takes it; what results is not defined."""
    buffer = ctypes.create_string_buffer(own.nranks * COUNT * 4)
    own.call("AlltoAll", ctypes.addressof(buffer), ctypes.addressof(buffer), COUNT, 7, own.comm, None)


def main(own):
    for kind in range(len(elements.TYPES)):
        root = kind % own.nranks
        for op in range(elements.PREMUL):
            reductions(Case(own, kind, op, root, COUNT))
        premultiplied(own, kind, root, COUNT)
        case = Case(own, kind, None, root, COUNT)
        copies(case)
        bcast_and_messages(case)
    reductions(Case(own, 7, elements.SUM, own.nranks - 1, LONG))
    copies(Case(own, 7, None, own.nranks - 1, LONG))
    all_to_all_in_place(own)
    if own.rank == 0:
        print(f"{len(elements.TYPES)} types x {len(elements.OPS)} operations, 10 calls, {own.nranks} ranks: right")


client.run(int(sys.argv[1]), main)
