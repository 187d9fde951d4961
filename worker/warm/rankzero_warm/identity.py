"""Give a forked process the environment and command line that it would have after exec, in /proc too."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
PR_SET_MM, PR_SET_MM_MAP = 35, 14
_MAP = struct.Struct("=12QII")
"""struct prctl_mm_map: twelve addresses, the size of the auxiliary vector, the executable's descriptor."""
_NO_FILE = 0xFFFFFFFF
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.sbrk.restype, _LIBC.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]


def take(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process's environment and show both to other programs. Raises OSError."""
    os.environ.clear()
    os.environ.update(env)
    show(argv, env)


def show(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Let /proc/PID/cmdline and /proc/PID/environ show these. Raises OSError where the kernel refuses it."""
    arguments = b"".join(os.fsencode(argument) + b"\0" for argument in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    text = arguments + variables
    memory = ctypes.create_string_buffer(text, len(text) + 1)
    begin = ctypes.addressof(memory)
    middle, end = begin + len(arguments), begin + len(text)
    fields = _own_memory()
    code, data, heap, stack = fields[26:28], fields[45:47], fields[47], fields[28]
    addresses = (*code, *data, heap, _LIBC.sbrk(0), stack, begin, middle, middle, end, 0)
    packed = _MAP.pack(*addresses, 0, _NO_FILE)
    _prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.create_string_buffer(packed, len(packed)), len(packed))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # never freed: the kernel reads it also while Python ends


def is_shown(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether /proc shows these for this process."""
    with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123
        arguments = file.read()
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        variables = file.read()
    return arguments == b"".join(os.fsencode(argument) + b"\0" for argument in argv) and variables == b"".join(
        os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items()
    )


def flush_native() -> None:
    """Write out what libraries have printed."""
    _LIBC.fflush(None)


def die_with_parent(number: int) -> None:
    """Ask for this signal when the thread that forked this process ends."""
    _prctl(PR_SET_PDEATHSIG, number, None, 0)


def _own_memory() -> list[int]:
    """The numbers of /proc/self/stat by their position there, counted from 1; see proc(5)."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        fields = file.read().rpartition(b")")[2].split()
    return [0, 0, 0, 0, *map(int, fields[1:])]


def _prctl(option: int, value: int, third: object, fourth: int) -> None:
    if _LIBC.prctl(option, value, third, ctypes.c_ulong(fourth), 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")
