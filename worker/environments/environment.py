"""Finds the lock in a run's code and makes its environment on this node, or explains in a sentence why it cannot."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.locks import BUILT_BY_UV, BadLock, Lock, candidates, choose, environment_hash, required
from domain.messages import EnvironmentReport, Reason
from domain.spec import RunSpec
from domain.text.formats import plural, time_span
from domain.text.paths import problem_in_words
from worker.environments import conda, folders, locked, uv, wheels
from worker.environments.pip_settings import index_options
from worker.environments.uv import ProgramFailed, ProgramMissing, Stopped
from worker.launch.interpreter import Unusable, ask, find
from worker.launch.preparation import (
    CannotStart,
    FetchSnapshot,
    LocalNode,
    open_archive,
    training_environment,
    unpack_code,
)
from worker.launch.unpack import BadArchive, members
from worker.node.attempt_files import ENVIRONMENT_FILE
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
Report = Callable[[EnvironmentReport], None]
LOCK_WAIT_S = 120.0
LOG_FILE = "worker/environment.log"
"""In the attempt's directory: the errors of the last program that worked on its environment."""


@dataclass(frozen=True)
class Environment:
    """An environment on this node, ready to train in."""

    kind: str
    hash: str
    python: str
    packages: str | None
    """The folder of the packages that come from the code itself."""
    note: str

    @property
    def report(self) -> EnvironmentReport:
        """The environment as it is reported to the server."""
        return EnvironmentReport(
            kind=self.kind, hash=self.hash, python=self.python, state="ready", note=self.note[:1000]
        )


