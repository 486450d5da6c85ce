"""Training with parameters, gradients and optimizer state sharded (FSDP2): torchrun --nproc-per-node 2 fsdp.py --backend tutti"""

import torch.distributed as dist
from model import Model, arguments, begin, train
from torch.distributed.fsdp import fully_shard

given = arguments(__doc__)
rank, nranks = begin(given.backend)
model = Model()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
train(model, given.steps, rank, nranks)
dist.destroy_process_group()
