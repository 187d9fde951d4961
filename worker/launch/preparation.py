"""Prepares an attempt's directory for its start, or explains in one sentence why it cannot start here."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import socket
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from tarfile import is_tarfile
from typing import Any, BinaryIO

from domain.assignments import Assignment, ResumeFrom
from domain.choices import RECIPES
from domain.clock import SYSTEM_CLOCK, Clock
from domain.launch.plan import TaskContext, local_rank_option, plan, recipe_path
from domain.masking.masking import MASK, masked_args, masked_env
from domain.messages import CheckpointFetch, Reason
from domain.spec import RENDEZVOUS_VARIABLES, RunSpec
from domain.text.paths import problem_in_words
from worker.launch import compile_cache
from worker.launch.interpreter import Interpreter, Unusable, ask, check, find, torchrun_of
from worker.launch.unpack import BadArchive, members, safe_parts, unpack, write_new
from worker.node.attempt_files import ENVIRONMENT_FILE, EXISTING_FILE, INTERPRETER_FILE, LAUNCH_FILE
from worker.node.hardware import address_reached_by_others, interface_of, is_loopback
from worker.node.regular_files import bytes_of
from worker.node.run_files import is_checkpoint_name, remember_existing
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client
from worker.session.failures import ChecksumMismatch, RequestRefused, ServerAway

ARCHIVE_SUFFIX = ".tar"
Download = Callable[[ResumeFrom, Path], None]


class CannotStart(Exception):
    """The attempt cannot start on this node; carries the reason, a sentence, and what to do where that is not in it."""

    def __init__(self, reason: Reason, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.reason, self.next_step = reason, next_step


@dataclass(frozen=True)
class LocalNode:
    """The facts of this machine that an attempt needs."""

    name: str
    data_dir: Path
    python: str
    """The interpreter for runs that name none."""
    address: str = "127.0.0.1"
    interface: str | None = None
    cpu_threads: int = 1
    keep_attempts_s: float | None = None
    """How long the folders of ended attempts are kept; None: for ever."""
    server_port: int | None = None
    """The server's port, in case the server runs on this machine; None if the address was configured."""
    connection_address: Callable[[], str | None] | None = field(default=None, compare=False)
    """Returns this node's address in its last connection to the server; None if the address was configured."""

    def as_seen_by_others(self) -> LocalNode:
        """This node with the address at which other machines reach it: the one of its current connection to the server
        (networks may come up late or change), or, if the server runs here, the one to which others connect."""
        address = (self.connection_address() if self.connection_address else None) or self.address
        if self.server_port and is_loopback(address):
            address = address_reached_by_others(self.server_port) or address
        return self if address == self.address else replace(self, address=address, interface=interface_of(address))


def prepare(assignment: Assignment, folder: Path, node: LocalNode, download: Download, fetch: FetchSnapshot) -> None:
    """Prepare the directory up to launch.json, which the supervisor reads; may be repeated. Raises CannotStart."""
    spec = assignment.spec
    python = interpreter_of(spec, folder, node)
    if not has_endpoint(assignment):
        return  # the interpreter can be reported already; all else needs the rendezvous endpoint
    work = folder / "work"
    _check_workdir(spec, node)
    _install_code(spec, work, node, fetch)
    work.mkdir(exist_ok=True)
    _make_links(spec, work)
    _remember_existing(folder, spec)
    source = assignment.resume_from
    resume_path = None if source is None else fetch_checkpoint(source, folder / "resume", download)
    write_whole(folder / "spec.json", spec.model_dump_json())
    launch = launch_document(assignment, folder, node, python.path, resume_path)
    write_whole(folder / LAUNCH_FILE, json.dumps(launch))


def has_endpoint(assignment: Assignment) -> bool:
    """Whether the rendezvous endpoint is known (runs on one node need none)."""
    return assignment.spec.nodes == 1 or assignment.master_port is not None


def launch_document(
    assignment: Assignment, folder: Path, node: LocalNode, python: str, resume_path: str | None
) -> dict[str, object]:
    """The contents of launch.json: the launch plan, and the facts the supervisor needs."""
    spec = assignment.spec
    launch_plan = plan(spec, _context(assignment, folder, node, python, resume_path))
    return {
        "argv": list(launch_plan.argv),
        "env": dict(launch_plan.env),
        "secrets": list(spec.secrets),
        "cwd": launch_plan.cwd,
        "grace_s": spec.stop_grace_s,
        "launcher": spec.effective_launcher,
        "launcher_restarts": spec.torchrun_restarts,
        "first_rank": assignment.node_rank * spec.processes_per_node,
        "processes": spec.processes_per_node,
        "master_port": assignment.master_port,
    }


