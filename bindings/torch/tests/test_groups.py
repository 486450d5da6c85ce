"""Groups: new, split and merged ones, their options and times, what is refused at creation, debug mode, tensors in shared memory."""

import os
import resource
import signal
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import begin, case, expect, main, meet, raises, same, store_of_rank_0

CPU = torch.device("cpu")


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def total(group, nranks):
    tensor = torch.ones(5)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((5,), float(nranks)))


@case()
def subgroups_reduce_among_themselves(rank, nranks):
    all_but_last = dist.new_group(list(range(nranks - 1)))
    pairs = [dist.new_group([other, (other + 1) % nranks]) for other in range(nranks)]
    if rank < nranks - 1:
        total(all_but_last, nranks - 1)
    for other, pair in enumerate(pairs):
        if rank in (other, (other + 1) % nranks):
            total(pair, 2)
    for group in [all_but_last, *pairs]:
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


@case()
def a_split_group_has_the_ranks_that_it_names(rank, nranks):
    half = dist.split_group(split_ranks=[[0], list(range(1, nranks))], timeout=timedelta(seconds=33))
    total(half, 1 if rank == 0 else nranks - 1)
    expect(backend_of(half).options._timeout == timedelta(seconds=33), f"{backend_of(half).options._timeout}")
    expect(backend_of().options._timeout == timedelta(seconds=60), "the parent keeps its time")
    some = dist.split_group(split_ranks=[list(range(nranks - 1))])
    expect((some is dist.GroupMember.NON_GROUP_MEMBER or some is None) == (rank == nranks - 1), f"{some}")
    if rank < nranks - 1:
        total(some, nranks - 1)


@case()
def a_merged_group_has_ranks_of_several(rank, nranks):
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    merged = backend_of().merge(store, backend_of().options, rank=nranks - 1 - rank, size=nranks)
    expect(merged.rank() == nranks - 1 - rank and merged.size() == nranks, "ranks are as given")
    output = torch.empty(nranks)
    merged.all_gather_single(output, torch.tensor([float(rank)])).wait()
    same(output, torch.arange(float(nranks)).flip(0))
    merged.set_timeout(timedelta(seconds=3))
    expect(backend_of().options._timeout == timedelta(seconds=60), f"the first group keeps its time: {backend_of().options._timeout}")
    merged.shutdown()


@case()
def a_device_mesh_and_its_groups(rank, nranks):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (1, nranks), mesh_dim_names=("one", "all"))
    total(mesh.get_group("all"), nranks)
    total(mesh.get_group("one"), 1)


@case()
def options_and_names(rank, nranks):
    backend = backend_of()
    expect(backend.name() == "tutti" and dist.get_backend() == "tutti", backend.name())
    expect(backend.options.backend == "tutti", backend.options.backend)
    expect(backend.supports_splitting and backend.supports_completion_hooks and backend.supports_abort_hooks, "what it has")
    expect(not backend.supports_coalescing and not backend.supports_window, "what it lacks")
    import tutti_torch

    group = dist.new_group(timeout=timedelta(seconds=57), pg_options=tutti_torch.Options())
    expect(backend_of(group).options._timeout == timedelta(seconds=57), f"{backend_of(group).options._timeout}")
    raises(TypeError, "expected tutti_torch.Options", lambda: dist.new_group(pg_options=dist.ProcessGroupGloo._Options()))
    dist.destroy_process_group(group)


@case()
def times_that_cannot_be_are_refused_and_one_that_is_lost_is_told(rank, nranks):
    import tutti_torch

    backend, less = backend_of(), timedelta(seconds=-5)
    raises(ValueError, "is -5000 ms", lambda: dist.new_group(timeout=less))
    raises(ValueError, "is -5000 ms", lambda: backend.set_timeout(less))
    raises(ValueError, "is -5000 ms", lambda: backend._add_ephemeral_timeout(less))
    options = dist.AllreduceOptions()
    options.timeout = less
    raises(ValueError, "is -5000 ms", lambda: dist.group.WORLD.allreduce([torch.ones(1)], options))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        group = dist.new_group(timeout=timedelta(seconds=57), pg_options=tutti_torch.Options(timeout=timedelta(seconds=5)))
    expect(any("0:00:05, has no effect" in str(each.message) for each in told), f"{[str(each.message) for each in told]}")
    total(group, nranks)
    dist.destroy_process_group(group)


