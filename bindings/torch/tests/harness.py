"""Runs test cases as ranks: each case runs in all of N processes, forked from one that has imported torch.

A module of cases calls main(). A case is a function of (rank, nranks); its name is a sentence. It runs in the default group of the backend
tutti unless it says group=False, and then in processes of its own, as a case that ends them does (alone=True).
"""

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta

os.environ.setdefault("TORCH_FR_DUMP_ON_TIMEOUT", "0")  # a dump of PyTorch's flight recorder takes seconds of a processor at each failure

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

LIMIT_S = 120  # of a case, or of all cases that share processes
_cases = []


class Case:
    def __init__(self, function, ranks, group, alone):
        self.function, self.ranks, self.group, self.alone = function, ranks, group, alone
        self.name = function.__name__


def case(ranks=(2, 3, 4), group=True, alone=False):
    def register(function):
        _cases.append(Case(function, ranks, group, alone or not group))
        return function

    return register


class Skip(BaseException):
    """A case raises it, on all ranks, with the reason why it cannot run here."""


class Die(BaseException):
    """A case raises it to end its rank as kill -9 does."""


def begin(rank, nranks, path, backend="tutti"):
    dist.init_process_group(
        backend, init_method=f"file://{path}", rank=rank, world_size=nranks, timeout=timedelta(seconds=60)
    )


def begin_and_limit(rank, nranks, path, seconds):
    """As begin. The group is made in peace, and has this timeout from then on."""
    begin(rank, nranks, path)
    dist.barrier()
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=seconds))


def store_of_rank_0(meeting, rank):
    """A TCPStore that rank 0 has; its port goes over another store."""
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        meeting.set("port", str(store.port))
        return store
    return dist.TCPStore("127.0.0.1", int(meeting.get("port")), None, False)


def meet(store, key, nranks):
    """Waits until all ranks have come here. The store outlives the call on every rank."""
    store.add(key, 1)
    while store.add(key, 0) < nranks:
        time.sleep(0.01)


def calls_of(backend):
    """How many collectives this rank has issued on the group."""
    return backend._get_sequence_number_for_group()


def await_call(backend, before):
    """Waits until another thread is in a collective of the group, which has issued so many before."""
    until = time.monotonic() + 30
    while calls_of(backend) == before and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)  # a call has its number just before it begins


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def same(got, wanted, text=""):
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{text}: {m}")


def raises(kind, pattern, function):
    """The text of the exception, which is of this kind and has the pattern in it."""
    try:
        function()
    except kind as error:
        expect(pattern in str(error), f"expected '{pattern}' in: {error}")
        return str(error)
    raise AssertionError(f"expected {kind.__name__} with '{pattern}', and nothing was raised")


def _rank(cases, rank, nranks, path, results, over):
    """The process of a rank. It ends when those of all ranks may, since a call of another rank may still need it."""
    torch.set_num_threads(1)
    os.close(over[1])
    if cases[0].group:
        begin(rank, nranks, path)
    for each in cases:
        started = time.monotonic()
        try:
            if each.group:
                each.function(rank, nranks)
            else:
                each.function(rank, nranks, path)
            results.put((rank, each.name, "ok", time.monotonic() - started))
        except Skip as reason:
            results.put((rank, each.name, f"skipped: {reason}", 0))
        except Die:
            results.put((rank, each.name, "dies", 0))
            results.close()
            results.join_thread()
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException as error:
            text = "".join(traceback.format_exception_only(error))  # comes first, since `check` shows the first lines of a failure
            results.put((rank, each.name, text + traceback.format_exc(), 0))
            results.close()
            results.join_thread()
            os._exit(1)
    if cases[0].group and not cases[0].alone:
        dist.destroy_process_group()
    results.close()
    results.join_thread()
    os.read(over[0], 1)  # returns when the harness has closed the other end


def _run(cases, nranks):
    """Runs the cases, which share processes. Returns how many failed and were skipped."""
    context = multiprocessing.get_context("fork")
    results, over = context.Queue(), os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(cases, rank, nranks, os.path.join(folder, "store"), results, over))
            for rank in range(nranks)
        ]
        for process in ranks:
            process.start()
        left, errors, whys, dead = {each.name: set(range(nranks)) for each in cases}, {}, {}, set()
        gone = set()  # ranks that have ended by themselves, where no case asks for that
        until = time.monotonic() + LIMIT_S
        while any(left.values()) and not errors and not gone and time.monotonic() < until:
            # Before the look at the results: a rank puts its own before it ends.
            ended = {rank for rank, process in enumerate(ranks) if not process.is_alive()}
            while not results.empty():
                rank, name, outcome, _ = results.get()
                if outcome in ("ok", "dies") or outcome.startswith("skipped: "):
                    left[name].discard(rank)
                    if outcome == "dies":
                        dead.add(rank)
                    elif outcome != "ok":
                        whys[name] = outcome.removeprefix("skipped: ")
                else:
                    errors.setdefault(name, []).append(f"rank {rank}: {outcome}")
            gone = ended - dead
            time.sleep(0.01)
        for end in over:
            os.close(end)
        ends = []
        for rank, process in enumerate(ranks):
            process.join(0 if errors or gone else max(1, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
                if not errors and not gone:
                    ends.append(f"rank {rank} did not end in {LIMIT_S} s")
            elif process.exitcode != 0 and rank not in dead:
                ends.append(f"rank {rank} ended with {process.exitcode}")
        if ends and not errors and not any(left.values()):
            errors["the ranks' end"] = ends
    failed = skipped = 0
    for each in cases:
        where = f"{each.name} ({nranks} ranks)"
        if each.name not in errors and not left[each.name]:
            skipped += each.name in whys
            print(f"skipped: {where}: {whys[each.name]}" if each.name in whys else f"ok      {where}", flush=True)
            continue
        failed += 1
        print(f"FAILED  {where}", flush=True)
        why = ", ".join([f"ranks {sorted(left[each.name])} did not end it, or another case failed", *ends])
        for text in errors.get(each.name, [why]):
            print("  | " + text.replace("\n", "\n  | "), flush=True)
    for text in errors.get("the ranks' end", []):
        failed += 1
        print(f"FAILED  the end of the ranks after {cases[-1].name}: {text}", flush=True)
    return failed, skipped


def main():
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 3], help="numbers of ranks (2 3)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    given = parser.parse_args()
    failed = skipped = count = 0
    for nranks in given.ranks:
        cases = [each for each in _cases if given.only in each.name and nranks in each.ranks]
        together = [each for each in cases if not each.alone]
        for some in [together] * bool(together) + [[each] for each in cases if each.alone]:
            outcome = _run(some, nranks)
            failed, skipped = failed + outcome[0], skipped + outcome[1]
            count += len(some)
    print(f"{max(0, count - failed - skipped)} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed or not count else 0)
