"""Every example prints the losses that it prints on Gloo."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
RELATIVE = 1e-6
# PyTorch 2.15's Gloo: now and then a program on it aborts with these words when it ends, its group destroyed and its losses printed.
ABORTED = "terminate called without an active exception"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def losses(example, backend, nranks):
    """What rank 0 prints: a loss a step."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(nranks)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / example), "--backend", backend],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(nranks)
    ]
    try:
        texts = [rank.communicate(timeout=180)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, text in zip(ranks, texts):
        if rank.returncode != 0 and not (backend == "gloo" and text.rstrip().endswith(ABORTED)):
            raise RuntimeError(f"{example} on {backend} ended with {rank.returncode}:\n{text}")
    found = [float(loss) for loss in re.findall(r"loss ([-0-9.e+]+)", texts[0])]
    if len(found) < 3:
        raise RuntimeError(f"{example} on {backend} printed {len(found)} losses:\n{texts[0]}")
    return found


def main():
    failed = count = 0
    only = sys.argv[1:] or sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "model.py")
    for example in only:
        count += 1
        try:
            gloo, tutti = losses(example, "gloo", 2), losses(example, "tutti", 2)
            worst = max(abs(a - b) / abs(a) for a, b in zip(gloo, tutti))
            if len(gloo) != len(tutti) or worst > RELATIVE:
                raise RuntimeError(f"Gloo: {gloo}, tutti: {tutti}")
            print(f"ok      {example}: the losses differ by {worst:.1e} at most, relatively", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {example}\n  | " + str(error).replace("\n", "\n  | "), flush=True)
    print(f"{count - failed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed or not count else 0)


if __name__ == "__main__":
    main()
