"""Messages whose other rank dies, leaves, comes late or not at all: errors at once, in the group's numbers of the ranks, and no threads left."""

import os
import re
import signal
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import Die, await_call, begin, begin_and_limit, calls_of, case, expect, main, meet, raises, same, store_of_rank_0

Failed = dist.DistBackendError


def _store():
    return dist.distributed_c10d._get_default_store()


def _soon(seconds, function):
    """The text of the error that comes within so many seconds."""
    begun = time.monotonic()
    text = raises(Failed, "", function)
    expect(time.monotonic() - begun < seconds, f"after {time.monotonic() - begun} s: {text}")
    return text


def _numbers(text):
    """The ranks that the text names, without those in the communicator's name."""
    text = re.sub(r"messages? from rank \d+ to rank \d+", "", text)
    return {int(number) for number in re.findall(r"\brank (\d+)", text)}


@case(ranks=(3, 4), alone=True)
def the_first_message_from_a_dead_rank_fails_at_once(rank, nranks):
    dist.barrier()
    if rank == 1:
        raise Die
    text = _soon(15, lambda: dist.recv(torch.ones(4), 1))
    expect(re.search(r"rank 1 \(host \S+, pid \d+\) has died", text), text)
    expect(f"from rank 1 to rank {rank} in torch group 0" in text and "number" not in text, text)
    text = _soon(15, dist.isend(torch.ones(4), 1).wait)
    expect(re.search(r"rank 1 \(host \S+, pid \d+\) has died", text), text)
    _soon(15, lambda: dist.send(torch.ones(4), 1))
    if rank != 0:
        _store().add("seen", 1)
    else:
        while _store().add("seen", 0) < nranks - 2:
            time.sleep(0.01)


@case(alone=True)
def a_death_while_a_first_message_waits_is_named_at_once(rank, nranks):
    last = nranks - 1
    dist.barrier()
    if rank == last:
        time.sleep(1)
        raise Die
    if rank == 0:
        receives = dist.irecv(torch.ones(4), last)
        expect(f"rank {last} (host" in _soon(20, lambda: dist.send(torch.ones(4), last)), "the send")
        expect(f"rank {last} (host" in _soon(20, receives.wait), "the receive")


@case(ranks=(2,), group=False)
def the_death_of_the_rank_that_has_the_store_is_named_at_once(rank, nranks, path):
    store = store_of_rank_0(dist.FileStore(path, nranks), rank)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=60))
    dist.barrier()
    if rank == 0:
        raise Die
    text = _soon(20, lambda: dist.recv(torch.ones(4), 0))
    expect(re.search(r"rank 0 \(host \S+, pid \d+\) has died", text), text)


@case(ranks=(2,), group=False)
def a_first_message_keeps_its_deadline_where_the_store_does_not_answer(rank, nranks, path):
    meeting = dist.FileStore(path, nranks)
    server = os.fork() if rank == 0 else None
    if server == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        meeting.set("port", str(store.port))
        meeting.wait(["over"], timedelta(seconds=100))
        os._exit(0)
    store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), None, False)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=60))
    dist.barrier()
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=3))
    if rank == 0:
        os.kill(server, signal.SIGSTOP)
        meeting.set("stopped", "1")
    meeting.wait(["stopped"])
    try:
        works = [dist.isend(torch.ones(2), 1 - rank), dist.irecv(torch.ones(2), 1 - rank)]
        for work in works:  # the waits have a time of their own, so that a message without a deadline fails here
            raises(Failed, "waited 3000 ms, and the store does not answer", lambda work=work: work.wait(timedelta(seconds=30)))
    finally:
        meet(meeting, "tried", nranks)  # a rank that ends before would be the other's error
        if rank == 0:
            os.kill(server, signal.SIGCONT)
            meeting.set("over", "1")
            os.waitpid(server, 0)


@case(alone=True)
def the_first_message_to_a_rank_that_has_left_fails_at_once(rank, nranks):
    group = dist.new_group()
    dist.barrier(group=group)
    if rank == nranks - 1:
        dist.destroy_process_group(group)
        dist.barrier()
    else:
        dist.barrier()
        text = _soon(15, lambda: dist.send(torch.ones(4), nranks - 1, group=group))
        expect(f"rank {nranks - 1} (host" in text and "has left" in text, text)
        dist.destroy_process_group(group)


