"""Makes a run's data present on this node before its ranks start: once per version, checked, shared by all runs."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.locks import environment_hash
from domain.environments.sources import OTHERWISE, Source, source_of
from domain.masking.masking import masked_text
from domain.messages import Reason
from domain.text.formats import plural, size
from domain.text.paths import problem_in_words
from worker.environments import folders
from worker.environments.uv import IsStopped, ProgramFailed, ProgramMissing, Stopped
from worker.launch.preparation import CannotStart, LocalNode, training_environment
from worker.node.attempt_files import DATA_FILE
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused, ServerAway
from worker.staging import data_source, ssh
from worker.staging.data_source import CannotBring

log = logging.getLogger(__name__)
REPORT_EVERY_S = 1.0
SHOWN_DIGITS = 16
"""Of a digest, in the note on the data."""
DATA_FOLDER = "data"
"""In each staged folder: only the file or folder that was staged."""
MANIFEST_FILE = "files.json"
"""In each staged folder: the sizes of its files."""


class DataStager:
    """Brings the data of one attempt; used by the thread that prepares it."""

    def __init__(
        self,
        folder: Path,
        node: LocalNode,
        client: Client,
        is_stopped: IsStopped,
        tell: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._folder, self._node, self._client = folder, node, client
        self._is_stopped, self._tell = is_stopped, tell
        self._told_at = 0.0

    def with_data(self, assignment: Assignment) -> Assignment:
        """Return the assignment with a link to each piece of its data, which is here then. Raises CannotStart."""
        spec = assignment.spec
        if not spec.stage:
            return assignment
        earlier = read_object(self._folder / DATA_FILE).get("links")
        if isinstance(earlier, dict) and all(Path(path).exists() for path in earlier.values()):
            return _with_links(assignment, earlier)
        links, notes = dict[str, str](), []
        for name, text in spec.stage.items():
            path, note = self._staged(assignment, name, source_of(text))
            links[name] = str(path)
            notes.append(note)
        document = {"links": links, "note": "; ".join(notes)[:1000]}
        write_whole(self._folder / DATA_FILE, json.dumps(document))
        return _with_links(assignment, links)

    def _staged(self, assignment: Assignment, name: str, source: Source) -> tuple[Path, str]:
        try:
            path, note, digest = self._brought(name, source)
            self._agree(assignment, name, digest)
        except Stopped:
            raise CannotStart(Reason.ENVIRONMENT, f"It was stopped while {name} was being brought.") from None
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cause = "the disk is full" if is_full else problem_in_words(error)
            raise self._explained(name, source, cause, is_full) from error
        except ProgramFailed as error:
            raise self._explained(name, source, error.cause, error.is_full) from error
        except (CannotBring, ProgramMissing, folders.Changed) as error:
            raise self._explained(name, source, str(error), False) from error
        return path, note

    def _brought(self, name: str, source: Source) -> tuple[Path, str, str]:
        """Return where the data is, how it got there, and its digest."""
        data_dir = self._node.data_dir
        root = folders.prepared(folders.own_disk(data_dir, folders.STAGED))
        log_file, env = self._folder / "worker" / "data.log", training_environment(os.environ)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._tell(f"looks for {name}")
        version = data_source.version(source, env, log_file, self._is_stopped)
        key = environment_hash("data", source.address, version)
        folders.make_room(root, data_dir)

        def build(folder: Path, _: int) -> dict[str, object]:
            data = folder / DATA_FOLDER / source.file_name
            data.parent.mkdir(parents=True)
            data_source.bring(source, data, env, log_file, self._is_stopped, partial(self._progress, name), self._clock)
            self._tell(f"checks {name}")
            digest, sizes = data_source.digest(data, self._is_stopped)
            (folder / MANIFEST_FILE).write_text(json.dumps(sizes))
            return {"digest": digest, "files": len(sizes), "bytes": sum(sizes.values())}

        def tell(_: str) -> None:
            self._tell(f"waits for another run that brings {name}")

        ensure = partial(folders.ensure, root, key, build, self._is_stopped, tell, clock=self._clock)
        is_new = ensure(data=data_dir, attempt=self._folder, damage=damage)
        mark = folders.mark_of(root / key)
        digest = str(mark["digest"])
        summary = f"{name}: {plural(int(str(mark['files'])), 'file')}, {size(int(str(mark['bytes'])))}"
        summary += f", SHA-256 {digest[:SHOWN_DIGITS]}"
        path = root / key / DATA_FOLDER / source.file_name
        return path, f"{summary}{'' if is_new else ', here already'}", digest

    def _agree(self, assignment: Assignment, name: str, digest: str) -> None:
        """Check that the other nodes of the attempt brought the same. Raises CannotBring."""
        if assignment.spec.nodes == 1:
            return
        with suppress(ServerAway, RequestRefused):
            key = environment_hash("data", assignment.label, name)
            if self._client.keep_lock(TaskRef.of(assignment), key, digest).strip() != digest:
                raise CannotBring("another node of the run got different data: it has changed; launch it again")

    def _progress(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        if (now := self._clock.now()) - self._told_at >= REPORT_EVERY_S:
            self._told_at = now
            total = f" of {size(total_bytes, is_coarse=True)}" if total_bytes else ""
            self._tell(f"brings {name}: {size(done_bytes, is_coarse=True)}{total}")

    def _explained(self, name: str, source: Source, cause: str, is_full: bool) -> CannotStart:
        address = masked_text(source.address)
        text = f"The data {name!r} (from {address}) could not be brought to node {self._node.name}"
        step = "Free space on the node's disk." if is_full else "Check the source from that node, and launch again."
        if source.kind == "path" and not is_full:
            step = f"A path is looked for on each node: copy it there, or stage {OTHERWISE}."
        if source.kind == "ssh" and (refusal := ssh.refusal(cause, source.address, self._node.name)):
            cause, step = refusal
        return CannotStart(Reason.DISK_FULL if is_full else Reason.ENVIRONMENT, f"{text}: {cause.rstrip('.')}.", step)


def damage(target: Path) -> str:
    """Return which file of staged data is missing or was cut, in a few words; empty if complete."""
    if not folders.mark_of(target):
        return "it is incomplete"
    data = next((target / DATA_FOLDER).glob("*"), target)
    for name, size_bytes in read_object(target / MANIFEST_FILE).items():
        path = data / name if name else data
        if not path.exists() or path.stat().st_size != size_bytes:
            return f"{name or data.name} was changed"
    return ""


def _with_links(assignment: Assignment, links: dict[str, str]) -> Assignment:
    spec = assignment.spec
    return assignment.model_copy(update={"spec": spec.model_copy(update={"links": {**spec.links, **links}})})
