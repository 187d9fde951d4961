"""The secrets that an attempt on this node was given: held in memory alone, and masked in all that leaves the node
and in the files that stay."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from domain.assignments import Assignment
from domain.masking.log_lines import hidden
from domain.masking.values import ValueMask
from domain.messages import Reason, TaskReport
from domain.text.paths import problem_in_words
from worker.attempt.supervision import Background
from worker.streams.masked_files import mask_in_place

log = logging.getLogger(__name__)


class GivenSecrets:
    """The values of one attempt's secrets; after a restart of the worker they come again from the server."""

    def __init__(self, assignment: Assignment) -> None:
        self._names = frozenset(assignment.spec.secrets)
        self.values: Mapping[str, str] = {}
        self.mask = ValueMask()
        self.problem: str | None = None
        """Why the server cannot give them."""
        self.take(assignment)

    def take(self, assignment: Assignment) -> None:
        """Take the values that come with an assignment of the server; one from this node's disk has none."""
        if self.are_known:
            return
        self.problem = assignment.secrets_problem
        if self._names <= assignment.secrets.keys():
            self.values = {name: assignment.secrets[name] for name in self._names}
            self.mask.add(self.values.values())
            hidden.add(self.values.values())

    @property
    def are_known(self) -> bool:
        """Whether the attempt may start, and whatever it wrote may leave this node masked."""
        return self._names == self.values.keys()

    @property
    def are_awaited(self) -> bool:
        """Whether the server has not answered yet: until then nothing of the attempt is sent."""
        return not self.are_known and self.problem is None

    def failure(self) -> TaskReport:
        """The end of an attempt that cannot start without them."""
        return TaskReport(state="failed", reason=Reason.LAUNCH_FAILED, message=self.problem)

    def masked(self, report: TaskReport) -> TaskReport:
        """The report without any value in its texts."""
        if not self.mask:
            return report
        return TaskReport.model_validate(self.mask.document(report.model_dump(exclude_unset=True)))


# Mask secrets in the files that an attempt leaves on its node, once its writers have ended and all of it is sent.

SCRIPTS_FOLDERS = frozenset({"work", "resume", "outbox"})
"""What the script itself wrote and read: code and checkpoints. Event files in it are masked nevertheless."""
PACKED = ".gz"
"""Ending of the traces, which are masked before they are sent."""


class LeftFiles:
    """The files of one attempt's directory, and its event files; masked once, in a thread."""

    def __init__(self, folder: Path, mask: ValueMask, background: Background) -> None:
        self._folder, self._mask, self._background = folder, mask, background
        self._has_begun, self._masked = False, threading.Event()

    def are_masked(self, event_files: Callable[[], Sequence[Path]]) -> bool:
        """Whether no value of a secret is left in them; begins to mask them when it is called first."""
        if self._mask and not self._has_begun:
            self._has_begun = True
            self._background(lambda: self._mask_all(event_files))
        return not self._mask or self._masked.is_set()

    def _mask_all(self, event_files: Callable[[], Sequence[Path]]) -> None:
        try:
            for path in (*_files(self._folder), *event_files()):
                self._mask_one(path)
        except Exception as error:  # an attempt's end must not wait for it
            log.warning("secrets in the files of %s are not masked: %s", self._folder, problem_in_words(error))
        finally:
            self._masked.set()

    def _mask_one(self, path: Path) -> None:
        try:
            mask_in_place(path, self._mask)
        except OSError as error:
            log.warning("secrets in %s are not masked: %s", path, error.strerror)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below an attempt's directory that are not the script's own."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if parent != str(folder) or name not in SCRIPTS_FOLDERS]
        paths = (Path(parent, name) for name in names if not name.endswith(PACKED))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())
