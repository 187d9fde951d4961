"""Observe a rank without a change to its script: hook into parts of torch and event file writers on import.

Until then it costs a dictionary look-up per import, so launchers and helpers pay nothing.
Nothing here may raise into the script: a part of the probe that fails reports it once and stays off.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs 5 ms in every process
    from types import ModuleType
    from typing import Any

WATCHED_MODULES = frozenset(
    {
        "torch",
        "torch._dynamo.callback",
        "torch.distributed.distributed_c10d",
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torch.nn.parallel.distributed",
        "tensorboard.summary.writer.event_file_writer",
        "tensorboardX.event_file_writer",
    }
)
MARKER = "RANKZERO_PROBE_RANK"
"""Environment variable with the rank's process id: a process that inherits it is a child, not a rank."""

BUFFER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Environment variables with the number of collectives that torch's Flight Recorder keeps; a user's value stays."""
BUFFER_SIZE = "2000"


def switch_on() -> None:
    """Start watching imports. Called once, when the interpreter starts."""
    if "RANK" in os.environ:
        os.environ.setdefault(MARKER, str(os.getpid()))
    if not any(name in os.environ for name in BUFFER_SIZES):
        os.environ[BUFFER_SIZES[0]] = BUFFER_SIZE
    sys.meta_path.insert(0, _Finder())
    for name in WATCHED_MODULES & sys.modules.keys():
        after_import(name, sys.modules[name])


def is_rank_by_environment() -> bool:
    """Whether a launcher made this process a rank; other ranks are recognised by their calls."""
    return os.environ.get(MARKER) == str(os.getpid())


def after_import(name: str, module: ModuleType) -> None:
    """Hook into the imported module; a failure is recorded, never raised."""
    from . import process_state

    try:
        from . import hooks

        hooks.HOOK_INTO[name](module)
    except Exception as error:
        process_state.current.failed(name, error)


def named_as_probe(function: Any) -> Any:
    """Mark the function as the probe's, so that a traceback does not show it as the user's code."""
    function.__code__ = function.__code__.replace(co_filename="<rankzero probe>")
    return function


class _Finder:
    """Finds modules through the other finders and calls `after_import` for the watched ones."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in WATCHED_MODULES or name in self._searching:
            return None
        self._searching.add(name)
        try:
            return _with_callback(self._find_with_others(name, path, target), name)
        finally:
            self._searching.discard(name)

    def _find_with_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


def _with_callback(spec: ModuleSpec | None, name: str) -> ModuleSpec | None:
    """Make the spec's loader call `after_import` once; nothing of the probe stays in the module's `__spec__`."""
    loader: Any = spec.loader if spec else None
    execute = getattr(loader, "exec_module", None)
    if execute is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
        return spec

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        after_import(name, module)

    loader.exec_module = named_as_probe(exec_module)
    return spec