def training_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment without Rankzero's secrets and without variables of an outer launcher."""
    ours = re.compile(
        r"RANKZERO_|TORCHELASTIC_|ROLE_|GROUP_RANK$|GROUP_WORLD_SIZE$|PYTHON_EXEC$"
        # A Slurm step's variables: frameworks would mistake our workers, one per node, for the ranks.
        r"|SLURM_(PROCID|LOCALID|NODEID|NTASKS|NPROCS|TASK|GTIDS|STEP|SRUN)|PMI"
    )
    dropped = RENDEZVOUS_VARIABLES | {name for name in own if ours.match(name)}
    return {name: value for name, value in own.items() if name not in dropped}


def masked_launch(launch: Mapping[str, Any]) -> dict[str, Any]:
    """The command, environment and folder of a launch for reports, with secrets masked."""
    argv, env = launch.get("argv"), masked_env(launch.get("env", {}))
    env |= dict.fromkeys(launch.get("secrets", ()), MASK)
    return {"argv": argv and masked_args(argv), "env": env, "cwd": launch.get("cwd")}


def free_port(address: str) -> int:
    """A port that is free now at this address. Raises OSError."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _context(
    assignment: Assignment, folder: Path, node: LocalNode, python: str, resume_path: str | None
) -> TaskContext:
    several = assignment.spec.nodes > 1
    node = node.as_seen_by_others() if several else node
    return TaskContext(
        run_id=assignment.run_id,
        attempt=assignment.attempt,
        node_rank=assignment.node_rank,
        devices=tuple(assignment.devices),
        device_kind=assignment.device_kind,
        master_addr=assignment.master_addr,
        master_port=assignment.master_port,
        local_addr=node.address if several else None,
        interface=node.interface if several else None,
        attempt_dir=str(folder),
        python=python,
        torchrun=torchrun_of(python),
        resume_path=resume_path,
        cpu_threads=node.cpu_threads,
        compile_cache=compile_cache.open_for(assignment.spec, node.data_dir, training_environment(os.environ)),
        local_rank_option=_local_rank_option(assignment.spec, folder),
        packages=read_object(folder / ENVIRONMENT_FILE).get("packages"),
    )


def _local_rank_option(spec: RunSpec, folder: Path) -> str | None:
    """The option for the local rank that a script for the legacy launcher declares; None for others."""
    if spec.effective_launcher != "launch" or spec.module or spec.target in RECIPES:
        return None
    home = Path(spec.target) if spec.workdir else folder / "work"
    script = home / spec.entry if spec.entry else Path(spec.target)
    with suppress(OSError):
        return local_rank_option(bytes_of(script).decode(errors="replace"))
    return None


def interpreter_of(spec: RunSpec, folder: Path, node: LocalNode) -> Interpreter:
    """Inspect and record the Python that trains: the spec's, or the node's default. Raises CannotStart."""
    python_variables = {name: value for name, value in spec.env.items() if name.startswith("PYTHON")}
    try:
        interpreter = ask(find(spec.python or node.python), training_environment(os.environ) | python_variables)
        check(interpreter)
    except Unusable as error:
        reason = Reason.SCRIPT_MISSING if error.is_missing else Reason.LAUNCH_FAILED
        where = f"node {node.name}" + ("" if spec.python else " (whose default it is)")
        raise CannotStart(reason, error.on(where)) from error
    write_whole(folder / INTERPRETER_FILE, json.dumps(asdict(interpreter)))
    return interpreter


def _check_workdir(spec: RunSpec, node: LocalNode) -> None:
    if spec.workdir and not os.access(spec.workdir, os.W_OK | os.X_OK):
        raise CannotStart(
            Reason.SCRIPT_MISSING,
            f"The working directory {spec.workdir} does not exist on node {node.name} or is not writable.",
        )


def _install_code(spec: RunSpec, work: Path, node: LocalNode, fetch: FetchSnapshot) -> None:
    if spec.snapshot:
        _install_snapshot(spec.snapshot, work, node, fetch)
        _must_exist(not spec.entry or (work / spec.entry).is_file(), f"{spec.entry} of the snapshot", node)
        return
    if spec.target in RECIPES:
        _must_exist(recipe_path(spec.target).is_file(), f"The recipe {spec.target}", node)
        return
    target = Path(spec.target)
    if not (spec.entry or spec.module):
        _must_exist(target.exists(), f"The script {target}", node)
        if target.is_dir():
            raise CannotStart(Reason.SCRIPT_MISSING, f"{target} is a folder: name a script in it (entry) or a module.")
        return
    _must_exist(target.is_dir(), f"The folder {target}", node)
    if not spec.workdir:
        text = f"The code of {target} is not stored with the run: launch it again, or run it in place (--workdir)."
        raise CannotStart(Reason.SCRIPT_MISSING, text)
    if spec.entry:
        _must_exist((target / spec.entry).is_file(), f"The script {target / spec.entry}", node)


def _must_exist(exists: bool, subject: str, node: LocalNode) -> None:
    if not exists:
        raise CannotStart(Reason.SCRIPT_MISSING, f"{subject} does not exist on node {node.name}.")


def _install_snapshot(sha256: str, work: Path, node: LocalNode, fetch: FetchSnapshot) -> None:
    """Unpack the run's own copy of its code snapshot into `work`."""
    try:
        install(sha256, node.data_dir / "node" / "snapshots", work, fetch)
    except BadArchive as error:
        text = f"The code (snapshot {sha256[:12]}) could not be unpacked: {problem_in_words(error)}"
        raise CannotStart(Reason.LAUNCH_FAILED, text) from error


