"""Sees what a rank does without a change to its script: waits for parts of torch and writers to be imported.

Until then it costs a dictionary look-up per import, so that launchers and helpers pay nothing.
Nothing here may raise into the script: a part of the probe that fails says so once and stays off.
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
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torch.nn.parallel.distributed",
        "tensorboard.summary.writer.event_file_writer",
        "tensorboardX.event_file_writer",
    }
)
MARKER = "RANKZERO_PROBE_RANK"
"""Holds the process id of the rank: what inherits it is a child of that rank, not a rank by its variables."""


def switch_on() -> None:
    """Called once, when the interpreter starts."""
    if "RANK" in os.environ:
        os.environ.setdefault(MARKER, str(os.getpid()))
    sys.meta_path.insert(0, _Finder())
    for name in WATCHED_MODULES & sys.modules.keys():
        after_import(name, sys.modules[name])


def is_rank_by_environment() -> bool:
    """Whether a launcher has made this very process a rank; others are known by what they do."""
    return os.environ.get(MARKER) == str(os.getpid())


def after_import(name: str, module: ModuleType) -> None:
    """`module` is complete: hook into it, whatever happens."""
    from . import seen

    try:
        from . import hooks

        hooks.HOOK_INTO[name](module)
    except Exception as error:
        seen.current.failed(name, error)


def named_as_probe(function: Any) -> Any:
    """Tracebacks show the function as what it is, and nobody takes it for the user's code."""
    function.__code__ = function.__code__.replace(co_filename="<rankzero probe>")
    return function


class _Finder:
    """Lets the others find a module and, for those watched, hears when it has been executed."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in WATCHED_MODULES or name in self._asking:
            return None
        self._asking.add(name)
        try:
            return _following(self._found_by_others(name, path, target), name)
        finally:
            self._asking.discard(name)

    def _found_by_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


def _following(spec: ModuleSpec | None, name: str) -> ModuleSpec | None:
    """The same loader, which tells us once: nothing of ours stays in the module's `__spec__`."""
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
