"""Makes an attempt's directory ready to start, or says in one sentence why it cannot start here."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tarfile import is_tarfile
from typing import Any

from domain.launch.plan import LaunchPlan, local_rank_option, plan, recipe_names, recipe_path
from domain.masking import masked_args, masked_env
from domain.messages import Reason
from domain.spec import RENDEZVOUS_VARIABLES, Assignment, ResumeFrom, RunSpec
from worker.launch import snapshots
from worker.launch.interpreter import Interpreter, Unusable, ask, check, find, torchrun_of
from worker.launch.snapshots import Fetch
from worker.launch.unpack import BadArchive, unpack
from worker.node.attempt_files import EXISTING_FILE, INTERPRETER_FILE, LAUNCH_FILE
from worker.node.hardware import address_reached_by_others, interface_of, is_loopback
from worker.node.run_files import is_checkpoint_name, remember_existing
from worker.node.state_files import write_whole

ARCHIVE_SUFFIX = ".tar"

Download = Callable[[ResumeFrom, Path], None]


class CannotStart(Exception):
    """Why an attempt fails before any of its processes exists."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class LocalNode:
    """What an attempt must know of the machine it runs on."""

    name: str
    data_dir: Path
    python: str
    """Trains when a spec names no interpreter."""
    address: str = "127.0.0.1"
    interface: str | None = None
    cpu_threads: int = 1
    server_port: int | None = None
    """Where the server may be on this machine, for others to reach."""
    talks_from: Callable[[], str | None] | None = field(default=None, compare=False)
    """The address at which it last spoke with the server; None where somebody chose the address."""

    def among_others(self) -> LocalNode:
        """As nodes on other machines know it: as the server does now (a network may come up late, or change), or where
        that is on this machine, by the address at which they reach the server here."""
        address = (self.talks_from() if self.talks_from else None) or self.address
        if self.server_port and is_loopback(address):
            address = address_reached_by_others(self.server_port) or address
        return (
            self
            if address == self.address
            else replace(self, address=address, interface=interface_of(address))
        )


def prepare(assignment: Assignment, folder: Path, node: LocalNode, download: Download, fetch: Fetch) -> None:
    """Everything up to launch.json, which the supervisor starts from; may be repeated. Raises CannotStart."""
    spec = assignment.spec
    python = interpreter_of(spec, folder, node)
    if not has_endpoint(assignment):
        return  # what trains can be told already; all else depends on where the nodes meet
    work = folder / "work"
    _check_workdir(spec, node)
    _bring_code(spec, work, node, fetch)
    work.mkdir(exist_ok=True)
    _make_links(spec, work)
    _remember_existing(folder, spec)
    resume_path = _bring_checkpoint(assignment, folder, download)
    write_whole(folder / "spec.json", spec.model_dump_json())
    order = launch_order(assignment, folder, node, python.path, resume_path)
    write_whole(folder / LAUNCH_FILE, json.dumps(order))


def has_endpoint(assignment: Assignment) -> bool:
    """Nodes meet where rank 0's node says; it has to say so first."""
    return assignment.spec.nodes == 1 or assignment.master_port is not None


def launch_order(
    assignment: Assignment, folder: Path, node: LocalNode, python: str, resume_path: str | None
) -> dict[str, object]:
    """What the supervisor is told: the plan, and what it must know to watch it."""
    spec = assignment.spec
    made = _plan(assignment, folder, node, python, resume_path)
    return {
        "argv": list(made.argv),
        "env": dict(made.env),
        "cwd": made.cwd,
        "grace_s": spec.stop_grace_s,
        "launcher": spec.effective_launcher,
        "launcher_restarts": spec.torchrun_restarts,
        "first_rank": assignment.node_rank * spec.processes_per_node,
        "processes": spec.processes_per_node,
        "master_port": assignment.master_port,
    }


def training_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment without its secrets, and without traces of a launcher above it."""
    ours = re.compile(
        r"RANKZERO_|TORCHELASTIC_|ROLE_|GROUP_RANK$|GROUP_WORLD_SIZE$|PYTHON_EXEC$"
        # Of a Slurm job's step: a framework would take our workers, one a node, for the ranks.
        r"|SLURM_(PROCID|LOCALID|NODEID|NTASKS|NPROCS|TASK|GTIDS|STEP|SRUN)|PMI"
    )
    dropped = RENDEZVOUS_VARIABLES | {name for name in own if ours.match(name)}
    return {name: value for name, value in own.items() if name not in dropped}


def as_shown(launch: Mapping[str, Any]) -> dict[str, Any]:
    """The command, its variables and its folder as they may be reported: secrets stay on the node."""
    argv, env = launch.get("argv"), launch.get("env", {})
    return {"argv": argv and masked_args(argv), "env": masked_env(env), "cwd": launch.get("cwd")}


def free_port(address: str) -> int:
    """A port nobody listens on now, for the nodes of a run to meet at."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _plan(
    assignment: Assignment, folder: Path, node: LocalNode, python: str, resume_path: str | None
) -> LaunchPlan:
    several = assignment.spec.nodes > 1
    node = node.among_others() if several else node
    return plan(
        assignment.spec,
        run_id=assignment.run_id,
        attempt=assignment.attempt,
        node_rank=assignment.node_rank,
        devices=assignment.devices,
        device_kind=assignment.device_kind,
        master_addr=assignment.master_addr,
        master_port=assignment.master_port,
        local_addr=node.address if several else None,
        interface=node.interface if several else None,
        attempt_dir=folder,
        python=python,
        torchrun=torchrun_of(python),
        resume_path=resume_path,
        cpu_threads=node.cpu_threads,
        local_rank_option=_local_rank_option(assignment.spec, folder),
    )


