"""TensorBoard opened on a run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.dashboard.running import FakeNode, Running
from tests.end_to_end.product import wait_for
from worker.session.client import TaskRef


# -- the real one -----------------------------------------------------------------------------------
def bring(node: FakeNode, part: TaskRef, folder: Path) -> None:
    """Mirror a folder's files as the worker does."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        node.append(part, f"work/{path.relative_to(folder).as_posix()}", 0, 0, path.read_bytes())


def opened(dashboard: Running, run: str) -> str:
    """The page, once it is TensorBoard's; its parts' address."""

    def page() -> re.Match[str] | None:
        answer = dashboard.http.get(f"/tensorboard/{run}/")
        assert answer.status_code == 200
        return re.search(r'<base href="([^"]+)">', answer.text)

    return str(wait_for(page, "TensorBoard")[1])
