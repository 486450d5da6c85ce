"""Times `tutti-train generate` on GPT-2 with 124 million parameters, batch 1, fp32: beside the memory's bandwidth, since each byte of text reads
all weights once, and beside Hugging Face's transformers, where this Python has them. In turns, in one run. For developers.

generate.py [--build DIR] [--threads N] [--turns N] [--tokens N] [--data FILE]. Needs PyTorch."""

import argparse
import os
import re
import subprocess
import tempfile
import time

import torch

MODEL = dict(layers=12, heads=12, width=768, context=1024, vocabulary=50257)


def bandwidth(gib=1):
    """Bytes a second at which all threads read memory past the caches."""
    data = torch.ones(gib << 28)
    best = 0.0
    for _ in range(6):
        began = time.perf_counter()
        data.sum()
        best = max(best, data.numel() * 4 / (time.perf_counter() - began))
    return best


def tutti(how, folder):
    """Tokens a second: of all, and of those after the first one, for which the prompt is read."""
    out = subprocess.run([how.build + "/bin/tutti-train", "generate", "--from=" + folder, "--prompt=" + how.prompt, f"--tokens={how.tokens}",
                          "--temperature=0", f"--threads={how.threads}"], check=True, capture_output=True).stderr.decode(errors="replace")
    seconds, later = re.search(r"tokens in ([0-9.]+) s: .* then ([0-9.]+) tokens/s", out).groups()
    return float(how.tokens) / float(seconds), float(later)


def transformers_model():
    """None where there are no transformers."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return None
    return GPT2LMHeadModel(GPT2Config()).eval()


def transformers(how, model):
    ids = torch.tensor([list(how.prompt.encode())])
    began = time.perf_counter()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=how.tokens, min_new_tokens=how.tokens, do_sample=False,
                       use_cache=True, pad_token_id=0)
    return how.tokens / (time.perf_counter() - began)


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--data", default="docs/trainer.md")
    parser.add_argument("--prompt", default="A collective is")
    how = parser.parse_args()
    torch.set_num_threads(how.threads)
    model = transformers_model()
    rates = {"tutti-train": [], "after the first": [], "transformers": []}
    memory = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([how.build + "/bin/tutti-train", *(f"--{name}={value}" for name, value in MODEL.items()), "--batch=1", "--micro-batch=1",
                        "--optimizer=sgd", "--steps=1", "--data=" + how.data, "--sample=0", "--held-out=0", "--tied=on", "--checkpoint=" + folder],
                       check=True, stdout=subprocess.DEVNULL)
        weights = 4 * (MODEL["layers"] * (12 * MODEL["width"] ** 2 + 13 * MODEL["width"]) + MODEL["vocabulary"] * MODEL["width"] + 2 * MODEL["width"])
        for _ in range(how.turns):
            memory.append(bandwidth())
            for name, rate in zip(rates, tutti(how, folder)):
                rates[name].append(rate)
            if model:
                rates["transformers"].append(transformers(how, model))
    read = median(memory)
    print(f"{how.threads} threads, {os.path.basename(how.build)}; memory read at {read / 1e9:.1f} GB/s (median of {how.turns}); "
          f"a token reads {weights / 1e6:.0f} MB of weights: at most {read / weights:.1f} tokens/s")
    for name, values in rates.items():
        if values:
            print(f"{name:15s} best {max(values):.1f}, median {median(values):.1f} tokens/s: {100 * median(values) * weights / read:.0f} % of the bandwidth")
        else:
            print(f"{name:15s} not timed: this Python has none")


main()
