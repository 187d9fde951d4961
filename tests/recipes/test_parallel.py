"""The ranks: which samples each of them sees, when gradients are exchanged, and how they leave."""

from pathlib import Path

import programs
import pytest
import torch
from ranks import run_ranks
from torch.utils.data import TensorDataset

from parallel import training_order, validation_share


def make_order(rank: int, world_size: int, size: int = 23, epoch: int = 0) -> list[int]:
    return training_order(TensorDataset(torch.zeros(size)), rank, world_size, seed=5, epoch=epoch)


def test_ranks_share_out_one_order():
    one = make_order(0, 1)
    two = [make_order(rank, 2) for rank in (0, 1)]
    assert [sample for pair in zip(*two, strict=True) for sample in pair] == one[:22]


def test_epochs_differ():
    first = make_order(0, 2, epoch=0)
    assert first != make_order(0, 2, epoch=1) and len(first) == 11


@pytest.mark.parametrize(("size", "world_size"), [(1, 2), (7, 2), (8, 4), (10, 4), (3, 4)])
def test_validation_shares_cover_each_sample_once_in_equally_many_batches(size: int, world_size: int):
    shares = [validation_share(TensorDataset(torch.zeros(size)), rank, world_size) for rank in range(world_size)]
    assert len({len(samples) for samples, _ in shares}) == 1
    counted = [sample for samples, count in shares for sample in samples[:count]]
    assert sorted(counted) == list(range(size))


@pytest.mark.real
def test_gradients_are_exchanged_in_the_last_batch_of_a_step_alone(tmp_path: Path):
    assert run_ranks(2, programs.gradients_of_two_batches, tmp_path) == [(False, True)] * 2


def test_ranks_leave_together(tmp_path: Path):
    """A rank that left at once, while rank 0 saved, now and then aborted: gloo's threads outlived Python."""
    (saved_at, _), (_, left_at) = run_ranks(2, programs.leave_while_main_saves, tmp_path)
    assert left_at >= saved_at
