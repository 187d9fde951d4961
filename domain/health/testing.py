"""The test of a node's devices: what is asked of the node, what it answers, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.requests.bounds import Finite, Integer
from domain.text.formats import size

LIMIT_S = 300.0
"""A node that has not answered by then could not be tested."""
FEWEST_COMPARED = 2
"""Earlier all-reduces that a new one is compared with."""
SLOW_SHARES = {"cuda": 0.5, "cpu": 0.25}
"""An all-reduce below this share of the earlier ones' median is slow; other programs use CPUs, too."""
_BADNESS = {True: 0, None: 1, False: 2}
Verdict = Literal["passed", "failed", "unknown"]


class DesiredTest(BaseModel):
    """The request to a node to test devices that nothing uses."""

    model_config = ConfigDict(frozen=True)

    test_id: Integer
    devices: list[str]
    kind: Literal["cuda", "cpu"]


class DeviceResult(BaseModel):
    """What one part of a test found on one device."""

    model_config = ConfigDict(frozen=True)

    device: Annotated[str, Field(max_length=200)] = ""
    """Empty: the node."""
    part: Annotated[str, Field(max_length=100)]
    """matrix products, memory, all-reduce"""
    is_right: bool | None = None
    """None: it could not be done."""
    text: Annotated[str, Field(max_length=1000)] = ""


class TestAnswer(BaseModel):
    """A node's results."""

    __test__ = False  # no test case of ours

    results: Annotated[list[DeviceResult], Field(max_length=1000)] = []
    reduce_bytes_per_s: Finite | None = None
    """Of the all-reduce between the devices; None with a single one."""


def compared(bytes_per_s: float | None, earlier: Sequence[float], kind: str) -> DeviceResult | None:
    """Compare an all-reduce with the node's earlier ones; None where it was measured too seldom."""
    if bytes_per_s is None or len(earlier) < FEWEST_COMPARED:
        return None
    usual = median(earlier)
    text = f"{size(int(bytes_per_s))}/s, usually {size(int(usual))}/s"
    return DeviceResult(part="all-reduce speed", is_right=bytes_per_s >= SLOW_SHARES[kind] * usual, text=text)


def worst_of_each_part(results: Iterable[DeviceResult]) -> list[DeviceResult]:
    """One result of each part on each device, the worst: all programs on CPU slots tell of the node."""
    worst: dict[tuple[str, str], DeviceResult] = {}
    for result in results:
        place = result.device, result.part
        if place not in worst or _BADNESS[result.is_right] > _BADNESS[worst[place].is_right]:
            worst[place] = result
    return [*worst.values()]


def verdict(results: Sequence[DeviceResult]) -> Verdict:
    """The verdict on all devices together. What could not be done neither passes nor fails."""
    if any(result.is_right is False for result in results):
        return "failed"
    return "passed" if results and all(result.is_right for result in results) else "unknown"


def wrong(results: Sequence[DeviceResult]) -> list[DeviceResult]:
    """The wrong results of single devices, which put these in quarantine; a slow all-reduce does not."""
    return [result for result in results if result.is_right is False and result.part in ("matrix products", "memory")]
