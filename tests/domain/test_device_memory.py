"""A device at a failed allocation: in words, and the share of the batch that would have fitted."""

from __future__ import annotations

import pytest

from domain.device_memory import MemoryShares, fitting_share, how_counted, in_words
from tests.domain.devices import GIB, device


def test_memory_that_grows_with_the_batch_fits_beside_the_rest():
    assert fitting_share(device(other=52, requested=28)) == pytest.approx((0.95 * 80 - 16) / 80)
    assert fitting_share(device(other=52, requested=28, missing_bytes=20 * GIB)) == pytest.approx(0.5)
    assert fitting_share(device(other=52, requested=28, missing_bytes=90 * GIB)) == 0.0


def test_memory_of_other_programs_cannot_be_used():
    memory = device(other=24, requested=8, free_bytes=0)  # torch has 40 of 80 GiB, others the rest
    assert fitting_share(memory) == pytest.approx((0.95 * 40 - 16) / 32)


def test_without_parameters_nothing_is_estimated():
    assert fitting_share(device(shares=MemoryShares(other=40 * GIB))) is None


def test_the_words_are_torchs_figures_and_the_shares():
    assert in_words(device(other=52, requested=28)) == (
        "28 GiB requested, 12 GiB of 80 GiB free on GPU 0; in use: 76 % activations and buffers, "
        "12 % optimizer state, 6 % parameters, 6 % gradients"
    )
    assert "estimate" in how_counted(device())


def test_much_unused_memory_in_pieces_is_fragmented():
    memory = device(other=52, requested=10, unused=10)
    assert memory.is_fragmented and "10 GiB unused between tensors" in in_words(memory)
    assert not device(other=52, requested=28, unused=10).is_fragmented
    assert not device(other=52, requested=2, unused=1).is_fragmented
