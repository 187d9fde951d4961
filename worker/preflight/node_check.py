"""What a node finds out about itself before it trains together with others; facts, no judgement."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from domain.launch.plan import recipe_names
from domain.messages import NodeCheck
from domain.spec import Assignment, CheckPeer, RunSpec
from worker.launch.interpreter import describe
from worker.launch.preparation import LocalNode, training_environment
from worker.node.attempt_files import INTERPRETER_FILE
from worker.node.clock import Offset, offset
from worker.node.hardware import GPUS, GpuReader
from worker.node.state_files import read_object
from worker.preflight.port_probe import Door, knock
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway


def look(
    node: LocalNode, client: Client, python: str | None, devices: Sequence[str], gpus: GpuReader = GPUS
) -> NodeCheck:
    """Everything but the ways to other nodes. Raises nothing: what cannot be found out is None."""
    found = _look_around(node.among_others(), client, [node.data_dir])
    where = f"node {node.name}"
    found.interpreter = describe(python or node.python, where, training_environment(os.environ))
    found.devices, found.foreign_devices = _gpus(devices, gpus)
    return found


def look_for_run(
    assignment: Assignment, folder: Path, node: LocalNode, client: Client, gpus: GpuReader = GPUS
) -> NodeCheck:
    """What its share of a run on several nodes needs here, before its code is brought; the endpoint is known."""
    spec = assignment.spec
    found = _look_around(
        node.among_others(), client, [folder, *([Path(spec.workdir)] if spec.workdir else [])]
    )
    found.interpreter = read_object(folder / INTERPRETER_FILE)
    if assignment.device_kind == "cuda":
        found.devices, found.foreign_devices = _gpus(assignment.devices, gpus)
    if assignment.master_addr is None or assignment.master_port is None:
        return found
    if assignment.node_rank == 0:
        found.port = assignment.master_port
    else:
        first = CheckPeer(node_rank=0, address=assignment.master_addr, port=assignment.master_port)
        found.reached = [knock(first, words_of(assignment))]
    return found


def words_of(assignment: Assignment) -> str:
    """What rank 0's node says at the endpoint, until its launcher listens there: nobody else does."""
    return f"rankzero run {assignment.run_id}/{assignment.attempt} {assignment.fence}"


def code_of(spec: RunSpec) -> str | None:
    """SHA-256 of what is run: the snapshot's, which was verified, or of the one script that is run in place."""
    if spec.snapshot:
        return spec.snapshot
    if spec.module or spec.target in recipe_names():
        return None
    with contextlib.suppress(OSError):
        script = Path(spec.target, spec.entry) if spec.entry else Path(spec.target)
        with script.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return None


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


def _look_around(node: LocalNode, client: Client, folders: Sequence[Path]) -> NodeCheck:
    found = NodeCheck(address=node.address, interface=node.interface, interface_is_up=_is_up(node.interface))
    found.disk_path, found.disk_free_bytes = least_free(folders)
    if (known := _clock(client)) is not None:
        found.clock_offset_s, found.clock_error_s = known
    return found


def _is_up(interface: str | None) -> bool:
    with contextlib.suppress(OSError, KeyError, psutil.Error):
        return interface is None or bool(psutil.net_if_stats()[interface].isup)
    return True


def _gpus(devices: Sequence[str], gpus: GpuReader) -> tuple[list[str], list[str]]:
    """Of these (none named: of all): who there is, and whose memory or processes are not ours."""
    samples = [each for each in gpus.samples() if not devices or each.get("id") in devices]
    return [each["id"] for each in samples], [each["id"] for each in samples if each.get("foreign")]


def _clock(client: Client) -> Offset | None:
    with contextlib.suppress(ServerAway, RequestRefused):
        return offset(client.time)
    return None
