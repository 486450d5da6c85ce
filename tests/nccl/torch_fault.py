"""PyTorch's backend "nccl" when a rank dies (`WAY=kill`) or comes too late (`WAY=sleep`): the last rank does so in mid-job.

The ranks call all_reduce until PyTorch raises; they print after how many seconds, and the text, and end with status 3. The last rank says
when the fault comes; it sleeps until the file WAKE is there.
"""

import datetime
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
kills = os.environ["WAY"] == "kill"


def reduce(x):
    dist.all_reduce(x)
    torch.cuda.synchronize()


torch.cuda.set_device(rank)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60 if kills else 10))
x = torch.ones(100000).to("cuda")
reduce(x)
begun = time.monotonic()


def kill():
    print("the fault comes", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if rank == nranks - 1 and kills:
    threading.Timer(0.5, kill).start()
elif rank == nranks - 1:
    print("the fault comes", flush=True)
    while not os.path.exists(os.environ["WAKE"]) and time.monotonic() < begun + 60:
        time.sleep(0.1)
try:
    while True:
        reduce(x)
except RuntimeError as error:
    print(f"raised after {time.monotonic() - begun:.1f} s: {error}", flush=True)
    os._exit(3)
