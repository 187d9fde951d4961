"""Other accounts of this machine, and a Python that they may execute, for tests of trainings under accounts."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SITE = Path(sys.prefix) / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@dataclass(frozen=True)
class OtherAccount:
    """An account made for a test."""

    name: str
    uid: int
    gid: int


def obstacle() -> str:
    """Why accounts cannot be made here; else nothing."""
    if os.getuid() != 0:
        return "only root makes accounts"
    if shutil.which("useradd") is None:
        return "there is no useradd"
    if not is_open(SITE) or not is_open(Path(__file__)):
        return "other accounts may not read this installation"
    return "" if _base_python() else "there is no Python of this version that other accounts may execute"


@contextmanager
def account() -> Iterator[OtherAccount]:
    """An account with a home of its own, gone afterwards."""
    name = f"rz-{secrets.token_hex(4)}"
    _change_accounts("useradd", "--create-home", "--shell", "/bin/sh", name)
    entry = pwd.getpwnam(name)
    try:
        yield OtherAccount(name, entry.pw_uid, entry.pw_gid)
    finally:
        _end_all(entry.pw_uid)  # an account with processes cannot be removed
        _change_accounts("userdel", "--remove", name)


def _change_accounts(*command: str) -> None:
    """Run a program that changes the accounts, alone: beside another it would give up before long."""
    folder = os.open("/etc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    finally:
        os.close(folder)


def _end_all(uid: int) -> None:
    """End every process of an account, also those that begin meanwhile."""
    while left := [one for one in psutil.process_iter(["uids", "status"]) if _is_living(one.info, uid)]:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=60)


def _is_living(info: dict[str, Any], uid: int) -> bool:
    return bool(info["uids"] and info["uids"].real == uid and info["status"] != psutil.STATUS_ZOMBIE)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter, unlike those of pytest."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="rankzero-accounts-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        yield folder


def make_python(folder: Path) -> Path:
    """Make an interpreter with all packages of this one that every account may execute, torchrun beside it."""
    base = _base_python()
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    (folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/all.pth").write_text(
        f"import site; site.addsitedir({str(SITE)!r})\n"
    )
    torchrun = folder / "bin/torchrun"
    torchrun.write_text(f"#!{python}\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
    torchrun.chmod(0o755)
    if (uv := Path(sys.prefix) / "bin/uv").exists():
        (folder / "bin/uv").symlink_to(uv)
    return python


def is_open(path: Path) -> bool:
    """Whether every account may read it, and pass through all folders above."""
    real = path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode)
    return bool(mode & 0o004) and all(parent.stat().st_mode & 0o001 for parent in real.parents)


def _base_python() -> str:
    """An interpreter of this version that every account may execute; "" where there is none."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = [Path(sys.executable), Path("/usr/bin") / name, Path("/usr/local/bin") / name]
    return next((str(place) for place in places if place.exists() and is_open(place)), "")
