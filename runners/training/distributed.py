"""The processes that carry out one run together: who they are, and what they say to one another.

There is one process for each GPU, started by torchrun or by a cluster, on one machine or on several. Each takes its
part of every batch; torch's DistributedDataParallel adds the gradients up, so that all have the same weights after
every step. A process that is alone says nothing: no function here calls torch.distributed then.

All processes must meet in the same calls in the same order. Where one waits for the others it does so for TIMEOUT at
most, so nothing hangs for ever.
"""

import os
import platform
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics import gpu
from vitinit.runners.basics.environment import several, usable_cores
from vitinit.runners.basics.setting import BrokenDevice, Refused, Stop, Stopped

TIMEOUT = timedelta(minutes=30)
"""Time limit for waiting on other ranks. Reading a dataset, initialising a model and saving a
checkpoint, which the others wait for, must not take longer."""

# Older versions of torch lack the argument that replaces broadcast_buffers.
warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)

Item = TypeVar("Item")


@dataclass(eq=False)
class Failed(Exception):
    """A run has failed in one of its processes, and all of them know: kind and message of the error, its traceback."""

    kind: str
    message: str
    trace: str


@dataclass(frozen=True)
class World:
    """This process among those that carry out a run together; rank 0 keeps the books. Alone by default."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Rank among the processes of this machine: it takes the GPU of this number."""
    threads: int = 1
    """Its share of the cores; the same in all processes."""
    nodes: int = 1
    """Number of machines."""
    group: dist.ProcessGroup | None = None
    """gloo, whatever the gradients take: what is said here needs no GPU and waits for none."""
    store: Store | None = None
    """Store of the process group; None in a run of one process."""

    def device(self, name: str) -> torch.device:
        """The device of this process, where the run computes on `cpu` or `cuda`."""
        if name == "cpu" or self.size == 1:
            return torch.device(name)
        seen = max(1, torch.cuda.device_count())  # a task may see its own GPU only
        return torch.device(name, self.local_rank % seen)

    def part(self, count: int, unit: int = 1) -> slice:
        """This process's contiguous part of `count` items; the parts of all ranks cover each item exactly once.

        Args:
            count: how many items there are.
            unit: so many neighbours (counted from item 0) always stay in one part.
        """
        units = -(-count // unit)
        first, last = (units * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(min(first * unit, count), min(last * unit, count))

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model for forward passes whose gradients become, in all processes, the mean of theirs.

        All processes must have given it the same weights before. It has no other parameters than the model itself,
        whose names stay as they are.
        """
        if self.size == 1:
            return model
        # Buffers are the same in all processes and stay so.
        return DistributedDataParallel(model, init_sync=False, broadcast_buffers=False)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; on a GPU nothing waits for it."""
        if self.size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Logical OR of a flag over all ranks."""
        if self.size == 1:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.group)
        return bool(flags)

    def gather(self, value: Item) -> list[Item]:
        """The values of all processes, in order of rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Any = None) -> Any:
        """The value of rank 0, in all processes."""
        if self.size > 1:
            values = [value]
            dist.broadcast_object_list(values, src=0, group=self.group)
            (value,) = values
        return value

    def agreed(self, stop: Stop) -> str:
        """Return the reason to stop of any rank, or "". A signal may reach one only, or each at another step.

        Only what this returns says whether to stop now: `stop.reason` may differ between processes at any time.
        """
        if self.size == 1:
            return stop.reason
        if not self.any(bool(stop.reason)):
            return ""
        rank, reason = next((rank, reason) for rank, reason in enumerate(self.gather(stop.reason)) if reason)
        if not stop.reason:
            stop.request(f"{reason} in the process of rank {rank}")
        return stop.reason

    def in_step(self, items: Iterable[Item]) -> Iterator[Item | None]:
        """The items, then None for as long as another process has some: all take equally many turns."""
        remaining = iter(items)
        while self.any((item := next(remaining, None)) is not None):
            yield item

    @contextmanager
    def same_fate(self) -> Iterator[None]:
        """Make a failure of one rank a failure of all. Ranks must not wait for one another inside.

        Raises:
            Failed: in all processes, where one has failed; the message says which unless all have. In a process that
                is alone, what was raised inside is raised as it is.
            BrokenDevice: in all processes, where the GPU of one does not compute.
            Refused: in all processes, where one cannot read its data.
            Stopped: in all processes, where it was raised in one.
        """
        if self.size == 1:
            yield
            return
        mine: Failed | Stopped | None = None
        try:
            yield
        except Stopped as stopped:
            mine = stopped
        except Exception as error:
            lost = gpu.after(error, self.device("cuda")) if torch.cuda.is_initialized() else None
            mine = Failed(type(lost or error).__name__, str(lost or error), traceback.format_exc())
        errors = self.gather(mine)
        failed = {rank: error for rank, error in enumerate(errors) if isinstance(error, Failed)}
        for rank, failure in failed.items():
            message = failure.message if len(failed) == self.size else f"rank {rank} of {self.size}: {failure.message}"
            for kind in (BrokenDevice, Refused):
                if failure.kind == kind.__name__:
                    raise kind(message)
            raise Failed(failure.kind, message, failure.trace)
        for stop in filter(None, errors):
            raise stop


ALONE = World()


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The world that torchrun's environment variables describe, for as long as the context lasts.

    nccl carries gradients on `cuda`, gloo on `cpu`. Without WORLD_SIZE, or where it is 1, the process is alone.

    Raises:
        VitinitError: the environment variables are not those of torchrun, or the others cannot be reached.
        BrokenDevice: the GPU of this process does not compute; the others wait until the launcher ends them.
    """
    if not several():
        yield ALONE
        return
    try:
        rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        if not 0 <= rank < size:
            raise ValueError(f"RANK {rank} does not fit WORLD_SIZE {size}")
        world = World(rank, size, local_rank)
        if device == "cuda":
            gpu.check(world.device(device))
            torch.cuda.set_device(world.device(device))
        store, *_ = next(rendezvous("env://", timeout=TIMEOUT))
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except KeyError as missing:
        raise VitinitError(f"WORLD_SIZE is set, as by torchrun, and {missing} is not") from None
    except (ValueError, RuntimeError) as error:
        raise VitinitError(
            f"WORLD_SIZE is set, as by torchrun, and the processes cannot come together: {error}"
        ) from None
    try:
        group: Any = dist.new_group(backend="gloo", timeout=TIMEOUT)
        world = replace(world, group=group, store=store)
        places = world.gather((platform.node(), usable_cores()))
        threads = min(len(cores) // places.count((node, cores)) for node, cores in places)
        yield replace(world, threads=max(1, threads), nodes=len({node for node, _ in places}))
    finally:
        dist.destroy_process_group()
