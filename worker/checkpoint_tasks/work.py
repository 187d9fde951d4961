"""Does one task: fetches the checkpoints, runs the program in the run's own Python, sends what a merge wrote."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from domain.assignments import Assignment, ResumeFrom
from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask, TaskKind, merged_name
from domain.checkpoints.names import is_folder
from domain.choices import RUN_ID
from domain.clock import Clock
from domain.masking.log_lines import hidden
from domain.messages import CheckpointFetch
from domain.text.formats import size
from worker.checkpoint_tasks.program import PUSHING, RunProgram, TaskCommand, TaskFailed
from worker.checkpoints.upload import CheckpointTransfer
from worker.checkpoints.watching import RESERVE_BYTES, CheckpointCopy
from worker.launch.interpreter import Unusable, ask, check, find
from worker.launch.preparation import CannotStart, Downloads, LocalNode, fetch_checkpoint, training_environment
from worker.node.attempt_files import ENVIRONMENT_FILE
from worker.node.run_files import FileKey
from worker.node.state_files import read_object
from worker.session.answers import Adoption
from worker.session.bodies import MayContinue, UploadInterrupted
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, ChecksumMismatch, RequestRefused, ServerAway
from worker.session.server_session import Backoff

T = TypeVar("T")
KINDS = tuple(TaskKind)
OLDEST_PYTHON = (3, 10)
"""Of a run, for the programs that read checkpoints."""
"""What this worker can do, as it tells the server."""
MERGED_FILE = "model.safetensors"
"""The name under which libraries look for a merged checkpoint of one file."""
STOPPED = "It was ended before it was done."
MOST_DAMAGED = 3
WORDS = {TaskKind.MERGE: "merging", TaskKind.SHOW: "reading", TaskKind.DIFF: "comparing", TaskKind.PUSH: "pushing"}
Tell = Callable[[str, int, int | None], None]
"""(what is being done, bytes done, of so many)."""


class TaskWork:
    """One task in a folder of its own, which its owner removes."""

    def __init__(
        self,
        task: DesiredCheckpointTask,
        folder: Path,
        node: LocalNode,
        client: Client,
        adoption: Adoption | None,
        run: RunProgram,
        tell: Tell,
        may_continue: MayContinue,
        clock: Clock,
    ) -> None:
        self._task, self._folder, self._node, self._client = task, folder, node, client
        self._adoption, self._run, self._tell = adoption, run, tell
        self._may_continue, self._clock = may_continue, clock
        self._downloads = Downloads(client, task.label, self._is_stopped, self._tell_fetch, clock)

    def do(self) -> CheckpointTaskReport:
        """Do it and return the last report. Raises TaskFailed, OSError."""
        self._check_room()
        try:
            command = self._command()
        except CannotStart as error:
            raise TaskFailed(str(error)) from error
        except Unusable as error:
            raise TaskFailed(error.on(f"node {self._node.name}")) from error
        result = self._run(command, self._folder, self._tell_progress, self._may_continue, self._clock)
        if self._is_stopped():
            raise TaskFailed(STOPPED)
        merged_id = self._send_merged(result) if self._task.kind is TaskKind.MERGE else None
        return CheckpointTaskReport(state="succeeded", result=result, merged_id=merged_id)

    # -- before --------------------------------------------------------------------------------

    def _check_room(self) -> None:
        """Check for room for the checkpoints, and for what is unpacked or written of them. Raises TaskFailed."""
        sources, room = self._task.sources, self._room()
        is_double = self._task.kind is TaskKind.MERGE or any(is_folder(source.name) for source in sources)
        needed_bytes = (1 + is_double) * sum(source.size_bytes for source in sources)
        if needed_bytes > room:
            raise TaskFailed(
                f"Node {self._node.name} has {size(max(0, room))} free beyond its reserve, and "
                f"{WORDS[self._task.kind]} {sources[0].name} needs about {size(needed_bytes)}: free some space at "
                f"{self._node.data_dir} there, then ask again."
            )

    def _room(self) -> int:
        return shutil.disk_usage(self._folder).free - RESERVE_BYTES

    def _command(self) -> TaskCommand:
        """Prepare the Python and the checkpoints. Raises CannotStart, Unusable, TaskFailed."""
        if self._task.kind is TaskKind.PUSH:
            return self._push_command()
        python = self._python()
        fetched = [self._fetched(number, source) for number, source in enumerate(self._task.sources)]
        arguments = [self._task.kind.value, *fetched]
        if self._task.kind is TaskKind.MERGE:
            self._target.parent.mkdir()
            arguments += [str(self._target), "--format", self._task.format, "--room", str(self._room())]
        return TaskCommand(python, arguments, {**self._env, "TMPDIR": str(self._folder)})

    def _push_command(self) -> TaskCommand:
        """Prepare a push: in this worker's own Python, because the secrets are for no code of the run."""
        task = self._task
        source = self._fetched(0, task.sources[0])
        details = self._patiently(lambda: self._client.push_details(task), "The push")
        hidden.add(details.secrets.values())
        name = PurePosixPath(task.sources[0].name)
        request = details.model_dump() | {
            "name": MERGED_FILE if name.parts[0] == "merged" else name.name,
            "target": task.target,
            "is_private": task.is_private,
        }
        own_folders = {"TMPDIR": str(self._folder), "HF_HOME": str(self._folder / "hub")}
        env = training_environment(os.environ) | own_folders
        return TaskCommand(sys.executable, [source], env, PUSHING, json.dumps(request).encode())

    @property
    def _env(self) -> dict[str, str]:
        return training_environment(os.environ) | self._task.spec.env

    def _python(self) -> str:
        """The Python of the run; its environment is built where it is missing. Raises CannotStart, Unusable."""
        from worker.environments.environment import EnvironmentMaker  # which most workers never need here

        maker = EnvironmentMaker(
            self._own_folder(), self._node, self._client, self._downloads.fetch_code, self._is_stopped,
            lambda report: self._tell("builds the environment of the run", 0, None), self._clock,
        )  # fmt: skip
        spec = maker.with_environment(self._assignment()).spec
        interpreter = ask(find(spec.python or self._node.python), self._env)
        check(interpreter)
        if tuple(map(int, re.findall(r"\d+", interpreter.python)[:2])) < OLDEST_PYTHON:
            raise TaskFailed(
                f"The run's Python {interpreter.path} is {interpreter.python}, and checkpoints are read with Python "
                f"{'.'.join(map(str, OLDEST_PYTHON))} or newer: download the checkpoint as it was saved."
            )
        return interpreter.path

    def _own_folder(self) -> Path:
        """The attempt's directory, where that names an environment that is still there, else the task's."""
        task = self._task
        if not re.fullmatch(RUN_ID, task.run_id):  # it becomes a path
            raise TaskFailed(f"{task.run_id!r} is not the id of a run: nothing is done with it.")
        folder = self._node.data_dir / f"runs/{task.run_id}/attempts/{task.attempt}/node{task.node_rank}"
        python = read_object(folder / ENVIRONMENT_FILE).get("python")
        return folder if python and Path(python).exists() else self._folder

    def _assignment(self) -> Assignment:
        """The run's part as it was assigned, for what looks up its environment."""
        task = self._task
        return Assignment(
            run_id=task.run_id, attempt=task.attempt, fence=task.fence, node_rank=task.node_rank, action="run",
            spec=task.spec, devices=[], device_kind="cpu", uid=task.uid,
        )  # fmt: skip

    def _fetched(self, number: int, source: ResumeFrom) -> str:
        folder = self._folder / f"source{number}"
        folder.mkdir()
        return fetch_checkpoint(source, folder, self._downloads.fetch_checkpoint)

    # -- after ---------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return merged_name(self._task.sources[0].name, self._task.format)

    @property
    def _target(self) -> Path:
        """The folder that the program makes, which names the top of the archive."""
        return self._folder / "merged" / PurePosixPath(self._name).stem

    def _send_merged(self, result: dict[str, Any]) -> int:
        """Send what a merge wrote; return its id. Raises TaskFailed, OSError."""
        for number in range(len(self._task.sources)):
            shutil.rmtree(self._folder / f"source{number}")  # makes room for the archive
        path = self._archived() if is_folder(self._name) else self._single(result)
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = path.stat().st_size
        copy = CheckpointCopy(self._name, path, None, size_bytes, sha256, 0.0, FileKey(0, size_bytes, 0))
        return self._patiently(lambda: self._send(copy), "The merged checkpoint")

    def _archived(self) -> Path:
        archive = self._folder / "merged.tar"
        self._tell("packs the merged checkpoint", 0, None)
        with tarfile.open(archive, "x", format=tarfile.GNU_FORMAT) as tar:
            tar.add(self._target, self._target.name, filter=_plain)
        shutil.rmtree(self._target)
        return archive

    def _single(self, result: dict[str, Any]) -> Path:
        """The one file of tensors. Raises TaskFailed."""
        files = sorted(self._target.glob("*.safetensors"))
        if len(files) != 1:
            raise TaskFailed(f"The program wrote {len(files)} files of tensors, not one: {result.get('files')}.")
        return files[0]

    def _send(self, copy: CheckpointCopy) -> int:
        task = self._task
        transfer = CheckpointTransfer(
            self._client, TaskRef(task.fence, task.node_rank, task.label), f"{task.run_id}/{task.attempt}", self._clock
        )

        def on_sent(offset: int) -> None:
            self._tell("sends the merged checkpoint", offset, copy.size_bytes)

        return transfer.send(copy, self._adoption, self._may_continue, on_sent, task.task_id)

    def _patiently(self, action: Callable[[], T], subject: str) -> T:
        """Do it as soon as the server answers; `subject` begins the sentence of a refusal. Raises TaskFailed."""
        backoff, damaged = Backoff(), 0
        while not self._is_stopped():
            try:
                return action()
            except ServerAway:
                self._clock.pause(backoff.failed(self._clock.now()))
            except ChecksumMismatch as error:
                damaged += 1
                if damaged == MOST_DAMAGED:
                    raise TaskFailed(f"{subject} arrived damaged {damaged} times: {error}") from error
            except (RequestRefused, AttemptSuperseded) as error:
                raise TaskFailed(f"{subject} was refused: {error}") from error
            except UploadInterrupted:
                break
        raise TaskFailed(STOPPED)

    # -- telling -------------------------------------------------------------------------------

    def _is_stopped(self) -> bool:
        return not self._may_continue()

    def _tell_fetch(self, fetch: CheckpointFetch) -> None:
        self._tell(f"fetches {fetch.name}", fetch.done_bytes, fetch.size_bytes)

    def _tell_progress(self, done_bytes: int, total_bytes: int | None, doing: str) -> None:
        self._tell(doing, done_bytes, total_bytes)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without owner and time: equal content makes equal bytes."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def remove(folder: Path) -> None:
    """Remove a task's folder with all that it holds."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
