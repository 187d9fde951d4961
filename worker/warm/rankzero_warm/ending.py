"""The end of a forked torchrun: as Python ends, but torch is not taken apart, which takes a second for nothing."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from .identity import flush_native


def leave(error: BaseException | None) -> None:
    """Exit as Python does after this error or without one; returns where only Python itself can end like that."""
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
