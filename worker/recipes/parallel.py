"""Where this process stands among the ranks, and the four ways one model is spread over them."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Parallel:
    """One process's place in the run: its strategy, rank and device."""

    strategy: str
    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Rank 0 alone logs, prints and saves."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether the ranks talk through a process group."""
        return self.strategy in ("ddp", "fsdp")

    @property
    def replicas(self) -> int:
        """Batches of --batch-size that this process feeds at once: DataParallel splits one over its GPUs."""
        return max(1, torch.cuda.device_count()) if self.strategy == "dp" else 1

    @property
    def total_replicas(self) -> int:
        """Batches of --batch-size that the whole run feeds at once."""
        return self.world_size * self.replicas

    def join(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """Spread `model`; `blocks` are the parts that FSDP gathers one at a time."""
        if self.strategy == "ddp":
            device_ids = [self.device] if self.device.type == "cuda" else None
            return DistributedDataParallel(model, device_ids=device_ids, gradient_as_bucket_view=True)
        if self.strategy == "fsdp":
            return _shard(model, blocks, self)
        if self.strategy == "dp" and self.device.type == "cuda":
            return nn.DataParallel(model)
        return model


def join_process_group(strategy: str) -> Parallel:
    """Read torchrun's environment (without it there is one rank); for ddp and fsdp meet the others."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if strategy in ("dp", "single") and world_size > 1:
        raise SystemExit(
            f"--strategy {strategy} runs in one process, but torchrun started {world_size}. "
            "Start one process, or choose --strategy ddp or fsdp."
        )
    device = _choose_device()
    if strategy in ("dp", "single"):
        if strategy == "dp" and device.type == "cpu":
            print("--strategy dp: no GPU is visible, so this is the plain model on the CPU", flush=True)
        return Parallel(strategy, device=device)
    # CPU tensors (stop votes, random states) travel by gloo even on GPUs: no wait for the GPU's queue.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    return Parallel(strategy, dist.get_rank(), dist.get_world_size(), device)


def leave_process_group() -> None:
    """Take leave of the other ranks together, when rank 0 has saved.

    The barrier also gives gloo's threads time to let go of their last tensors. Under FSDP they outlive the
    process group, and one that does so while Python shuts down aborts the process (3 of 14 runs did).
    """
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _choose_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _shard(model: nn.Module, blocks: Sequence[nn.Module], parallel: Parallel) -> nn.Module:
    """FSDP2: each block, then what is left, becomes one group of parameters gathered just in time."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # torch 2.4 and 2.5
        from torch.distributed._composable.fsdp import fully_shard  # type: ignore[attr-defined]
    mesh = dist.device_mesh.init_device_mesh(parallel.device.type, (parallel.world_size,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@contextlib.contextmanager
def gradient_sync(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Forward and backward inside; without `wanted` the gradients stay on their rank and add up there."""
    if isinstance(model, DistributedDataParallel) and not wanted:
        with model.no_sync():
            yield
        return
    set_fsdp_sync = getattr(model, "set_requires_gradient_sync", None)
    if set_fsdp_sync is not None:
        set_fsdp_sync(wanted)
    yield


def sum_over_ranks(parallel: Parallel, values: torch.Tensor) -> torch.Tensor:
    """Add `values` over all ranks, in place; every rank gets the sum."""
    if parallel.is_distributed:
        dist.all_reduce(values)
    return values


def gather_from_ranks(parallel: Parallel, value: Any) -> list[Any]:
    """Everyone's `value` in rank order."""
    if not parallel.is_distributed:
        return [value]
    values: list[Any] = [None] * parallel.world_size
    dist.all_gather_object(values, value)
    return values


def send_from_main(parallel: Parallel, value: Any) -> Any:
    """Rank 0's `value` on every rank."""
    if not parallel.is_distributed:
        return value
    holder = [value]
    dist.broadcast_object_list(holder, src=0, device=torch.device("cpu"))
    return holder[0]


def align_buffers(parallel: Parallel, model: nn.Module) -> None:
    """Give every rank the buffers of rank 0 (BatchNorm's running figures): those are saved too."""
    if parallel.is_distributed:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
