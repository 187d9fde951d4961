"""The start of the command line, against a Python that imports nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, in_turns, ratios
from tests.dashboard.browsed import browsed, opened

MOST = 6
"""Times a bare Python: 0.3 s where that takes 0.05 s."""


def measure(quick: bool) -> Iterator[Figure]:
    """Processor seconds of whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        with browsed(service) as dashboard:
            environment = os.environ | {
                "RANKZERO_URL": dashboard.url,
                "RANKZERO_TOKEN": service.credentials.user,
            }
            commands = {
                "python": [sys.executable, "-c", "pass"],
                "rankzero --help": [sys.executable, "-P", "-m", "cli.main", "--help"],
                "rankzero runs": [sys.executable, "-P", "-m", "cli.main", "runs"],
            }
            acts = {name: lambda command=command: spent(command, environment) for name, command in commands.items()}
            seconds = in_turns(acts, 2 if quick else 9)
    bare = seconds.pop("python")
    for name, values in seconds.items():
        ratio, median_s = ratios(values, bare), sorted(values)[len(values) // 2]
        bare_s = sorted(bare)[len(bare) // 2]
        yield Figure(
            name, f"{median_s:.2f} s", "python -c pass", f"{bare_s:.3f} s", ratio, MOST, "less"
        )  # fmt: skip


def spent(command: list[str], environment: dict[str, str]) -> float:
    """Processor seconds of one process and its children; the process must succeed."""
    before = os.times()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
