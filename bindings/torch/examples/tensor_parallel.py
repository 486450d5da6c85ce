"""Two linear layers split over the ranks, by columns and by rows: torchrun --nproc-per-node 2 tensor_parallel.py --backend tutti"""

import torch.distributed as dist
from model import Model, arguments, begin, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

given = arguments(__doc__)
rank, nranks = begin(given.backend)
mesh = init_device_mesh("cpu", (nranks,))
model = Model()
for block in model.blocks:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
train(model, given.steps, 0, nranks, reports=rank == 0)  # all ranks have the same data
dist.destroy_process_group()
