"""Wrong arguments, ranks that disagree, die or come late: an exception of PyTorch's kind that names the culprit, on every rank."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import Die, begin, begin_and_limit, case, expect, main, raises

Failed = dist.DistBackendError


@case()
def wrong_arguments_are_named_and_leave_the_group_usable(rank, nranks):
    raises(ValueError, "expected 0 to", lambda: dist.group.WORLD.broadcast([torch.ones(1)], _options(dist.BroadcastOptions, rootRank=nranks)))
    raises(ValueError, "expected", lambda: dist.all_gather([torch.ones(1)] * (nranks + 1), torch.ones(1)))
    raises(ValueError, "elements, expected", lambda: dist.all_gather([torch.ones(2)] * nranks, torch.ones(1)))
    raises(ValueError, f"expected {3 * nranks}", lambda: dist.all_gather_single(torch.ones(2), torch.ones(3)))
    raises(TypeError, "types differ", lambda: dist.all_gather_single(torch.ones(3 * nranks), torch.ones(3, dtype=torch.int32)))
    raises(ValueError, f"expected {2 * nranks}", lambda: dist.reduce_scatter_single(torch.ones(2), torch.ones(3)))
    raises(ValueError, "multiple of the number of ranks", lambda: dist.all_to_all_single(torch.ones(nranks + 1), torch.ones(nranks + 1)))
    raises(ValueError, "a sum of", lambda: dist.all_to_all_single(torch.ones(nranks), torch.ones(nranks), [2] * nranks, [2] * nranks))
    huge = [2**62] * nranks  # the sum is more than an int64 has
    raises(ValueError, "a sum of", lambda: dist.all_to_all_single(torch.ones(nranks), torch.ones(nranks), huge, huge))
    ones = [1] * nranks
    wide = torch.ones(nranks, 3)
    raises(ValueError, "block for itself", lambda: dist.all_to_all_single(torch.ones(nranks, 2), wide, ones, ones))
    raises(ValueError, "block for itself", lambda: dist.all_to_all([torch.ones(2)] * nranks, [torch.ones(3)] * nranks))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for size, dtype in ((2**61 + 1, torch.float64), (2**62 + 1, torch.float32)):
        raises(ValueError, "expected at most", lambda: backend.allocate_tensor(size, dtype=dtype, device=torch.device("cpu")))
    raises(ValueError, "cpu:tutti,cuda:nccl", lambda: backend.allreduce([torch.ones(2, device="meta")]))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    expect(tensor.tolist() == [nranks] * 3, f"{tensor}")


def _options(kind, **values):
    options = kind()
    for name, value in values.items():
        setattr(options, name, value)
    return options


@case(alone=True)
def ranks_that_disagree_are_shown_on_every_rank(rank, nranks):
    dist.all_reduce(torch.ones(4))
    text = raises(Failed, "ranks disagree", lambda: dist.all_reduce(torch.ones(4 + (rank == 1))))
    expect("count 4" in text and "count 5" in text, text)
    raises(Failed, "ranks disagree", lambda: dist.all_reduce(torch.ones(4)))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if hasattr(backend, "get_error"):
        expect("SUCCESS" not in str(backend.get_error()), "the group has failed")


@case(alone=True)
def ranks_that_each_broadcast_learn_by_the_next_call(rank, nranks):
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(4), rank)
    text = raises(Failed, "ranks disagree", lambda: dist.all_reduce(torch.ones(4)))
    expect("broadcast number 2" in text, text)


@case(ranks=(2,), group=False)
def a_rank_beyond_the_world_is_refused_before_it_waits(rank, nranks, path):
    def begin_as(number):
        dist.init_process_group("tutti", store=dist.HashStore(), rank=number, world_size=nranks, timeout=timedelta(seconds=60))

    raises(ValueError, f"rank is {nranks + rank} of world size {nranks}, expected 0 to {nranks - 1}", lambda: begin_as(nranks + rank))


@case()
def sparse_tensors_that_differ_in_shape_or_type_are_refused_on_every_rank(rank, nranks):
    last = nranks - 1
    longer = torch.sparse_coo_tensor([[5 if rank < last else 9]], [1.0], (6 if rank < last else 10,))
    text = raises(ValueError, "rank 0 has [6]", lambda: dist.all_reduce(longer))
    expect(f"rank {last} has [10]" in text, text)
    hybrid = torch.eye(4).to_sparse(1 if rank == 0 else 2)
    text = raises(ValueError, "rank 0 has [4, 4] with 1 sparse and 1 dense", lambda: dist.all_reduce(hybrid))
    expect("rank 1 has [4, 4] with 2 sparse and 0 dense" in text, text)
    deeper = torch.ones([2] * (rank + 1)).to_sparse()
    raises(ValueError, "rank 1 has [2, 2]", lambda: dist.all_reduce(deeper))
    other = torch.eye(4, dtype=torch.float64 if rank == last else torch.float32).to_sparse()
    text = raises(ValueError, "dense dimensions, Float, rank", lambda: dist.all_reduce(other))
    expect(f"rank {last} has [4, 4] with 2 sparse and 0 dense dimensions, Double" in text, text)
    number = torch.sparse_coo_tensor(torch.zeros(0, 3, dtype=torch.int64), torch.ones(3), ())
    dist.all_reduce(number)
    expect(number.to_dense().item() == 3 * nranks, f"{number}")


@case(alone=True)
def asynchronous_calls_that_disagree_fail_in_wait_and_in_the_future(rank, nranks):
    work = dist.all_reduce(torch.ones(4 + (rank == 1)), async_op=True)
    raises(Failed, "ranks disagree", work.wait)
    expect(work.is_completed() and not work.is_success(), "it has failed")
    other = dist.all_reduce(torch.ones(4), async_op=True)
    raises(RuntimeError, "ranks disagree", other.get_future().wait)


@case(group=False)
def a_late_rank_is_named_at_the_deadline(rank, nranks, path):
    begin_and_limit(rank, nranks, path, 2)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["over"], timedelta(seconds=60))
        return
    begun = time.monotonic()
    text = raises(Failed, "rank 0", lambda: dist.all_reduce(torch.ones(4)))
    expect(1.5 < time.monotonic() - begun < 30, f"after {time.monotonic() - begun} s: {text}")
    if store.add("seen", 1) == nranks - 1:
        store.set("over", "1")


@case(alone=True)
def the_death_of_a_rank_is_named_at_once(rank, nranks):
    dist.barrier()
    if rank == nranks - 1:
        raise Die
    begun = time.monotonic()
    tensor = torch.ones(4)
    text = raises(Failed, f"rank {nranks - 1}", lambda: dist.all_reduce(tensor))
    expect(time.monotonic() - begun < 20, f"after {time.monotonic() - begun} s: {text}")
    raises(Failed, f"rank {nranks - 1}", dist.all_reduce(tensor, async_op=True).wait)


@case(ranks=(2,), group=False)
def abort_hooks_run_once_at_the_first_failure(rank, nranks, path):
    begin_and_limit(rank, nranks, path, 2)
    store, told = dist.distributed_c10d._get_default_store(), []
    if rank == 1:
        store.wait(["over"], timedelta(seconds=60))
        return
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))

    def bad():
        told.append("bad")
        raise RuntimeError("a hook that fails")

    backend.register_abort_hook(1, bad)
    backend.register_abort_hook(2, lambda: told.append("good"))
    work = dist.all_reduce(torch.ones(4), async_op=True)
    raises(dist.DistBackendError, "rank 1", work.wait)
    raises(dist.DistBackendError, "rank 1", lambda: dist.all_reduce(torch.ones(4)))
    store.set("over", "1")
    dist.destroy_process_group()
    expect(told == ["bad", "good"], f"{told}")


@case(ranks=(2,), group=False)
def abort_hooks_run_once_for_each_queue_that_fails(rank, nranks, path):
    begin_and_limit(rank, nranks, path, 2)
    store, told = dist.distributed_c10d._get_default_store(), []
    if rank == 1:
        store.wait(["over"], timedelta(seconds=60))
        return
    dist.group.WORLD._get_backend(torch.device("cpu")).register_abort_hook(1, lambda: told.append(1))
    calls = (lambda: dist.recv(torch.ones(4), 1), lambda: dist.send(torch.ones(4), 1), lambda: dist.all_reduce(torch.ones(4)))
    for i, call in enumerate(calls):
        for _ in range(2):
            raises(Failed, "waited 2000 ms", call)
        until = time.monotonic() + 20
        while len(told) <= i and time.monotonic() < until:
            time.sleep(0.01)
        expect(len(told) == i + 1, f"call {i}: told {len(told)} times")
    store.set("over", "1")
    dist.destroy_process_group()
    expect(len(told) == len(calls), f"told {len(told)} times")


def _fail_with_a_slow_hook(rank, path, call):
    """The call fails before the abort hook has ended, and the group's end waits for the hook."""
    begin(rank, 2, path)
    dist.barrier()
    if rank == 1:
        raise Die
    raised, ended = threading.Event(), threading.Event()

    def slow():
        raised.wait(30)
        time.sleep(1)
        ended.set()

    dist.group.WORLD._get_backend(torch.device("cpu")).register_abort_hook(1, slow)
    raises(Failed, "rank 1", call)
    expect(not ended.is_set(), "the error comes before the end of the hook")
    raised.set()
    dist.destroy_process_group()
    expect(ended.is_set(), "the group ends after the hook")


