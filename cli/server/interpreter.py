"""The interpreter of a launch from the command line: as it was named, or the project's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient
from cli.terminal.printing import warn
from dashboard.planning import interpreters


def named(python: str | None) -> str | None:
    """A path as seen from here, also of a virtual environment's folder; a plain name is for the node's PATH."""
    if python and (os.sep in python or (Path(python) / "bin" / "python").exists()):
        # Not resolved: an environment's `python` is a link, and would lead out of it.
        return os.path.abspath(Path(python).expanduser())  # noqa: PTH100
    return python


def with_project_python(server: ServerClient, spec: dict[str, Any], *, is_launch: bool) -> dict[str, Any]:
    """The specification with the project's Python where none is named and all nodes are on this machine."""
    found = None if "python" in spec else interpreters.project_python(spec["target"], spec.get("entry"))
    if found is None:
        return spec
    nodes = server.get("/api/nodes")
    if not interpreters.all_here(node["hostname"] for node in nodes if node["state"] != "lost"):
        return spec
    if is_launch:
        warn(f"Note: It trains with {found}, found in the project; name another with --python.")
    return spec | {"python": str(found)}
