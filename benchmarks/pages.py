"""Writes what was measured into docs/BENCHMARKS.md, the README's table and two pictures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import figures, table
from benchmarks.peers import environment

ROOT = Path(__file__).parent.parent
README, PAGE, PICTURES = ROOT / "README.md", ROOT / "docs" / "BENCHMARKS.md", ROOT / "docs" / "pictures"
BEGIN, END = "<!-- benchmarks: python -m benchmarks --write -->\n", "<!-- end of benchmarks -->"


def write() -> None:
    """Write all of it from the results; pictures need matplotlib, which is in the peers' environment.

    Raises CalledProcessError."""
    paths = sorted(figures.RESULTS.glob("*.json"))
    PAGE.write_text(table.document(paths))
    README.write_text(with_table(README.read_text(), paths))
    environment.install()
    draw = environment.HERE / "draw.py"
    subprocess.run([str(environment.PYTHON), str(draw), str(figures.RESULTS), str(PICTURES)], check=True)


def with_table(readme: str, paths: list[Path]) -> str:
    """The README with the table of these results between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{table.short(_hardest(paths))}\n\n{END}{rest.partition(END)[2]}"


def _hardest(paths: list[Path]) -> list[dict[str, Any]]:
    """Of the rows of one name that which is furthest behind its target, in the order of the page."""
    rows = [row for path in paths for row in json.loads(path.read_text())["figures"]]
    hardest: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["what"] not in hardest or _reached(row) < _reached(hardest[row["what"]]):
            hardest[row["what"]] = row
    return [*hardest.values()]


def _reached(row: dict[str, Any]) -> float:
    """How many times better than its target it is."""
    ratio = max(row["ratio"]["median"], 1e-9)
    return float(ratio / row["target"] if row["better"] == "more" else row["target"] / ratio)