class EnvironmentMaker:
    """Makes the environment of one attempt; used by the thread that prepares it."""

    def __init__(
        self,
        folder: Path,
        node: LocalNode,
        client: Client,
        fetch: FetchSnapshot,
        is_stopped: uv.IsStopped,
        report: Report,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._folder, self._node, self._client, self._fetch = folder, node, client, fetch
        self._is_stopped, self._report = is_stopped, report

    def with_environment(self, assignment: Assignment) -> Assignment:
        """Return the assignment with the Python of its environment, which exists then. Raises CannotStart."""
        spec = assignment.spec
        if spec.environment.startswith("/"):
            self._report_given(spec.environment)
            return _with_python(assignment, spec.environment)
        earlier = read_object(self._folder / ENVIRONMENT_FILE)
        if earlier and Path(earlier["python"]).exists():
            return _with_python(assignment, earlier["python"])
        if spec.environment == "none" or (spec.environment == "auto" and (spec.python or not spec.snapshot)):
            return assignment
        lock: Lock | None = None
        try:
            with self._lock_and_source(spec) as lock_and_source:
                if lock_and_source is None:
                    return assignment
                lock, source = lock_and_source
                return self._made(assignment, lock, source)
        except Stopped:
            raise CannotStart(Reason.ENVIRONMENT, "It was stopped while its environment was being built.") from None
        except (BadLock, ProgramMissing, ProgramFailed, folders.Changed, Unusable, BadArchive, OSError) as error:
            raise self._explained(error, lock) from error

    def _report_given(self, path: str) -> None:
        """Say which environment of the node is used. Raises CannotStart where there is none."""
        if (self._folder / ENVIRONMENT_FILE).exists():
            return
        try:
            python = find(path)
        except Unusable:
            text = f"There is no environment with a Python at {path} on node {self._node.name}"
            raise CannotStart(Reason.ENVIRONMENT, f"{text}: choose another with --environment.") from None
        note = {"python": python, "note": f"{path}: it was there"}
        write_whole(self._folder / ENVIRONMENT_FILE, json.dumps(note))
        self._report(EnvironmentReport(kind="path", python=python, state="ready", note=path[:1000]))

    def _made(self, assignment: Assignment, lock: Lock, source: Path) -> Assignment:
        builder = _Builder(
            lock,
            source,
            assignment.spec,
            self._node,
            self._client,
            TaskRef.of(assignment),
            self._is_stopped,
            self._report,
            self._folder,
            self._clock,
        )
        environment = builder.environment()
        write_whole(self._folder / ENVIRONMENT_FILE, json.dumps(asdict(environment)))
        self._report(environment.report)
        log.info("%s: the environment of %s, %s", assignment.label, lock.label, environment.note)
        return _with_python(assignment, environment.python)

    @contextmanager
    def _lock_and_source(self, spec: RunSpec) -> Iterator[tuple[Lock, Path] | None]:
        """Yield the lock and the folder with the code; None where none is built."""
        if spec.snapshot is None:
            source = Path(spec.target)
            source = source if source.is_dir() else source.parent
            in_place = _lock_of(spec, _names_in(source), partial(locked.read_text, source))
            yield None if in_place is None else (in_place, source)
            return
        with open_archive(spec.snapshot, self._node.data_dir / "node" / "snapshots", self._fetch) as file:
            paths = {member.name for member in members(file, with_links=True) if member.isreg()}
            if spec.environment == "auto" and not candidates(paths, spec.entry):
                yield None
                return
            file.seek(0)
            code = self._folder / "worker" / "code"
            folders.remove(code)
            code.mkdir(parents=True)
            try:
                unpack_code(file, code)
                locked.as_utf8(code, paths)
                lock = _lock_of(spec, paths, partial(locked.read_text, code))
                yield None if lock is None else (lock, code)
            finally:
                folders.remove(code)

    def _explained(self, error: Exception, lock: Lock | None) -> CannotStart:
        """Return the failure as a sentence that names the package and the node, and what to do."""
        subject = f"The environment of {lock.label}" if lock else "The environment of the run"
        subject = f"{subject} could not be built on node {self._node.name}"
        self._report(EnvironmentReport(kind=lock.kind if lock else "", state="failed"))
        if isinstance(error, ProgramFailed) and error.is_full:
            return _disk_full(subject, error.package)
        if isinstance(error, ProgramFailed):
            text = f"{subject}: {f'{error.package}: ' if error.package else ''}{error.cause}."
            return CannotStart(Reason.ENVIRONMENT, text, _next_step(error))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _disk_full(subject, None)
        if isinstance(error, Unusable):
            return CannotStart(Reason.ENVIRONMENT, error.on(f"node {self._node.name}"))
        problem = problem_in_words(error) if isinstance(error, OSError) else str(error)
        return CannotStart(Reason.ENVIRONMENT, f"{subject}: {problem.rstrip('.')}.")


def _lock_of(spec: RunSpec, paths: set[str], read: Callable[[str], str | None]) -> Lock | None:
    """Return the lock that a spec means; None where `auto` finds none that it takes. Raises BadLock."""
    if spec.environment == "auto":
        return choose(paths, spec.entry, read)[0]
    return required(spec.environment, paths, spec.entry, read)[0]


class _Builder:
    """Builds the environment of one lock, unless it is there."""

    def __init__(
        self,
        lock: Lock,
        source: Path,
        spec: RunSpec,
        node: LocalNode,
        client: Client,
        task: TaskRef,
        is_stopped: uv.IsStopped,
        report: Report,
        attempt: Path,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._lock, self._source, self._node, self._is_stopped, self._report = lock, source, node, is_stopped, report
        self._spec, self._attempt, self._client, self._task = spec, attempt, client, task
        self._beside = (source / lock.path).parent
        self._data = node.data_dir
        self._root = folders.prepared(folders.own_disk(self._data))
        own = training_environment(os.environ)
        self._cache, self._remark = _cache(own, self._root)
        self._env = uv.settings(own, spec.env, self._cache)
        self._descriptors: tuple[int, ...] = ()
        self._name = ""

    def environment(self) -> Environment:
        """Return the environment, built if it was not there. Raises BadLock, ProgramFailed, ProgramMissing, Stopped."""
        if self._lock.kind not in BUILT_BY_UV:
            return self._of_conda()
        python, version = self._python()
        self._tell("reads the lock")
        if self._lock.kind == "requirements.txt":
            basis: Any = locked.lock_identity(self._lock, self._source)
            packages = None
        else:
            packages = locked.resolved(self._lock, self._source, python, self._uv)
            basis = locked.identity(packages)
        indexes = {name: uv.masked(value, self._env) for name, value in self._env.items() if "INDEX" in name}
        self._name = environment_hash(self._lock.kind, basis, version, indexes if packages is None else None)
        folders.make_room(self._root, self._data)

        def build(folder: Path) -> dict[str, object]:
            fixed = self._resolved(python, basis, version) if packages is None else packages
            self._install(folder, python, version, locked.third_party(fixed, self._beside))
            _correct_scripts(folder, self._root / self._name)
            mark: dict[str, object] = {"lock": self._lock.label, "kind": self._lock.kind}
            if packages is None:
                mark["resolved"] = locked.pylock_text(fixed)
            return mark | {"local": locked.local_folders(fixed)}

        took_s, is_new = self._timed(lambda: self._ensure(self._name, build))
        target = self._root / self._name
        if packages is None and not is_new:
            self._hand_on(environment_hash("lock", basis, version), folders.mark_of(target).get("resolved"))
        note = f"built in {time_span(took_s)}: {plural(_count(target), 'package')}" if is_new else "it was there"
        layer = self._local_packages(target)
        return Environment(
            kind=self._lock.kind,
            hash=self._name,
            python=str(target / "bin" / "python"),
            packages=None if layer is None else str(layer),
            note=f"{self._lock.label}: {note}{self._remark}",
        )

    def _of_conda(self) -> Environment:
        """Return the environment that the node's own pixi or conda builds."""
        tool = conda.tool_of(self._lock)
        text = locked.read_text(self._source, self._lock.path)
        self._name = environment_hash(self._lock.kind, text, Path(tool).name, os.uname().machine)
        folders.make_room(self._root, self._data)

        def build(folder: Path) -> dict[str, object]:
            conda.install(self._lock, self._beside, folder, self._run)
            return {"lock": self._lock.label, "kind": self._lock.kind}

        took_s, is_new = self._timed(lambda: self._ensure(self._name, build, is_fixed=True))
        note = f"built by {Path(tool).name} in {time_span(took_s)}" if is_new else "it was there"
        python = str(self._root / self._name / "bin" / "python")
        return Environment(self._lock.kind, self._name, python, None, f"{self._lock.label}: {note}")

    def _ensure(self, name: str, build: Callable[[Path], dict[str, object]], *, is_fixed: bool = False) -> bool:
        """Make sure that one of its folders is complete, as `folders.ensure` does; returns whether it was built."""

        def build_locked(folder: Path, descriptor: int) -> dict[str, object]:
            self._descriptors = (descriptor,)
            return build(folder)

        return folders.ensure(
            self._root,
            name,
            build_locked,
            self._is_stopped,
            self._tell,
            data=self._data,
            attempt=self._attempt,
            is_fixed=is_fixed,
            clock=self._clock,
        )

    def _timed(self, action: Callable[[], bool]) -> tuple[float, bool]:
        began = self._clock.now()
        outcome = action()
        return self._clock.now() - began, outcome

    def _resolved(self, python: str, basis: object, version: str) -> list[locked.Package]:
        """Resolve requirements as the first of the run's nodes did, so that each installs the same."""
        key = environment_hash("lock", basis, version)
        with suppress(ServerAway, RequestRefused):
            if (text := self._client.lock(self._task, key)) is not None:
                return locked.packages_of(text)
        try:
            packages = locked.resolved(self._lock, self._source, python, self._uv)
        except ProgramFailed as error:
            if not error.is_network or self._spec.nodes == 1 or (text := self._wait_for_lock(key)) is None:
                raise
            return locked.packages_of(text)
        with suppress(ServerAway, RequestRefused):
            return locked.packages_of(self._client.keep_lock(self._task, key, locked.pylock_text(packages)))
        return packages

    def _hand_on(self, key: str, resolved: object) -> None:
        """Say what an earlier run resolved, to the nodes of this run that have yet to."""
        if self._spec.nodes > 1 and isinstance(resolved, str):
            with suppress(ServerAway, RequestRefused):
                self._client.keep_lock(self._task, key, resolved)

    def _wait_for_lock(self, key: str) -> str | None:
        """Return the lock as another node of the run resolves it; None if none does in time."""
        self._tell("waits for another node, which reaches the index")
        ends_at = self._clock.now() + LOCK_WAIT_S
        while self._clock.now() < ends_at:
            if self._is_stopped():
                raise Stopped
            with suppress(ServerAway, RequestRefused):
                if (text := self._client.lock(self._task, key)) is not None:
                    return text
            self._clock.pause(1.0)
        return None

    def _install(self, folder: Path, python: str, version: str, packages: list[locked.Package]) -> None:
        """Install the packages into a new environment. Raises ProgramFailed, Stopped, OSError."""
        self._uv(["venv", "--quiet", "--no-project", "--python", python, str(folder)], self._source)
        if not all(wheels.is_at_hand(wheel) for _, wheel in wheels.chosen(packages, version)):
            self._install_handed(folder, version, packages, None)
            return
        try:
            self._sync(folder, packages)
        except ProgramFailed as error:
            if not error.is_network:
                raise
            self._install_handed(folder, version, packages, error)

    def _install_handed(
        self, folder: Path, version: str, packages: list[locked.Package], failure: ProgramFailed | None
    ) -> None:
        """Install wheels that the server has, or gets from another node. Raises ProgramFailed where it cannot."""
        place = self._root / f"{self._name}.wheels.tmp"
        try:
            wheel_packages = None
            with suppress(ServerAway, RequestRefused):
                # Nodes are asked only for what the run's locks name.
                self._client.keep_lock(self._task, environment_hash(self._name), locked.pylock_text(packages))
                handed = wheels.HandedWheels(self._client, self._task, place, self._is_stopped, self._tell, self._clock)
                wheel_packages = handed.bring(packages, version)
            if wheel_packages is None and failure is not None:
                raise failure
            if wheel_packages is None:
                self._sync(folder, packages)
            else:
                self._sync(folder, wheel_packages, "--offline", "--no-config", "--no-index")
        finally:
            folders.remove(place)

    def _sync(self, folder: Path, packages: list[locked.Package], *options: str) -> None:
        pylock = folder / "pylock.toml"
        pylock.write_text(locked.pylock_text(packages))
        self._uv(["pip", "sync", "--python", str(folder / "bin" / "python"), *options, str(pylock)], self._beside)

    def _local_packages(self, target: Path) -> Path | None:
        """Build the packages that are part of the code, in a folder of their own: they change with each snapshot."""
        places = folders.mark_of(target).get("local") or []
        if not isinstance(places, list) or not places:
            return None
        name = environment_hash(self._name, self._spec.snapshot or str(self._source), places)

        def build(folder: Path) -> dict[str, object]:
            sources = [str(self._beside / place) for place in places]
            argv = ["pip", "install", "--no-deps", "--target", str(folder), "--python", str(target / "bin" / "python")]
            self._uv([*argv, *sources], self._beside)
            return {"of": self._name}

        self._ensure(name, build)
        return self._root / name

    def _python(self) -> tuple[str, str]:
        """Return the Python to build with, and its version and platform: the run's, the project's or the node's."""
        version_or_path = self._spec.python or _python_version(self._source, self._beside)
        if version_or_path is None or "/" in version_or_path:
            path = find(version_or_path or self._node.python)
        else:
            path = self._uv(["python", "find", "--no-project", version_or_path], self._source).strip()
        interpreter = ask(path, training_environment(os.environ))
        return path, f"{interpreter.python} {interpreter.platform}"

    def _run(self, argv: Sequence[str], folder: Path) -> str:
        return uv.run(
            argv,
            self._env,
            folder,
            self._attempt / LOG_FILE,
            self._is_stopped,
            tell=self._tell,
            keeps_open=self._descriptors,
            clock=self._clock,
        )

    def _uv(self, arguments: list[str], folder: Path) -> str:
        options = index_options(self._env) if arguments[:2] in (["pip", "compile"], ["pip", "install"]) else []
        return self._run([uv.program(), *arguments, *options], folder)

    def _tell(self, line: str) -> None:
        note = uv.masked(f"{self._lock.label}: {line}", self._env)[:300]
        self._report(EnvironmentReport(kind=self._lock.kind, hash=self._name or None, state="building", note=note))


def _count(folder: Path) -> int:
    """Return how many packages an environment has."""
    return len([*folder.glob("lib/python*/site-packages/*.dist-info")])


def _with_python(assignment: Assignment, python: str) -> Assignment:
    return assignment.model_copy(update={"spec": assignment.spec.model_copy(update={"python": python})})


def _names_in(source: Path) -> set[str]:
    """Return the files at the top of the code, which runs in place."""
    return {path.name for path in source.iterdir() if path.is_file()}


def _python_version(source: Path, beside: Path) -> str | None:
    """Return the version in the .python-version beside the lock or at the top of the code."""
    for folder in (beside, source):
        text = locked.read_text(source, str((folder / ".python-version").relative_to(source))) or ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            return lines[0]
    return None


def _cache(own: Mapping[str, str], root: Path) -> tuple[Path | None, str]:
    """Return another folder for uv's downloads where its own lies on the network or is read-only, and a remark."""
    usual = Path(own.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv"
    cache = Path(own["UV_CACHE_DIR"]) if own.get("UV_CACHE_DIR") else usual
    if folders.is_remote(cache):
        return (
            root / "cache",
            f"; uv's cache {cache} is on a network file system, so one on this node's disk is used",
        )
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return (None, "") if os.access(existing, os.W_OK | os.X_OK) else (root / "cache", "")


def _correct_scripts(folder: Path, target: Path) -> None:
    """Name the final folder in the first lines of the scripts: they were installed before it was renamed."""
    before, after = (f"#!{place}/bin/".encode() for place in (folder, target))
    for script in (folder / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            with script.open("rb") as file:
                begins = file.read(len(before)) == before
            if begins:
                script.write_bytes(script.read_bytes().replace(before, after, 1))


def _disk_full(subject: str, package: str | None) -> CannotStart:
    text = f"{subject}{f' ({package})' if package else ''}: the disk is full."
    return CannotStart(
        Reason.DISK_FULL, text, "Free space on the node's disk; unused environments are removed already."
    )


def _next_step(error: ProgramFailed) -> str:
    if error.is_git:
        return "Give the node access to the repository (HTTPS_PROXY, a token in its git settings), or name a wheel."
    if error.is_network:
        return "Give the node access to the index (UV_INDEX, HTTPS_PROXY), or the dashboard the wheel (folder wheels)."
    if "Hash mismatch" in error.output:
        return "The index has a different file than the lock names: make the lock again, or clean the index."
    if "wheel" in error.output and "platform" in error.output:
        return "Choose a version with a wheel for the node's platform and Python, and make the lock again."
    return "Change the lock, or train with an environment of the node: --environment none, or --python."
