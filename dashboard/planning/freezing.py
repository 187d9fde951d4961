"""Write the packages of a Python on this machine as a requirements file with every version: a lock to train with."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.environments.locks import Lock, contents

LIMIT_S = 60.0
FILE_NAME = "requirements.txt"
_TORCH_INDEX = "https://download.pytorch.org/whl"
"""Where builds of torch lie whose version names their CUDA: torch==2.9.1+cu128."""


class CannotFreeze(Exception):
    """The packages cannot be listed or written; the message is a sentence."""


@dataclass(frozen=True)
class Frozen:
    """What was written."""

    path: str
    packages: int
    python: str
    left_out: list[str]
    """Packages that only this machine has: editable ones and local files."""


def freeze(python: Path, target: Path, *, replace: bool = False) -> Frozen:
    """Write the packages of this Python to a new file. Raises CannotFreeze."""
    if target.exists() and not replace:
        raise CannotFreeze(f"{target} exists already: choose another with --output, or replace it with --yes.")
    lines = _listed(python)
    lock_lines = [
        line for line in lines if re.match(r"[A-Za-z0-9][\w.-]*==\S+$", line) or " @ git+" in line or " @ http" in line
    ]
    if not lock_lines:
        raise CannotFreeze(f"{python} has no packages.")
    text = "\n".join([f"# The packages of {python}, by rankzero freeze.", *_indexes(lock_lines), *lock_lines, ""])
    names = contents(Lock(target.name, FILE_NAME), {target.name: text}.get)
    if names.torch is None:
        raise CannotFreeze(f"{python} has no torch: choose your training Python with --python.")
    try:
        target.write_text(text)
    except OSError as error:
        raise CannotFreeze(f"{target} cannot be written: {error.strerror or error}.") from error
    return Frozen(str(target), len(lock_lines), str(python), [line for line in lines if line not in lock_lines])


def _listed(python: Path) -> list[str]:
    """Return a line for each package, as `pip freeze` has it. Raises CannotFreeze."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    argv = [uv, "pip", "freeze", "--python", str(python)] if uv else [str(python), "-m", "pip", "freeze", "--all"]
    try:
        listing = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotFreeze(f"The packages of {python} cannot be listed: {error}.") from error
    if listing.returncode:
        last = (listing.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CannotFreeze(f"The packages of {python} cannot be listed: {last}.")
    return [line for line in listing.stdout.splitlines() if line.strip() and not line.startswith("#")]


def _indexes(lines: Sequence[str]) -> list[str]:
    """Return the options for the index of torch's builds that the versions name."""
    builds = {match[1] for line in lines if (match := re.match(r"torch\w*==[^+]+\+(cpu|cu\d+|rocm[\d.]+|xpu)$", line))}
    return [f"--extra-index-url {_TORCH_INDEX}/{build}" for build in sorted(builds)]
