"""Switch the probe on in every Python of a run, then load the site's own sitecustomize."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def _switch_on() -> None:
    try:
        import rankzero_probe  # type: ignore[import-not-found, unused-ignore]

        rankzero_probe.switch_on()
    except Exception:  # nosec B110: a training must not fail because it is watched
        pass


def _leave_path() -> None:
    """Restore sys.path to what it would be without the probe."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100


def _load_site_own() -> None:
    """Load the sitecustomize that Python would have loaded without the probe. Raises what that module raises."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


if os.environ.get("RANKZERO_PROBE_DIR"):
    _switch_on()
_leave_path()
_load_site_own()
