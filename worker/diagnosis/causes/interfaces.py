"""Explain a network interface that gloo or NCCL was told to use and that the node does not have. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_GLOO = re.compile(r"Unable to find address for: (?P<name>\S+?),?(?:\s|$)")
_NCCL = re.compile(r"no (?:socket )?interface|couldn't find.*interface|No interface found", re.IGNORECASE)
GLOO_VARIABLE, NCCL_VARIABLE = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True)
class Interfaces:
    """The node's network interfaces, and those that the run's environment names."""

    present: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME where they are set."""


def missing_interface(text: str, node: str, interfaces: Interfaces) -> tuple[str, str] | None:
    """Return the sentence and the next step if `text` says that an interface is missing."""
    if match := _GLOO.search(text):
        value = interfaces.variables.get(GLOO_VARIABLE, "")
        return _gloo(match["name"], value, node, interfaces.present)
    if _NCCL.search(text) and (value := interfaces.variables.get(NCCL_VARIABLE, "")):
        says = f"no network interface of node {node} matches NCCL_SOCKET_IFNAME={value} of this run"
        return _with_present(says, NCCL_VARIABLE, node, interfaces.present)
    return None


def _gloo(name: str, value: str, node: str, present: Sequence[str]) -> tuple[str, str]:
    if value.startswith("^"):
        rule = f"gloo knows no exclusion list: {GLOO_VARIABLE}={value} of this run is read as the name {name}"
        says = f"{rule}, which node {node} does not have"
        return _with_present(says, GLOO_VARIABLE, node, present)
    origin = f", set by {GLOO_VARIABLE} of this run," if value else ""
    says = f"the network interface {name}{origin} does not exist on node {node}"
    if name in present:
        says = f"the network interface {name}{origin} has no address on node {node}"
    return _with_present(says, GLOO_VARIABLE, node, present)


def _with_present(says: str, variable: str, node: str, present: Sequence[str]) -> tuple[str, str]:
    names = ", ".join(present)
    others = f"; it has {names}" if names else ""
    step = f"Leave {variable} out, or name the interface that joins the nodes (ip addr shows its address)"
    return f"{says}{others}", f"{step}: --env {variable}=NAME."
