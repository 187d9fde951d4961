"""Import `rankzero` in a script or notebook: `connect()` to a dashboard, `watch()` this process, `log()` a figure.

Nothing else is imported before it is used: the import costs a script nothing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs 5 ms
    from rankzero.client import Client as Client
    from rankzero.client import connect as connect
    from rankzero.errors import Away as Away
    from rankzero.errors import NeverReached as NeverReached
    from rankzero.errors import NotFound as NotFound
    from rankzero.errors import RankzeroError as RankzeroError
    from rankzero.errors import Refused as Refused
    from rankzero.errors import TimedOut as TimedOut
    from rankzero.figures import log as log
    from rankzero.metrics import Metrics as Metrics
    from rankzero.runs import Run as Run
    from rankzero.sweeps import Sweep as Sweep
    from rankzero.watching import Watch as Watch
    from rankzero.watching import watch as watch

_MODULES = {
    "Away": "errors",
    "Client": "client",
    "Metrics": "metrics",
    "NeverReached": "errors",
    "NotFound": "errors",
    "RankzeroError": "errors",
    "Refused": "errors",
    "Run": "runs",
    "Sweep": "sweeps",
    "TimedOut": "errors",
    "Watch": "watching",
    "connect": "client",
    "log": "figures",
    "watch": "watching",
}
"""Each public name and its module."""


def __getattr__(name: str) -> object:
    """Import the module of a public name when it is first used. Raises AttributeError."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
