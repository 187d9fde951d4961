"""The lanes of the tests, and the files of `make test-real` for which there is time after a change.

These are the files that the last day's commits touch, then others in an order drawn from the newest commit, so that in
time every file has its turn.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.changed import PACKAGES

LANES = ("test", "real", "long")
"""The tests without either mark (`make test`), those marked `real` (`make test-real`) and `long` (`make test-long`)."""
ROOT = Path(__file__).parents[1]
DURATIONS = Path(__file__).with_name("durations.json")
"""Test-seconds of each file of `make test-real`, as its last complete run measured them."""
REAL = re.compile(r"\bmark\.(real|both_stores)\b")
"""The marks of its tests; those with the second are of this lane on PostgreSQL."""
UNMEASURED_S = 30.0
PROCESSES = 2
BUDGET_S = 20 * 60.0
"""Wall-clock time of a turn."""


def lane_of(marks: Collection[str]) -> str:
    """The lane of a test with these marks; the longest lane decides."""
    return "long" if "long" in marks else "real" if "real" in marks else "test"


def within_budget(
    durations: Mapping[str, float], touched: Collection[str], seed: str, budget_s: float = BUDGET_S * PROCESSES
) -> list[str]:
    """Return the files to run, the touched ones first, each group in an order drawn from the seed.

    `durations`: test-seconds of each file. A file that no longer fits into the budget is left out."""
    drawn = sorted(durations)
    random.Random(seed).shuffle(drawn)
    drawn.sort(key=lambda file: file not in touched)
    chosen, left_s = [], budget_s
    for file in drawn:
        if durations[file] <= left_s:
            chosen.append(file)
            left_s -= durations[file]
    return chosen


def touched(changed: Iterable[str], files: Collection[str]) -> set[str]:
    """Return those of the test files that changed, or whose folder mirrors a changed file's."""
    return {test for name in changed for test in files if test == name or _mirrors(test, Path(name))}


def _mirrors(test: str, changed: Path) -> bool:
    return changed.parts[0] in PACKAGES and Path(test).parent == Path("tests") / changed.parent


def real_files(root: Path = ROOT) -> list[str]:
    """Return the files with tests of `make test-real`."""
    paths = [path for path in sorted((root / "tests").rglob("test_*.py")) if REAL.search(path.read_text())]
    return [str(path.relative_to(root)) for path in paths]


def measured(files: Iterable[str]) -> dict[str, float]:
    """Return the test-seconds of each file; UNMEASURED_S where it never ran."""
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return {file: seconds.get(file, UNMEASURED_S) for file in files}


def record(reports: Iterable[object]) -> None:
    """Write down the test-seconds of each file, set-up and teardown included."""
    seconds: dict[str, float] = {}
    for report in reports:
        if isinstance(report, pytest.TestReport):
            file = report.nodeid.partition("::")[0]
            seconds[file] = seconds.get(file, 0.0) + report.duration
    rounded = {file: round(seconds[file], 1) for file in sorted(seconds)}
    DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")


def _changed_within_a_day() -> Iterator[str]:
    newest = int(_git("log", "-1", "--format=%ct"))
    yield from _git("log", f"--since={newest - 24 * 3600}", "--name-only", "--format=").split()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def turn() -> list[str]:
    """Return the files of `make test-real` that a turn runs after the newest commit."""
    durations = measured(real_files())
    chosen = within_budget(durations, touched(_changed_within_a_day(), durations), _git("rev-parse", "HEAD"))
    print(f"make test-real: {len(chosen)} of {len(durations)} files", flush=True)
    return chosen
