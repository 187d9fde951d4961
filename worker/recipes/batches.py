"""Which samples each rank sees, in which order, from which position on."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler

from parallel import Parallel
from stopping import leave_signals_to_parent

Samples = Dataset[tuple[torch.Tensor, torch.Tensor]]
Batch = tuple[torch.Tensor, torch.Tensor]


class TrainingOrder(DistributedSampler[int]):
    """A shuffle that follows from (seed, epoch) alone and can begin in the middle of an epoch.

    Rank r of n takes every n-th sample, so n ranks with batch B see together the samples that one
    process with batch n x B sees. Samples left over after dividing by the ranks wait for another epoch.
    """

    def __init__(self, dataset: Samples, parallel: Parallel, seed: int) -> None:
        super().__init__(dataset, parallel.world_size, parallel.rank, shuffle=True, seed=seed, drop_last=True)
        self._first = 0

    def begin(self, epoch: int, first: int) -> None:
        """Order the samples of `epoch`, without this rank's first `first` ones."""
        self.set_epoch(epoch)
        self._first = first

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(super().__iter__(), self._first, None)

    def __len__(self) -> int:
        return self.num_samples - self._first


class ValidationShare(Sampler[int]):
    """Every n-th sample; a rank that has one less than others repeats one, which must not be counted.

    All ranks need the same number of forward passes, because FSDP gathers parameters in each.
    """

    def __init__(self, size: int, parallel: Parallel) -> None:
        self._mine = range(parallel.rank, size, parallel.world_size)
        self._length = -(-size // parallel.world_size)
        self.real_count = len(self._mine)

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(itertools.chain(self._mine, itertools.repeat(0)), self._length)

    def __len__(self) -> int:
        return self._length


def make_loader(
    dataset: Samples,
    sampler: Sampler[int],
    batch_size: int,
    workers: int,
    parallel: Parallel,
    whole_batches: bool,
) -> DataLoader[Batch]:
    """A loader that draws nothing from the global random state, so that resuming changes nothing."""
    options: dict[str, Any] = {"worker_init_fn": leave_signals_to_parent} if workers else {}
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=workers,
        drop_last=whole_batches,
        pin_memory=parallel.device.type == "cuda",
        generator=torch.Generator().manual_seed(0),
        **options,
    )