def _make_links(spec: RunSpec, work: Path) -> None:
    for name, path in spec.links.items():
        if not Path(path).exists():
            raise CannotStart(Reason.SCRIPT_MISSING, f"{path}, to be linked as {name}, does not exist.")
        link = work / name
        try:
            _delete(link)
            link.symlink_to(path)
        except OSError as error:
            raise CannotStart(
                Reason.LAUNCH_FAILED, f"The link {name} could not be created: {problem_in_words(error)}"
            ) from error


def _delete(path: Path) -> None:
    """Delete a file or folder of the code that a link replaces, most often an empty folder for data."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remember_existing(folder: Path, spec: RunSpec) -> None:
    """Record once, before the first start, the files that do not belong to the attempt."""
    existing_file = folder / EXISTING_FILE
    if not existing_file.exists():
        existing = remember_existing((folder / "work").resolve())
        if spec.workdir:
            existing |= remember_existing(Path(spec.workdir).resolve())
        write_whole(existing_file, json.dumps(existing))


def fetch_checkpoint(source: ResumeFrom, folder: Path, download: Download) -> str:
    """Download a checkpoint into a folder, unless it is there, and return its path; a folder is unpacked.

    Raises CannotStart and what `download` raises."""
    target = folder / Path(source.name).name
    unpacked = target.with_suffix("") if target.suffix == ARCHIVE_SUFFIX else target
    if unpacked.exists():
        return str(unpacked)
    target.parent.mkdir(exist_ok=True)
    download(source, target)
    if unpacked == target or (is_checkpoint_name(target.name) and not is_tarfile(target)):
        return str(target)  # `checkpoint.pth.tar` may be a plain file
    _unpack(target, unpacked, source)
    return str(unpacked)


def _unpack(archive: Path, folder: Path, source: ResumeFrom) -> None:
    """Unpack a checkpoint that is a folder: it is transferred as one archive."""
    try:
        unpack(archive, folder, max_bytes=source.size_bytes)
    except BadArchive as error:
        text = f"The checkpoint {source.name} could not be unpacked: {problem_in_words(error)}"
        raise CannotStart(Reason.RESUME_FAILED, text) from error
    archive.unlink()


# Installs code snapshots: fetched once per node, verified by SHA-256, unpacked for every attempt.

CACHE_BYTES = 1024**3
MAX_MEMBERS = 20_000
FetchSnapshot = Callable[[str, Path], None]
"""(SHA-256, file): download the archive with that hash into a new file and verify it."""


def install(sha256: str, cache: Path, work: Path, fetch: FetchSnapshot, cache_bytes: int = CACHE_BYTES) -> None:
    """Create the folder `work` from a snapshot, completely or not at all. Raises BadArchive, OSError."""
    if work.exists():
        return  # created by an earlier worker, before the attempt started
    staging = work.with_name(f".{work.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        with open_archive(sha256, cache, fetch) as file:
            unpack_code(file, staging)
        staging.rename(work)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _drop_oldest(cache, cache_bytes)


def open_archive(sha256: str, cache: Path, fetch: FetchSnapshot) -> BinaryIO:
    """Open the archive in this node's cache, fetching it if it is missing or damaged.

    The open file stays readable even if another attempt deletes it from the cache."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = cache / f"{sha256}.tar"
    with suppress(FileNotFoundError):
        file = archive.open("rb")
        if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
            os.utime(archive)  # marks it as recently used
            file.seek(0)
            return file
        file.close()
    arriving = cache / f"{sha256}.{secrets.token_hex(4)}.part"
    try:
        fetch(sha256, arriving)
        arriving.replace(archive)
    finally:
        arriving.unlink(missing_ok=True)
    return archive.open("rb")


