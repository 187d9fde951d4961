"""What a node finds out about itself before it trains together with others; facts, no judgement."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from db.states import NodeCheck
from worker.client import Client, Refused, ServerAway
from worker.clock import Offset, offset
from worker.door import Door
from worker.hardware import GPUS, GpuReader
from worker.interpreter import describe
from worker.preparation import Node, training_environment


def look(
    node: Node, client: Client, python: str | None, devices: Sequence[str], gpus: GpuReader = GPUS
) -> NodeCheck:
    """Everything but the ways to other nodes. Raises nothing: what cannot be found out is None."""
    node = node.among_others()
    found = NodeCheck(
        address=node.address,
        interface=node.interface,
        interface_is_up=_is_up(node.interface),
        interpreter=describe(python or node.python, f"node {node.name}", training_environment(os.environ)),
    )
    found.devices, found.foreign_devices = _gpus(devices, gpus)
    found.disk_path, found.disk_free_bytes = least_free([node.data_dir])
    if (known := _clock(client)) is not None:
        found.clock_offset_s, found.clock_error_s = known
    return found


def least_free(folders: Iterable[Path]) -> tuple[str, int | None]:
    """The folder whose disk has the least room, and how many bytes that is."""
    free: list[tuple[int, str]] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            free.append((shutil.disk_usage(folder).free, str(folder)))
    if not free:
        return "", None
    size_bytes, path = min(free)
    return path, size_bytes


def open_door(found: NodeCheck, words: str, port: int = 0) -> Door | None:
    """Listen where the node says others reach it; the facts say at which port, or why not."""
    try:
        door = Door(found.address, port, words)
    except OSError as error:
        found.port = None
        found.port_problem = f"cannot listen at {found.address}: {(error.strerror or str(error)).lower()}"
        return None
    found.port, found.port_problem = door.port, None
    return door


def _is_up(interface: str | None) -> bool:
    with contextlib.suppress(OSError, KeyError, psutil.Error):
        return interface is None or bool(psutil.net_if_stats()[interface].isup)
    return True


def _gpus(devices: Sequence[str], gpus: GpuReader) -> tuple[list[str], list[str]]:
    """Of these (none named: of all): who there is, and whose memory or processes are not ours."""
    samples = [each for each in gpus.samples() if not devices or each.get("id") in devices]
    return [each["id"] for each in samples], [each["id"] for each in samples if each.get("foreign")]


def _clock(client: Client) -> Offset | None:
    with contextlib.suppress(ServerAway, Refused):
        return offset(client.time)
    return None
