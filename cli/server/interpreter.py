"""Choose the interpreter of a launch: the one named, or the project's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient
from cli.terminal.printing import warn
from dashboard.planning import interpreters


def named(python: str | None) -> str | None:
    """Return an absolute path for a path or environment folder; a plain name is left for the node's PATH."""
    if python and (os.sep in python or (Path(python) / "bin" / "python").exists()):
        # Not resolved: an environment's `python` is a link, and would lead out of it.
        return os.path.abspath(Path(python).expanduser())  # noqa: PTH100
    return python


def with_project_python(server: ServerClient, spec: dict[str, Any], *, is_launch: bool) -> dict[str, Any]:
    """Return the spec with the project's Python, if none is named and all nodes are on this machine."""
    python = None if "python" in spec else interpreters.project_python(spec["target"], spec.get("entry"))
    if python is None:
        return spec
    nodes = server.get("/api/nodes")
    if not interpreters.all_here(node["hostname"] for node in nodes if node["state"] != "lost"):
        return spec
    if is_launch:
        warn(f"Note: The run uses {python}, found in the project; choose another with --python.")
    return spec | {"python": str(python)}
