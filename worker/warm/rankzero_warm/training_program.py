"""A Python program as `python FILE` or `python -m MODULE` runs it, in a process that already runs."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType

from .identity import flush_native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Program:
    """A script, or a module by its name, with its arguments."""

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        arguments: Sequence[str],
        is_module: bool,
        is_launcher: bool = False,
    ) -> None:
        self.command, self.name, self.arguments = list(command), name, list(arguments)
        self.is_module, self.is_launcher = is_module, is_launcher
        self.path = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118 - as Python does, "." stays
        self.source = b""
        self.namespace: dict[str, Any] = {}

    def read(self) -> None:
        """Read the script. Raises OSError, and ValueError where it is not the text of one."""
        if self.is_module:
            return
        with open(self.path, "rb") as file:  # noqa: PTH123
            self.source = file.read()
        if b"\0" in self.source:
            raise ValueError(f"{self.path} is not the text of a script")

    def enter(self, empty: dict[str, Any]) -> None:
        """Make this process the program's: `__main__`, arguments and search path; `empty` is a script's namespace."""
        main = ModuleType("__main__")
        self.namespace = vars(main)
        self.namespace.clear()
        self.namespace.update(empty)
        if not self.is_module:
            self.namespace |= {"__file__": self.path, "__loader__": SourceFileLoader("__main__", self.path)}
        else:
            self.namespace.pop("__file__", None)
            self.namespace.pop("__cached__", None)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main
        sys.orig_argv[:] = self.command
        sys.argv[:] = ["-m" if self.is_module else self.name, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            folder = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.path))  # noqa: PTH109, PTH120
            sys.path.insert(0, folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "rankzero_warm"]:
            del sys.modules[name]


def leave(error: BaseException | None) -> None:
    """End a forked torchrun as Python ends after this error, or without one, but do not take torch apart: that takes a
    second for nothing. Returns where only Python itself can end like that."""
    if isinstance(error, KeyboardInterrupt):
        return
    code = _exit_code(error)
    threading._shutdown()  # type: ignore[attr-defined, unused-ignore]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    flush_native()
    os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    """The exit code, after printing what Python prints."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
