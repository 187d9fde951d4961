"""Event files that are read while they are written: their writers flush twice a second, not every two minutes."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from typing import Any

from . import named_as_probe, seen

FLUSH_EVERY_S = 0.5

_flushed_by_us: list[weakref.ref[Any]] = []
_thread: threading.Thread | None = None


def hook_into_writers(module: Any) -> None:
    """`EventFileWriter` of tensorboardX, or of tensorboard, which torch's SummaryWriter writes with."""
    writer = module.EventFileWriter
    initialise = writer.__init__
    names = initialise.__code__.co_varnames[: initialise.__code__.co_argcount]
    place = names.index("flush_secs") - 1
    flushes_by_itself = _wakes_by_itself(module)

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        is_local = False
        try:
            is_local = "://" not in str(args[0] if args else kwargs.get(names[1]))
            if is_local:
                args, kwargs = _sooner(args, kwargs, place)
        except Exception as error:
            seen.current.failed("writers", error)
        initialise(self, *args, **kwargs)
        if is_local and not flushes_by_itself:
            _flush_regularly(self)

    writer.__init__ = named_as_probe(__init__)


def _sooner(args: Any, kwargs: Any, place: int) -> Any:
    """The arguments with a shorter time between flushes; elsewhere than on a disk each of them is an upload."""
    if len(args) > place:
        return (*args[:place], min(args[place], FLUSH_EVERY_S), *args[place + 1 :]), kwargs
    return args, {**kwargs, "flush_secs": min(kwargs.get("flush_secs", FLUSH_EVERY_S), FLUSH_EVERY_S)}


def _wakes_by_itself(module: Any) -> bool:
    """Whether the writer's thread looks at the clock while no event comes: tensorboardX before 1.8 did not."""
    threads = [each for each in vars(module).values() if isinstance(each, type)]
    codes = [
        getattr(getattr(each, name, None), "__code__", None) for each in threads for name in ("run", "_run")
    ]
    return any("Empty" in code.co_names for code in codes if code is not None)


def _flush_regularly(writer: Any) -> None:
    global _thread
    try:
        _flushed_by_us.append(weakref.ref(writer))
        if _thread is None:
            _thread = threading.Thread(target=_flush_all, name="rankzero-flush", daemon=True)
            _thread.start()
    except Exception as error:
        seen.current.failed("writers", error)


def _flush_all() -> None:
    """In a thread of its own: a disk that hangs must not keep the recorder from telling so."""
    while True:
        time.sleep(FLUSH_EVERY_S)
        for reference in list(_flushed_by_us):
            try:
                reference()._ev_writer.flush()  # type: ignore[union-attr]
            except Exception:  # it is gone, or its disk is full, which the script will be told by itself
                _flushed_by_us.remove(reference)


def _forget() -> None:
    """A forked child has none of the threads, neither ours nor the writer's."""
    global _thread
    _flushed_by_us.clear()
    _thread = None


os.register_at_fork(after_in_child=_forget)
