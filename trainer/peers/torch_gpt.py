"""The peer of trainer/compare.sh: PyTorch trains the GPT-2 that tutti-train trains, on the same bytes, in fp32.

torch_gpt.py --data FILE [--parallel none|ddp|fsdp] [--ranks N] [--threads N] [--layers, --heads, --width, --context, --vocabulary,
--batch, --micro-batch, --steps]. Prints the seconds of each step, without the reading of its bytes, and the last loss."""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """The head is the embeddings' table."""

    def __init__(self, how):
        super().__init__()
        self.tokens, self.places = nn.Embedding(how.vocabulary, how.width), nn.Embedding(how.context, how.width)
        self.blocks = nn.ModuleList(Block(how.width, how.heads) for _ in range(how.layers))
        self.norm = nn.LayerNorm(how.width)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.t()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def shard(model, how):
    if how.parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if how.parallel == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    return model


def train(rank, how, path):
    torch.set_num_threads(how.threads)
    torch.manual_seed(1)
    if how.parallel != "none":
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=how.ranks)
    model = shard(GPT(how), how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.99), weight_decay=0.1)
    with open(how.data, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    draws = torch.Generator().manual_seed(100 + rank)
    passes = how.batch // how.ranks // how.micro_batch
    for _ in range(how.steps):
        starts = torch.randint(len(data) - how.context - 1, (passes, how.micro_batch), generator=draws)
        windows = [torch.stack([data[s : s + how.context + 1] for s in some]) for some in starts]
        began = time.perf_counter()
        for number, window in enumerate(windows):
            is_last = number == passes - 1
            if how.parallel == "ddp":
                model.require_backward_grad_sync = is_last
            if how.parallel == "fsdp":
                model.set_requires_gradient_sync(is_last)
            loss = model(window[:, :-1], window[:, 1:]) / passes
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"seconds {time.perf_counter() - began:.6f}", flush=True)
    if rank == 0:
        print(f"loss {loss.item() * passes:.4f}", flush=True)
    if how.parallel != "none":
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--parallel", choices=["none", "ddp", "fsdp"], default="none")
    for name, value in dict(
        ranks=1, threads=1, layers=6, heads=6, width=384, context=256, vocabulary=256, batch=8, micro_batch=4, steps=8
    ).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    how = parser.parse_args()
    if how.batch % (how.ranks * how.micro_batch):
        parser.error(f"--batch={how.batch}: expected a multiple of --ranks x --micro-batch = {how.ranks * how.micro_batch}")
    if how.parallel == "none":
        train(0, how, "")
        return
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, args=(how, os.path.join(folder, "store")), nprocs=how.ranks)


if __name__ == "__main__":
    main()
