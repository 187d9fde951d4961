"""The tests of what changed since the last commit: those that mirror it, without browsers.

`python tests/changed.py` prints their paths; `make quick` runs them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "dashboard", "worker", "db", "rankzero")
DOCUMENTED = ("dashboard/settings.py", "domain/messages.py", "cli/main.py")
"""What `tests/test_documents.py` compares with the documents."""


def mirrored(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files for these changed files, both relative to the root."""
    return sorted({str(path.relative_to(root)) for name in changed for path in _tests_of(Path(name), root)})


def _tests_of(path: Path, root: Path) -> Iterator[Path]:
    if path.parts[0] == "tests" and path.name.startswith("test_") and (root / path).exists():
        yield root / path
    if path.suffix == ".md" or str(path) in DOCUMENTED:
        yield root / "tests" / "test_documents.py"
    if path.parts[0] in PACKAGES:
        folder = "recipes" if path.parts[:2] == ("worker", "recipes") else path.parent
        tests = (root / "tests" / folder).glob("test_*.py")
        yield from (test for test in tests if not test.stem.endswith("_browser"))


def _changed() -> list[str]:
    """Changed, added and untracked files since the last commit."""
    tracked = ["git", "diff", "--name-only", "--diff-filter=d", "HEAD"]
    untracked = ["git", "ls-files", "--others", "--exclude-standard"]
    outputs = [subprocess.run(c, capture_output=True, text=True, cwd=ROOT, check=True) for c in (tracked, untracked)]
    return [name for output in outputs for name in output.stdout.splitlines()]


if __name__ == "__main__":
    print(*mirrored(_changed()))
