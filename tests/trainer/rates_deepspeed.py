#!/usr/bin/env python3
"""Prints rates_deepspeed_table.h: the learning rates that DeepSpeed's own schedulers set, from a package of DeepSpeed (a wheel, an sdist,
or the file lr_schedules.py), as from

    pip download --no-deps --dest DIR deepspeed && tests/trainer/rates_deepspeed.py DIR/deepspeed-*.tar.gz >tests/trainer/rates_deepspeed_table.h

PyTorch is not needed: the schedulers only want an optimizer with groups of parameters, for which this script has a class."""
import sys
import tarfile
import types
import zipfile

LR = 0.004  # --lr
STEPS = list(range(12)) + [19, 20, 21, 39, 40, 41, 50, 60, 61, 75, 99]

# The options of tutti-train, and the schedule with DeepSpeed's keys that says the same; --steps is 60.
CASES = [
    ("--schedule=warmup-lr --warmup=10", "WarmupLR", dict(warmup_max_lr=LR, warmup_num_steps=10)),
    ("--schedule=warmup-lr --warmup=1", "WarmupLR", dict(warmup_max_lr=LR, warmup_num_steps=1)),
    ("--schedule=warmup-lr --warmup=20 --warmup-type=linear --start-lr=0.25", "WarmupLR",
     dict(warmup_min_lr=LR / 4, warmup_max_lr=LR, warmup_num_steps=20, warmup_type="linear")),
    ("--schedule=warmup-decay-lr --warmup=20 --start-lr=0.25", "WarmupDecayLR",
     dict(total_num_steps=60, warmup_min_lr=LR / 4, warmup_max_lr=LR, warmup_num_steps=20)),
    ("--schedule=warmup-decay-lr --warmup=10 --warmup-type=linear", "WarmupDecayLR",
     dict(total_num_steps=60, warmup_max_lr=LR, warmup_num_steps=10, warmup_type="linear")),
    ("--schedule=warmup-decay-lr --warmup=70", "WarmupDecayLR", dict(total_num_steps=60, warmup_max_lr=LR, warmup_num_steps=70)),
    ("--schedule=warmup-cosine-lr --warmup=10 --min-lr=0.0001", "WarmupCosineLR", dict(total_num_steps=60, warmup_num_steps=10)),
    ("--schedule=warmup-cosine-lr --warmup=20 --warmup-type=linear --start-lr=0.1 --min-lr=0.05", "WarmupCosineLR",
     dict(total_num_steps=60, warmup_min_ratio=0.1, warmup_num_steps=20, cos_min_ratio=0.05, warmup_type="linear")),
    ("--schedule=one-cycle --min-lr=0.1 --cycle-up=20", "OneCycle",
     dict(cycle_min_lr=LR / 10, cycle_max_lr=LR, cycle_first_step_size=20)),
    ("--schedule=one-cycle --min-lr=0.1 --cycle-up=7 --cycle-down=14 --cycle-decay-steps=5 --cycle-decay=0.5 --cycle-beta1=0.7", "OneCycle",
     dict(cycle_min_lr=LR / 10, cycle_max_lr=LR, cycle_first_step_size=7, cycle_second_step_size=14, decay_step_size=5,
          decay_lr_rate=0.5, cycle_min_mom=0.7)),
    ("--schedule=one-cycle --min-lr=0.1 --cycle-up=20 --cycle-up-stairs=4 --cycle-decay-steps=10", "OneCycle",
     dict(cycle_min_lr=LR / 10, cycle_max_lr=LR, cycle_first_step_size=20, cycle_first_stair_count=4, decay_step_size=10)),
    ("--schedule=one-cycle --min-lr=0.1 --cycle-up=20 --cycle-down=40 --cycle-up-stairs=5 --cycle-down-stairs=3", "OneCycle",
     dict(cycle_min_lr=LR / 10, cycle_max_lr=LR, cycle_first_step_size=20, cycle_second_step_size=40, cycle_first_stair_count=5,
          cycle_second_stair_count=3)),
    ("--schedule=lr-range-test --range-steps=8 --range-rate=1.5", "LRRangeTest",
     dict(lr_range_test_min_lr=LR, lr_range_test_step_size=8, lr_range_test_step_rate=1.5)),
    ("--schedule=lr-range-test --range-steps=8 --range-rate=1.5 --range-staircase=on", "LRRangeTest",
     dict(lr_range_test_min_lr=LR, lr_range_test_step_size=8, lr_range_test_step_rate=1.5, lr_range_test_staircase=True)),
]


def read(path):
    """The text of lr_schedules.py, and the version in the package's name."""
    end = "deepspeed/runtime/lr_schedules.py"
    version = path.rsplit("/", 1)[-1].removeprefix("deepspeed-").removesuffix(".tar.gz").split("-")[0]
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as package:
            return package.read(end).decode(), version
    if path.endswith(".tar.gz"):
        with tarfile.open(path) as package:
            member = next(m for m in package.getmembers() if m.name.endswith(end))
            return package.extractfile(member).read().decode(), version
    with open(path, encoding="utf-8") as file:
        return file.read(), "of a file"


class Optimizer:
    """One group of parameters, as the schedulers know optimizers."""

    def __init__(self):
        self.defaults = {"betas": (0.9, 0.99)}
        self.param_groups = [{"lr": LR, "betas": (0.9, 0.99)}]


def load(text):
    """The names of lr_schedules.py, which gets the few names of PyTorch and of DeepSpeed that it imports."""
    silent = types.SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)
    modules = {"torch": dict(is_tensor=lambda _: False), "torch.optim": dict(Optimizer=Optimizer), "deepspeed": {},
               "deepspeed.utils": dict(logger=silent)}
    for name, contents in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(contents)
    names = {}
    exec(compile(text, "lr_schedules.py", "exec"), names)  # pylint: disable=exec-used
    return names


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text, version = read(sys.argv[1])
    names = load(text)
    print(f"/* Made by rates_deepspeed.py with DeepSpeed {version}: of each schedule the learning rates that\n"
          f" * its own scheduler has set when the optimizer takes a step, and beta1. --lr={LR} --steps=60. */")
    print("/* clang-format off */")
    for options, name, parameters in CASES:
        optimizer = Optimizer()
        scheduler = names[name](optimizer, **parameters)
        print(f'CASE("{options}")')
        for step in range(STEPS[-1] + 1):
            group = optimizer.param_groups[0]
            if step in STEPS:
                print(f"AT({step}, {group['lr']!r}, {group['betas'][0]!r})")
            scheduler.step()
    print("/* clang-format on */\n#undef CASE\n#undef AT")


main()
