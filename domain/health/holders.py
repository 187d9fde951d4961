"""What holds a device besides the runs, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from domain.text.formats import plural, size

MOST_NAMED = 3


def in_words(holders: Sequence[Mapping[str, Any]]) -> str:
    """alice: python train.py (process 4711, 12 GiB); and 2 further processes"""
    named = [_one(holder) for holder in holders[:MOST_NAMED]]
    further = len(holders) - len(named)
    return "; ".join(named + ([f"and {plural(further, 'more process', 'more processes')}"] if further else []))


def _one(holder: Mapping[str, Any]) -> str:
    user, command, memory = holder.get("user"), holder.get("command"), holder.get("memory_bytes")
    owner = f"{user or 'somebody'}: {command}" if command else "a process that cannot be seen from here"
    figures = [f"process {holder['pid']}"] if holder.get("pid") else []
    figures += [size(memory)] if memory else []
    left = f", left of run {holder['run']}" if holder.get("run") else ""
    return owner + (f" ({', '.join(figures)})" if figures else "") + left


def by_position(devices: Iterable[str], load: Mapping[str, Any] | None) -> Iterator[tuple[int, str]]:
    """Yield (position, what holds it) of each of a node's devices (their ids) that others use, also beside a run."""
    samples = {gpu.get("id"): gpu for gpu in (load or {}).get("gpus", [])}
    for position, device in enumerate(devices):
        if holders := samples.get(device, {}).get("holders"):
            yield position, in_words(holders)
