"""The log files of many runs, a few runs at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import select

from db.engine import Store
from db.models import Attempt, File
from db.runs.run_list import RunList, RunSelection
from domain.views import FileView


@dataclass
class RunLogs:
    """A run and the files below the `logs/` of its attempts, oldest attempt first."""

    id: str
    name: str
    created_at: float
    files: list[FileView] = field(default_factory=list)


def run_logs(
    store: Store, selection: RunSelection, now: float, than: tuple[float, str] | None, limit: int
) -> list[RunLogs]:
    """Return the logs of the next selected runs, newest first, after this time of creation and id."""
    with store.read() as session:
        older = RunList(session, selection, now).older(than, limit)
        runs = {run.id: RunLogs(run.id, run.name, run.created_at) for run in older}
        query = (
            select(Attempt.run_id, Attempt.number, File)
            .join(File, File.fence == Attempt.fence)
            .where(Attempt.run_id.in_(runs), File.path.startswith("logs/"))
            .order_by(File.fence, File.node_rank, File.path, File.generation)
        )
        for run_id, number, file in session.execute(query):
            view = FileView(file.id, number, file.node_rank, file.path, file.generation, file.size_bytes)
            runs[run_id].files.append(view)
    return list(runs.values())


def run_count(store: Store, selection: RunSelection, now: float) -> int:
    """Return the number of selected runs."""
    with store.read() as session:
        return RunList(session, selection, now).total()
