"""Parquet files of neptune-exporter: a row for each value of a run, in one file or in several parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cli.importers.past_run import PastRun, PointsBySeries, digest_of_files
from worker.node.run_files import walk_files

PART = re.compile(r"(.*)_part_(\d+)\.parquet")
PARAMETERS = {
    "float": "float_value", "int": "int_value", "string": "string_value", "bool": "bool_value",
    "datetime": "datetime_value", "string_set": "string_set_value",
}  # fmt: skip
"""Type of an attribute -> the column of its value."""
OWN = ("sys/", "monitoring/")
"""Begin the names of attributes that Neptune sets itself."""
MESSAGE = "Imported from Neptune, which does not record how the run ended."


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield the run of each group of parts below `root`."""
    entries = [] if root.is_file() else walk_files(root, lambda name: bool(PART.fullmatch(name)))
    parts: dict[Path, list[tuple[int, Path]]] = {}
    for file in [root] if root.is_file() else [Path(entry.path) for entry in entries]:
        if match := PART.fullmatch(file.name):
            parts.setdefault(file.parent / match[1], []).append((int(match[2]), file))
    for source, files in sorted(parts.items()):
        yield _past_run(source, [file for _, file in sorted(files)])


def _past_run(source: Path, files: Sequence[Path]) -> PastRun:
    columns = ["project_id", "run_id", "attribute_path", "attribute_type", *PARAMETERS.values()]
    rows = [row for file in files for row in _rows(file, columns, list(PARAMETERS))]
    values = {row["attribute_path"]: row[PARAMETERS[row["attribute_type"]]] for row in rows}
    config = {name: value for name, value in values.items() if not name.startswith(OWN)}
    has_failed = values.get("sys/failed")
    created = values.get("sys/creation_time")
    settings = {"config": config, "tags": values.get("sys/tags"), "project": rows and rows[0]["project_id"]}
    return PastRun(
        name=values.get("sys/name") or (rows[0]["run_id"] if rows else source.name),
        source=source,
        content=digest_of_files(files),
        started_at=created.timestamp() if created else files[0].stat().st_mtime,
        points=partial(_points, files),
        state="stopped" if has_failed is None else "failed" if has_failed else "succeeded",
        message={None: MESSAGE, True: "Neptune recorded that it failed.", False: None}[has_failed],
        settings={name: value for name, value in settings.items() if value},
    )


def _points(files: Sequence[Path]) -> Iterator[PointsBySeries]:
    """Yield the points of each file; where the steps of a series are not whole, its points are numbered."""
    for file in files:
        series: dict[str, list[tuple[Any, float, float]]] = {}
        for row in _rows(file, ["attribute_path", "step", "timestamp", "float_value"], ["float_series"]):
            wall = row["timestamp"].timestamp() if row["timestamp"] else file.stat().st_mtime
            series.setdefault(row["attribute_path"], []).append((row["step"], row["float_value"], wall))
        for name, points in series.items():
            is_whole = all(step is not None and step == int(step) for step, _, _ in points)
            steps = [int(step) for step, _, _ in points] if is_whole else range(len(points))
            yield {name: [(step, value, wall) for step, (_, value, wall) in zip(steps, points, strict=True)]}


def _rows(file: Path, columns: list[str], types: list[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(
        file, columns=columns, filters=[("attribute_type", "in", types)], partitioning=None
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
