"""Whether nodes can train together: what their interpreters have, compared; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_NAMED = 8
"""Nodes named one by one in a sentence; of more it says how many."""


@dataclass(frozen=True)
class Told:
    """What one node said of the Python that trains there."""

    node: str
    interpreter: Mapping[str, Any]


def disagreement(told: Sequence[Told]) -> str | None:
    """The sentence that names the nodes which differ in torch, CUDA, ROCm or NCCL; None when they agree."""
    differing = [what for what, version in _MUST_AGREE.items() if len(_known(told, version)) > 1]
    if not differing:
        return None
    groups: dict[str, list[str]] = {}
    for one in told:
        groups.setdefault(_description(one.interpreter, differing), []).append(one.node)
    said = ", ".join(
        f"{_names(nodes)} {'has' if len(nodes) == 1 else 'have'} {text}" for text, nodes in groups.items()
    )
    return (
        f"The nodes disagree on {_joined(differing)}: {said}. "
        "Install the same everywhere, or choose one interpreter for all nodes with --python."
    )


def remark(told: Sequence[Told]) -> str | None:
    """What is worth a line in the history though it stops nothing: Pythons that differ."""
    groups: dict[str, list[str]] = {}
    for one in told:
        groups.setdefault(_numbers(one.interpreter.get("python"), 2) or "unknown", []).append(one.node)
    if len(groups) < 2:
        return None
    said = ", ".join(f"{version} on {_names(nodes)}" for version, nodes in groups.items())
    return f"the nodes train with different Pythons: {said}"


def versions(interpreter: Mapping[str, Any]) -> dict[str, str | None]:
    """What has to be the same on all nodes, as far as it matters; None where it is not known."""
    return {what: version(interpreter) for what, version in _MUST_AGREE.items()}


def names(nodes: Sequence[str]) -> str:
    """Nodes in a sentence; a crowd is counted."""
    return _names(nodes)


def _torch(interpreter: Mapping[str, Any]) -> str:
    """2.13.0 of 2.13.0+cu126: what it was built for is told by CUDA and ROCm."""
    return str(interpreter.get("torch")).partition("+")[0]


def _cuda(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("cuda"), 2) or "none"


def _rocm(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("rocm"), 2) or "none"


def _nccl(interpreter: Mapping[str, Any]) -> str | None:
    """None where it is not known: it may be built into torch."""
    return _numbers(interpreter.get("nccl"), 3)


_MUST_AGREE: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "torch": _torch,
    "CUDA": _cuda,
    "ROCm": _rocm,
    "NCCL": _nccl,
}


def _known(told: Sequence[Told], version: Callable[[Mapping[str, Any]], str | None]) -> set[str]:
    return {found for one in told if (found := version(one.interpreter)) is not None}


def _numbers(version: object, count: int) -> str | None:
    """The first numbers of a version, as far as it has them."""
    found = re.findall(r"\d+", str(version or ""))[:count]
    return ".".join(found) or None


def _description(interpreter: Mapping[str, Any], differing: Sequence[str]) -> str:
    """torch 2.13.0+cu126, NCCL 2.21.5 (/usr/bin/python): torch always, the rest where it differs."""
    said = [f"torch {interpreter.get('torch')}"]
    said += [
        f"{what} {interpreter.get(what.lower()) or ('unknown' if what == 'NCCL' else 'none')}"
        for what in differing
        if what != "torch"
    ]
    return f"{', '.join(said)} ({interpreter.get('path')})"


def _names(nodes: Sequence[str]) -> str:
    if len(nodes) > MOST_NAMED:
        return _joined([*nodes[:MOST_NAMED], f"{len(nodes) - MOST_NAMED} more"])
    return _joined(nodes)


def _joined(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
