"""Note that the script's main part runs again in a process that the script started by spawn or forkserver.

Such a process imports the script as `__mp_main__`. Without `if __name__ == "__main__":` that trains once more.
"""

from __future__ import annotations

import functools
import os
import sys
import threading

from . import named_as_probe

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is imported by multiprocessing's helpers too
    from types import CodeType
    from typing import Any

MAIN = "__mp_main__"
IMPORTERS = ("_fixup_main_from_name", "_fixup_main_from_path")
"""The functions of `multiprocessing.spawn` that import the script."""

GUARD = rb"""^if\s*\(?\s*(?:__name__\s*==\s*["']__main__["']|["']__main__["']\s*==\s*__name__)"""
JOINS, TRAINS = "init_process_group", "train"
"""What it does there again, beside the exceptions that end it."""


def hook_into_spawn(module: Any) -> None:
    """Note what ends the import of the script in a new process, and that it starts processes itself."""
    for name in IMPORTERS:
        setattr(module, name, _noting_failure(getattr(module, name)))
    module._check_not_importing_main = _noting_start(module._check_not_importing_main)


def is_rerun(sign: str) -> bool:
    """Whether this process is importing the script, noted with the line and `sign`: what it just does."""
    frame: Any = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if _is_main(frame.f_code, frame.f_globals):
            _note(frame.f_code.co_filename, frame.f_lineno, sign)
            return True
        frame = frame.f_back
    return False


def _noting_failure(original: Any) -> Any:
    @functools.wraps(original)
    def import_main(*args: Any) -> Any:
        try:
            return original(*args)
        except BaseException as error:
            _note_failure(error)
            raise

    return named_as_probe(import_main)


def _noting_start(original: Any) -> Any:
    """Note a further process that is refused: an executor that waits for it would not let the import end."""

    @functools.wraps(original)
    def check_not_importing_main() -> None:
        try:
            original()
        except RuntimeError as error:
            is_rerun(_sign_of(error))
            raise

    return named_as_probe(check_not_importing_main)


def _sign_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _note_failure(error: BaseException) -> None:
    traceback: Any = error.__traceback__
    while traceback is not None:
        if _is_main(traceback.tb_frame.f_code, traceback.tb_frame.f_globals):
            return _note(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno, _sign_of(error))
        traceback = traceback.tb_next
    return None


def _is_main(code: CodeType, namespace: dict[str, Any]) -> bool:
    return code.co_name == "<module>" and namespace.get("__name__") == MAIN


def _note(file: str, line: int, sign: str) -> None:
    """Write the first such note of a rank; never raises."""
    import json  # here and below: not needed where nothing runs again
    import time

    try:
        rank, folder = int(os.environ.get("RANK", "0")), os.environ["RANKZERO_PROBE_DIR"]
        note = {"rank": rank, "pid": os.getpid(), "at": round(time.time(), 3)}
        text = json.dumps({**note, "file": file, "line": line, "sign": sign[:300], "guarded": _has_guard(file)})
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        descriptor = os.open(f"{folder}/rerun-{rank}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except (OSError, ValueError, KeyError):  # noted before, or a full disk
        return


def _has_guard(file: str) -> bool:
    """Whether the script keeps some part of itself from running again. Raises OSError."""
    import re

    with open(file, "rb") as script:  # noqa: PTH123
        return re.search(GUARD, script.read(), re.MULTILINE) is not None
