"""Runs launched by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.end_to_end.product import WAIT_S, Product


def rankzero(product: Product, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, as a person on this machine has it."""
    command = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data", str(product.data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=product.env, cwd=cwd)


def launched(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The run that was launched."""
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))
