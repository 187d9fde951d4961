"""The ranks of a run: how one model is spread over them, how they share data, and when they stop together."""

import contextlib
import os
import signal
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def join_process_group(strategy: str) -> torch.device:
    """Join the other ranks, as torchrun's environment names them (without it: alone); returns this rank's device.

    Raises SystemExit.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if strategy in ("dp", "single") and world_size > 1:
        raise SystemExit(
            f"--strategy {strategy} runs in one process, but torchrun started {world_size}. "
            "Start one process, or choose --strategy ddp or fsdp."
        )
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    elif strategy == "dp":
        print("--strategy dp: no GPU is visible, so this is the plain model on the CPU", flush=True)
    # CPU tensors (stop votes, random states) travel by gloo even on GPUs: no wait for the GPU's queue.
    needs_nccl = device.type == "cuda" and strategy in ("ddp", "fsdp")
    backend = "cpu:gloo,cuda:nccl" if needs_nccl else "gloo"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    return device


def leave_process_group() -> None:
    """Take leave of the other ranks together, when rank 0 has saved.

    The barrier also gives gloo's threads time to let go of their last tensors. Under FSDP they outlive the
    process group, and one that does so while Python shuts down aborts the process (3 of 14 runs did).
    """
    dist.barrier()
    dist.destroy_process_group()


def wrap(model: nn.Module, blocks: Sequence[nn.Module], strategy: str, device: torch.device) -> nn.Module:
    """Spread `model` over the ranks; `blocks` are the parts that FSDP gathers one at a time."""
    if strategy == "ddp":
        device_ids = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=device_ids, gradient_as_bucket_view=True)
    if strategy == "dp" and device.type == "cuda":
        return nn.DataParallel(model)
    if strategy == "fsdp":
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:  # torch 2.4 and 2.5
            from torch.distributed._composable.fsdp import fully_shard  # type: ignore[attr-defined]
        mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
        for part in (*blocks, model):  # each becomes one group of parameters gathered just in time
            fully_shard(part, mesh=mesh)
    return model


def gradient_sync(model: nn.Module, is_last: bool) -> contextlib.AbstractContextManager[None]:
    """Forward and backward inside; without `is_last` the gradients stay on their rank and add up there."""
    if isinstance(model, DistributedDataParallel) and not is_last:
        return model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):  # FSDP
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
    return contextlib.nullcontext()


def training_order(dataset: Dataset[Any], rank: int, world_size: int, seed: int, epoch: int) -> list[int]:
    """This rank's samples of `epoch`, shuffled: they follow from (seed, epoch) alone.

    Rank r of n takes every n-th sample, so n ranks with batch B see together the samples that one
    process with batch n x B sees. Samples left over after dividing by the ranks wait for another epoch.
    """
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, world_size, rank, seed=seed, drop_last=True)
    sampler.set_epoch(epoch)
    return list(sampler)


def validation_share(dataset: Dataset[Any], rank: int, world_size: int) -> tuple[list[int], int]:
    """Every n-th sample, and how many of these count: a rank that has one less than others repeats one.

    All ranks need the same number of forward passes, because FSDP gathers parameters in each.
    """
    size = len(dataset)  # type: ignore[arg-type]
    share = list(range(rank, size, world_size))
    longest = -(-size // world_size)
    return share + [0] * (longest - len(share)), len(share)


def make_loader(dataset: Dataset[Any], samples: list[int], batch_size: int, workers: int) -> DataLoader[Any]:
    """A loader that draws nothing from the global random state, so that resuming changes nothing."""
    return DataLoader(
        dataset,
        batch_size,
        sampler=samples,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(0),
        worker_init_fn=leave_signals_to_parent,
    )


def leave_signals_to_parent(worker_id: int) -> None:
    """Data-loader workers get torchrun's SIGTERM too; they must outlive it until their rank has saved."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class StopVote:
    """One vote a step: a rank may get SIGTERM a step later than another, and must not wait for it alone.

    The vote is cast when the backward pass is over and read after the optimizer's step, so that its all-reduce
    (always on the CPU, by gloo) overlaps with the optimizer. A figure of the step on the CPU goes with it.
    """

    def __init__(self) -> None:
        """Take over SIGTERM and Ctrl-C; a second Ctrl-C interrupts at once."""
        self.requested = False
        self.votes = torch.zeros(2)
        self.figure: torch.Tensor | None = None
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def cast(self, figure: torch.Tensor | None = None) -> None:
        """Tell the other ranks whether this one was asked to stop, and begin to sum a figure of all of them."""
        shared, self.figure = 0.0, figure
        if figure is not None and figure.device.type == "cpu":
            shared, self.figure = float(figure), None
        if self.figure is not None:
            self.summing = dist.all_reduce(self.figure, async_op=True)
        self.votes = torch.tensor([float(self.requested), shared])
        self.pending = dist.all_reduce(self.votes, async_op=True)

    def total(self) -> float:
        """Sum of all ranks' figures; waits for the device it is on."""
        if self.figure is None:
            self.pending.wait()
            return float(self.votes[1])
        self.summing.wait()
        return float(self.figure)

    def passed(self) -> bool:
        """Whether any rank was asked to stop: the same answer on every rank."""
        self.pending.wait()
        return bool(self.votes[0])
