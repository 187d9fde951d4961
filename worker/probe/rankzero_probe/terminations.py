"""Note when the script is told to end by SIGTERM and handles it: a clean exit after that is no success."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import Any

from . import named_as_probe, process_state

EVENT = "terminated"


def hook_into_signals() -> None:
    """Note SIGTERM ahead of the script's own handler, be it installed before or after this."""
    if getattr(signal.signal, "_rankzero", False):
        return
    install, get = signal.signal, signal.getsignal

    @functools.wraps(install)
    def signal_(number: Any, handler: Any) -> Any:
        previous = install(number, _noting(handler) if _is_ours_to_note(number, handler) else handler)
        return getattr(previous, "_rankzero_handler", previous)

    @functools.wraps(get)
    def getsignal(number: Any) -> Any:
        handler = get(number)
        return getattr(handler, "_rankzero_handler", handler)

    signal_._rankzero = True  # type: ignore[attr-defined]
    signal.signal, signal.getsignal = named_as_probe(signal_), named_as_probe(getsignal)
    handler = get(signal.SIGTERM)
    if callable(handler) and not isinstance(handler, signal.Handlers):
        install(signal.SIGTERM, _noting(handler))


def _is_ours_to_note(number: Any, handler: Any) -> bool:
    return number == signal.SIGTERM and callable(handler) and not isinstance(handler, signal.Handlers)


def _noting(handler: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(handler, "_rankzero_handler"):
        return handler

    def noting(number: int, frame: Any) -> Any:
        process_state.current.note(EVENT, step=process_state.current.step)
        return handler(number, frame)

    noting._rankzero_handler = handler  # type: ignore[attr-defined]
    return named_as_probe(noting)  # type: ignore[no-any-return]
