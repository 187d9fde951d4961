"""Every Python that a run starts loads this first: switches the probe on, then makes way for the site's own."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def _switch_on() -> None:
    try:
        import rankzero_probe  # type: ignore[import-not-found, unused-ignore]

        rankzero_probe.switch_on()
    except Exception:  # a training must not fail because somebody wanted to watch it
        pass


def _leave_path() -> None:
    """The script finds sys.path as it would be without us."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100


def _make_way() -> None:
    """Load the sitecustomize that would have been loaded without us; its errors stay its own."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


if os.environ.get("RANKZERO_PROBE_DIR"):
    _switch_on()
_leave_path()
_make_way()