@case(group=False)
def a_first_message_that_is_not_answered_names_both_ranks_at_the_deadline(rank, nranks, path):
    begin_and_limit(rank, nranks, path, 2)
    last = nranks - 1
    if rank == last:
        begun = time.monotonic()
        text = raises(Failed, "waited 2000 ms", lambda: dist.recv(torch.ones(4), 0))
        expect(1.9 < time.monotonic() - begun < 20, text)
        expect(f"rank {last} waited" in text and "rank 0 has not begun to send it" in text, text)
        text = raises(Failed, "waited 2000 ms", lambda: dist.send(torch.ones(4), 0))
        expect(f"rank {last} waited" in text and "rank 0 has not begun to receive it" in text, text)
        _store().set("over", "1")
    else:
        _store().wait(["over"], timedelta(seconds=60))


@case(ranks=(3, 4), group=False)
def a_later_message_that_is_not_answered_has_the_ranks_of_the_group(rank, nranks, path):
    begin(rank, nranks, path)
    source, last, tensor = 1, nranks - 1, torch.ones(4)
    if rank == source:
        dist.send(tensor, last)
        _store().wait(["late"], timedelta(seconds=60))
        text = raises(Failed, f"rank {last} (host", lambda: dist.send(tensor, last))
        expect(_numbers(text) == {source, last}, text)
        _store().set("over", "1")
    elif rank == last:
        dist.recv(tensor, source)
        dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=3))
        text = raises(Failed, "waited 3000 ms", lambda: dist.recv(tensor, source))
        expect(f"rank {last} (host" in text and f"in receive from {source} number 3" in text, text)
        expect(_numbers(text) == {source, last}, text)
        expect(f"messages from rank {source} to rank {last}" in text, text)
        _store().set("late", "1")
    if rank != source:
        _store().wait(["over"], timedelta(seconds=60))


@case(ranks=(3, 4), alone=True)
def a_later_message_from_a_dead_rank_has_the_ranks_of_the_group(rank, nranks):
    source, last, tensor = 1, nranks - 1, torch.ones(4)
    if rank == source:
        dist.send(tensor, last)
        dist.recv(tensor, last)
    elif rank == last:
        dist.recv(tensor, source)
        dist.send(tensor, source)
    dist.barrier()
    if rank == source:
        raise Die
    if rank == last:
        for function in (dist.recv, dist.send):
            text = _soon(15, lambda: [function(torch.ones(1 << 20), source) for _ in range(2)])
            expect(f"rank {source} (host" in text and _numbers(text) <= {source, last}, text)
        _store().set("over", "1")
    else:
        _store().wait(["over"], timedelta(seconds=60))


@case()
def texts_are_renumbered_and_other_numbers_are_not(rank, nranks):
    import tutti_torch

    name = "torch group rank 1, messages from rank 5 to rank 3"
    for text, wanted in (
        ("rank 1 (host vm, pid 1) has died", "rank 3 (host vm, pid 1) has died"),
        (
            f"rank 1 (host rank0, pid 10) waited 1 ms in receive from 0 number 1 (8 bytes) of communicator {name} (set by the program); "
            "rank 0 (host vm, pid 0) did not answer",
            f"rank 3 (host rank0, pid 10) waited 1 ms in receive from 5 number 1 (8 bytes) of communicator {name} (set by the program); "
            "rank 5 (host vm, pid 0) did not answer",
        ),
        ("send to 1 number 10 (1 bytes)", "send to 3 number 10 (1 bytes)"),
        ("rank 0 sends 1 bytes, rank 1 receives 0 bytes", "rank 5 sends 1 bytes, rank 3 receives 0 bytes"),
        ("rank 1 of 2 did not come within 1 ms", "rank 3 did not come within 1 ms"),
        ("rank 12, rank 1x, crank 1, rank 2, rank 1", "rank 12, rank 1x, crank 1, rank 2, rank 3"),
        ("rank 0 left (ranks as numbered there): rank 0 and rank 1", "rank 5 left (ranks as numbered there): rank 0 and rank 1"),
        ("no way to 0: send to 1.0.0.1 failed", "no way to 0: send to 1.0.0.1 failed"),
    ):
        got = tutti_torch._C._renumbered(text, name, [5, 3])
        expect(got == wanted, f"{got}, expected {wanted}")


