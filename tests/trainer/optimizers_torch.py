"""A step of tutti-train from one checkpoint to the next, computed once more: by PyTorch's AdamW, SGD and Muon, and by LAMB as DeepSpeed
has it. The gradient of the step follows from the running means of both checkpoints.
Usage: optimizers_torch.py FOLDER...: each ends in OPTIMIZER-RANKS, and has step-00000002 and 3 of a run that optimizers_torch.sh started.
"""
import json
import struct
import sys

import torch

try:
    import torch.optim._muon as muon
except ImportError:
    muon = None


class Double:
    """PyTorch's module for its Muon, which computes in bfloat16 what it can compute in float64 as well."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


if muon:
    muon.torch = Double()


def read(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, row in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = row["data_offsets"]
            flat = torch.frombuffer(bytearray(data[8 + length + begin : 8 + length + end]), dtype=torch.float32)
            tensors[name] = flat.reshape(row["shape"]).double()
    return tensors


step, lr, decay, share, beta2, eps = 3, 0.01, 0.1, 0.6, 0.99, 1e-6  # as optimizers_torch.sh gives them; share: of momentum, beta1


def torch_step(optimizer, parameter, gradient, state):
    parameter.grad = gradient
    optimizer.state[parameter].update(state)
    optimizer.step()
    return parameter.detach()


def expected(kind, before, after, name):
    weights, mean = before[name].clone(), before[name + ".m"]
    hidden = weights.ndim == 2 and name.startswith("blocks.")
    fades = decay if hidden or name == "head.weight" else 0.0
    take = 1.0 if kind == "sgd" else 1 - share
    gradient = (after[name + ".m"] - share * mean) / take
    parameter = torch.nn.Parameter(weights)
    if kind == "sgd":
        rule = torch.optim.SGD([parameter], lr=lr, momentum=share)
        updated = torch_step(rule, parameter, gradient, {"momentum_buffer": mean.clone()})
        return updated - lr * fades * before[name]
    if kind == "muon" and hidden:
        assert name + ".v" not in after, f"{name} has a state that Muon does not use"
        rule = torch.optim.Muon([parameter], lr=lr, weight_decay=fades, momentum=share, adjust_lr_fn="match_rms_adamw")
        return torch_step(rule, parameter, gradient, {"momentum_buffer": mean.clone()})
    if kind == "lamb":
        m, v = after[name + ".m"], after[name + ".v"]
        update = (m / (1 - share**step)) / ((v / (1 - beta2**step)).sqrt() + eps) + fades * weights
        trust = (weights.norm() / update.norm()).clamp(0.01, 10) if weights.norm() > 0 and update.norm() > 0 else 1
        return weights - lr * trust * update
    rule = torch.optim.AdamW([parameter], lr=lr, betas=(share, beta2), eps=eps, weight_decay=fades)
    state = {"step": torch.tensor(float(step - 1)), "exp_avg": mean.clone(), "exp_avg_sq": before[name + ".v"].clone()}
    return torch_step(rule, parameter, gradient, state)


failures = 0
for folder in sys.argv[1:]:
    kind = folder.rsplit("/", 1)[-1].split("-")[0]
    if kind == "muon" and not muon:
        print(f"{folder.rsplit('/', 1)[-1]}: skipped: torch {torch.__version__} has no Muon, which came with 2.9")
        continue
    before, after = (read(f"{folder}/step-0000000{number}.safetensors") for number in (2, 3))
    worst, at, moved = 0.0, "", 0.0
    for name in before:
        if not name.endswith((".m", ".v")):
            off = (expected(kind, before, after, name) - after[name]).abs().max().item()
            moved = max(moved, (after[name] - before[name]).abs().max().item())
            worst, at = max((worst, at), (off, name))
    failures += not worst < 1e-3 * moved
    print(f"{kind}: weights move by {moved:.3g} at most, {worst:.2g} off in {at}")
sys.exit(failures > 0)
