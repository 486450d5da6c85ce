"""How groups end: abort from another thread, exit with queued work, exit without destroy, fork, threads of DataLoader."""

import os
import pickle
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from harness import LIMIT_S, Skip, await_call, begin, calls_of, case, expect, main, raises, same

CPU = torch.device("cpu")


def _program(text, rank, nranks, path, before="", timeout=50, trace=""):
    """Runs the text, behind the one of before the group, as a rank in a process of its own, whose exit is the interpreter's. Its status and output.
    trace: the file, less the rank, that PyTorch's flight recorder writes at a failure, which takes half a minute where the machine is loaded."""
    start = before + (
        "import torch, torch.distributed as dist, datetime, os, sys, threading\n"
        f"rank, nranks = {rank}, {nranks}\n"
        f"dist.init_process_group('tutti', init_method='file://{path}', rank=rank, world_size=nranks, timeout=datetime.timedelta(seconds={timeout}))\n"
    )
    environment = os.environ | ({"TORCH_FR_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": trace} if trace else {})
    done = subprocess.run([sys.executable, "-c", start + text], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    return done.returncode, done.stdout + done.stderr


@case(group=False)
def exit_without_destroy_is_quiet(rank, nranks, path):
    status, output = _program("t = torch.ones(2)\ndist.all_reduce(t)\nprint(t)", rank, nranks, path)
    expect(status == 0 and f"tensor([{nranks}., {nranks}.])" in output, f"{status}: {output}")


@case(group=False)
def exit_with_queued_work_does_not_hang(rank, nranks, path):
    text = """
dist.barrier()
if rank == 0:
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(3)]
    works[0].get_future().then(lambda f: print('called'))
    irecv = dist.irecv(torch.ones(4), 1)
"""
    status, output = _program(text, rank, nranks, path, timeout=10 * LIMIT_S)  # a hang is one until the timeout
    expect(status == 0, f"{status}: {output}")


@case(group=False)
def functions_of_atexit_may_use_the_group(rank, nranks, path):
    before = """
import atexit
def cleanup():
    t = torch.ones(2)
    dist.all_reduce(t)
    future = dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0] + 1)
    dist.barrier()
    print('reduced', future.wait().tolist())
    if rank % 2 == 0:
        dist.destroy_process_group()
    print('ended')
atexit.register(cleanup)
"""
    status, output = _program("dist.barrier()", rank, nranks, path, before=before)
    sums = [float(nranks**2 + 1)] * 2
    expect(status == 0 and f"reduced {sums}\nended" in output, f"{status}: {output}")


@case(ranks=(2,), group=False)
def the_others_hear_that_a_program_has_left_not_that_it_aborts(rank, nranks, path):
    text = """
dist.barrier()
if rank == 1:
    raise SystemExit(3)
try:
    dist.all_reduce(torch.ones(4))
except dist.DistBackendError as error:
    print(error)
"""
    status, output = _program(text, rank, nranks, path)
    expect(status == 3 * rank, f"{status}: {output}")
    expect(rank == 1 or "rank 1 (host" in output and "abort" not in output, output)


@case(ranks=(2,), group=False)
def the_flight_recorder_has_written_its_file_when_the_program_has_ended(rank, nranks, path):
    text = """
dist.barrier()
if rank == 0:
    try:
        dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        print(error)
"""
    status, output = _program(text, rank, nranks, path, trace=f"{path}-trace-")
    expect(status == 0 and (rank == 1 or "rank 1 (host" in output), f"{status}: {output}")
    if rank == 0:
        with open(f"{path}-trace-0", "rb") as file:
            entries = pickle.load(file)["entries"]
        expect("tutti:all_reduce" in [entry["profiling_name"] for entry in entries], f"{entries}")


@case(group=False)
def a_send_that_is_queued_at_exit_arrives(rank, nranks, path):
    text = """
if rank == 0:
    dist.send(torch.ones(1), 1)  # the two ranks connect before the second begins that the exit gives
    work = dist.isend(torch.arange(1 << 20), 1)
elif rank == 1:
    t = torch.zeros(1 << 20, dtype=torch.int64)
    first = dist.irecv(torch.zeros(1), 0)
    dist.irecv(t, 0).wait()
    print('right' if (t == torch.arange(1 << 20)).all() else 'wrong')
"""
    status, output = _program(text, rank, nranks, path)
    expect(status == 0 and (rank != 1 or "right" in output), f"{status}: {output}")


@case(group=False)
def exit_inside_a_call_of_another_thread_does_not_hang(rank, nranks, path):
    text = """
dist.barrier()
if rank == 0:
    backend = dist.group.WORLD._get_backend(torch.device('cpu'))
    before = backend._get_sequence_number_for_group()
    threading.Thread(target=dist.all_reduce, args=(torch.ones(4),), daemon=True).start()
    import time
    while backend._get_sequence_number_for_group() == before:
        time.sleep(0.01)
    time.sleep(0.5)  # the thread is in the call: Python ends the process if a thread comes to PyTorch after that
else:
    import time; time.sleep(3)  # the call does not end by the death of this rank
"""
    status, output = _program(text, rank, nranks, path, timeout=10 * LIMIT_S)
    expect(status == 0, f"{status}: {output}")


@case(alone=True)
def abort_from_another_thread_ends_a_wait(rank, nranks):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
        told = []
        dist.group.WORLD._get_backend(CPU).register_abort_hook(1, lambda: told.append(1))
        timer = threading.Timer(0.3, dist.distributed_c10d._abort_process_group)
        timer.start()
        begun = time.monotonic()
        for work in works:
            raises(dist.DistBackendError, "abort", work.wait)
        expect(time.monotonic() - begun < 20, "at once")
        timer.join()
        expect(told == [1], f"the hook ran: {told}")
        store.set("over", "1")
    else:
        store.wait(["over"])
        raises(dist.DistBackendError, "rank 0", lambda: [dist.all_reduce(torch.ones(4)) for _ in range(4)])


@case(alone=True)
def abort_ends_a_synchronous_call_and_a_receive(rank, nranks):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        backend = dist.group.WORLD._get_backend(CPU)
        work, before = dist.irecv(torch.ones(4), 1), calls_of(backend)
        threading.Thread(target=lambda: (await_call(backend, before), backend.abort())).start()
        raises(dist.DistBackendError, "abort", lambda: dist.all_reduce(torch.ones(4)))
        raises(dist.DistBackendError, "on this rank", lambda: dist.all_reduce(torch.ones(4)))
        store.set("over", "1")
    else:
        store.wait(["over"])


@case(alone=True)
def an_abort_hook_that_raises_does_not_cancel_the_abort(rank, nranks):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        backend, told = dist.group.WORLD._get_backend(CPU), []

        def bad(text):
            told.append(text)
            raise RuntimeError(text)

        backend.register_abort_hook(1, lambda: bad("first hook"))
        backend.register_abort_hook(2, lambda: bad("second hook"))
        work = dist.all_reduce(torch.ones(4), async_op=True)
        raises(RuntimeError, "first hook", backend.abort)
        raises(dist.DistBackendError, "abort", work.wait)
        expect(told == ["first hook", "second hook"], f"{told}")
        store.set("over", "1")
    else:
        store.wait(["over"])


def _abort_in_a_hook(rank, abort):
    """A hook of rank 0 that aborts its group, by `abort`, is called once."""
    dist.barrier()
    store, told = dist.distributed_c10d._get_default_store(), []
    if rank == 0:
        backend = dist.group.WORLD._get_backend(CPU)

        def hook():
            told.append(1)
            if len(told) < 10:
                abort(backend)

        backend.register_abort_hook(1, hook)
        backend.abort()
        expect(told == [1], f"{told}")
        raises(dist.DistBackendError, "shut down", dist.barrier)
        store.set("over", "1")
    else:
        store.wait(["over"])


@case(alone=True)
def an_abort_hook_that_aborts_the_group_runs_once(rank, nranks):
    _abort_in_a_hook(rank, lambda backend: backend.abort())


@case(alone=True)
def an_abort_hook_whose_thread_aborts_the_group_runs_once(rank, nranks):
    def abort(backend):
        thread = threading.Thread(target=backend.abort)
        thread.start()
        thread.join()

    _abort_in_a_hook(rank, abort)


@case(group=False)
def threads_that_abort_at_once_call_abort_hooks_once(rank, nranks, path):
    text = """
import time
sys.setswitchinterval(1e-6)
backend, until, running, most = dist.group.WORLD._get_backend(torch.device('cpu')), time.monotonic() + 6, [], []
def hook():
    running.append(1)
    most.append(len(running))
    time.sleep(0.0001)
    running.pop()
def abort():
    while time.monotonic() < until:
        backend.abort()
backend.register_abort_hook(1, hook)
threads = [threading.Thread(target=abort) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print('at most', max(most), 'at a time')
"""
    if rank:
        return
    status, output = _program(text, 0, 1, f"{path}-{rank}")
    expect(status == 0 and "at most 1 at a time" in output, f"{status}: {output}")


@case(group=False)
def hooks_may_be_registered_while_hooks_are_called(rank, nranks, path):
    begin(0, 1, f"{path}-{rank}")
    backend, until = dist.group.WORLD._get_backend(CPU), time.monotonic() + 1

    def register():
        for i in range(1000000):
            backend.register_abort_hook(i % 5, lambda: None)
            backend.unregister_abort_hook((i + 2) % 5)
            if time.monotonic() > until:
                break

    threads = [threading.Thread(target=register) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        backend.abort()
    for thread in threads:
        thread.join()


@case(alone=True)
def a_group_may_be_destroyed_while_works_live(rank, nranks):
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    dist.destroy_process_group()
    work.wait()
    same(future.wait()[0], torch.full((4,), float(nranks**2)))
    expect(work.is_completed(), "it is")


@case(alone=True)
def destroy_gives_up_receives_and_completes_the_rest(rank, nranks):
    other = (rank + 1) % nranks
    received = torch.zeros(1 << 18)
    sends = dist.isend(torch.full((1 << 18,), 7.0), other)
    receives = dist.irecv(received, (rank - 1) % nranks)
    receives.wait()
    never = dist.irecv(torch.zeros(4), (rank - 1) % nranks)
    tensor = torch.ones(4)
    reduces = dist.all_reduce(tensor, async_op=True)
    backend = dist.group.WORLD._get_backend(CPU)
    begun = time.monotonic()
    dist.destroy_process_group()
    expect(time.monotonic() - begun < 30, "it does not wait for the receive")
    sends.wait()
    reduces.wait()
    same(tensor, torch.full((4,), float(nranks)))
    same(received, torch.full((1 << 18,), 7.0))
    text = raises(dist.DistBackendError, "", never.wait)
    expect("aborted on this rank" in text or "has left" in text, text)  # the other rank may be the first one to end
    raises(dist.DistBackendError, "shut down", lambda: backend.send([tensor], other, 0))
    raises(dist.DistBackendError, "shut down", lambda: backend.barrier())


@case(alone=True)
def destroy_that_gives_up_a_receive_calls_no_abort_hook(rank, nranks):
    store, told = dist.distributed_c10d._get_default_store(), []
    dist.group.WORLD._get_backend(CPU).register_abort_hook(1, lambda: told.append(1))
    if rank == 0:
        dist.recv(torch.zeros(4), 1)
        never = dist.irecv(torch.zeros(4), 1)
        time.sleep(0.3)  # the receive begins
        dist.destroy_process_group()
        raises(dist.DistBackendError, "aborted on this rank", never.wait)
        expect(not told, "nothing has failed")
        store.set("over", "1")
    else:
        if rank == 1:
            dist.send(torch.zeros(4), 0)
        store.wait(["over"])


@case(alone=True)
def destroy_gives_up_a_receive_from_a_rank_that_never_sends(rank, nranks):
    never = dist.irecv(torch.zeros(4), (rank - 1) % nranks)
    time.sleep(0.05)  # the stream's thread begins
    begun = time.monotonic()
    dist.destroy_process_group()
    expect(time.monotonic() - begun < 30, "it does not wait")
    del never


@case(alone=True)
def a_child_made_by_fork_cannot_use_the_group_and_ends(rank, nranks):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    backend, told = dist.group.WORLD._get_backend(CPU), []
    backend.register_abort_hook(1, lambda: told.append(1))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            raises(dist.DistBackendError, "forked", lambda: dist.all_reduce(torch.ones(4)))
            raises(dist.DistBackendError, "forked", lambda: dist.all_reduce(torch.ones(4), async_op=True))
            raises(dist.DistBackendError, "forked", lambda: dist.isend(torch.ones(4), (rank + 1) % nranks))
            expect("COMM_ERROR" in str(backend.get_error()), f"the child has no communicator: {backend.get_error()}")
            backend.abort()
            expect(not told, "the hooks are the parent's")
            dist.destroy_process_group()
            path = f"/tmp/tutti-torch-child-{os.getpid()}"
            begin(0, 1, path)  # a group of its own
            own = torch.ones(4)
            dist.all_reduce(own, async_op=True).get_future().wait()
            os.unlink(path)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    expect(status == 0, f"the child ended with {status}")
    expect("SUCCESS" in str(backend.get_error()), "the parent's group lives")
    work.wait()
    dist.all_reduce(tensor)
    same(tensor, torch.full((4,), float(nranks**3)))


@case(alone=True)
def workers_of_a_data_loader_live_beside_a_group(rank, nranks):
    dist.barrier()
    try:
        import multiprocessing

        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        expect(error.errno in (13, 30, 38), f"{error}")
        raise Skip(f"DataLoader's workers need semaphores, and there are none here: {error}") from error
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    for _ in range(2):
        seen = 0.0
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
            dist.all_reduce(batch)
            seen += batch.sum().item()
        expect(seen == sum(range(64)) * nranks, f"{seen}")


if __name__ == "__main__":
    main()
