"""The gradient reduction in words: only figures that were counted are said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.performance.efficiency import Reduction, reduction_sentence

MIB = 1024 * 1024
FACTS = Reduction(2, 24 * MIB, 20 * MIB, rebuilt=True, unused_bytes=0, static_graph=False)
TIMED = replace(FACTS, backward_s=0.1, communication_s=0.2, overlap_s=0.05)


def test_a_reduction_without_times_names_its_buckets_alone():
    assert reduction_sentence(FACTS, 4, 1e9) == (
        "DistributedDataParallel averages 24 MiB of gradients in every step, in 2 buckets of at most 20 MiB, in the "
        "order in which they are ready."
    )


def test_times_become_an_overlap_and_a_bandwidth_beside_the_measured_link():
    said = reduction_sentence(TIMED, 4, 1e9)
    assert "25% of its 200 ms of communication overlaps with the backward pass, which computes for 100 ms." in said
    assert said.endswith("at least 189 MB/s on each link; preflight measured 1 GB/s on the slowest link.")


@pytest.mark.parametrize(("world_size", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_the_bandwidth_is_that_of_a_ring(world_size, factor):
    assert TIMED.bus_bytes_per_s(world_size) == pytest.approx(factor * 24 * MIB / 0.2)


def test_a_single_rank_has_no_bandwidth_and_unused_parameters_are_named():
    said = reduction_sentence(replace(TIMED, unused_bytes=MIB, static_graph=True, rebuilt=False), 1, None)
    assert "on each link" not in said and "not rebuilt" in said
    assert said.endswith("Parameters of 1 MiB got no gradient. static_graph is on.")
