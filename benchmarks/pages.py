"""Writes what was measured into benchmarks/RESULTS.md, the README's table and two pictures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import figures, table
from benchmarks.peers import environment

ROOT = Path(__file__).parent.parent
README, PAGE, PICTURES = ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md", ROOT / "docs" / "pictures"
BEGIN, END = "<!-- benchmarks: python -m benchmarks --write -->\n", "<!-- end of benchmarks -->"
FELT = (
    "launch to the first step, warm",
    "add_scalar to the drawn point, p95",
    "step rate with everything on, short steps, every core busy",
    "kill of a rank to the next step, warm",
    "chart of 1,000,000 points, whole",
    "list, by urgency, 10,000 runs",
)
"""The rows of the README: what a person feels, better or worse."""


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
    """The README with the rows that people feel between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{table.short(felt(paths))}\n\n{END}{rest.partition(END)[2]}"


def felt(paths: list[Path]) -> list[dict[str, Any]]:
    """Of each row that people feel, the one against the hardest peer."""
    rows = [row for path in paths for row in json.loads(path.read_text())["figures"]]
    of_names = ([row for row in rows if row["what"] == name] for name in FELT)
    return [min(of_name, key=_reached) for of_name in of_names if of_name]


def _reached(row: dict[str, Any]) -> float:
    """How many times better than its target it is."""
    ratio = max(row["ratio"]["median"], 1e-9)
    return float(ratio / row["target"] if row["better"] == "more" else row["target"] / ratio)
