"""Parquet files of neptune-exporter: a row for each value of a run, in one file or in several parts."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, digest_of_files, moment
from domain.messages import Point
from domain.text.formats import plural


def past_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield the run of each group of parts below `root`."""
    parts: dict[Path, list[tuple[int, Path]]] = {}
    for file in [root] if root.is_file() else left_out.walk(root, lambda name: bool(PART.fullmatch(name))):
        if match := PART.fullmatch(file.name):
            parts.setdefault(file.parent / match[1], []).append((int(match[2]), file))
    for source, files in sorted(parts.items()):
        own = [file for _, file in sorted(files) if _is_readable(file, left_out)]
        if own:
            yield from left_out.attempt(source, partial(_past_run, source, own, left_out))


PART = re.compile(r"(.*)_part_(\d+)\.parquet")
PARAMETERS = {
    "float": "float_value", "int": "int_value", "string": "string_value", "bool": "bool_value",
    "datetime": "datetime_value", "string_set": "string_set_value",
}  # fmt: skip
"""Type of an attribute -> the column of its value."""
POINT = ["attribute_path", "step", "timestamp", "float_value"]
"""The columns of a value of a series."""
OWN = ("sys/", "monitoring/")
"""Begin the names of attributes that Neptune sets itself."""
MESSAGE = "Imported from Neptune, which does not record how the run ended."


def _is_readable(file: Path, left_out: LeftOut) -> bool:
    """Whether all of a part can be read: it counts as a whole, or it is left out."""
    return any(True for _ in left_out.attempt(file, lambda: [*_values(file), *_rows(file, POINT, ["float_series"])]))


def _values(file: Path) -> list[dict[str, Any]]:
    """Return the rows that are not series."""
    columns = ["project_id", "run_id", "attribute_path", "attribute_type", *PARAMETERS.values()]
    return _rows(file, columns, list(PARAMETERS))


def _past_run(source: Path, files: Sequence[Path], left_out: LeftOut) -> PastRun:
    rows = [row for file in files for row in _values(file)]
    values = {row["attribute_path"]: row[PARAMETERS[row["attribute_type"]]] for row in rows}
    config = {name: value for name, value in values.items() if not name.startswith(OWN)}
    failed = values.get("sys/failed")
    has_failed = failed if isinstance(failed, bool) else None
    created = values.get("sys/creation_time")
    settings = {"config": config, "tags": values.get("sys/tags"), "project": rows and rows[0]["project_id"]}
    return PastRun(
        name=str(values.get("sys/name") or (rows and rows[0]["run_id"]) or source.name),
        source=source,
        content=digest_of_files(files),
        started_at=moment(created) or files[0].stat().st_mtime,
        points=partial(_points, files, left_out),
        state="stopped" if has_failed is None else "failed" if has_failed else "succeeded",
        message={None: MESSAGE, True: "Neptune recorded that it failed.", False: None}[has_failed],
        settings={name: value for name, value in settings.items() if value},
    )


def _points(files: Sequence[Path], left_out: LeftOut) -> Iterator[PointsBySeries]:
    """Yield the points of each file; where the steps of a series are not whole, its points are numbered."""
    fractional = {
        row["attribute_path"]
        for file in files
        for row in _rows(file, ["attribute_path", "step"], ["float_series"])
        if not _is_whole(row["step"])
    }
    numbered = Counter[str]()
    for file in files:
        series, nameless = defaultdict[str, list[Point]](list), 0
        for row in _rows(file, POINT, ["float_series"]):
            name, value = row["attribute_path"], row["float_value"]
            if name is None or value is None:
                nameless += 1
                continue
            step = numbered[name] if name in fractional else int(row["step"])
            series[name].append((step, value, moment(row["timestamp"]) or file.stat().st_mtime))
            numbered[name] += 1
        if nameless:
            left_out.add(file, f"{plural(nameless, 'row')} of it have no name, or no value.")
        yield series


def _is_whole(step: Any) -> bool:
    return step is not None and math.isfinite(step) and step == int(step)


def _rows(file: Path, columns: list[str], types: list[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(
        file, columns=columns, filters=[("attribute_type", "in", types)], partitioning=None
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
