"""Collects the facts a node reports before it trains together with others; the server judges them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

from domain.assignments import Assignment, CheckPeer
from domain.choices import RECIPES
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import NodeCheck, Reached
from domain.spec import RunSpec
from worker.launch.interpreter import describe
from worker.launch.preparation import LocalNode, training_environment
from worker.node.attempt_files import INTERPRETER_FILE
from worker.node.hardware import GPUS, GpuReader
from worker.node.regular_files import open_regular
from worker.node.state_files import read_object
from worker.session.client import Client
from worker.session.clock import Offset, offset
from worker.session.failures import RequestRefused, ServerAway


def check_node(
    node: LocalNode,
    client: Client,
    python: str | None,
    devices: Sequence[str],
    clock: Clock = SYSTEM_CLOCK,
    gpus: GpuReader = GPUS,
) -> NodeCheck:
    """Check this node, but not its connections to others; facts that cannot be read are None."""
    node_check = _check_machine(node.as_seen_by_others(), client, [node.data_dir], clock)
    where = f"node {node.name}"
    node_check.interpreter = describe(python or node.python, where, training_environment(os.environ))
    node_check.devices, node_check.foreign_devices = _gpus(devices, gpus)
    return node_check


def check_node_for_run(
    assignment: Assignment,
    folder: Path,
    node: LocalNode,
    client: Client,
    clock: Clock = SYSTEM_CLOCK,
    gpus: GpuReader = GPUS,
) -> NodeCheck:
    """Check this node for its task of a run on several nodes, before the code is fetched; needs the endpoint."""
    spec = assignment.spec
    node_check = _check_machine(
        node.as_seen_by_others(), client, [folder, *([Path(spec.workdir)] if spec.workdir else [])], clock
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
        node_check.reached = [probe_port(rank0, greeting_of(assignment), clock)]
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
        with open_regular(script) as file:
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


def _check_machine(node: LocalNode, client: Client, folders: Sequence[Path], clock: Clock) -> NodeCheck:
    node_check = NodeCheck(address=node.address, interface=node.interface, interface_is_up=_is_up(node.interface))
    node_check.disk_path, node_check.disk_free_bytes = least_free(folders)
    if (clock_offset := _clock_offset(client, clock)) is not None:
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


def _clock_offset(client: Client, clock: Clock) -> Offset | None:
    with contextlib.suppress(ServerAway, RequestRefused):
        return offset(client.time, clock)
    return None


# Holds a port open and probes it from other nodes: is it reachable, and does the expected program answer?

CONNECT_LIMIT_S = 2.0
"""Allows for one retransmission of a lost first packet."""
ANSWER_LIMIT_S = 15.0
"""The peer has accepted the connection; on a busy machine its worker may be long in saying who it is."""
PAUSE_S = 0.1
MAX_PARALLEL = 32
CHUNK_BYTES = 200


class ProbeListener:
    """Listens and sends a greeting to every connection; `close` frees the port at once."""

    def __init__(self, address: str, port: int, greeting: str) -> None:
        """Raises OSError if the port is in use or the address is not this machine's."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._greeting = greeting.encode() + b"\n"
        self._listener = socket.socket(family)
        try:
            self._listener.bind((address, port))
            # Only after binding, so that a port in use stays refused. Accepted connections inherit the option,
            # and do not keep the next program from listening here while they close.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.listen(64)
        except OSError:
            self._listener.close()
            raise
        self.address, self.port = address, int(self._listener.getsockname()[1])
        threading.Thread(target=self._answer_all, name=f"probe listener {self.port}", daemon=True).start()

    def close(self) -> None:
        """Stop listening and free the port."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._listener.close()

    def _answer_all(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Let the peer close first: the side that closes first keeps the port busy for a minute (TIME_WAIT)."""
        with suppress(OSError), connection:
            connection.settimeout(ANSWER_LIMIT_S)
            connection.sendall(self._greeting)
            connection.recv(1)


def probe_ports(peers: Iterable[CheckPeer], greeting: str, clock: Clock = SYSTEM_CLOCK) -> list[Reached]:
    """Probe all peers in parallel; takes as long as the slowest."""
    with ThreadPoolExecutor(MAX_PARALLEL) as threads:
        return list(threads.map(lambda peer: probe_port(peer, greeting, clock), peers))


def probe_port(peer: CheckPeer, greeting: str, clock: Clock = SYSTEM_CLOCK) -> Reached:
    """Check that the peer answers with the greeting. Retries refusals: the peer's worker may be restarting."""
    deadline = clock.now() + CONNECT_LIMIT_S
    while True:
        result = _probe_once(peer, greeting, clock)
        if result.trouble != "refused" or clock.now() >= deadline:
            return result
        clock.pause(PAUSE_S)


def _probe_once(peer: CheckPeer, greeting: str, clock: Clock) -> Reached:
    began = clock.now()
    try:
        connection = socket.create_connection((peer.address, peer.port), CONNECT_LIMIT_S)
    except TimeoutError:
        return _failure(peer, "silent", f"no answer in {CONNECT_LIMIT_S:g} s")
    except ConnectionRefusedError:
        return _failure(peer, "refused", "connection refused")
    except OSError as error:
        return _failure(peer, "no route", (error.strerror or str(error)).lower())
    took_s = clock.now() - began
    if _receives(connection, greeting):
        return Reached(**peer.model_dump(), took_s=took_s)
    return _failure(peer, "foreign", "another program answers")


def _receives(connection: socket.socket, greeting: str) -> bool:
    expected = greeting.encode() + b"\n"
    received = b""
    with suppress(OSError), connection:
        connection.settimeout(ANSWER_LIMIT_S)
        while len(received) < len(expected) and (chunk := connection.recv(CHUNK_BYTES)):
            received += chunk
    return received == expected


def _failure(peer: CheckPeer, trouble: str, problem: str) -> Reached:
    return Reached.model_validate(peer.model_dump() | {"trouble": trouble, "problem": problem})
