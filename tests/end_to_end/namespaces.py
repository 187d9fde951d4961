"""Processes in Linux namespaces of their own."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import psutil

from tests.end_to_end.product import WAIT_S, safely

CLONE_NEWNET = 0x40000000


def unshared(kinds: list[str], script: list[str]) -> subprocess.Popen[bytes]:
    """A shell in namespaces of its own, that dies with us, and all that it has started with it."""
    die_with_us = ["setpriv", "--pdeathsig", "KILL"]
    unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child=KILL", *kinds]
    return subprocess.Popen(
        [*die_with_us, *unshare, "sh", "-c", *script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


def first_process(unshare: subprocess.Popen[bytes]) -> int:
    assert unshare.stdout is not None
    assert unshare.stdout.readline() == b"up\n", "a host did not start: see above"
    return psutil.Process(unshare.pid).children()[0].pid


def end(unshare: subprocess.Popen[bytes]) -> None:
    for process in safely(psutil.Process(unshare.pid).children, []):
        safely(process.kill, None)
    unshare.kill()
    unshare.wait(WAIT_S)
    if unshare.stdout:
        unshare.stdout.close()


def enter_network(pid: int) -> None:
    """Only for the calling thread."""
    with Path(f"/proc/{pid}/ns/net").open("rb") as network:
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def lives(process: psutil.Process) -> bool:
    return bool(safely(process.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE)


def run_command(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
