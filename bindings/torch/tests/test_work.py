"""Works and futures: order, values, waits with a time, callbacks, threads, abort, what a Work tells of itself."""

import contextlib
import gc
import multiprocessing
import os
import resource
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import Skip, case, expect, main, raises, same, store_of_rank_0


@case()
def asynchronous_calls_end_in_order_with_the_right_values(rank, nranks):
    tensors = [torch.full((1000,), float(rank + i)) for i in range(50)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, torch.full((1000,), float(sum(range(nranks)) + nranks * i)))


@case()
def a_synchronous_call_comes_after_what_is_queued(rank, nranks):
    tensor = torch.full((1 << 18,), float(rank + 1))
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(5)]
    dist.all_reduce(tensor)
    same(tensor[:1], torch.full((1,), float(sum(range(1, nranks + 1)) * nranks**5)))
    expect(all(work.is_completed() for work in works), "the works before it have ended")
    other = torch.full((1 << 18,), 1.0)
    work = dist.all_reduce(other, async_op=True)
    dist.barrier()
    expect(work.is_completed(), "a barrier comes after all earlier work")
    same(other[:1], torch.full((1,), float(nranks)))


@case()
def a_work_ends_by_itself_when_nobody_waits(rank, nranks):
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    until = time.monotonic() + 30
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    expect(work.is_completed() and work.is_success(), "it ends")
    same(tensor, torch.full((10,), float(nranks)))


@case()
def the_value_of_a_future_is_a_list_of_tensors(rank, nranks):
    tensor = torch.ones(10)
    value = dist.all_reduce(tensor, async_op=True).get_future().wait()
    expect(isinstance(value, list) and value[0] is tensor or value[0].data_ptr() == tensor.data_ptr(), f"{value}")
    same(value[0], torch.full((10,), float(nranks)))
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    same(work.get_future().wait()[0], torch.full((10,), float(nranks**2)))
    same(work.result()[0], tensor)
    result = dist.all_reduce(torch.ones(1), async_op=True).get_future_result().wait()
    expect(result == torch._C._distributed_c10d.WorkResult.SUCCESS or int(result) == 0, f"{result}")


@case()
def a_work_is_complete_when_its_futures_are(rank, nranks):
    tensor = torch.zeros(4)
    for i in range(300):
        work = dist.all_reduce(tensor, async_op=True)
        futures = [work.get_future(), work.get_future_result()][: 1 + i % 2]
        while i % 3 == 0 and not work.is_completed():
            time.sleep(0)
        if i % 3:
            work.wait()
        expect(all(future.done() for future in futures), f"call {i}: the work is complete and a future is not")
        same(futures[0].value()[0], tensor)


@case()
def a_wait_does_not_wait_for_callbacks(rank, nranks):
    event, tensor = threading.Event(), torch.ones(4)

    def block(_):  # PyTorch runs a callback at once where the future is complete already
        return threading.current_thread() is threading.main_thread() or event.wait(60)

    work = dist.all_reduce(tensor, async_op=True)
    blocked = [future.then(block) for future in (work.get_future_result(), work.get_future())]
    work.wait()
    expect(work.is_completed(), "it is")
    event.set()
    expect(all(future.wait() for future in blocked), "the callbacks end after that")

    def of_itself(_):
        work.wait()
        inner = dist.all_reduce(tensor, async_op=True)
        future = inner.get_future()
        inner.wait()
        return work.is_completed() and future.done()

    work = dist.all_reduce(tensor, async_op=True)
    expect(work.get_future().then(of_itself).wait(), "a callback waits for its own work and for a further one")


@case()
def a_callback_may_issue_and_wait_for_another_collective(rank, nranks):
    def again(future):
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, async_op=True).wait()
        inner = dist.all_reduce(tensor, async_op=True).get_future()
        return inner.wait()[0] + 1

    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(again)
    same(future.wait(), torch.full((10,), float(nranks**4 + 1)))


def _nthreads():
    return len(os.listdir("/proc/self/task"))


def _callbacks(rank, nranks, count, function):
    """Rank 0's futures of so many collectives, which the others begin when rank 0 has its futures: their values come from function."""
    tensor, futures = torch.ones(2), []
    if rank == 0:
        futures = [dist.all_reduce(tensor, async_op=True).get_future().then(function) for _ in range(count)]
    _tell_others(rank, nranks)
    for _ in range(count * (rank != 0)):
        dist.all_reduce(tensor)
    return futures


