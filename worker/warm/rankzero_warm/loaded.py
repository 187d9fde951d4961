"""What was read while torch was imported: this process's files, and whether anything took the whole environment."""

from __future__ import annotations

import glob
import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

OF_ONE_PREFIX = os.path.join("tqdm", "utils.py")  # noqa: PTH118
"""Goes through all variables for those that begin with TQDM_, which always need a process of their own."""


@contextmanager
def noticing_copies() -> Iterator[list[str]]:
    """Yield a list that is no longer empty once somebody went through all variables, as a copy of them does."""
    kind, noticed = type(os.environ), []
    original = kind.__iter__

    def iterate(self: os._Environ[str]) -> Iterator[str]:
        reader = _reader(sys._getframe(1))
        if not reader.endswith(OF_ONE_PREFIX):
            noticed.append(reader)
        return original(self)

    kind.__iter__ = iterate  # type: ignore[method-assign]
    try:
        yield noticed
    finally:
        kind.__iter__ = original  # type: ignore[method-assign]


def _reader(frame: FrameType | None) -> str:
    """The file in which the variables are gone through, beyond the class that does it."""
    while frame is not None and "_collections_abc" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def files() -> list[str]:
    """Every file whose code this process has run: its program, libraries and modules, and what `site` reads."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line}
    modules = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    started = {path for entry in sys.path for path in glob.glob(os.path.join(glob.escape(entry), "*.pth"))}  # noqa: PTH118, PTH207
    return sorted(path for path in mapped | modules | started if os.path.isfile(path))  # noqa: PTH113