@case(ranks=(2,))
def numbers_in_a_long_name_stay(rank, nranks):
    import tutti_torch

    options = tutti_torch.Options(timedelta(seconds=60))
    options.group_name = "rank 0 of " + "x" * 80
    group = dist.group.WORLD._get_backend(torch.device("cpu")).split(dist.PrefixStore("long name", _store()), [0, 1], options)
    if rank == 1:
        group.send([torch.ones(1)], 0, 0).wait()
        _store().wait(["named"], timedelta(seconds=60))
        return
    group.recv([torch.ones(1)], 1, 0).wait()
    group.set_timeout(timedelta(seconds=2))
    text = raises(dist.DistBackendError, "rank 0 (host", group.recv([torch.ones(1)], 1, 0).wait)
    expect("communicator torch group rank 0 of xxx" in text, text)
    _store().set("named", "1")


def _threads():
    return len(os.listdir("/proc/self/task"))


@case(alone=True)
def receives_that_nobody_answers_leave_no_threads(rank, nranks):
    dist.barrier()
    other = (rank + 1) % nranks
    for turn in range(6):
        group = dist.new_group()
        dist.barrier(group=group)
        receives = dist.irecv(torch.ones(4), other, group=group)
        time.sleep(0.05)  # the stream's thread begins
        dist.barrier()
        begun = time.monotonic()
        dist.destroy_process_group(group)
        expect(time.monotonic() - begun < 30, "destroy does not wait")
        text = raises(Failed, "", receives.wait)
        expect("on this rank" in text or "has left" in text, text)  # the other rank may be the first one to destroy
        if turn == 0:
            time.sleep(4)  # threads for callbacks end, too
            before = _threads()
    most = before + 2  # threads for callbacks, of which the first group may have needed fewer
    until = time.monotonic() + 30
    while _threads() > most and time.monotonic() < until:
        time.sleep(0.1)
    expect(_threads() <= most, f"{_threads()} threads, {before} after the first group")


@case(alone=True)
def an_asynchronous_call_does_not_wait_for_a_synchronous_one_of_another_thread(rank, nranks):
    dist.barrier()
    store, tensors = _store(), [torch.ones(4), torch.full((4,), 2.0)]
    if rank == 0:
        other, backend = threading.Thread(target=dist.all_reduce, args=(tensors[0],)), dist.group.WORLD._get_backend(torch.device("cpu"))
        before = calls_of(backend)
        other.start()
        await_call(backend, before)
        begun = time.monotonic()
        work = dist.all_reduce(tensors[1], async_op=True)
        expect(time.monotonic() - begun < 20, f"issued after {time.monotonic() - begun} s")
        raises(RuntimeError, "timed out", lambda: work.wait(timedelta(milliseconds=100)))
        expect(time.monotonic() - begun < 30, "a wait with a time ends")
        expect(not work.is_completed(), "it comes after the other call")
        store.set("issued", "1")
        work.wait()
        other.join()
    else:
        store.wait(["issued"])
        for tensor in tensors:
            dist.all_reduce(tensor)
    same(tensors[0], torch.full((4,), float(nranks)))
    same(tensors[1], torch.full((4,), 2.0 * nranks))


@case()
def threads_that_call_synchronously_and_asynchronously_keep_one_order(rank, nranks):
    """A lock around the issue makes the order the same on all ranks."""
    group = dist.new_group()
    results, errors = [], []

    def calls(later):
        try:
            for _ in range(200):
                tensor = torch.ones(1)
                work = dist.all_reduce(tensor, group=group, async_op=later)
                if later:
                    work.wait()
                results.append(tensor.item())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=calls, args=(later,)) for later in (False, True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not errors and results == [float(nranks)] * 800, f"{errors} {set(results)}")
    dist.destroy_process_group(group)


if __name__ == "__main__":
    main()
