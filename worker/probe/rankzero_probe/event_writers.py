"""Writers of event files: they flush twice a second, because the files are being read, and name their scalars."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from typing import Any

from . import named_as_probe, process_state
from .loggers import records

FLUSH_EVERY_S = 0.5
_flushed_by_us: list[weakref.ref[Any]] = []
_thread: threading.Thread | None = None


def flush_often(module: Any) -> None:
    """Hook into the `EventFileWriter` of tensorboardX, or of tensorboard, which torch's SummaryWriter uses."""
    writer = module.EventFileWriter
    initialise = writer.__init__
    names = initialise.__code__.co_varnames[: initialise.__code__.co_argcount]
    position = names.index("flush_secs") - 1
    flushes_when_idle = _flushes_when_idle(module)

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        is_local = False
        try:
            is_local = "://" not in str(args[0] if args else kwargs.get(names[1]))
            if is_local:
                args, kwargs = _with_short_flush(args, kwargs, position)
        except Exception as error:
            process_state.current.failed("writers", error)
        initialise(self, *args, **kwargs)
        if is_local and not flushes_when_idle:
            _flush_regularly(self)

    writer.__init__ = named_as_probe(__init__)


def _with_short_flush(args: Any, kwargs: Any, position: int) -> Any:
    """Return the arguments with a shorter flush interval. Only for local files: elsewhere each flush is an upload."""
    if len(args) > position:
        return (*args[:position], min(args[position], FLUSH_EVERY_S), *args[position + 1 :]), kwargs
    return args, {**kwargs, "flush_secs": min(kwargs.get("flush_secs", FLUSH_EVERY_S), FLUSH_EVERY_S)}


def _flushes_when_idle(module: Any) -> bool:
    """Whether the writer's thread flushes while no event arrives: tensorboardX before 1.8 did not."""
    threads = [thread for thread in vars(module).values() if isinstance(thread, type)]
    codes = [getattr(getattr(thread, name, None), "__code__", None) for thread in threads for name in ("run", "_run")]
    return any("Empty" in code.co_names for code in codes if code is not None)


def _flush_regularly(writer: Any) -> None:
    global _thread
    try:
        _flushed_by_us.append(weakref.ref(writer))
        if _thread is None:
            _thread = threading.Thread(target=_flush_all, name="rankzero-flush", daemon=True)
            _thread.start()
    except Exception as error:
        process_state.current.failed("writers", error)


def _flush_all() -> None:
    """Flush all writers in a thread of its own: a hanging disk must not block the recorder."""
    while True:
        time.sleep(FLUSH_EVERY_S)
        for reference in list(_flushed_by_us):
            try:
                reference()._ev_writer.flush()  # type: ignore[union-attr]
            except Exception:  # it is closed, or its disk is full, which the script notices itself
                _flushed_by_us.remove(reference)


def _forget() -> None:
    """Reset in a forked child, which has neither our thread nor the writer's."""
    global _thread
    _flushed_by_us.clear()
    _thread = None


os.register_at_fork(after_in_child=_forget)


# Writers of event files beside other loggers: the names of the first writer's scalars are theirs.


def observe_writers(module: Any) -> None:
    """Observe the events of all writers of tensorboard or tensorboardX."""
    records.observe(module.EventFileWriter, "__init__", _opened)
    records.observe(module.EventFileWriter, "add_event", _added)


def _opened(result: Any, writer: Any, *args: Any, **kwargs: Any) -> None:
    if not records.names.has_event_files:
        records.names.has_event_files = True
        records.main_folder = str(writer.get_logdir())


def _added(result: Any, writer: Any, event: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
    """Claim the event's scalars; other kinds of values, and scripts without another logger, cost nothing."""
    if not records.is_needed or str(writer.get_logdir()) != records.main_folder:
        return
    scalars = {
        value.tag: _scalar(value)
        for value in event.summary.value
        if value.WhichOneof("value") in ("simple_value", "tensor")
    }
    records.claim(int(event.step if step is None else step), {k: v for k, v in scalars.items() if v is not None})


def _scalar(value: Any) -> float | None:
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    numbers = [*value.tensor.float_val, *value.tensor.double_val]
    return float(numbers[0]) if len(numbers) == 1 else None
