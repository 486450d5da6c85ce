"""Send and receive: values, order, both directions at once, lengths that differ, what is refused."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import case, expect, main, raises, same

LONG = 1 << 20  # elements: no message of so many waits in a buffer


@case()
def messages_arrive_in_the_order_sent(rank, nranks):
    if rank == 0:
        for i in range(100):
            dist.send(torch.full((i,), float(i)), 1)
    elif rank == 1:
        for i in range(100):
            tensor = torch.empty(i)
            dist.recv(tensor, 0)
            same(tensor, torch.full((i,), float(i)))


@case()
def a_ring_of_long_messages_does_not_block_in_any_order(rank, nranks):
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for sends_first in (True, False):
        got = torch.empty(LONG)
        sent = torch.full((LONG,), float(rank))
        if sends_first:
            works = [dist.isend(sent, right)]
            time.sleep(0.01)  # the send begins before the receive is issued
            works += [dist.irecv(got, left)]
        else:
            works = [dist.irecv(got, left), dist.isend(sent, right)]
        for work in works:
            work.wait()
        same(got, torch.full((LONG,), float(left)))


@case()
def a_batch_with_every_rank_is_right(rank, nranks):
    others = [other for other in range(nranks) if other != rank]
    got = {other: torch.empty(LONG) for other in others}
    ops = [dist.P2POp(dist.isend, torch.full((LONG,), float(10 * rank + other)), other) for other in others]
    ops += [dist.P2POp(dist.irecv, got[other], other) for other in reversed(others)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for other in others:
        same(got[other], torch.full((LONG,), float(10 * other + rank)))


@case()
def messages_and_collectives_do_not_wait_for_each_other(rank, nranks):
    if rank == 0:
        work = dist.isend(torch.ones(LONG), 1)
    dist.barrier()
    if rank == 0:
        work.wait()
    elif rank == 1:
        tensor = torch.empty(LONG)
        dist.recv(tensor, 0)
        same(tensor, torch.ones(LONG))


@case()
def a_receive_may_have_more_room(rank, nranks):
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.send(torch.empty(0), 1)
    elif rank == 1:
        tensor = torch.zeros(5)
        dist.recv(tensor, 0)
        same(tensor, torch.tensor([1.0, 1, 1, 0, 0]))
        dist.recv(tensor, 0)
        same(tensor, torch.tensor([1.0, 1, 1, 0, 0]))


@case()
def a_receive_with_less_room_is_an_error_of_the_receiver_alone(rank, nranks):
    if rank == 0:
        dist.send(torch.ones(LONG), 1)
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        tensor = torch.zeros(2)
        raises(dist.DistBackendError, f"rank 0 sends {4 * LONG} bytes", lambda: dist.recv(tensor, 0))
        same(tensor, torch.zeros(2))
        dist.recv(tensor, 0)
        same(tensor, torch.ones(2))


@case()
def strided_tensors_and_every_kind_of_type(rank, nranks):
    base = torch.arange(12.0).reshape(3, 4)
    for dtype in (torch.float32, torch.complex64, torch.bool, torch.float8_e4m3fn, torch.uint16):
        if rank == 0:
            dist.send(base.to(dtype).t(), 1)
        elif rank == 1:
            tensor = torch.zeros(3, 4, dtype=dtype).t()
            dist.recv(tensor, 0)
            same(tensor.contiguous().view(torch.uint8), base.to(dtype).t().contiguous().view(torch.uint8))


@case()
def objects_go_between_two_ranks(rank, nranks):
    if rank == 0:
        dist.send_object_list([{"a": 1}, "text"], dst=1)
    elif rank == 1:
        box = [None, None]
        dist.recv_object_list(box, src=0)
        expect(box == [{"a": 1}, "text"], f"{box}")


@case()
def a_receive_knows_its_source_and_a_wait_may_end_early(rank, nranks):
    if rank == 0:
        tensor = torch.zeros(2)
        work = dist.irecv(tensor, 1)
        raises(RuntimeError, "timed out", lambda: work.wait(timedelta(milliseconds=50)))
        dist.barrier()
        work.wait()
        same(tensor, torch.ones(2))
        expect(work._source_rank() == 1 if hasattr(work, "_source_rank") else work.source_rank() == 1, "the source")
    else:
        dist.barrier()
        if rank == 1:
            dist.send(torch.ones(2), 0)


@case()
def tags_and_any_source_are_refused_by_name(rank, nranks):
    other = (rank + 1) % nranks
    raises(ValueError, "the tag is 5", lambda: dist.send(torch.ones(1), other, tag=5))
    raises(ValueError, "the tag is 5", lambda: dist.recv(torch.ones(1), other, tag=5))
    raises(RuntimeError, "recv from any rank", lambda: dist.recv(torch.ones(1)))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    raises(ValueError, "expected another one", lambda: backend.send([torch.ones(1)], rank, 0))


if __name__ == "__main__":
    main()
