"""Watch this process as a run: until its cell, its `with` block, or the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from rankzero.attachment import Attachment, ask
from rankzero.ends import CellEnd, ProcessEnd, end_by, shell_of_notebook
from rankzero.output import say

RUN_VARIABLE = "RANKZERO_RUN_ID"
NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"
"""Path of the notebook, as Jupyter tells its kernels."""


class Watch:
    """A watched process. Ends with its cell, its `with` block, the process, or `stop()`."""

    def __init__(self, run_id: str, attachment: Attachment | None = None) -> None:
        """Without an attachment it watches nothing: somebody else does, or it could not begin."""
        self._run_id, self._attachment = run_id, attachment
        self._depth = 0
        self._end_of_all: CellEnd | ProcessEnd | None = None

    @property
    def is_live(self) -> bool:
        """Whether this process is being watched through this object."""
        return self._attachment is not None and self._attachment.is_live

    @property
    def id(self) -> str:
        """The run's id; empty where this process could not be watched."""
        return self._attachment.folder.run_id if self._attachment else self._run_id

    @property
    def url(self) -> str:
        """Address of the run's page; empty where the server has not answered within 3 s."""
        return self._attachment.url() if self._attachment else ""

    def stop(self) -> None:
        """End the run here, as one that succeeded; the process goes on."""
        self._end(None)

    def __enter__(self) -> Watch:
        self._depth += 1
        if self._depth == 1 and isinstance(self._end_of_all, CellEnd):
            self._end_of_all.undo()  # the block ends it, perhaps in a later cell
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            self._end(error)

    def __repr__(self) -> str:
        if self._attachment is None:
            return f"Run {self.id}" if self.id else "Not watched"
        return f"Run {self.id}: {self.url or 'not at the server yet'}"

    def _begin(self, attachment: Attachment, shell: Any | None) -> None:
        if shell is not None:
            self._end_of_all = CellEnd(shell, self._end)
        else:
            self._end_of_all = ProcessEnd(self._end_with_process, attachment.restore_stderr)
        self._attachment = attachment
        attachment.begin()

    def _end(self, error: BaseException | None) -> None:
        if self._end_of_all is not None and self.is_live:
            self._end_of_all.undo()
        if self._attachment is not None:
            self._attachment.end(end_by(error))

    def _end_with_process(self, error: BaseException | None) -> None:
        if self.is_live and self._attachment is not None:
            self._end(error)
            self._attachment.wait_until_delivered()


_current: Watch | None = None


def watch(
    name: str | None = None,
    project: str | None = None,
    tags: Iterable[str] = (),
    run: str | None = None,
    look_only: bool = False,
) -> Watch:
    """Watch this process as a run, with what it starts: its output, steps, figures, checkpoints and hardware.

    In a cell of a notebook it ends with the cell, as a context manager with the block, else with the process; by an
    exception the run fails. A second call returns the same object; in a run that Rankzero launched or watches already,
    nothing begins. `run`: a key that all processes of one run share; `look_only`: the page offers no Stop. Trouble of
    ours is one line on stderr: this never raises."""
    global _current
    if _current is not None and _current.is_live:
        return _current
    if run_id := os.environ.get(RUN_VARIABLE):
        return Watch(run_id)
    watched = Watch("")
    try:
        shell = shell_of_notebook()
        attachment = Attachment(
            ask(_request(shell, name, project, tags, run, look_only)), is_notebook=shell is not None
        )
        watched._begin(attachment, shell)
        _current = watched
    except Exception as error:
        say(f"not watched: {error or type(error).__name__}")
        watched.stop()
    return watched


def _request(
    shell: Any | None, name: str | None, project: str | None, tags: Iterable[str], run: str | None, look_only: bool
) -> dict[str, Any]:
    """Return what `worker.watched.attach` asks for; a notebook has no command line of its own."""
    notebook = Path(os.environ.get(NOTEBOOK_VARIABLE, "")).stem or "notebook"
    options = {
        "argv": [] if shell is not None else sys.orig_argv,
        "name": name or (notebook if shell is not None else ""),
        "project": project or "default",
        "tags": [tags] if isinstance(tags, str) else [str(tag) for tag in tags],
        "key": run,
        "look_only": look_only,
    }
    return {"pid": os.getpid(), "parent": os.getppid(), "options": options}


def _forget() -> None:
    """A forked child is a process of the run that its parent watches."""
    global _current
    _current = None


os.register_at_fork(after_in_child=_forget)
