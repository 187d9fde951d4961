"""Collects the facts a node reports before it trains together with others; the server judges them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from domain.choices import RECIPES
from domain.messages import NodeCheck
from domain.spec import Assignment, CheckPeer, RunSpec
from worker.launch.interpreter import describe
from worker.launch.preparation import LocalNode, training_environment
from worker.node.attempt_files import INTERPRETER_FILE
from worker.node.hardware import GPUS, GpuReader
from worker.node.state_files import read_object
from worker.preflight.port_probe import ProbeListener, probe_port
from worker.session.client import Client
from worker.session.clock import Offset, offset
from worker.session.failures import RequestRefused, ServerAway


def check_node(
    node: LocalNode, client: Client, python: str | None, devices: Sequence[str], gpus: GpuReader = GPUS
) -> NodeCheck:
    """Check this node, but not its connections to others; facts that cannot be read are None."""
    node_check = _check_machine(node.as_seen_by_others(), client, [node.data_dir])
    where = f"node {node.name}"
    node_check.interpreter = describe(python or node.python, where, training_environment(os.environ))
    node_check.devices, node_check.foreign_devices = _gpus(devices, gpus)
    return node_check


def check_node_for_run(
    assignment: Assignment, folder: Path, node: LocalNode, client: Client, gpus: GpuReader = GPUS
) -> NodeCheck:
    """Check this node for its task of a run on several nodes, before the code is fetched; needs the endpoint."""
    spec = assignment.spec
    node_check = _check_machine(
        node.as_seen_by_others(), client, [folder, *([Path(spec.workdir)] if spec.workdir else [])]
    )
    facts = read_object(folder / INTERPRETER_FILE)
    node_check.interpreter = {name: value for name, value in facts.items() if name != "packages"}
    if assignment.device_kind == "cuda":
        node_check.devices, node_check.foreign_devices = _gpus(assignment.devices, gpus)
    if assignment.master_addr is None or assignment.master_port is None:
        return node_check
    if assignment.node_rank == 0:
        node_check.port = assignment.master_port
    else:
        rank0 = CheckPeer(node_rank=0, address=assignment.master_addr, port=assignment.master_port)
        node_check.reached = [probe_port(rank0, greeting_of(assignment))]
    return node_check


def greeting_of(assignment: Assignment) -> str:
    """The greeting that only rank 0's node sends at the endpoint, until its launcher listens there."""
    return f"rankzero run {assignment.run_id}/{assignment.attempt} {assignment.fence}"


def code_of(spec: RunSpec) -> str | None:
    """The SHA-256 of the code: of its verified snapshot, or of a single script run in place; None for others."""
    if spec.snapshot:
        return spec.snapshot
    if spec.module or spec.target in RECIPES:
        return None
    with contextlib.suppress(OSError):
        script = Path(spec.target, spec.entry) if spec.entry else Path(spec.target)
        with script.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return None


def least_free(folders: Iterable[Path]) -> tuple[str, int | None]:
    """The folder whose disk has the least free space, and that space in bytes; ("", None) if none can be read."""
    free: list[tuple[int, str]] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            free.append((shutil.disk_usage(folder).free, str(folder)))
    if not free:
        return "", None
    size_bytes, path = min(free)
    return path, size_bytes


def open_listener(node_check: NodeCheck, greeting: str, port: int = 0) -> ProbeListener | None:
    """Listen at the node's address and record in `node_check` the port, or the reason for failing (returns None)."""
    try:
        listener = ProbeListener(node_check.address, port, greeting)
    except OSError as error:
        node_check.port = None
        node_check.port_problem = f"cannot listen at {node_check.address}: {(error.strerror or str(error)).lower()}"
        return None
    node_check.port, node_check.port_problem = listener.port, None
    return listener


def _check_machine(node: LocalNode, client: Client, folders: Sequence[Path]) -> NodeCheck:
    node_check = NodeCheck(address=node.address, interface=node.interface, interface_is_up=_is_up(node.interface))
    node_check.disk_path, node_check.disk_free_bytes = least_free(folders)
    if (clock_offset := _clock_offset(client)) is not None:
        node_check.clock_offset_s, node_check.clock_error_s = clock_offset
    return node_check


def _is_up(interface: str | None) -> bool:
    with contextlib.suppress(OSError, KeyError, psutil.Error):
        return interface is None or bool(psutil.net_if_stats()[interface].isup)
    return True


def _gpus(devices: Sequence[str], gpus: GpuReader) -> tuple[list[str], list[str]]:
    """The ids of the named devices (default: all) that exist, and of those that other programs use."""
    samples = [sample for sample in gpus.samples() if not devices or sample.get("id") in devices]
    return [sample["id"] for sample in samples], [sample["id"] for sample in samples if sample.get("foreign")]


def _clock_offset(client: Client) -> Offset | None:
    with contextlib.suppress(ServerAway, RequestRefused):
        return offset(client.time)
    return None
