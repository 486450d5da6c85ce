"""Data parallel training: torchrun --nproc-per-node 2 ddp.py --backend tutti"""

import torch.distributed as dist
from model import Model, arguments, begin, train
from torch.nn.parallel import DistributedDataParallel

given = arguments(__doc__)
rank, nranks = begin(given.backend)
train(DistributedDataParallel(Model(), bucket_cap_mb=0.1), given.steps, rank, nranks)
dist.destroy_process_group()
