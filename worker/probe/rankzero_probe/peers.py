"""Keep the collectives of all ranks on this node at the moment when one of them fails.

The others are ended within a tenth of a second then. Their records are asked from torch's native server, which answers
also while Python is stuck. Used by a failing rank, and by the supervisor for a rank that is being aborted.
"""

from __future__ import annotations

import os
import signal
import time

ASK_S = 1.0
MAX_BYTES = 32 * 1024 * 1024
STACK_WAIT_S = 0.1
ABORTED = b"Fatal Python error: Aborted"
_REQUEST = b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: rank\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def keep_records(folder: str, own: int = 0) -> None:
    """Write PID.calls for each rank that answers and has none yet, but of process `own`; never raises OSError."""
    is_asked = False
    for name in _names(folder):
        pid, _, suffix = name.partition(".")
        if suffix != "sock" or pid == str(own) or os.path.exists(f"{folder}/{pid}.calls"):  # noqa: PTH110
            continue
        try:
            record = _ask(folder, name)
            if record.startswith(b"{"):
                _write(f"{folder}/{pid}.calls", record)
                is_asked = _ask_stack(folder, pid) or is_asked
        except (OSError, ValueError):
            continue
    if is_asked:
        time.sleep(STACK_WAIT_S)


def is_aborted(folder: str, pid: str) -> bool:
    """Whether the fault handler of process `pid` wrote that it is being aborted."""
    try:
        with open(f"{folder}/{pid}.stack", "rb") as file:  # noqa: PTH123
            return ABORTED in file.read(MAX_BYTES)
    except OSError:
        return False


def wait_in_abort() -> None:
    """Let an aborted process live for seconds, in which its record can be read.

    The handler is libc's `sleep` itself, called with the signal's number as seconds: it is native, takes no lock and
    needs no Python. gloo aborts a rank from a thread of its own when another one sends a different size.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(int(signal.SIGABRT), ctypes.cast(libc.sleep, ctypes.c_void_p))


def _ask(folder: str, name: str) -> bytes:
    """Ask through a descriptor of the folder: a socket's path has at most 107 bytes. Raises OSError, ValueError."""
    import socket

    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_S)
            connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            connection.sendall(_REQUEST)
            answer = bytearray()
            while (part := connection.recv(1 << 20)) and len(answer) < MAX_BYTES:
                answer += part
    finally:
        os.close(descriptor)
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ValueError(name)
    return body


def _ask_stack(folder: str, pid: str) -> bool:
    """Have a living rank write its stack, if the probe's handler of the signal is there."""
    if not os.path.exists(f"{folder}/{pid}.stack") or is_aborted(folder, pid):  # noqa: PTH110
        return False
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    if not int(caught, 16) >> (signal.SIGUSR2 - 1) & 1:
        return False
    os.kill(int(pid), signal.SIGUSR2)
    return True


def _write(path: str, data: bytes) -> None:
    with open(f"{path}.{os.getpid()}", "wb") as file:  # noqa: PTH123
        file.write(data)
    os.replace(f"{path}.{os.getpid()}", path)  # noqa: PTH105


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
