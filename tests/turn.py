"""Run the turn of `make test-real` that fits a change; what fails is run once more, alone.

A test that passes then is printed as *unsteady* and fails nothing, as long as there are at most three of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lanes import PROCESSES, ROOT, turn

MOST_UNSTEADY = 3
FAILED = 1
"""pytest's exit code where tests failed; the others say that it could not run them."""


def run(options: Sequence[str], files: Sequence[str], root: Path = ROOT) -> int:
    """Run these test files; return 0 where every test passed, at once or alone."""
    code = _pytest(root, [*options, "--cache-clear", f"--numprocesses={PROCESSES}", *files])
    if code != FAILED:
        return code
    failed = sorted(json.loads((root / ".pytest_cache/v/cache/lastfailed").read_text()))
    if len(failed) > MOST_UNSTEADY:
        print(f"{len(failed)} tests failed, more than the {MOST_UNSTEADY} that are tried again.")
        return FAILED
    code = _pytest(root, [*options, "--numprocesses=0", "--last-failed", "--last-failed-no-failures=none", *failed])
    if code == 0:
        print(*(f"unsteady: {test} failed above, and passed alone" for test in failed), sep="\n")
    return code


def _pytest(root: Path, arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "--lane=real", *arguments], cwd=root).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], turn()))