@case(alone=True)
def what_a_call_may_take_can_be_set(rank, nranks):
    group = dist.new_group(timeout=timedelta(seconds=50))
    backend = backend_of(group)
    total(group, nranks)
    backend.set_timeout(timedelta(seconds=2))
    backend._add_ephemeral_timeout(timedelta(seconds=60))
    total(group, nranks)  # ends the extension
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["over"])
        return
    begun = time.monotonic()
    raises(dist.DistBackendError, "waited 2000 ms", lambda: total(group, nranks))
    expect(time.monotonic() - begun < 30, "in time")
    if store.add("seen", 1) == nranks - 1:
        store.set("over", "1")


@case(alone=True)
def one_more_time_for_one_call(rank, nranks):
    group = dist.new_group()
    backend_of(group).set_timeout(timedelta(seconds=1))
    backend_of(group)._add_ephemeral_timeout(timedelta(seconds=60))
    if rank == 0:
        time.sleep(2.5)
    total(group, nranks)


@case()
def a_group_of_gloo_beside_is_fine(rank, nranks):
    group = dist.new_group(backend="cpu:tutti,cuda:gloo")
    total(group, nranks)
    gloo = dist.new_group(backend="gloo")
    total(gloo, nranks)
    dist.destroy_process_group(group)


@case()
def a_second_backend_that_is_not_of_pytorch_is_refused(rank, nranks):
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  it makes the backend `fake` known

    raises(ValueError, "cpu:tutti,cuda:nccl", lambda: dist.new_group(backend="cpu:tutti,cuda:fake"))
    raises(ValueError, "cpu:tutti,cuda:nccl", lambda: dist.new_group(backend="cuda:fake,cpu:tutti"))
    total(None, nranks)


@case()
def a_tensor_of_the_backend_is_in_shared_memory(rank, nranks):
    backend = backend_of()
    expect(backend.supports_tensor_alloc(CPU), "it has tensors")
    for _ in range(3):
        tensor = backend.allocate_tensor(1 << 20, dtype=torch.float32, device=CPU)
        tensor.fill_(float(rank))
        dist.all_reduce(tensor)
        same(tensor, torch.full((1 << 20,), float(sum(range(nranks)))))
        address = tensor.data_ptr()
        del tensor
        again = backend.allocate_tensor((1 << 20) - 5, dtype=torch.float32, device=CPU)
        expect(again.data_ptr() == address and again.numel() == (1 << 20) - 5, "memory is used again")
        del again
    expect(backend.allocate_tensor(0, dtype=torch.int64, device=CPU).numel() == 0, "an empty one")


@case(group=False)
def debug_mode_works(rank, nranks, path):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    begin(rank, nranks, path)
    total(None, nranks)
    dist.barrier()
    output = torch.empty(nranks)
    dist.all_gather_single(output, torch.tensor([float(rank)]))
    same(output, torch.arange(float(nranks)))
    total(dist.new_group(), nranks)
    raises(RuntimeError, "Detected mismatch between collectives on ranks", lambda: dist.all_reduce(torch.ones(2 + rank)))


@case(group=False)
def a_failure_to_make_the_id_reaches_all_ranks(rank, nranks, path):
    import tutti_torch  # noqa: F401  while there are descriptors

    meeting = dist.FileStore(path, nranks)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, nranks, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), nranks, is_master=False, wait_for_workers=False)
    meet(store, "here", nranks)
    if rank == 0:
        used = 1 + max(int(name) for name in os.listdir("/proc/self/fd"))
        for _ in range(used):  # closes the gaps
            os.dup(0)
        used = 1 + max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        raises(dist.DistBackendError, "Too many open files", lambda: _create(store, rank, nranks))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        store.wait(["over"])
    else:
        begun = time.monotonic()
        raises(dist.DistBackendError, "Too many open files", lambda: _create(store, rank, nranks))
        expect(time.monotonic() - begun < 30, "at once")
        if store.add("seen", 1) == nranks - 1:
            store.set("over", "1")


