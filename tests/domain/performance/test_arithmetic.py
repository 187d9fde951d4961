"""Estimates of arithmetic say how they were counted, and give a share only of a known peak."""

from __future__ import annotations

import pytest

from domain.performance.efficiency import Arithmetic, arithmetic_sentence


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA A1000", None),
        ("", None),
    ],
)
def test_a_peak_is_that_of_exactly_this_device(device, peak):
    assert Arithmetic(1e9, 1e4, 8, device).peak_tflop_per_s == peak


def test_an_estimate_says_how_it_was_counted():
    assert arithmetic_sentence(Arithmetic(1e9, 4e5, 8, "NVIDIA H100 PCIe")) == (
        "About 300 TFLOP/s for each rank, an estimate (6 x 1 G parameters x 400 k tokens/s / 8): "
        "40% of the 756 that NVIDIA H100 PCIe can do in bfloat16 (MFU)."
    )
    assert arithmetic_sentence(Arithmetic(2e6, 1000, 2, "")).startswith(
        "About 0.006 TFLOP/s for each rank, an estimate (6 x 2 M"
    )
