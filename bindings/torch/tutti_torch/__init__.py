"""The backend tutti of torch.distributed: init_process_group("tutti").

PyTorch finds the backend by itself (the entry point torch.distributed.backends): there is nothing to import.
"""

import atexit
import warnings
import weakref

import torch.distributed as dist

from . import _C
from ._C import Options

__all__ = ["Options", "register"]


def register():
    """Makes the backend known to torch.distributed, which calls this when a group asks for it."""
    dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])


class _Leave:
    """Ends all groups when the program's exit functions have run, as these may use groups.

    atexit calls what was registered last first. So the call does nothing: Python drops the object when all functions have been
    called, while the interpreter is whole, and before it ends other threads that come back to it.
    """

    def __call__(self):
        pass

    def __del__(self, leave=_C.leave):
        leave()


_registered = None  # refers to the _Leave that atexit has


def _leave_at_exit():
    global _registered
    if _registered is None or _registered() is None:  # multiprocessing drops what was registered before its child began
        _registered = weakref.ref(atexit.register(_Leave()))


def _create(given, options):
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"pg_options is a {type(options).__name__}, expected tutti_torch.Options")
    if options is not None and options._timeout not in (given.timeout, Options()._timeout):
        text = f"the timeout of pg_options, {options._timeout}, has no effect: the argument timeout counts, {given.timeout}"
        warnings.warn(text, stacklevel=2)
    own = Options(given.timeout)
    own.group_name = given.group_id
    own.global_ranks_in_group = given.global_ranks_in_group
    _refuse_second(given.process_group)
    _leave_at_exit()
    name = f"torch group {given.group_id}"
    return _C.create(given.store, given.group_rank, given.group_size, name, own, given.process_group)


def _refuse_second(group):
    """PyTorch keeps one backend of all that it does not bring itself, and gives it to every device."""
    for device in group._device_types:
        other = group._get_backend(device)
        if other.name() not in _OWN:
            raise ValueError(
                f"the group has the backend {other.name()} for {device.type}, which does not come with PyTorch: of these "
                f"a group can have only one. Use a backend of PyTorch's beside tutti, such as cpu:tutti,cuda:nccl"
            )


_OWN = ("gloo", "nccl", "ucc", "mpi", "xccl")  # each has a type of its own
