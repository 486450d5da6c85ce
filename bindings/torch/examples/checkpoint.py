"""Sharded training that writes a checkpoint, reads it into a new model, and goes on: torchrun --nproc-per-node 2 checkpoint.py"""

import shutil
import tempfile

import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from model import Model, arguments, begin, train
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

given = arguments(__doc__)
rank, nranks = begin(given.backend)
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)
model, again = fully_shard(Model()), fully_shard(Model())
train(model, given.steps, rank, nranks)
checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
state = {"model": get_model_state_dict(again)}
checkpoint.load(state, checkpoint_id=folder[0])
set_model_state_dict(again, state["model"])
train(again, given.steps, rank, nranks)
dist.barrier()
if rank == 0:
    shutil.rmtree(folder[0])
dist.destroy_process_group()
