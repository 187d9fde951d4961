"""When a disk is full: only a growth that goes on counts, and nothing is said where it cannot be known."""

from __future__ import annotations

import pytest

from domain.alerts.judgement import LEAST_S, RunFacts, filling_disk, growth_bytes_per_s
from domain.messages import State

NOW = 10_000.0
GIB = 1024**3


def samples(used, seconds: float = 1800.0, every: float = 5.0) -> list[tuple[float, float]]:
    """Bytes used at each moment of the last seconds, of a function of the time since the first."""
    count = int(seconds / every)
    return [(NOW - seconds + n * every, used(n * every)) for n in range(count + 1)]


def test_a_disk_that_fills_steadily_or_in_bursts_does_so_at_its_slowest_part() -> None:
    assert growth_bytes_per_s(samples(lambda s: 1e6 * s), NOW) == pytest.approx(1e6)
    bursts = growth_bytes_per_s(samples(lambda s: 3e8 * (s // 300)), NOW)
    assert bursts is not None and 0.4e6 < bursts < 1.6e6
    slows = growth_bytes_per_s(samples(lambda s: 1e6 * min(s, 600) + 1e5 * max(s - 600, 0)), NOW)
    assert slows == pytest.approx(1e5)


@pytest.mark.parametrize(
    "used",
    [
        lambda s: 5e9,
        lambda s: 1e10 if s > 1700 else 0.0,
        lambda s: 1e10 * ((s // 300) % 2),
        lambda s: 5e9 - s,
    ],
    ids=["unused", "one checkpoint", "checkpoints that are replaced", "freed"],
)
def test_steady_disk_is_no_growth(used) -> None:
    assert growth_bytes_per_s(samples(used), NOW) is None


def test_nothing_is_said_from_too_few_too_old_or_missing_samples() -> None:
    grows = samples(lambda s: 1e6 * s)
    assert growth_bytes_per_s([], NOW) is None
    assert growth_bytes_per_s(grows[-10:], NOW) is None
    assert growth_bytes_per_s(samples(lambda s: 1e6 * s, LEAST_S - 10), NOW) is None
    assert growth_bytes_per_s(grows, NOW + 300) is None, "the last one is old"
    assert growth_bytes_per_s([*grows[:5], *grows[-5:]], NOW) is None, "what was between is unknown"


def test_the_event_says_how_long_it_takes_and_comes_once_for_a_node() -> None:
    run = RunFacts("abcdefghij", "digits", "default", 1, 7, State.RUNNING, None, 100.0, None, None)
    (event,) = filling_disk(run, "gpu-1", 0, 12 * GIB, GIB / 900, 4 * 3600.0, NOW)
    assert event.sentence == (
        "digits: the disk of gpu-1 is full in about 3 h: 12 GiB are free, and 4 GiB more are used every hour."
    )
    assert event.key == "abcdefghij/1/disk/0"
    assert list(filling_disk(run, "gpu-1", 0, 12 * GIB, GIB / 900, 2 * 3600.0, NOW)) == []