@case(ranks=(2,), group=False)
def a_synchronous_error_does_not_wait_for_abort_hooks(rank, nranks, path):
    _fail_with_a_slow_hook(rank, path, lambda: dist.all_reduce(torch.ones(4)))


@case(ranks=(2,), group=False)
def an_asynchronous_error_does_not_wait_for_abort_hooks(rank, nranks, path):
    _fail_with_a_slow_hook(rank, path, lambda: dist.all_reduce(torch.ones(4), async_op=True).wait())


@case(ranks=(2,), group=False)
def an_abort_hook_may_wait_for_a_thread_that_aborts(rank, nranks, path):
    begin(rank, nranks, path)
    dist.barrier()
    if rank == 1:
        raise Die
    backend, ended, waited = dist.group.WORLD._get_backend(torch.device("cpu")), threading.Event(), []

    def hook():
        thread = threading.Thread(target=dist.distributed_c10d._abort_process_group)
        thread.start()
        thread.join(30)
        waited.append(thread.is_alive())
        ended.set()

    backend.register_abort_hook(1, hook)
    raises(Failed, "rank 1", lambda: dist.all_reduce(torch.ones(4)))
    expect(ended.wait(60) and waited == [False], "the abort does not wait for the hook")


@case(ranks=(2,), group=False)
def a_failure_while_an_abort_calls_hooks_calls_them_no_second_time(rank, nranks, path):
    begin(rank, nranks, path)
    dist.barrier()
    if rank == 1:
        raise Die
    backend, begun, over, told = dist.group.WORLD._get_backend(torch.device("cpu")), threading.Event(), threading.Event(), []

    def hook():
        told.append(1)
        begun.set()
        over.wait(60)

    backend.register_abort_hook(1, hook)
    aborts = threading.Thread(target=backend.abort)
    aborts.start()
    expect(begun.wait(30), "the abort calls the hook")
    raises(Failed, "rank 1", lambda: dist.all_reduce(torch.ones(4)))
    until = time.monotonic() + 2
    while len(told) == 1 and time.monotonic() < until:
        time.sleep(0.01)
    over.set()
    aborts.join()
    expect(told == [1], f"told {len(told)} times")


@case(ranks=(2,), group=False)
def an_abort_hook_may_end_the_group(rank, nranks, path):
    begin(rank, nranks, path)
    dist.barrier()
    if rank == 1:
        raise Die
    backend, ended = dist.group.WORLD._get_backend(torch.device("cpu")), threading.Event()
    backend.register_abort_hook(1, lambda: (backend.shutdown(), ended.set()))
    raises(Failed, "rank 1", lambda: dist.all_reduce(torch.ones(4)))
    expect(ended.wait(30), "the hook does not wait for itself")


if __name__ == "__main__":
    main()
