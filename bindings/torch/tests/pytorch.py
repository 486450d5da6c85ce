"""Runs PyTorch's own tests of torch.distributed on tutti: torch.testing._internal.distributed.distributed_test, on CPUs.

Where a test names a backend, tutti counts as gloo. Every test that runs on Gloo has to pass, but for those that left_out.txt lists with a
reason; one that is listed and passes has to leave the list. Whether Gloo runs a test is asked of the test itself: its decorators do not know
tutti from gloo.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "torch.testing._internal.distributed.distributed_test"


class CountsAsGloo(str):
    """The name tutti, which is equal to gloo too."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


class Outcomes(unittest.TestResult):
    """The outcome of each test, told when it ends."""

    def __init__(self):
        super().__init__()
        self.of, self.texts, self.begun = {}, {}, {}

    def startTest(self, test):
        super().startTest(test)
        self.begun[test] = time.monotonic()

    def note(self, test, outcome, text=""):
        name = test.id().rsplit(".", 1)[-1]
        self.of[name], self.texts[name] = outcome, text
        print(f"{outcome:8}{name} {time.monotonic() - self.begun.get(test, time.monotonic()):.1f} s", flush=True)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        self.note(test, "failed", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.note(test, "failed", self._exc_info_to_string(error, test))


def left_out():
    """The reasons of left_out.txt: {test: reason}."""
    reasons = {}
    for line in (HERE / "left_out.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(None, 1)
            reasons[name] = reason
    return reasons


def suite(backend, only):
    import importlib

    module = importlib.import_module(MODULE)
    module.BACKEND = CountsAsGloo("tutti") if backend == "tutti" else backend

    class Ranks(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    Ranks.__name__ = Ranks.__qualname__ = "Ranks"
    names = [name for name in unittest.TestLoader().getTestCaseNames(Ranks) if not only or any(part in name for part in only)]
    return unittest.TestSuite(Ranks(name) for name in names)


def run(backend, nranks, only):
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(nranks), OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        outcomes = Outcomes()
        suite(backend, only).run(outcomes)
    return outcomes


def judge(outcomes, backend, nranks, verbose):
    """Prints what is wrong, and the counts. Whether all is right."""
    reasons = left_out() if backend == "tutti" else {}
    failed = [name for name, outcome in outcomes.of.items() if outcome == "failed" and name not in reasons]
    excused = [name for name, outcome in outcomes.of.items() if outcome == "failed" and name in reasons]
    stale = [name for name in reasons if outcomes.of.get(name) == "ok"]
    for name in stale:
        print(f"FAILED  {name} ({nranks} ranks)\n  | it passes: take it out of left_out.txt")
    for name in failed:
        print(f"FAILED  {name} ({nranks} ranks)\n  | " + outcomes.texts[name][-3000:].replace("\n", "\n  | "))
    passed = sum(outcome == "ok" for outcome in outcomes.of.values()) - len(stale)
    skipped = [name for name, outcome in outcomes.of.items() if outcome == "skipped"]
    for name in excused:
        print(f"skipped: {name}: {reasons[name]}")
    whys = {}
    for name in skipped:
        whys.setdefault(outcomes.texts[name], []).append(name)
    for why, names in sorted(whys.items()):
        print(f"skipped: {len(names)} tests, on Gloo too: {why}" + (f" ({' '.join(names)})" if verbose else ""))
    print(f"{nranks} ranks on {backend}: {len(skipped)} skipped on Gloo too, {len(excused)} left out by the list")
    print(f"{passed} passed, {len(failed) + len(stale)} failed, {len(skipped) + len(excused)} skipped", flush=True)
    return passed and not failed and not stale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="tutti", choices=["tutti", "gloo"])
    parser.add_argument("--only", nargs="*", help="tests whose name contains one of these")
    parser.add_argument("--verbose", action="store_true", help="name the tests that are skipped")
    given = parser.parse_args()
    outcomes = run(given.backend, given.ranks, given.only)
    sys.exit(0 if judge(outcomes, given.backend, given.ranks, given.verbose) else 1)


if __name__ == "__main__":
    main()
