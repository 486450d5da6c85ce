"""A small transformer for the examples, and data that every run has alike."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, LAYERS, TOKENS, WORDS = 64, 2, 32, 96


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def arguments(text):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--backend", default="tutti", choices=["tutti", "gloo"])
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def begin(backend):
    """Joins the group that torchrun describes. Returns the rank and the number of ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    torch.manual_seed(1)
    return dist.get_rank(), dist.get_world_size()


def loss_of(model, step, part):
    """The loss of a batch; ranks with different parts have different batches."""
    generator = torch.Generator().manual_seed(1000 * step + part)
    tokens = torch.randint(WORDS, (4, TOKENS + 1), generator=generator)
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(model, steps, part, nranks, reports=None):
    """The rank that reports, 0 or the one that says so, prints the mean of the ranks' losses of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loss = loss_of(model, step, part)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.SUM)
        if part == 0 if reports is None else reports:
            print(f"step {step} loss {mean.item() / nranks:.9f}", flush=True)
