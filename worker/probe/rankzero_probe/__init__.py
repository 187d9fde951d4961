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
        "multiprocess.spawn",
        "multiprocessing.spawn",
        "torch",
        "torch._dynamo.callback",
        "torch.autograd.profiler",
        "torch.distributed.distributed_c10d",
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torch.nn.parallel.distributed",
        "torch.serialization",
        "torch.distributed.checkpoint.state_dict_saver",
        "safetensors.torch",
        "tensorboard.summary.writer.event_file_writer",
        "tensorboardX.event_file_writer",
        "aim.sdk.run",
        "aim.sdk.tracker",
        "clearml.logger",
        "clearml.task",
        "comet_ml.experiment",
        "lightning.fabric.loggers.csv_logs",
        "lightning.pytorch.loggers.csv_logs",
        "lightning_fabric.loggers.csv_logs",
        "mlflow.tracking._tracking_service.client",
        "pytorch_lightning.loggers.csv_logs",
        "swanlab.sdk.cmd.init",
        "swanlab.sdk.internal.run",
        "trackio.run",
        "wandb.sdk.lib.noop_run",
        "wandb.sdk.wandb_init",
        "wandb.sdk.wandb_login",
        "wandb.sdk.wandb_run",
    }
)
STARTERS_OF_PROCESSES = ("multiprocess.spawn", "multiprocessing.spawn")
"""Also imported by small helpers: what hooks into them loads nothing else of the probe."""
MARKER = "RANKZERO_PROBE_RANK"
"""Environment variable with the rank's process id: a process that inherits it is a child, not a rank."""

BUFFER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Environment variables with the number of collectives that torch's Flight Recorder keeps; a user's value stays."""
BUFFER_SIZE = "2000"


_hooked: set[str] = set()
"""The modules that were hooked into: a process that watches itself twice has the hooks once."""


def switch_on() -> None:
    """Start watching imports: when the interpreter starts, or a process begins to watch itself."""
    if "RANK" in os.environ:
        os.environ.setdefault(MARKER, str(os.getpid()))
    if not os.environ.get("PYTHONUNBUFFERED"):
        _write_by_line()
    if (logs := os.environ.get("RANKZERO_RANK_LOGS")) and os.environ.get(MARKER) == str(os.getpid()):
        from . import rank_output

        rank_output.copy_streams(logs, os.environ["RANK"])
    if not any(name in os.environ for name in BUFFER_SIZES):
        os.environ[BUFFER_SIZES[0]] = BUFFER_SIZE
    sys.meta_path.insert(0, _Finder())
    _hook_into_imported()


def _write_by_line() -> None:
    """Let each line be written once it is whole: at once, and not amid those of others that print to the same place."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)


def switch_off() -> None:
    """Stop watching imports; the hooks that are in place stay there."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


def _hook_into_imported() -> None:
    """Hook into what is imported already, where a rank was forked, and into the names by which others imported it."""
    names = [name for name in sys.modules if name in WATCHED_MODULES - _hooked]
    before = {name: dict(vars(sys.modules[name])) for name in names}
    for name in reversed(names):  # a package is complete after its parts
        after_import(name, sys.modules[name])
    replaced = {
        id(old): (old, vars(sys.modules[name])[key])
        for name, attributes in before.items()
        for key, old in attributes.items()
        if vars(sys.modules[name]).get(key) is not old and key in vars(sys.modules[name])
    }
    for module in list(sys.modules.values()) if replaced else ():
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in replaced and replaced[id(value)][0] is value:
                module.__dict__[key] = replaced[id(value)][1]


def is_rank_by_environment() -> bool:
    """Whether a launcher made this process a rank; other ranks are recognised by their calls."""
    return os.environ.get(MARKER) == str(os.getpid())


def after_import(name: str, module: ModuleType) -> None:
    """Hook into the imported module; a failure is recorded, never raised."""
    from . import process_state

    _hooked.add(name)
    try:
        if name in STARTERS_OF_PROCESSES:
            from . import reruns

            return reruns.hook_into_spawn(module)
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