def _refuse_to_join(rank, nranks, path, culprit):
    """The culprit has a setting that is wrong, and lives until the others have its error."""
    meeting = dist.FileStore(f"{path}-meeting", nranks)
    if rank == culprit:
        os.environ["TUTTI_ALGORITHM"] = "fastest"
    text = raises(dist.DistBackendError, 'no collective has an algorithm "fastest"', lambda: begin(rank, nranks, path))
    expect(rank == culprit or f"rank {culprit} (pid" in text, text)
    meet(meeting, "heard", nranks)


@case(group=False)
def all_have_the_error_of_a_rank_that_cannot_join(rank, nranks, path):
    _refuse_to_join(rank, nranks, path, nranks - 1)


@case(group=False)
def all_have_the_error_of_rank_0_when_it_cannot_join(rank, nranks, path):
    _refuse_to_join(rank, nranks, path, 0)


def _member(port, rank, nranks, turn, late):
    """A process that makes the group on the store, as a rank does that torchrun has started."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        time.sleep(1.0 if late else 0)
        store = dist.PrefixStore("round", dist.TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=30)))
        dist.init_process_group("tutti", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=30))
        total(None, nranks)
        received = torch.zeros(1)
        work = dist.isend(torch.ones(1), (rank + 1) % nranks)
        dist.recv(received, (rank - 1) % nranks)
        work.wait()
        meet(store, f"ended {turn}", nranks)  # a rank that ends before may be an error of the others' receive
        status = int(received.item() != 1)
    finally:
        os._exit(status)


@case(group=False)
def a_store_that_outlives_the_ranks_serves_the_next_ones(rank, nranks, path):
    meeting = dist.FileStore(path, nranks)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    port = int(meeting.get("port"))
    for turn, dies in enumerate(("after", "during", "never")):
        child = _member(port, rank, nranks, turn, late=rank == 0 and turn) if dies != "during" or rank < nranks - 1 else None
        if dies == "during":  # the last rank does not come; rank 0 has put its id, and dies
            if rank == 0:
                while not any(str(key).rstrip("'").endswith("/tutti") for key in store.list_keys()):
                    time.sleep(0.01)
                meeting.set("put", "1")
            meeting.wait(["put"])
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        else:
            _, status = os.waitpid(child, 0)
            expect(status == 0, f"round {turn} ended with {status}")
        meet(meeting, f"done {turn}", nranks)


@case(group=False)
def groups_made_again_at_once_on_one_store_find_each_other(rank, nranks, path):
    meeting = dist.FileStore(path, nranks)
    tcp = store_of_rank_0(meeting, rank)
    for turn in range(30):
        for store in (meeting, tcp):
            group, received = _create(store, rank, nranks), torch.zeros(1)
            work = group.send([torch.tensor([float(turn + rank)])], (rank + 1) % nranks, 0)
            group.recv([received], (rank - 1) % nranks, 0).wait()
            work.wait()
            expect(received.item() == turn + (rank - 1) % nranks, f"{received} in turn {turn}")
            group.shutdown()
    meet(meeting, "done", nranks)


@case(group=False)
def a_new_group_has_its_own_time_where_the_stores_is_shorter(rank, nranks, path):
    meeting = dist.FileStore(path, nranks)
    tcp = store_of_rank_0(meeting, rank)
    stores = (dist.FileStore(f"{path}-other", nranks), tcp)
    for turn, store in enumerate(stores):
        store.set_timeout(timedelta(seconds=1))
        begun = time.monotonic()
        meet(meeting, f"begun {turn}", nranks)
        if rank == 0:
            time.sleep(3)
        _create(store, rank, nranks).shutdown()
        expect(rank == 0 or time.monotonic() - begun > 2, "it waits for rank 0")
    import tutti_torch

    for store in stores * (rank != 0):
        options, alone = tutti_torch.Options(timedelta(seconds=3)), dist.PrefixStore(f"rank {rank}", store)
        raises(dist.DistBackendError, "waited 3000 ms", lambda: tutti_torch._C.create(alone, 1, 2, "a test", options, None))
    meet(meeting, "done", nranks)


def _create(store, rank, nranks):
    import tutti_torch

    return tutti_torch._C.create(store, rank, nranks, "a test", tutti_torch.Options(timedelta(seconds=50)), None)


if __name__ == "__main__":
    main()
