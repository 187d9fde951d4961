"""What this machine brings to nodes: uv for each kind of processor, and, where a node reaches no index, wheels."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from cli.fleet.own_wheel import EXTRA, write_package
from cli.fleet.ssh import HostTrouble, telling_line
from cli.terminal import CommandFailed
from worker.environments.uv import ProgramMissing, program

DOWNLOAD_LIMIT_S = 600.0
KINDS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Processors by what `uname -m` calls them."""
GLIBCS = (17, 24, 27, 28, 31, 34, 35, 39)
"""Minor versions of glibc 2 for which wheels are built."""


@dataclass(frozen=True)
class Target:
    """What wheels must fit: a processor, glibc 2.x, and a Python such as 3.12."""

    machine: str
    glibc: int
    python: str = "3.12"


class NodeFiles:
    """Files for nodes, each made once; what is large is in a folder that later commands use again."""

    def __init__(self, cache: Path, work: Path) -> None:
        self._cache = cache
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = asyncio.Lock()
        self.uv, self.uv_version = _own_uv()
        self.package = work / "package"
        self.package.mkdir()
        wheel, self.version = write_package(self.package)
        self.requirement = f"{wheel.name}[{EXTRA}]"
        self.archive = _packed(self.package, work / "package.tar.gz")

    async def uv_for(self, machine: str) -> Path:
        """Return the gzipped program of uv for a processor. Raises HostTrouble."""
        kind = KINDS.get(machine)
        if kind is None:
            raise HostTrouble(
                f"its processor is {machine}; there are workers for {' and '.join(sorted(set(KINDS.values())))}."
            )
        own = sys.platform == "linux" and KINDS.get(os.uname().machine) == kind
        packed = self._cache / f"uv-{self.uv_version}-{kind}.gz"
        async with self._lock:
            if not packed.exists():
                program = self.uv if own else await self._foreign_uv(kind)
                await asyncio.to_thread(_gzip, program, packed)
        return packed

    async def wheels_for(self, target: Target) -> Path:
        """Return an archive with the wheels of everything that a node needs, downloaded here. Raises HostTrouble."""
        folder = self._cache / f"wheels-{self.version}-{target.machine}-2.{target.glibc}-{target.python}"
        archive = folder.with_suffix(f"{folder.suffix}.tar.gz")
        async with self._lock:
            if not archive.exists():
                self._forget_older_wheels()
                shutil.rmtree(folder, ignore_errors=True)
                await self._download(target, folder)
                await asyncio.to_thread(_packed, folder, archive)
                shutil.rmtree(folder, ignore_errors=True)
        return archive

    def _forget_older_wheels(self) -> None:
        for archive in self._cache.glob("wheels-*.tar.gz"):
            if not archive.name.startswith(f"wheels-{self.version}-"):
                archive.unlink(missing_ok=True)

    async def python_for(self, machine: str) -> Path:
        """Return an archive of a Python that runs from any folder, downloaded here. Raises HostTrouble."""
        kind = KINDS[machine]
        archive = self._cache / f"python-{PYTHON}-{kind}.tar.gz"
        async with self._lock:
            if not archive.exists():
                folder = self._cache / f"python-{PYTHON}-{kind}"
                request = f"cpython-{PYTHON}-linux-{kind}-gnu"
                options = ["--no-progress", "--no-bin", "--install-dir", str(folder)]
                argv = [str(self.uv), "python", "install", *options, request]
                await _run(argv, "its Python cannot be downloaded here either")
                await asyncio.to_thread(_packed, folder, archive)
                shutil.rmtree(folder, ignore_errors=True)
        return archive

    async def _download(self, target: Target, folder: Path) -> None:
        kind = KINDS[target.machine]
        tags = [f"manylinux_2_{minor}_{kind}" for minor in GLIBCS if minor <= target.glibc]
        old = [f"manylinux1_{kind}", f"manylinux2010_{kind}", f"manylinux2014_{kind}", f"manylinux_2_5_{kind}"]
        platforms = [argument for tag in [*reversed(tags), *old, f"linux_{kind}"] for argument in ("--platform", tag)]
        argv = [*self._pip(), "download", "-q", "--dest", str(folder), "--only-binary", ":all:", *platforms,
                "--python-version", target.python, "--implementation", "cp",
                "-c", str(self.package / "constraints.txt"),
                str(self.package / self.requirement)]  # fmt: skip
        await _run(
            argv, f"the wheels for its Python {target.python} ({target.machine}) cannot be downloaded here either"
        )

    def _pip(self) -> list[str]:
        """Return the command of pip: that of this environment, else one that uv brings."""
        if util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return [str(self.uv), "tool", "run", "pip"]

    async def _foreign_uv(self, kind: str) -> Path:
        folder = self._cache / f"uv-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        argv = [str(self.uv), "pip", "install", "-q", "--target", str(folder), "--no-deps", "--only-binary", ":all:",
                "--python-platform", f"{kind}-manylinux_2_17", f"uv=={self.uv_version}"]  # fmt: skip
        await _run(argv, f"uv for its processor ({kind}) cannot be downloaded here")
        return folder / "bin/uv"


PYTHON = "3.12"


def _own_uv() -> tuple[Path, str]:
    """Return the program of uv here, beside this interpreter or on PATH, and its version. Raises CommandFailed."""
    try:
        uv = program()
    except ProgramMissing:
        raise CommandFailed("`rankzero nodes add` needs uv here: pip install 'rankzero[worker]'") from None
    version_line = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    return Path(uv), version_line.split()[1] if len(version_line.split()) > 1 else "unknown"


async def _run(argv: Sequence[str], failure: str) -> None:
    """Run a program to its end. Raises HostTrouble."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(DOWNLOAD_LIMIT_S):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise HostTrouble(f"{failure}: no end within {DOWNLOAD_LIMIT_S:g} s.") from None
    if process.returncode:
        raise HostTrouble(f"{failure}: {telling_line(errors.decode(errors='replace'))}.")


def _packed(folder: Path, archive: Path) -> Path:
    """Pack a folder's content, completely or not at all; returns the archive."""
    new = archive.with_name(f"{archive.name}.{os.getpid()}")
    with tarfile.open(new, "w:gz", compresslevel=1) as packed:
        for path in sorted(folder.iterdir()):
            packed.add(path, path.name)
    return new.replace(archive)


def _gzip(program: Path, packed: Path) -> None:
    new = packed.with_name(f"{packed.name}.{os.getpid()}")
    with program.open("rb") as source, gzip.open(new, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
    new.replace(packed)