def _run_a_callback(rank, nranks):
    """Rank 0's pool of callbacks has a thread from then on."""
    for future in _callbacks(rank, nranks, 1, lambda _: 1):
        future.wait()


_told = multiprocessing.get_context("fork").Semaphore(0)


def _tell_others(rank, nranks):
    """The others wait for rank 0. A message would give the pool of callbacks threads; a store's file may not be opened by another user."""
    if rank == 0:
        for _ in range(nranks - 1):
            _told.release()
    else:
        _told.acquire()


@case(alone=True)
def threads_of_callbacks_are_given_back(rank, nranks):
    _run_a_callback(rank, nranks)
    before, event = _nthreads(), threading.Event()
    futures = _callbacks(rank, nranks, 30, lambda _: event.wait(60))
    if rank != 0:
        return
    until = time.monotonic() + 30
    while _nthreads() < before + 28 and time.monotonic() < until:
        time.sleep(0.01)
    expect(_nthreads() >= before + 28, f"callbacks run at once: {before}, {_nthreads()} threads")
    event.set()
    for future in futures:
        future.wait()
    until = time.monotonic() + 30
    while _nthreads() > before + 3 and time.monotonic() < until:
        time.sleep(0.1)
    expect(_nthreads() <= before + 3, f"{before}, {_nthreads()} threads")


@contextlib.contextmanager
def _no_more_threads(rank):
    """The system gives rank 0 no more of them."""
    usual = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 0)  # root has no limit
        resource.setrlimit(resource.RLIMIT_NPROC, (1 if rank == 0 else usual[0], usual[1]))
        yield
    except PermissionError as error:
        raise Skip(f"root may not become another user: {error}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, usual)
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)


@case(alone=True)
def callbacks_run_where_the_system_gives_no_more_threads(rank, nranks):
    dist.all_reduce(torch.ones(2))
    for _ in range(2):  # the pool has no thread, and then one
        with _no_more_threads(rank):
            values = [future.wait() for future in _callbacks(rank, nranks, 20, lambda _: threading.get_ident())]
        expect(len(values) == 20 * (rank == 0) and len(set(values)) <= 1, f"all run, in one thread: {values}")
        _run_a_callback(rank, nranks)


@case(group=False)
def a_first_message_that_gets_no_thread_is_an_error_and_leaves_the_group_as_it_was(rank, nranks, path):
    # The store is no file: a thread drops the link's copy of the store later, and PyTorch ends a process that may not open the file then.
    store = store_of_rank_0(dist.FileStore(path, nranks), rank)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=60))
    dist.barrier()
    if rank == 0:
        with _no_more_threads(rank):
            raises(RuntimeError, "", lambda: dist.isend(torch.ones(2), 1))
        expect("SUCCESS" in str(_backend().get_error()), f"{_backend().get_error()}")
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        received = torch.zeros(2)
        dist.recv(received, 0)
        same(received, torch.ones(2))
    if rank == 0:
        with _no_more_threads(rank):
            raises(RuntimeError, "", lambda: dist.irecv(torch.ones(2), 1))
    dist.destroy_process_group()


def _backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def _done(future):
    """Whether the future is complete within 30 s."""
    until = time.monotonic() + 30
    while not future.done() and time.monotonic() < until:
        time.sleep(0.01)
    return future.done()


@case(alone=True)
def a_callback_may_wait_for_a_work_that_ends_where_there_are_no_more_threads(rank, nranks):
    import tutti_torch

    _run_a_callback(rank, nranks)
    begun, tensor = threading.Event(), torch.ones(2)

    def wait_for_another(_):
        tutti_torch._C._set_completion_hook(_backend(), lambda: (begun.set(), time.sleep(0.5)))
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        expect(begun.wait(30), "the call ends in the stream's thread")
        work.wait()
        tutti_torch._C._set_completion_hook(_backend(), None)
        return future

    with _no_more_threads(rank):
        futures = _callbacks(rank, nranks, 1, wait_for_another)
        if rank != 0:
            dist.all_reduce(tensor)
        for future in futures:
            expect(_done(future), "the callback's wait ends, though no thread completes the future that it holds")
            expect(_done(future.value()), "that future is completed after the callback")
    same(tensor, torch.full((2,), float(nranks)))


