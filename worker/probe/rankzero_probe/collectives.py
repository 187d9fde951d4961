"""Serve torch's Flight Recorder of collectives on a UNIX socket beside the probe's records.

The server is torch's own and answers from native code, also while Python is stuck. It never raises into the script.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from . import activity, named_as_probe, peers, process_state

MODULE = "torch.distributed.distributed_c10d"
MAX_GROUPS = 256
NOTICES = re.compile(rb"WorkerServer\.cpp:\d+\] .*Server (listening to UNIX|shutting down|exited)")


class Served:
    """The worker server of this process, and the process groups it has reported."""

    def __init__(self, folder: str) -> None:
        self._pid, self._folder, self._groups = os.getpid(), folder, -1
        self._server: Any = None
        self._is_left = False

    def begin(self, state: process_state.ProcessState) -> None:
        """Start the server and report that it answers, or why it does not. Raises what torch raises."""
        missing = _missing_part()
        if missing is None:
            self._server = _without_its_notices(self._listen)
            # Never destroyed: its destructor would wait in a forked child for a thread that is not there.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
            sys.excepthook = _leaving_record(self, sys.excepthook)
        state.note("collectives", recorded=missing is None, why=missing)

    def report_groups(self, state: process_state.ProcessState) -> None:
        """Report the ranks of each process group when there are others than before."""
        world = sys.modules[MODULE]._world  # type: ignore[attr-defined, unused-ignore]
        if len(world.pg_names) != self._groups:
            self._groups = len(world.pg_names)
            names = list(world.pg_names.items())[:MAX_GROUPS]
            state.note("groups", ranks={str(name): sorted(world.pg_group_ranks[group]) for group, name in names})

    def leave_record(self, error: BaseException | None = None) -> None:
        """Write the record, the error with which the process ends, and its lines to a file; only the first time."""
        if self._server is None or self._is_left or self._pid != os.getpid():
            return
        self._is_left = True
        failure = "" if error is None else f"{type(error).__name__}: {error}"[:500]
        lines = [] if error is None else activity.traceback_lines(error.__traceback__)
        head = json.dumps({"failure": failure, "stack": lines})[:-1].encode()
        path, flags = f"{self._folder}/{self._pid}.collectives", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:  # noqa: PTH123
            file.write(head + b', "record": ' + _bindings()._dump_fr_trace_json() + b"}")

    def keep_others(self) -> None:
        """Keep the records of this node's other ranks, which are ended soon."""
        if self._pid == os.getpid() and process_state.is_in_process_group():
            peers.keep_records(self._folder, own=self._pid)

    def end(self) -> None:
        """Leave the record and stop the server."""
        self.leave_record()
        if self._server is not None and self._pid == os.getpid():
            _without_its_notices(self._server.shutdown)

    def _listen(self) -> Any:
        """Listen through a descriptor of the folder: a socket's path has at most 107 bytes."""
        os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            path = f"/proc/self/fd/{folder}/{self._pid}.sock"
            server = _bindings()._WorkerServer(path)
            os.chmod(path, 0o600)  # noqa: PTH101
            return server
        finally:
            os.close(folder)


_served: Served | None = None


def serve() -> None:
    """Start serving this rank's record once torch.distributed is there; further calls have no effect."""
    global _served
    folder, state = os.environ.get("RANKZERO_PROBE_DIR"), process_state.current
    if _served is None and folder and MODULE in sys.modules and os.environ.get("WORLD_SIZE") != "1":
        _served = served = Served(folder)
        _guarded(lambda: served.begin(state))


def report_groups() -> None:
    """Report new process groups, if torch.distributed is initialised."""
    served = _served
    if served is not None and process_state.is_in_process_group():
        _guarded(lambda: served.report_groups(process_state.current))


def end() -> None:
    """Keep the record when the process exits normally."""
    if _served is not None:
        _guarded(_served.end)


def _guarded(part: Callable[[], None]) -> None:
    state = process_state.current
    if "collectives" not in state.off:
        try:
            part()
        except Exception as error:
            state.failed("collectives", error)


def _leaving_record(served: Served, show: Callable[..., Any]) -> Callable[..., Any]:
    """Leave the record before an error is shown: a launcher that sees one rank end kills the others at once."""

    def excepthook(kind: Any, error: Any, traceback: Any) -> None:
        _guarded(lambda: served.leave_record(error))
        _guarded(served.keep_others)
        show(kind, error, traceback)

    return named_as_probe(excepthook)  # type: ignore[no-any-return]


def _missing_part() -> str | None:
    """Why torch records no collectives here; None if it does."""
    torch = sys.modules["torch"]
    bindings = _bindings()
    if not (hasattr(bindings, "_WorkerServer") and hasattr(bindings, "_dump_fr_trace_json")):
        return f"torch {torch.__version__} has no Flight Recorder that can be asked; 2.8 and newer have"
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        if name in os.environ:
            return f"{name} is 0 in the run's environment" if os.environ[name].strip() == "0" else None
    return None


def _bindings() -> Any:
    return sys.modules["torch._C._distributed_c10d"]


def _without_its_notices(act: Callable[[], Any]) -> Any:
    """Start or stop the server without its lines in the script's stderr; anything else written is passed on."""
    try:
        stderr = os.dup(2)
    except OSError:  # the script's stderr is closed
        return act()
    written = os.memfd_create("stderr")
    try:
        os.dup2(written, 2)
        try:
            return act()
        finally:
            os.dup2(stderr, 2)
            lines = os.pread(written, 1 << 20, 0).splitlines(keepends=True)
            os.write(2, b"".join(line for line in lines if not NOTICES.search(line)))
    finally:
        os.close(stderr)
        os.close(written)


def forget() -> None:
    """Have no server: in a forked child, and where the one of this process has ended."""
    global _served
    _served = None


os.register_at_fork(after_in_child=forget)

# Let the threads of process groups finish while Python's lock is free, before a group is destroyed.
#
# torch joins gloo's threads with the lock held. A thread that drops a finished collective drops Python objects with it,
# since torch 2.13 also the context of the backward pass that began it, and waits for the lock: without this a script
# whose last lines follow its last step within milliseconds may never end, with or without the probe.

PAUSE_S = 0.05
"""In which a thread that waits for the lock gets it; nothing tells whether one waits for it with a tensor."""
STEP_S = 0.001
LIMIT_S = 10.0
"""After it the group is destroyed anyway: something else keeps the context."""
CONTEXT = "context"
"""The name under which torch hands the context of a backward pass on to every collective begun in it."""
_contexts: deque[weakref.ref[Any]] = deque(maxlen=8)


def noting_backward(torch_c: Any) -> Callable[[], None]:
    """Return a function that remembers the context of the backward pass that calls it.

    It lives until the pass's collectives are dropped."""
    is_there, get = getattr(torch_c, "_is_key_in_tls", None), getattr(torch_c, "_get_obj_in_tls", None)

    def note_backward() -> None:
        if is_there is not None and get is not None and is_there(CONTEXT):
            _contexts.append(weakref.ref(get(CONTEXT)))

    return note_backward


def hook_into_process_groups(module: Any) -> None:
    """Wait for the threads before each `destroy_process_group`."""
    destroy = module.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        wait_for_threads()
        return destroy(*args, **kwargs)

    module.destroy_process_group = named_as_probe(destroy_process_group)


def wait_for_threads() -> None:
    """Free Python's lock until the last backward passes are dropped, and for a moment in any case."""
    deadline = time.monotonic() + LIMIT_S
    time.sleep(PAUSE_S)
    while any(context() is not None for context in _contexts) and time.monotonic() < deadline:
        time.sleep(STEP_S)