def _local_rank_option(spec: RunSpec, folder: Path) -> str | None:
    """Read off the script, where there is one and it is for the legacy launcher."""
    if spec.effective_launcher != "launch" or spec.module or spec.target in recipe_names():
        return None
    home = Path(spec.target) if spec.workdir else folder / "work"
    script = home / spec.entry if spec.entry else Path(spec.target)
    with suppress(OSError):
        return local_rank_option(script.read_text(errors="replace"))
    return None


def interpreter_of(spec: RunSpec, folder: Path, node: LocalNode) -> Interpreter:
    """The Python that trains, the one the spec names or the node's default; noted. Raises CannotStart."""
    own = {name: value for name, value in spec.env.items() if name.startswith("PYTHON")}
    try:
        found = ask(find(spec.python or node.python), training_environment(os.environ) | own)
        check(found)
    except Unusable as error:
        reason = Reason.SCRIPT_MISSING if error.is_missing else Reason.LAUNCH_FAILED
        where = f"node {node.name}" + ("" if spec.python else " (whose default it is)")
        raise CannotStart(reason, error.on(where)) from error
    write_whole(folder / INTERPRETER_FILE, json.dumps(found.facts))
    return found


def _check_workdir(spec: RunSpec, node: LocalNode) -> None:
    if spec.workdir and not os.access(spec.workdir, os.W_OK | os.X_OK):
        raise CannotStart(
            Reason.SCRIPT_MISSING,
            f"The working directory {spec.workdir} does not exist on node {node.name} or is not writable.",
        )


def _bring_code(spec: RunSpec, work: Path, node: LocalNode, fetch: Fetch) -> None:
    if spec.snapshot:
        _unpack_snapshot(spec.snapshot, work, node, fetch)
        _must_exist(not spec.entry or (work / spec.entry).is_file(), f"{spec.entry} of the snapshot", node)
        return
    if spec.target in recipe_names():
        _must_exist(recipe_path(spec.target).is_file(), f"The recipe {spec.target}", node)
        return
    target = Path(spec.target)
    if not (spec.entry or spec.module):
        _must_exist(target.exists(), f"The script {target}", node)
        if target.is_dir():
            raise CannotStart(
                Reason.SCRIPT_MISSING, f"{target} is a folder: name the script in it (entry) or a module."
            )
        return
    _must_exist(target.is_dir(), f"The folder {target}", node)
    if not spec.workdir:
        text = f"The code of {target} was not kept with the run: launch it again, or run it in place (--workdir)."
        raise CannotStart(Reason.SCRIPT_MISSING, text)
    if spec.entry:
        _must_exist((target / spec.entry).is_file(), f"The script {target / spec.entry}", node)


def _must_exist(exists: bool, what: str, node: LocalNode) -> None:
    if not exists:
        raise CannotStart(Reason.SCRIPT_MISSING, f"{what} does not exist on node {node.name}.")


def _unpack_snapshot(sha256: str, work: Path, node: LocalNode, fetch: Fetch) -> None:
    """A run works in a copy of its own of the code it was launched with."""
    try:
        snapshots.bring(sha256, node.data_dir / "node" / "snapshots", work, fetch)
    except BadArchive as error:
        text = f"The code (snapshot {sha256[:12]}) could not be unpacked: {error}"
        raise CannotStart(Reason.LAUNCH_FAILED, text) from error


def _make_links(spec: RunSpec, work: Path) -> None:
    for name, path in spec.links.items():
        if not Path(path).exists():
            raise CannotStart(Reason.SCRIPT_MISSING, f"{path}, to be linked as {name}, does not exist.")
        link = work / name
        try:
            _clear(link)
            link.symlink_to(path)
        except OSError as error:
            raise CannotStart(Reason.LAUNCH_FAILED, f"The link {name} could not be made: {error}") from error


def _clear(place: Path) -> None:
    """A link goes before what the code brings under its name: most often an empty folder for the data."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _remember_existing(folder: Path, spec: RunSpec) -> None:
    """What lies there before the start is not the attempt's; looked at once, not again after a restart."""
    notes = folder / EXISTING_FILE
    if not notes.exists():
        found = remember_existing((folder / "work").resolve())
        if spec.workdir:
            found |= remember_existing(Path(spec.workdir).resolve())
        write_whole(notes, json.dumps(found))


def _bring_checkpoint(assignment: Assignment, folder: Path, download: Download) -> str | None:
    source = assignment.resume_from
    if source is None:
        return None
    target = folder / "resume" / Path(source.name).name
    unpacked = target.with_suffix("") if target.suffix == ARCHIVE_SUFFIX else target
    if unpacked.exists():
        return str(unpacked)
    target.parent.mkdir(exist_ok=True)
    download(source, target)
    if unpacked == target or (is_checkpoint_name(target.name) and not is_tarfile(target)):
        return str(target)  # `checkpoint.pth.tar` may well be one file
    _unpack(target, unpacked, source)
    return str(unpacked)


def _unpack(archive: Path, folder: Path, source: ResumeFrom) -> None:
    """A checkpoint that is a folder travels as one archive."""
    try:
        unpack(archive, folder, max_bytes=source.size_bytes)
    except BadArchive as error:
        text = f"The checkpoint {source.name} could not be unpacked: {error}"
        raise CannotStart(Reason.RESUME_FAILED, text) from error
    archive.unlink()
