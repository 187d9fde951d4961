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

    Place = tuple[CodeType, dict[str, Any], int]
    """The code that runs somewhere, the names that it sees, and its line."""

MAIN = "__mp_main__"
MODULE, IMPORT_SYSTEM = "<module>", "<frozen importlib"
"""The name of a module's own code, and the beginning of the files of the import system."""
IMPORTERS = ("_fixup_main_from_name", "_fixup_main_from_path")
"""The functions of `multiprocessing.spawn` that import the script."""

GUARDED_NAMES = (MAIN, "__main__")
"""The names of a script's module: one that mentions them keeps some part of itself from running again."""
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
    stack: list[Place] = []
    while frame is not None:
        stack.insert(0, (frame.f_code, frame.f_globals, frame.f_lineno))
        frame = frame.f_back
    return _note_stack(stack, sign)


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
    stack: list[Place] = []
    while traceback is not None:
        stack.append((traceback.tb_frame.f_code, traceback.tb_frame.f_globals, traceback.tb_lineno))
        traceback = traceback.tb_next
    _note_stack(stack, _sign_of(error))


def _note_stack(stack: list[Place], sign: str) -> bool:
    """Note the script's place, and the module that it is just importing, if any; whether it is in there."""
    script: Place | None = None
    module: Place | None = None
    for place in stack:
        code, namespace, _ = place
        if script is None:
            script = place if code.co_name == MODULE and namespace.get("__name__") == MAIN else None
        elif code.co_name == MODULE:
            module = place
        elif not code.co_filename.startswith(IMPORT_SYSTEM):
            break  # what is imported further in is no part of the script's own import
    if script is None:
        return False
    _note(script[0].co_filename, script[2], sign, module and (module[0].co_filename, module[2]))
    return True


def _note(file: str, line: int, sign: str, imported: tuple[str, int] | None) -> None:
    """Write the first such note of a rank; never raises."""
    import json  # here and below: not needed where nothing runs again
    import time

    try:
        rank, folder = int(os.environ.get("RANK", "0")), os.environ["RANKZERO_PROBE_DIR"]
        note: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "at": round(time.time(), 3)}
        note |= {"file": file, "line": line, "sign": sign[:300], "imported": imported, "guarded": _has_guard(file)}
        text = json.dumps(note)
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        descriptor = os.open(f"{folder}/rerun-{rank}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except (OSError, SyntaxError, ValueError, KeyError):  # noted before, a full disk, or a script changed meanwhile
        return


def _has_guard(file: str) -> bool:
    """Whether the script keeps some part of itself from running again, in whatever form. Raises OSError."""
    import ast

    with open(file, "rb") as script:  # noqa: PTH123
        tree = ast.parse(script.read())
    return any(isinstance(node, ast.Constant) and node.value in GUARDED_NAMES for node in ast.walk(tree))
