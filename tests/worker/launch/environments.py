"""Virtual environments with a torch of chosen version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def site_packages(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


def install_torch(place: Path, version: str, cuda: str | None = None, **more: str | None) -> Path:
    """As much of torch as a question needs: no import of it would succeed."""
    torch = place / "torch"
    torch.mkdir(parents=True, exist_ok=True)
    (torch / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    lines = [f"__version__ = {version!r}", "debug = False", f"cuda: Optional[str] = {cuda!r}"]
    lines += [f"{name}: Optional[str] = {value!r}" for name, value in more.items()]
    (torch / "version.py").write_text("\n".join(["from typing import Optional", *lines]))
    return torch
