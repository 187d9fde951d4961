"""Compare the libraries of the nodes' interpreters: nodes with different versions cannot train together. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.text.formats import agree, as_list

MOST_NAMED = 8
"""Nodes a sentence names one by one; it counts the others."""


@dataclass(frozen=True)
class NodeInterpreter:
    """A node and the facts about the Python that trains there."""

    node: str
    interpreter: Mapping[str, Any]


def disagreement(interpreters: Sequence[NodeInterpreter]) -> str | None:
    """A sentence naming the nodes that differ in torch, CUDA, ROCm or NCCL; None when they agree."""
    differing = [component for component, version in _MUST_AGREE.items() if len(_numbers_of(interpreters, version)) > 1]
    if not differing:
        return None
    groups: dict[str, list[str]] = {}
    for reported in interpreters:
        groups.setdefault(_description(reported.interpreter, differing), []).append(reported.node)
    groups_text = ", ".join(
        f"{names(nodes)} {agree(len(nodes), 'has', 'have')} {text}" for text, nodes in groups.items()
    )
    return (
        f"The nodes disagree on {as_list(differing)}: {groups_text}. "
        "Install the same everywhere, or choose one interpreter for all nodes with --python."
    )


def remark(interpreters: Sequence[NodeInterpreter]) -> str | None:
    """A history line when the nodes' Python versions differ, which stops nothing; None when they agree."""
    groups: dict[str, list[str]] = {}
    for reported in interpreters:
        groups.setdefault(_numbers(reported.interpreter.get("python"), 2) or "unknown", []).append(reported.node)
    if len(groups) < 2:
        return None
    groups_text = ", ".join(f"{version} on {names(nodes)}" for version, nodes in groups.items())
    return f"the nodes train with different Pythons: {groups_text}"


def versions(interpreter: Mapping[str, Any]) -> dict[str, str | None]:
    """The version of each component that must be the same on all nodes; None where it is unknown."""
    return {component: version(interpreter) for component, version in _MUST_AGREE.items()}


def names(nodes: Sequence[str]) -> str:
    """The nodes as a list in a sentence: a, b and c, or with many nodes: a, b and 5 more."""
    return as_list(nodes, MOST_NAMED)


def _torch(interpreter: Mapping[str, Any]) -> str:
    """2.13.0 for 2.13.0+cu126: CUDA and ROCm are compared separately."""
    return str(interpreter.get("torch")).partition("+")[0]


def _cuda(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("cuda"), 2) or "none"


def _rocm(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("rocm"), 2) or "none"


def _nccl(interpreter: Mapping[str, Any]) -> str | None:
    """The NCCL version; None where it is unknown, because it may be built into torch."""
    return _numbers(interpreter.get("nccl"), 3)


_MUST_AGREE: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "torch": _torch,
    "CUDA": _cuda,
    "ROCm": _rocm,
    "NCCL": _nccl,
}


def _numbers_of(
    interpreters: Sequence[NodeInterpreter], version: Callable[[Mapping[str, Any]], str | None]
) -> set[str]:
    return {number for reported in interpreters if (number := version(reported.interpreter)) is not None}


def _numbers(version: object, count: int) -> str | None:
    """The first `count` numbers of a version, or as many as it has."""
    numbers = re.findall(r"\d+", str(version or ""))[:count]
    return ".".join(numbers) or None


def _description(interpreter: Mapping[str, Any], differing: Sequence[str]) -> str:
    """torch 2.13.0+cu126, NCCL 2.21.5 (/usr/bin/python): torch always, other components where they differ."""
    descriptions = [f"torch {interpreter.get('torch')}"]
    descriptions += [
        f"{component} {interpreter.get(component.lower()) or ('unknown' if component == 'NCCL' else 'none')}"
        for component in differing
        if component != "torch"
    ]
    return f"{', '.join(descriptions)} ({interpreter.get('path')})"