def unpack_code(file: BinaryIO, folder: Path) -> None:
    """Unpack files, folders and links that stay inside; links come last, so that nothing is written through one.

    Raises BadArchive, OSError."""
    links: list[tuple[Path, str]] = []
    for count, member in enumerate(members(file, with_links=True), start=1):
        if count > MAX_MEMBERS:
            raise BadArchive(f"The archive holds more than {MAX_MEMBERS} entries.")
        path = folder.joinpath(*safe_parts(member.name))
        (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
        if member.issym():
            _check_link(member)
            links.append((path, member.linkname))
        elif not member.isdir():
            write_new(path, file, member.size)
            if member.mode & 0o100:
                path.chmod(0o700)
    for path, target in links:
        path.symlink_to(target)


def _check_link(member: tarfile.TarInfo) -> None:
    """Reject a link that leaves the snapshot: `..` may only lead up to its top, and only at the start of the target."""
    parts = PurePosixPath(member.linkname).parts
    ups = next((i for i, name in enumerate(parts) if name != ".."), len(parts))
    depth = len(PurePosixPath(member.name).parts) - 1
    if not member.linkname or member.linkname.startswith("/") or ups > depth or ".." in parts[ups:]:
        raise BadArchive(f"The link {member.name[:100]!r} leaves the snapshot.")


def _drop_oldest(cache: Path, most_bytes: int) -> None:
    """Delete the least recently used archives until the cache holds at most `most_bytes`."""
    archives = []
    for path in cache.glob("*.tar"):
        with suppress(OSError):
            status = path.stat()
            archives.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in archives)
    for _, size, path in sorted(archives):
        if total > most_bytes:
            path.unlink(missing_ok=True)
            total -= size


log = logging.getLogger(__name__)

# Downloads an attempt's checkpoint and code before it starts, waiting while the server is unavailable.

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
REPORT_EVERY_S = 1.0


class Downloads:
    """The downloads of one attempt; runs in the thread that prepares it, and ends once `is_stopped` is true."""

    def __init__(
        self,
        client: Client,
        label: str,
        is_stopped: Callable[[], bool],
        report: Callable[[CheckpointFetch], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client, self._label, self._is_stopped, self._report = client, label, is_stopped, report
        self._clock = clock
        self._report_at = 0.0

    def fetch_checkpoint(self, source: ResumeFrom, target: Path) -> None:
        """Download the checkpoint to resume from, reporting the progress. Raises CannotStart."""
        subject = f"the checkpoint {source.name}"
        fetch = CheckpointFetch(name=source.name, done_bytes=0, size_bytes=source.size_bytes)
        self._report_at = self._clock.now() + REPORT_EVERY_S

        def on_progress(done_bytes: int) -> None:
            """Report the progress now and then. Raises CannotStart once the attempt is stopped."""
            if self._is_stopped():
                raise _stopped(subject, Reason.RESUME_FAILED)
            if self._clock.now() >= self._report_at:
                self._report(fetch.model_copy(update={"done_bytes": done_bytes}))
                self._report_at = self._clock.now() + REPORT_EVERY_S

        self._fetch(subject, lambda: self._client.download(source, target, on_progress), Reason.RESUME_FAILED)
        self._report(fetch.model_copy(update={"done_bytes": source.size_bytes, "is_verified": True}))

    def fetch_code(self, sha256: str, target: Path) -> None:
        """Download the archive of a code snapshot. Raises CannotStart."""
        subject = f"the code (snapshot {sha256[:12]})"
        self._fetch(subject, lambda: self._client.download_snapshot(sha256, target), Reason.LAUNCH_FAILED)

    def _fetch(self, subject: str, download: Callable[[], None], reason: Reason) -> None:
        pause_s, has_mismatched = FIRST_PAUSE_S, False
        while not self._is_stopped():
            try:
                download()
                return
            except ChecksumMismatch as error:  # it was deleted: what comes now is read from the start
                if has_mismatched:
                    text = f"{subject[0].upper()}{subject[1:]} arrived damaged twice: {error}"
                    raise CannotStart(reason, text) from error
                has_mismatched = True
                log.warning("attempt %s: %s is fetched again: %s", self._label, subject, error)
            except ServerAway as error:
                log.info("attempt %s: %s is still being fetched: %s", self._label, subject, error)
            except RequestRefused as error:
                text = f"{subject[0].upper()}{subject[1:]} could not be fetched: {error}"
                raise CannotStart(reason, text) from error
            self._clock.pause(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        raise _stopped(subject, reason)


def _stopped(subject: str, reason: Reason) -> CannotStart:
    return CannotStart(reason, f"It was stopped while {subject} was being fetched.")
