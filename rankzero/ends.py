"""How the watched part of a process ends: with its cell, its `with` block, or the process itself."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class End:
    """How it ended."""

    exit_code: int = 0
    traceback: str = ""
    is_stopped: bool = False
    """Whether a person interrupted it."""


def end_by(error: BaseException | None) -> End:
    """Return the end by an exception, or the normal one."""
    if error is None:
        return End()
    if isinstance(error, KeyboardInterrupt):
        return End(128 + signal.SIGINT, is_stopped=True)
    if isinstance(error, SystemExit):
        return End(exit_code_of(error.code))
    lines = traceback.TracebackException(type(error), error, _of_user(error.__traceback__)).format()
    return End(1, "".join(lines))


def exit_code_of(code: object) -> int:
    """Return the exit code that Python makes of the argument of `sys.exit`."""
    return 0 if code is None else code & 0xFF if isinstance(code, int) else 1


class CellEnd:
    """Tells when the running cell of a notebook ends."""

    def __init__(self, shell: Any, ended: Callable[[BaseException | None], None]) -> None:
        self._events, self._ended = shell.events, ended
        self._events.register("post_run_cell", self._after_cell)

    def undo(self) -> None:
        """Tell nothing more."""
        if self._after_cell in self._events.callbacks["post_run_cell"]:
            self._events.unregister("post_run_cell", self._after_cell)

    def _after_cell(self, result: Any) -> None:
        self.undo()
        error = getattr(result, "error_before_exec", None) or getattr(result, "error_in_exec", None)
        self._ended(KeyboardInterrupt() if result is None else error)  # a cancelled cell has no result


class ProcessEnd:
    """Tells when this process ends, and by which exception that nothing caught."""

    def __init__(self, ended: Callable[[BaseException | None], None], failing: Callable[[], None]) -> None:
        """`failing` is called before Python shows the exception."""
        self._ended, self._failing = ended, failing
        self._error: BaseException | None = None
        self._show, self._exit = sys.excepthook, sys.exit
        self._replacements = (self._excepthook, self._noting_exit)
        sys.excepthook, sys.exit = self._replacements  # type: ignore[assignment]
        atexit.register(self._at_exit)

    def undo(self) -> None:
        """Tell nothing more, and leave `sys` as it was unless somebody else has changed it meanwhile."""
        atexit.unregister(self._at_exit)
        if sys.excepthook is self._replacements[0]:
            sys.excepthook = self._show
        if sys.exit is self._replacements[1]:
            sys.exit = self._exit

    def _excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._error = error
        self._failing()
        self._show(kind, error, trace)

    def _noting_exit(self, status: Any = None, /) -> None:
        """Note the code of `sys.exit`: at the end of Python nothing else tells it."""
        if threading.current_thread() is threading.main_thread():  # another one ends itself only
            self._error = SystemExit(status)
        self._exit(status)

    def _at_exit(self) -> None:
        self._ended(self._error)


def shell_of_notebook() -> Any | None:
    """Return the shell of IPython that runs this process's cells; None in a script."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of IPython that run a cell."""
    own = trace
    while own is not None and "/IPython/" in own.tb_frame.f_code.co_filename:
        own = own.tb_next
    return own or trace
