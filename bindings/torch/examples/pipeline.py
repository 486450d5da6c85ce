"""Layers on one rank each, with batches that follow one another: torchrun --nproc-per-node 2 pipeline.py --backend tutti"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from model import TOKENS, WIDTH, WORDS, Block, arguments, begin
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

given = arguments(__doc__)
rank, nranks = begin(given.backend)
blocks = [Block() for _ in range(nranks)]
head = torch.nn.Linear(WIDTH, WORDS)
module = torch.nn.Sequential(blocks[rank], head) if rank == nranks - 1 else blocks[rank]
stage = PipelineStage(module, rank, nranks, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()))
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
for step in range(given.steps):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(8, TOKENS, WIDTH, generator=generator)
    targets = torch.randint(WORDS, (8, TOKENS), generator=generator)
    losses = []
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(**({"target": targets, "losses": losses} if rank == nranks - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
    mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
    dist.broadcast(mean, nranks - 1)
    if rank == 0:
        print(f"step {step} loss {mean.item():.9f}", flush=True)
dist.destroy_process_group()
