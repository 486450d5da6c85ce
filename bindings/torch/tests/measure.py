"""Times calls of torch.distributed on Gloo and on tutti in one run, in turns: measure.py [--ranks 2] [--hogs 2]. Prints medians in us.

Each size is measured in rounds; in each round one backend follows the other. Hogs are processes that compute all the time.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

SIZES = [8, 64, 512, 4096, 32768, 262144, 1 << 20, 4 << 20, 16 << 20]


def calls(nranks, nbytes):
    """{name: function of a group that makes the call}; nbytes: of the larger buffer."""
    count = max(nranks, nbytes // 4)
    count -= count % nranks
    whole, part = torch.ones(count), torch.ones(count // nranks)
    return {
        "all_reduce": lambda group, later: dist.all_reduce(whole, group=group, async_op=later),
        "broadcast": lambda group, later: dist.broadcast(whole, 0, group=group, async_op=later),
        "all_gather_single": lambda group, later: dist.all_gather_single(whole, part, group=group, async_op=later),
        "reduce_scatter_single": lambda group, later: dist.reduce_scatter_single(part, whole, group=group, async_op=later),
    }


def timed(call, group, later, n):
    times = []
    for _ in range(n):
        begun = time.perf_counter()
        work = call(group, later)
        if work is not None:
            work.wait()
        times.append((time.perf_counter() - begun) * 1e6)
    return times


def measure(rank, nranks, path, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{path}", rank=rank, world_size=nranks, timeout=timedelta(seconds=300))
    groups = {"gloo": dist.new_group(backend="gloo"), "tutti": dist.group.WORLD}
    if rank == 0:
        print(f"load {os.getloadavg()[0]:.2f} at the beginning; us, medians of {rounds} rounds, {nranks} ranks")
        print(f"{'call':22} {'bytes':>9} {'mode':5} {'gloo':>10} {'tutti':>10} {'ratio':>6}", flush=True)
    for nbytes in SIZES:
        n = max(10, min(50, (4 << 20) // nbytes))
        for name, call in calls(nranks, nbytes).items():
            for later in (False, True):
                times = {"gloo": [], "tutti": []}
                for round in range(rounds):
                    for backend, group in groups.items():
                        dist.barrier()
                        some = timed(call, group, later, n)
                        times[backend] += some if round else []  # the first one warms up
                gloo, tutti = (statistics.median(times[backend]) for backend in ("gloo", "tutti"))
                if rank == 0:
                    mode = "async" if later else "sync"
                    print(f"{name:22} {nbytes:9} {mode:5} {gloo:10.1f} {tutti:10.1f} {gloo / tutti:6.1f}", flush=True)
    if rank == 0:
        print(f"load {os.getloadavg()[0]:.2f} at the end")
    dist.destroy_process_group()


def hog():
    while True:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    context = multiprocessing.get_context("fork")
    hogs = [context.Process(target=hog, daemon=True) for _ in range(given.hogs)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        ranks = [context.Process(target=measure, args=(rank, given.ranks, path, given.rounds)) for rank in range(given.ranks)]
        for process in hogs + ranks:
            process.start()
        for process in ranks:
            process.join()
        for process in hogs:
            process.kill()


if __name__ == "__main__":
    main()
