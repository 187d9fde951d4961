"""Makes an attempt's directory ready to start, or says in one sentence why it cannot start here."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tarfile import is_tarfile

from db.spec import RENDEZVOUS_VARIABLES, Assignment, ResumeFrom, RunSpec
from db.states import Reason
from worker.interpreter import Interpreter, Unusable, ask, check, find, torchrun_of
from worker.launch import LaunchPlan, plan, recipe_names, recipe_path
from worker.notes import write_whole
from worker.unpack import BadArchive, unpack
from worker.walk import is_checkpoint_name, is_event_file, remember_existing

LAUNCH_FILE = "launch.json"
INTERPRETER_FILE = "worker/interpreter.json"
"""What the Python that trains has; there as soon as it has been asked."""
EXISTING_FILE = "worker/existing.json"
ARCHIVE_SUFFIX = ".tar"
CODE_LIMIT_BYTES = 512 * 1024 * 1024
CODE_LIMIT_FILES = 20_000
NOT_CODE = {".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache"}
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)

Download = Callable[[ResumeFrom, Path], None]


class CannotStart(Exception):
    """Why an attempt fails before any of its processes exists."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Node:
    """What an attempt must know of the machine it runs on."""

    name: str
    data_dir: Path
    python: str
    """Trains when a spec names no interpreter."""
    address: str = "127.0.0.1"
    interface: str | None = None
    cpu_threads: int = 1


def prepare(assignment: Assignment, folder: Path, node: Node, download: Download) -> None:
    """Everything up to launch.json, which the supervisor starts from; may be repeated. Raises CannotStart."""
    spec = assignment.spec
    python = _interpreter(spec, node)
    write_whole(folder / INTERPRETER_FILE, json.dumps(python.facts))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    _check_workdir(spec, node)
    _bring_code(spec, work, node)
    _make_links(spec, work)
    _remember_existing(folder, spec)
    resume_path = _bring_checkpoint(assignment, folder, download)
    write_whole(folder / "spec.json", spec.model_dump_json())
    order = launch_order(assignment, folder, node, python.path, resume_path)
    write_whole(folder / LAUNCH_FILE, json.dumps(order))


def launch_order(
    assignment: Assignment, folder: Path, node: Node, python: str, resume_path: str | None
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
        "first_rank": assignment.node_rank * spec.processes_per_node,
        "processes": spec.processes_per_node,
    }


def training_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment without its secrets, and without traces of a launcher above it."""
    ours = re.compile(r"RANKZERO_|TORCHELASTIC_|ROLE_|GROUP_RANK$|GROUP_WORLD_SIZE$|PYTHON_EXEC$")
    dropped = RENDEZVOUS_VARIABLES | {name for name in own if ours.match(name)}
    return {name: value for name, value in own.items() if name not in dropped}


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """The variables as they may be shown: what is named like a secret stays here."""
    return {name: "***" if _SECRET.search(name) else value for name, value in env.items()}


def free_port(address: str) -> int:
    """A port nobody listens on now, for the nodes of a run to meet at."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _plan(
    assignment: Assignment, folder: Path, node: Node, python: str, resume_path: str | None
) -> LaunchPlan:
    several = assignment.spec.nodes > 1
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
    )


def _interpreter(spec: RunSpec, node: Node) -> Interpreter:
    """The Python that trains: the one the spec names, else the node's default; with a torch that can train."""
    own = {name: value for name, value in spec.env.items() if name.startswith("PYTHON")}
    try:
        found = ask(find(spec.python or node.python), training_environment(os.environ) | own)
        check(found)
    except Unusable as error:
        reason = Reason.SCRIPT_MISSING if error.is_missing else Reason.LAUNCH_FAILED
        where = f"node {node.name}" + ("" if spec.python else " (whose default it is)")
        raise CannotStart(reason, error.on(where)) from error
    return found


def _check_workdir(spec: RunSpec, node: Node) -> None:
    if spec.workdir and not os.access(spec.workdir, os.W_OK | os.X_OK):
        raise CannotStart(
            Reason.SCRIPT_MISSING,
            f"The working directory {spec.workdir} does not exist on node {node.name} or is not writable.",
        )


def _bring_code(spec: RunSpec, work: Path, node: Node) -> None:
    if spec.target in recipe_names():
        _must_exist(recipe_path(spec.target).is_file(), f"The recipe {spec.target}", node)
        return
    target = Path(spec.target)
    if not (spec.entry or spec.module):
        if target.is_dir():
            raise CannotStart(
                Reason.SCRIPT_MISSING, f"{target} is a folder: name the script in it (entry) or a module."
            )
        _must_exist(target.is_file(), f"The script {target}", node)
        return
    _must_exist(target.is_dir(), f"The folder {target}", node)
    if spec.entry:
        _must_exist((target / spec.entry).is_file(), f"The script {target / spec.entry}", node)
    if not spec.workdir:
        _copy_code(target, work)


def _must_exist(exists: bool, what: str, node: Node) -> None:
    if not exists:
        raise CannotStart(Reason.SCRIPT_MISSING, f"{what} does not exist on node {node.name}.")


def _copy_code(source: Path, work: Path) -> None:
    """A run keeps the code it started with; event files in the folder belong to other runs."""
    files = size = 0

    def leave_out(folder: str, names: list[str]) -> Iterable[str]:
        nonlocal files, size
        skipped = {name for name in names if name in NOT_CODE or is_event_file(name)}
        for name in set(names) - skipped:
            files += 1
            with suppress(OSError):
                size += (Path(folder) / name).lstat().st_size
        if files > CODE_LIMIT_FILES or size > CODE_LIMIT_BYTES:
            raise CannotStart(
                Reason.LAUNCH_FAILED,
                f"{source} is too large to copy for each run (over {CODE_LIMIT_FILES} files or "
                f"{CODE_LIMIT_BYTES // 1024**2} MiB): run it in place with --workdir, or --link its data.",
            )
        return skipped

    try:
        shutil.copytree(source, work, symlinks=True, ignore=leave_out, dirs_exist_ok=True)
    except (shutil.Error, OSError) as error:
        raise CannotStart(Reason.LAUNCH_FAILED, f"{source} could not be copied: {error}") from error


def _make_links(spec: RunSpec, work: Path) -> None:
    for name, path in spec.links.items():
        if not Path(path).exists():
            raise CannotStart(Reason.SCRIPT_MISSING, f"{path}, to be linked as {name}, does not exist.")
        link = work / name
        if link.is_symlink():
            link.unlink()
        try:
            link.symlink_to(path)
        except OSError as error:
            raise CannotStart(Reason.LAUNCH_FAILED, f"The link {name} could not be made: {error}") from error


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
