"""The curves of an imported run."""

from __future__ import annotations

from cli.importers.past_run import PastRun


def curves(run: PastRun) -> dict[str, list[tuple[int, float, float]]]:
    read: dict[str, list[tuple[int, float, float]]] = {}
    for batch in run.points():
        for name, points in batch.items():
            read.setdefault(name, []).extend(points)
    return read
