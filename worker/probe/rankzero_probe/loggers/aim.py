"""Aim: numbers that a run tracks, with their context in the name, its parameters and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import records, values

NAME = "aim"
OWN = "__"
"""Begins the names of what Aim tracks and stores itself: the machine's load, packages."""
SUBSET = "subset"
"""The key that Aim's own callbacks tell training and validation apart by."""

_params: dict[str, Any] = {}
_tags: list[str] = []


def hook_into_trackers(module: Any) -> None:
    """Observe where a value has got its name, context and step, whether Aim tracks in a thread or not."""
    records.observe(module.RunTracker, "_update_sequence_info", _tracked)


def hook_into_runs(module: Any) -> None:
    """Observe parameters and tags."""
    records.observe(module.BasicRun, "__setitem__", _configured)
    records.observe(module.BasicRun, "set", _configured)
    records.observe(module.StructuredRunMixin, "add_tag", _tagged)


def _tracked(result: Any, tracker: Any, ctx_id: int, name: str, val: Any, step: Any) -> None:
    if not name.startswith(OWN) and (number := values.number(val)) is not None:
        context = tracker.idx_to_ctx(ctx_id).to_dict()
        records.write_points(NAME, int(step), {_prefix(context) + name: number})


def _prefix(context: Mapping[str, Any]) -> str:
    """Return the names of folders for a context: `val/` for a subset, `key=value/` for all else."""
    subset = f"{context[SUBSET]}/" if SUBSET in context else ""
    return subset + "".join(sorted(f"{key}={value}/" for key, value in context.items() if key != SUBSET))


def _configured(result: Any, run: Any, key: Any, val: Any, *_: Any, **__: Any) -> None:
    if key is ...:
        _params.clear()
        _params.update(values.plain(val))
    else:
        path = [key] if isinstance(key, str) else key
        _params[".".join(map(str, path))] = values.plain(val)
    own = {name: value for name, value in _params.items() if not name.startswith(OWN)}
    records.write_settings(NAME, config=own)


def _tagged(result: Any, run: Any, value: str) -> None:
    _tags.append(str(value))
    records.write_settings(NAME, tags=_tags)


HOOK_INTO = {"aim.sdk.tracker": hook_into_trackers, "aim.sdk.run": hook_into_runs}
