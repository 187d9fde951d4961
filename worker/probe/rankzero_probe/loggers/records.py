"""Write rank 0's logged points and settings into a file per process, one JSON record a line."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .. import named_as_probe, process_state
from .names import EVENT_FILES, NamedValue, Names


def observe(owner: Any, name: str, observer: Callable[..., None]) -> None:
    """Call `observer(result, *args, **kwargs)` after each call of a function that returned.

    Its failure is recorded once and switches it off; the caller gets the original's result in any case.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        safely(observer, result, *args, **kwargs)
        return result

    setattr(owner, name, named_as_probe(observed))


FOLDER = "loggers"
"""Below the probe's own."""
SETTINGS = "settings-"
"""Begins the names of the files that hold no points."""
RUNS = "runs-"
"""Begins the names of the files with the runs that are seen."""
MAX_VALUES = 1000
"""Values of one line: the reader skips a line of more than a mebibyte."""
MAX_TAG = 500
FLUSH_EVERY_S = 0.1
names = Names()
_queue: deque[tuple[float, str, int, Mapping[str, float]]] = deque()
"""(time, logger, step, values) that the thread has not written yet."""
_thread: threading.Thread | None = None
_lock = threading.Lock()
_in_every_rank: set[Callable[..., None]] = set()
_noted_runs: set[str] = set()
is_needed = False
"""Whether a logger other than an event file's was imported."""
main_folder = ""
"""Folder of the first event file: the scalars there keep their names."""


def in_every_rank(observer: Callable[..., None]) -> Callable[..., None]:
    """Mark an observer that is called in every rank, not only in rank 0."""
    _in_every_rank.add(observer)
    return observer


def prepare(owner: Any, name: str, preparation: Callable[..., None]) -> None:
    """Call `preparation(*args, **kwargs)` before each call of a function, in every rank."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def prepared(*args: Any, **kwargs: Any) -> Any:
        state, part = process_state.current, _part(preparation)
        try:
            if part not in state.off:
                preparation(*args, **kwargs)
        except Exception as error:
            state.failed(part, error)
        return original(*args, **kwargs)

    setattr(owner, name, named_as_probe(prepared))


def safely(observer: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Call the observer, in rank 0 only unless it is marked, and not if it failed before."""
    state, part = process_state.current, _part(observer)
    if part in state.off:
        return
    try:
        if is_rank_zero() or observer in _in_every_rank:
            observer(*args, **kwargs)
    except Exception as error:
        state.failed(part, error)


def _part(function: Callable[..., None]) -> str:
    return function.__module__.rpartition(".")[2]


def is_rank_zero() -> bool:
    """Whether this process is rank 0, or trains alone."""
    if process_state.is_in_process_group():
        return int(sys.modules["torch.distributed"].get_rank()) == 0
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def write_points(logger: str, step: int, values: Mapping[str, float]) -> None:
    """Write the values that a logger got for a step; equal ones of several loggers once."""
    _enqueue(logger, step, values)


def claim(step: int, values: Mapping[str, float]) -> None:
    """Note the scalars that an event file got."""
    _enqueue(EVENT_FILES, step, values)


def _enqueue(logger: str, step: int, values: Mapping[str, float]) -> None:
    """Leave the work to a thread: the call of the script waits for nothing."""
    global _thread
    _queue.append((time.time(), logger, step, values))
    if _thread is None:
        _thread = threading.Thread(target=_flush_regularly, name="rankzero-loggers", daemon=True)
        _thread.start()


def _flush_regularly() -> None:
    while True:
        time.sleep(FLUSH_EVERY_S)
        safely(_flush)


@in_every_rank
def _flush() -> None:
    """Route and write what is queued, in its order."""
    with _lock:
        while _queue:
            at, logger, step, values = _queue.popleft()
            if logger == EVENT_FILES:
                _write_routed("", names.claim(step, values), at)
            else:
                _write_routed(logger, names.route(logger, step, values), at)


@atexit.register
def write_remaining() -> None:
    """Write the points that still wait for another logger's: runs after the loggers' own exit functions."""
    safely(_write_remaining)


@in_every_rank
def _write_remaining() -> None:
    _flush()
    _write_routed("", names.remaining(), time.time())


def begin_anew() -> None:
    """Name series as in a new process: what was logged before belongs to another run."""
    global names, main_folder
    _queue.clear()
    _noted_runs.clear()
    names, main_folder = Names(), ""


def _reset() -> None:
    """Reset in a forked child, which has no thread; what is queued is its parent's."""
    global _thread, _lock
    _queue.clear()
    _noted_runs.clear()
    _thread, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_reset)


def _write_routed(logger: str, points: list[NamedValue], at: float) -> None:
    """Write points, those of one step in one line."""
    by_step: dict[int, dict[str, float]] = {}
    for name, step, value in points:
        if name and len(name) <= MAX_TAG:
            by_step.setdefault(step, {})[name] = value
    for step, row in sorted(by_step.items()):
        items = list(row.items())
        for start in range(0, len(items), MAX_VALUES):
            _write(f"{os.getpid()}", at, logger=logger, step=step, values=dict(items[start : start + MAX_VALUES]))


def write_settings(logger: str, **settings: Any) -> None:
    """Write hyperparameters, tags and the like of a logger's run; a later value replaces an earlier one."""
    _write(f"{SETTINGS}{os.getpid()}", time.time(), logger=logger, settings=settings)


def note_run(logger: str, run: str) -> None:
    """Note a run whose calls are seen here, before its first value: the worker then leaves the logger's files alone."""
    if run not in _noted_runs:
        _noted_runs.add(run)
        _write(f"{RUNS}{os.getpid()}", time.time(), logger=logger, run=run)


def _write(file_name: str, at: float, **content: Any) -> None:
    """Append a line. The file is opened for each: a script that closes all descriptors cannot redirect it."""
    folder = os.environ.get("RANKZERO_PROBE_DIR")
    if not folder:
        return
    line = json.dumps({"t": round(at, 6), **content}, separators=(",", ":"))
    path = f"{folder}/{FOLDER}/{file_name}.jsonl"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        file = os.open(path, flags, 0o600)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)
