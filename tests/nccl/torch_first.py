"""Prints how long PyTorch's init_process_group("nccl") and its first all_reduce take together, in s, and the process's most memory, in MiB."""

import os
import resource
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["RANK"]))
x = torch.ones(1000).to("cuda")
torch.cuda.synchronize()
begun = time.monotonic()
dist.init_process_group("nccl")
dist.all_reduce(x)
torch.cuda.synchronize()
print(f"first {time.monotonic() - begun:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}", flush=True)
dist.destroy_process_group()