@case(alone=True)
def a_wait_with_a_time_does_not_wait_for_completion_hooks(rank, nranks):
    import tutti_torch

    tensor = torch.ones(2)
    if rank != 0:
        for _ in range(6):
            dist.all_reduce(tensor)
        return
    begun, over = threading.Event(), threading.Event()
    tutti_torch._C._set_completion_hook(_backend(), lambda: (begun.set(), over.wait(60)))
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    expect(begun.wait(30), "the hook runs")
    at = time.monotonic()
    work.wait(timedelta(seconds=50))
    expect(future.done() and time.monotonic() - at < 30, f"a wait that comes later ended after {time.monotonic() - at} s")
    ended = False
    for seconds in (0.5, 1, 2, 4, 8):
        over.set()
        work.wait()
        over.clear()
        work = dist.all_reduce(tensor, async_op=True)
        if ended:
            continue
        try:
            ended = work.wait(timedelta(seconds=seconds))
        except RuntimeError as error:  # where the machine is loaded
            expect("timed out" in str(error), f"{error}")
    expect(ended, "a wait that came before the end ends at its time, without an error")
    over.set()
    work.wait()
    tutti_torch._C._set_completion_hook(_backend(), None)


@case()
def a_wait_with_a_time_ends_and_the_call_goes_on(rank, nranks):
    if rank == 0:
        tensor = torch.ones(10)
        work = dist.all_reduce(tensor, async_op=True)
        begun = time.monotonic()
        raises(RuntimeError, "timed out", lambda: work.wait(timedelta(milliseconds=100)))
        expect(0.09 < time.monotonic() - begun < 20, "the wait takes its time")
        for less in (timedelta(milliseconds=-1), timedelta(days=-30)):
            raises(RuntimeError, "timed out", lambda less=less: work.wait(less))
        expect(not work.is_completed(), "the call goes on")
        dist.distributed_c10d._get_default_store().set("waited", "1")
        work.wait()
        same(tensor, torch.full((10,), float(nranks)))
    else:
        dist.distributed_c10d._get_default_store().wait(["waited"])
        dist.all_reduce(torch.ones(10))


@case()
def threads_and_groups_at_once(rank, nranks):
    groups = [dist.new_group() for _ in range(3)]
    errors = []

    def work(group, i):
        try:
            for k in range(30):
                tensor = torch.full((100 * (k + 1),), float(rank + i))
                if k % 2:
                    dist.all_reduce(tensor, group=group)
                else:
                    dist.all_reduce(tensor, group=group, async_op=True).wait()
                same(tensor, torch.full_like(tensor, float(sum(range(nranks)) + i * nranks)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(group, i)) for i, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not errors, f"{errors}")
    for group in groups:
        dist.destroy_process_group(group)


@case()
def a_work_may_be_collected_anywhere(rank, nranks):
    for i in range(20):
        tensor = torch.ones(1000)
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(5)]
        if i % 2:
            thread = threading.Thread(target=lambda some: some.clear(), args=(works,))
            thread.start()
            thread.join()
        del works, tensor
        gc.collect()
    dist.barrier()


@case()
def a_work_tells_of_itself(rank, nranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    expect(work.is_completed() and work.is_success(), "done")
    expect(work.timeout == timedelta(seconds=60), f"the deadline is the group's: {work.timeout}")
    expect(backend._get_sequence_number_for_group() == before + 1, "the group counts its calls")
    raises(RuntimeError, "no source rank", work.source_rank)
    raises(RuntimeError, "takes no times", work._get_duration)
    backend._enable_collectives_timing()
    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
    work.wait()
    expect(0 < work._get_duration() < 10000, f"{work._get_duration()} ms")


@case()
def the_profiler_shows_the_call(rank, nranks):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(10), async_op=True).wait()
        dist.broadcast(torch.ones(10), 0)
    names = [event.name for event in profile.events()]
    expect(names.count("tutti:all_reduce") == 2, f"{names}")
    expect("tutti:broadcast" in names, f"{names}")


@case()
def both_futures_of_a_work_may_be_asked_for_at_any_time(rank, nranks):
    for i in range(300):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        first, second = (work.get_future_result, work.get_future) if i % 2 else (work.get_future, work.get_future_result)
        one = first()
        work.wait()
        other = second()
        one.wait()
        other.wait()


if __name__ == "__main__":
    main()
